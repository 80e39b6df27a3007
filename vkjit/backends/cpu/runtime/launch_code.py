"""Machine code of launches of short kernels on the CPU device; see `runtime.machine_code`.

The kernel runs on the calling thread, which keeps the GIL (see `short_launch`). A kernel may poll its cancellation
token, and thereby run signal handlers and other threads. So the code marks its plan as busy, and holds references to the
plan and to the buffers until the kernel has run; who meets a busy plan launches in Python.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import struct
import time
from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from vkjit import dtypes
from vkjit.runtime.array import DeviceArray, layout_of
from vkjit.runtime.artifact import REPORT_WORDS
from vkjit.runtime.machine_code.abi import Layout, Plan, Row, Word, find_layout
from vkjit.runtime.machine_code.launch_code import API, OBJECTS, LaunchCode
from vkjit.runtime.machine_code.loader import MachineCode
from vkjit.runtime.machine_code.plan import make_plan
from vkjit.runtime.prepared_launch import REPORT, CallPattern, Hole, PreparedLaunch, prepare

from .buffer import CpuBuffer
from .cancellation import TOKEN_KEY, token_of_thread
from .kernel import CpuKernel
from .workers import MAX_SHORT_NANOSECONDS, Pace

if TYPE_CHECKING:
    from .device import CpuDevice

__all__ = ["HEADER", "CpuCode", "cpu_code", "layout", "short_plan"]

HEADER = struct.Struct("<6Q")
"""The header of a launch's record, before the argument block: the kernel's address, the number of workgroups, the grid
(3), the cancellation token's address.
"""
_COMPILE_AFTER = 100
"""Number of short launches after which machine code is compiled, so that short programs don't pay for it."""
_TABLE = (*API, "PyThreadState_GetDict", "clock_gettime", *OBJECTS, "TOKEN_KEY")


class _CpuWord(IntEnum):
    """The back end's words of a plan.

    FUNCTION is the kernel's address, GATE that of a word that must be 1, LIMIT that of the greatest number of
    workgroups that is short, REPORT that of the report buffer or 0. BUSY is 1 while the plan launches. AFTER is a
    Python function for launches that reported, were stopped or took long. OWNER is the plan.
    """

    FUNCTION, GATE, LIMIT, REPORT, BUSY, AFTER, OWNER = range(Word.OWN, Word.OWN + 7)


_TOTAL, _NANOSECONDS, _BLOCK = 0, 8, 16
"""Offsets in the record: the workgroups of the latest launch, the time it took, the argument block."""


class _CpuLaunch(LaunchCode):
    """Generator of launches that run at once."""

    def enter(self) -> None:
        """Check that launches needn't pass through `Device.launch`."""
        t = self.t
        t.unless(t.same(t.load(self.of(_CpuWord.GATE)), 1), "nothing")

    def leave(self) -> None:
        pass

    def check_plan(self) -> None:
        """Check that the plan isn't busy: its rows hold references then."""
        self.t.unless(self.t.same(self.of(_CpuWord.BUSY), 0), "refused")

    def check_buffer(self, buffer: str, written: str) -> None:
        """Check that the buffer isn't closed."""
        address = self.number(self.t.load(buffer, self.layout.buffer["address"]))
        self.t.unless(self.t.new(f"icmp ne i64 {address}, 0"), "refused")

    def execute(self) -> None:
        t = self.t
        x, y, z = [t.get(groups) for groups in self.groups]
        limit, total = t.load(self.of(_CpuWord.LIMIT)), "1"
        for groups in (x, y, z):  # each is below 2^31, the limit below 2^32
            total = t.new(f"mul i64 {total}, {groups}")
            t.unless(t.new(f"icmp ule i64 {total}, {limit}"), "refused")
        token = self.token()
        t.store("1", self.plan, 8 * _CpuWord.BUSY)
        self.refused = "held"
        record = self.of(Word.RECORD)
        self.fields(record)
        self.count_writes()
        self.hold()
        t.store(total, record, _TOTAL)
        function = t.pointer(self.of(_CpuWord.FUNCTION))
        block, watch = t.pointer(record, _BLOCK), t.pointer(token)
        start = self.clock()
        t.put(f"call void {function}(ptr {block}, i64 0, i64 {total}, i64 {x}, i64 {y}, i64 {z}, ptr {watch})")
        taken = t.new(f"sub i64 {self.clock()}, {start}")
        unusual = t.new(f"or i64 {t.load(token)}, {t.new(f'zext i1 {self.is_long(taken)} to i64')}")
        found = t.cell(unusual)
        report = self.of(_CpuWord.REPORT)
        with t.where(t.new(f"icmp ne i64 {report}, 0")):
            first = t.new(f"and i64 {t.load(report)}, 4294967295")
            t.set(found, t.new(f"or i64 {unusual}, {first}"))
        answer = t.cell("1")
        with t.where(t.new(f"icmp ne i64 {t.get(found)}, 0")):
            t.store(taken, record, _NANOSECONDS)
            made = t.call("PyObject_CallNoArgs", self.of(_CpuWord.AFTER))
            t.set(answer, made)
            with t.where(t.new(f"icmp ne i64 {made}, 0")):
                t.call("Py_DecRef", made, returns="void")
        self.let_go()
        with t.where(t.same(t.get(answer), 0)):
            t.put("ret i64 0")
            t.at(t.label("unused"))

    def undo(self) -> None:
        self.t.store("0", self.plan, 8 * _CpuWord.BUSY)

    def token(self) -> str:
        """Look up the address of the thread's cancellation token."""
        t = self.t
        own = t.call("PyThreadState_GetDict")
        t.unless(t.new(f"icmp ne i64 {own}, 0"), "refused")
        found = t.call("PyDict_GetItemWithError", own, t.known("TOKEN_KEY"))
        self.check_error(t.same(found, 0))
        t.unless(t.new(f"icmp ne i64 {found}, 0"), "refused")
        return self.number(found)

    def hold(self) -> None:
        """Count the writes, and take references to the plan and the buffers."""
        t = self.t
        t.call("Py_IncRef", self.of(_CpuWord.OWNER), returns="void")
        with self.each_row(Word.ARRAYS, Row.WORDS) as (_, row):
            t.call("Py_IncRef", t.load(row, 8 * Row.BUFFER), returns="void")
            with t.where(t.new(f"icmp ne i64 {t.load(row, 8 * Row.COUNTS)}, 0")):
                counter = t.load(t.load("%args", t.load(row, 8 * Row.PLACE)), t.load(row, 8 * Row.COUNTER))
                self.put(t.load(row, 8 * Row.NEW), counter, t.load(row, 8 * Row.COUNT))

    def let_go(self) -> None:
        """Drop these references, and end being busy."""
        t, owner = self.t, self.of(_CpuWord.OWNER)
        with self.each_row(Word.ARRAYS, Row.WORDS) as (_, row):
            t.call("Py_DecRef", t.load(row, 8 * Row.BUFFER), returns="void")
        t.store("0", self.plan, 8 * _CpuWord.BUSY)
        t.call("Py_DecRef", owner, returns="void")

    def clock(self) -> str:
        """Read the clock, in nanoseconds."""
        t = self.t
        place = t.space(2)
        t.call("clock_gettime", str(time.CLOCK_MONOTONIC), place)
        seconds, nanoseconds = t.load(place), t.load(place, 8)
        return t.new(f"add i64 {t.new(f'mul i64 {seconds}, 1000000000')}, {nanoseconds}")

    def is_long(self, nanoseconds: str) -> str:
        return self.t.new(f"icmp ugt i64 {nanoseconds}, {MAX_SHORT_NANOSECONDS}")


@functools.cache
def layout() -> Layout | None:
    """Return the offsets of the objects that the code accesses, or None if they aren't recognized."""
    return find_layout((CpuBuffer, ("device", "address")))


_CALL = f"""
define void @vkjit_call(ptr %record) {{
{"".join(f"  %p{n} = getelementptr i64, ptr %record, i64 {n}{chr(10)}" for n in range(7))}
  %function = load ptr, ptr %p0
  %end = load i64, ptr %p1
  %x = load i64, ptr %p2
  %y = load i64, ptr %p3
  %z = load i64, ptr %p4
  %watch = load ptr, ptr %p5
  call void %function(ptr %p6, i64 0, i64 %end, i64 %x, i64 %y, i64 %z, ptr %watch)
  ret void
}}
"""
"""A function that runs all workgroups of a launch, given its record."""

_EXAMPLE = """
define void @vkjit_example(ptr %block, i64 %begin, i64 %end, i64 %x, i64 %y, i64 %z, ptr %watch) {
  %out = load ptr, ptr %block
  store i64 %end, ptr %out
  %second = getelementptr i64, ptr %out, i64 1
  store i64 %z, ptr %second
  %third = getelementptr i64, ptr %block, i64 1
  %scalar = load i64, ptr %third
  %last = getelementptr i64, ptr %out, i64 2
  store i64 %scalar, ptr %last
  ret void
}
define void @vkjit_end() {
  ret void
}
"""
"""A kernel for the self-test: it writes the number of workgroups, the grid's z and a scalar to its array."""


@functools.cache
def _clock() -> int | None:
    """Return the address of the C library's clock; None if it has none."""
    try:
        return ctypes.cast(ctypes.CDLL(None).clock_gettime, ctypes.c_void_p).value
    except (AttributeError, OSError, TypeError):
        return None


def _caller(functions: dict[str, int]) -> Callable[[bytes], None]:
    """Return machine code that launches by a record, as a function that keeps the GIL."""
    caller: Callable[[bytes], None] = ctypes.PYFUNCTYPE(None, ctypes.c_char_p)(functions["vkjit_call"])
    return caller


@functools.lru_cache(maxsize=256)
def _function_at(address: int) -> Callable[..., None]:
    """Return the kernel's function, which is called with the GIL held."""
    return ctypes.PYFUNCTYPE(None, ctypes.c_char_p, *[ctypes.c_void_p] * 6)(address)


class CpuCode(MachineCode):
    """Machine code that launches short kernels."""

    names = ("vkjit_launch", "vkjit_call", "vkjit_example", "vkjit_end")
    table = _TABLE
    modules = (__name__, Pace.__module__)

    def __init__(self) -> None:
        super().__init__()
        self.call: Callable[[bytes], None] = self._call_in_python
        """Runs all workgroups of a launch, given its record, on the calling thread, which keeps the GIL."""
        self._calls = itertools.count(1)

    def layout(self) -> Layout | None:
        return None if _clock() is None else layout()

    def text(self, layout: Layout) -> str:
        return _CpuLaunch(layout, _TABLE).text() + _CALL + _EXAMPLE

    def objects(self) -> dict[str, Any]:
        return {
            "Buffer": CpuBuffer, "DeviceArray": DeviceArray, "False": False, "None": None, "TOKEN_KEY": TOKEN_KEY,
            "True": True, "clock_gettime": _clock(),
        }  # fmt: skip

    def passes_test(self, functions: dict[str, int]) -> bool:
        """Make a call that doesn't match a plan and one that does, and check what the example kernel wrote."""
        token_of_thread()
        device: Any = type("Device", (), {"gate": (ctypes.c_int64 * 1)(1)})()
        buffer: Any = CpuBuffer.__new__(CpuBuffer)
        memory = (ctypes.c_int64 * 4)()
        buffer.device, buffer.address, buffer.owner = device, ctypes.addressof(memory) - 64, self
        array = DeviceArray.placed(buffer, 64, dtypes.i64, layout_of(dtypes.i64, (3,), (1,)))
        kernel: Any = CpuKernel.__new__(CpuKernel)
        kernel.address, kernel.pace, kernel.report_offset = functions["vkjit_example"], Pace(), None
        kernel.pace.learn(1, 100)
        launch = prepare(kernel, bytes(16), (Hole(0, 0), Hole(8, 1, code="q")), 2, (), (0,))
        pattern = CallPattern((array, 1), (0,), (2, 3, 4), scalars=(1,))
        plan = short_plan(device, kernel, launch, pattern)
        if plan is None:
            return False
        call = self.method(functions["vkjit_launch"], plan)
        refused, done = call(array, 1.5), call(array, -7)
        device.gate[0] = 0
        passed = (refused, done, call(array, 0), list(memory)) == (False, True, False, [24, 4, -7, 0])
        buffer.address = 0  # nothing to release
        record = HEADER.pack(kernel.address, 5, 5, 1, 6, token_of_thread().address)
        _caller(functions)(record + struct.pack("<Qq", ctypes.addressof(memory), 8))
        return passed and list(memory) == [5, 6, 8, 0]

    def use(self, functions: dict[str, int]) -> None:
        super().use(functions)
        self.call = _caller(functions)

    def _call_in_python(self, record: bytes) -> None:
        """Call the kernel through ctypes, which takes longer than machine code."""
        if next(self._calls) == _COMPILE_AFTER:
            self.start()
        address, total, x, y, z, token = HEADER.unpack_from(record)
        _function_at(address)(record[HEADER.size :], 0, total, x, y, z, token)


cpu_code = CpuCode()


def short_plan(device: CpuDevice, kernel: CpuKernel, launch: PreparedLaunch, pattern: CallPattern) -> Plan | None:
    """Return the plan of a launch, or None if machine code can't run it."""
    words = None if kernel.report_offset is None else np.zeros(REPORT_WORDS, dtype=np.uint32)
    memory = (ctypes.c_uint64 * ((_BLOCK + len(launch.block) + 7) // 8))()
    address, report = ctypes.addressof(memory), 0 if words is None else int(words.ctypes.data)
    ctypes.memmove(address + _BLOCK, launch.block, len(launch.block))
    for hole in launch.holes:
        if hole.number == REPORT:
            ctypes.c_uint64.from_address(address + _BLOCK + hole.offset).value = report

    def after() -> None:
        """Handle an unusual launch: learn how long it took, collect reports, raise what a signal handler raised."""
        total, nanoseconds = memory[_TOTAL // 8], memory[_NANOSECONDS // 8]
        if nanoseconds > MAX_SHORT_NANOSECONDS:
            kernel.pace.learn_short(total, nanoseconds)
        if words is not None and words[0]:
            device.collect(kernel, words)
        token_of_thread().check()

    own: dict[int, int] = {
        _CpuWord.FUNCTION: kernel.address, _CpuWord.GATE: ctypes.addressof(device.gate),
        _CpuWord.LIMIT: ctypes.addressof(kernel.pace.limit), _CpuWord.REPORT: report, _CpuWord.AFTER: id(after),
    }  # fmt: skip
    kept = (memory, words, after, kernel.pace, device.gate)
    plan = make_plan(launch, pattern, device, CpuBuffer, (address, _BLOCK), own, kept)
    if plan is not None:
        plan.set(_CpuWord.OWNER, id(plan))
    return plan
