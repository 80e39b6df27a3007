"""The op table: one row for each operation, which drives builder, verifier, printer, parser, interpreter, folder and
emitters.

A row's `signature` has the form "operands -> result", written with these words:

    T, S     a scalar or vector type; the same letter is the same type throughout. `of` limits the dtype's kind of T
    bool     a boolean of T's shape            index, u32, i32   that scalar
    array    an array                          element           the array's element type
    *index   as many indices as the array has dimensions (one for a linear array)
    *any     any number of values              type              the type in the attribute `type`
    no word after the arrow: no result; "*": given by the regions or the callee

To add an operation, add a row and, if it is structured or accesses memory, a case in the interpreter and the emitters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from .semantics import MEANING

__all__ = ["OPS", "Effect", "OpInfo", "info"]


class Effect:
    """Side effects of operations, as a namespace of strings."""

    NONE = "none"
    READ = "read"  # of memory
    WRITE = "write"  # of memory
    READ_WRITE = "read_write"  # atomics
    ALLOCATE = "allocate"  # a new array
    SYNC = "sync"  # barriers and fences: order memory
    REPORT = "report"  # visible to the user
    HINT = "hint"  # none: later code may rely on what it states
    CONTROL = "control"  # structured control flow: has the effects of its regions
    EXIT = "exit"  # terminators


@dataclass(frozen=True, slots=True)
class OpInfo:
    """A row of the op table.

    `speculatable`: may run where the program wouldn't run it. `convergent`: depends on which invocations run it
    together, so it must not move into or out of control flow. `uniformity`: "operands" (uniform if they are), "always",
    "never", "load" (see the language reference), "workgroup" (the same value in the whole workgroup), "subgroup".
    `meaning`: the NumPy function. `ulp`: error bound of float results against the exact value (0: correctly rounded,
    None: no bound). `spirv`: the instruction by kind of the (first) operand; "glsl:Name" is in GLSL.std.450. Kinds that
    are missing have to be lowered before emission. `attrs`: required attributes.
    """

    name: str
    signature: str
    of: str = "any"
    effect: str = Effect.NONE
    speculatable: bool = True
    convergent: bool = False
    commutative: bool = False
    uniformity: str = "operands"
    meaning: Callable[..., Any] | None = None
    ulp: float | None = None
    spirv: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    attrs: tuple[str, ...] = ()
    regions: int = 0
    terminator: bool = False
    doc: str = ""

    @property
    def operands(self) -> tuple[str, ...]:
        return tuple(self.signature.partition("->")[0].split())

    @property
    def result(self) -> str:
        return self.signature.partition("->")[2].strip()

    @property
    def elementwise(self) -> bool:
        """True if each lane of the result depends on that lane of the operands only."""
        return self.meaning is not None or self.name in ("cast", "bitcast", "const")


OPS: dict[str, OpInfo] = {}

KINDS: dict[str, frozenset[str]] = {
    "any": frozenset({"bool", "int", "uint", "index", "float"}),
    "num": frozenset({"int", "uint", "index", "float"}),
    "signed": frozenset({"int", "index", "float"}),
    "int": frozenset({"int", "uint", "index"}),
    "bits": frozenset({"bool", "int", "uint", "index"}),
    "float": frozenset({"float"}),
}
"""The kinds of dtypes that each word of `of` stands for."""


def _row(name: str, signature: str, doc: str, of: str = "any", **columns: Any) -> None:
    if name in OPS:
        raise ValueError(f"operation {name} has a row already")
    if "spirv" in columns:
        columns["spirv"] = MappingProxyType(columns["spirv"])
    columns.setdefault("meaning", MEANING.get(name))
    OPS[name] = OpInfo(name, signature, of, doc=doc, **columns)


def info(name: str) -> OpInfo:
    """Return the row of an operation."""
    return OPS[name]


def _ints(signed: str, unsigned: str | None = None) -> dict[str, str]:
    return {"int": signed, "index": signed, "uint": unsigned or signed}


def _all(signed: str, float_: str, unsigned: str | None = None) -> dict[str, str]:
    return {**_ints(signed, unsigned), "float": float_}


# -- constants and conversions
_row("const", "-> type", "A constant; `value` is a Python number.", attrs=("type", "value"), uniformity="always")
_row("poison", "-> type", "Any value: never read by a correct program.", attrs=("type",), uniformity="always")
_row(
    "cast",
    "S -> type",
    "Value conversion; see `semantics.cast`. `raw=True` (optional): the source is in the target's range.",
    attrs=("type",),
)
_row("bitcast", "S -> type", "The same bits as another type of the same width.", attrs=("type",))

# -- arithmetic
_row("add", "T T -> T", "Sum; integers wrap.", "num", commutative=True, ulp=0.5, spirv=_all("IAdd", "FAdd"))
_row("sub", "T T -> T", "Difference; integers wrap.", "num", ulp=0.5, spirv=_all("ISub", "FSub"))
_row("mul", "T T -> T", "Product; integers wrap.", "num", commutative=True, ulp=0.5, spirv=_all("IMul", "FMul"))
_row("div", "T T -> T", "True division.", "float", ulp=2.5, spirv={"float": "FDiv"})
_row("floordiv", "T T -> T", "Python's //; integers by 0 give 0.", "num", ulp=2.5)
_row("floormod", "T T -> T", "Python's %; integers by 0 give 0.", "num", ulp=2.5)
_row("truncdiv", "T T -> T", "C's /; integers by 0 give 0.", "num", ulp=2.5)
_row("truncrem", "T T -> T", "C's %; integers by 0 give 0.", "num", ulp=2.5)
_row(
    "udiv_raw",
    "T T -> T",
    "Quotient of unsigned values; the divisor is not 0.",
    "int",
    speculatable=False,
    meaning=lambda x, y: MEANING["truncdiv"](x, y),
    spirv=_ints("UDiv"),
)
_row(
    "urem_raw",
    "T T -> T",
    "Remainder of unsigned values; the divisor is not 0.",
    "int",
    speculatable=False,
    meaning=lambda x, y: MEANING["truncrem"](x, y),
    spirv=_ints("UMod"),
)
_row(
    "sdiv_raw",
    "T T -> T",
    "Truncated quotient; divisor not 0, quotient in range.",
    "int",
    speculatable=False,
    meaning=lambda x, y: MEANING["truncdiv"](x, y),
    spirv=_ints("SDiv"),
)
_row("neg", "T -> T", "Negation; keeps the sign of zeros.", "num", ulp=0, spirv=_all("SNegate", "FNegate"))
_row(
    "abs",
    "T -> T",
    "Absolute value; the least integer wraps to itself.",
    "num",
    ulp=0,
    spirv={"int": "glsl:SAbs", "index": "glsl:SAbs", "float": "glsl:FAbs"},
)
_row("sign", "T -> T", "-1, 0 or 1; NaN stays.", "num", ulp=0)
_row(
    "min",
    "T T -> T",
    "Minimum; NaN passes on, -0 < +0.",
    "num",
    commutative=True,
    ulp=0,
    spirv=_ints("glsl:SMin", "glsl:UMin"),
)
_row(
    "max",
    "T T -> T",
    "Maximum; NaN passes on, -0 < +0.",
    "num",
    commutative=True,
    ulp=0,
    spirv=_ints("glsl:SMax", "glsl:UMax"),
)
_row("fmin", "T T -> T", "Minimum that ignores NaN.", "float", commutative=True, ulp=0, spirv={"float": "glsl:NMin"})
_row("fmax", "T T -> T", "Maximum that ignores NaN.", "float", commutative=True, ulp=0, spirv={"float": "glsl:NMax"})
_row("pow", "T T -> T", "Power.", "num", ulp=4)
_row("fma", "T T T -> T", "x * y + z, fused or not.", "float", ulp=1, spirv={"float": "glsl:Fma"})

# -- bits
_row("and", "T T -> T", "Bitwise and.", "bits", commutative=True, spirv={**_ints("BitwiseAnd"), "bool": "LogicalAnd"})
_row("or", "T T -> T", "Bitwise or.", "bits", commutative=True, spirv={**_ints("BitwiseOr"), "bool": "LogicalOr"})
_row(
    "xor",
    "T T -> T",
    "Bitwise exclusive or.",
    "bits",
    commutative=True,
    spirv={**_ints("BitwiseXor"), "bool": "LogicalNotEqual"},
)
_row("not", "T -> T", "Complement.", "bits", spirv={**_ints("Not"), "bool": "LogicalNot"})
_row("shl", "T T -> T", "Shift left; amount modulo width.", "int")
_row("shr", "T T -> T", "Shift right, arithmetic for signed types; amount modulo width.", "int")
_row(
    "shl_raw",
    "T T -> T",
    "Shift left; 0 <= amount < width.",
    "int",
    meaning=MEANING["shl"],
    spirv=_ints("ShiftLeftLogical"),
)
_row(
    "shr_raw",
    "T T -> T",
    "Shift right; 0 <= amount < width.",
    "int",
    meaning=MEANING["shr"],
    spirv=_ints("ShiftRightArithmetic", "ShiftRightLogical"),
)
_row("popcount", "T -> T", "Number of bits set.", "int")
_row("clz", "T -> T", "Leading zero bits.", "int")
_row("ctz", "T -> T", "Trailing zero bits; the width for 0.", "int")
_row("bitcount_raw", "u32 -> u32", "Number of bits set.", meaning=MEANING["popcount"], spirv={"uint": "BitCount"})
_row(
    "find_msb_raw",
    "u32 -> u32",
    "Number of the highest bit set; the operand is not 0.",
    meaning=lambda x: np.asarray(x).dtype.type(31) - MEANING["clz"](x),
    spirv={"uint": "glsl:FindUMsb"},
)

# -- comparison and selection
_row("eq", "T T -> bool", "Equal.", commutative=True, spirv={**_all("IEqual", "FOrdEqual"), "bool": "LogicalEqual"})
_row(
    "ne",
    "T T -> bool",
    "Not equal; true for NaN.",
    commutative=True,
    spirv={**_all("INotEqual", "FUnordNotEqual"), "bool": "LogicalNotEqual"},
)
_row("lt", "T T -> bool", "Less.", "num", spirv=_all("SLessThan", "FOrdLessThan", "ULessThan"))
_row("le", "T T -> bool", "Less or equal.", "num", spirv=_all("SLessThanEqual", "FOrdLessThanEqual", "ULessThanEqual"))
_row("gt", "T T -> bool", "Greater.", "num", spirv=_all("SGreaterThan", "FOrdGreaterThan", "UGreaterThan"))
_row(
    "ge",
    "T T -> bool",
    "Greater or equal.",
    "num",
    spirv=_all("SGreaterThanEqual", "FOrdGreaterThanEqual", "UGreaterThanEqual"),
)
_row("select", "bool T T -> T", "The second operand where the first is true, else the third.", spirv={"bool": "Select"})
_row("isnan", "T -> bool", "Is NaN.", "float", spirv={"float": "IsNan"})
_row("isinf", "T -> bool", "Is an infinity.", "float", spirv={"float": "IsInf"})
_row("isfinite", "T -> bool", "Neither NaN nor an infinity.", "float")

# -- rounding and mathematical functions
for _name, _glsl in {"floor": "Floor", "ceil": "Ceil", "trunc": "Trunc", "round": "RoundEven"}.items():
    _row(_name, "T -> T", f"{_name} to an integral value.", "float", ulp=0, spirv={"float": f"glsl:{_glsl}"})
for _name, _glsl, _ulp in (
    ("sqrt", "Sqrt", 2.5),
    ("rsqrt", "InverseSqrt", 2.0),
    ("exp", "Exp", 2.0),
    ("exp2", "Exp2", 2.0),
    ("log", "Log", 2.0),
    ("log2", "Log2", 2.0),
    ("sin", "Sin", 2.0),
    ("cos", "Cos", 2.0),
    ("tan", "Tan", 4.0),
    ("asin", "Asin", 2.0),
    ("acos", "Acos", 2.0),
    ("atan", "Atan", 4.0),
    ("sinh", "Sinh", 3.0),
    ("cosh", "Cosh", 3.0),
    ("tanh", "Tanh", 4.0),
    ("asinh", "Asinh", 4.0),
    ("acosh", "Acosh", 4.0),
    ("atanh", "Atanh", 4.0),
):
    _row(_name, "T -> T", f"{_name}.", "float", ulp=_ulp, spirv={"float": f"glsl:{_glsl}"})
for _name, _ulp in (("expm1", 3.0), ("log10", 2.0), ("log1p", 3.0), ("erf", 3.0), ("erfc", 8.0)):
    _row(_name, "T -> T", f"{_name}.", "float", ulp=_ulp)
_row("atan2", "T T -> T", "Angle of the point (second, first).", "float", ulp=4.0, spirv={"float": "glsl:Atan2"})
_row("hypot", "T T -> T", "sqrt(x*x + y*y) without overflow.", "float", ulp=4.0)
_row("copysign", "T T -> T", "The magnitude of the first with the sign of the second.", "float", ulp=0)

# -- vectors
_row("vec_make", "*any -> type", "A vector from its components.", attrs=("type",), spirv={"any": "CompositeConstruct"})
_row("vec_extract", "S -> type", "Component `lane` of a vector.", attrs=("lane", "type"))
_row("vec_insert", "S T -> S", "A vector with component `lane` replaced.", attrs=("lane",))

# -- ids of invocations
for _name, _uniform, _text in (
    ("global_id", "never", "Id of the invocation in the grid"),
    ("local_id", "never", "Id of the invocation in its workgroup"),
    ("group_id", "workgroup", "Id of the workgroup"),
    ("num_groups", "always", "Number of workgroups"),
    ("local_size", "always", "Invocations of a workgroup"),
):
    _row(_name, "-> index", f"{_text} along `dim`.", attrs=("dim",), uniformity=_uniform)
_row("lane_id", "-> index", "Id of the invocation in its subgroup.", uniformity="never")
_row("subgroup_id", "-> index", "Id of the subgroup in its workgroup.", uniformity="subgroup")
_row("subgroup_size", "-> index", "Invocations of a subgroup.", uniformity="always")
_row("num_subgroups", "-> index", "Subgroups of a workgroup.", uniformity="always")

# -- memory
_row("extent", "array -> index", "Elements along `axis`.", attrs=("axis",), uniformity="always")
_row("stride", "array -> index", "Distance in elements along `axis`.", attrs=("axis",), uniformity="always")
_row(
    "linear",
    "array -> type",
    "The array as a linear one: same first byte; the element may become another one of its size, or of a multiple "
    "of it (global arrays, for accesses to whole aligned groups of elements).",
    attrs=("type",),
    uniformity="always",
)
_row(
    "shared",
    "-> type",
    "A shared array of the workgroup, one per program point.",
    attrs=("type",),
    effect=Effect.ALLOCATE,
    speculatable=False,
    uniformity="always",
)
_row(
    "local",
    "-> type",
    "An array of the invocation.",
    attrs=("type",),
    effect=Effect.ALLOCATE,
    speculatable=False,
    uniformity="always",
)
_row("load", "array *index -> element", "Read an element.", effect=Effect.READ, speculatable=False, uniformity="load")
_row("store", "array *index element ->", "Write an element.", effect=Effect.WRITE, speculatable=False)
_ATOMIC: dict[str, Any] = {"effect": Effect.READ_WRITE, "speculatable": False, "uniformity": "never"}
_row(
    "atomic",
    "array *index element -> element",
    "Read-modify-write by `op` (add sub min max and or xor exchange); gives the old value.",
    attrs=("op", "order", "scope"),
    **_ATOMIC,
)
_row(
    "atomic_cas",
    "array *index element element -> element",
    "Compare (first) and swap (second); gives the old value.",
    attrs=("order", "scope"),
    **_ATOMIC,
)
_row("atomic_load", "array *index -> element", "Atomic read.", attrs=("order", "scope"), **_ATOMIC)
_row("atomic_store", "array *index element ->", "Atomic write.", attrs=("order", "scope"), **_ATOMIC)
_row(
    "barrier",
    "->",
    "Waits for the whole workgroup; orders shared and global memory in it.",
    effect=Effect.SYNC,
    speculatable=False,
    convergent=True,
)
_row(
    "fence",
    "->",
    "Orders memory at `scope` (workgroup or device).",
    attrs=("scope",),
    effect=Effect.SYNC,
    speculatable=False,
)

# -- subgroups
_SG: dict[str, Any] = {"speculatable": False, "convergent": True}
_row(
    "sg_reduce",
    "T -> T",
    "Reduction over the active invocations of the subgroup by `op` (add mul min max and or xor).",
    attrs=("op",),
    uniformity="subgroup",
    **_SG,
)
_row(
    "sg_scan",
    "T -> T",
    "Inclusive or exclusive scan by `op` over the subgroup.",
    attrs=("op", "exclusive"),
    uniformity="never",
    **_SG,
)
_row("sg_broadcast", "T index -> T", "The value of a lane.", uniformity="subgroup", **_SG)
_row("sg_shuffle", "T index -> T", "The value of a lane that each invocation chooses.", uniformity="never", **_SG)
_row(
    "sg_shuffle_xor",
    "T -> T",
    "The value of the lane whose id differs by xor with `mask`.",
    attrs=("mask",),
    uniformity="never",
    **_SG,
)
_row("sg_any", "bool -> bool", "True if true in any active invocation.", uniformity="subgroup", **_SG)
_row("sg_all", "bool -> bool", "True if true in all active invocations.", uniformity="subgroup", **_SG)
_row("sg_elect", "-> type", "True in one active invocation.", attrs=("type",), uniformity="never", **_SG)
_row(
    "sg_ballot",
    "bool -> type",
    "Bit mask (u64) of the active invocations where the operand is true.",
    attrs=("type",),
    uniformity="subgroup",
    **_SG,
)

# -- cooperative matrices: held by a subgroup, whose invocations all take part
_MATRIX: dict[str, Any] = {"speculatable": False, "convergent": True, "uniformity": "subgroup"}
_row("mat_fill", "S -> type", "The matrix whose elements are all the operand.", attrs=("type",), **_MATRIX)
_row(
    "mat_load",
    "array *index index -> type",
    "The matrix whose first element lies at the indices; the last operand is the distance, in elements of the array, "
    "between its rows in memory (`layout` row) or its columns (column). Elements of another size count as their bytes.",
    attrs=("layout", "type"),
    effect=Effect.READ,
    **_MATRIX,
)
_row(
    "mat_store",
    "array *index index matrix ->",
    "Writes a matrix to where `mat_load` would read it.",
    attrs=("layout",),
    effect=Effect.WRITE,
    **_MATRIX,
)
_row(
    "mat_mma",
    "matrix matrix matrix -> type",
    "The product of the first two matrices, added to the third; sums of floats in any order.",
    attrs=("type",),
    ulp=None,
    **_MATRIX,
)
_row("mat_map", "*any -> type", "`op` (add sub mul neg) of elements.", attrs=("op", "type"), **_MATRIX)
_row("mat_cast", "matrix -> type", "A matrix with its elements converted.", attrs=("type",), **_MATRIX)

# -- tiles: values distributed over the invocations of a scope, until the pass `lower_tiles`
_TILE: dict[str, Any] = {"speculatable": False, "convergent": True, "uniformity": "workgroup"}
_row(
    "tile_map",
    "*any -> type",
    "One region, computed for each element: it gets the element's position, then the elements of the operands (broadcast "
    "as in NumPy), and yields the result's element.",
    attrs=("type",),
    regions=1,
    effect=Effect.CONTROL,
    **_TILE,
)
_row(
    "tile_each",
    "*any ->",
    "One region, run once for each element of the first operand, as `tile_map`'s; it yields nothing and may write.",
    regions=1,
    effect=Effect.CONTROL,
    **_TILE,
)
_row(
    "tile_load",
    "array *any -> type",
    "Elements of a slice: operands are the start along each axis of the array, the length along each axis of the tile, and "
    "the number that stands for what lies behind these lengths. `axes`: the axis of the tile for each of the array, or "
    "None.",
    attrs=("axes", "type"),
    effect=Effect.READ,
    **_TILE,
)
_row(
    "tile_store",
    "array *any ->",
    "Writes to a slice what lies inside: operands as for `tile_load`, with the tile in place of the number.",
    attrs=("axes",),
    effect=Effect.WRITE,
    **_TILE,
)
_row(
    "tile_reduce",
    "tile -> type",
    "Reduction along `axis` by `op`; the axis goes.",
    attrs=("op", "axis", "type"),
    **_TILE,
)
_row(
    "tile_argument",
    "tile -> type",
    "The least position of the extremum (`op` min or max) along `axis`, which goes; NaN counts as the extremum.",
    attrs=("op", "axis", "type"),
    **_TILE,
)
_row("tile_scan", "tile -> type", "Inclusive scan along `axis` by `op`.", attrs=("op", "axis", "type"), **_TILE)
_row(
    "tile_mma", "tile tile tile -> type", "The product of the first two, added to the third.", attrs=("type",), **_TILE
)
_row("tile_reshape", "tile -> type", "The same elements in C order with another shape.", attrs=("type",), **_TILE)
_row("tile_transpose", "tile -> type", "The axes in the order `axes`.", attrs=("axes", "type"), **_TILE)
_row("tile_get", "tile *any -> type", "The element at a position, in every invocation.", attrs=("type",), **_TILE)

# -- control
_row(
    "if",
    "bool ->*",
    "Two regions: taken when true, when false.",
    regions=2,
    effect=Effect.CONTROL,
    speculatable=False,
    uniformity="never",
)
_row(
    "for",
    "T T T *any ->*",
    "Counted loop: from, to (exclusive), step, carried values.",
    "int",
    regions=1,
    effect=Effect.CONTROL,
    speculatable=False,
    uniformity="never",
)
_row(
    "loop",
    "*any ->*",
    "Loop until `break`; operands are the carried values.",
    regions=1,
    effect=Effect.CONTROL,
    speculatable=False,
    uniformity="never",
)
_row(
    "call",
    "*any ->*",
    "Calls the device function `callee`.",
    attrs=("callee",),
    effect=Effect.CONTROL,
    speculatable=False,
    uniformity="never",
)
_EXIT: dict[str, Any] = {"terminator": True, "effect": Effect.EXIT, "speculatable": False}
_row("yield", "*any ->", "Ends a region of `if`; its operands are the results.", **_EXIT)
_row("continue", "*any ->", "Next round of the innermost loop with these carried values.", **_EXIT)
_row("break", "*any ->", "Ends the innermost loop with these results.", **_EXIT)
_row("return", "*any ->", "Ends the function.", **_EXIT)
_row("unreachable", "->", "Never reached.", **_EXIT)

# -- reports
_row(
    "report",
    "bool *any ->",
    "Where true, records site `site` with the values (the first report wins); goes on.",
    attrs=("site",),
    effect=Effect.REPORT,
    speculatable=False,
)
_row(
    "print",
    "*any ->",
    "Prints site `site` with the values when the host synchronises.",
    attrs=("site",),
    effect=Effect.REPORT,
    speculatable=False,
)
_row("assume_uniform", "T -> T", "The operand, promised to be uniform.", uniformity="always")
_row(
    "assume",
    "bool *any ->",
    "The operand is promised to be true; where it isn't, that can be reported as `report` does, with the values.",
    attrs=("site",),
    effect=Effect.HINT,
    speculatable=False,
)
