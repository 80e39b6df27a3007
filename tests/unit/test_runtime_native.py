"""The native recorder beside what the table says: which functions of the driver it calls, with what, in which order."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from vkjit import plan
from vkjit.cpu import obstacle
from vkjit.errors import ArgumentError
from vkjit.runtime import direct_generate, native

COMMAND, PIPELINE, LAYOUT, MEMORY, STAGES = 0x1000_0001, 0x2_0000_0002, 0x3_0000_0003, 0x4_0000_0004, 0x1800
BLOCK = bytes(range(1, 25))


def recorded(flags: int, block: bytes) -> list[tuple[Any, ...]]:
    """The calls that recording one record makes."""
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
    table = ctypes.create_string_buffer(native.TABLE.pack(*functions, MEMORY, STAGES))
    record = bytearray(native.BLOCK + len(block))
    native.RECORD.pack_into(record, 0, ctypes.addressof(table), PIPELINE, LAYOUT, len(block), 5, 6)
    record[native.FLAT_PLACE : native.BLOCK] = COMMAND.to_bytes(8, "little") + (4).to_bytes(4, "little") + bytes(4)
    record[native.BLOCK :] = block
    assert native.groups(record) == (4, 5, 6)
    memory = (ctypes.c_uint64 * ((len(record) + 7) // 8)).from_buffer_copy(bytes(record) + bytes(-len(record) % 8))
    address = plan._compile_recorder(native.TEXT, "vkjit_record")
    ctypes.PYFUNCTYPE(None, pointer)(address)(ctypes.addressof(memory) | flags)
    return calls


@pytest.mark.skipif(bool(obstacle()), reason=f"no native code: {obstacle()}")
@pytest.mark.parametrize("flags", range(4))
@pytest.mark.parametrize("block", [BLOCK, b""])
def test_the_driver_gets_what_the_record_says(flags: int, block: bytes) -> None:
    expected: list[tuple[Any, ...]] = []
    if flags & native.BIND:
        expected.append(("bind", COMMAND, 1, PIPELINE))
    if flags & native.BARRIER:
        expected.append(("barrier", COMMAND, STAGES, STAGES, 0, 1, MEMORY, 0, 0, 0, 0))
    if block:
        expected.append(("push", COMMAND, LAYOUT, 0x20, 0, len(block), block))
    expected.append(("dispatch", COMMAND, 4, 5, 6))
    assert recorded(flags, block) == expected


def test_the_written_out_functions_are_up_to_date() -> None:
    assert direct_generate.main(["--check"]) == 0


def test_a_recorder_that_can_not_be_made_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    native.recorder.cache_clear()
    try:
        monkeypatch.setattr(native, "_makers", [])
        assert native.recorder() is None
    finally:
        native.recorder.cache_clear()


def test_settings_that_there_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, expected in (("", False), ("0", False), ("1", True)):
        monkeypatch.setenv("VKJIT_NATIVE_LAUNCH", text)
        assert native.at_once() is expected
    monkeypatch.setenv("VKJIT_NATIVE_LAUNCH", "maybe")
    with pytest.raises(ArgumentError, match="expected 0"):
        native.at_once()
