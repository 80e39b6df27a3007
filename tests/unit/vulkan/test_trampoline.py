"""Tests of the native recorder: the driver functions that it calls, their arguments and order, against its table."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from vkjit.backends.cpu import obstacle
from vkjit.backends.vulkan.runtime import trampoline
from vkjit.backends.vulkan.runtime.fast_path import generate
from vkjit.errors import ArgumentError
from vkjit.launch import plan

COMMAND, PIPELINE, LAYOUT, MEMORY, STAGES = 0x1000_0001, 0x2_0000_0002, 0x3_0000_0003, 0x4_0000_0004, 0x1800
BLOCK = bytes(range(1, 25))


def recorded(flags: int, block: bytes) -> list[tuple[Any, ...]]:
    """Return the driver calls made for one launch record."""
    calls: list[tuple[Any, ...]] = []
    pointer, number = ctypes.c_void_p, ctypes.c_uint32
    bind = ctypes.CFUNCTYPE(None, pointer, number, ctypes.c_uint64)(lambda *a: calls.append(("bind", *a)))
    push = ctypes.CFUNCTYPE(None, pointer, ctypes.c_uint64, number, number, number, pointer)(
        lambda *a: calls.append(("push", *a[:5], ctypes.string_at(a[5], a[4])))
    )
    dispatch = ctypes.CFUNCTYPE(None, pointer, number, number, number)(lambda *a: calls.append(("dispatch", *a)))
    kinds = (number, number, number, number, ctypes.c_uint64, number, ctypes.c_uint64, number, ctypes.c_uint64)
    barrier = ctypes.CFUNCTYPE(None, pointer, *kinds)(lambda *a: calls.append(("barrier", *a)))
    functions = [ctypes.cast(f, pointer).value or 0 for f in (bind, push, dispatch, barrier)]
    table = ctypes.create_string_buffer(trampoline.TABLE.pack(*functions, MEMORY, STAGES))
    record = bytearray(trampoline.BLOCK + len(block))
    trampoline.RECORD.pack_into(record, 0, ctypes.addressof(table), PIPELINE, LAYOUT, len(block), 5, 6)
    record[trampoline.FLAT_PLACE : trampoline.BLOCK] = (
        COMMAND.to_bytes(8, "little") + (4).to_bytes(4, "little") + bytes(4)
    )
    record[trampoline.BLOCK :] = block
    assert trampoline.groups(record) == (4, 5, 6)
    memory = (ctypes.c_uint64 * ((len(record) + 7) // 8)).from_buffer_copy(bytes(record) + bytes(-len(record) % 8))
    address = plan._compile_recorder(trampoline.TEXT, "vkjit_record")
    ctypes.PYFUNCTYPE(None, pointer)(address)(ctypes.addressof(memory) | flags)
    return calls


@pytest.mark.skipif(bool(obstacle()), reason=f"no native code: {obstacle()}")
@pytest.mark.parametrize("flags", range(4))
@pytest.mark.parametrize("block", [BLOCK, b""])
def test_the_driver_gets_what_the_record_says(flags: int, block: bytes) -> None:
    expected: list[tuple[Any, ...]] = []
    if flags & trampoline.BIND:
        expected.append(("bind", COMMAND, 1, PIPELINE))
    if flags & trampoline.BARRIER:
        expected.append(("barrier", COMMAND, STAGES, STAGES, 0, 1, MEMORY, 0, 0, 0, 0))
    if block:
        expected.append(("push", COMMAND, LAYOUT, 0x20, 0, len(block), block))
    expected.append(("dispatch", COMMAND, 4, 5, 6))
    assert recorded(flags, block) == expected


def test_the_written_out_functions_are_up_to_date() -> None:
    assert generate.main(["--check"]) == 0


def test_a_recorder_that_can_not_be_made_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    trampoline.recorder.cache_clear()
    try:
        monkeypatch.setattr(trampoline, "_makers", [])
        assert trampoline.recorder() is None
    finally:
        trampoline.recorder.cache_clear()


def test_settings_that_there_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, expected in (("", False), ("0", False), ("1", True)):
        monkeypatch.setenv("VKJIT_NATIVE_LAUNCH", text)
        assert trampoline.at_once() is expected
    monkeypatch.setenv("VKJIT_NATIVE_LAUNCH", "maybe")
    with pytest.raises(ArgumentError, match="expected 0"):
        trampoline.at_once()
