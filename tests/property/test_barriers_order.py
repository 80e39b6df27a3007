"""Property tests of barrier removal: accesses separated by a barrier before the pass are so after it, on every path.

Kernels are generated from accesses, barriers, loops with constant trip counts and branches on scalars, and are executed
to a trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from hypothesis import given, settings, strategies as st

from tests.selection import examples
from vkjit.ir import BOOL, F32, Array, Builder, Function, Module, Op, Region, Value, verify
from vkjit.ir.rewrite import clone_module, constant_of
from vkjit.passes.transforms.barrier_elimination import RemoveBarriers

CONDITIONS = 3


class Maker:
    """Generator of a kernel body; each access has a unique index, by which the trace identifies it."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        params = [BOOL] * CONDITIONS
        arrays = [Array(F32, 1, access="in", restrict=True), Array(F32, 1, restrict=True)]
        self.body = Region([*params, *arrays], ["a", "b", "c", "read", "written"])
        self.builder = Builder(self.body)
        self.shared = self.builder.op("shared", type=Array(F32, 1, space="shared", shape=(64,))).result
        self.value = self.builder.const(1.0, F32)
        self.accesses = 0

    def make(self) -> Module:
        self.statements(8)
        self.builder.op("return")
        return Module(Function("k", self.body, [], {"local_size": (8, 1, 1)}))

    def statements(self, most: int) -> None:
        for _ in range(self.random.randint(1, most)):
            choice = self.random.randint(0, 9)
            if choice < 4:
                self.builder.op("barrier")
            elif choice < 7 or most <= 2:
                self.access()
            elif choice < 8:
                self.branch(most // 2)
            else:
                self.loop(most // 2)

    def access(self) -> None:
        array = self.random.choice([self.shared, *self.body.args[CONDITIONS:]])
        place = self.builder.index(self.accesses)
        self.accesses += 1
        reads = array is self.body.args[CONDITIONS] or self.random.random() < 0.5
        if reads:
            self.builder.emit("load", array, place)
        else:
            self.builder.op("store", array, place, self.value)

    def branch(self, most: int) -> None:
        sides = [Region(), Region()]
        for side in sides:
            with self.builder.at(side):
                self.statements(most)
                self.builder.op("yield")
        self.builder.op("if", self.random.choice(self.body.args[:CONDITIONS]), types=[], regions=sides)

    def loop(self, most: int) -> None:
        ends = [self.builder.index(number) for number in (0, self.random.randint(0, 3), 1)]
        body = Region([ends[0].type], ["k"])
        with self.builder.at(body):
            self.statements(most)
            self.builder.op("continue")
        self.builder.op("for", *ends, types=[], regions=[body])


def trace(region: Region, truth: dict[Value, bool], shown: set[Value]) -> Iterator[int | None]:
    """Yield the indices of accesses visible to other invocations, in execution order, with None for barriers."""
    for op in region.ops:
        if op.name == "barrier":
            yield None
        elif op.name in ("load", "store") and op.operands[0] in shown:
            yield int(constant_of(op.operands[1]))
        elif op.name == "if":
            yield from trace(op.regions[0 if truth[op.operands[0]] else 1], truth, shown)
        elif op.name == "for":
            for _ in range(constant_of(op.operands[1])):
                yield from trace(op.regions[0], truth, shown)


def gaps(module: Module, truths: tuple[bool, ...]) -> list[tuple[int, bool]]:
    """Pair each access with True if a barrier separates it from the previous access."""
    body = module.kernel.body
    allocated = [op.result for op in body.ops if op.name == "shared"]
    written = {op.operands[0] for op in body.walk() if op.name == "store"}
    shown = {*allocated, *written.intersection(body.args)}
    found: list[tuple[int, bool]] = []
    parted = False
    for event in trace(body, dict(zip(body.args, truths, strict=False)), shown):
        if event is None:
            parted = True
        else:
            found.append((event, parted and bool(found)))
            parted = False
    return found


def barriers(module: Module) -> list[Op]:
    return [op for op in module.kernel.body.walk() if op.name == "barrier"]


@settings(max_examples=examples(200), deadline=None)
@given(seed=st.integers(0, 2**32), truths=st.tuples(*[st.booleans()] * CONDITIONS))
def test_order_stays(seed: int, truths: tuple[bool, ...]) -> None:
    module = Maker(seed).make()
    verify(module, "normal")
    changed = RemoveBarriers().run(clone_module(module))
    verify(changed, "normal")
    assert gaps(changed, truths) == gaps(module, truths)
    assert len(barriers(changed)) <= len(barriers(module))


def test_barriers_go_in_many_of_these_kernels() -> None:
    made = [Maker(seed).make() for seed in range(50)]
    fewer = [len(barriers(RemoveBarriers().run(clone_module(m)))) < len(barriers(m)) for m in made]
    assert sum(fewer) > 25
