"""Code generation for elementwise operations: arithmetic, bits, comparisons, conversions, short vectors.

Instructions are scalar if the result is uniform or a `Step`. Inactive lanes never trap: their divisors are replaced by
one. Float operations of strict kernels, and those marked `exact`, are never fused.
"""

from __future__ import annotations

from collections.abc import Callable

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.errors import InternalError
from vkjit.ir.core import Op
from vkjit.ir.ops import OpName

from ..runtime.host_features import has_scaling
from .context import Generator, Handler, dtype_of, lanes_of
from .fast_math import exponential, extremum, has_estimates, has_ranges, rsqrt
from .llvm_text import constant, intrinsic_suffix, scalar_type
from .stride_analysis import constant_number

__all__ = ["HANDLERS", "convert", "round_to_bf16"]

Lane = Callable[[Generator, Op, str, DType, "list[str]"], str]
"""Emits an operation on one component: (generator, operation, operands' LLVM type, their dtype, operands) -> result."""


def _conjunction(g: Generator, op: Op) -> None:
    if g.is_varying(op.result) and dtype_of(op.result.type).kind == "bool":
        a, b = op.operands

        def write() -> list[str]:
            return [g.text.op(f"and {g.mask_type} {x}, {y}") for x, y in zip(g.vectors(a), g.vectors(b), strict=True)]

        g.postpone(op.result, write)
    else:
        _elementwise(_plain("and"))(g, op)


def _plain(integer: str, float_: str = "", unsigned: str = "") -> Lane:
    """An operation with one instruction each for signed (or all) integers, floats and unsigned integers."""

    def lane(g: Generator, op: Op, kind: str, dtype: DType, x: list[str]) -> str:
        if dtype.is_float:
            return g.text.op(f"{float_}{_flags(g, op)} {kind} {', '.join(x)}")
        name = unsigned if unsigned and not dtype.is_signed else integer
        return g.text.op(f"{name} {kind} {', '.join(x)}")

    return lane


def _flags(g: Generator, op: Op) -> str:
    if g.is_exact(op):
        return ""
    if g.kernel.attrs.get("fast_math"):
        return " contract arcp afn reassoc nsz"
    return " contract"


def _intrinsic(integer: str, float_: str = "", unsigned: str = "", tail: str = "") -> Lane:
    """An operation with one intrinsic per kind of operand; `tail` is a last argument of integer intrinsics."""

    def lane(g: Generator, _op: Op, kind: str, dtype: DType, x: list[str]) -> str:
        name = float_ if dtype.is_float else unsigned if unsigned and not dtype.is_signed else integer
        arguments = [f"{kind} {part}" for part in x]
        if tail and not dtype.is_float:
            arguments.append(tail)
        return g.text.call(kind, f"llvm.{name}.{intrinsic_suffix(kind)}", *arguments)

    return lane


def _extremum(name: str) -> Lane:
    """`min` or `max`: a range instruction of AVX-512 if there is one, else an intrinsic."""
    intrinsic = _intrinsic(f"s{name}", f"{name}imum", f"u{name}")

    def lane(g: Generator, op: Op, kind: str, dtype: DType, x: list[str]) -> str:
        if has_ranges(g, kind):
            return extremum(g, kind, x[0], x[1], largest=name == "max")
        return intrinsic(g, op, kind, dtype, x)

    return lane


def _compare(signed: str, unsigned: str, float_: str) -> Lane:
    def lane(g: Generator, _op: Op, kind: str, dtype: DType, x: list[str]) -> str:
        if dtype.is_float:
            return g.text.op(f"fcmp {float_} {kind} {x[0]}, {x[1]}")
        return g.text.op(f"icmp {signed if dtype.is_signed else unsigned} {kind} {x[0]}, {x[1]}")

    return lane


def _neg(g: Generator, _op: Op, kind: str, dtype: DType, x: list[str]) -> str:
    return g.text.op(f"fneg {kind} {x[0]}" if dtype.is_float else f"sub {kind} {_zero(kind)}, {x[0]}")


def _zero(kind: str) -> str:
    return "zeroinitializer" if kind.startswith("<") else "0"


def _not(g: Generator, _op: Op, kind: str, dtype: DType, x: list[str]) -> str:
    ones = "true" if dtype.kind == "bool" else "-1"
    return g.text.op(f"xor {kind} {x[0]}, " + (f"splat ({scalar_type(dtype)} {ones})" if kind[0] == "<" else ones))


def _fma(g: Generator, op: Op, kind: str, _dtype: DType, x: list[str]) -> str:
    name = "fma" if "fma" in g.features else "fmuladd"
    if g.is_exact(op):
        raise InternalError(f"fma at {op.loc} may not be fused: it has to be lowered")
    return g.text.call(kind, f"llvm.{name}.{intrinsic_suffix(kind)}", *(f"{kind} {part}" for part in x))


def _division(name: str) -> Lane:
    """An integer division or remainder. Division traps on zero, so inactive lanes divide by one.

    Vectors of elements of up to 32 bits are divided as f64, which is exact, unless the divisor is constant.
    """

    def lane(g: Generator, op: Op, kind: str, dtype: DType, x: list[str]) -> str:
        varying = kind.startswith("<")
        has_constant_divisor = constant_number(op.operands[1]) is not None
        if varying and g.mask is not None and not has_constant_divisor:
            x = [x[0], g.select(g.mask, kind, x[1], f"splat ({scalar_type(dtype)} 1)")]
        if varying and not has_constant_divisor and dtype.bits <= 32:
            return _float_division(g, name, kind, x)
        return g.text.op(f"{name} {kind} {x[0]}, {x[1]}")

    return lane


def _float_division(g: Generator, name: str, kind: str, x: list[str]) -> str:
    """Divide integers of up to 32 bits as f64; truncating the correctly rounded quotient is exact."""
    signed = name == "sdiv"
    wide = f"<{g.width} x double>"
    a, b = (g.text.op(f"{'sitofp' if signed else 'uitofp'} {kind} {part} to {wide}") for part in x)
    quotient = g.text.op(f"fdiv {wide} {a}, {b}")
    result = g.text.op(f"{'fptosi' if signed else 'fptoui'} {wide} {quotient} to {kind}")
    if name != "urem":
        return result
    return g.text.op(f"sub {kind} {x[0]}, {g.text.op(f'mul {kind} {result}, {x[1]}')}")


def _quotient(g: Generator, op: Op, kind: str, dtype: DType, x: list[str]) -> str:
    """Divide floats. A loop-invariant uniform f32 divisor becomes a multiplication by its reciprocal.

    A branch falls back to the division if the divisor or its reciprocal may not be a normal number.
    """
    divisor = op.operands[1]
    if dtype is not dtypes.f32 or op not in g.repeated or not kind.startswith("<") or g.is_exact(op):
        return g.text.op(f"fdiv{_flags(g, op)} {kind} {x[0]}, {x[1]}")
    if not g.shapes.is_uniform(divisor) or g.is_varying(divisor):
        return g.text.op(f"fdiv{_flags(g, op)} {kind} {x[0]}, {x[1]}")
    text, number = g.text, g.scalar(divisor)
    size = text.call("float", "llvm.fabs.f32", f"float {number}")
    low, high = (text.op(f"fcmp {w} float {size}, {constant(2.0**e, dtype)}") for w, e in (("oge", -126), ("ole", 126)))
    near, far, join = (text.new_label(hint) for hint in ("times", "over", "quotient"))
    result = text.variable(kind)
    reciprocal = g.splat(text.op(f"fdiv float {constant(1.0, dtype)}, {number}"), "float")
    text.branch(text.op(f"and i1 {low}, {high}"), near, far, likely=True)
    for label, written in ((near, f"fmul {kind} {x[0]}, {reciprocal}"), (far, f"fdiv {kind} {x[0]}, {x[1]}")):
        text.label(label)
        text.store(kind, text.op(written), result)
        text.jump(join)
    text.label(join)
    return text.load(kind, result)


def _isnan(g: Generator, _op: Op, kind: str, _dtype: DType, x: list[str]) -> str:
    return g.text.op(f"fcmp uno {kind} {x[0]}, {x[0]}")


def _isinf(g: Generator, _op: Op, kind: str, dtype: DType, x: list[str]) -> str:
    size = g.text.call(kind, f"llvm.fabs.{intrinsic_suffix(kind)}", f"{kind} {x[0]}")
    return g.text.op(f"fcmp oeq {kind} {size}, {g.number(float('inf'), dtype, kind.startswith('<'))}")


def _isfinite(g: Generator, _op: Op, kind: str, dtype: DType, x: list[str]) -> str:
    size = g.text.call(kind, f"llvm.fabs.{intrinsic_suffix(kind)}", f"{kind} {x[0]}")
    return g.text.op(f"fcmp one {kind} {size}, {g.number(float('inf'), dtype, kind.startswith('<'))}")


def _rsqrt(g: Generator, op: Op, kind: str, dtype: DType, x: list[str]) -> str:
    if dtype is dtypes.f32 and kind.startswith("<") and has_estimates(g) and not g.is_exact(op):
        return rsqrt(g, kind, x[0])
    root = g.text.call(kind, f"llvm.sqrt.{intrinsic_suffix(kind)}", f"{kind} {x[0]}")
    return g.text.op(f"fdiv{_flags(g, op)} {kind} {g.number(1.0, dtype, kind.startswith('<'))}, {root}")


def _exp(g: Generator, op: Op, kind: str, dtype: DType, x: list[str]) -> str:
    if dtype is not dtypes.f32 or not has_scaling(g.features):
        raise InternalError(f"{op.name} of {dtype.name} at {op.loc} has to be lowered")
    return exponential(g, kind, x[0], base_two=op.name == "exp2")


def _find_msb(g: Generator, _op: Op, kind: str, dtype: DType, x: list[str]) -> str:
    zeros = g.text.call(kind, f"llvm.ctlz.{intrinsic_suffix(kind)}", f"{kind} {x[0]}", "i1 false")
    top = g.number(dtype.bits - 1, dtype, kind.startswith("<"))
    return g.text.op(f"sub {kind} {top}, {zeros}")


_LANES: dict[OpName, Lane] = {
    "add": _plain("add", "fadd"),
    "sub": _plain("sub", "fsub"),
    "mul": _plain("mul", "fmul"),
    "div": _quotient,
    "udiv_raw": _division("udiv"),
    "urem_raw": _division("urem"),
    "sdiv_raw": _division("sdiv"),
    "neg": _neg,
    "abs": _intrinsic("abs", "fabs", tail="i1 false"),
    "min": _extremum("min"),
    "max": _extremum("max"),
    "fmin": _intrinsic("", "minnum"),
    "fmax": _intrinsic("", "maxnum"),
    "fma": _fma,
    "and": _plain("and"),
    "or": _plain("or"),
    "xor": _plain("xor"),
    "not": _not,
    "shl_raw": _plain("shl"),
    "shr_raw": _plain("ashr", "", "lshr"),
    "bitcount_raw": _intrinsic("ctpop"),
    "find_msb_raw": _find_msb,
    "eq": _compare("eq", "eq", "oeq"),
    "ne": _compare("ne", "ne", "une"),
    "lt": _compare("slt", "ult", "olt"),
    "le": _compare("sle", "ule", "ole"),
    "gt": _compare("sgt", "ugt", "ogt"),
    "ge": _compare("sge", "uge", "oge"),
    "copysign": _intrinsic("", "copysign"),
    "isfinite": _isfinite,
    "isnan": _isnan,
    "isinf": _isinf,
    "floor": _intrinsic("", "floor"),
    "ceil": _intrinsic("", "ceil"),
    "trunc": _intrinsic("", "trunc"),
    "round": _intrinsic("", "roundeven"),
    "sqrt": _intrinsic("", "sqrt"),
    "rsqrt": _rsqrt,
    "exp": _exp,
    "exp2": _exp,
}


_CONDITIONS: frozenset[OpName] = frozenset({"lt", "le", "gt", "ge"})
"""Comparisons that, for integers, are emitted at their first use: `mask_tests` often needs scalars only."""


def _elementwise(lane: Lane) -> Handler:
    def handler(g: Generator, op: Op) -> None:
        varying = g.is_varying(op.result)
        dtype = dtype_of(op.operands[0].type)
        kind = g.type(dtype, varying)

        def write() -> list[str]:
            columns = [g.converted(value, varying) for value in op.operands]
            return [lane(g, op, kind, dtype, list(x)) for x in zip(*columns, strict=True)]

        if varying and op.name in _CONDITIONS and dtype.kind != "float":
            g.postpone(op.result, write)
        else:
            g.define(op.result, write())

    return handler


# -- operations with a handler of their own


def _const(g: Generator, op: Op) -> None:
    text = constant(op.attrs["value"], dtype_of(op.attrs["type"]))
    g.define(op.result, [text] * lanes_of(op.attrs["type"]))


def _poison(g: Generator, op: Op) -> None:
    """Emit zero instead of LLVM's poison, which must not reach a mask."""
    dtype = dtype_of(op.attrs["type"])
    zero = {"bool": "false", "float": "0.0"}.get(dtype.kind, "0")
    g.define(op.result, ["0xH0000" if dtype is dtypes.f16 else zero] * lanes_of(op.attrs["type"]))


def _select(g: Generator, op: Op) -> None:
    condition, yes, no = op.operands
    varying = g.is_varying(op.result)
    kind = g.type(op.result.type, varying)
    lanewise = varying and g.is_varying(condition)
    conditions = g.vectors(condition) if lanewise else g.scalars(condition)
    columns = g.converted(yes, varying), g.converted(no, varying)
    condition_type = g.mask_type if lanewise else "i1"
    wide = conditions * len(columns[0]) if len(conditions) == 1 else conditions
    parts = [
        g.text.op(f"select {condition_type} {c}, {kind} {a}, {kind} {b}")
        for c, a, b in zip(wide, columns[0], columns[1], strict=True)
    ]
    g.define(op.result, parts)


def _cast(g: Generator, op: Op) -> None:
    source, target = op.operands[0], op.attrs["type"]
    varying = g.is_varying(op.result)
    raw = bool(op.attrs.get("raw"))
    a, b = dtype_of(source.type), dtype_of(target)
    g.define(op.result, [convert(g, part, a, b, varying, raw=raw) for part in g.converted(source, varying)])


def convert(g: Generator, part: str, a: DType, b: DType, varying: bool, *, raw: bool = False) -> str:
    """Convert a component from dtype `a` to dtype `b` with the semantics of `cast`.

    `raw` promises that a float is in the range of the integer type `b`; a value that isn't has an arbitrary result.
    """
    if a is b:
        return part
    kind, target = g.type(a, varying), g.type(b, varying)
    if b.kind == "bool":
        zero = g.number(0, a, varying)
        return g.text.op(f"fcmp une {kind} {part}, {zero}" if a.is_float else f"icmp ne {kind} {part}, {zero}")
    if a.is_float:
        return _from_float(g, part, a, b, varying, raw)
    if b.is_float:
        name = "sitofp" if a.is_signed and a.kind != "bool" else "uitofp"
        result = g.text.op(f"{name} {kind} {part} to {target}")
        return round_to_bf16(g, result, varying) if b is dtypes.bf16 else result
    if kind == target:
        return part
    if b.bits < a.bits:
        return _shortened(g, part, kind, target)
    return g.text.op(f"{'sext' if a.is_signed and a.kind != 'bool' else 'zext'} {kind} {part} to {target}")


def _shortened(g: Generator, part: str, kind: str, target: str) -> str:
    if part.lstrip("-").isdecimal():
        bits = int(target[1:])
        number = int(part) & ((1 << bits) - 1)
        return str(number - (1 << bits) if number >> (bits - 1) else number)
    return g.text.op(f"trunc {kind} {part} to {target}")


def _from_float(g: Generator, part: str, a: DType, b: DType, varying: bool, raw: bool) -> str:
    kind, target = g.type(a, varying), g.type(b, varying)
    if not b.is_float:
        name = "fptosi" if b.is_signed else "fptoui"
        if raw:  # NaN converts to poison: freeze makes it an arbitrary integer, so that poison doesn't propagate
            return g.text.op(f"freeze {target} {g.text.op(f'{name} {kind} {part} to {target}')}")
        if a is dtypes.f16:  # through f32, which is exact: with AVX512-FP16, LLVM 22 converts NaN to -32768
            part, kind = convert(g, part, a, dtypes.f32, varying), g.type(dtypes.f32, varying)
        suffix = f"{intrinsic_suffix(target)}.{intrinsic_suffix(kind)}"
        return g.text.call(target, f"llvm.{name}.sat.{suffix}", f"{kind} {part}")
    if a is dtypes.f64 and b is dtypes.f16:
        part, kind, a = _rounded_to_odd(g, part, varying), g.type(dtypes.f32, varying), dtypes.f32
    if kind != target:
        wider = _CARRIED_BITS[b.name] > _CARRIED_BITS[a.name]
        part = g.text.op(f"{'fpext' if wider else 'fptrunc'} {kind} {part} to {target}")
    return round_to_bf16(g, part, varying) if b is dtypes.bf16 else part


_CARRIED_BITS = {"f16": 16, "bf16": 32, "f32": 32, "f64": 64}


def _rounded_to_odd(g: Generator, part: str, varying: bool) -> str:
    """Convert f64 to f32, rounding to odd: rounding the result to f16 then equals one rounding of the f64."""
    wide, narrow, word = (g.type(t, varying) for t in (dtypes.f64, dtypes.f32, dtypes.i32))
    near = g.text.op(f"fptrunc {wide} {part} to {narrow}")
    back = g.text.op(f"fpext {narrow} {near} to {wide}")
    truth = g.type(dtypes.boolean, varying)
    sizes = [g.text.call(wide, f"llvm.fabs.{intrinsic_suffix(wide)}", f"{wide} {x}") for x in (back, part)]
    above = g.text.op(f"fcmp ogt {wide} {sizes[0]}, {sizes[1]}")
    inexact = g.text.op(f"fcmp one {wide} {back}, {part}")
    bits = g.text.op(f"bitcast {narrow} {near} to {word}")
    minus = g.text.op(f"sub {word} {bits}, {g.number(1, dtypes.i32, varying)}")
    lower = g.text.op(f"select {truth} {above}, {word} {minus}, {word} {bits}")
    odd = g.text.op(f"or {word} {lower}, {g.number(1, dtypes.i32, varying)}")
    chosen = g.text.op(f"select {truth} {inexact}, {word} {odd}, {word} {bits}")
    return g.text.op(f"bitcast {word} {chosen} to {narrow}")


def round_to_bf16(g: Generator, part: str, varying: bool) -> str:
    """Round an f32 to the nearest bf16, ties to even; the result has type f32."""

    def number(n: int) -> str:
        return g.number(n, dtypes.u32, varying)

    word, single = g.type(dtypes.u32, varying), g.type(dtypes.f32, varying)
    bits = g.text.op(f"bitcast {single} {part} to {word}")
    high = g.text.op(f"lshr {word} {bits}, {number(16)}")
    odd = g.text.op(f"and {word} {high}, {number(1)}")
    bias = g.text.op(f"add {word} {odd}, {number(0x7FFF)}")
    total = g.text.op(f"add {word} {bits}, {bias}")
    rounded = g.text.op(f"and {word} {total}, {number(0xFFFF0000)}")
    nan = g.text.op(f"fcmp uno {single} {part}, {part}")
    truth = g.type(dtypes.boolean, varying)
    chosen = g.text.op(f"select {truth} {nan}, {word} {number(0x7FC00000)}, {word} {rounded}")
    return g.text.op(f"bitcast {word} {chosen} to {single}")


def _bitcast(g: Generator, op: Op) -> None:
    source, target = op.operands[0], op.attrs["type"]
    a, b = dtype_of(source.type), dtype_of(target)
    varying = g.is_varying(op.result)
    g.define(op.result, [_same_bits(g, part, a, b, varying) for part in g.converted(source, varying)])


def _same_bits(g: Generator, part: str, a: DType, b: DType, varying: bool) -> str:
    if a is dtypes.bf16:
        word, short = g.type(dtypes.u32, varying), g.type(dtypes.u16, varying)
        bits = g.text.op(f"bitcast {g.type(a, varying)} {part} to {word}")
        high = g.text.op(f"lshr {word} {bits}, {g.number(16, dtypes.u32, varying)}")
        part, a = g.text.op(f"trunc {word} {high} to {short}"), dtypes.u16
    if b is dtypes.bf16:
        word, short = g.type(dtypes.u32, varying), g.type(dtypes.u16, varying)
        if g.type(a, varying) != short:
            part = g.text.op(f"bitcast {g.type(a, varying)} {part} to {short}")
        wide = g.text.op(f"zext {short} {part} to {word}")
        high = g.text.op(f"shl {word} {wide}, {g.number(16, dtypes.u32, varying)}")
        return g.text.op(f"bitcast {word} {high} to {g.type(b, varying)}")
    kind, target = g.type(a, varying), g.type(b, varying)
    return part if kind == target else g.text.op(f"bitcast {kind} {part} to {target}")


def _vec_make(g: Generator, op: Op) -> None:
    varying = g.is_varying(op.result)
    g.define(op.result, [g.converted(value, varying)[0] for value in op.operands])


def _vec_extract(g: Generator, op: Op) -> None:
    g.define(op.result, [g.converted(op.operands[0], g.is_varying(op.result))[op.attrs["lane"]]])


def _vec_insert(g: Generator, op: Op) -> None:
    vector, component = op.operands
    varying = g.is_varying(op.result)
    parts = list(g.converted(vector, varying))
    parts[op.attrs["lane"]] = g.converted(component, varying)[0]
    g.define(op.result, parts)


def _assume_uniform(g: Generator, op: Op) -> None:
    """Broadcast the value of the first active lane."""
    source = op.operands[0]
    if not g.is_varying(source) and (g.mask is None or g.shapes.is_uniform(source)):
        g.define(op.result, g.scalars(source))
        return
    kind, lane = g.type(source.type, True), g.first_lane(g.mask)
    g.define(op.result, [g.text.op(f"extractelement {kind} {part}, i32 {lane}") for part in g.vectors(source)])


HANDLERS: dict[OpName, Handler] = {
    **{name: _elementwise(lane) for name, lane in _LANES.items()},
    "and": _conjunction,
    "const": _const,
    "poison": _poison,
    "select": _select,
    "cast": _cast,
    "bitcast": _bitcast,
    "vec_make": _vec_make,
    "vec_extract": _vec_extract,
    "vec_insert": _vec_insert,
    "assume_uniform": _assume_uniform,
}
