"""The state of a program under construction, and the registry of the kinds of statements.

A kind of statement is a function that is registered with `statement` and emits IR. It takes a `Maker`, by which it
chooses types and values, fills regions, and adds its results to the scope.

Programs are well typed, terminate and have no races: each invocation writes only its own elements of arrays (see
`fuzz.generate`), barriers separate writes to shared memory from reads by other invocations, and atomics on the same
array commute.

Control flow is either uniform (all invocations of the workgroup are present, so collectives are allowed) or divergent.
Within uniform control flow, a branch or loop with a divergent condition contains no `return`, and no `break` or
`continue` of an outer loop. So all invocations meet again at the end of the branch or loop.
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

# values of constants in programs: numbers that occur several times here are chosen more often
FLOATS = [0.0, 0.0, -0.0, -0.0, 1.0, 1.0, -1.0, 2.0, 0.5, 3.25, -7.0, 10.0]
RARE_FLOATS = [float("inf"), float("nan"), float("-inf")]
INTS = [0, 0, 1, 1, -1, -1, 2, 3, 7, 8, 31, 100, 127, -128]

COLUMNS = 8
"""Maximum number of results of inexact operations that a program stores, per float type."""


@dataclass(frozen=True, slots=True)
class Traits:
    """The features of one program.

    - `strict` sets the kernel attribute of this name: all executors must then round in the same way.
    - `bounds` sets the kernel attribute of this name: accesses to arrays are then checked (see
      `vkjit.passes.transforms.bounds_checks`).
    - `subgroups`, `shared`, `atomics`, `reports` and `prints` allow subgroup operations, shared memory, atomics,
      assertions and prints.
    - `algebra` makes most statements those of the module `algebra`.
    - `palette` are the scalar types of values, `vectors` the vector types.
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

    `index` is a function that emits random indices into the array, in range. `kind` says how statements use the array:

    - "read": they only read it.
    - "own": each invocation reads and writes elements of its own, to which `index` emits the indices.
    - "counter": all invocations update it by the atomic operation `combine` (for "add" also by "sub"); none reads it.
    - "shared": an array in shared memory by which invocations exchange values. Each invocation writes its own element
      or row, and reads any element after a barrier.
    - "tally": counters in shared memory. They are initialized, updated by all invocations with the atomic operation
      `combine`, and then read; barriers separate the three steps.
    - "total": an array in shared memory for workgroup reductions with the operation `combine`. Each subgroup stores its
      partial result as one element.
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
    """An enclosing loop.

    `types` are the types of the loop-carried values. A `loop` has one more loop-carried value, the last one: a counter
    that ends the loop (see `control`). The list `counter` holds this value; for a `for` the list is empty.
    """

    types: list[Type]
    counter: list[Value]


@dataclass(slots=True)
class Inexact:
    """The two arrays for inexact operations on one float type: `results`, and `scales` of these results.

    A statement stores its result and scale into the next free column, at the invocation's `row`. `bounds` are the error
    bounds of the columns in use, in ULP of the scale (see `fuzz.compare`). `columns` is the number of columns.
    """

    results: Place
    scales: Place
    bounds: list[float] = field(default_factory=list)
    columns: int = COLUMNS


@dataclass(slots=True)
class Probe:
    """An array for the results of statements in the modules `algebra` and `limits`, which aren't overwritten; there is
    one such array per result type.

    It has a row for each invocation and a column for each statement that stores to it. The first `taken` of its
    `columns` columns are in use.
    """

    array: Value
    columns: int
    taken: int = 0


@dataclass(slots=True)
class Maker:
    """The state while one function is built, and the methods by which statements build it.

    - `results`: the function's result types.
    - `returnable`: True if `return` is allowed at this point.
    - `uniform`: True if control flow is uniform at this point.
    - `fuel`: the number of statements left; at 0, only statements without regions are emitted.
    - `depth`: the number of levels by which regions may still be nested.
    - `scope`: the visible values.
    - `unused`: the values in `scope` that have no use yet, which are preferred as operands. The dict serves as an
      ordered set.
    - `uniform_values`: values that are the same in all invocations of the workgroup.
    - `loops`: the enclosing loops that may be exited at this point, innermost last.
    - `places`: the arrays that statements may access.
    - `inexact` and `probes`: the arrays for results of inexact operations and of other statements, by type.
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
        """Return a random type of the program whose dtype is of one of these kinds; i32 or f32 if there is none.

        Scalar types only, unless `vectors` is True.
        """
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
        """Return a value of the type: one from the scope, a conversion of one, a new vector, or a constant.

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
        """Return one of the candidates; values without a use and recent values are more likely."""
        unused_values = [v for v in candidates if v in self.unused]
        if unused_values and self.chance(0.6):
            return self.pick(unused_values)
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
        if self.chance(0.1):  # a power of two that is a limit of an integer type or index, or one less
            edges = [width for width in (8, 16, 31, 32, 63) if width < dtype.bits]
            number = self.pick([-1, 1]) * (1 << (self.pick(edges) if edges else 3)) - self.pick([0, 0, 1])
            number = max(number, -(1 << (dtype.bits - 1)))
            number = min(number, (1 << (dtype.bits - 1)) - 1)
        return self.builder.const(abs(number) if dtype.kind == "uint" else number, type)

    def keep(self, value: Value) -> Value:
        """Add a value to the scope and return it. If it is uniform over the workgroup, add it to `uniform_values`."""
        self.scope.append(value)
        self.unused[value] = None
        op = value.op
        if op is not None and OPS[op.name].elementwise and all(self.is_uniform(v) for v in op.operands):
            self.uniform_values.add(value)
        return value

    def is_uniform(self, value: Value) -> bool:
        """True if a value is known to be uniform over the workgroup."""
        return value in self.uniform_values or (value.op is not None and value.op.name == "const")

    def probe(self, value: Value) -> None:
        """Store a value in the next free column of the probe for its type; of a vector, store one component.

        Does nothing if there is no probe for the type, or no free column.
        """
        if isinstance(value.type, Vector):
            lane = self.draw(0, value.type.size - 1)
            value = self.builder.emit("vec_extract", value, lane=lane, type=Scalar(value.type.dtype))
        if value.type == INDEX:
            value = self.builder.cast(value, dtypes.i64)
        columns = self.probes.get(value.type)
        if columns is None or columns.taken >= columns.columns or self.row is None:
            return
        self.builder.op("store", columns.array, self.row, self.builder.index(columns.taken), value)
        columns.taken += 1

    def emit(self, name: OpName, *operands: Value, **attrs: Unpack[Attrs]) -> Value:
        """Emit an operation and add its result to the scope."""
        return self.keep(self.builder.emit(name, *operands, **attrs))

    def below(self, limit: int, *, uniform: bool = False) -> Value:
        """Return an index from 0 to limit - 1: a constant, or a value bounded by a mask or by modulo.

        With `uniform`, the index is uniform over the workgroup.
        """
        if limit <= 1:
            return self.builder.index(0)
        if self.chance(0.2):
            return self.builder.index(self.draw(0, limit - 1))
        value = self.value(INDEX, uniform=uniform)
        power = 1 << (limit.bit_length() - 1)  # the largest power of two that isn't above the limit
        if power == limit or self.chance(0.5):
            return self.builder.emit("and", value, self.builder.index(power - 1))
        return self.builder.emit("floormod", value, self.builder.index(limit))

    # -- regions

    def fill(self, region: Region, size: int, end: Callable[[], None]) -> None:
        """Fill a region with up to `size` statements, at least half of them.

        `end` emits the region's terminator. If a statement makes the end of the region unreachable, the terminator is
        `unreachable` instead.
        """
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
        """Context manager that emits into a region; at its end, it removes the values added to the scope meanwhile."""
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
        """Context manager for regions with divergent control flow.

        If the control flow around them is uniform, it disables `return` and exits of outer loops in the regions.
        """
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
    """A kind of statement; `statement` registers it and describes the fields."""

    build: Callable[[Maker], bool | None]
    weight: float
    allowed: Callable[[Maker], bool]
    nested: bool


STATEMENTS: list[Statement] = []


def statement(
    weight: float, allowed: Callable[[Maker], bool] = lambda _: True, *, nested: bool = False
) -> Callable[[Callable[[Maker], bool | None]], Callable[[Maker], bool | None]]:
    """Register the decorated function as a kind of statement.

    The function emits a statement and returns False if the code after it is unreachable, else True or None. `weight` is
    the relative probability of this kind. `allowed` returns True if the state permits it. `nested` is True if the
    statement has regions that are filled with statements.
    """

    def register(build: Callable[[Maker], bool | None]) -> Callable[[Maker], bool | None]:
        STATEMENTS.append(Statement(build, weight, allowed, nested))
        return build

    return register


def kind(type: Type) -> str:
    """Return the kind of a type's dtype, such as "int" or "float"."""
    assert isinstance(type, (Scalar, Vector))
    return type.dtype.kind


def with_dtype(type: Type, dtype: Any) -> Scalar | Vector:
    """Return the type with another dtype and the same number of components."""
    return Vector(dtype, type.size) if isinstance(type, Vector) else Scalar(dtype)
