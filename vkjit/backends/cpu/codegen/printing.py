"""Code generation for `print`: each active lane appends a record to the print buffer, which the host reads after the launch.

A record of `print values... {site}` holds the site, the linear id of the invocation, by which the host sorts the lines,
the types of the values (four bits each) and the values (64 bits each). Records that don't fit are counted. See
`runtime.print_buffer`.
"""

from __future__ import annotations

from vkjit.ir.core import Op
from vkjit.ir.ops import OpName
from vkjit.ir.types import Vector
from vkjit.runtime.artifact import REPORT_WORDS

from ..runtime.print_buffer import CODES_PER_WORD, FIRST_VALUE_WORD, HEAD_WORDS, KIND_WORDS, KINDS, LIST_CODE
from .context import Generator, Handler, dtype_of
from .report import lane_bits

__all__ = ["HANDLERS"]


def _print(g: Generator, op: Op) -> None:
    text = g.text
    head, leave = text.new_label("line"), text.new_label("lines")
    kind = f"i{g.width}"
    left = text.variable(kind)
    text.store(kind, "-1" if g.mask is None else g.bits(g.mask), left)
    text.jump(head)
    text.label(head)
    with g.scope():
        word = text.load(kind, left)
        lane = g.resized(text.call(kind, f"llvm.cttz.{kind}", f"{kind} {word}", "i1 true"), kind, "i32")
        _record(g, op, lane)
        rest = text.op(f"and {kind} {word}, {text.op(f'sub {kind} {word}, 1')}")
        text.store(kind, rest, left)
        text.branch(text.op(f"icmp ne {kind} {rest}, 0"), head, leave)
    text.label(leave)


def _record(g: Generator, op: Op, lane: str) -> None:
    values: list[str] = []
    codes: list[int] = []
    for value in op.operands:
        parts = lane_bits(g, value, lane)
        code = KINDS.index(dtype_of(value.type))
        if isinstance(value.type, Vector):
            values.append(str(len(parts)))
            codes.append(LIST_CODE)
        values += parts
        codes += [code] * len(parts)
    packed = [
        _packed(codes[start : start + CODES_PER_WORD])
        for start in range(0, KIND_WORDS * CODES_PER_WORD, CODES_PER_WORD)
    ]
    function = f"print{len(values)}"
    g.helpers[function] = _function(function, len(values))
    order = _order(g, lane)
    words = [str(op.attrs["site"] + 1 | len(values) << 32), order, *map(str, packed), *values]
    buffer = f"i64 {g.field_value('report', -1)}"
    g.text.do(f"call void @{function}({buffer}, {', '.join(f'i64 {word}' for word in words)})")


def _packed(codes: list[int]) -> int:
    """Pack type codes of four bits each into a signed integer of 64 bits."""
    word = sum(code << (4 * place) for place, code in enumerate(codes))
    return word - (1 << 64) if word >> 63 else word


def _order(g: Generator, lane: str) -> str:
    """Emit the linear id of an invocation: workgroup (numbered along x first) * workgroup size + invocation in it."""
    text = g.text
    x, y, z = (g.ids["group", axis] for axis in range(3))
    plane = text.op(f"add i64 {text.op(f'mul i64 {z}, %y')}, {y}")
    group = text.op(f"add i64 {text.op(f'mul i64 {plane}, %x')}, {x}")
    first = text.op(f"add i64 {text.op(f'mul i64 {group}, {g.geometry.total}')}, {g.ids['first', 0]}")
    return text.op(f"add i64 {first}, {text.op(f'zext i32 {lane} to i64')}")


def _function(name: str, count: int) -> str:
    """Return the LLVM function that appends a record with `count` values."""
    size = FIRST_VALUE_WORD + count
    parameters = "".join(f", i64 %p{number}" for number in range(size))
    lines = [
        f"define internal void @{name}(i64 %address{parameters}) noinline cold nounwind {{",
        f"  %start = add i64 %address, {4 * REPORT_WORDS}",
        "  %cursor = inttoptr i64 %start to ptr",
        f"  %at = atomicrmw add ptr %cursor, i64 {size} monotonic",
        f"  %end = add i64 %at, {size}",
        "  %limit = getelementptr i64, ptr %cursor, i64 1",
        "  %capacity = load i64, ptr %limit",
        "  %fits = icmp ule i64 %end, %capacity",
        "  br i1 %fits, label %write, label %drop",
        "drop:",
        "  %dropped = getelementptr i64, ptr %cursor, i64 2",
        "  %more = atomicrmw add ptr %dropped, i64 1 monotonic",
        "  br label %after",
        "write:",
        f"  %first = add i64 %at, {HEAD_WORDS}",
        "  %record = getelementptr i64, ptr %cursor, i64 %first",
    ]
    for number in range(size):
        lines += [
            f"  %q{number} = getelementptr i64, ptr %record, i64 {number}",
            f"  store i64 %p{number}, ptr %q{number}",
        ]
    return "\n".join([*lines, "  br label %after", "after:", "  ret void", "}"])


HANDLERS: dict[OpName, Handler] = {"print": _print}
