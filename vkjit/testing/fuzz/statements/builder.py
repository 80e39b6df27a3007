"""The state of a program under construction, and the registry of the kinds of statements.

A kind of statement is a function that is registered with `statement` and emits IR. It takes a `Maker`, by which it
chooses types and values, fills regions, and adds its results to the scope. Programs are well typed, terminate and have
no races: each invocation writes only its own elements of arrays (see `fuzz.generate`), barriers separate writes to
shared memory from reads by other invocations, and atomics on the same array commute.

Control flow is either uniform (all invocations of the workgroup are present, so collectives are allowed) or divergent.
Within uniform flow, a branch or loop with a divergent condition contains no `return`, and no `break` or `continue` of
an outer loop, so that all invocations meet again at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from vkjit import dtypes
from vkjit.ir.attributes import Attrs
from vkjit.ir.builder import Builder
from vkjit.ir.core import Function, Module, Region, Value
from vkjit.ir.ops import OPS, OpName
from vkjit.ir.types import BOOL, INDEX, Array, Scalar, Type, Vector

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["STATEMENTS", "Loop", "Maker", "Place", "Statement", "Traits", "statement"]

T = TypeVar("T")

FLOATS = [0.0, 0.0, -0.0, -0.0, 1.0, 1.0, -1.0, 2.0, 0.5, 3.25, -7.0, 10.0]
RARE_FLOATS = [float("inf"), float("nan"), float("-inf")]
COLUMNS = 8
"""Number of results of inexact operations that a program stores, per float type."""
INTS = [0, 0, 1, 1, -1, -1, 2, 3, 7, 8, 31, 100, 127, -128]


@dataclass(frozen=True, slots=True)
class Traits:
    """The features of one program.

    `strict` sets the kernel attribute of this name, by which all executors must round in the same way. `bounds` sets
    the kernel attribute by which accesses to arrays are checked (see `vkjit.passes.transforms.bounds_checks`).
    `subgroups`, `shared` (shared memory), `atomics`, `reports` (assertions) and `prints` allow these operations.
    `algebra` adds many of the statements in `algebra`. `palette` are the scalar types of values, `vectors` the vector
    types.
    """

    strict: bool = True
    subgroups: bool = False
    shared: bool = False
    atomics: bool = False
    reports: bool = False
    prints: bool = False
    bounds: bool = False
    algebra: bool = False
    palette: tuple[Type, ...] = (INDEX,)
    vectors: tuple[Vector, ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """An array that statements may access.

    `index` emits indices that are in range. `kind` says how the array is accessed:

    - "read": only read;
    - "own": read and written, at indices from `index`, which are different for each invocation;
    - "counter": updated only by the atomic operation `combine` ("add" also by subtraction), and not read;
    - "shared": shared memory in which each invocation writes at its `row` and reads any element between barriers;
    - "tally": shared memory that is initialized, updated by the atomic operation `combine`, and read between barriers;
    - "total": shared memory for one partial result of each subgroup, combined by the operation `combine`.
    """

    array: Value
    index: Callable[[Maker], list[Value]]
    kind: str
    combine: str = ""

    @property
    def type(self) -> Array:
        """The array type."""
        assert isinstance(self.array.type, Array)
        return self.array.type

    @property
    def element(self) -> Scalar | Vector:
        """The element type."""
        return self.type.element


@dataclass(slots=True)
class Loop:
    """An enclosing loop: the types of its loop-carried values, and a list with its counter, empty for `for`.

    The counter is the last carried value of a `loop`, which ends it (see `control`); `types` doesn't include it.
    """

    types: list[Type]
    counter: list[Value]


@dataclass(slots=True)
class Inexact:
    """The arrays for results of inexact operations on one float type, and for the scales of these results.

    A statement stores into the next free column, at the invocation's `row`. `bounds` are the error bounds of the
    columns in use, in ULP of the scale (see `fuzz.compare`); `columns` is the number of columns.
    """

    results: Place
    scales: Place
    bounds: list[float] = field(default_factory=list)
    columns: int = COLUMNS


@dataclass(slots=True)
class Probe:
    """An array for results of `algebra` statements of one type, with a column per statement; `taken` are in use."""

    array: Value
    columns: int
    taken: int = 0


@dataclass(slots=True)
class Maker:
    """The state while one function is built, and the methods by which statements build it.

    - `results`: the function's result types; `returnable`: True if `return` is allowed at this point.
    - `uniform`: True if control flow is uniform at this point.
    - `fuel`: the number of statements left; `depth`: the number of levels by which regions may still be nested.
    - `scope`: the visible values; `unused`: those of them without a use, which are preferred as operands (the dict
      serves as an ordered set); `uniform_values`: values that are the same in all invocations of the workgroup.
    - `loops`: the enclosing loops that may be exited at this point, innermost last.
    - `places`, `inexact` and `probes`: the arrays that statements may access, by purpose and type.
    - `functions`: the device functions that may be called.
    - `row`: the value named `row`, the invocation's linear index in the grid (None in device functions).
    - `invocations`: the number of invocations per workgroup.
    """

    random: Random
    builder: Builder
    traits: Traits
    module: Module
    results: list[Type] = field(default_factory=list)
    returnable: bool = True
    uniform: bool = False
    fuel: int = 20
    depth: int = 4
    scope: list[Value] = field(default_factory=list)
    unused: dict[Value, None] = field(default_factory=dict)
    uniform_values: set[Value] = field(default_factory=set)
    loops: list[Loop] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    functions: list[Function] = field(default_factory=list)
    inexact: dict[Type, Inexact] = field(default_factory=dict)
    probes: dict[Type, Probe] = field(default_factory=dict)
    row: Value | None = None
    invocations: int = 1

    # -- choices

    def draw(self, low: int, high: int) -> int:
        """Return a random integer from low to high, both inclusive."""
        return self.random.randint(low, high)

    def pick(self, items: Sequence[T]) -> T:
        """Return a random item."""
        return self.random.choice(items)

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return self.random.random() < probability

    # -- types

    def type(self, kinds: Sequence[str] = ("int", "uint", "index", "float"), vectors: bool = True) -> Type:
        """Return a random type of the program whose dtype is of one of these kinds; i32 or f32 if there is none."""
        pool: list[Type] = [t for t in self.traits.palette if kind(t) in kinds]
        if vectors and self.traits.vectors and self.chance(0.25):
            pool = [t for t in self.traits.vectors if kind(t) in kinds] or pool
        if pool:
            return self.pick(pool)
        return Scalar(dtypes.f32 if "float" in kinds and "int" not in kinds else dtypes.i32)

    def any_type(self) -> Type:
        """Return bool or a random numeric type of the program."""
        return BOOL if self.chance(0.15) else self.type()

    # -- values

    def value(self, type: Type, *, uniform: bool = False) -> Value:
        """Return a value of the type: one from the scope, a conversion of one, or a constant.

        With `uniform`, the value is the same in all invocations of the workgroup.
        """
        candidates = [v for v in self.scope if v.type == type and (not uniform or v in self.uniform_values)]
        if candidates and not self.chance(0.2):
            chosen = self._choose(candidates)
            self.unused.pop(chosen, None)
            return chosen
        if isinstance(type, Scalar) and not uniform and self.chance(0.5):
            others = [v for v in self.scope if isinstance(v.type, Scalar) and v.type != type]
            if others:
                source = self._choose(others)
                self.unused.pop(source, None)
                return self.keep(self.builder.cast(source, type))
        if isinstance(type, Vector) and not uniform and self.chance(0.6):
            parts = [self.value(Scalar(type.dtype)) for _ in range(type.size)]
            return self.keep(self.builder.emit("vec_make", *parts, type=type))
        return self.constant(type)

    def _choose(self, candidates: Sequence[Value]) -> Value:
        """Return a random value; values without a use and recent ones are more likely."""
        fresh = [v for v in candidates if v in self.unused]
        if fresh and self.chance(0.6):
            return self.pick(fresh)
        return candidates[-1 - min(int(self.random.expovariate(0.35)), len(candidates) - 1)]

    def constant(self, type: Type) -> Value:
        """Return a random constant of the type: small numbers, rarely limits of integer types, infinities or NaN."""
        assert isinstance(type, (Scalar, Vector))
        dtype = type.dtype
        if dtype.kind == "bool":
            return self.builder.const(self.chance(0.5), type)
        if dtype.is_float:
            return self.builder.const(self.pick(RARE_FLOATS if self.chance(0.03) else FLOATS), type)
        number = self.pick(INTS)
        if self.chance(0.1):
            edges = [width for width in (8, 16, 31, 32, 63) if width < dtype.bits]
            number = self.pick([-1, 1]) * (1 << (self.pick(edges) if edges else 3)) - self.pick([0, 0, 1])
            number = max(number, -(1 << (dtype.bits - 1)))
            number = min(number, (1 << (dtype.bits - 1)) - 1)
        return self.builder.const(abs(number) if dtype.kind == "uint" else number, type)

    def keep(self, value: Value) -> Value:
        """Add a value to the scope and return it; record if it is uniform over the workgroup."""
        self.scope.append(value)
        self.unused[value] = None
        op = value.op
        if op is not None and OPS[op.name].elementwise and all(self.is_uniform(v) for v in op.operands):
            self.uniform_values.add(value)
        return value

    def is_uniform(self, value: Value) -> bool:
        """True if a value is known to be uniform over the workgroup."""
        return value in self.uniform_values or (value.op is not None and value.op.name == "const")

    def emit(self, name: OpName, *operands: Value, **attrs: Unpack[Attrs]) -> Value:
        """Emit an operation and add its result to the scope."""
        return self.keep(self.builder.emit(name, *operands, **attrs))

    def below(self, limit: int, *, uniform: bool = False) -> Value:
        """Return an index from 0 to limit - 1, bounded by a mask or modulo.

        With `uniform`, the index is uniform over the workgroup.
        """
        if limit <= 1:
            return self.builder.index(0)
        if self.chance(0.2):
            return self.builder.index(self.draw(0, limit - 1))
        value = self.value(INDEX, uniform=uniform)
        power = 1 << (limit.bit_length() - 1)
        if power == limit or self.chance(0.5):
            return self.builder.emit("and", value, self.builder.index(power - 1))
        return self.builder.emit("floormod", value, self.builder.index(limit))

    # -- regions

    def fill(self, region: Region, size: int, end: Callable[[], None]) -> None:
        """Fill a region with up to `size` statements. `end` emits its terminator, unless its end is unreachable."""
        mark = len(self.scope)
        self.scope += region.args
        self.unused.update(dict.fromkeys(region.args))
        self.depth -= 1
        with self.builder.at(region):
            for _ in range(self.draw((size + 1) // 2, size)):
                if not self.statement():
                    self.builder.op("unreachable")
                    break
            else:
                end()
        self.depth += 1
        for value in self.scope[mark:]:
            self.unused.pop(value, None)
        del self.scope[mark:]

    @contextmanager
    def inside(self, region: Region) -> Iterator[None]:
        """Context manager that emits into a region. Values added to the scope meanwhile are removed at its end."""
        mark = len(self.scope)
        with self.builder.at(region):
            yield
        for value in self.scope[mark:]:
            self.unused.pop(value, None)
        del self.scope[mark:]

    def statement(self) -> bool:
        """Emit a statement of a random kind that is allowed here. Returns False if the code after it is unreachable."""
        self.fuel -= 1
        entries = [e for e in STATEMENTS if e.allowed(self)]
        if self.fuel <= 0 or self.depth <= 0:
            entries = [e for e in entries if not e.nested]
        (chosen,) = self.random.choices(entries, [e.weight for e in entries])
        return chosen.build(self) is not False

    @contextmanager
    def divergent(self) -> Iterator[None]:
        """Context manager for divergent control flow. Within uniform flow, it disables exits from the region."""
        if not self.uniform:
            yield
            return
        saved = (self.loops, self.returnable)
        self.uniform, self.loops, self.returnable = False, [], False
        yield
        self.uniform = True
        self.loops, self.returnable = saved


@dataclass(frozen=True, slots=True)
class Statement:
    """A kind of statement, as registered by `statement`."""

    build: Callable[[Maker], bool | None]
    weight: float
    allowed: Callable[[Maker], bool]
    nested: bool


STATEMENTS: list[Statement] = []


def statement(
    weight: float, allowed: Callable[[Maker], bool] = lambda _: True, *, nested: bool = False
) -> Callable[[Callable[[Maker], bool | None]], Callable[[Maker], bool | None]]:
    """Register the decorated function as a kind of statement.

    The function emits a statement and returns False if the code after it is unreachable. `weight` is its relative
    probability, `allowed` tests if the state permits it, and `nested` says that it has regions.
    """

    def register(build: Callable[[Maker], bool | None]) -> Callable[[Maker], bool | None]:
        STATEMENTS.append(Statement(build, weight, allowed, nested))
        return build

    return register


def kind(type: Type) -> str:
    """Return the kind of a type's dtype."""
    assert isinstance(type, (Scalar, Vector))
    return type.dtype.kind


def with_dtype(type: Type, dtype: Any) -> Scalar | Vector:
    """Return the type with another dtype and the same number of components."""
    return Vector(dtype, type.size) if isinstance(type, Vector) else Scalar(dtype)
