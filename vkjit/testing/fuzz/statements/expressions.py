"""Statements that compute: elementwise operations, conversions, vectors, and inexact operations.

Elementwise operations are read from the op table (`vkjit.ir.ops`), so a new row with a NumPy implementation is
generated without a change here.

An operation is exact if all executors (the interpreter and the devices) must give the same bits. Mathematical functions
are inexact; so are float sums and products in kernels that aren't strict. The results of inexact operations are stored
in columns of separate arrays (see `Inexact`), which are compared within error bounds. No other statement uses them.
"""

from __future__ import annotations

from vkjit import dtypes
from vkjit.ir.core import Region, Value
from vkjit.ir.ops import KINDS, OPS, OpInfo, OpName
from vkjit.ir.types import BOOL, Scalar, Type, Vector

from .builder import Inexact, Maker, kind, statement, with_dtype

__all__ = ["BINARY", "COMPARISONS", "INEXACT", "UNARY", "exact_names", "special_number"]

INEXACT: frozenset[OpName] = frozenset({
    "pow", "fma", "rsqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos",
    "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "hypot",
})  # fmt: skip
"""Float operations whose results may differ between executors even in strict kernels."""
LOOSE: frozenset[OpName] = frozenset(
    {"add", "sub", "mul", "div", "sqrt", "floordiv", "floormod", "truncdiv", "truncrem"}
)
"""Float operations that are inexact only in kernels that aren't strict: devices may fuse them, or round incorrectly."""
_KINDS = ("bool", "int", "uint", "index", "float")


def _computes(row: OpInfo) -> bool:
    """True for rows of elementwise operations with a NumPy implementation, except `*_raw` operations and `select`,
    which have statements of their own.
    """
    return row.meaning is not None and not row.name.endswith("_raw") and row.name != "select"


def _names(operands: tuple[str, ...], result: str) -> dict[str, list[OpName]]:
    """Return the elementwise operations with this signature, by kind of dtype; for floats without those in `INEXACT`.

    `operands` and `result` are types as in the op table, where "T" stands for the type on which the operation works.
    """
    by_kind: dict[str, list[OpName]] = {}
    for dtype_kind in _KINDS:
        rows = [r for r in OPS.values() if _computes(r) and (r.operands, r.result) == (operands, result)]
        names = [
            r.name for r in rows if dtype_kind in KINDS[r.of] and not (dtype_kind == "float" and r.name in INEXACT)
        ]
        by_kind[dtype_kind] = names
    return by_kind


# for each form of operation, the names by kind of dtype
UNARY, BINARY = _names(("T",), "T"), _names(("T", "T"), "T")
TESTS, COMPARISONS = _names(("T",), "bool"), _names(("T", "T"), "bool")
TERNARY = _names(("T", "T", "T"), "T")


def exact_names(m: Maker, names: list[OpName], type: Type) -> list[OpName]:
    """Return the operations among `names` that are exact for this type in this program."""
    excludes_loose = kind(type) == "float" and not m.traits.strict
    return [n for n in names if not (excludes_loose and n in LOOSE)]


def special_number(m: Maker, type: Type) -> float:
    """Return 0, 1 or -1, since algebraic simplification has rules for these constants."""
    special = [0.0, -0.0, 1.0, -1.0] if kind(type) == "float" else [0, 1] if kind(type) == "uint" else [0, 1, -1]
    return m.pick(special)


def _operands(m: Maker, type: Type) -> tuple[Value, Value]:
    """Return two operands. In one case of five, they are equal or one is a special number (see `special_number`)."""
    x = m.value(type)
    draw = m.random.random()
    if draw < 0.05:
        return x, x
    if draw < 0.2:
        constant = m.builder.const(special_number(m, type), type)
        return (x, constant) if m.chance(0.7) else (constant, x)
    return x, m.value(type)


@statement(10)
def _binary(m: Maker) -> None:
    type = m.type()
    name = m.pick(exact_names(m, BINARY[kind(type)], type))
    if name == "pow" and not m.chance(0.2):
        name = "mul"
    x, y = _operands(m, type)
    if name == "copysign":  # the sign of a NaN is unspecified
        y = m.builder.emit("select", m.builder.emit("isnan", y), m.builder.const(1.0, type), y)
    result = m.builder.emit(name, x, y)
    if name in ("fmin", "fmax"):  # which of two zeros is returned is unspecified
        zero = m.builder.const(0.0, type)
        result = m.builder.emit("select", m.builder.emit("eq", result, zero), zero, result)
    m.keep(result)


@statement(4)
def _unary(m: Maker) -> None:
    type = m.type()
    m.emit(m.pick(exact_names(m, UNARY[kind(type)], type)), m.value(type))


@statement(5)
def _comparison(m: Maker) -> None:
    type = m.type()
    result = m.emit(m.pick(COMPARISONS[kind(type)]), m.value(type), m.value(type))
    if isinstance(result.type, Vector):
        m.emit("vec_extract", result, lane=m.draw(0, result.type.size - 1), type=BOOL)


@statement(1)
def _test(m: Maker) -> None:
    type = m.type(["float"], vectors=False)
    m.emit(m.pick(TESTS["float"]), m.value(type))


@statement(2)
def _logic(m: Maker) -> None:
    if m.chance(0.2):
        m.emit("not", m.value(BOOL))
    else:
        m.emit(m.pick(["and", "or", "xor", "eq", "ne"]), m.value(BOOL), m.value(BOOL))


@statement(3)
def _select(m: Maker) -> None:
    type = m.any_type()
    condition = m.value(with_dtype(type, dtypes.boolean))
    m.emit("select", condition, m.value(type), m.value(type))


@statement(5)
def _cast(m: Maker) -> None:
    source = m.any_type()
    target = m.any_type()
    if isinstance(source, Vector):
        target = with_dtype(source, m.type(vectors=False).dtype)  # type: ignore[attr-defined]
        if target.dtype is dtypes.index:
            target = with_dtype(source, dtypes.i64)
    elif isinstance(target, Vector):
        target = Scalar(target.dtype)
    if target != source:
        m.emit("cast", m.value(source), type=target)


@statement(1)
def _bitcast(m: Maker) -> None:
    source = m.type(vectors=False)
    assert isinstance(source, Scalar)
    candidates = [t for t in (*dtypes.ALL, dtypes.index) if t.bits == source.dtype.bits and t is not source.dtype]
    if not candidates:
        return
    target = Scalar(m.pick(candidates))
    value = m.value(source)
    if source.dtype.is_float:  # the payload of a NaN is unspecified
        value = m.builder.emit("select", m.builder.emit("isnan", value), m.builder.const(1.0, source), value)
    result = m.builder.emit("bitcast", value, type=target)
    if target.dtype.is_float:  # replace subnormals and NaNs with a payload by ordinary numbers
        normal = m.builder.emit("ge", m.builder.emit("abs", result), m.builder.const(0.25, target))
        result = m.builder.emit("select", normal, result, m.builder.const(0.5, target))
    m.keep(result)


@statement(1)
def _raw(m: Maker) -> None:
    """A `*_raw` operation, with operands in the required range. In other programs, only lowering passes emit these."""
    type = m.type(["int", "uint", "index"], vectors=False)
    assert isinstance(type, Scalar)
    b, dtype = m.builder, type.dtype
    name: OpName = m.pick(["shl_raw", "shr_raw", "udiv_raw", "urem_raw", "sdiv_raw", "bitcount_raw", "find_msb_raw"])
    if name in ("bitcount_raw", "find_msb_raw"):  # on u32 only; the operand is odd, since find_msb(0) isn't defined
        u32 = Scalar(dtypes.u32)
        m.emit(name, b.emit("or", m.value(u32), b.const(1, u32)))
        return
    x, y = m.value(type), m.value(type)
    if name in ("shl_raw", "shr_raw"):
        m.emit(name, x, b.emit("and", y, b.const(dtype.bits - 1, type)))
        return
    # of signed types, unsigned division takes nonnegative operands; all divisors are positive (odd, hence not 0)
    if dtype.kind == "uint" and name == "sdiv_raw":
        name = "udiv_raw"
    maximum = b.const((1 << (dtype.bits - 1)) - 1, type)
    if dtype.kind != "uint":
        y = b.emit("and", y, maximum)
        x = x if name == "sdiv_raw" else b.emit("and", x, maximum)
    m.emit(name, x, b.emit("or", y, b.const(1, type)))


@statement(2, lambda m: bool(m.traits.vectors))
def _vector(m: Maker) -> None:
    type = m.pick(m.traits.vectors)
    name = m.pick(["vec_make", "vec_extract", "vec_insert"])
    element = Scalar(type.dtype)
    if name == "vec_make":
        m.emit("vec_make", *(m.value(element) for _ in range(type.size)), type=type)
    elif name == "vec_extract":
        m.emit("vec_extract", m.value(type), lane=m.draw(0, type.size - 1), type=element)
    else:
        m.emit("vec_insert", m.value(type), m.value(element), lane=m.draw(0, type.size - 1))


@statement(0.5)
def _assumed(m: Maker) -> None:
    """`assume_uniform` on a uniform value."""
    m.emit("assume_uniform", m.value(m.type(vectors=False), uniform=True))


@statement(0.5)
def _philox(m: Maker) -> None:
    """Two rounds of a counter-based random number generator similar to Philox."""
    b, u32, u64 = m.builder, Scalar(dtypes.u32), Scalar(dtypes.u64)
    c, key = m.value(u32), m.value(u32)
    for multiplier in (0xD2511F53, 0xCD9E8D57):
        wide = b.emit("mul", b.cast(c, u64), b.const(multiplier, u64))
        high = b.cast(b.emit("shr", wide, b.const(32, u64)), u32)
        c = b.emit("xor", b.emit("xor", high, b.cast(wide, u32)), key)
        key = b.emit("add", key, b.const(0x9E3779B9, u32))
    m.keep(c)
    if m.traits.strict:  # also a float in [0, 1)
        unit = b.cast(b.emit("shr", c, b.const(8, u32)), dtypes.f32)
        m.emit("mul", unit, b.const(2.0**-24, dtypes.f32))


@statement(1)
def _poison(m: Maker) -> None:
    """A branch that yields poison on one side, and a second result by which a select uses another value instead."""
    b, type = m.builder, m.type(vectors=False)
    yes, no = Region(), Region()
    good = m.value(type)
    with b.at(yes):
        b.op("yield", good, b.const(True, BOOL))
    with b.at(no):
        b.op("yield", b.emit("poison", type=type), b.const(False, BOOL))
    branch = b.op("if", m.value(BOOL), types=[type, BOOL], regions=[yes, no])
    value, is_defined = branch.results
    m.keep(b.emit("select", is_defined, value, m.value(type)))


# -- inexact operations


def _column(m: Maker, entry: Inexact, bound: float, result: Value, scale: Value | None) -> None:
    """Store a result of an inexact operation, and its scale, in the next free column.

    `bound` is the error bound in ULP of the scale. If `scale` is None, no scale is stored, and the bound is in ULP of
    the result.
    """
    column = m.builder.index(len(entry.bounds))
    entry.bounds.append(bound)
    assert m.row is not None
    for place, value in ((entry.results, result), (entry.scales, scale)):
        if value is not None:
            m.builder.op("store", place.array, m.row, column, value)


def _with_free_columns(m: Maker) -> list[tuple[Type, Inexact]]:
    """Return the float types that have free columns, with their arrays."""
    return [(t, e) for t, e in m.inexact.items() if len(e.bounds) < e.columns]


NUMPY_ULP = 4.6
"""Error bound of the interpreter's functions, in ULP: 4 for NumPy's functions, 0.5 for rounding to half precision."""


@statement(3, lambda m: bool(_with_free_columns(m)))
def _function(m: Maker) -> None:
    """An inexact operation on exact operands.

    Its error bound is the sum of the device's, from the op table, and the interpreter's. Sums and products are left to
    `_polynomial`. Quotients rounded to integers and remainders are never used in programs that aren't strict, since the
    smallest error of an operand may change them by a lot.
    """
    type, entry = m.pick(_with_free_columns(m))
    not_strict_only = (
        [] if m.traits.strict else sorted(LOOSE - {"add", "sub", "mul", "floordiv", "floormod", "truncdiv", "truncrem"})
    )
    name = m.pick(sorted(INEXACT - {"fma"}) + not_strict_only)
    info = OPS[name]
    result = m.builder.emit(name, *(m.value(type) for _ in info.operands))
    _column(m, entry, float(info.ulp or 0) + NUMPY_ULP, result, None)


@statement(3, lambda m: bool(_with_free_columns(m)))
def _polynomial(m: Maker) -> None:
    """A formula of up to three sums, products and `fma`, which devices may fuse.

    The scale is the same formula on the magnitudes of the operands. Each of the two executors compared makes an error
    of at most one ULP of the scale per rounding.
    """
    type, entry = m.pick(_with_free_columns(m))
    b = m.builder
    value = m.value(type)
    scale, roundings = b.emit("abs", value), 0
    for _ in range(m.draw(1, 3)):
        name: OpName = m.pick(["add", "sub", "mul", "fma"])
        other = m.value(type)
        magnitude = b.emit("abs", other)
        if name == "fma":
            third = m.value(type)
            value = b.emit("fma", value, other, third)
            scale = b.emit("add", b.emit("mul", scale, magnitude), b.emit("abs", third))
            roundings += 2
            continue
        value = b.emit(name, value, other)
        scale = b.emit("mul" if name == "mul" else "add", scale, magnitude)
        roundings += 1
    # 2: the number of executors; plus 1 as a margin
    _column(m, entry, 2.0 * roundings + 1.0, value, scale)
