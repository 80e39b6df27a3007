"""Generation of random programs on tiles, with the operations of `vkjit.ir.tiles`. `generate.generate` calls it.

Covers masked loads, elementwise regions, reductions, scans, matrix products, transposes, reshapes, loops and branches
that carry tiles, stores and scatters.

In each program, all tiles have the same `scope`: they belong either to workgroups or to subgroups. A unit is one
workgroup or one subgroup, depending on this scope. Results must not depend on the order of operations. So floats are
small integers, clamped after each operation that enlarges them, and all sums are exact; integers wrap. An array to
which tiles are stored has a part for each unit, which only this unit writes. Other arrays are only changed by atomic
integer additions.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.ir.builder import Builder
from vkjit.ir.core import Function, Module, Region, Value
from vkjit.ir.tiles import broadcast_shape, reduced_shape
from vkjit.ir.types import BOOL, INDEX, Array, Scalar, Tile

from . import layouts
from .assumptions import with_random_attributes
from .program import Layout, Program, Triple

__all__ = ["generate_tiles"]

_LOCAL: list[Triple] = [
    (4, 1, 1), (8, 1, 1), (16, 1, 1), (8, 4, 1), (24, 1, 1), (32, 1, 1), (64, 1, 1), (6, 2, 1),
]  # fmt: skip
_LOCAL_SUBGROUPS: list[Triple] = [(32, 1, 1), (64, 1, 1)]
_GROUPS: list[Triple] = [(1, 1, 1), (2, 1, 1), (3, 1, 1), (2, 2, 1)]
_SIZES = (1, 2, 3, 4, 5, 8, 8, 11, 16, 16, 32)
_DTYPES = (dtypes.f32, dtypes.i32, dtypes.f64, dtypes.f16, dtypes.i8, dtypes.u32, dtypes.i64, dtypes.u16, dtypes.bf16)
_BOUND, _FACTOR_BOUND = 16, 4
"""Maximum magnitude of the elements of tiles, in general (`_BOUND`) and for operands of matrix products."""
_MAX_ELEMENTS = 1024
"""Maximum number of elements of a tile."""


def generate_tiles(seed: int, statements: int = 0) -> Program:
    """Return the program of a seed. `statements` is the number of statements; for 0, the seed decides it."""
    random = Random(seed)
    scope = "subgroup" if random.random() < 0.2 else "workgroup"
    local = random.choice(_LOCAL_SUBGROUPS if scope == "subgroup" else _LOCAL)
    build = _Build(random, scope, local, random.choice(_GROUPS), statements or random.randint(3, 14))
    return build.program(seed)


class _Build:
    """Builds one program.

    - `scope` is "workgroup" or "subgroup", `local` the workgroup size, `groups` the number of workgroups along each
      axis, and `statements` the number of statements.
    - `region` is the kernel's body, `b` the IR builder, and `layouts` are the layouts of the parameters.
    - `tiles` are the tiles that later statements may use, `stored` those that have been stored to an array.
    - `unit_index` is the linear index of the unit in the grid.
    - `max_elements` is the maximum number of elements of a tile, `palette` the dtypes of loaded tiles and constants.

    Most methods without a result emit one kind of statement: they choose operands from `tiles`, do nothing if none
    fits, and add their result to `tiles`. Their docstrings name what they emit.
    """

    def __init__(self, random: Random, scope: str, local: Triple, groups: Triple, statements: int) -> None:
        self.random, self.scope = random, scope
        self.local, self.groups = local, groups
        self.statements = statements
        self.region = Region([])
        self.b = Builder(self.region)
        self.layouts: list[Layout] = []
        self.tiles: list[Value] = []
        self.stored: set[Value] = set()
        self.unit_index: Value | None = None
        # small workgroups get small tiles: at most 128 elements per invocation
        self.max_elements = 64 if scope == "subgroup" else min(_MAX_ELEMENTS, 128 * local[0] * local[1])
        self.palette = random.sample(_DTYPES, 3) + [random.choice([dtypes.f32, dtypes.i32])]

    def program(self, seed: int) -> Program:
        """Build the program. `seed` generates its arguments."""
        self.unit_index = self.unit()
        for _ in range(2):
            self.load()
        for _ in range(self.statements):
            self.statement(depth=0)
        for tile in self.tiles:
            if tile not in self.stored and (tile is self.tiles[-1] or self.random.random() < 0.4):
                self.store(tile)
        self.b.op("return")
        kernel = Function("tiles", self.region, attrs={"local_size": self.local})
        any_subgroup_size = self.scope == "workgroup"
        return with_random_attributes(
            Program(Module(kernel), self.groups, tuple(self.layouts), seed, any_subgroup_size=any_subgroup_size)
        )

    # -- units, parameters, shapes, tiles and constants

    def unit(self) -> Value:
        """Emit the linear index of the workgroup, or of the subgroup, in the grid."""
        b = self.b
        x, y, _ = self.groups
        number = b.emit("group_id", dim=0)
        if y > 1:
            number = b.emit("add", b.emit("mul", b.emit("group_id", dim=1), b.index(x)), number)
        if self.scope == "subgroup":
            number = b.emit("add", b.emit("mul", number, b.emit("num_subgroups")), b.emit("subgroup_id"))
        return number

    @property
    def units(self) -> int:
        """The number of units in the grid; for subgroups an upper bound, since a subgroup has at least 4 lanes."""
        count = self.groups[0] * self.groups[1]
        return count if self.scope == "workgroup" else count * self.local[0] // 4

    def param(self, array_type: Array, layout: Layout) -> Value:
        """Add an array parameter."""
        value = Value(array_type, self.region, len(self.region.args), f"x{len(self.region.args)}")
        self.region.args.append(value)
        self.layouts.append(layout)
        return value

    def shape(self, rank: int = 0) -> tuple[int, ...]:
        """Return a random tile shape of this rank (0: a random rank)."""
        rank = rank or self.random.choice([1, 2, 2, 2, 3])
        while True:
            shape = tuple(self.random.choice(_SIZES) for _ in range(rank))
            size = 1
            for extent in shape:
                size *= extent
            if size <= self.max_elements:
                return shape

    def tile_type(self, value: Value) -> Tile:
        """Return the type of a tile."""
        assert isinstance(value.type, Tile)
        return value.type

    def pick(self, test: Callable[[Tile], bool] = lambda _: True) -> Value | None:
        """Return a random tile whose type passes the test; None if there is none."""
        candidates = [t for t in self.tiles if test(self.tile_type(t))]
        return self.random.choice(candidates) if candidates else None

    def keep(self, value: Value) -> Value:
        """Make a tile available to later statements."""
        self.tiles.append(value)
        return value

    def constant(self, dtype: DType, low: int = -3, high: int = 3) -> Value:
        """Return a random integral scalar from `low` (at least 0 for unsigned types) to `high`, both inclusive."""
        if dtype.kind == "bool":
            return self.b.const(self.random.random() < 0.5, dtype)
        low = max(low, 0) if not dtype.is_signed and not dtype.is_float else low
        number = self.random.randint(low, high)
        return self.b.const(float(number) if dtype.is_float else number, dtype)

    # -- statements

    def statement(self, depth: int) -> None:
        """Emit a random statement. `depth` is the number of enclosing loops and branches."""
        choices = [
            self.load, self.mapped, self.mapped, self.mapped, self.full, self.reduced, self.reduced, self.argument,
            self.scanned, self.transposed, self.reshaped, self.product, self.product, self.element, self.gathered,
            self.scattered, self.new_store,
        ]  # fmt: skip
        if depth < 2:
            choices += [lambda: self.loop(depth), lambda: self.branch(depth)]
        self.random.choice(choices)()

    def load(self) -> None:
        """A load of a tile from a new array, which may be a little larger or smaller than the tile."""
        dtype, shape = self.random.choice(self.palette), self.shape()
        self.keep(self.masked_load(dtype, shape))

    def masked_load(self, dtype: DType, shape: tuple[int, ...]) -> Value:
        """Emit a masked load of a tile from a new array; elements beyond the array's end get a constant.

        The axes of the array may be in another order than those of the tile. The array may also have one more axis,
        along which the index is constant.
        """
        random, b = self.random, self.b
        order = list(range(len(shape)))
        if random.random() < 0.3:
            random.shuffle(order)
        axes: list[int | None] = [*order]  # the tile's axis for each axis of the array
        if random.random() < 0.3:  # an axis that the tile doesn't have
            axes.insert(random.randint(0, len(axes)), None)
        size_differences = [0, 0, 1, 3, -1, -2]
        extents = [
            random.randint(1, 4) if tile_axis is None else max(0, shape[tile_axis] + random.choice(size_differences))
            for tile_axis in axes
        ]
        layout = layouts.strided([max(e, 1) for e in extents], random, written=False, fill="small")
        if random.random() < 0.5 or 0 in extents:
            layout = layouts.contiguous(extents, random, fill="small")
        array = self.param(Array(Scalar(dtype), len(axes), access="in", restrict=random.random() < 0.7), layout)
        starts, lengths = [], [b.index(0)] * len(shape)
        for array_axis, axis in enumerate(axes):
            if axis is None:
                starts.append(b.index(random.randrange(extents[array_axis])))
                continue
            # the tile starts at 0 or at the unit's index; the number of elements that the array has from there on, at
            # most the tile's extent, is the length that is loaded
            start = b.index(0) if random.random() < 0.6 or self.unit_index is None else self.unit_index
            size = b.emit("extent", array, axis=array_axis) if random.random() < 0.8 else b.index(extents[array_axis])
            starts.append(start)
            stop = b.emit("min", b.emit("add", start, b.index(shape[axis])), size)
            lengths[axis] = b.emit("max", b.emit("sub", stop, start), b.index(0))
        tile_type = Tile(dtype, shape, self.scope)
        return b.emit("tile_load", array, *starts, *lengths, self.constant(dtype), axes=tuple(axes), type=tile_type)

    def mapped(self) -> None:
        """An elementwise region over one to three broadcast tiles."""
        first_operand = self.pick()
        if first_operand is None:
            return
        operands = [first_operand]
        for _ in range(self.random.randint(0, 2)):
            other = self.pick(
                lambda t: broadcast_shape([t.shape, *(self.tile_type(o).shape for o in operands)]) is not None
            )
            if other is not None:
                operands.append(other)
        shape = broadcast_shape([self.tile_type(o).shape for o in operands]) or ()
        if self._size(shape) > self.max_elements:
            return
        self.keep(self.map(operands, shape, self.expression))

    @staticmethod
    def _size(shape: tuple[int, ...]) -> int:
        size = 1
        for extent in shape:
            size *= extent
        return size

    def map(
        self, operands: list[Value], shape: tuple[int, ...], body: Callable[[list[Value], list[Value]], Value]
    ) -> Value:
        """Emit a `tile_map` whose result has this shape; the operands are broadcast to the shape.

        `body(indices, elements)` emits the region that computes one element of the result, and returns this element.
        `indices` are the indices of the element in the result, `elements` the elements of the operands at these
        indices.
        """
        operand_types = [self.tile_type(o) for o in operands]
        region = Region([*[INDEX] * len(shape), *[Scalar(t.dtype) for t in operand_types]])
        with self.b.at(region):
            result = body(region.args[: len(shape)], region.args[len(shape) :])
            self.b.op("yield", result)
        assert isinstance(result.type, Scalar)
        tile_type = Tile(result.type.dtype, shape, self.scope)
        return self.b.op("tile_map", *operands, types=[tile_type], regions=[region], type=tile_type).result

    def expression(self, indices: list[Value], elements: list[Value]) -> Value:
        """Emit random arithmetic on elements and their indices, and clamp the result. A `body` for `map`."""
        b, random = self.b, self.random
        value = elements[0] if elements else b.cast(random.choice(indices), dtypes.i32)
        for _ in range(random.randint(1, 3)):
            value = self.step(value, indices, elements)
        return self.small(value)

    def step(self, value: Value, indices: list[Value], elements: list[Value]) -> Value:
        """Emit one operation of `expression`: a conversion, a branch, a select, or arithmetic with another operand."""
        b, random = self.b, self.random
        assert isinstance(value.type, Scalar)
        dtype = value.type.dtype
        if dtype.kind == "bool":
            return b.cast(value, dtypes.i32)
        other = random.choice([*elements, b.cast(random.choice(indices), dtypes.i32), self.constant(dtype)])
        draw = random.random()
        if draw < 0.15:
            target = random.choice([d for d in self.palette if d is not dtypes.index])
            return b.cast(self.small(value), target)
        other = self.like(other, dtype)
        if draw < 0.3:
            yes, no = Region(), Region()
            with b.at(yes):
                b.op("yield", b.emit("add", value, other))
            with b.at(no):
                b.op("yield", value)
            return b.op("if", b.emit("lt", value, other), types=[value.type], regions=[yes, no]).result
        if draw < 0.45:
            return b.emit("select", b.emit("le", other, value), other, value)
        return self.small(
            b.emit(random.choice(["add", "sub", "mul", "min", "max"]), self.small(value), self.small(other))
        )

    def like(self, value: Value, dtype: DType) -> Value:
        """Clamp a value and convert it to a type; a value that has the type already is returned unchanged."""
        assert isinstance(value.type, Scalar)
        if value.type.dtype is dtype:
            return value
        return self.b.cast(self.small(value), dtype)

    def small(self, value: Value, bound: int = _BOUND) -> Value:
        """Clamp a scalar between -bound (0 for unsigned types) and bound; booleans are unchanged.

        So floats stay exact, and a conversion to a narrower type doesn't overflow.
        """
        assert isinstance(value.type, Scalar)
        dtype = value.type.dtype
        if dtype.kind == "bool":
            return value
        is_signed = dtype.is_float or dtype.is_signed
        low = self.b.const((float(-bound) if dtype.is_float else -bound) if is_signed else 0, dtype)
        high = self.b.const(float(bound) if dtype.is_float else bound, dtype)
        return self.b.emit("max", self.b.emit("min", value, high), low)

    def bounded(self, tile: Value, bound: int = _BOUND) -> Value:
        """Clamp the elements of a tile as `small` does."""
        return self.map([tile], self.tile_type(tile).shape, lambda _indices, elements: self.small(elements[0], bound))

    def full(self) -> None:
        """A tile filled with a constant, or computed from the indices of its elements."""
        shape = self.shape()
        if self.random.random() < 0.5:
            value = self.constant(self.random.choice(self.palette))
            self.keep(self.map([], shape, lambda _indices, _elements: value))
        else:
            self.keep(self.map([], shape, self.expression))

    def reduced(self) -> None:
        """A reduction along an axis; not of bf16, whose sums would be rounded."""
        tile = self.pick(lambda t: t.dtype is not dtypes.bf16)
        if tile is None:
            return
        tile_type = self.tile_type(tile)
        axis = self.random.randrange(len(tile_type.shape))
        ops = ["min", "max"]
        if tile_type.dtype.kind == "bool":
            ops = ["and", "or"]
        elif tile_type.size <= 64 or tile_type.dtype.bits >= 32:  # sums of more f16 values aren't exact
            ops += ["add", "add"]
        if tile_type.dtype.is_integer:
            ops += ["mul", "xor", "or"]
        target = Tile(tile_type.dtype, reduced_shape(tile_type.shape, axis), self.scope)
        result = self.b.emit("tile_reduce", tile, op=self.random.choice(ops), axis=axis, type=target)
        self.keep(self.bounded(result))

    def argument(self) -> None:
        """The indices of the minima or maxima along an axis (argmin, argmax)."""
        tile = self.pick(lambda t: t.dtype.kind != "bool")
        if tile is None:
            return
        tile_type = self.tile_type(tile)
        axis = self.random.randrange(len(tile_type.shape))
        target = Tile(dtypes.index, reduced_shape(tile_type.shape, axis), self.scope)
        indices = self.b.emit("tile_argument", tile, op=self.random.choice(["min", "max"]), axis=axis, type=target)
        self.keep(self.map([indices], target.shape, lambda _indices, elements: self.b.cast(elements[0], dtypes.i32)))

    def scanned(self) -> None:
        """A cumulative operation along an axis. Only of types of at least 32 bits, whose sums are exact."""
        tile = self.pick(lambda t: t.dtype.kind != "bool" and t.dtype.bits >= 32)
        if tile is None:
            return
        tile_type = self.tile_type(tile)
        op = self.random.choice(["add", "add", "min", "max"])
        axis = self.random.randrange(len(tile_type.shape))
        self.keep(self.bounded(self.b.emit("tile_scan", tile, op=op, axis=axis, type=tile_type)))

    def transposed(self) -> None:
        """A tile with its axes in a random order."""
        tile = self.pick(lambda t: len(t.shape) > 1)
        if tile is None:
            return
        tile_type = self.tile_type(tile)
        axes = tuple(self.random.sample(range(len(tile_type.shape)), len(tile_type.shape)))
        target = Tile(tile_type.dtype, tuple(tile_type.shape[a] for a in axes), self.scope)
        self.keep(self.b.emit("tile_transpose", tile, axes=axes, type=target))

    def reshaped(self) -> None:
        """A tile with an axis of length 1 inserted, flattened, or split into a 2D tile."""
        tile = self.pick()
        if tile is None:
            return
        tile_type = self.tile_type(tile)
        shape = list(tile_type.shape)
        if self.random.random() < 0.5 and len(shape) < 3:
            shape.insert(self.random.randint(0, len(shape)), 1)
        elif self.random.random() < 0.5:
            shape = [tile_type.size]
        else:
            divisor = self.random.choice([d for d in (1, 2, 4, 8) if tile_type.size % d == 0])
            shape = [divisor, tile_type.size // divisor]
        self.keep(self.b.emit("tile_reshape", tile, type=Tile(tile_type.dtype, tuple(shape), self.scope)))

    def product(self) -> None:
        """A matrix product `a @ b + acc`. Existing tiles of the right type and shape are used, or new tiles."""
        random = self.random
        result_dtype = random.choice([dtypes.f32, dtypes.f32, dtypes.i32, dtypes.f64])
        operand_dtypes = {
            "f32": (dtypes.f16, dtypes.bf16, dtypes.f32),
            "i32": (dtypes.i8, dtypes.i32),
            "f64": (dtypes.f64,),
        }
        dtype = random.choice(operand_dtypes[result_dtype.name])
        sizes = (1, 2, 3, 4, 5, 8) if self.scope == "subgroup" else (1, 3, 4, 8, 8, 13, 16, 32)
        m, k, n = (random.choice(sizes) for _ in range(3))
        operands = [self.factor(dtype, shape) for shape in ((m, k), (k, n))]
        tile_type = Tile(result_dtype, (m, n), self.scope)
        acc = self.pick(lambda t: t == tile_type) if random.random() < 0.7 else None
        if acc is None:
            start = self.constant(result_dtype)
            acc = self.map([], (m, n), lambda _indices, _elements: start)
        self.keep(self.bounded(self.b.emit("tile_mma", *operands, acc, type=tile_type)))

    def factor(self, dtype: DType, shape: tuple[int, ...]) -> Value:
        """Return an operand of a matrix product: an existing tile, clamped, or a loaded one."""
        existing = self.pick(lambda t: t.shape == shape and t.dtype is dtype)
        if existing is not None and self.random.random() < 0.6:
            return self.bounded(existing, _FACTOR_BOUND)
        return self.masked_load(dtype, shape)

    def element(self) -> None:
        """A read of one element of a tile as a scalar, which is then subtracted from a tile."""
        tile = self.pick(lambda t: t.dtype.kind != "bool")
        if tile is None:
            return
        tile_type = self.tile_type(tile)
        indices = [self.b.index(self.random.randrange(size)) for size in tile_type.shape]
        scalar = self.b.emit("tile_get", tile, *indices, type=Scalar(tile_type.dtype))
        other = self.pick(lambda t: t.dtype is tile_type.dtype)
        assert other is not None
        shape = self.tile_type(other).shape
        self.keep(
            self.map([other], shape, lambda _indices, elements: self.small(self.b.emit("sub", elements[0], scalar)))
        )

    def gathered(self) -> None:
        """A gather of elements of a new array, at the indices in a tile; indices out of range give a constant."""
        tile = self.pick(lambda t: t.dtype is dtypes.i32)
        if tile is None:
            return
        dtype = self.random.choice(self.palette)
        extent = self.random.randint(1, 12)
        layout = layouts.strided((extent,), self.random, written=False, fill="small")
        array = self.param(Array(Scalar(dtype), 1, access="in", restrict=True), layout)
        default = self.constant(dtype)

        def body(_indices: list[Value], elements: list[Value]) -> Value:
            b = self.b
            array_index = b.cast(elements[0], INDEX)
            inside, outside = Region(), Region()
            with b.at(inside):
                b.op("yield", b.emit("load", array, array_index))
            with b.at(outside):
                b.op("yield", default)
            in_range = b.emit(
                "and", b.emit("ge", array_index, b.index(0)), b.emit("lt", array_index, b.emit("extent", array, axis=0))
            )
            return b.op("if", in_range, types=[Scalar(dtype)], regions=[inside, outside]).result

        self.keep(self.map([tile], self.tile_type(tile).shape, body))

    def scattered(self) -> None:
        """A scatter: each element of a tile is added atomically to an element of a new array.

        The index in the array is the value of the element modulo 16.
        """
        tile = self.pick(lambda t: t.dtype is dtypes.i32)
        if tile is None:
            return
        extent = 16
        layout = layouts.contiguous((extent,), self.random, fill="small")
        array = self.param(Array(Scalar(dtypes.i32), 1, restrict=True), layout)
        region = Region([*[INDEX] * len(self.tile_type(tile).shape), *[Scalar(dtypes.i32)]])
        b = self.b
        with b.at(region):
            value = region.args[-1]
            array_index = b.emit("floormod", b.cast(value, INDEX), b.index(extent))
            b.emit("atomic", array, array_index, value, op="add", order="relaxed", scope="device")
            b.op("yield")
        b.op("tile_each", tile, types=[], regions=[region])

    def new_store(self) -> None:
        """A store of a tile that hasn't been stored before."""
        tile = self.pick()
        if tile is not None and tile not in self.stored:
            self.store(tile)

    def store(self, tile: Value) -> None:
        """Store a tile to a new array, and sometimes load it again.

        Along the first axis, the array has one part per unit, as long as the tile; each unit stores its tile to its
        part. The last part may be shorter than the tile, as may the other axes; the store is masked accordingly.
        """
        self.stored.add(tile)
        b, tile_type = self.b, self.tile_type(tile)
        if tile_type.dtype is dtypes.index:
            return
        extents = [*tile_type.shape]
        extents[0] = max(1, extents[0] * self.units - self.random.choice([0, 0, 1, 2]))
        if len(extents) > 1:
            extents[-1] = max(1, extents[-1] + self.random.choice([0, 0, 2, -1]))
        layout = layouts.strided(extents, self.random, written=True, fill="small")
        array = self.param(Array(Scalar(tile_type.dtype), len(extents), restrict=self.random.random() < 0.7), layout)
        assert self.unit_index is not None
        first = b.emit("mul", self.unit_index, b.index(tile_type.shape[0]))  # start of the unit's part
        starts = [first, *[b.index(0)] * (len(extents) - 1)]
        lengths = []
        for axis, (start, size) in enumerate(zip(starts, tile_type.shape, strict=True)):
            stop = b.emit("min", b.emit("add", start, b.index(size)), b.emit("extent", array, axis=axis))
            lengths.append(b.emit("max", b.emit("sub", stop, start), b.index(0)))
        b.op("tile_store", array, *starts, *lengths, tile, axes=tuple(range(len(extents))))
        if self.random.random() < 0.3:  # read back what other invocations of the unit wrote
            starts_again = [b.emit("mul", self.unit_index, b.index(tile_type.shape[0])), *starts[1:]]
            padding = self.constant(tile_type.dtype)
            self.keep(
                b.emit(
                    "tile_load",
                    array,
                    *starts_again,
                    *lengths,
                    padding,
                    axes=tuple(range(len(extents))),
                    type=tile_type,
                )
            )
            self.stored.add(self.tiles[-1])

    # -- control flow

    def inner(self, region: Region, depth: int, count: int) -> list[Value]:
        """Emit `count` statements into a region, and return the tiles that they add.

        `depth` is the number of loops and branches that enclose the statement with this region.
        """
        saved, before = self.tiles, set(self.tiles)
        self.tiles = list(saved)
        with self.b.at(region):
            for _ in range(count):
                self.statement(depth + 1)
        added = [t for t in self.tiles if t not in before]
        self.tiles = saved
        return added

    def loop(self, depth: int) -> None:
        """A `for` with up to three iterations and one or two tiles as loop-carried values."""
        first = self.pick()
        if first is None:
            return
        b = self.b
        carried = [first]
        other = self.pick()
        if other is not None and self.random.random() < 0.4:
            carried.append(other)
        body = Region([INDEX, *(c.type for c in carried)])
        saved = self.tiles
        self.tiles = [*saved, *body.args[1:]]
        added = self.inner(body, depth, self.random.randint(1, 3))
        with b.at(body):
            next_values = []
            for argument in body.args[1:]:
                candidates = [t for t in (*added, argument) if t.type == argument.type]
                next_values.append(self.changed(self.random.choice(candidates), body.args[0]))
            b.op("continue", *next_values)
        self.tiles = saved
        bounds = (b.index(0), b.index(self.random.randint(0, 3)), b.index(1))
        loop_op = b.op("for", *bounds, *carried, types=[c.type for c in carried], regions=[body])
        for result in loop_op.results:
            self.keep(result)

    def changed(self, tile: Value, iteration: Value) -> Value:
        """Return a tile plus the induction variable `iteration`, so that iterations differ; booleans are unchanged."""
        tile_type = self.tile_type(tile)
        if tile_type.dtype.kind == "bool":
            return tile

        def body(_indices: list[Value], elements: list[Value]) -> Value:
            return self.small(self.b.emit("add", self.small(elements[0]), self.b.cast(iteration, tile_type.dtype)))

        return self.map([tile], tile_type.shape, body)

    def branch(self, depth: int) -> None:
        """An `if` that yields a tile, with a condition that is uniform over the unit."""
        tile = self.pick()
        if tile is None:
            return
        b = self.b
        assert self.unit_index is not None
        other = self.pick(lambda t: t.dtype is dtypes.i32)
        condition = b.emit("lt", self.unit_index, b.index(1))
        if other is not None:
            first_element = b.emit(
                "tile_get", other, *[b.index(0)] * len(self.tile_type(other).shape), type=Scalar(dtypes.i32)
            )
            condition = b.emit("gt", first_element, b.const(0, dtypes.i32))
        assert condition.type == BOOL
        sides = [Region(), Region()]
        for side in sides:
            added = self.inner(side, depth, self.random.randint(0, 2))
            with b.at(side):
                candidates = [t for t in (*added, tile) if t.type == tile.type]
                b.op("yield", self.random.choice(candidates))
        self.keep(b.op("if", condition, types=[tile.type], regions=sides).result)
