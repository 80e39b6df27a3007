"""A few machine instructions that hand one launch to the driver: what would be four calls from Python becomes one.

Enters: from above, a compiler of LLVM's text, where one is installed. Leaves: `recorder()`, a function that takes the
address of a record and calls the driver, or None. Holds: it keeps the interpreter's lock.

A record lies at a multiple of eight and holds, in bytes: 0 the address of a table, 8 pipeline, 16 layout, 24 size of the
argument block, 32 workgroups along y and z (u32), 40 command buffer, 48 workgroups along x (u32), 56 the argument block. The
address is passed with flags (`BIND`, `BARRIER`) added. A table: 0 vkCmdBindPipeline, 8
vkCmdPushConstants, 16 vkCmdDispatch, 24 vkCmdPipelineBarrier, 32 the VkMemoryBarrier, 40 its stages (u32).
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable

from vkjit.errors import VkjitError
from vkjit.settings import boolean_setting

from . import cpython

__all__ = [
    "BARRIER",
    "BIND",
    "BLOCK",
    "DEEP",
    "FLAT",
    "FLAT_PLACE",
    "RECORD",
    "TABLE",
    "TEXT",
    "Record",
    "at_once",
    "compiled",
    "groups",
    "made_by",
    "recorder",
]

BIND, BARRIER = 1, 2
RECORD = struct.Struct("<QQQQII")
"""What stays in a record: table, pipeline, layout, size of the block, and y and z of most kernels."""
FLAT, FLAT_PLACE = "<QI4x", 40
"""What each launch fills, up to the block: command buffer, x."""
DEEP = "<IIQI4x"
"""The same with y and z before, at 32."""
BLOCK = FLAT_PLACE + struct.calcsize(FLAT)
_ACROSS, _ALONG = struct.Struct("<II"), struct.Struct("<I")
TABLE = struct.Struct("<QQQQQI4x")


class Record(bytearray):
    """A record's memory, of which others may know without keeping it."""

    __slots__ = ("__weakref__",)


TEXT = """
define void @vkjit_record(i64 %flagged) {
entry:
  %address = and i64 %flagged, -8
  %record = inttoptr i64 %address to ptr
  %table = load ptr, ptr %record
  %command.at = getelementptr i8, ptr %record, i64 40
  %command = load ptr, ptr %command.at
  %bind.bit = and i64 %flagged, 1
  %bind.skipped = icmp eq i64 %bind.bit, 0
  br i1 %bind.skipped, label %bound, label %bind
bind:
  %pipeline.at = getelementptr i8, ptr %record, i64 8
  %pipeline = load i64, ptr %pipeline.at
  %bind.call = load ptr, ptr %table
  call void %bind.call(ptr %command, i32 1, i64 %pipeline)
  br label %bound
bound:
  %barrier.bit = and i64 %flagged, 2
  %barrier.skipped = icmp eq i64 %barrier.bit, 0
  br i1 %barrier.skipped, label %ordered, label %barrier
barrier:
  %barrier.at = getelementptr i8, ptr %table, i64 24
  %barrier.call = load ptr, ptr %barrier.at
  %memory.at = getelementptr i8, ptr %table, i64 32
  %memory = load ptr, ptr %memory.at
  %stages.at = getelementptr i8, ptr %table, i64 40
  %stages = load i32, ptr %stages.at
  call void %barrier.call(ptr %command, i32 %stages, i32 %stages, i32 0, i32 1, ptr %memory, i32 0, ptr null, i32 0, ptr null)
  br label %ordered
ordered:
  %size.at = getelementptr i8, ptr %record, i64 24
  %size = load i32, ptr %size.at
  %empty = icmp eq i32 %size, 0
  br i1 %empty, label %pushed, label %push
push:
  %layout.at = getelementptr i8, ptr %record, i64 16
  %layout = load i64, ptr %layout.at
  %push.at = getelementptr i8, ptr %table, i64 8
  %push.call = load ptr, ptr %push.at
  %block = getelementptr i8, ptr %record, i64 56
  call void %push.call(ptr %command, i64 %layout, i32 32, i32 0, i32 %size, ptr %block)
  br label %pushed
pushed:
  %dispatch.at = getelementptr i8, ptr %table, i64 16
  %dispatch.call = load ptr, ptr %dispatch.at
  %x.at = getelementptr i8, ptr %record, i64 48
  %x = load i32, ptr %x.at
  %y.at = getelementptr i8, ptr %record, i64 32
  %y = load i32, ptr %y.at
  %z.at = getelementptr i8, ptr %record, i64 36
  %z = load i32, ptr %z.at
  call void %dispatch.call(ptr %command, i32 %x, i32 %y, i32 %z)
  ret void
}
"""

"""The recorder in LLVM's text: `vkjit_record`."""

_makers: list[Callable[[str, str], int]] = []


def groups(record: bytearray) -> tuple[int, int, int]:
    """The workgroups in a record."""
    return (*_ALONG.unpack_from(record, 48), *_ACROSS.unpack_from(record, 32))


def made_by(maker: Callable[[str, str], int]) -> None:
    """Has `maker(text, entry)` compile: it returns the address of the function, whose code has to stay for good, or raises
    a VkjitError where it can't.
    """
    _makers[:] = [maker]


def at_once() -> bool:
    """Whether VKJIT_NATIVE_LAUNCH is 1: machine code from the first launch on, as tests want it. Raises ArgumentError for a
    setting that there isn't.
    """
    return boolean_setting("VKJIT_NATIVE_LAUNCH") is True


def compiled(text: Callable[[], str], entry: str) -> int | None:
    """The address of a function in this text; None where it can't be made, or VKJIT_NATIVE_LAUNCH is 0."""
    if not _makers or ctypes.sizeof(ctypes.c_void_p) != 8 or boolean_setting("VKJIT_NATIVE_LAUNCH") is False:
        return None
    try:
        return _makers[0](text(), entry)
    except VkjitError:
        return None


_METHOD = """
define i64 @vkjit_record_method(i64 %owner, ptr %args, i64 %count) {{
  %given = load i64, ptr %args
  %read = inttoptr i64 {read} to ptr
  %flagged = call i64 %read(i64 %given)
  call void @vkjit_record(i64 %flagged)
  %counted = inttoptr i64 {counted} to ptr
  call void %counted(i64 {none})
  ret i64 {none}
}}
"""


@functools.cache
def recorder() -> Callable[[int], None] | None:
    """The function, compiled when it is first asked for; None where that isn't possible."""
    if not cpython.usable():
        address = compiled(lambda: TEXT, "vkjit_record")
        return None if address is None else ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(address)
    read, counted = cpython.api("PyLong_AsUnsignedLongLong"), cpython.api("Py_IncRef")
    text = TEXT + _METHOD.format(read=read, counted=counted, none=id(None))
    address = compiled(lambda: text, "vkjit_record_method")
    return None if address is None else cpython.method(address, None)
