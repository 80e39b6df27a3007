"""The `report` operation: tells the host that something went wrong, and where.

Enters: `report %cond, values... {site}`. Leaves: where the condition holds in a running lane, the first such lane claims
word 0 of the report buffer by compare-and-exchange (site's number plus one); the claimer stores its global id (words 1
to 3) and the values, 64 bits each (words 4 on): integers as i64, floats as the bits of an f64.
"""

from __future__ import annotations

from vkjit import dtypes
from vkjit.ir.core import Op, Value
from vkjit.ir.ops import OpName
from vkjit.runtime.artifact import REPORT_WORDS

from .context import Generator, Handler, dtype_of
from .elementwise import convert
from .ids import global_id_scalars
from .stride_analysis import constant_number

__all__ = ["HANDLERS", "lane_bits"]

_FIRST_VALUE = 4
_MAX_VALUES = (REPORT_WORDS - _FIRST_VALUE) // 2


def lane_bits(g: Generator, value: Value, lane: str) -> list[str]:
    """The components of one lane (i32), as 64 bits each."""
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
    """Hands ids and values to the function that claims the report buffer."""
    values = [part for value in op.operands[1:] for part in lane_bits(g, value, lane)][:_MAX_VALUES]
    function = f"report{len(values)}"
    g.helpers[function] = _function(function, len(values))
    passed = [f"i64 {part}" for part in (*global_id_scalars(g, lane), *values)]
    buffer = f"i64 {g.field_value('report', -1)}"
    g.text.do(f"call void @{function}({buffer}, i32 {op.attrs['site'] + 1}, {', '.join(passed)})")


def _function(name: str, count: int) -> str:
    """LLVM text of the function for reports of `count` values."""
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
            f"  %q{number} = getelementptr i64, ptr %buffer, i64 {_FIRST_VALUE // 2 + number}",
            f"  store i64 %p{number}, ptr %q{number}",
        ]
    return "\n".join([*lines, "  br label %after", "after:", "  ret void", "}"])


HANDLERS: dict[OpName, Handler] = {"report": _report}
