"""Tile lowering: turn operations on tiles into code for individual invocations.

The pass takes a module in normal form (see `ir.verify`) with device functions inlined. It removes all operations on
tiles and all values of tile types: they become registers, memory accesses, shared memory, shuffles, and barriers where
an access has to wait for accesses of other invocations. `kernel.attrs["tiles"]` lists the choices that were made, with
source lines and reasons. The package's docstring defines the terms (slice, product, slot, staging, engine).

1. Each tile has a layout (see `assign_layouts`) over the invocations of its scope, a workgroup or subgroup. Their
   number is rounded down to a power of two; the remaining invocations hold replicas and write nothing.
2. A slice that is used only as operand A or B of products isn't loaded into registers, if possible. If its memory can't
   change before the product, the product loads it: it stages the slice in shared memory or reads it from global memory,
   depending on the engine. Otherwise, if the engine reads shared memory, the slice is staged at the position of the
   `tile_load`.
3. A barrier precedes a memory access that conflicts with an access since the last barrier. At the start of a loop's
   body, all accesses of the body count as accesses since the last barrier, as the previous iteration made them.
4. Products whose accumulators are held in cooperative matrices (see `mma_fragments`) are computed on these matrices.
   `engines` chooses how all other products are computed.
5. If a product in a loop has the attribute `prefetch`, its operands for the next iteration are loaded during the
   current one: see `prefetch` and `software_pipeline`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from vkjit.errors import CompileError, InternalError
from vkjit.ir.core import Function, Module, Op, Region, Value
from vkjit.ir.ops import OPS, Effect, OpName, op_name
from vkjit.ir.rewrite import LOOPS, constant_of, exits_of, replace_uses, resolve
from vkjit.ir.tiles import permutation
from vkjit.ir.types import Scalar, Tile, Type
from vkjit.runtime.device import DeviceCaps

from ..analysis.alias import AliasClass, alias_class
from . import (
    fma_matmul,
    layout_conversion,
    matmul,
    memory,
    mma_fragments,
    mma_matmul,
    prefetch,
    shared_operands,
    software_pipeline,
)
from .assign_layouts import Assignment, assign, tile_of
from .engines import Choice, choose_engine
from .layout import Layout
from .matmul import label, shape_of
from .mma_fragments import Fragments, Plan, Splat
from .mma_matmul import KeptInMatrices
from .prefetch import Prefetch
from .shared_operands import Packed
from .software_pipeline import PipelinedProduct
from .tile_state import Deferred, Held, LoweringContext, Options, Staged

__all__ = ["LowerTiles", "options_for"]

MAX_KEPT_BYTES = 512
"""The maximum size, in bytes per invocation, of the accumulators and the operand that are kept in matrices.

It is half of the registers of an invocation.
"""


def options_for(caps: DeviceCaps) -> Options:
    """Return the resources and heuristics of the tile lowering for a device."""
    on_cpu = caps.kind in ("cpu", "llvm-cpu")
    return Options(
        subgroup=caps.subgroup_size,
        shuffles="subgroup_shuffle" in caps.features or caps.kind == "interpreter",
        shared_bytes=caps.shared_bytes,
        vector=1 if on_cpu else 4,
        reads_global_memory=on_cpu,
        lane_bits=4 if on_cpu else 0,
        unroll=128 if on_cpu else 256,
        max_held=512 if on_cpu else 256,
        ordered_keys=not on_cpu,
        reciprocals=not on_cpu,
    )


@dataclass(frozen=True, slots=True)
class LowerTiles:
    """The tile lowering pass; kernels without tiles are unchanged."""

    options: Options
    caps: DeviceCaps
    name: ClassVar[str] = "lower_tiles"

    def run(self, module: Module) -> Module:
        kernel = module.kernel
        if any(op.name.startswith("tile_") for op in kernel.body.walk()):
            Lowering(kernel, self.options, self.caps).run()
        return module


Place = Held | Staged | Deferred | Packed | KeptInMatrices | Fragments | Splat
"""The possible locations of a tile's elements."""


@dataclass(slots=True)
class Lowering:
    """The lowering of one kernel.

    - `tiles` maps each tile value lowered so far to where its elements are.
    - `plans` maps the values held in cooperative matrices to their partition.
    - `prefetches` maps each product whose operands are prefetched to its prefetch.
    - `replaced` maps values that aren't tiles to the values that stand for them in the lowered code.
    - `uses`, `regions` and `order` describe the kernel before the lowering. `uses` maps a value to the operations that
      use it, `regions` an operation to its region, and `order` an operation to its number in program order.
    - `exits` maps each `break` and `continue` to the values that its operands define. `targets` is a stack: for each
      region being lowered, the values that its `yield` defines.
    """

    kernel: Function
    options: Options
    caps: DeviceCaps
    context: LoweringContext = field(init=False)
    layouts: Assignment = field(init=False)
    tiles: dict[Value, Place] = field(default_factory=dict)
    plans: dict[Value, Plan] = field(default_factory=dict)
    prefetches: dict[Op, Prefetch] = field(default_factory=dict)
    replaced: dict[Value, Value] = field(default_factory=dict)
    uses: dict[Value, list[Op]] = field(default_factory=dict)
    regions: dict[Op, Region] = field(default_factory=dict)
    exits: dict[Op, Sequence[Value]] = field(default_factory=dict)
    order: dict[Op, int] = field(default_factory=dict)
    targets: list[Sequence[Value]] = field(default_factory=list)

    def run(self) -> None:
        kernel = self.kernel
        self.context = LoweringContext(kernel, self.options, kernel.attrs["local_size"])
        bits = {scope: self.context.bits(scope) for scope in ("workgroup", "subgroup")}
        self.layouts = assign(kernel, bits, self.options.vector, self.options.lane_bits)
        self._survey(kernel.body)
        self.plans = mma_fragments.plans_of(kernel, self.caps, self.context.invocations)
        self.region(kernel.body, [])
        self.context.finalize()
        replace_uses(kernel.body, self.replaced)
        self.context.check_shared(kernel.loc)
        kernel.attrs["tiles"] = tuple(dict.fromkeys(self.context.notes))

    def _survey(self, region: Region) -> None:
        """Fill `uses`, `regions` and `order`, and collect the alias classes that the kernel writes."""
        for op in region.ops:
            self.regions[op] = region
            self.order[op] = len(self.order)
            for value in op.operands:
                self.uses.setdefault(value, []).append(op)
            if OPS[op.name].effect in (Effect.WRITE, Effect.READ_WRITE) and op.operands:
                self.context.written.add(alias_class(op.operands[0]))
            for inner in op.regions:
                self._survey(inner)

    # -- traversal and control flow
    def region(self, region: Region, targets: Sequence[Value]) -> None:
        """Lower a region in place; `targets` are the values that its `yield` defines."""
        source, region.ops = region.ops, []
        self.targets.append(targets)
        with self.context.builder.at(region):
            for op in source:
                self.context.builder.loc = op.loc
                self.operation(op)
        self.targets.pop()

    def operation(self, op: Op) -> None:
        """Lower one operation and append the result to the current region."""
        if op.name.startswith("tile_"):
            _HANDLERS[op.name](self, op)
        elif op.name == "if":
            self.branch(op)
        elif op.name in LOOPS:
            self.loop(op)
        elif op.name == "poison" and isinstance(op.attrs["type"], Tile):
            layout = self.layouts.of(op.result)
            poison = self.context.builder.emit("poison", type=Scalar(op.attrs["type"].dtype))
            self.tiles[op.result] = Held(layout, (poison,) * layout.slots_per_invocation)
        else:
            op.operands[:] = (
                self.flatten(op.operands, self.receivers(op)) if OPS[op.name].terminator else self.resolved_operands(op)
            )
            self.context.record_accesses(op)
            self.context.builder.region.ops.append(op)

    def resolved_operands(self, op: Op) -> list[Value]:
        """Return the values that stand for an operation's operands in the lowered code."""
        return [resolve(self.replaced, value) for value in op.operands]

    def receivers(self, op: Op) -> Sequence[Value]:
        """Return the values that the operands of a terminator define."""
        return self.targets[-1] if op.name == "yield" else self.exits.get(op, op.operands)

    def flatten(self, values: Sequence[Value], targets: Sequence[Value]) -> list[Value]:
        """Flatten the values that a terminator or a loop passes to `targets`, one value for each target.

        A tile becomes one value per slot, in the layout of its target. A tile whose target is held in matrices becomes
        one value per matrix. A value that isn't a tile stays a single value.
        """
        flat: list[Value] = []
        for value, target in zip(values, targets, strict=True):
            if target in self.plans:
                flat += self.in_matrices(value, self.plans[target]).values
            elif isinstance(value.type, Tile):
                flat += self.in_registers(value, self.layouts.of(target)).values
            else:
                flat.append(resolve(self.replaced, value))
        return flat

    def unflatten(self, old: Sequence[Value], new: Sequence[Value]) -> None:
        """Record that the elements of the `old` values are in the flattened values `new`: the inverse of `flatten`."""
        values = iter(new)
        for value in old:
            if not isinstance(value.type, Tile):
                self.replaced[value] = next(values)
                continue
            plan = self.plans.get(value)
            if plan is not None:
                self.tiles[value] = Fragments(plan, tuple(next(values) for _ in range(plan.matrices_per_subgroup)))
                continue
            layout = self.layouts.of(value)
            self.tiles[value] = Held(layout, tuple(next(values) for _ in range(layout.slots_per_invocation)))

    def types_of(self, values: Sequence[Value]) -> list[Type]:
        """Return the types of values after flattening."""
        types: list[Type] = []
        for value in values:
            plan = self.plans.get(value)
            if plan is not None:
                types += [plan.kind] * plan.matrices_per_subgroup
            elif isinstance(value.type, Tile):
                types += [Scalar(value.type.dtype)] * self.layouts.of(value).slots_per_invocation
            else:
                types.append(value.type)
        return types

    def branch(self, op: Op) -> None:
        """Lower an `if`. After it, the accesses that are pending at the end of either region are pending."""
        condition = resolve(self.replaced, op.operands[0])
        before, assumed = set(self.context.pending), set(self.context.assumed)
        after: set[tuple[AliasClass, str]] = set()
        assumed_after: set[tuple[AliasClass, str]] = set()
        for inner in op.regions:
            self.context.pending, self.context.assumed = set(before), set(assumed)
            self.region(inner, op.results)
            after |= self.context.pending
            assumed_after |= self.context.assumed
        self.context.pending, self.context.assumed = after, assumed_after
        lowered = Op(op.name, [condition], self.types_of(op.results), op.attrs, op.regions, op.loc)
        self.context.builder.region.ops.append(lowered)
        self.unflatten(op.results, lowered.results)

    def loop(self, op: Op) -> None:
        """Lower a `for` or `loop`. Prefetched operands become additional loop-carried values."""
        is_for = op.name == "for"
        first_carried = 3 if is_for else 0  # a `for` has the operands start, end and step before the carried ones
        first_argument = 1 if is_for else 0  # and its induction variable before the carried arguments
        body = op.regions[0]
        bounds = [resolve(self.replaced, value) for value in op.operands[:first_carried]]
        carried = self.flatten(op.operands[first_carried:], body.args[first_argument:])
        prefetches = self._prefetched(op, bounds) if is_for else []
        prefetched_values = [value for item in prefetches for value in item.current]
        prefetched_types = [v.type for v in prefetched_values]
        old = list(body.args)
        # The lowered body's arguments: the old ones flattened, then the prefetched values.
        body.args[:] = [Value(t, body, n) for n, t in enumerate([*self.types_of(old), *prefetched_types])]
        self.unflatten(old, body.args)
        if is_for:
            start, _, step = bounds
            self.context.induction_variables[body.args[0]] = (start, step)
        prefetched_args = iter(body.args[len(body.args) - len(prefetched_values) :])
        for item in prefetches:
            item.begin_body(body.args[0], [next(prefetched_args) for _ in item.current])
        before, assumed = set(self.context.pending), self.context.assume(body)  # rule 3
        self._loop_body(op, old[first_argument:])
        self.context.pending |= before
        self.context.assumed = assumed
        for item in prefetches:
            body.terminator.operands += item.following
            if isinstance(item, PipelinedProduct):
                item.finish(self.context)
        types = [*self.types_of(op.results), *prefetched_types]
        lowered = Op(op.name, [*bounds, *carried, *prefetched_values], types, op.attrs, op.regions, op.loc)
        self.context.builder.region.ops.append(lowered)
        self.unflatten(op.results, lowered.results)

    def _prefetched(self, loop: Op, bounds: Sequence[Value]) -> list[Prefetch]:
        """Begin the prefetch of each product of a loop that has prefetched operands (rule 5); return the prefetches.

        `bounds` are the start, the end and the step of the loop.
        """
        prefetched = []
        for product in prefetch.prefetching_products(loop):
            numbers, why = prefetch.prefetchable_operands(loop, product, self.context.written, self.uses)
            if numbers and self.engine(product).engine not in ("fma", "matrix"):
                numbers, why = [], "this engine reads the factors where they are"
            if not numbers:
                self.context.notes.append(f"{product.loc}: nothing is loaded ahead: {why}")
                continue
            plan = self.plans.get(product.result)
            begin: Callable[..., Prefetch] = prefetch.begin
            if prefetch.is_pipelined(product, plan, numbers):
                begin = software_pipeline.begin
            transposed = self.transposed_operands(product, numbers)
            begun = begin(
                self.context, loop, product, numbers, bounds, plan, transposed, lambda v: resolve(self.replaced, v)
            )
            self.prefetches[product] = begun
            prefetched.append(begun)
            when = "after" if product.attrs["prefetch"].endswith("late") else "before"
            what = "factors are" if len(numbers) == 2 else f"{('left', 'right')[numbers[0]]} factor is"
            registers = len(begun.current)
            self.context.notes.append(
                f"{product.loc}: the next round's {what} loaded {when} the barrier, {registers} values per invocation"
            )
        return prefetched

    def _loop_body(self, op: Op, arguments: Sequence[Value]) -> None:
        """Lower the body of a loop; `arguments` are its loop-carried values."""
        for exit_op in exits_of(op.regions[0]):
            self.exits[exit_op] = op.results if exit_op.name == "break" else arguments
        self.region(op.regions[0], [])

    # -- where the elements of tiles are
    def in_registers(self, value: Value, layout: Layout | None = None) -> Held:
        """Return a tile in registers, in the given layout or in its own; emit the code that moves it to registers."""
        tile = self.tiles[value]
        target = layout or self.layouts.of(value)
        if isinstance(tile, Held):
            return layout_conversion.convert_layout(self.context, tile, target)
        if isinstance(tile, Deferred):
            self.context.access(tile.operands[0], "r", target.scope)
            return memory.load(self.context, tile.op, tile.operands, target)
        if isinstance(tile, Splat):
            return Held(target, (tile.value,) * target.slots_per_invocation)
        if isinstance(tile, Fragments):
            return layout_conversion.convert_layout(
                self.context, mma_matmul.to_registers(self.context, tile, self.layouts.of(value)), target
            )
        raise InternalError("a tile that only products read is needed in registers")

    def in_matrices(self, value: Value, plan: Plan) -> Fragments:
        """Return accumulators in cooperative matrices. If the tile is a splat, fill matrices with its value."""
        tile = self.tiles[value]
        if isinstance(tile, Splat):
            return mma_matmul.fill(self.context, plan, tile.value)
        if not isinstance(tile, Fragments):
            raise InternalError("sums in registers are needed in matrices")
        return tile

    def engine(self, op: Op) -> Choice:
        """Return the engine that computes a product."""
        plan = self.plans.get(op.result)
        if plan is not None:
            return Choice("matrix", f"the device multiplies matrices of {plan.shape.a}: {plan}")
        return choose_engine(op, self.options, self.caps)

    def transposed_operands(self, product: Op, operand_numbers: Sequence[int]) -> list[bool] | None:
        """For each of these operands of a product, return True if it is transposed while it is staged.

        All of them must be slices. Return None if they can't all be staged as 16-byte vectors (see `shared_operands`).
        """
        plan, accumulators = self.plans.get(product.result), self.layouts.of(product.result)
        operands = [(number, product.operands[number].op) for number in operand_numbers]
        slices = [(number, op) for number, op in operands if op is not None]
        if plan is not None:  # matrices can be loaded from rows along either axis
            return [False] * len(slices) if all(shared_operands.can_pack(op, plan) for _, op in slices) else None
        if not all(shared_operands.suits_accumulators(self.context, op, number, accumulators) for number, op in slices):
            return None
        return [shared_operands.is_transposed(op, number, accumulators) for number, op in slices]

    def stays_in_matrices(self, op: Op, uses: Sequence[Op]) -> bool:
        """True if an operand stays in matrices from its `tile_load`, `op`, to the product that uses it.

        The product must be the only use, and in another region, such as a loop, so that the matrices are used
        repeatedly. Registers must suffice for the operand and the accumulators of all products.
        """
        if len(uses) != 1 or uses[0].operands[:2].count(op.result) != 1 or self.regions[uses[0]] is self.regions[op]:
            return False
        tile, plan, lanes = tile_of(op.result), self.plans[uses[0].result], self.options.subgroup
        # A subgroup holds the rows of A, or the columns of B, of its block of the accumulators.
        blocks = plan.down if op.result is uses[0].operands[0] else plan.across
        operand_bytes = tile.shape[0] * tile.shape[1] * tile.dtype.itemsize // blocks
        plans = [
            self.plans[product.result]
            for product in self.order
            if product.name == "tile_mma" and product.result in self.plans
        ]
        accumulator_bytes = [
            p.matrices_per_subgroup * p.shape.m * p.shape.n * p.accumulator_dtype.itemsize for p in plans
        ]
        return (operand_bytes + sum(accumulator_bytes)) // lanes <= MAX_KEPT_BYTES

    def check_held(self, value: Value) -> None:
        """Raise CompileError if an invocation would hold more elements of a tile than `Options.max_held`."""
        layout = self.layouts.of(value)
        if layout.slots_per_invocation > self.options.max_held:
            raise CompileError(
                f"each of the {self.context.invocations} invocations would hold {layout.slots_per_invocation} elements of "
                f"a tile of "
                f"{' x '.join(map(str, layout.shape))} (up to {self.options.max_held})",
                self.context.builder.loc,
                hint="use a smaller tile or a larger workgroup",
            )

    def only_products(self, value: Value) -> bool:
        """True if all uses of a tile are as operand A or B of products."""
        return all(use.name == "tile_mma" and value is not use.operands[2] for use in self.uses.get(value, ()))

    def is_unchanged(self, op: Op) -> bool:
        """True if the memory of a `tile_load` doesn't change between the load and its uses (rule 2).

        For memory that the kernel writes, this is only known for a single use in the same region, with no write and no
        barrier in between.
        """
        uses = self.uses.get(op.result, [])
        if alias_class(op.operands[0]) not in self.context.written:
            return True
        if len(uses) != 1 or self.regions[uses[0]] is not self.regions[op]:
            return False
        first, last = self.order[op], self.order[uses[0]]
        in_between = (o for o, number in self.order.items() if first < number < last)
        return not any(OPS[o.name].effect in (Effect.WRITE, Effect.READ_WRITE, Effect.SYNC) for o in in_between)


# -- handlers: each lowers one kind of tile operation
def _load(low: Lowering, op: Op) -> None:
    """Lower a `tile_load`: defer it to its product, stage the slice, or load it into registers (rule 2)."""
    context, operands = low.context, low.resolved_operands(op)
    kind = tile_of(op.result)
    if low.only_products(op.result) and low.uses.get(op.result):
        uses = low.uses[op.result]
        choice = low.engine(uses[0])
        same_engine = all(low.engine(use).engine == choice.engine for use in uses)
        same_region = len(uses) == 1 and low.regions[uses[0]] is low.regions[op]
        # The engines that read a deferred slice skip the part of K outside of the array, which is right for zeros only.
        zero_padded = constant_of(op.operands[-1]) == 0
        # The engines "fma" and "matrix" stage a deferred slice at each use, in a loop in each iteration. So several
        # uses, or one in another region, share the slice that is staged here, below. Other engines stage nothing.
        stages_nothing = same_engine and choice.engine not in ("fma", "matrix")
        if zero_padded and low.is_unchanged(op) and (same_region or stages_nothing):
            low.tiles[op.result] = Deferred(op, tuple(operands))
            return
        if same_engine and choice.engine == "matrix" and shared_operands.can_pack(op, low.plans[uses[0].result]):
            (staged,) = shared_operands.stage(context, [(op, operands, label(operands[0]))])
            low.tiles[op.result] = staged
            if low.stays_in_matrices(op, uses):
                context.access(staged.array, "r")
                number = uses[0].operands.index(op.result)
                depth = tile_of(uses[0].operands[0]).shape[1]
                low.tiles[op.result] = mma_matmul.keep(context, staged, low.plans[uses[0].result], number, depth)
                context.release(staged.array)
                context.notes.append(f"{op.loc}: the slice stays in matrices, for a product in a loop")
                return
            context.notes.append(f"{op.loc}: the slice is staged in shared memory once, for {len(uses)} products")
            return
        if same_engine and choice.engine in ("fma", "matrix"):
            is_matrix = choice.engine == "matrix"
            (low.tiles[op.result],) = fma_matmul.stage_slices(
                context, [(op, operands, label(operands[0]))], pad_rows=is_matrix
            )
            context.notes.append(f"{op.loc}: the slice is staged in shared memory once, for {len(uses)} products")
            return
    low.check_held(op.result)
    context.access(operands[0], "r", kind.scope)
    low.tiles[op.result] = memory.load(context, op, operands, low.layouts.of(op.result))
    context.notes.append(f"{op.loc}: tile of {shape_of(kind)} held in registers: {low.layouts.of(op.result)}")


def _store(low: Lowering, op: Op) -> None:
    """Lower a `tile_store`, directly from matrices if the tile is held in them."""
    operands = [resolve(low.replaced, v) for v in op.operands[:-1]]
    source = low.tiles[op.operands[-1]]
    if isinstance(source, Fragments):
        low.context.access(operands[0], "w")

        def through_registers() -> None:
            memory.store(low.context, op, operands, low.in_registers(op.operands[-1]))

        mma_matmul.store(low.context, op, operands, source, tile_of(op.operands[-1]), through_registers)
        return
    tile = low.in_registers(op.operands[-1])
    low.context.access(operands[0], "w", tile.layout.scope)
    memory.store(low.context, op, operands, tile)


def _touch(low: Lowering, op: Op, scope: str) -> None:
    """Prepare the region of a `tile_map` or `tile_each` for inlining: replace the values that it uses by those of the
    lowered code, and record its memory accesses.
    """
    replace_uses(op.regions[0], low.replaced)
    for inner in op.regions[0].walk():
        effect = OPS[inner.name].effect
        if effect in (Effect.WRITE, Effect.READ_WRITE):
            low.context.access(inner.operands[0], "w", scope)
        elif effect == Effect.READ:
            low.context.access(inner.operands[0], "r", scope)


def _map(low: Lowering, op: Op) -> None:
    """Lower a `tile_map`: a splat, a scaling of the rows of accumulators in matrices, or any other elementwise code."""
    splat_value = mma_fragments.splat_of(op.result)
    if splat_value is not None:
        for inner in op.regions[0].ops[:-1]:  # at most constants, one of which may be the value
            low.context.builder.region.ops.append(inner)
        low.tiles[op.result] = Splat(resolve(low.replaced, splat_value))
        return
    plan = low.plans.get(op.result)
    if plan is not None:
        factor = low.in_registers(op.operands[1])
        low.tiles[op.result] = mma_matmul.scale_rows(low.context, low.in_matrices(op.operands[0], plan), factor)
        return
    low.check_held(op.result)
    layout = low.layouts.of(op.result)
    operands = [low.in_registers(v, layout.operand(tile_of(v).shape)) for v in op.operands]
    _touch(low, op, layout.scope)
    low.tiles[op.result] = memory.map_region(low.context, op, layout, operands)


def _each(low: Lowering, op: Op) -> None:
    layout = low.layouts.of(op.operands[0])
    operands = [low.in_registers(v, layout.operand(tile_of(v).shape)) for v in op.operands]
    _touch(low, op, layout.scope)
    memory.run_each(low.context, op, layout, operands)


def _reduce(low: Lowering, op: Op) -> None:
    function = layout_conversion.argument if op.name == "tile_argument" else layout_conversion.reduce
    reduced = function(low.context, op_name(op.attrs["op"]), low.in_registers(op.operands[0]), op.attrs["axis"])
    low.tiles[op.result] = layout_conversion.convert_layout(low.context, reduced, low.layouts.of(op.result))


def _scan(low: Lowering, op: Op) -> None:
    layout = low.layouts.of(op.result)
    low.tiles[op.result] = layout_conversion.scan(
        low.context, op_name(op.attrs["op"]), low.in_registers(op.operands[0], layout), op.attrs["axis"]
    )


def _reshape(low: Lowering, op: Op) -> None:
    low.check_held(op.result)
    low.tiles[op.result] = layout_conversion.reshape(
        low.context, low.in_registers(op.operands[0]), low.layouts.of(op.result)
    )


def _transpose(low: Lowering, op: Op) -> None:
    """Lower a `tile_transpose`: permute the axes of the layout, and reorder the values by the new order of slots."""
    tile, axes = low.in_registers(op.operands[0]), permutation(op)
    layout = tile.layout.permuted(axes)
    slot_numbers = {slot: number for number, slot in enumerate(tile.layout.slots())}
    inverse = [axes.index(a) for a in range(len(axes))]
    values = tuple(tile.values[slot_numbers[tuple(slot[p] for p in inverse)]] for slot in layout.slots())
    low.tiles[op.result] = layout_conversion.convert_layout(
        low.context, Held(layout, values), low.layouts.of(op.result)
    )


def _get(low: Lowering, op: Op) -> None:
    indices = [resolve(low.replaced, v) for v in op.operands[1:]]
    low.replaced[op.result] = layout_conversion.element_at(low.context, low.in_registers(op.operands[0]), indices)


_HANDLERS: dict[OpName, Callable[[Lowering, Op], None]] = {
    "tile_load": _load,
    "tile_store": _store,
    "tile_map": _map,
    "tile_each": _each,
    "tile_reduce": _reduce,
    "tile_argument": _reduce,
    "tile_scan": _scan,
    "tile_reshape": _reshape,
    "tile_transpose": _transpose,
    "tile_get": _get,
    "tile_mma": matmul.multiply,
}
