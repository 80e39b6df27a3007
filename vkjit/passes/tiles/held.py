"""Where the elements of tiles are while code is made for them, and what code is made with.

`Held` is a tile in registers, `Staged` one in shared memory, `Deferred` a slice that its only user reads by itself.
`Workshop` holds what all parts of the lowering share: the builder, numbers of the invocation, shared memory for a while,
and which accesses to memory still wait for a barrier.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ...dtypes import DType
from ...errors import CompileError, Loc
from ...ir.builder import Builder
from ...ir.core import Function, Op, Region, Value
from ...ir.ops import OPS, Effect
from ...ir.rewrite import constant_of
from ...ir.types import BOOL, Array, Scalar, Type, Vector
from ..memory import AliasClass, alias_class, origin
from .layout import Axis, Layout, ceil_log2

__all__ = ["Deferred", "Held", "Options", "Staged", "Workshop"]


Element = Scalar | Vector
SHARED = "shared"
"""Stands for whatever shared memory a loop may use."""
_LINE_BYTES = 16
_SMALL_BYTES = 1024
_KINDS = {Effect.READ: "r", Effect.WRITE: "w", Effect.READ_WRITE: "rw"}


@dataclass(frozen=True, slots=True)
class Held:
    """A tile in registers: `values` by slot of the layout."""

    layout: Layout
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Staged:
    """A tile with two axes in shared memory: element (i, j) lies at i * pitch + j of `array`."""

    array: Value
    shape: tuple[int, ...]
    pitch: int


@dataclass(frozen=True, slots=True)
class Deferred:
    """A `tile_load` whose operands are there already and whose memory doesn't change before it is used."""

    op: Op
    operands: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Options:
    """What the lowering may use: see `LowerTiles`."""

    subgroup: int
    shuffles: bool
    shared_bytes: int
    vector: int
    direct: bool
    lanes: int
    unroll: int
    most_held: int
    keys: bool = True
    """Whether extremes of floats are found by whole numbers: see `keys`."""
    reciprocals: bool = True
    """Whether quotients by numbers that elements share are products with reciprocals: see `quotients`."""


@dataclass(slots=True)
class Workshop:
    """What all parts of the lowering share."""

    function: Function
    options: Options
    local_size: tuple[int, int, int]
    builder: Builder = field(init=False)
    entry: Builder = field(init=False)
    numbers: dict[tuple[str, int, int], Value] = field(default_factory=dict)
    scratches: dict[tuple[DType, str], Value] = field(default_factory=dict)
    sizes: dict[Value, int] = field(default_factory=dict)
    free: dict[Element, list[Value]] = field(default_factory=dict)
    pending: set[tuple[AliasClass, str]] = field(default_factory=set)
    assumed: set[tuple[AliasClass, str]] = field(default_factory=set)
    written: set[AliasClass] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    counters: dict[Value, tuple[Value, Value]] = field(default_factory=dict)
    """The first value and the step of counters of loops that are being lowered."""

    def __post_init__(self) -> None:
        self.builder = Builder(self.function.body)
        self.entry = Builder(Region(), self.function.loc)

    # -- invocations
    @property
    def invocations(self) -> int:
        x, y, z = self.local_size
        return x * y * z

    def bits(self, scope: str) -> int:
        """The logarithm of the invocations of a scope that hold tiles: those beyond a power of two repeat others."""
        count = self.invocations if scope == "workgroup" else min(self.options.subgroup, self.invocations)
        return ceil_log2(count + 1) - 1

    def rank(self, scope: str) -> Value:
        """The number of the invocation in its scope."""
        key = (scope, -1, 0)
        if key not in self.numbers:
            self.numbers[key] = self._linear() if scope == "workgroup" else self.entry.emit("lane_id")
            if scope == "subgroup":
                self.uses_lanes()
        return self.numbers[key]

    def _linear(self) -> Value:
        b, total = self.entry, None
        for dim in (2, 1, 0):
            size = self.local_size[dim]
            if size == 1:
                continue
            own = b.emit("local_id", dim=dim)
            total = own if total is None else b.emit("add", b.emit("mul", total, b.index(size)), own)
        return b.index(0) if total is None else total

    def uses_lanes(self) -> None:
        self.function.attrs["subgroups"] = True

    def place(self, axis: Axis, scope: str) -> Value:
        """Where the invocation stands along an axis."""
        key = (scope, axis.shift, axis.bits)
        if key not in self.numbers:
            b, rank = self.entry, self.rank(scope)
            if axis.bits == 0:
                self.numbers[key] = b.index(0)
                return self.numbers[key]
            if axis.shift:
                rank = b.emit("floordiv", rank, b.index(1 << axis.shift))
            self.numbers[key] = b.emit("floormod", rank, b.index(1 << axis.bits))
        return self.numbers[key]

    def positions(self, axis: Axis, scope: str) -> list[Value]:
        """The position of each slot along an axis."""
        b, place = self.builder, self.place(axis, scope)
        first = place if axis.group == 1 else b.emit("mul", place, b.index(axis.group))
        offsets = [axis.offset(slot) for slot in range(axis.held)]
        if axis.bits == 0:
            return [b.index(offset) for offset in offsets]
        return [first if offset == 0 else b.emit("add", first, b.index(offset)) for offset in offsets]

    def inside(self, axis: Axis, positions: Sequence[Value]) -> list[Value | None]:
        """Whether each slot holds an element of the tile; None where it always does."""
        b = self.builder
        size = b.index(axis.size)
        furthest = axis.round - axis.group
        return [
            None if axis.offset(slot) + furthest < axis.size else b.emit("lt", position, size)
            for slot, position in enumerate(positions)
        ]

    def owns(self, layout: Layout) -> Value | None:
        """Whether the invocation is the one of those that hold the same elements which writes; None where all are."""
        scope = layout.scope
        count = self.invocations if scope == "workgroup" else self.options.subgroup
        key = (f"{scope} owner", layout.used, 0)
        if layout.used == count - 1:
            return None
        if key not in self.numbers:
            b, rank = self.entry, self.rank(scope)
            test: Value | None = None
            for shift, bits in _runs(~layout.used & ((1 << ceil_log2(count)) - 1)):
                part = b.emit("floordiv", rank, b.index(1 << shift)) if shift else rank
                found = b.emit("eq", b.emit("floormod", part, b.index(1 << bits)), b.index(0))
                test = found if test is None else b.emit("and", test, found)
            self.numbers[key] = b.const(True, BOOL) if test is None else test
        return self.numbers[key]

    # -- numbers
    def multiple(self, value: Value, of: int) -> bool:
        """Whether an integer is known to be a multiple of a power of two, however it may wrap."""
        if not isinstance(value.type, Scalar) or value.type.dtype.is_float or value.type == BOOL:
            return False
        if value in self.counters:
            return all(self.multiple(v, of) for v in self.counters[value])
        op = value.op
        if op is None:
            return False
        if op.name == "const":
            return int(op.attrs["value"]) % of == 0
        if op.name == "mul":
            return any(self.multiple(v, of) for v in op.operands)
        if op.name == "select":
            return all(self.multiple(v, of) for v in op.operands[1:])
        if op.name in ("add", "sub", "min", "max", "cast"):
            return all(self.multiple(v, of) for v in op.operands)
        if op.name != "extent":
            return False
        array = op.operands[0].type
        assert isinstance(array, Array)  # rows begin at multiples of 16 bytes, so they are as long
        rows = self.function.attrs.get("aligned") and array.contiguous and array.space == "global"
        return bool(rows) and op.attrs["axis"] == array.rank - 1 > 0 and _LINE_BYTES % (of * _bytes(array.element)) == 0

    # -- conditions
    def all_of(self, tests: Iterable[Value | None]) -> Value | None:
        """The conjunction; None where nothing is to be tested."""
        found: Value | None = None
        for test in tests:
            if test is None or constant_of(test) is True:
                continue
            found = test if found is None else self.builder.emit("and", found, test)
        return found

    def choose(self, test: Value, types: list[Type], first: Region, second: Region) -> list[Value]:
        return self.builder.op("if", test, types=types, regions=[first, second]).results

    # -- shared memory
    def scratch(self, dtype: DType, elements: int, purpose: str = "exchange") -> Value:
        """Shared memory for an exchange: the same array for all of a type and purpose."""
        key = (dtype, purpose)
        if key not in self.scratches:
            self.scratches[key] = self._allocate(Scalar(dtype), f"{purpose}_{dtype.name}")
        array = self.scratches[key]
        self.sizes[array] = max(self.sizes[array], elements)
        return array

    def calm(self, dtype: DType, elements: int, purpose: str) -> Value:
        """As `scratch`, of two arrays that take turns: the other one where the first would have to be waited for. Small ones
        alone: memory is what decides how many workgroups run at a time.
        """
        first, loops = self.scratch(dtype, elements, purpose), any(one == SHARED for one, _ in self.assumed)
        if loops or elements * dtype.itemsize > _SMALL_BYTES or not self._conflicts(first, "w"):
            return first
        second = self.scratch(dtype, elements, f"{purpose}_again")
        return first if self._conflicts(second, "w") else second

    def stage(self, element: Element, elements: int, label: str, *, again: bool = False) -> Value:
        """Shared memory for a tile, until `release`: `again` takes what was given back even where there is enough."""
        free = self.free.setdefault(element, [])
        full = self.used_bytes() + elements * _bytes(element) > self.options.shared_bytes // 2
        if free and (again or full):
            array = max(free, key=lambda a: self.sizes[a])
            free.remove(array)
        else:
            array = self._allocate(element, label)
        self.sizes[array] = max(self.sizes[array], elements)
        return array

    def again(self, array: Value) -> Value:
        """Memory for a tile that was staged there before: the same, or some as large where another tile is there now."""
        free = self.free.get(self.element(array), [])
        if array not in free:
            return self.stage(self.element(array), self.sizes[array], array.name or "tile")
        free.remove(array)
        return array

    def room(self, element: Element) -> int:
        """Elements of the largest array that was given back."""
        return max((self.sizes[a] for a in self.free.get(element, [])), default=0)

    def release(self, array: Value) -> None:
        """Gives a tile's memory back."""
        self.free.setdefault(self.element(array), []).append(array)

    @staticmethod
    def element(array: Value) -> Element:
        assert isinstance(array.type, Array)
        return array.type.element

    def used_bytes(self) -> int:
        return sum(size * _bytes(self.element(array)) for array, size in self.sizes.items())

    def _allocate(self, element: Element, label: str) -> Value:
        made = self.entry.emit("shared", type=_shared(element, 1))
        made.name = label
        self.sizes[made] = 1
        return made

    def settle(self) -> None:
        """Gives shared arrays the sizes that they turned out to need, and puts what belongs there at the entry."""
        for array, size in self.sizes.items():
            each = max(
                1, _LINE_BYTES // _bytes(self.element(array))
            )  # whole lines: matrices begin at multiples of 16 bytes
            made = _shared(self.element(array), -(-size // each) * each)
            assert array.op is not None
            array.op.attrs["type"] = array.type = made
        self.function.body.ops[:0] = self.entry.region.ops

    def check_shared(self, loc: Loc) -> None:
        """CompileError where tiles need more shared memory than the device has."""
        if self.used_bytes() > self.options.shared_bytes:
            raise CompileError(
                f"the tiles need {self.used_bytes()} bytes of shared memory, this device has {self.options.shared_bytes}",
                loc,
                hint="use smaller tiles, such as a smaller BK",
            )

    # -- order of memory accesses between invocations
    def access(self, array: Value, kind: str, scope: str = "workgroup") -> None:
        """Notes a read ("r") or write ("w") of an array, after a barrier where one that it conflicts with is pending.

        A subgroup waits for nobody else: it orders its own accesses.
        """
        key = alias_class(array)
        if not _is_shared(array) and key not in self.written:
            return
        if self._conflicts(array, kind):
            if scope == "subgroup":
                self.builder.op("fence", scope="workgroup")
            else:
                self.barrier()
        self.pending.add((key, kind))

    def _conflicts(self, array: Value, kind: str) -> bool:
        """Whether an access has to wait for one that is pending."""
        key = alias_class(array)
        against = ("w",) if kind == "r" else ("r", "w")
        keys = (key, SHARED) if _is_shared(array) else (key,)
        return any((one, other) in found for found in (self.pending, self.assumed) for one in keys for other in against)

    def barrier(self) -> None:
        self.builder.op("barrier")
        self.pending.clear()
        self.assumed.clear()

    def assume(self, region: Region) -> set[tuple[AliasClass, str]]:
        """What the rounds of a loop may leave pending for the next one; gives what was assumed before."""
        before = set(self.assumed)
        self.assumed |= self.pending
        for op in region.walk():
            effect = OPS[op.name].effect
            if op.name.startswith("tile_"):
                self.assumed |= {(SHARED, "r"), (SHARED, "w")}
            if effect in _KINDS and op.operands and isinstance(op.operands[0].type, Array):
                self.assumed |= {(alias_class(op.operands[0]), kind) for kind in _KINDS[effect]}
        return before

    def note_plain(self, op: Op) -> None:
        """Takes in what a plain operation does to memory."""
        effect = OPS[op.name].effect
        if op.name == "barrier":
            self.pending.clear()
            self.assumed.clear()
        elif effect in _KINDS and op.operands:
            self.pending |= {(alias_class(op.operands[0]), kind) for kind in _KINDS[effect]}

    # -- helpers of code
    def convert(self, value: Value, dtype: DType) -> Value:
        return self.builder.cast(value, Scalar(dtype))

    def at(self, first: Value, offset: int) -> Value:
        return first if offset == 0 else self.builder.emit("add", first, self.builder.index(offset))

    def flat(self, positions: Sequence[Value], shape: Sequence[int]) -> Value:
        """The number of an element in C order."""
        b = self.builder
        total: Value | None = None
        for position, size in zip(positions, shape, strict=True):
            total = position if total is None else b.emit("add", b.emit("mul", total, b.index(size)), position)
        assert total is not None
        return total


def _is_shared(array: Value) -> bool:
    found = origin(array).type
    return isinstance(found, Array) and found.space == "shared"


def _shared(element: Element, size: int) -> Array:
    return Array(element, 1, space="shared", shape=(size,), contiguous=True)


def _bytes(element: Element) -> int:
    return element.dtype.itemsize * (element.size if isinstance(element, Vector) else 1)


def _runs(mask: int) -> list[tuple[int, int]]:
    """Runs of set bits: (first, how many)."""
    runs = []
    shift = 0
    while mask >> shift:
        if mask >> shift & 1:
            bits = 0
            while mask >> (shift + bits) & 1:
                bits += 1
            runs.append((shift, bits))
            shift += bits
        else:
            shift += 1
    return runs
