"""Tests of removing redundant choices of a single invocation, so that equivalent mutants equal the original."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import vkjit as vk
from vkjit.ir.printer import print_module
from vkjit.ir.verify import verify
from vkjit.testing.generate.usable_types import module_of
from vkjit.testing.mutate import Edit, mutant, mutations
from vkjit.testing.mutate.equivalence import more_barriers
from vkjit.testing.mutate.redundant_choices import without_redundant_choices

X = vk.In[vk.f32, "N"]
Y = vk.Out[vk.f32, "M"]


def _sums(y: Any) -> Any:
    return y.shape[0]


@vk.kernel(groups=_sums, local=64)
def stored_by_one(x: X, y: Y, some: vk.i32):
    total = vk.workgroup().sum(x.get(vk.local_id(0), pad=0))
    if vk.local_id(0) == 0 and some > 3:
        y[vk.group_id(0)] = total


@vk.kernel(groups=_sums, local=64)
def stored_own(x: X, y: Y, some: vk.i32):
    lane = vk.local_id(0)
    if lane == 0:
        y[vk.group_id(0)] = x.get(lane, pad=0)


@vk.kernel(groups=_sums, local=64)
def stored_before(x: X, y: Y, some: vk.i32):
    total = vk.workgroup().sum(x.get(vk.local_id(0), pad=0))
    if vk.local_id(0) == 3:
        y[vk.group_id(0)] = 0.0
    if vk.local_id(0) == 0:
        y[vk.group_id(0)] = total


@vk.kernel(groups=_sums, local=64)
def added(x: X, y: vk.InOut[vk.f32, "M"], some: vk.i32):
    total = vk.workgroup().sum(x.get(vk.local_id(0), pad=0))
    if vk.local_id(0) == 0:
        y[vk.group_id(0)] += total


@vk.kernel(groups=_sums, local=64)
def stored_again(x: X, y: Y, some: vk.i32):
    for i in range(some):
        if vk.local_id(0) == 0:
            y[vk.group_id(0)] = vk.f32(i)


@vk.kernel(groups=_sums, local=64)
def stored_by_half(x: X, y: Y, some: vk.i32):
    if vk.local_id(0) < 32:
        if vk.local_id(0) == 0:
            y[vk.group_id(0)] = vk.f32(some)


@vk.kernel(groups=_sums, local=64)
def through_shared(x: X, y: Y, some: vk.i32):
    held = vk.shared(vk.f32, 1)
    vk.barrier()
    if vk.local_id(0) == 0:
        held[0] = vk.f32(some)
    vk.barrier()
    y[vk.group_id(0)] = held[0]


@vk.kernel(groups=_sums, local=64)
def through_shared_at_once(x: X, y: Y, some: vk.i32):
    held = vk.shared(vk.f32, 1)
    vk.barrier()
    if vk.local_id(0) == 0:
        held[0] = vk.f32(some)
    y[vk.group_id(0)] = held[0]


def _text(kernel: Any) -> str:
    module = without_redundant_choices(module_of(kernel, {}, {"x": 1, "y": 1}, {}))
    verify(module)
    return print_module(module)


def _comparisons(kernel: Any) -> Iterator[Edit]:
    """Yield mutations of the kernel's last comparison: another invocation than 0, or all others."""
    edits = [e for e in mutations(kernel) if str(e) in ("comparison: == -> !=", "off by one: 0 -> 1")]
    last = max(e.line for e in edits if e.kind == "comparison")
    beyond = next(e.start for e in edits if e.kind == "comparison" and e.line == last)
    yield from (e for e in edits if e.line == last and e.start >= beyond)


@pytest.mark.parametrize("kernel", [stored_by_one, through_shared], ids=lambda k: k.name)
def test_which_invocation_stores_the_same_is_no_difference(kernel: Any) -> None:
    edits = list(_comparisons(kernel))
    assert len(edits) == 2
    for edit in edits:
        assert _text(mutant(kernel, edit)).count("local_id") == _text(kernel).count("local_id")
        assert [line for line in _text(kernel).splitlines() if " if " in line or "store" in line] == [
            line for line in _text(mutant(kernel, edit)).splitlines() if " if " in line or "store" in line
        ]


def test_what_is_the_same_for_all_stays_a_condition() -> None:
    (condition,) = [e for e in mutations(stored_by_one) if str(e) == "off by one: 3 -> 4"]
    assert _text(mutant(stored_by_one, condition)) != _text(stored_by_one)


@pytest.mark.parametrize(
    "kernel",
    [stored_own, stored_before, added, stored_again, stored_by_half, through_shared_at_once],
    ids=lambda k: k.name,
)
def test_other_choices_stay(kernel: Any) -> None:
    plain = print_module(module_of(kernel, {}, {"x": 1, "y": 1}, {}))
    assert _text(kernel) == plain


def test_nobody_chosen_is_a_difference() -> None:
    edits = [
        e
        for e in mutations(through_shared)
        if str(e) == "turned condition: vk.local_id(0) == 0 -> not (vk.local_id(0) == 0)"
    ]
    (transposed,) = edits
    never = Edit(
        "never",
        transposed.line,
        transposed.start,
        transposed.end_line,
        transposed.end,
        transposed.before,
        "vk.local_id(0) == 64",
    )
    assert "eq" in _text(mutant(through_shared, never)).partition("barrier")[2]
    assert _text(mutant(through_shared, never)) != _text(through_shared)


def test_more_barriers_are_no_difference_and_fewer_are() -> None:
    one, two = "load\n  barrier\nstore", "barrier\nload\n  barrier\n  barrier\nstore\nbarrier"
    assert more_barriers(one, two) and more_barriers(one, one)
    assert not more_barriers(two, one)
    assert not more_barriers(one, "load\n  barrier\nload\nstore")
    assert not more_barriers(one, "load\n  barrier")
