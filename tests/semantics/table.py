"""The table of semantics: the decision of each row, and the classes of the cases that demonstrate it.

A case names its row, the element types that it covers, a kernel generic over them, operands, and the expected outcome:
NumPy's result, a compile error, or an exception at run time. `Exempt` says why a row has no case for some types. `ROWS`
lists all rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import vkjit as vk
from vkjit import dtypes
from vkjit.dtypes import DType

BOOL = (dtypes.boolean,)
SIGNED = (dtypes.i8, dtypes.i16, dtypes.i32, dtypes.i64)
UNSIGNED = (dtypes.u8, dtypes.u16, dtypes.u32, dtypes.u64)
INTEGERS = (*SIGNED, *UNSIGNED)
FLOATS = (dtypes.f16, dtypes.bf16, dtypes.f32, dtypes.f64)
NUMBERS = (*INTEGERS, *FLOATS)
ALL = (*BOOL, *NUMBERS)
INDEX = (dtypes.index,)
COLUMNS = (*ALL, *INDEX)
"""The types that every row must cover: those of arrays, and `index`, which only values can have."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The compiler rejects the kernel with a message that contains `words`."""

    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Raised:
    """The launch raises `error` with a message that contains `words`."""

    error: type[vk.VkjitError]
    words: tuple[str, ...] = ()


Expected = Callable[..., Any] | Refused | Raised


@dataclass(frozen=True, slots=True)
class Case:
    """A case of a row. `kernel` is a kernel, or a function that makes one from the element type.

    `operands(dtype)` returns its arguments and `expected(*operands)` the results in order; `says` is the docs' text.
    `ulp` is the tolerance of float results in units in the last place (0: bitwise equal).
    """

    row: str
    says: str
    types: tuple[DType, ...]
    kernel: Any
    operands: Callable[[DType], tuple[Any, ...]]
    expected: Expected
    ulp: float = 0.0
    launch: Callable[..., Any] | None = None
    """How the kernel is launched, if not by `kernel(*operands)`."""


@dataclass(frozen=True, slots=True)
class Exempt:
    """Types for which a row has no case, and the reason."""

    row: str
    types: tuple[DType, ...]
    because: str


@dataclass(frozen=True, slots=True)
class Row:
    """A rule: a question and the decision."""

    key: str
    decision: str


@dataclass
class Table:
    """The cases and exemptions of one file."""

    cases: list[Case] = field(default_factory=list)
    exempt: list[Exempt] = field(default_factory=list)

    def case(self, row: str, says: str, types: tuple[DType, ...], kernel: Any, operands: Any, expected: Expected,
             **more: Any) -> None:  # fmt: skip
        self.cases.append(Case(row, says, types, kernel, operands, expected, **more))

    def not_for(self, row: str, types: tuple[DType, ...], because: str) -> None:
        self.exempt.append(Exempt(row, types, because))


ROWS: tuple[Row, ...] = (
    Row("index type", "ids, extents and strides have the type `index`, with 64-bit semantics; `index` with any "
        "integer gives `index`; a store to a narrower array wraps; ranges never wrap; a constant step of 0 is an "
        "error, a run-time step of 0 gives no iterations"),
    Row("literals", "weakly typed: they take the type of the other operand, otherwise i32 or f32; a variable "
        "first bound to a literal takes the type of the first strongly typed value it is joined with"),
    Row("variables", "a read of a variable that may be unbound is a compile error; straight-line code may rebind "
        "a variable with another type; where control flow joins, the types must agree"),
    Row("mixed types", "the join in the type lattice, without implicit promotion to f64; signed with unsigned of "
        "the same width is an error that suggests casts"),
    Row("narrowing", "implicit only for stores of a float to a narrower float; all other narrowing conversions "
        "are explicit"),
    Row("integer overflow", "integer arithmetic wraps around"),
    Row("`//` and `%`", "floor division as in Python, for constants and run-time values; `vk.truncdiv` and "
        "`vk.truncrem` truncate as in C"),
    Row("division by zero", "integers give 0, and an error with `debug=True`; floats follow IEEE 754"),
    Row("`/` on ints", "true division in f32"),
    Row("`**`", "repeated multiplication for small constant integer exponents, otherwise pow"),
    Row("shifts", "the shift amount is taken modulo the width; a constant amount outside of the width is an "
        "error; the result has the type of the left operand"),
    Row("float to int", "truncates and saturates at the limits of the type; NaN gives 0"),
    Row("min, max", "propagate NaN, and -0 < +0; `vk.fmin` and `vk.fmax` ignore NaN"),
    Row("round", "rounds half to even"),
    Row("fused multiply-add", "`a * b + c` may be fused by default, never with `strict=True`"),
    Row("math functions", "accurate within the documented bound of each function"),
    Row("range()", "bounds are evaluated once; steps may be negative; the loop variable keeps its last value"),
    Row("and, or, not", "short-circuit for scalars; for slices and tiles, an error that suggests & and |"),
    Row("barriers, collectives", "allowed in control flow that is uniform for their scope; otherwise an error "
        "that shows why it isn't uniform"),
    Row("aliasing", "outputs may overlap other arguments; an output whose strides certainly map several elements "
        "to one location is rejected"),
    Row("uninitialised memory", "a read that certainly precedes every write is an error; `sanitize=True` finds "
        "others; `debug=True` fills shared memory and allocated Outs"),
    Row("out of bounds", "`.get` and `.put` are always safe; `over=` guards the tail of the grid; `x[i]` is "
        "checked with `debug=True` and on CPUs; what a kernel has written before an error stays, also in NumPy arrays"),
    Row("negative indices", "constants count from the end, as in Python; a negative run-time index is out of "
        "bounds"),
    Row("globals and closures", "constants are captured by value, rebinding them triggers a recompilation; "
        "capturing a mutable object is an error"),
    Row("`+=` on memory", "a plain load, operation and store"),
    Row("print", "output is written at synchronization, with and without debug"),
    Row("source not available", "an error that suggests a fix"),
)  # fmt: skip
"""The rows in the order of the documentation."""
