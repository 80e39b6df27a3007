"""The table of semantics: what each row decides, and the cases that show it.

Enters: nothing. Leaves: `ROWS`, and the classes of which the tables of cases are made. A case names its row, the element
types that it covers, a kernel generic over them, operands, and what has to come out: NumPy's result, a refusal of the
compiler, or an exception from the run. `Exempt` says why a row has nothing to show for some types.
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
"""The types that a row has to speak of: those of arrays, and `index`, which values alone can have."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The compiler refuses the kernel, with these words in its message."""

    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Raised:
    """The run ends in this exception, with these words in its message."""

    error: type[vk.VkjitError]
    words: tuple[str, ...] = ()


Expected = Callable[..., Any] | Refused | Raised


@dataclass(frozen=True, slots=True)
class Case:
    """`kernel` is a kernel, or a function that makes one from the element type; `operands(dtype)` gives its arguments.

    `expected`, called with the operands, gives the results in order; `says` is what the page of the documentation shows.
    `ulp`: how far float results may be off, in units in the last place (0: bit by bit).
    """

    row: str
    says: str
    types: tuple[DType, ...]
    kernel: Any
    operands: Callable[[DType], tuple[Any, ...]]
    expected: Expected
    ulp: float = 0.0
    launch: Callable[..., Any] | None = None
    """How the kernel is launched, where that isn't `kernel(*operands)`."""


@dataclass(frozen=True, slots=True)
class Exempt:
    """Types for which a row has nothing to show, and why."""

    row: str
    types: tuple[DType, ...]
    because: str


@dataclass(frozen=True, slots=True)
class Row:
    """A question and the decision."""

    key: str
    decision: str


@dataclass
class Table:
    """What one file of cases holds."""

    cases: list[Case] = field(default_factory=list)
    exempt: list[Exempt] = field(default_factory=list)

    def case(self, row: str, says: str, types: tuple[DType, ...], kernel: Any, operands: Any, expected: Expected,
             **more: Any) -> None:  # fmt: skip
        self.cases.append(Case(row, says, types, kernel, operands, expected, **more))

    def not_for(self, row: str, types: tuple[DType, ...], because: str) -> None:
        self.exempt.append(Exempt(row, types, because))


ROWS: tuple[Row, ...] = (
    Row("index type", "ids, extents and strides are `index`, 64 bits in meaning; `index` with any integer gives `index`; "
        "stored to a narrower array it wraps; ranges never wrap; a step of 0 is an error, 0 trips if only known at run time"),
    Row("literals", "weak: they take the other operand's type, alone i32 or f32; a variable first bound to a literal takes "
        "the type of its first strong join"),
    Row("variables", "a read that may precede its write is a compile error; straight-line rebinding may change the type; "
        "values that meet at a join must agree"),
    Row("mixed types", "the lattice join without silent f64; signed with unsigned of the same width is an error that says "
        "how to cast"),
    Row("narrowing", "float to narrower float on store only; everything else explicit"),
    Row("integer overflow", "wraps"),
    Row("`//` and `%`", "Python's floor, constant or not; `vk.truncdiv`, `vk.truncrem` for C's"),
    Row("division by zero", "integers: 0, reported in debug; floats: IEEE"),
    Row("`/` on ints", "true division to f32"),
    Row("`**`", "exact repeated multiplication for small constant integer exponents, else pow"),
    Row("shifts", "amount modulo width; a constant amount beyond it is an error; the result has the left type"),
    Row("float to int", "truncates, saturates at the type's ends, NaN gives 0"),
    Row("min, max", "NaN passes on, -0 < +0; `vk.fmin`, `vk.fmax` ignore NaN"),
    Row("round", "half to even"),
    Row("fused multiply-add", "may be fused by default, never with `strict=True`"),
    Row("math functions", "within the documented bound of each function"),
    Row("range()", "bounds evaluated once, negative steps, the loop variable keeps its last value"),
    Row("and, or, not", "short-circuit on scalars; on slices and tiles an error that suggests & and |"),
    Row("barriers, collectives", "in control flow that is uniform for their scope, else an error that says why not"),
    Row("aliasing", "outputs may overlap other arguments; one that plainly has several elements in one place is refused"),
    Row("uninitialised memory", "a read that plainly comes before every write is an error; others are found by `sanitize=True`; "
        "`debug=True` fills shared memory and allocated Outs"),
    Row("out of bounds", "`.get` and `.put` are always safe, `over=` guards its tail, `x[i]` is checked with `debug=True` and "
        "on processors"),
    Row("negative indices", "Python's meaning for constants; a run-time negative index is out of bounds"),
    Row("globals and closures", "constants by value, rebinding compiles anew; what can change is an error"),
    Row("`+=` on memory", "a plain read, operation and write"),
    Row("print", "written at synchronisation, with debug off too"),
    Row("source not available", "an error that says what to do"),
)  # fmt: skip
"""The rows in the order of the documentation."""
