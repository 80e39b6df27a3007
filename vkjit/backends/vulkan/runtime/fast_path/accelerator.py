"""Machine code for launches: compiled once per machine, in the background, and cached on disk for later processes.

`compile_plan` returns a function that launches by a plan. Machine code is optional: it isn't used on interpreters with
unrecognized object layouts, without LLVM if none is cached on disk, if its self-test fails, or if VKJIT_NATIVE_LAUNCH
is 0.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import mmap
import platform
import struct
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
from .abi import NO_WAIT, Plan, layout
from .machine_code import TABLE, launch_code
from .plan import make_plan

__all__ = ["Accelerated", "compile_plan", "is_ready", "load", "start", "state"]

Accelerated = Callable[..., bool]
"""Launches with the arguments of a call. Returns False and has no effect if Python must handle the call."""

_FUNCTIONS = ("vkjit_launch", "vkjit_record_method", "vkjit_nothing", "vkjit_end")
_OFFSETS = struct.Struct("<4Q")
_IS_X86 = platform.machine().lower() in ("x86_64", "amd64")
"""True on x86, where code can be copied to memory and run; other CPUs require instruction cache flushes."""
_SWITCH_INTERVAL = 1e-4
"""The interpreter's thread switch interval during compilation, in seconds, so that other threads aren't held up."""


class _State:
    """The machine code of this process."""

    def __init__(self) -> None:
        self.functions: dict[str, int] = {}
        """The addresses of its functions; empty until it is ready."""
        self.recorder: Callable[[int], None] | None = None
        """Makes the driver calls of a record, given its address plus flags; None without machine code."""
        self.memory: Any = None
        """The memory mapping that holds code loaded by `_placed`."""
        self.table = (ctypes.c_uint64 * len(TABLE))()
        """The addresses of the objects and functions in `TABLE`."""
        self.thread: threading.Thread | None = None
        """The compiling thread; None before it is started."""
        self.failed = False


state = _State()


def load() -> None:
    """Load the machine code that an earlier process cached. With VKJIT_NATIVE_LAUNCH=1, compile it if there is none.

    Raises ArgumentError for settings other than 0 and 1.
    """
    wanted = boolean_setting("VKJIT_NATIVE_LAUNCH")
    found = layout()
    if state.functions or state.failed or wanted is False or found is None:
        return
    data = host_compiler.read(_name(launch_code(found))) if _IS_X86 else None
    if (data is None or not _use(_placed(data))) and wanted:
        start()


def start() -> None:
    """Start compiling in the background, on the first call. With VKJIT_NATIVE_LAUNCH=1, wait for completion."""
    wanted = boolean_setting("VKJIT_NATIVE_LAUNCH")
    if state.functions or state.failed or wanted is False or layout() is None:
        return
    if state.thread is None:
        state.thread = threading.Thread(target=_compile, name="vkjit machine code")
        try:
            state.thread.start()
        except RuntimeError:  # the interpreter is about to exit, or there are too many threads
            state.failed = True
            return
    if wanted:
        state.thread.join()


def is_ready() -> bool:
    """Return True if machine code can be used."""
    return bool(state.functions)


def compile_plan(plan: Plan) -> Accelerated | None:
    """Return a function that launches by this plan or its successors; None if machine code isn't available (yet)."""
    address = state.functions.get("vkjit_launch")
    return None if address is None else _method(address, plan)


def _method(address: int, plan: Plan | None) -> Callable[..., Any]:
    """Return a Python function that runs the machine code at `address`."""
    owner = cpython.Owner(struct.pack("<2Q", 0 if plan is None else plan.address, ctypes.addressof(state.table)))
    owner.kept = plan
    return cpython.method(address, owner)


def _name(text: str) -> str:
    """Return the cache file name for the machine code of an assembly text."""
    return hashlib.sha256(f"{platform.machine()} {sys.platform} {text}".encode()).hexdigest()


def _compile() -> None:
    """Compile, load and test the machine code, and cache it on disk for later processes."""
    found, before = layout(), sys.getswitchinterval()
    sys.setswitchinterval(min(before, _SWITCH_INTERVAL))
    lowered = sys.getswitchinterval()
    try:
        if found is not None:
            text = launch_code(found)
            functions = host_compiler.compile_functions(text, *_FUNCTIONS)
            places = [functions[name] for name in _FUNCTIONS]
            start, end = functions["vkjit_launch"], functions["vkjit_end"]
            if not _IS_X86 or (start, end) != (min(places), max(places)):
                _use(functions)
                return
            data = _OFFSETS.pack(*[place - start for place in places]) + ctypes.string_at(start, end - start)
            if _use(_placed(data)):
                host_compiler.write(_name(text), data)
    except VkjitError:
        pass
    finally:
        state.failed = not state.functions
        if sys.getswitchinterval() == lowered:
            sys.setswitchinterval(before)


def _placed(data: bytes) -> dict[str, int]:
    """Copy machine code to executable memory. Return the addresses of its functions; empty if that isn't possible."""
    offsets, code = _OFFSETS.unpack_from(data), data[_OFFSETS.size :]
    if max(offsets) != len(code):
        return {}
    try:
        memory = mmap.mmap(-1, len(code), prot=mmap.PROT_READ | mmap.PROT_WRITE)
        memory[:] = code
        start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        if ctypes.CDLL(None).mprotect(
            ctypes.c_void_p(start), ctypes.c_size_t(len(code)), mmap.PROT_READ | mmap.PROT_EXEC
        ):
            return {}
    except (OSError, AttributeError, TypeError):  # the system lacks these calls or forbids executable memory
        return {}
    state.memory = memory
    return {name: start + offset for name, offset in zip(_FUNCTIONS, offsets, strict=True)}


def _use(functions: dict[str, int]) -> bool:
    """Test machine code, and enable it if the test passes; return True if it does."""
    objects: dict[str, Any] = {
        "DeviceArray": DeviceArray, "False": False, "NO_WAIT": NO_WAIT, "None": None, "Queue": Queue, "True": True,
        "VulkanBuffer": VulkanBuffer,
    }  # fmt: skip
    for number, name in enumerate(TABLE):
        state.table[number] = id(objects[name]) if name in objects else cpython.api(name)
    if not functions or not _self_test(functions):
        return False
    state.recorder, state.functions = _method(functions["vkjit_record_method"], None), functions
    return True


def _self_test(functions: dict[str, int]) -> bool:
    """Make a call that doesn't match a plan and one that does, with stubs for the driver, and check all effects."""
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
    table = ctypes.create_string_buffer(record.TABLE.pack(*[functions["vkjit_nothing"]] * 4, 0, 0))
    memory = record.Record(record.BLOCK + len(launch.block))
    record.HEADER.pack_into(memory, 0, ctypes.addressof(table), 0, 0, len(launch.block))
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    plan = make_plan(launch, pattern, memory, address, queue, current, device)
    if plan is None:
        return False
    call = _method(functions["vkjit_launch"], plan)
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
    state.thread = None  # the thread exists only in the parent


on_fork(_in_child)
