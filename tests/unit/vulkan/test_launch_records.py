"""Launch records: the driver calls that machine code makes for one; when there is no machine code."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from vkjit.backends.cpu import obstacle
from vkjit.backends.vulkan.runtime import record as launch_record
from vkjit.backends.vulkan.runtime.fast_path import accelerator, queue_code
from vkjit.errors import ArgumentError, FeatureError, InternalError
from vkjit.runtime import host_compiler
from vkjit.runtime.machine_code.loader import IS_X86

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
    table = ctypes.create_string_buffer(launch_record.TABLE.pack(*functions, MEMORY, STAGES))
    record = bytearray(launch_record.BLOCK + len(block))
    launch_record.HEADER.pack_into(record, 0, ctypes.addressof(table), PIPELINE, LAYOUT, len(block))
    record[launch_record.GRID_YZ : launch_record.BLOCK] = struct.pack(launch_record.VARIABLE, 5, 6, COMMAND, 4)
    record[launch_record.BLOCK :] = block
    assert launch_record.groups(record) == (4, 5, 6)
    memory = (ctypes.c_uint64 * ((len(record) + 7) // 8)).from_buffer_copy(bytes(record) + bytes(-len(record) % 8))
    address = host_compiler.compile_functions(launch_record.TEXT, "vkjit_record")["vkjit_record"]
    ctypes.PYFUNCTYPE(None, pointer)(address)(ctypes.addressof(memory) | flags)
    return calls


@pytest.mark.skipif(bool(obstacle()), reason=f"no native code: {obstacle()}")
@pytest.mark.parametrize("flags", range(4))
@pytest.mark.parametrize("block", [BLOCK, b""])
def test_the_driver_gets_what_the_record_says(flags: int, block: bytes) -> None:
    expected: list[tuple[Any, ...]] = []
    if flags & launch_record.BIND:
        expected.append(("bind", COMMAND, 1, PIPELINE))
    if flags & launch_record.BARRIER:
        expected.append(("barrier", COMMAND, STAGES, STAGES, 0, 1, MEMORY, 0, 0, 0, 0))
    if block:
        expected.append(("push", COMMAND, LAYOUT, 0x20, 0, len(block), block))
    expected.append(("dispatch", COMMAND, 4, 5, 6))
    assert recorded(flags, block) == expected


def test_without_a_compiler_there_is_no_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> Any:
        raise FeatureError("no LLVM")

    fresh = accelerator.QueueCode()
    monkeypatch.setattr(host_compiler, "compile_functions", refused)
    monkeypatch.setenv("VKJIT_NATIVE_LAUNCH", "1")
    fresh.start()
    assert fresh.failed and not fresh.is_ready() and fresh.recorder is None


@pytest.mark.skipif(bool(obstacle()), reason=f"no native code: {obstacle()}")
@pytest.mark.parametrize("spoiled", ["epoch", "address", "x"])
def test_machine_code_that_fails_its_self_test_is_not_used(monkeypatch: pytest.MonkeyPatch, spoiled: str) -> None:
    """Code that reads from wrong offsets, as on an interpreter whose objects look different, must be found out."""
    if accelerator.layout() is None:
        pytest.skip("this interpreter's objects can't be looked into")
    usual = queue_code.launch_code

    def code(found: Any) -> str:
        queue = dict(found.own["Queue"])
        if spoiled == "epoch":
            queue["epoch"] = queue["serial"]
        own = {**found.own, "Queue": queue}
        text: str = usual(dataclasses.replace(found, own=own, items=found.items + 8 * (spoiled == "address")))
        return text.replace("store i32", "store i16") if spoiled == "x" else text

    fresh = accelerator.QueueCode()
    monkeypatch.setattr(accelerator, "launch_code", code)
    monkeypatch.setenv("VKJIT_NATIVE_LAUNCH", "1")
    fresh.start()
    assert fresh.failed and not fresh.is_ready()


def test_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = accelerator.QueueCode()
    monkeypatch.setenv("VKJIT_NATIVE_LAUNCH", "0")
    fresh.start()
    assert fresh.thread is None and not fresh.failed
    monkeypatch.setenv("VKJIT_NATIVE_LAUNCH", "maybe")
    with pytest.raises(ArgumentError, match="expected 0"):
        fresh.start()


_LOAD = """
import sys
import threading
import vkjit
from vkjit.backends.vulkan.runtime.fast_path import accelerator
accelerator.queue_code.load()
print(accelerator.queue_code.is_ready(), "llvmlite" in sys.modules)
"""


@pytest.mark.skipif(bool(obstacle()), reason=f"no native code: {obstacle()}")
def test_machine_code_is_kept_for_later_processes(tmp_path: Path) -> None:
    """A later process uses it without LLVM; one that finds the file damaged does without."""
    if accelerator.layout() is None or not IS_X86:
        pytest.skip("machine code is kept on x86 only, for interpreters whose objects can be looked into")

    def loaded(setting: str) -> str:
        environment = {
            **os.environ,
            "VKJIT_CACHE_DIR": str(tmp_path),
            "VKJIT_CACHE": "1",
            "VKJIT_NATIVE_LAUNCH": setting,
        }
        command = [sys.executable, "-c", _LOAD]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()

    assert loaded("") == "False False"
    assert loaded("1") == "True True"
    assert loaded("") == "True False"
    (kept,) = (path for path in (tmp_path / "machine").iterdir() if not path.name.startswith("."))
    data = bytearray(kept.read_bytes())
    data[-1] ^= 1
    kept.write_bytes(data)
    assert loaded("") == "False False"


@pytest.mark.skipif(bool(obstacle()), reason=f"no native code: {obstacle()}")
def test_code_that_is_not_self_contained_is_refused() -> None:
    text = "define float @f(float %x) {\n  %y = fadd float %x, 0x3FF3333340000000\n  ret float %y\n}\n"
    with pytest.raises(InternalError, match="self-contained"):
        host_compiler.compile_functions(text, "f")


def test_launches_do_without_where_no_thread_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: Any) -> None:
        raise RuntimeError("can't start new thread")

    fresh = accelerator.QueueCode()
    monkeypatch.setattr(threading.Thread, "start", start)
    monkeypatch.setenv("VKJIT_NATIVE_LAUNCH", "1")
    fresh.start()
    fresh.start()
    assert fresh.failed and not fresh.is_ready()
