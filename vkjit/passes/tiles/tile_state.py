"""State of the tile lowering: the locations of tiles, and the context that the modules of the lowering share.

A tile is `Held` in registers, `Staged` in shared memory, or `Deferred`: a slice that is loaded by the operation that
uses it. `LoweringContext` has the builder, cached ids and conditions of the invocation, the allocation of shared
memory, and the memory accesses since the last barrier.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from vkjit.dtypes import DType
from vkjit.errors import CompileError, Loc
from vkjit.ir.builder import Builder
from vkjit.ir.core import Function, Op, Region, Value
from vkjit.ir.ops import OPS, Effect
from vkjit.ir.rewrite import constant_of
from vkjit.ir.types import BOOL, Array, Scalar, Type, Vector

from ..analysis.alias import AliasClass, alias_class, origin
from .layout import Axis, Layout, ceil_log2

__all__ = ["Deferred", "Held", "LoweringContext", "Options", "Staged"]


Element = Scalar | Vector
SHARED = "shared"
"""An alias class for any shared memory that a loop may access."""
_ALIGNMENT = 16
"""Alignment in bytes of the sizes of shared arrays, and of the rows of global arrays in kernels with the attribute
`aligned`.
"""
_MAX_ALTERNATED_BYTES = 1024
"""The largest scratch array, in bytes, that `alternating_scratch` alternates."""
_KINDS = {Effect.READ: "r", Effect.WRITE: "w", Effect.READ_WRITE: "rw"}


@dataclass(frozen=True, slots=True)
class Held:
    """A tile in registers: the invocation's `values`, by slot of the layout."""

    layout: Layout
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Staged:
    """A tile with two axes in shared memory: element (i, j) is at i * pitch + j of `array`."""

    array: Value
    shape: tuple[int, ...]
    pitch: int


@dataclass(frozen=True, slots=True)
class Deferred:
    """A `tile_load` that is emitted at its use: its operands are available there, and the memory is unchanged."""

    op: Op
    operands: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Options:
    """Resources and heuristics of the lowering, by device: see `options_for`.

    `subgroup`: invocations of a subgroup. `shuffles`: the device has subgroup shuffles. `shared_bytes`: shared memory
    of a workgroup. `vector`: elements that an invocation holds contiguously. `direct`: products read operands from
    global memory (CPUs). `lanes`: `lane_bits` of `default_layout`. `unroll`: multiply-adds in the body of a product's
    loop. `max_held`: elements of a tile that an invocation may hold.
    """

    subgroup: int
    shuffles: bool
    shared_bytes: int
    vector: int
    direct: bool
    lanes: int
    unroll: int
    max_held: int
    keys: bool = True
    """True if f32 minima and maxima are computed on ordered integer keys: see `ordered_keys`."""
    reciprocals: bool = True
    """True if divisions by a value that elements share become multiplications by its reciprocal: see `reciprocals`."""


@dataclass(slots=True)
class LoweringContext:
    """The context that all modules of the lowering share.

    `builder` appends at the current position, `entry` at the start of the kernel. `cached_values` caches ids and
    conditions of the invocation. `scratch_arrays` are the arrays for exchanges, `sizes` the elements of all shared
    arrays, `free` those released for reuse. `pending` are the accesses since the last barrier, `assumed` those that the
    previous iterations of enclosing loops may leave pending; `written` are the alias classes that the kernel writes.
    `notes` explain the choices that were made.
    """

    function: Function
    options: Options
    local_size: tuple[int, int, int]
    builder: Builder = field(init=False)
    entry: Builder = field(init=False)
    cached_values: dict[tuple[str, int, int], Value] = field(default_factory=dict)
    scratch_arrays: dict[tuple[DType, str], Value] = field(default_factory=dict)
    sizes: dict[Value, int] = field(default_factory=dict)
    free: dict[Element, list[Value]] = field(default_factory=dict)
    pending: set[tuple[AliasClass, str]] = field(default_factory=set)
    assumed: set[tuple[AliasClass, str]] = field(default_factory=set)
    written: set[AliasClass] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    induction_variables: dict[Value, tuple[Value, Value]] = field(default_factory=dict)
    """Induction variable to the lower bound and step of its loop, for the loops that are being lowered."""

    def __post_init__(self) -> None:
        self.builder = Builder(self.function.body)
        self.entry = Builder(Region(), self.function.loc)

    # -- invocations
    @property
    def invocations(self) -> int:
        x, y, z = self.local_size
        return x * y * z

    def bits(self, scope: str) -> int:
        """Return the logarithm of the number of invocations that tiles are distributed over: the largest power of two
        in the scope. Further invocations hold replicas.
        """
        count = self.invocations if scope == "workgroup" else min(self.options.subgroup, self.invocations)
        return ceil_log2(count + 1) - 1

    def rank(self, scope: str) -> Value:
        """Return the invocation's number in its scope."""
        key = (scope, -1, 0)
        if key not in self.cached_values:
            self.cached_values[key] = self._linear() if scope == "workgroup" else self.entry.emit("lane_id")
            if scope == "subgroup":
                self.uses_lanes()
        return self.cached_values[key]

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

    def coordinate(self, axis: Axis, scope: str) -> Value:
        """Return the invocation's coordinate along an axis."""
        key = (scope, axis.shift, axis.bits)
        if key not in self.cached_values:
            b, rank = self.entry, self.rank(scope)
            if axis.bits == 0:
                self.cached_values[key] = b.index(0)
                return self.cached_values[key]
            if axis.shift:
                rank = b.emit("floordiv", rank, b.index(1 << axis.shift))
            self.cached_values[key] = b.emit("floormod", rank, b.index(1 << axis.bits))
        return self.cached_values[key]

    def element_indices(self, axis: Axis, scope: str) -> list[Value]:
        """Return the index along an axis of the element in each slot."""
        b, place = self.builder, self.coordinate(axis, scope)
        first = place if axis.group == 1 else b.emit("mul", place, b.index(axis.group))
        offsets = [axis.offset(slot) for slot in range(axis.slots_per_invocation)]
        if axis.bits == 0:
            return [b.index(offset) for offset in offsets]
        return [first if offset == 0 else b.emit("add", first, b.index(offset)) for offset in offsets]

    def in_bounds(self, axis: Axis, positions: Sequence[Value]) -> list[Value | None]:
        """Return for each slot along an axis the condition that it holds an element; None where it always does."""
        b = self.builder
        size = b.index(axis.size)
        furthest = axis.cycle - axis.group
        return [
            None if axis.offset(slot) + furthest < axis.size else b.emit("lt", position, size)
            for slot, position in enumerate(positions)
        ]

    def is_owner(self, layout: Layout) -> Value | None:
        """Return the condition that the invocation is the owner, which writes, among those that hold the same elements;
        None if nothing is replicated.
        """
        scope = layout.scope
        count = self.invocations if scope == "workgroup" else self.options.subgroup
        key = (f"{scope} owner", layout.used, 0)
        if layout.used == count - 1:
            return None
        if key not in self.cached_values:
            b, rank = self.entry, self.rank(scope)
            test: Value | None = None
            for shift, bits in _runs(~layout.used & ((1 << ceil_log2(count)) - 1)):
                part = b.emit("floordiv", rank, b.index(1 << shift)) if shift else rank
                is_zero = b.emit("eq", b.emit("floormod", part, b.index(1 << bits)), b.index(0))
                test = is_zero if test is None else b.emit("and", test, is_zero)
            self.cached_values[key] = b.const(True, BOOL) if test is None else test
        return self.cached_values[key]

    # -- divisibility
    def is_multiple(self, value: Value, of: int) -> bool:
        """True if an integer is known to be a multiple of `of`, a power of two, even if computing it wraps."""
        if not isinstance(value.type, Scalar) or value.type.dtype.is_float or value.type == BOOL:
            return False
        if value in self.induction_variables:
            return all(self.is_multiple(v, of) for v in self.induction_variables[value])
        op = value.op
        if op is None:
            return False
        if op.name == "const":
            return int(op.attrs["value"]) % of == 0
        if op.name == "mul":
            return any(self.is_multiple(v, of) for v in op.operands)
        if op.name == "select":
            return all(self.is_multiple(v, of) for v in op.operands[1:])
        if op.name in ("add", "sub", "min", "max", "cast"):
            return all(self.is_multiple(v, of) for v in op.operands)
        if op.name != "extent":
            return False
        array = op.operands[0].type
        assert isinstance(array, Array)  # rows begin at multiples of 16 bytes, so the row length is one, too
        rows = self.function.attrs.get("aligned") and array.contiguous and array.space == "global"
        return bool(rows) and op.attrs["axis"] == array.rank - 1 > 0 and _ALIGNMENT % (of * _bytes(array.element)) == 0

    # -- conditions
    def all_of(self, tests: Iterable[Value | None]) -> Value | None:
        """Return the conjunction of conditions, ignoring None and True; None if none remains."""
        result: Value | None = None
        for test in tests:
            if test is None or constant_of(test) is True:
                continue
            result = test if result is None else self.builder.emit("and", result, test)
        return result

    def choose(self, test: Value, types: list[Type], first: Region, second: Region) -> list[Value]:
        """Emit an `if` with results and return these."""
        return self.builder.op("if", test, types=types, regions=[first, second]).results

    # -- shared memory
    def scratch(self, dtype: DType, elements: int, purpose: str = "exchange") -> Value:
        """Return the shared array for exchanges of a type and purpose: always the same one, which grows to the largest
        request.
        """
        key = (dtype, purpose)
        if key not in self.scratch_arrays:
            self.scratch_arrays[key] = self._allocate(Scalar(dtype), f"{purpose}_{dtype.name}")
        array = self.scratch_arrays[key]
        self.sizes[array] = max(self.sizes[array], elements)
        return array

    def alternating_scratch(self, dtype: DType, elements: int, purpose: str) -> Value:
        """Return a scratch array that needs no barrier before a write, if possible: a second array for the same purpose
        is used alternately. Only for small arrays, since shared memory limits how many workgroups run at a time.
        """
        first, loops = self.scratch(dtype, elements, purpose), any(one == SHARED for one, _ in self.assumed)
        if loops or elements * dtype.itemsize > _MAX_ALTERNATED_BYTES or not self._conflicts(first, "w"):
            return first
        second = self.scratch(dtype, elements, f"{purpose}_again")
        return first if self._conflicts(second, "w") else second

    def stage(self, element: Element, elements: int, label: str, *, reuse: bool = False) -> Value:
        """Allocate shared memory for a tile, to be returned by `release`.

        Released arrays are reused with `reacquire`, or when more than half of the shared memory would be in use.
        """
        free = self.free.setdefault(element, [])
        full = self.used_bytes() + elements * _bytes(element) > self.options.shared_bytes // 2
        if free and (reuse or full):
            array = max(free, key=lambda a: self.sizes[a])
            free.remove(array)
        else:
            array = self._allocate(element, label)
        self.sizes[array] = max(self.sizes[array], elements)
        return array

    def reacquire(self, array: Value) -> Value:
        """Reacquire memory for a tile that was staged there before: the same array, or one as large if that one is in
        use.
        """
        free = self.free.get(self.element(array), [])
        if array not in free:
            return self.stage(self.element(array), self.sizes[array], array.name or "tile")
        free.remove(array)
        return array

    def largest_released(self, element: Element) -> int:
        """Return the number of elements of the largest released array."""
        return max((self.sizes[a] for a in self.free.get(element, [])), default=0)

    def release(self, array: Value) -> None:
        """Release a tile's shared memory for reuse."""
        self.free.setdefault(self.element(array), []).append(array)

    @staticmethod
    def element(array: Value) -> Element:
        assert isinstance(array.type, Array)
        return array.type.element

    def used_bytes(self) -> int:
        return sum(size * _bytes(self.element(array)) for array, size in self.sizes.items())

    def _allocate(self, element: Element, label: str) -> Value:
        array = self.entry.emit("shared", type=_shared(element, 1))
        array.name = label
        self.sizes[array] = 1
        return array

    def finalize(self) -> None:
        """Set the final sizes of the shared arrays, and insert the entry code at the start of the kernel."""
        for array, size in self.sizes.items():
            each = max(
                1, _ALIGNMENT // _bytes(self.element(array))
            )  # round up to 16 bytes, at multiples of which matrices begin
            sized = _shared(self.element(array), -(-size // each) * each)
            assert array.op is not None
            array.op.attrs["type"] = array.type = sized
        self.function.body.ops[:0] = self.entry.region.ops

    def check_shared(self, loc: Loc) -> None:
        """Raise CompileError if the tiles need more shared memory than the device has."""
        if self.used_bytes() > self.options.shared_bytes:
            raise CompileError(
                f"the tiles need {self.used_bytes()} bytes of shared memory, this device has {self.options.shared_bytes}",
                loc,
                hint="use smaller tiles, such as a smaller BK",
            )

    # -- barriers
    def access(self, array: Value, kind: str, scope: str = "workgroup") -> None:
        """Record a read ("r") or write ("w") of an array, after a barrier if it conflicts with a pending access.

        For a subgroup's tiles a fence suffices, as a subgroup orders its own accesses.
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
        """True if an access conflicts with one that is pending or assumed."""
        key = alias_class(array)
        against = ("w",) if kind == "r" else ("r", "w")
        keys = (key, SHARED) if _is_shared(array) else (key,)
        return any((one, other) in found for found in (self.pending, self.assumed) for one in keys for other in against)

    def barrier(self) -> None:
        """Emit a barrier: no access is pending after it."""
        self.builder.op("barrier")
        self.pending.clear()
        self.assumed.clear()

    def assume(self, region: Region) -> set[tuple[AliasClass, str]]:
        """Add to `assumed` the accesses that a loop's iteration may leave pending for the next; return the old `assumed`."""
        before = set(self.assumed)
        self.assumed |= self.pending
        for op in region.walk():
            effect = OPS[op.name].effect
            if op.name.startswith("tile_"):
                self.assumed |= {(SHARED, "r"), (SHARED, "w")}
            if effect in _KINDS and op.operands and isinstance(op.operands[0].type, Array):
                self.assumed |= {(alias_class(op.operands[0]), kind) for kind in _KINDS[effect]}
        return before

    def record_accesses(self, op: Op) -> None:
        """Record the memory accesses of an operation that isn't on tiles."""
        effect = OPS[op.name].effect
        if op.name == "barrier":
            self.pending.clear()
            self.assumed.clear()
        elif effect in _KINDS and op.operands:
            self.pending |= {(alias_class(op.operands[0]), kind) for kind in _KINDS[effect]}

    # -- code helpers
    def convert(self, value: Value, dtype: DType) -> Value:
        return self.builder.cast(value, Scalar(dtype))

    def at(self, first: Value, offset: int) -> Value:
        """Return `first + offset`."""
        return first if offset == 0 else self.builder.emit("add", first, self.builder.index(offset))

    def flat(self, positions: Sequence[Value], shape: Sequence[int]) -> Value:
        """Return the index of an element in C order."""
        b = self.builder
        total: Value | None = None
        for position, size in zip(positions, shape, strict=True):
            total = position if total is None else b.emit("add", b.emit("mul", total, b.index(size)), position)
        assert total is not None
        return total


def _is_shared(array: Value) -> bool:
    root_type = origin(array).type
    return isinstance(root_type, Array) and root_type.space == "shared"


def _shared(element: Element, size: int) -> Array:
    return Array(element, 1, space="shared", shape=(size,), contiguous=True)


def _bytes(element: Element) -> int:
    return element.dtype.itemsize * (element.size if isinstance(element, Vector) else 1)


def _runs(mask: int) -> list[tuple[int, int]]:
    """Return the runs of set bits of a mask, each as (first bit, number of bits)."""
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
