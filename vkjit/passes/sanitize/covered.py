"""Shared and local arrays that are surely written before they are read, so that no marks are needed.

Enters: the accesses of such an array in a kernel in normal form. Leaves: whether all elements that are read have been written:
by stores that every invocation reaches, in shared arrays together, with a barrier between them and the reads. A store that is
left out because its index is wrong is reported as that. Holds: indices are computed here, for all invocations of a workgroup
and all rounds of the loops around a read, from local ids, constants and counters of loops with constant bounds; whatever else
is in them, or in the way, gives no.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ...ir.core import Op, Region, Value
from ...ir.rewrite import constant_of
from ...ir.types import Scalar
from .tracking import Accesses, array_of

__all__ = ["is_covered"]

_MOST_ROUNDS = 1 << 12
"""Rounds of the loops around a read, times invocations divided by 256, that are computed."""
_LARGEST = 1 << 30
"""Beyond it, integers might wrap."""

Numbers = npt.NDArray[np.int64]
_FUNCTIONS = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum, "max": np.maximum,
    "floordiv": np.floor_divide, "floormod": np.remainder,
}  # fmt: skip


def is_covered(accesses: Accesses, body: Region, local_size: tuple[int, int, int]) -> bool:
    """See the module's docstring."""
    if accesses.atomics or not accesses.stores or not accesses.loads:
        return False
    kind, places = array_of(accesses.root), _places(body)
    private = kind.space == "local"  # an invocation's own: it has to write all by itself
    written: dict[Op, Numbers] = {}
    for store in accesses.stores:
        cells = _cells(store, accesses.root, _Numbers((1, 1, 1) if private else local_size, private))
        if cells is not None:
            written[store] = cells
    for load in accesses.loads:
        chain = places[load]
        rounds = _Numbers(local_size)
        for owner, _, _ in chain:
            if owner is not None and owner.name == "for":
                rounds.enter(owner)
        cells = _cells(load, accesses.root, rounds)
        if cells is None:
            return False
        known = np.zeros(math.prod(kind.shape or ()), dtype=bool)
        for store, targets in written.items():
            if _before(places[store], chain, private=private):
                known[targets] = True
        if not known[cells].all():
            return False
    return True


Place = tuple["Op | None", Region, int]
"""(what holds the region, the region, the position in it of the operation that leads on)"""


def _places(body: Region) -> dict[Op, list[Place]]:
    """Where each operation is, from the outermost region inwards."""
    found: dict[Op, list[Place]] = {}

    def visit(region: Region, owner: Op | None, around: list[Place]) -> None:
        for position, op in enumerate(region.ops):
            found[op] = [*around, (owner, region, position)]
            for inner in op.regions:
                visit(inner, op, found[op])

    visit(body, None, [])
    return found


def _before(store: list[Place], load: list[Place], *, private: bool) -> bool:
    """Whether a store stands in a region around the load, directly or where its index was checked, in front of the load.
    Of shared arrays there is a barrier between them in that region: all invocations of a workgroup run it together.
    """
    while len(store) > 1 and _is_check(store[-1]):
        store = store[:-1]
    _, region, position = store[-1]
    for _, around, reached in load:
        if around is region and position < reached:
            return private or any(op.name == "barrier" for op in region.ops[position:reached])
    return False


def _is_check(place: Place) -> bool:
    """Whether a region is left out only where something is reported."""
    owner, region, _ = place
    if owner is None or owner.name != "if":
        return False
    others = [r for r in owner.regions if r is not region]
    return all(any(op.name == "report" for op in other.ops) for other in others)


def _cells(op: Op, root: Value, numbers: _Numbers) -> Numbers | None:
    """The elements that an access may touch, over all invocations and rounds; None where that isn't known."""
    shape = array_of(root).shape or ()
    if op.operands[0] is not root:
        return None
    total: Numbers = np.zeros((1, 1), dtype=np.int64)
    for extent, value in zip(shape, op.operands[1 : 1 + len(shape)], strict=True):
        index = numbers.of(value)
        if index is None or index.min() < 0 or index.max() >= extent:
            return None
        total = total * extent + index
    return np.unique(total)


@dataclass(slots=True)
class _Numbers:
    """Values of integers for all invocations (second axis) and rounds of the loops around (first axis)."""

    local_size: tuple[int, int, int]
    alone: bool = False
    """Whether local ids count as unknown."""
    counters: dict[Value, Numbers] = field(default_factory=dict)
    rounds: int = 1
    known: dict[Value, Numbers | None] = field(default_factory=dict)

    def enter(self, loop: Op) -> None:
        """Takes the rounds of a loop with constant bounds in; of others, what depends on their counter isn't known."""
        bounds = [constant_of(v) for v in loop.operands[:3]]
        if not all(isinstance(b, int) for b in bounds) or bounds[2] <= 0:
            return
        counter = np.arange(*bounds, dtype=np.int64)
        invocations = self.local_size[0] * self.local_size[1] * self.local_size[2]
        if not len(counter) or self.rounds * len(counter) * max(1, invocations // 256) > _MOST_ROUNDS:
            return
        self.counters = {v: np.tile(held, (len(counter), 1)) for v, held in self.counters.items()}
        self.counters[loop.regions[0].args[0]] = np.repeat(counter, self.rounds)[:, None]
        self.rounds *= len(counter)

    def of(self, value: Value) -> Numbers | None:
        if value not in self.known:
            found = self._of(value)
            if found is not None and max(abs(int(found.min())), abs(int(found.max()))) > _LARGEST:
                found = None
            self.known[value] = found
        return self.known[value]

    def _of(self, value: Value) -> Numbers | None:
        if value in self.counters:
            return self.counters[value]
        op = value.op
        if op is None or not isinstance(value.type, Scalar) or not value.type.dtype.is_integer:
            return None
        if op.name == "const":
            return np.full((1, 1), op.attrs["value"], dtype=np.int64)
        if op.name == "local_id":
            return None if self.alone else self._ids(op.attrs["dim"])
        if op.name == "cast" and value.type.dtype.bits >= 32:
            return self.of(op.operands[0])
        if op.name not in _FUNCTIONS or value.type.dtype.bits < 32:
            return None
        first, second = (self.of(v) for v in op.operands)
        if first is None or second is None or (op.name.startswith("floor") and not second.all()):
            return None
        result: Numbers = _FUNCTIONS[op.name](first, second)
        return result

    def _ids(self, dim: int) -> Numbers:
        x, y, z = self.local_size
        number = np.arange(x * y * z, dtype=np.int64)[None, :]
        return (number % x, number // x % y, number // (x * y))[dim]
