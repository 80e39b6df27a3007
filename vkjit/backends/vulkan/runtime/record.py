"""Launch records: the data of the driver calls for one dispatch, as bytes that machine code and Python fill.

A record is aligned to 8 bytes and holds, by offset: 0 the address of a table, 8 pipeline, 16 pipeline layout, 24 size
of the argument block, 32 workgroups along y and z (u32), 40 command buffer, 48 workgroups along x (u32), 56 the
argument block. Its address is passed with flags (`BIND`, `BARRIER`) in the low bits. A table holds: 0
vkCmdBindPipeline, 8 vkCmdPushConstants, 16 vkCmdDispatch, 24 vkCmdPipelineBarrier, 32 the address of the
VkMemoryBarrier, 40 its pipeline stages (u32).
"""

from __future__ import annotations

import struct

__all__ = [
    "BARRIER",
    "BIND",
    "BLOCK",
    "COMMAND",
    "GRID_X",
    "GRID_YZ",
    "HEADER",
    "TABLE",
    "TEXT",
    "VARIABLE",
    "Record",
    "groups",
]

BIND, BARRIER = 1, 2
HEADER = struct.Struct("<QQQQ")
"""The fields that are constant for a record: table, pipeline, pipeline layout, block size."""
VARIABLE, GRID_YZ, COMMAND, GRID_X = "<IIQI4x", 32, 40, 48
"""The struct format of the variable fields before the argument block (y, z, command buffer, x), and their offsets."""
BLOCK = GRID_YZ + struct.calcsize(VARIABLE)
TABLE = struct.Struct("<QQQQQI4x")


class Record(bytearray):
    """The memory of a record. Supports weak references."""

    __slots__ = ("__weakref__",)


def groups(record: bytearray) -> tuple[int, int, int]:
    """Return the grid (x, y, z) of a record."""
    y, z, _, x = struct.unpack_from(VARIABLE, record, GRID_YZ)
    return x, y, z


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

"""LLVM assembly of `void vkjit_record(i64 flagged)`, which makes the driver calls of a record."""
