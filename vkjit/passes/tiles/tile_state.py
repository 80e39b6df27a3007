"""State of the tile lowering: the locations of tiles, and the context that the modules of the lowering share.

A tile is `Held` in registers, `Staged` in shared memory, or `Deferred`: a slice of global memory that the product using
it loads. Other modules add locations for products: `shared_operands.Packed`, `mma_fragments.Fragments` and `Splat`, and
`mma_matmul.KeptInMatrices`. `LoweringContext` has the builder, cached ids and conditions of the invocation, the
allocation of shared memory, and the memory accesses since the last barrier. The package's docstring defines the terms.
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
"""A pseudo alias class for all shared memory: tile operations of a loop that aren't lowered yet may access any."""
_ALIGNMENT = 16
"""The number of bytes of which the sizes of shared arrays are multiples.

In kernels with the attribute `aligned`, the rows of global arrays begin at multiples of it, too.
"""
_MAX_ALTERNATED_BYTES = 1024
"""The largest scratch array, in bytes, that `alternating_scratch` alternates."""
_KINDS = {Effect.READ: "r", Effect.WRITE: "w", Effect.READ_WRITE: "rw"}
"""The kinds of accesses, one letter each, of operations with an effect on memory."""


@dataclass(frozen=True, slots=True)
class Held:
    """A tile in registers: `values` has the invocation's value for each slot of the layout."""

    layout: Layout
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Staged:
    """A tile with two axes in shared memory: element (i, j) is at index i * pitch + j of `array`."""

    array: Value
    shape: tuple[int, ...]
    pitch: int


@dataclass(frozen=True, slots=True)
class Deferred:
    """A `tile_load` whose code is emitted at its use, by the operation that uses it.

    The memory doesn't change between the `tile_load` and its use. `operands` are the operands of the `tile_load` in the
    lowered code; they are visible at the use.
    """

    op: Op
    operands: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Options:
    """Resources and heuristics of the lowering for a device, chosen by `lower.options_for`.

    - `subgroup`: the number of invocations of a subgroup.
    - `shuffles`: True if the device has subgroup shuffles.
    - `shared_bytes`: the shared memory of a workgroup, in bytes.
    - `vector`: the largest group of contiguous elements in an invocation (`vector` of `layout.default_layout`).
    - `reads_global_memory`: True if products read their operands from global memory, on CPUs.
    - `lane_bits`: the base-2 logarithm of the number of consecutive invocations that, at least, lie along a row of a
      tile (see `layout.default_layout`); 0 on GPUs.
    - `unroll`: the maximum number of multiply-adds in an unrolled iteration of a product's loop over K.
    - `max_held`: the maximum number of elements of a tile that an invocation may hold.
    """

    subgroup: int
    shuffles: bool
    shared_bytes: int
    vector: int
    reads_global_memory: bool
    lane_bits: int
    unroll: int
    max_held: int
    ordered_keys: bool = True
    """True if f32 minima and maxima are computed on ordered integer keys: see `ordered_keys`."""
    reciprocals: bool = True
    """True if divisions by a value that elements share become multiplications by its reciprocal: see `reciprocals`."""


@dataclass(slots=True)
class LoweringContext:
    """The context that all modules of the lowering share.

    - `builder` appends at the current position, `entry` to the code at the start of the kernel.
    - `cached_values` caches ids and conditions of the invocation, which are computed at the start of the kernel. A key
      is a kind of value, such as a scope, and two parameters.
    - `scratch_arrays` are the shared arrays for exchanges between invocations, by element type and purpose. `sizes` has
      the number of elements of each shared array. `free` are the released arrays, by element type.
    - `pending` are the accesses since the last barrier: an alias class, and "r" or "w". `assumed` are those that the
      previous iterations of enclosing loops may leave pending.
    - `written` are the alias classes that the kernel writes.
    - `notes` are the remarks for `kernel.attrs["tiles"]`.
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
    """The start and step of a loop by its induction variable, for the loops lowered so far."""

    def __post_init__(self) -> None:
        self.builder = Builder(self.function.body)
        self.entry = Builder(Region(), self.function.loc)

    # -- invocations
    @property
    def invocations(self) -> int:
        x, y, z = self.local_size
        return x * y * z

    def bits(self, scope: str) -> int:
        """Return the base-2 logarithm of the number of invocations that tiles are distributed over.

        This is the number of invocations in the scope, rounded down to a power of two. The remaining invocations hold
        replicas.
        """
        count = self.invocations if scope == "workgroup" else min(self.options.subgroup, self.invocations)
        return ceil_log2(count + 1) - 1  # the logarithm of `count`, rounded down

    def invocation_number(self, scope: str) -> Value:
        """Return the invocation's number in its scope ("workgroup" or "subgroup")."""
        key = (scope, -1, 0)  # coordinates use the scope as key, too, but with a shift of at least 0
        if key not in self.cached_values:
            self.cached_values[key] = self._linear() if scope == "workgroup" else self.entry.emit("lane_id")
            if scope == "subgroup":
                self.record_subgroup_use()
        return self.cached_values[key]

    def _linear(self) -> Value:
        """Emit the invocation's number in the workgroup: its local id as one number, dimension 0 fastest."""
        b, total = self.entry, None
        for dim in (2, 1, 0):
            size = self.local_size[dim]
            if size == 1:
                continue
            own = b.emit("local_id", dim=dim)
            total = own if total is None else b.emit("add", b.emit("mul", total, b.index(size)), own)
        return b.index(0) if total is None else total

    def record_subgroup_use(self) -> None:
        """Record that the kernel uses subgroup operations."""
        self.function.attrs["subgroups"] = self.function.attrs["full_subgroups"] = True

    def coordinate(self, axis: Axis, scope: str) -> Value:
        """Return the invocation's coordinate along an axis (see the formula in `layout`)."""
        key = (scope, axis.shift, axis.bits)
        if key not in self.cached_values:
            b, rank = self.entry, self.invocation_number(scope)
            if axis.bits == 0:
                self.cached_values[key] = b.index(0)
                return self.cached_values[key]
            if axis.shift:
                rank = b.emit("floordiv", rank, b.index(1 << axis.shift))
            self.cached_values[key] = b.emit("floormod", rank, b.index(1 << axis.bits))
        return self.cached_values[key]

    def element_indices(self, axis: Axis, scope: str) -> list[Value]:
        """Return for each slot along an axis the index of its element."""
        b, own_coordinate = self.builder, self.coordinate(axis, scope)
        first = own_coordinate if axis.group == 1 else b.emit("mul", own_coordinate, b.index(axis.group))
        offsets = [axis.offset(slot) for slot in range(axis.slots_per_invocation)]
        if axis.bits == 0:
            return [b.index(offset) for offset in offsets]
        return [first if offset == 0 else b.emit("add", first, b.index(offset)) for offset in offsets]

    def in_bounds(self, axis: Axis, positions: Sequence[Value]) -> list[Value | None]:
        """Return for each slot along an axis the condition that it holds an element; None where it always does.

        `positions` are the indices from `element_indices`.
        """
        b = self.builder
        size = b.index(axis.size)
        furthest = axis.cycle - axis.group  # the offset of the last invocation's group in a cycle
        return [
            None if axis.offset(slot) + furthest < axis.size else b.emit("lt", position, size)
            for slot, position in enumerate(positions)
        ]

    def is_owner(self, layout: Layout) -> Value | None:
        """Return the condition that the invocation is the owner (see `layout`) of its elements, which writes them for
        all invocations that hold them; None if nothing is replicated.
        """
        scope = layout.scope
        count = self.invocations if scope == "workgroup" else self.options.subgroup
        key = (f"{scope} owner", layout.used_mask, 0)
        if layout.used_mask == count - 1:  # the layout uses all bits
            return None
        if key not in self.cached_values:
            b, rank = self.entry, self.invocation_number(scope)
            test: Value | None = None
            # The owner is the invocation in whose number all bits that no axis uses are 0.
            for shift, bits in _runs(~layout.used_mask & ((1 << ceil_log2(count)) - 1)):
                part = b.emit("floordiv", rank, b.index(1 << shift)) if shift else rank
                is_zero = b.emit("eq", b.emit("floormod", part, b.index(1 << bits)), b.index(0))
                test = is_zero if test is None else b.emit("and", test, is_zero)
            self.cached_values[key] = b.const(True, BOOL) if test is None else test
        return self.cached_values[key]

    # -- divisibility
    def is_multiple(self, value: Value, of: int) -> bool:
        """True if an integer is known to be a multiple of `of`, a power of two.

        Sums and products that wrap around remain multiples, as the modulus is a power of two, too.
        """
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
        assert isinstance(array, Array)
        # Rows of such arrays begin at multiples of 16 bytes, so the length of a row is a multiple, too.
        aligned = self.function.attrs.get("aligned") and array.contiguous and array.space == "global"
        is_row_length = op.attrs["axis"] == array.rank - 1 > 0  # the last of several axes
        return bool(aligned) and is_row_length and _ALIGNMENT % (of * _bytes(array.element)) == 0

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
        """Emit an `if` with the regions `first` and `second`, and return its results."""
        return self.builder.op("if", test, types=types, regions=[first, second]).results

    # -- shared memory
    def scratch(self, dtype: DType, elements: int, purpose: str = "exchange") -> Value:
        """Return the shared array for exchanges of this type and purpose, with at least `elements` elements.

        Equal types and purposes share one array, which grows to the largest request.
        """
        key = (dtype, purpose)
        if key not in self.scratch_arrays:
            self.scratch_arrays[key] = self._allocate(Scalar(dtype), f"{purpose}_{dtype.name}")
        array = self.scratch_arrays[key]
        self.sizes[array] = max(self.sizes[array], elements)
        return array

    def alternating_scratch(self, dtype: DType, elements: int, purpose: str) -> Value:
        """Return a scratch array to be written, if possible one that needs no barrier before the write.

        If the array of `scratch` has pending accesses, return a second array for the same purpose. Repeated calls thus
        alternate between two arrays. This is only done outside of loops, where the pending accesses are known, and for
        small arrays, as shared memory limits how many workgroups run at a time.
        """
        first = self.scratch(dtype, elements, purpose)
        in_loop = any(memory == SHARED for memory, _ in self.assumed)
        if in_loop or elements * dtype.itemsize > _MAX_ALTERNATED_BYTES or not self._conflicts(first, "w"):
            return first
        second = self.scratch(dtype, elements, f"{purpose}_again")
        return first if self._conflicts(second, "w") else second

    def stage(self, element: Element, elements: int, label: str, *, reuse: bool = False) -> Value:
        """Return a shared array for a tile, to be given back by `release`.

        A released array is reused if `reuse` is True or if more than half of the shared memory would be in use
        otherwise.
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
        """Return memory for a tile that was staged in `array` before its release: the same array if it is free, else
        another one as large.
        """
        free = self.free.get(self.element(array), [])
        if array not in free:
            return self.stage(self.element(array), self.sizes[array], array.name or "tile")
        free.remove(array)
        return array

    def largest_released(self, element: Element) -> int:
        """Return the number of elements of the largest released array of this element type; 0 if there is none."""
        return max((self.sizes[a] for a in self.free.get(element, [])), default=0)

    def release(self, array: Value) -> None:
        """Release a tile's shared memory for reuse."""
        self.free.setdefault(self.element(array), []).append(array)

    @staticmethod
    def element(array: Value) -> Element:
        assert isinstance(array.type, Array)
        return array.type.element

    def used_bytes(self) -> int:
        """Return the size of all shared arrays, released ones included."""
        return sum(size * _bytes(self.element(array)) for array, size in self.sizes.items())

    def _allocate(self, element: Element, label: str) -> Value:
        """Emit a new shared array; `finalize` sets its size."""
        array = self.entry.emit("shared", type=_shared(element, 1))
        array.name = label
        self.sizes[array] = 1
        return array

    def finalize(self) -> None:
        """Set the final sizes of the shared arrays, and insert the code of `entry` at the start of the kernel."""
        for array, size in self.sizes.items():
            # Round up to 16 bytes: matrices begin at multiples of that.
            multiple = max(1, _ALIGNMENT // _bytes(self.element(array)))
            sized = _shared(self.element(array), -(-size // multiple) * multiple)
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
        """Record a read ("r") or write ("w") of an array. If it conflicts with a pending access, emit a barrier first.

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
        return any(
            (memory, access_kind) in accesses
            for accesses in (self.pending, self.assumed)
            for memory in keys
            for access_kind in against
        )

    def barrier(self) -> None:
        """Emit a barrier: no access is pending after it."""
        self.builder.op("barrier")
        self.pending.clear()
        self.assumed.clear()

    def assume(self, region: Region) -> set[tuple[AliasClass, str]]:
        """Add to `assumed` the accesses that an iteration of a loop may leave pending for the next iteration, and those
        that are pending before the loop. Return the old `assumed`.

        This is called before the loop's body, `region`, is lowered.
        """
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
        """Record the memory accesses of an operation that isn't a tile operation.

        After a barrier, no access is pending.
        """
        effect = OPS[op.name].effect
        if op.name == "barrier":
            self.pending.clear()
            self.assumed.clear()
        elif effect in _KINDS and op.operands:
            self.pending |= {(alias_class(op.operands[0]), kind) for kind in _KINDS[effect]}

    # -- code helpers
    def convert(self, value: Value, dtype: DType) -> Value:
        """Cast a scalar to a dtype."""
        return self.builder.cast(value, Scalar(dtype))

    def at(self, first: Value, offset: int) -> Value:
        """Return `first + offset`."""
        return first if offset == 0 else self.builder.emit("add", first, self.builder.index(offset))

    def flat(self, positions: Sequence[Value], shape: Sequence[int]) -> Value:
        """Return the flat index in C order of the element with the indices `positions`."""
        b = self.builder
        total: Value | None = None
        for position, size in zip(positions, shape, strict=True):
            total = position if total is None else b.emit("add", b.emit("mul", total, b.index(size)), position)
        assert total is not None
        return total


def _is_shared(array: Value) -> bool:
    """True if an array is, or is a view of, shared memory."""
    root_type = origin(array).type
    return isinstance(root_type, Array) and root_type.space == "shared"


def _shared(element: Element, size: int) -> Array:
    """Return the type of a shared array with `size` elements."""
    return Array(element, 1, space="shared", shape=(size,), contiguous=True)


def _bytes(element: Element) -> int:
    """Return the size of an element in bytes."""
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
