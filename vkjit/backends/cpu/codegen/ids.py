"""Code generation for ids, extents and strides.

An id is a scalar if it is equal in all lanes of a vector or increases by one from lane to lane. It is a vector if the
vector spans several rows of the workgroup. Local ids are computed at the head of each loop over the vectors of a
workgroup (`begin_vector`), the workgroup's id at the head of the loop over workgroups.
"""

from __future__ import annotations

import math

from vkjit import dtypes
from vkjit.errors import InternalError
from vkjit.ir.core import Op
from vkjit.ir.ops import OpName
from vkjit.ir.types import Array

from .context import Generator, Handler
from .stride_analysis import Step

__all__ = ["HANDLERS", "begin_vector", "global_id_scalars", "used_axes"]


def used_axes(g: Generator) -> set[int]:
    """Return the axes along which the kernel needs local ids; `report` and `print` need all three."""
    axes: set[int] = set()
    for op in g.kernel.body.walk():
        if op.name in ("local_id", "global_id"):
            axes.add(op.attrs["dim"])
        elif op.name in ("report", "print"):
            axes |= {0, 1, 2}
    return axes


def begin_vector(g: Generator, axes: set[int]) -> None:
    """Compute the local ids of the vector `g.vector_number`: of lane 0 if they are uniform or steps, else of all lanes."""
    text, width = g.text, g.width
    first = "0" if g.vector_number == "0" else text.op(f"mul i64 {g.vector_number}, {width}")
    g.ids["first", 0] = first
    steps, below = g.geometry.steps, 1
    for axis, size in enumerate(g.geometry.local):
        if axis in axes:
            g.ids["local", axis] = _local_id(g, first, below, size, isinstance(steps[axis], Step))
        below *= size


def _local_id(g: Generator, first: str, below: int, size: int, scalar: bool) -> str:
    if size == 1:
        return "0"
    text = g.text
    if scalar:
        part = first if below == 1 else text.op(f"udiv i64 {first}, {below}")
        return part if below * size == g.geometry.total else text.op(f"urem i64 {part}, {size}")
    kind = f"<{g.width} x i64>"
    linear = g.spread(first, dtypes.i64, 1)
    part = linear if below == 1 else text.op(f"udiv {kind} {linear}, splat (i64 {below})")
    return part if below * size >= g.geometry.total else text.op(f"urem {kind} {part}, splat (i64 {size})")


def _local(g: Generator, op: Op) -> None:
    g.define(op.result, [g.ids["local", op.attrs["dim"]]])


def _global(g: Generator, op: Op) -> None:
    axis = op.attrs["dim"]
    varying = g.is_varying(op.result)
    start = _group_start(g, axis)
    kind = g.type(dtypes.index, varying)
    base = g.splat(start, "i64") if varying else start
    local = g.ids["local", axis]
    g.define(op.result, [base if local == "0" else g.text.op(f"add {kind} {base}, {local}")])


def _group_start(g: Generator, axis: int) -> str:
    size = g.geometry.local[axis]
    group = g.ids["group", axis]
    return group if size == 1 else g.text.op(f"mul i64 {group}, {size}")


def global_id_scalars(g: Generator, lane: str) -> list[str]:
    """Return the global ids (i64) of the lane with the number `lane` (i32)."""
    global_ids = []
    for axis, step in enumerate(g.geometry.steps):
        start, local = _group_start(g, axis), g.ids["local", axis]
        if step is None:
            local = g.text.op(f"extractelement <{g.width} x i64> {local}, i32 {lane}")
        elif step.size:
            local = g.text.op(f"add i64 {local}, {g.text.op(f'zext i32 {lane} to i64')}")
        global_ids.append(g.text.op(f"add i64 {start}, {local}"))
    return global_ids


def _group(g: Generator, op: Op) -> None:
    g.define(op.result, [g.ids["group", op.attrs["dim"]]])


def _num_groups(g: Generator, op: Op) -> None:
    g.define(op.result, [g.ids["groups", op.attrs["dim"]]])


def _local_size(g: Generator, op: Op) -> None:
    g.define(op.result, [str(g.geometry.local[op.attrs["dim"]])])


def _lane(g: Generator, op: Op) -> None:
    g.define(op.result, ["0"])


def _subgroup(g: Generator, op: Op) -> None:
    g.define(op.result, [g.vector_number])


def _subgroup_size(g: Generator, op: Op) -> None:
    g.define(op.result, [str(g.width)])


def _num_subgroups(g: Generator, op: Op) -> None:
    g.define(op.result, [str(g.geometry.count)])


def _array_number(g: Generator, op: Op) -> None:
    root, axis = g.root(op.operands[0]), op.attrs["axis"]
    if root in g.numbers:
        g.define(op.result, [g.field_value(op.name, g.numbers[root], axis)])
        return
    kind = root.type
    if not isinstance(kind, Array) or kind.shape is None:
        raise InternalError(f"{op.name} at {op.loc}: the array has no static shape")
    number = kind.shape[axis] if op.name == "extent" else math.prod(kind.shape[axis + 1 :])
    g.define(op.result, [str(number)])


HANDLERS: dict[OpName, Handler] = {
    "local_id": _local,
    "global_id": _global,
    "group_id": _group,
    "num_groups": _num_groups,
    "local_size": _local_size,
    "lane_id": _lane,
    "subgroup_id": _subgroup,
    "subgroup_size": _subgroup_size,
    "num_subgroups": _num_subgroups,
    "extent": _array_number,
    "stride": _array_number,
}
