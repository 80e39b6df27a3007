"""Code generation for `report`, which records an error with its site, invocation and values in the report buffer.

If the condition of `report %cond, values... {site}` is true in an active lane, the first such lane tries to claim the
buffer: a compare-and-exchange of word 0 (32 bits) from 0 to the site's number plus one. If that succeeds, it stores its
global id in words 1 to 3, and the values from word 4 on, 64 bits each: integers as i64, floats as the bits of an f64.
"""

from __future__ import annotations

from vkjit import dtypes
from vkjit.backends.codegen.reports import FIRST_VALUE, MAX_VALUES
from vkjit.ir.core import Op, Value
from vkjit.ir.ops import OpName

from .context import Generator, Handler, dtype_of
from .elementwise import convert
from .ids import global_id_scalars
from .stride_analysis import constant_number

__all__ = ["HANDLERS", "lane_bits"]


def lane_bits(g: Generator, value: Value, lane: str) -> list[str]:
    """Return the components of a value in the lane with the number `lane` (i32), as i64 each."""
    dtype = dtype_of(value.type)
    if g.shapes.is_uniform(value):
        parts = g.scalars(value)
    else:
        kind = g.type(dtype, True)
        parts = [g.text.op(f"extractelement {kind} {part}, i32 {lane}") for part in g.vectors(value)]
    if not dtype.is_float:
        return [convert(g, part, dtype, dtypes.i64, False) for part in parts]
    wide = [convert(g, part, dtype, dtypes.f64, False) for part in parts]
    return [g.text.op(f"bitcast double {part} to i64") for part in wide]


def _report(g: Generator, op: Op) -> None:
    text, condition = g.text, op.operands[0]
    failed, after = text.new_label("failed"), text.new_label("fine")
    if constant_number(condition) is True:
        lanes = g.mask
    elif g.shapes.is_uniform(condition):
        scalar = g.scalar(condition)
        lanes = g.text.op(f"select i1 {scalar}, {g.mask_type} {g.mask_or_all()}, {g.mask_type} zeroinitializer")
    else:
        lanes = g.both(g.mask, g.vector(condition))
    text.branch(g.any(lanes), failed, after, likely=False)
    text.label(failed)
    with g.scope():
        _call(g, op, g.first_lane(lanes))
    text.jump(after)
    text.label(after)


def _call(g: Generator, op: Op, lane: str) -> None:
    """Emit the call of the function that claims the report buffer and stores ids and values."""
    values = [part for value in op.operands[1:] for part in lane_bits(g, value, lane)][:MAX_VALUES]
    function = f"report{len(values)}"
    g.helpers[function] = _function(function, len(values))
    arguments = [f"i64 {part}" for part in (*global_id_scalars(g, lane), *values)]
    buffer = f"i64 {g.field_value('report', -1)}"
    g.text.do(f"call void @{function}({buffer}, i32 {op.attrs['site'] + 1}, {', '.join(arguments)})")


def _function(name: str, count: int) -> str:
    """Return the LLVM function for reports with `count` values."""
    values = "".join(f", i64 %p{number}" for number in range(count))
    lines = [
        f"define internal void @{name}(i64 %address, i32 %site, i64 %x, i64 %y, i64 %z{values}) noinline cold nounwind {{",
        "  %buffer = inttoptr i64 %address to ptr",
        "  %pair = cmpxchg ptr %buffer, i32 0, i32 %site monotonic monotonic",
        "  %won = extractvalue { i32, i1 } %pair, 1",
        "  br i1 %won, label %claimed, label %after",
        "claimed:",
    ]
    for place, axis in enumerate("xyz"):
        lines += [
            f"  %{axis}word = trunc i64 %{axis} to i32",
            f"  %{axis}place = getelementptr i32, ptr %buffer, i64 {1 + place}",
            f"  store i32 %{axis}word, ptr %{axis}place",
        ]
    for number in range(count):
        lines += [
            f"  %q{number} = getelementptr i64, ptr %buffer, i64 {FIRST_VALUE // 2 + number}",
            f"  store i64 %p{number}, ptr %q{number}",
        ]
    return "\n".join([*lines, "  br label %after", "after:", "  ret void", "}"])


HANDLERS: dict[OpName, Handler] = {"report": _report}
