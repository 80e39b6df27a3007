"""Tests of the loop guard against a model of a driver that caps the iterations of a vector of 8 invocations.

Random nests of loops and divergent branches with `break` and `continue` run guarded on the interpreter. If the model's
cap changes a result, the guard must report; far below the cap, results must equal those without the guard.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st

from tests.selection import examples
from vkjit import dtypes
from vkjit.backends.interp import run_module
from vkjit.errors import LoopLimitError
from vkjit.ir.builder import Builder
from vkjit.ir.core import Function, Module, Region, Value
from vkjit.ir.ops import OpName, op_name
from vkjit.ir.types import I32, Array
from vkjit.ir.verify import verify
from vkjit.passes.transforms.loop_guard import LoopGuard

LANES = 8
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Loop:
    """A loop with `trips` iterations in each lane, or a constant trip count for all; a `for` if `counted`."""

    trips: tuple[int, ...]
    counted: bool
    body: tuple[Any, ...]


@dataclass(frozen=True)
class Branch:
    """A branch with its first side taken by `lanes`; `exits` end the sides: "", "break" or "continue"."""

    lanes: tuple[bool, ...]
    sides: tuple[tuple[Any, ...], tuple[Any, ...]]
    exits: tuple[str, str]


def statements(depth: int, inside: bool) -> st.SearchStrategy[tuple[Any, ...]]:
    if depth == 0:
        return st.just(())
    inner = statements(depth - 1, inside)
    lane_trips = st.tuples(*[st.integers(0, 5)] * LANES)
    trips = st.one_of(lane_trips, st.integers(0, 5).map(lambda n: (n,)))
    loop = st.builds(Loop, trips, st.booleans(), statements(depth - 1, True))
    exits = st.sampled_from(["", "", "break", "continue"]) if inside else st.just("")
    masks = st.one_of(st.tuples(*[st.booleans()] * LANES), st.booleans().map(lambda b: (b,) * LANES))
    branch = st.builds(Branch, masks, st.tuples(inner, inner), st.tuples(exits, exits))
    return st.lists(st.one_of(loop, branch), max_size=3).map(tuple)


class Model:
    """Model of the driver: all code runs in order, with an empty mask if no lane takes part.

    `rounds` counts every pass through a loop's body; at `cap` all loops stop. `steps` counts the iterations of
    each lane.
    """

    def __init__(self, cap: int = 1 << 60) -> None:
        self.cap = cap
        self.rounds = 0
        self.steps = np.zeros(LANES, np.int32)

    def block(self, block: Sequence[Any], active: Mask, out: dict[str, Mask]) -> Mask:
        for one in block:
            active = self.loop(one, active) if isinstance(one, Loop) else self.branch(one, active, out)
        return active

    def loop(self, loop: Loop, active: Mask) -> Mask:
        trips = np.resize(np.array(loop.trips), LANES)
        running, turn = active, 0
        while turn == 0 or (running.any() and self.rounds < self.cap):
            running = running & (turn < trips)
            self.steps[running] += 1
            out = {"break": np.zeros(LANES, bool), "continue": np.zeros(LANES, bool)}
            running = self.block(loop.body, running, out) | out["continue"]
            self.rounds += 1
            turn += 1
        return active

    def branch(self, branch: Branch, active: Mask, out: dict[str, Mask]) -> Mask:
        taken = np.array(branch.lanes)
        rest = np.zeros(LANES, bool)
        for side, exit_, mask in zip(branch.sides, branch.exits, (active & taken, active & ~taken), strict=True):
            end = self.block(side, mask, out)
            if exit_:
                out[exit_] = out[exit_] | end
            else:
                rest = rest | end
        return rest


def modelled(program: Sequence[Any], cap: int = 1 << 60) -> Model:
    """Run a program in all lanes and return the model."""
    model = Model(cap)
    model.block(program, np.ones(LANES, bool), {})
    return model


class Compiler:
    """Compiler of the same programs to IR; `data` has a row of trip counts or conditions for each loop or branch."""

    def __init__(self) -> None:
        self.data: list[list[int]] = []
        body = Region([Array(I32, 1, access="in"), Array(I32, 1, access="out")])
        self.build = Builder(body)
        self.lane = self.build.emit("global_id", dim=0)
        self.zero, self.one = (self.build.const(n, dtypes.i32) for n in (0, 1))
        self.body = body

    def module(self, program: Sequence[Any]) -> Module:
        steps = self.block(program, self.zero)
        self.build.op("store", self.body.args[1], self.lane, steps)
        self.build.op("return")
        return Module(Function("k", self.body, [], {"local_size": (LANES, 1, 1)}))

    def number(self, values: Sequence[int]) -> Value:
        row = self.build.index(len(self.data) * LANES)
        self.data.append(list(values))
        return self.build.emit("load", self.body.args[0], self.build.emit("add", row, self.lane))

    def block(self, block: Sequence[Any], steps: Value) -> Value:
        for one in block:
            steps = self.loop(one, steps) if isinstance(one, Loop) else self.branch(one, steps)
        return steps

    def loop(self, loop: Loop, steps: Value) -> Value:
        build = self.build
        single = len(loop.trips) == 1
        trips = build.const(loop.trips[0], dtypes.i32) if single else self.number(loop.trips)
        body = Region([I32, I32])
        with build.at(body):
            turn, inner = body.args
            self.turns.append(turn if not loop.counted else None)
            if not loop.counted:
                self.leave_unless(build.emit("lt", turn, trips), inner)
            inner = self.block(loop.body, build.emit("add", inner, self.one))
            self.exit("continue", inner)
            self.turns.pop()
        if loop.counted:
            return build.op("for", self.zero, trips, self.one, steps, types=[I32], regions=[body]).result
        return build.op("loop", self.zero, steps, types=[I32], regions=[body]).result

    turns: list[Value | None] = []  # noqa: RUF012  (empty again after each program)

    def leave_unless(self, condition: Value, steps: Value) -> None:
        op = self.build.op("if", condition, types=[], regions=[Region(), Region()])
        with self.build.at(op.regions[0]):
            self.build.op("yield")
        with self.build.at(op.regions[1]):
            self.build.op("break", steps)

    def exit(self, name: OpName, steps: Value) -> None:
        turn = self.turns[-1]
        if name == "continue" and turn is not None:
            self.build.op("continue", self.build.emit("add", turn, self.one), steps)
        else:
            self.build.op(name, steps)

    def branch(self, branch: Branch, steps: Value) -> Value:
        build = self.build
        condition = build.emit("ne", self.number([int(b) for b in branch.lanes]), self.zero)
        regions = []
        for side, exit_ in zip(branch.sides, branch.exits, strict=True):
            region = Region()
            with build.at(region):
                inner = self.block(side, steps)
                if exit_:
                    self.exit(op_name(exit_), inner)
                else:
                    build.op("yield", inner)
            regions.append(region)
        return build.op("if", condition, types=[I32], regions=regions).result


def without_dead_ends(block: Sequence[Any]) -> tuple[Any, ...]:
    """Remove the second exit of each branch that leaves on both sides."""
    found: list[Any] = []
    for one in block:
        if isinstance(one, Loop):
            found.append(Loop(one.trips, one.counted, without_dead_ends(one.body)))
        else:
            first, second = (without_dead_ends(side) for side in one.sides)
            exits = (one.exits[0], "") if all(one.exits) else one.exits
            found.append(Branch(one.lanes, (first, second), exits))
    return tuple(found)


def guarded(program: tuple[Any, ...], cap: int, arithmetic: bool) -> tuple[Module, list[npt.NDArray[Any]]]:
    """Return the guarded kernel and its arguments."""
    compiler = Compiler()
    module = compiler.module(program)
    verify(module, "normal")
    module = LoopGuard(cap, LANES, arithmetic, margin=0).run(module)
    verify(module, "normal")
    data = np.array(compiler.data or [[0] * LANES], np.int32).ravel()
    return module, [data, np.zeros(LANES, np.int32)]


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(statements(4, False), st.integers(1, 30), st.booleans())
def test_what_the_driver_cuts_is_reported(program: tuple[Any, ...], short: int, arithmetic: bool) -> None:
    program = without_dead_ends(program)
    model = modelled(program)
    cap = model.rounds - short
    assume(cap > 0 and not np.array_equal(modelled(program, cap).steps, model.steps))
    module, arguments = guarded(program, cap, arithmetic)
    with pytest.raises(LoopLimitError):
        run_module(module, 1, arguments, subgroup_size=LANES)


@settings(max_examples=examples(100), deadline=None)
@given(statements(4, False), st.booleans())
def test_what_is_far_below_the_cap_is_not_reported(program: tuple[Any, ...], arithmetic: bool) -> None:
    """Even in the worst case the guard overcounts only by the vector width and the cost of untaken paths."""
    program = without_dead_ends(program)
    module, arguments = guarded(program, 60000, arithmetic)
    run_module(module, 1, arguments, subgroup_size=LANES)
    np.testing.assert_array_equal(arguments[1], modelled(program).steps)
