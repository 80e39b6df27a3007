"""Code generation for the subgroup operations `sg_*`; the subgroup is the vector.

Reductions are butterflies with strides 1, 2, 4, ...; scans (Hillis-Steele) double their stride at each step. All devices
use these orders, so results are bit-identical. Inactive lanes contribute the neutral element.
"""

from __future__ import annotations

from collections.abc import Sequence

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.errors import InternalError
from vkjit.ir.core import Op, Value
from vkjit.ir.ops import OpName

from .context import Generator, Handler, dtype_of
from .elementwise import convert, round_to_bf16
from .fast_math import extremum, has_ranges
from .llvm_text import intrinsic_suffix

__all__ = ["HANDLERS", "reduced_columns"]


def _neutral(name: str, dtype: DType) -> bool | int | float:
    """Return the neutral element of a reduction."""
    if dtype.kind == "bool":
        return name in ("and", "mul", "min")
    if dtype.is_float:
        return {"add": -0.0, "mul": 1.0, "min": float("inf"), "max": float("-inf")}[name]
    low = -(1 << (dtype.bits - 1)) if dtype.is_signed else 0
    high = (1 << (dtype.bits - (1 if dtype.is_signed else 0))) - 1
    return {"mul": 1, "and": -1, "min": high, "max": low}.get(name, 0)


def _combine(g: Generator, op: Op, a: str, b: str, dtype: DType) -> str:
    """Emit one step of a reduction or scan: the lanewise combination of two vectors."""
    name, kind = op.attrs["op"], g.type(dtype, True)
    if dtype.kind == "bool":
        word = {"add": "or", "max": "or", "mul": "and", "min": "and"}.get(name, name)
        return g.text.op(f"{word} {kind} {a}, {b}")
    if name in ("min", "max"):
        if has_ranges(g, kind):
            return extremum(g, kind, a, b, largest=name == "max")
        word = f"{name}imum" if dtype.is_float else f"{'s' if dtype.is_signed else 'u'}{name}"
        return g.text.call(kind, f"llvm.{word}.{intrinsic_suffix(kind)}", f"{kind} {a}", f"{kind} {b}")
    if not dtype.is_float:
        return g.text.op(f"{name} {kind} {a}, {b}")
    result = g.text.op(f"f{name} {kind} {a}, {b}")
    return round_to_bf16(g, result, True) if dtype is dtypes.bf16 else result


def _shuffled(g: Generator, part: str, kind: str, lanes: Sequence[int]) -> str:
    mask = ", ".join(f"i32 {lane}" for lane in lanes)
    return g.text.op(f"shufflevector {kind} {part}, {kind} zeroinitializer, <{g.width} x i32> <{mask}>")


def _without_inactive(g: Generator, part: str, dtype: DType, name: str) -> str:
    """Replace inactive lanes by the neutral element."""
    if g.mask is None:
        return part
    return g.select(g.mask, g.type(dtype, True), part, g.number(_neutral(name, dtype), dtype, True))


def _check(g: Generator, op: Op) -> None:
    if g.width & (g.width - 1):
        raise InternalError(f"{op.name} at {op.loc}: a subgroup of {g.width} lanes")


def _reduce(g: Generator, op: Op) -> None:
    _check(g, op)
    source = op.operands[0]
    dtype = dtype_of(source.type)
    kind = g.type(dtype, True)
    parts = []
    for part in g.vectors(source):
        part = _without_inactive(g, part, dtype, op.attrs["op"])
        stride = 1
        while stride < g.width:
            other = _shuffled(g, part, kind, [lane ^ stride for lane in range(g.width)])
            part = _combine(g, op, part, other, dtype)
            stride *= 2
        parts.append(g.text.op(f"extractelement {kind} {part}, i64 0"))
    g.define(op.result, parts)


def reduced_columns(g: Generator, op: Op, vectors: list[str]) -> str:
    """Reduce several vectors (a power of two, at most `g.width`) at once; lane v of the result is that of vector v.

    The results are those of `_reduce`, but each step halves the number of vectors.
    """
    dtype = dtype_of(op.operands[0].type)
    kind, stride = g.type(dtype, True), 1
    while len(vectors) > 1:
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [_combine(g, op, *_butterfly_operands(g, a, b, kind, stride), dtype) for a, b in pairs]
        stride *= 2
    (part,) = vectors
    while stride < g.width:
        part = _combine(g, op, part, _shuffled(g, part, kind, [lane ^ stride for lane in range(g.width)]), dtype)
        stride *= 2
    return part


def _butterfly_operands(g: Generator, a: str, b: str, kind: str, stride: int) -> tuple[str, str]:
    """Return two vectors: of the lanes of a and b without the bit `stride` in their number, and of the lanes with it.

    In both, a's elements are in the lanes without that bit, b's in the lanes with it.
    """

    def picked(bit: int) -> str:
        lanes = [(lane & ~stride) | bit | (g.width if lane & stride else 0) for lane in range(g.width)]
        mask = ", ".join(f"i32 {lane}" for lane in lanes)
        return g.text.op(f"shufflevector {kind} {a}, {kind} {b}, <{g.width} x i32> <{mask}>")

    return picked(0), picked(stride)


def _scan(g: Generator, op: Op) -> None:
    source, name = op.operands[0], op.attrs["op"]
    dtype = dtype_of(source.type)
    kind = g.type(dtype, True)
    parts = []
    for part in g.vectors(source):
        part = _without_inactive(g, part, dtype, name)
        stride = 1
        while stride < g.width:
            below = _shuffled(g, part, kind, [max(lane - stride, 0) for lane in range(g.width)])
            combined = _combine(g, op, below, part, dtype)
            part = g.select(_lanes_from(g, stride), kind, combined, part)
            stride *= 2
        if op.attrs["exclusive"]:
            part = _shifted_up(g, part, dtype, name)
        parts.append(part)
    g.define(op.result, parts)


def _lanes_from(g: Generator, first: int) -> str:
    return "<" + ", ".join(f"i1 {'true' if lane >= first else 'false'}" for lane in range(g.width)) + ">"


def _shifted_up(g: Generator, part: str, dtype: DType, name: str) -> str:
    """Shift the lanes up by one, for an exclusive scan: lanes up to the first active one get the result of an empty scan."""
    kind = g.type(dtype, True)
    below = _shuffled(g, part, kind, [max(lane - 1, 0) for lane in range(g.width)])
    empty = 0 if name == "add" and dtype.is_float else _neutral(name, dtype)
    first = _lanes_from(g, 1)
    if g.mask is not None:
        word = g.bits(g.mask)
        lowest = g.text.op(f"and i{g.width} {word}, {g.text.op(f'sub i{g.width} 0, {word}')}")
        upto = g.text.op(f"or i{g.width} {lowest}, {g.text.op(f'sub i{g.width} {lowest}, 1')}")
        above = g.text.op(f"xor i{g.width} {upto}, -1")
        first = g.text.op(f"bitcast i{g.width} {above} to {g.mask_type}")
    return g.select(first, kind, below, g.number(empty, dtype, True))


# -- moving values between lanes


def _lane_number(g: Generator, lane: Value) -> str:
    return convert(g, g.scalar(lane), dtype_of(lane.type), dtypes.i64, False)


def _broadcast(g: Generator, op: Op) -> None:
    source, lane = op.operands
    if g.shapes.is_uniform(source):
        g.define(op.result, g.scalars(source))
        return
    if g.shapes.is_uniform(lane):
        number = _lane_number(g, lane)
    else:
        kind = g.type(lane.type, True)
        number = g.text.op(f"extractelement {kind} {g.vector(lane)}, i32 {g.first_lane(g.mask)}")
        number = convert(g, number, dtype_of(lane.type), dtypes.i64, False)
    number = g.text.op(f"and i64 {number}, {g.width - 1}")
    kind = g.type(source.type, True)
    g.define(op.result, [g.text.op(f"extractelement {kind} {part}, i64 {number}") for part in g.vectors(source)])


def _shuffle(g: Generator, op: Op) -> None:
    """Emit a shuffle with a source lane per lane: store the vector and gather from it."""
    source, lane = op.operands
    dtype = dtype_of(source.type)
    number = convert(g, g.vector(lane), dtype_of(lane.type), dtypes.i32, True)
    number = g.text.op(f"and <{g.width} x i32> {number}, splat (i32 {g.width - 1})")
    parts = []
    for part in g.vectors(source):
        wide = part
        if dtype.kind == "bool":
            wide = g.text.op(f"zext {g.mask_type} {part} to <{g.width} x i8>")
        kind = f"<{g.width} x i8>" if dtype.kind == "bool" else g.type(dtype, True)
        moved = _gathered(g, wide, kind, number)
        parts.append(g.text.op(f"trunc {kind} {moved} to {g.mask_type}") if dtype.kind == "bool" else moved)
    g.define(op.result, parts)


def _gathered(g: Generator, part: str, kind: str, number: str) -> str:
    element = kind[:-1].split(" x ")[1]
    memory = g.text.variable(kind, align=64)
    g.text.store(kind, part, memory)
    addresses = f"<{g.width} x ptr>"
    pointers = g.text.op(f"getelementptr {element}, ptr {memory}, <{g.width} x i32> {number}")
    name = f"llvm.masked.gather.{intrinsic_suffix(kind)}.v{g.width}p0"
    every = f"{g.mask_type} splat (i1 true)"
    return g.text.call(kind, name, f"{addresses} {pointers}", "i32 1", every, f"{kind} zeroinitializer")


def _shuffle_xor(g: Generator, op: Op) -> None:
    source, mask = op.operands[0], op.attrs["mask"]
    kind = g.type(source.type, True)
    lanes = [lane ^ mask if lane ^ mask < g.width else lane for lane in range(g.width)]
    g.define(op.result, [_shuffled(g, part, kind, lanes) for part in g.vectors(source)])


# -- votes


def _any(g: Generator, op: Op) -> None:
    g.define(op.result, [g.any(g.both(g.mask, g.vector(op.operands[0])))])


def _all(g: Generator, op: Op) -> None:
    opposed = g.both(g.mask, g.negated(g.vector(op.operands[0]), True))
    g.define(op.result, [g.text.op(f"icmp eq i{g.width} {g.bits(opposed)}, 0")])


def _elect(g: Generator, op: Op) -> None:
    if g.mask is None:
        g.define(op.result, ["<" + ", ".join(f"i1 {'false' if lane else 'true'}" for lane in range(g.width)) + ">"])
        return
    word = g.bits(g.mask)
    lowest = g.text.op(f"and i{g.width} {word}, {g.text.op(f'sub i{g.width} 0, {word}')}")
    g.define(op.result, [g.text.op(f"bitcast i{g.width} {lowest} to {g.mask_type}")])


def _ballot(g: Generator, op: Op) -> None:
    votes = g.bits(g.both(g.mask, g.vector(op.operands[0])))
    g.define(op.result, [g.resized(votes, f"i{g.width}", g.type(op.attrs["type"], False))])


HANDLERS: dict[OpName, Handler] = {
    "sg_reduce": _reduce,
    "sg_scan": _scan,
    "sg_broadcast": _broadcast,
    "sg_shuffle": _shuffle,
    "sg_shuffle_xor": _shuffle_xor,
    "sg_any": _any,
    "sg_all": _all,
    "sg_elect": _elect,
    "sg_ballot": _ballot,
}
