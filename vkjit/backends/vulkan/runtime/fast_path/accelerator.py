"""Machine code for launches, compiled once per process, in the background.

`compile_plan` makes a function of a plan. Everything works without machine code, but slower: it isn't used on interpreters whose
objects can't be looked into, without LLVM, if its self-test fails, or if VKJIT_NATIVE_LAUNCH is 0.
"""

from __future__ import annotations

import ctypes
import itertools
import sys
import threading
from collections.abc import Callable
from typing import Any

from vkjit import dtypes
from vkjit.errors import VkjitError
from vkjit.runtime import host_compiler
from vkjit.runtime.array import DeviceArray, layout_of
from vkjit.runtime.handles import on_fork
from vkjit.runtime.prepared_launch import CallPattern, Hole, prepare
from vkjit.settings import boolean_setting

from .. import record
from ..memory.buffer import VulkanBuffer
from ..pipeline.pipeline import VulkanKernel
from ..queue.queue import Queue
from . import cpython
from .abi import Plan, layout
from .machine_code import launch_code
from .plan import make_plan

__all__ = ["Accelerated", "compile_plan", "is_ready", "start", "state"]

Accelerated = Callable[..., bool]
"""Launches with the arguments of a call. Returns False, and nothing has happened, if Python must decide."""

_LAUNCH, _RECORD, _NOTHING = "vkjit_launch", "vkjit_record_method", "vkjit_nothing"
_EXTRA = """
define i64 @vkjit_record_method(i64 %owner, ptr %args, i64 %count) {{
  %given = load i64, ptr %args
  %read = inttoptr i64 {read} to ptr
  %flagged = call i64 %read(i64 %given)
  call void @vkjit_record(i64 %flagged)
  %counted = inttoptr i64 {counted} to ptr
  call void %counted(i64 {none})
  ret i64 {none}
}}
define void @vkjit_nothing() {{
  ret void
}}
"""
_SWITCH_INTERVAL = 1e-4
"""Seconds for which the compiling thread may keep others from running Python code."""


class _State:
    """The machine code of this process."""

    def __init__(self) -> None:
        self.functions: dict[str, int] = {}
        """The addresses of its functions; none before it is ready."""
        self.recorder: Callable[[int], None] | None = None
        """Makes the driver calls of a record, given its address and flags; None without machine code."""
        self.thread: threading.Thread | None = None
        """The thread that compiles, or has compiled."""
        self.failed = False


state = _State()


def start() -> None:
    """Start compiling in the background; does nothing after the first call. VKJIT_NATIVE_LAUNCH=1 waits for it.

    Raises ArgumentError for other settings than 0 and 1.
    """
    wanted = boolean_setting("VKJIT_NATIVE_LAUNCH")
    if state.functions or state.failed or wanted is False or layout() is None:
        return
    if state.thread is None:
        state.thread = threading.Thread(target=_compile_all, name="vkjit machine code")
        state.thread.start()
    if wanted:
        state.thread.join()


def is_ready() -> bool:
    """Return True if machine code can be used."""
    return bool(state.functions)


def compile_plan(plan: Plan) -> Accelerated | None:
    """Return a function that launches by this plan or those that follow it; None if there is no machine code (yet)."""
    address = state.functions.get(_LAUNCH)
    return None if address is None else cpython.method(address, plan)


def _compile_all() -> None:
    found, before = layout(), sys.getswitchinterval()
    sys.setswitchinterval(min(before, _SWITCH_INTERVAL))
    lowered = sys.getswitchinterval()
    try:
        if found is not None:
            read, counted = cpython.api("PyLong_AsUnsignedLongLong"), cpython.api("Py_IncRef")
            text = launch_code(found) + _EXTRA.format(read=read, counted=counted, none=id(None))
            functions = host_compiler.compile_functions(text, _LAUNCH, _RECORD, _NOTHING)
            if _self_test(functions):
                state.functions, state.recorder = functions, cpython.method(functions[_RECORD], None)
    except VkjitError:
        pass
    finally:
        state.failed = not state.functions
        if sys.getswitchinterval() == lowered:
            sys.setswitchinterval(before)


def _self_test(functions: dict[str, int]) -> bool:
    """Launch once without a driver and compare what was written with what should have been; then a call that doesn't match."""
    queue: Any = Queue.__new__(Queue)
    queue.lock, queue.command_handle, queue.epoch, queue.transferred = threading.RLock(), 0x1234, 1007, False
    queue.bound, queue.serial, queue.recorded, queue.budget = None, 1005, 2000, 3000
    queue.group = type("Group", (), {"epochs": itertools.count(1008)})
    kernel: Any = VulkanKernel.__new__(VulkanKernel)
    kernel.queue = kernel.user = kernel.last_use = None
    current, device = type("Current", (), {"queue": queue}), object()
    buffers: list[Any] = [VulkanBuffer.__new__(VulkanBuffer) for _ in range(2)]
    arrays = []
    for number, buffer in enumerate(buffers):
        buffer.device, buffer.queue, buffer.readers, buffer.address = device, queue, None, 0x10000 * (number + 1)
        buffer.read_epoch, buffer.write_epoch, buffer.last_use, buffer.last_write = 0, 1007 * number, 0, 0
        arrays.append(DeviceArray.placed(buffer, 64, dtypes.f32, layout_of(dtypes.f32, (5,), (1,))))
    holes = (Hole(0, 0), Hole(8, 1, 4), Hole(16, 2, code="i"), Hole(20, 3, code="f"))
    launch = prepare(kernel, bytes(24), holes, 4, (0,), (1,))
    pattern = CallPattern((*arrays, 1, 1.5), (0, 1), (7, 8, 9), scalars=(2, 3))
    table = ctypes.create_string_buffer(record.TABLE.pack(*[functions[_NOTHING]] * 4, 0, 0))
    memory = record.Record(record.BLOCK + len(launch.block))
    record.HEADER.pack_into(memory, 0, ctypes.addressof(table), 0, 0, len(launch.block))
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    plan = make_plan(launch, pattern, memory, address, queue, current, device)
    if plan is None:
        return False
    call = cpython.method(functions[_LAUNCH], plan)
    refused, done = call(*arrays, 1.5, 1), call(*arrays, -3, 0.25)
    block = record.BLOCK
    first, second = buffers
    passed = (
        (refused, done, queue.recorded, queue.epoch, queue.bound) == (False, True, 2001, 1008, kernel)
        and record.groups(memory) == (7, 8, 9)
        and memory[record.COMMAND : record.COMMAND + 8] == (0x1234).to_bytes(8, "little")
        and memory[block:] == launch.packer.pack(0x10040, 0x20044, -3, 0.25)
        and (first.read_epoch, first.last_use, first.last_write) == (1008, 1005, 0)
        and (second.write_epoch, second.last_use, second.last_write) == (1008, 1005, 1005)
        and (kernel.user, kernel.last_use) == (queue, 1005)
        and queue.lock.acquire(blocking=False)
    )
    for buffer in buffers:
        buffer.queue = None  # nothing to release
    return passed


def _in_child() -> None:
    state.thread = None  # it exists in the parent alone


on_fork(_in_child)
