"""Generation of a random program from a seed.

`generate` first draws the features of the program (`Traits`), then adds parameters, device functions and the statements
of the kernel's body. The modules of `statements` register the kinds of statements; a `Maker` holds the state while they
are emitted. The module `tiles` generates programs on tiles. The same seed gives the same program in every process.

Programs have no races, because an invocation writes only its own elements. To this end, the linear index of an
invocation in the grid is called `row`, and each array that is written by ordinary stores has an axis that is indexed
with `row`. In shared memory, the linear index in the workgroup takes this role; it is called `slot`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import cast

from vkjit import dtypes
from vkjit.ir.attributes import FunctionAttrs
from vkjit.ir.builder import Builder
from vkjit.ir.core import Function, Module, Region, Value
from vkjit.ir.ops import OpName
from vkjit.ir.types import BOOL, INDEX, Array, Scalar, Type, Vector

from . import layouts
from .program import Layout, Program, Triple
from .statements import (  # noqa: F401  they register statements
    algebra,
    collectives,
    control,
    deep,
    expressions,
    limits,
    memory,
)
from .statements.builder import COLUMNS as INEXACT_COLUMNS, Inexact, Maker, Place, Probe, Traits
from .tiles import generate_tiles

__all__ = ["TILES", "generate"]

# workgroup sizes: in general, with shared memory, and with subgroup operations (multiples of 32 invocations)
_LOCAL: list[Triple] = [
    (4, 1, 1),
    (8, 1, 1),
    (16, 1, 1),
    (4, 2, 1),
    (2, 2, 2),
    (5, 1, 1),
    (3, 2, 1),
    (1, 1, 1),
    (2, 8, 1),
]
_LOCAL_SHARED: list[Triple] = [(16, 1, 1), (32, 1, 1), (8, 4, 1), (4, 2, 4), (24, 1, 1), (16, 2, 1)]
_LOCAL_SUBGROUPS: list[Triple] = [(32, 1, 1), (16, 2, 1), (8, 4, 1), (64, 1, 1), (4, 4, 2)]
_GROUPS: list[Triple] = [(1, 1, 1), (2, 1, 1), (3, 1, 1), (2, 2, 1), (1, 1, 2)]
_NUMBERS: list[Scalar] = [Scalar(d) for d in dtypes.ALL if d.kind != "bool"]
"""The numeric types from which a program's types are chosen."""
COLUMNS, PROBES = 4, 8
"""`COLUMNS` is the number of elements per `row` in most arrays that statements write, `PROBES` the number in the arrays
for results of statements (see `Probe`).
"""

TILES = 1 << 40
"""Seeds of at least this number give programs on tiles."""


def generate(seed: int, statements: int = 0) -> Program:
    """Return the program of a seed. `statements` is the number of statements; for 0, the seed decides it."""
    if seed >= TILES:
        return generate_tiles(seed, statements)
    random = Random(seed)
    traits, portable_reductions = _traits(random)
    if seed % 4 == 3:  # one program in four consists mostly of statements of the module `algebra`
        traits = replace(traits, algebra=True)
    needs_subgroups = traits.subgroups or portable_reductions
    pool = _LOCAL_SUBGROUPS if needs_subgroups else _LOCAL_SHARED if traits.shared else _LOCAL
    local, groups = random.choice(pool), random.choice(_GROUPS)
    build = _Kernel(random, traits, local, groups, portable_reductions, statements or random.randint(6, 26))
    return build.program(seed)


def _traits(random: Random) -> tuple[Traits, bool]:
    """Return the program's traits, and True if the program may contain portable workgroup reductions.

    A portable reduction is built from subgroup operations, but its result doesn't depend on the subgroup size.
    """
    palette: list[Type] = [INDEX, *random.sample(_NUMBERS, 3)]
    if random.random() < 0.6:
        palette.append(Scalar(random.choice([dtypes.i32, dtypes.f32, dtypes.u32])))
    vectors: tuple[Vector, ...] = ()
    if random.random() < 0.4:
        elements = [t.dtype for t in palette if isinstance(t, Scalar) and t.dtype is not dtypes.index]
        vectors = tuple(Vector(random.choice(elements), random.randint(2, 4)) for _ in range(random.randint(1, 2)))
    # below 0.2 all subgroup operations, from 0.2 to 0.28 portable reductions; below 0.45 also shared memory
    collectives_draw = random.random()
    traits = Traits(
        strict=random.random() < 0.75,
        subgroups=collectives_draw < 0.2,
        shared=collectives_draw < 0.45,
        atomics=random.random() < 0.3,
        reports=random.random() < 0.08,
        prints=random.random() < 0.02,
        bounds=random.random() < 0.15,
        palette=tuple(palette),
        vectors=vectors,
    )
    return traits, 0.2 <= collectives_draw < 0.28


class _Kernel:
    """Builds one program.

    - `local` is the workgroup size, `groups` the number of workgroups, `rows` the number of invocations of the grid.
    - `portable_reductions` is True if the program may contain portable reductions (see `_traits`).
    - `statements` is the number of statements.
    - `types`, `names`, `layouts` and `roles` have one entry per parameter. An entry of `roles` is a pair of strings.
      The first is the kind of `Place` that statements see ("read", "own" or "counter"), or "" for scalars and arrays
      for results. The second is the atomic operation of a "counter"; for "own" it is the number of the axis that is
      indexed with `row`.
    """

    def __init__(
        self, random: Random, traits: Traits, local: Triple, groups: Triple, portable_reductions: bool, statements: int
    ) -> None:
        self.random, self.traits = random, traits
        self.local, self.groups, self.portable_reductions = local, groups, portable_reductions
        self.rows = _product(local) * _product(groups)
        self.statements = statements
        self.types: list[Type] = []
        self.names: list[str] = []
        self.layouts: list[Layout | None] = []
        self.roles: list[tuple[str, str]] = []
        self.module: Module = None  # type: ignore[assignment]  # set by `program`

    # -- parameters

    def param(self, name: str, type: Type, layout: Layout | None, role: str = "", detail: str = "") -> int:
        """Add a parameter and return its index. `role` and `detail` make up its entry in `roles`.

        `name` is the first letter of the parameter's name: s for scalars, x for read-only arrays, y for arrays that are
        written, n for counters, m for results of inexact operations, q for results that are kept (see `Probe`).
        """
        self.types.append(type)
        self.names.append(f"{name}{len(self.names)}")
        self.layouts.append(layout)
        self.roles.append((role, detail))
        return len(self.types) - 1

    def parameters(self) -> None:
        """Add scalars, read-only arrays, arrays in which each invocation owns some elements, and atomic counters."""
        random, palette = self.random, self.traits.palette
        for type in random.sample(palette, min(3, len(palette))):
            self.param("s", type, None)
        self.param("s", BOOL, None)
        for _ in range(random.randint(1, 3)):
            self.readable(self.element())
        targets: list[Scalar | Vector] = [t for t in palette if isinstance(t, Scalar) and t != INDEX]
        for element in [*targets[: 3 if random.random() < 0.7 else 2], self.element()]:
            self.owned(element)
        if self.traits.atomics:
            for _ in range(random.randint(1, 2)):
                element = Scalar(random.choice([dtypes.i32, dtypes.u32, dtypes.i64, dtypes.u64]))
                size = random.choice([1, 2, 8])
                combine = random.choice(["add", "add", "min", "max", "and", "or", "xor"])
                layout = layouts.strided((size,), random, written=True)
                self.param("n", Array(element, 1, restrict=random.random() < 0.5), layout, "counter", combine)

    def element(self) -> Scalar | Vector:
        """Return a random element type for an array."""
        random = self.random
        if self.traits.vectors and random.random() < 0.3:
            return random.choice(self.traits.vectors)
        if random.random() < 0.1:
            return BOOL
        return random.choice([t for t in self.traits.palette if isinstance(t, Scalar) and t != INDEX] or _NUMBERS)

    def layout(self, shape: tuple[int, ...], written: bool) -> tuple[Layout, bool]:
        """Return a random layout, and True if it is contiguous by construction."""
        if self.random.random() < 0.5:
            return layouts.contiguous(shape, self.random), True
        return layouts.strided(shape, self.random, written=written), False

    def readable(self, element: Scalar | Vector) -> None:
        """Add a read-only array."""
        random = self.random
        shape = tuple(random.randint(1, 5) for _ in range(random.choice([0, 1, 1, 2, 2, 3])))
        layout, flat = self.layout(shape, written=False)
        type = Array(element, len(shape), access="in", contiguous=flat, restrict=random.random() < 0.5)
        self.param("x", type, layout, "read")

    def owned(self, element: Scalar | Vector) -> None:
        """Add an array with an axis that is indexed with `row`, so that each invocation writes only its own elements.

        Sometimes add a second parameter with the same memory and layout.
        """
        random = self.random
        shape: list[int] = random.choice([[COLUMNS], [COLUMNS], [2, 2], []])
        axis = random.randint(0, len(shape)) if random.random() < 0.5 else 0
        shape = [*shape[:axis], self.rows, *shape[axis:]]
        layout, flat = self.layout(tuple(shape), written=True)
        has_alias = random.random() < 0.15
        type = Array(element, len(shape), contiguous=flat, restrict=not has_alias and random.random() < 0.5)
        number = self.param("y", type, layout, "own", str(axis))
        if has_alias:
            self.param("y", type, replace(layout, like=number), "own", str(axis))

    def inexact(self) -> list[tuple[Scalar, int, int]]:
        """Add two arrays for each float type except bf16: for results of inexact operations, and for their scales.

        A scale is the magnitude to which the error bound of a result is relative (see `fuzz.compare`). Returns a tuple
        for each type: the type, the parameter index of the results, and that of the scales.
        """
        arrays = []
        for type in self.traits.palette:
            if isinstance(type, Scalar) and type.dtype.is_float and type.dtype is not dtypes.bf16:
                shape = (self.rows, INEXACT_COLUMNS)
                indices = [
                    self.param("m", Array(type, 2, contiguous=True), layouts.contiguous(shape, self.random, "zeros"))
                    for _ in range(2)
                ]
                arrays.append((type, indices[0], indices[1]))
        return arrays

    def probed(self) -> list[tuple[Type, int]]:
        """Add an array of i64 for results of statements (see `Probe`), and for those of `algebra` one for each type.

        Returns the types with the parameter indices of the arrays.
        """
        types: dict[Scalar, None] = {Scalar(dtypes.i64): None}
        if self.traits.algebra:
            types |= {BOOL: None, Scalar(dtypes.i32): None}
            types |= {t: None for t in self.traits.palette if isinstance(t, Scalar) and t != INDEX}
        shape = (self.rows, PROBES)
        return [
            (type, self.param("q", Array(type, 2, contiguous=True), layouts.contiguous(shape, self.random, "zeros")))
            for type in types
        ]

    # -- the program

    def program(self, seed: int) -> Program:
        """Build the program. `seed` generates its arguments."""
        self.parameters()
        inexact_arrays = self.inexact()
        probes = self.probed()
        region = Region(self.types, self.names)
        attrs: FunctionAttrs = {"local_size": self.local, "arg_index": tuple(range(len(self.types)))}
        # the attributes are described at `vkjit.frontend.signature.signature.Signature`
        flags = {"strict": self.traits.strict, "bounds": self.traits.bounds, "narrow": self.random.random() < 0.6}
        flags["subgroups"] = self.traits.subgroups or self.portable_reductions
        flags["cut"] = self.random.random() < 0.1
        flags["backward"] = any(s < 0 for layout in self.layouts if layout is not None for s in layout.strides)
        attrs.update(cast("FunctionAttrs", {name: True for name, enabled in flags.items() if enabled}))
        self.module = Module(Function("k", region, [], attrs))
        functions = [self.function(number) for number in range(self.random.choice([0, 0, 1, 2]))]
        m = self.maker(region, self.statements)
        m.functions = functions
        m.probes = {type: Probe(region.args[number], PROBES) for type, number in probes}
        self.prelude(m, inexact_arrays)
        reachable_end = self.body(m)
        if reachable_end:
            self.sink(m)
        tolerances = {results: (tuple(m.inexact[type].bounds), scales) for type, results, scales in inexact_arrays}
        any_subgroup_size = not self.traits.subgroups
        return Program(
            self.module,
            self.groups,
            tuple(self.layouts),
            seed,
            tolerances,
            self.is_movable(),
            any_subgroup_size=any_subgroup_size,
        )

    def maker(self, region: Region, fuel: int) -> Maker:
        """Return a `Maker` that builds the kernel's body in a region; `fuel` is the number of statements."""
        return Maker(
            self.random, Builder(region), self.traits, self.module, fuel=fuel, invocations=_product(self.local)
        )

    def function(self, number: int) -> Function:
        """Build the device function f<number> with random types and statements; it may call those built before."""
        random = self.random
        types = [random.choice([BOOL, *self.traits.palette, *self.traits.vectors]) for _ in range(random.randint(1, 3))]
        results = [random.choice([BOOL, *self.traits.palette]) for _ in range(random.randint(1, 2))]
        region = Region(types, [f"p{index}" for index in range(len(types))])
        function_traits = replace(self.traits, reports=False, prints=False, atomics=False)
        m = Maker(random, Builder(region), function_traits, self.module, results, fuel=8, depth=3)
        m.functions = list(self.module.functions.values())
        m.inexact = {}
        if random.random() < 0.3:
            self.local_array(m)

        def end() -> None:
            m.builder.op("return", *(m.value(t) for t in results))

        m.fill(region, 6, end)
        result = Function(f"f{number}", region, results)
        self.module.functions[result.name] = result
        return result

    def prelude(self, m: Maker, inexact_arrays: list[tuple[Scalar, int, int]]) -> None:
        """Emit the start of the kernel's body.

        Computes `row`, creates a `Place` for each array that statements may use, and adds initial values to the scope.
        `inexact_arrays` is the result of `inexact`.
        """
        b, params = m.builder, self.module.kernel.params
        ids = [b.emit("global_id", dim=d) for d in range(3)]
        sizes = [s * g for s, g in zip(self.local, self.groups, strict=True)]
        row = ids[0]
        for axis in (1, 2):
            if sizes[axis] > 1:
                stride = sizes[0] * (sizes[1] if axis == 2 else 1)
                row = b.emit("add", b.emit("mul", ids[axis], b.index(stride)), row)
        row.name = "row"
        m.row = row
        for param, layout, (role, detail) in zip(params, self.layouts, self.roles, strict=True):
            if layout is None:
                m.keep(param)
                m.uniform_values.add(param)
            elif role:
                m.places.append(_place(param, layout, role, detail))
        if self.random.random() < 0.4:
            self.local_array(m)
        if self.traits.shared or self.portable_reductions:
            self.shared_memory(m)
        for type, results, scales in inexact_arrays:
            results_place, scales_place = (_place(params[n], self.layouts[n], "own", "0") for n in (results, scales))
            m.inexact[type] = Inexact(results_place, scales_place)
        self.first_values(m, row)

    def first_values(self, m: Maker, row: Value) -> None:
        """Add `row`, perhaps another id, and elements of the arrays to the scope."""
        m.keep(row)
        if self.random.random() < 0.5:
            name: OpName = self.random.choice(["global_id", "local_id", "group_id", "num_groups", "local_size"])
            value = m.emit(name, dim=self.random.randint(0, 2))
            if name in ("num_groups", "local_size", "group_id"):
                m.uniform_values.add(value)
        for place in m.places:
            if place.kind == "read" or (place.kind == "own" and self.random.random() < 0.3):
                m.emit("load", place.array, *place.index(m))

    def local_array(self, m: Maker) -> None:
        """Add an array in function memory and initialize it.

        Statements access it either with constant indices only, or with dynamic indices only.
        """
        b, random = m.builder, self.random
        element = self.element()
        shape = random.choice([(4,), (3,), (2, 2), (2, 3)])
        array = b.emit("local", type=Array(element, len(shape), space="local", shape=shape))
        for position in itertools.product(*map(range, shape)):
            b.op("store", array, *map(b.index, position), m.value(element))
        index = _constant(shape) if random.random() < 0.6 else _below(shape)
        m.places.append(Place(array, index, "own"))

    def shared_memory(self, m: Maker) -> None:
        """Compute `slot`, and add shared arrays: for exchange, atomic counters, and partial results of subgroups.

        Arrays for exchange have one element or two adjacent elements per invocation, at the index `slot`.
        """
        b, random, count = m.builder, self.random, _product(self.local)
        local = [b.emit("local_id", dim=d) for d in range(3)]
        slot = local[0]
        for axis in (1, 2):
            if self.local[axis] > 1:
                stride = self.local[0] * (self.local[1] if axis == 2 else 1)
                slot = b.emit("add", b.emit("mul", local[axis], b.index(stride)), slot)
        if slot is m.row or slot.op is None:  # a value has one name: `slot` must differ from `row`
            slot = b.emit("local_id", dim=0)
        slot.name = "slot"
        m.keep(slot)
        for _ in range(random.randint(1, 2)):
            shape = random.choice([(count,), (count, 2)])
            array = b.emit("shared", type=Array(self.element(), len(shape), space="shared", shape=shape))
            m.places.append(Place(array, _below(shape), "shared"))
        if random.random() < 0.5:
            element = Scalar(random.choice([dtypes.i32, dtypes.u32, dtypes.i64, dtypes.u64]))
            array = b.emit("shared", type=Array(element, 1, space="shared", shape=(4,)))
            m.places.append(Place(array, _below((4,)), "tally", random.choice(["add", "min", "max", "or", "xor"])))
        if self.portable_reductions:
            element = Scalar(random.choice([dtypes.i32, dtypes.u64, dtypes.i64, dtypes.u32]))
            # one element per subgroup: a workgroup has at most 64 invocations, a subgroup at least 4
            array = b.emit("shared", type=Array(element, 1, space="shared", shape=(16,)))
            m.places.append(Place(array, _below((16,)), "total", random.choice(["add", "min", "max", "xor"])))

    def body(self, m: Maker) -> bool:
        """Emit all statements. Returns False if the end is unreachable.

        The first two thirds of the statements may use collectives, and mustn't return early. The last third may return
        early, but mustn't use collectives. In most programs without collectives, all statements may return early.
        """
        has_collectives = self.traits.shared or self.traits.subgroups or self.portable_reductions
        if has_collectives or self.random.random() < 0.3:
            m.uniform, m.returnable = True, False
            collective_statements = 2 * m.fuel // 3
            while m.fuel > self.statements - collective_statements:
                if not m.statement():
                    m.builder.op("unreachable")
                    return False
        m.uniform, m.returnable = False, True
        while m.fuel > 0:
            if not m.statement():
                m.builder.op("unreachable")
                return False
        return True

    def sink(self, m: Maker) -> None:
        """Emit the end of the body: stores of computed values, so that they are compared, and the return."""
        for place in (p for p in m.places if p.type.space == "local"):
            for _ in range(2):
                m.emit("load", place.array, *place.index(m))
        targets = [p for p in m.places if p.kind == "own" and p.type.space == "global"]
        for place in targets:
            for _ in range(3 if place.type.rank > 1 else 1):
                m.builder.op("store", place.array, *place.index(m), m.value(place.element))
        m.builder.op("return")

    def is_movable(self) -> bool:
        """True if other workgroup sizes give the same results: no operation depends on workgroups or subgroups."""
        fixed: set[OpName] = {
            "local_id", "group_id", "num_groups", "local_size", "shared", "barrier", "lane_id", "subgroup_id",
            "subgroup_size", "num_subgroups",
        }  # fmt: skip
        ops = (op for function in self.module.all_functions() for op in function.body.walk())
        return not any(op.name in fixed or op.name.startswith("sg_") for op in ops)


def _product(triple: Triple) -> int:
    return triple[0] * triple[1] * triple[2]


def _below(shape: tuple[int, ...]) -> Callable[[Maker], list[Value]]:
    """Return a function that emits random dynamic indices, in range for this shape."""
    return lambda m: [m.below(extent) for extent in shape]


def _constant(shape: tuple[int, ...]) -> Callable[[Maker], list[Value]]:
    """Return a function that emits random constant indices, in range for this shape."""
    return lambda m: [m.builder.index(m.draw(0, extent - 1)) for extent in shape]


def _place(param: Value, layout: Layout | None, role: str, detail: str) -> Place:
    """Return the `Place` of an array parameter.

    `role` and `detail` are its entry in `_Kernel.roles`. For the role "own", `detail` is the number of the axis that
    statements index with `row`.
    """
    assert layout is not None
    shape = layout.shape
    if role != "own":
        return Place(param, _below(shape), role, detail)
    axis = int(detail)

    def index(m: Maker) -> list[Value]:
        assert m.row is not None
        return [m.row if a == axis else m.below(extent) for a, extent in enumerate(shape)]

    return Place(param, index, role)
