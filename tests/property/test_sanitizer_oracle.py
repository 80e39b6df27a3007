"""Tests of race detection on random programs of reads, writes, atomics and barriers, against the definition of a race.

One kernel runs any program, given as data: in each step each invocation does nothing, or reads, writes or atomically
accesses one cell; barriers separate some steps. The oracle has the whole trace and checks every pair of accesses: two
accesses race if they are to one cell by different invocations, at least one is plain and at least one a write, and no
barrier of their workgroup orders them. All values written are different, so that no two writes are equivalent. The
sanitizer must report races exactly if there are any, and each pair that it reports must race.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings, strategies as st

import vkjit as vk
from tests.selection import examples

SIZE, CELLS = 8, 3
NOTHING, READ, WRITE, ADD, LOOK, PUT = range(6)


@vk.kernel(local=SIZE)
def run_shared(
    what: vk.In[vk.i32, "S G T"], where: vk.In[vk.i32, "S G T"], waits: vk.In[vk.i32, "S"], y: vk.Out[vk.i32, "G T"]
):
    """Run the program on shared memory, initially zero."""
    g, t = vk.group_id(0), vk.local_id(0)
    cells = vk.shared(vk.i32, CELLS)
    if t < CELLS:
        cells[t] = 0
    vk.barrier()
    seen = vk.i32(0)
    for s in range(what.shape[0]):
        if waits[s] != 0:
            vk.barrier()
        kind, at = what[s, g, t], where[s, g, t]
        if kind == READ:
            seen += cells[at]
        elif kind == WRITE:
            cells[at] = vk.i32(s * SIZE + t) + 1
        elif kind == ADD:
            vk.atomic.add(cells, at, 1)
        elif kind == LOOK:
            seen += vk.atomic.load(cells, at)
        elif kind == PUT:
            vk.atomic.store(cells, at, 5)
    y[g, t] = seen


@vk.kernel(local=SIZE)
def run_global(
    what: vk.In[vk.i32, "S G T"],
    where: vk.In[vk.i32, "S G T"],
    waits: vk.In[vk.i32, "S"],
    cells: vk.InOut[vk.i32, "C"],
    y: vk.Out[vk.i32, "G T"],
):
    """Run the program on global memory."""
    g, t = vk.group_id(0), vk.local_id(0)
    seen = vk.i32(0)
    for s in range(what.shape[0]):
        if waits[s] != 0:
            vk.barrier()
        kind, at = what[s, g, t], where[s, g, t]
        if kind == READ:
            seen += cells[at]
        elif kind == WRITE:
            cells[at] = vk.i32((s * what.shape[1] + g) * SIZE + t) + 1
        elif kind == ADD:
            vk.atomic.add(cells, at, 1)
        elif kind == LOOK:
            seen += vk.atomic.load(cells, at)
        elif kind == PUT:
            vk.atomic.store(cells, at, 5)
    y[g, t] = seen


@dataclass(frozen=True)
class Step:
    """One access: its invocation, the barrier interval of its workgroup, its cell and kind."""

    group: int
    local: int
    epoch: int
    cell: int
    kind: int

    def races(self, other: Step, *, shared: bool) -> bool:
        """True if two accesses race by the definition above."""
        if self.cell != other.cell or (self.group, self.local) == (other.group, other.local):
            return False
        if self.group != other.group and shared:
            return False
        if self.group == other.group and self.epoch != other.epoch:
            return False
        plain = self.kind in (READ, WRITE) or other.kind in (READ, WRITE)
        changes = self.kind in (WRITE, ADD, PUT) or other.kind in (WRITE, ADD, PUT)
        return plain and changes


@st.composite
def programs(draw: st.DrawFn, groups: int) -> tuple[Any, Any, Any]:
    """Draw operations, cells and barriers. Few accesses, so that many programs have no race."""
    steps = draw(st.integers(1, 5))
    shape = (steps, groups, SIZE)
    what, where = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    kinds = draw(
        st.sampled_from([[READ, WRITE], [READ, WRITE, ADD], [READ, ADD, LOOK], [WRITE, ADD, LOOK, PUT], [READ]])
    )
    for _ in range(draw(st.integers(0, 6))):
        place = (draw(st.integers(0, steps - 1)), draw(st.integers(0, groups - 1)), draw(st.integers(0, SIZE - 1)))
        what[place], where[place] = draw(st.sampled_from(kinds)), draw(st.integers(0, CELLS - 1))
    if draw(st.booleans()):  # all invocations do the same in one step
        step = draw(st.integers(0, steps - 1))
        what[step], where[step] = draw(st.sampled_from(kinds)), draw(st.integers(0, CELLS - 1))
    waits = np.array(draw(st.lists(st.integers(0, 1), min_size=steps, max_size=steps)), np.int32)
    return what, where, waits


def trace(what: Any, where: Any, waits: Any) -> list[Step]:
    """Return all accesses of a program."""
    epochs = np.cumsum(waits)
    places = np.argwhere(what != NOTHING).tolist()
    return [Step(g, t, int(epochs[s]), int(where[s, g, t]), int(what[s, g, t])) for s, g, t in places]


def judge(reports: list[vk.SanitizerReport], program: tuple[Any, Any, Any], *, shared: bool) -> None:
    """Compare the reports with the definition."""
    steps = trace(*program)
    racing = [(a, b) for a, b in itertools.combinations(steps, 2) if a.races(b, shared=shared)]
    assert bool(reports) == bool(racing), (reports, racing[:1])
    pairs = {frozenset(((a.group, a.local), (b.group, b.local))) for a, b in racing}
    for report in reports:
        assert report.kind == ("race_shared" if shared else "race_global")
        assert report.invocation is not None and report.other is not None
        sides = [report.invocation, report.other.invocation]
        assert frozenset((side.group_id[0], side.local_id[0]) for side in sides) in pairs
        cell = report.values[0]
        assert any(a.cell == cell for a, _ in racing)


def run_on(device: Any, program: tuple[Any, Any, Any], *, shared: bool) -> None:
    groups = program[0].shape[1]
    out = np.zeros((groups, SIZE), np.int32)
    if shared:
        reports = vk.testing.sanitize(run_shared, *program, out, groups=groups, device=device)
    else:
        cells = np.zeros(CELLS, np.int32)
        reports = vk.testing.sanitize(run_global, *program, cells, out, groups=groups, device=device)
    judge(reports, program, shared=shared)


SETTINGS = settings(
    max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@SETTINGS
@given(programs(2))
def test_shared_memory(device: Any, program: tuple[Any, Any, Any]) -> None:
    run_on(device, program, shared=True)


@SETTINGS
@given(programs(3))
def test_global_memory(device: Any, program: tuple[Any, Any, Any]) -> None:
    run_on(device, program, shared=False)
