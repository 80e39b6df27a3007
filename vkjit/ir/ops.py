"""The op table: one row for each operation, which drives builder, verifier, printer, parser, interpreter, folder and
emitters.

A row is an `OpInfo`, and its fields are the columns of the table. The column `signature` has the form "operands ->
result", written with these words:

    T, S     a scalar or vector type; the same letter is the same type throughout. The column `of` limits T's dtype
    bool     a boolean of T's shape            index, u32, i32   a scalar of that type
    array    an array                          element           the array's element type
    *index   as many indices as the array has dimensions (one for a linear array)
    *any     any number of values              type              the type in the attribute `type`
    no word after the arrow: no result; "*": given by the regions or the callee

To add an operation, add a row, run `python -m tools.op_names`, and, if the operation is structured or accesses memory,
add a case to the interpreter and the emitters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from ..errors import InternalError
from ._gen_op_names import OpName
from .semantics import MEANING

__all__ = ["OPS", "Effect", "OpInfo", "OpName", "info", "op_name"]


class Effect:
    """The side effects of operations: a namespace of the values of the column `effect`."""

    NONE = "none"
    READ = "read"  # of memory
    WRITE = "write"  # of memory
    READ_WRITE = "read_write"  # atomics
    ALLOCATE = "allocate"  # a new array
    SYNC = "sync"  # barriers and fences: order memory
    REPORT = "report"  # visible to the user
    HINT = "hint"  # no effect at run time, but later code may rely on the stated condition
    CONTROL = "control"  # structured control flow: has the effects of its regions
    EXIT = "exit"  # terminators


@dataclass(frozen=True, slots=True)
class OpInfo:
    """A row of the op table.

    - `signature`: see the module docstring. `of`: a key of `KINDS`, the kinds of dtypes that T may have.
    - `effect`: a constant of `Effect`.
    - `speculatable`: True if the operation may be executed where the program wouldn't execute it.
    - `convergent`: True if the result depends on which invocations execute the operation together, so that it must not
      move into or out of control flow.
    - `uniformity`: "operands" (uniform if the operands are), "always", "never", "load" (see rule 2 of
      `passes.analysis.uniformity`), "workgroup" (the same value in the whole workgroup) or "subgroup".
    - `meaning`: for elementwise operations, the NumPy function that computes the result (see `semantics`).
    - `ulp`: error bound of float results against the exact value (0: correctly rounded, None: no bound).
    - `spirv`: the instruction by kind of the (first) operand; "glsl:Name" is in GLSL.std.450. For missing kinds, the
      operation has to be lowered before code is emitted.
    - `attrs`: the required attributes. `regions`: the number of regions. `doc`: a description.
    """

    name: OpName
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


OPS: dict[OpName, OpInfo] = {}
"""The op table: maps the name of an operation to its row."""

KINDS: dict[str, frozenset[str]] = {
    "any": frozenset({"bool", "int", "uint", "index", "float"}),
    "num": frozenset({"int", "uint", "index", "float"}),
    "signed": frozenset({"int", "index", "float"}),
    "int": frozenset({"int", "uint", "index"}),
    "bits": frozenset({"bool", "int", "uint", "index"}),
    "float": frozenset({"float"}),
}
"""Maps the value of the column `of` to the kinds of dtypes that it allows."""


def _row(name: str, signature: str, doc: str, of: str = "any", **columns: Any) -> None:
    """Add a row to the table; `columns` are further fields of `OpInfo`."""
    key = cast("OpName", name)  # `OpName` is generated from these rows
    if key in OPS:
        raise ValueError(f"operation {name} has a row already")
    if "spirv" in columns:
        columns["spirv"] = MappingProxyType(columns["spirv"])
    columns.setdefault("meaning", MEANING.get(key))
    OPS[key] = OpInfo(key, signature, of, doc=doc, **columns)


def info(name: OpName) -> OpInfo:
    """Return the row of an operation."""
    return OPS[name]


def op_name(text: str) -> OpName:
    """Convert a string to an `OpName`. Raises InternalError if there is no such operation."""
    if text not in OPS:
        raise InternalError(f"no operation is named {text}")
    return text


def _ints(signed: str, unsigned: str | None = None) -> dict[str, str]:
    """Return the column `spirv` of an operation on integers. `unsigned` is by default the same as `signed`."""
    return {"int": signed, "index": signed, "uint": unsigned or signed}


def _all(signed: str, float_: str, unsigned: str | None = None) -> dict[str, str]:
    """Return the column `spirv` of an operation on integers and floats, from the instructions for each kind.

    `unsigned` is by default the same as `signed`.
    """
    return {**_ints(signed, unsigned), "float": float_}


# The table is laid out by hand.
# fmt: off
# -- constants and conversions
_row("const", "-> type", "A constant, or a splat of one; `value` is a Python number.", attrs=("type", "value"),
    uniformity="always")
_row("poison", "-> type", "An unspecified value, which a correct program never uses.", attrs=("type",),
    uniformity="always")
_row("cast", "S -> type",
    "Convert to another type; see `semantics.cast`. `raw` (optional) asserts that the value is in range of the "
    "target type.", attrs=("type",))
_row("bitcast", "S -> type", "Reinterpret the bits as another type of the same width.", attrs=("type",))
_row("extract_word", "S -> u32", "The low (`lane` 0) or high (`lane` 1) 32 bits of a 64-bit integer.", attrs=("lane",))
_row("join_words", "u32 u32 -> type", "The 64-bit integer with these low and high 32 bits.", attrs=("type",))

# -- arithmetic
_row("add", "T T -> T", "Sum. Integer overflow wraps.", "num", commutative=True, ulp=0.5, spirv=_all("IAdd", "FAdd"))
_row("sub", "T T -> T", "Difference. Integer overflow wraps.", "num", ulp=0.5, spirv=_all("ISub", "FSub"))
_row("mul", "T T -> T", "Product. Integer overflow wraps.", "num", commutative=True, ulp=0.5,
    spirv=_all("IMul", "FMul"))
_row("div", "T T -> T", "Floating-point quotient.", "float", ulp=2.5, spirv={"float": "FDiv"})
_row("floordiv", "T T -> T",
    "Quotient rounded toward negative infinity (Python's `//`). Integer division by 0 yields 0.", "num", ulp=2.5)
_row("floormod", "T T -> T", "Remainder of `floordiv` (Python's `%`). Integer division by 0 yields 0.", "num", ulp=2.5)
_row("truncdiv", "T T -> T", "Quotient rounded toward zero (C's `/`). Integer division by 0 yields 0.", "num", ulp=2.5)
_row("truncrem", "T T -> T", "Remainder of `truncdiv` (C's `%`). Integer division by 0 yields 0.", "num", ulp=2.5)
_row("udiv_raw", "T T -> T", "Unsigned quotient. The divisor must not be 0.", "int", speculatable=False,
    meaning=MEANING["truncdiv"], spirv=_ints("UDiv"))
_row("urem_raw", "T T -> T", "Unsigned remainder. The divisor must not be 0.", "int", speculatable=False,
    meaning=MEANING["truncrem"], spirv=_ints("UMod"))
_row("sdiv_raw", "T T -> T",
    "Signed quotient rounded toward zero. The divisor must not be 0, and the quotient must not overflow.", "int",
    speculatable=False, meaning=MEANING["truncdiv"], spirv=_ints("SDiv"))
_row("neg", "T -> T", "Negation. Flips the sign of zeros; integer overflow wraps.", "num", ulp=0,
    spirv=_all("SNegate", "FNegate"))
_row("abs", "T -> T", "Absolute value. The minimum signed integer wraps to itself.", "num", ulp=0,
    spirv={"int": "glsl:SAbs", "index": "glsl:SAbs", "float": "glsl:FAbs"})
_row("sign", "T -> T", "Sign: -1, 0 or 1. NaN is returned unchanged.", "num", ulp=0)
_row("min", "T T -> T", "Minimum. NaN is propagated; -0 is less than +0.", "num", commutative=True, ulp=0,
    spirv=_ints("glsl:SMin", "glsl:UMin"))
_row("max", "T T -> T", "Maximum. NaN is propagated; -0 is less than +0.", "num", commutative=True, ulp=0,
    spirv=_ints("glsl:SMax", "glsl:UMax"))
_row("fmin", "T T -> T", "Minimum. If one operand is NaN, returns the other.", "float", commutative=True, ulp=0,
    spirv={"float": "glsl:NMin"})
_row("fmax", "T T -> T", "Maximum. If one operand is NaN, returns the other.", "float", commutative=True, ulp=0,
    spirv={"float": "glsl:NMax"})
_row("pow", "T T -> T", "The first operand raised to the power of the second.", "num", ulp=4)
_row("fma", "T T T -> T", "x * y + z, with or without intermediate rounding.", "float", ulp=1,
    spirv={"float": "glsl:Fma"})

# -- bits
_row("and", "T T -> T", "Bitwise AND.", "bits", commutative=True, spirv={**_ints("BitwiseAnd"), "bool": "LogicalAnd"})
_row("or", "T T -> T", "Bitwise OR.", "bits", commutative=True, spirv={**_ints("BitwiseOr"), "bool": "LogicalOr"})
_row("xor", "T T -> T", "Bitwise XOR.", "bits", commutative=True,
    spirv={**_ints("BitwiseXor"), "bool": "LogicalNotEqual"})
_row("not", "T -> T", "Bitwise complement.", "bits", spirv={**_ints("Not"), "bool": "LogicalNot"})
_row("shl", "T T -> T", "Shift left. The shift amount is taken modulo the bit width.", "int")
_row("shr", "T T -> T", "Shift right, arithmetic for signed types. The shift amount is taken modulo the bit width.",
    "int")
_row("shl_raw", "T T -> T", "Shift left. The shift amount must be at least 0 and less than the bit width.", "int",
    meaning=MEANING["shl"], spirv=_ints("ShiftLeftLogical"))
_row("shr_raw", "T T -> T",
    "Shift right, arithmetic for signed types. The shift amount must be at least 0 and less than the bit width.", "int",
    meaning=MEANING["shr"], spirv=_ints("ShiftRightArithmetic", "ShiftRightLogical"))
_row("popcount", "T -> T", "Number of set bits.", "int")
_row("clz", "T -> T", "Number of leading zero bits; the bit width if the operand is 0.", "int")
_row("ctz", "T -> T", "Number of trailing zero bits; the bit width if the operand is 0.", "int")
_row("bitcount_raw", "u32 -> u32", "Number of set bits.", meaning=MEANING["popcount"], spirv={"uint": "BitCount"})
_row("find_msb_raw", "u32 -> u32", "Index of the most significant set bit. The operand must not be 0.",
    meaning=lambda x: np.asarray(x).dtype.type(31) - MEANING["clz"](x), spirv={"uint": "glsl:FindUMsb"})

# -- comparison and selection
_row("eq", "T T -> bool", "Equality. False if an operand is NaN.", commutative=True,
    spirv={**_all("IEqual", "FOrdEqual"), "bool": "LogicalEqual"})
_row("ne", "T T -> bool", "Inequality. True if an operand is NaN.", commutative=True,
    spirv={**_all("INotEqual", "FUnordNotEqual"), "bool": "LogicalNotEqual"})
_row("lt", "T T -> bool", "Less than. False if an operand is NaN.", "num",
    spirv=_all("SLessThan", "FOrdLessThan", "ULessThan"))
_row("le", "T T -> bool", "Less than or equal. False if an operand is NaN.", "num",
    spirv=_all("SLessThanEqual", "FOrdLessThanEqual", "ULessThanEqual"))
_row("gt", "T T -> bool", "Greater than. False if an operand is NaN.", "num",
    spirv=_all("SGreaterThan", "FOrdGreaterThan", "UGreaterThan"))
_row("ge", "T T -> bool", "Greater than or equal. False if an operand is NaN.", "num",
    spirv=_all("SGreaterThanEqual", "FOrdGreaterThanEqual", "UGreaterThanEqual"))
_row("select", "bool T T -> T", "The second operand if the condition is true, else the third, per component.",
    spirv={"bool": "Select"})
_row("isnan", "T -> bool", "True if the operand is NaN.", "float", spirv={"float": "IsNan"})
_row("isinf", "T -> bool", "True if the operand is an infinity.", "float", spirv={"float": "IsInf"})
_row("isfinite", "T -> bool", "True if the operand is neither NaN nor an infinity.", "float")

# -- rounding and mathematical functions
for _name, _glsl, _text in (
    ("floor", "Floor", "toward negative infinity"),
    ("ceil", "Ceil", "toward positive infinity"),
    ("trunc", "Trunc", "toward zero"),
    ("round", "RoundEven", "to nearest, ties to even"),
):
    _row(_name, "T -> T", f"Round to an integral value, {_text}.", "float", ulp=0, spirv={"float": f"glsl:{_glsl}"})
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
    _row(
        _name, "T -> T", f"The function `{_name}`, per component.", "float", ulp=_ulp, spirv={"float": f"glsl:{_glsl}"}
    )
for _name, _ulp in (("expm1", 3.0), ("log10", 2.0), ("log1p", 3.0), ("erf", 3.0), ("erfc", 8.0)):
    _row(_name, "T -> T", f"The function `{_name}`, per component.", "float", ulp=_ulp)
_row("atan2", "T T -> T", "Angle of the point (x, y) in radians; the first operand is y, the second x.", "float",
    ulp=4.0, spirv={"float": "glsl:Atan2"})
_row("hypot", "T T -> T", "sqrt(x*x + y*y) without intermediate overflow.", "float", ulp=4.0)
_row("copysign", "T T -> T", "The magnitude of the first operand with the sign of the second.", "float", ulp=0)

# -- vectors
_row("vec_make", "*any -> type", "Build a vector from its components.", attrs=("type",),
    spirv={"any": "CompositeConstruct"})
_row("vec_extract", "S -> type", "Extract component `lane` of a vector.", attrs=("lane", "type"))
_row("vec_insert", "S T -> S", "A copy of a vector with component `lane` replaced by the second operand.",
    attrs=("lane",))

# -- ids of invocations
for _name, _uniform, _text in (
    ("global_id", "never", "Index of the invocation in the grid"),
    ("local_id", "never", "Index of the invocation in its workgroup"),
    ("group_id", "workgroup", "Index of the workgroup"),
    ("num_groups", "always", "Number of workgroups"),
    ("local_size", "always", "Number of invocations in a workgroup"),
):
    _row(_name, "-> index", f"{_text} along dimension `dim`.", attrs=("dim",), uniformity=_uniform)
_row("lane_id", "-> index", "Index of the invocation in its subgroup.", uniformity="never")
_row("subgroup_id", "-> index", "Index of the subgroup in its workgroup.", uniformity="subgroup")
_row("subgroup_size", "-> index", "Number of invocations in a subgroup.", uniformity="always")
_row("num_subgroups", "-> index", "Number of subgroups in a workgroup.", uniformity="always")

# -- memory
_row("extent", "array -> index", "Number of elements along `axis`.", attrs=("axis",), uniformity="always")
_row("stride", "array -> index", "Stride along `axis`, in elements.", attrs=("axis",), uniformity="always")
_row("linear", "array -> type",
    "A one-dimensional view of the same memory. Its element type must have the size of the array's element type or, "
    "for global arrays, a multiple of that size; accesses to wider elements must be aligned to them.", attrs=("type",),
    uniformity="always")
_row("shared", "-> type",
    "Allocate an array in shared memory, once per workgroup for each occurrence of the operation.", attrs=("type",),
    effect=Effect.ALLOCATE, speculatable=False, uniformity="always")
_row("local", "-> type", "Allocate an array private to the invocation.", attrs=("type",), effect=Effect.ALLOCATE,
    speculatable=False, uniformity="always")
_row("load", "array *index -> element", "Load an element.", effect=Effect.READ, speculatable=False, uniformity="load")
_row("store", "array *index element ->", "Store an element.", effect=Effect.WRITE, speculatable=False)
_ATOMIC: dict[str, Any] = {"effect": Effect.READ_WRITE, "speculatable": False, "uniformity": "never"}
_row("atomic", "array *index element -> element",
    "Atomic read-modify-write with `op` (add sub min max and or xor exchange); returns the old value.",
    attrs=("op", "order", "scope"), **_ATOMIC)
_row("atomic_cas", "array *index element element -> element",
    "Atomic compare-and-swap; the operands are the expected and the new value. Returns the old value.",
    attrs=("order", "scope"), **_ATOMIC)
_row("atomic_load", "array *index -> element", "Atomic load.", attrs=("order", "scope"), **_ATOMIC)
_row("atomic_store", "array *index element ->", "Atomic store.", attrs=("order", "scope"), **_ATOMIC)
_row("barrier", "->",
    "Control and memory barrier for the workgroup; orders accesses to shared and global memory within it.",
    effect=Effect.SYNC, speculatable=False, convergent=True)
_row("fence", "->", "Memory barrier (acquire and release) at `scope`: workgroup or device.", attrs=("scope",),
    effect=Effect.SYNC, speculatable=False)

# -- subgroups
_SG: dict[str, Any] = {"speculatable": False, "convergent": True}
_row("sg_reduce", "T -> T",
    "Reduce over the active invocations of the subgroup with `op` (add mul min max and or xor).", attrs=("op",),
    uniformity="subgroup", **_SG)
_row("sg_scan", "T -> T", "Inclusive or exclusive scan over the active invocations of the subgroup with `op`.",
    attrs=("op", "exclusive"), uniformity="never", **_SG)
_row("sg_broadcast", "T index -> T", "The value held by the given lane, the same lane for all invocations.",
    uniformity="subgroup", **_SG)
_row("sg_shuffle", "T index -> T", "The value held by the given lane, which may differ between invocations.",
    uniformity="never", **_SG)
_row("sg_shuffle_xor", "T -> T", "The value held by the lane whose id is this lane's id XOR `mask`.", attrs=("mask",),
    uniformity="never", **_SG)
_row("sg_any", "bool -> bool", "True if the operand is true in any active invocation.", uniformity="subgroup", **_SG)
_row("sg_all", "bool -> bool", "True if the operand is true in all active invocations.", uniformity="subgroup", **_SG)
_row("sg_elect", "-> type", "True in exactly one of the active invocations.", attrs=("type",), uniformity="never",
    **_SG)
_row("sg_ballot", "bool -> type", "Bit mask (u64) of the active invocations for which the operand is true.",
    attrs=("type",), uniformity="subgroup", **_SG)

# -- cooperative matrices: held by a subgroup, whose invocations all take part
_MATRIX: dict[str, Any] = {"speculatable": False, "convergent": True, "uniformity": "subgroup"}
_row("mat_fill", "S -> type", "A matrix with all elements equal to the operand.", attrs=("type",), **_MATRIX)
_row("mat_load", "array *index index -> type",
    "Load a matrix that starts at the given element. The last operand is the stride between its rows (`layout` row) "
    "or columns (column), in elements of the array. The array's elements may differ in size from the matrix's: "
    "memory is then reinterpreted.", attrs=("layout", "type"), effect=Effect.READ, **_MATRIX)
_row("mat_store", "array *index index matrix ->",
    "Store a matrix; the operands are those of `mat_load`, followed by the matrix.", attrs=("layout",),
    effect=Effect.WRITE, **_MATRIX)
_row("mat_mma", "matrix matrix matrix -> type",
    "Matrix multiply-accumulate: A @ B + C. Float products are summed in unspecified order.", attrs=("type",), ulp=None,
    **_MATRIX)
_row("mat_map", "*any -> type", "Apply `op` (add sub mul neg) elementwise.", attrs=("op", "type"), **_MATRIX)
_row("mat_cast", "matrix -> type", "Convert the elements of a matrix.", attrs=("type",), **_MATRIX)

# -- tiles: values distributed over the invocations of a scope, until the pass `lower_tiles`
_TILE: dict[str, Any] = {"speculatable": False, "convergent": True, "uniformity": "workgroup"}
_row("tile_map", "*any -> type",
    "Elementwise map. The region is evaluated for each element of the result; its arguments are the element's "
    "indices, then the corresponding elements of the operands (with NumPy broadcasting). It yields the element.",
    attrs=("type",), regions=1, effect=Effect.CONTROL, **_TILE)
_row("tile_each", "*any ->",
    "Execute the region once for each element of the first operand. Its arguments are those of `tile_map`; it yields "
    "nothing and may write memory.", regions=1, effect=Effect.CONTROL, **_TILE)
_row("tile_load", "array *any -> type",
    "Load a slice of an array. The operands are the start index along each array axis, the valid length along each "
    "tile axis, and the padding value for elements beyond these lengths. `axes` maps each array axis to a tile axis "
    "or None.", attrs=("axes", "type"), effect=Effect.READ, **_TILE)
_row("tile_store", "array *any ->",
    "Store a tile to a slice of an array, except elements beyond the valid lengths. The operands are those of "
    "`tile_load`, with the tile in place of the padding value.", attrs=("axes",), effect=Effect.WRITE, **_TILE)
_row("tile_reduce", "tile -> type", "Reduce along `axis` with `op`; the axis is removed.", attrs=("op", "axis", "type"),
    **_TILE)
_row("tile_argument", "tile -> type",
    "Index of the first minimum or maximum (`op` min or max) along `axis`; the axis is removed. NaN compares as the "
    "extremum.", attrs=("op", "axis", "type"), **_TILE)
_row("tile_scan", "tile -> type", "Inclusive scan along `axis` with `op`.", attrs=("op", "axis", "type"), **_TILE)
_row("tile_mma", "tile tile tile -> type", "Matrix multiply-accumulate: A @ B + C.", attrs=("type",), **_TILE)
_row("tile_reshape", "tile -> type", "Reshape; the elements keep their C order.", attrs=("type",), **_TILE)
_row("tile_transpose", "tile -> type", "Permute the axes: axis i of the result is axis `axes[i]` of the operand.",
    attrs=("axes", "type"), **_TILE)
_row("tile_get", "tile *any -> type", "The element at the given indices, available in every invocation.",
    attrs=("type",), **_TILE)

# -- control
_row("if", "bool ->*",
    "Conditional. The first region is executed if the condition is true, else the second; a `yield` passes the "
    "results.", regions=2, effect=Effect.CONTROL, speculatable=False, uniformity="never")
_row("for", "T T T *any ->*",
    "Counted loop. The operands are the lower bound, the upper bound (exclusive), the step, and the initial "
    "loop-carried values.", "int", regions=1, effect=Effect.CONTROL, speculatable=False, uniformity="never")
_row("loop", "*any ->*", "Loop until `break`. The operands are the initial loop-carried values.", regions=1,
    effect=Effect.CONTROL, speculatable=False, uniformity="never")
_row("call", "*any ->*", "Call the device function `callee`.", attrs=("callee",), effect=Effect.CONTROL,
    speculatable=False, uniformity="never")
_EXIT: dict[str, Any] = {"terminator": True, "effect": Effect.EXIT, "speculatable": False}
_row("yield", "*any ->", "Terminate a region of an `if` or of a tile operation; the operands are its results.", **_EXIT)
_row("continue", "*any ->",
    "Continue with the next iteration of the innermost loop; the operands are its loop-carried values.", **_EXIT)
_row("break", "*any ->", "Exit the innermost loop; the operands are its results.", **_EXIT)
_row("return", "*any ->", "Return from the function; the operands are its results.", **_EXIT)
_row("unreachable", "->", "Marks a point that control flow never reaches.", **_EXIT)

# -- reports
_row("report", "bool *any ->",
    "If the condition is true, record report site `site` with the values, unless a report was recorded before. "
    "Execution continues.", attrs=("site",), effect=Effect.REPORT, speculatable=False)
_row("print", "*any ->",
    "Print the values in the format of site `site`; the output appears when the host synchronizes.", attrs=("site",),
    effect=Effect.REPORT, speculatable=False)
_row("assume_uniform", "T -> T", "Return the operand, which is assumed to be uniform.", uniformity="always")
_row("assume", "bool *any ->",
    "Assume that the condition is true. Violations can be reported like those of `report`, with the values.",
    attrs=("site",), effect=Effect.HINT, speculatable=False)
# fmt: on
