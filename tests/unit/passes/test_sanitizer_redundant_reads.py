# mypy: disable-error-code="no-untyped-call"
"""Tests of checks that the sanitizer removes: repeated reads, checks implied by a loop's first and last iteration."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit.backends.interp.runtime.device import InterpreterDevice
from vkjit.ir.parser import parse_module
from vkjit.passes.sanitizer.redundant_reads import repeated_reads


def repeated(body: str) -> list[int]:
    """Return the numbers of the loads that repeat others; all loads get the same source location."""
    text = (
        "kernel @k(%x: array<f32, 1, in>, %y: array<f32, 1, out>) attrs {local_size = (8, 1, 1)} {\n"
        "  %i = local_id {dim = 0} : index\n  %one = const 1 : index\n  %two = const 2 : index\n"
        "  %j = add %i, %one : index\n  %flag = lt %i, %two : bool\n"
        f"{body}\n  return\n}}\n"
    )
    module = parse_module(text)
    loads = [op for op in module.kernel.body.walk() if op.name == "load"]
    for op in loads:
        op.loc = loads[0].loc
    found = repeated_reads(module.kernel.body)
    return [number for number, op in enumerate(loads) if op in found]


def test_indices_that_are_made_alike_are_one() -> None:
    assert repeated("%k = add %i, %one : index\n%a = load %x, %j : f32\n%b = load %x, %k : f32") == [1]
    assert repeated("%k = add %i, %two : index\n%a = load %x, %j : f32\n%b = load %x, %k : f32") == []


def test_a_barrier_begins_anew() -> None:
    assert repeated("%a = load %x, %i : f32\nbarrier\n%b = load %x, %i : f32\n%c = load %x, %i : f32") == [2]


def test_what_may_not_have_run_doesnt_count() -> None:
    branch = "if %flag {\n%a = load %x, %i : f32\nyield\n} else {\nyield\n}\n%b = load %x, %i : f32"
    assert repeated(branch) == []
    assert repeated(f"%c = load %x, %i : f32\n{branch}") == [1, 2]


@pytest.mark.parametrize(("inside", "expected"), [("", [1]), ("barrier\n", [])])
def test_rounds_of_loops_with_barriers_dont_begin_in_the_epoch_before(inside: str, expected: list[int]) -> None:
    loop = f"for %one, %two, %one (%n: index) {{\n%a = load %x, %i : f32\n{inside}continue\n}}"
    assert repeated(f"%c = load %x, %i : f32\n{loop}") == expected


def test_places_of_the_source_are_told_apart() -> None:
    text = "kernel @k(%x: array<f32, 1, in>) attrs {local_size = (8, 1, 1)} {\n  %i = local_id {dim = 0} : index\n"
    module = parse_module(text + "  %a = load %x, %i : f32\n  %b = load %x, %i : f32\n  return\n}\n")
    first, second = [op for op in module.kernel.body.walk() if op.name == "load"]
    second.loc = type(second.loc)(second.loc.file, second.loc.line + 100)
    assert first.loc != second.loc and repeated_reads(module.kernel.body) == set()


@vk.func
def taken(x, at):
    return x[at]


@vk.kernel(local=8)
def sums_calls(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "M"], many: vk.i32):
    i = vk.global_id(0)
    total = vk.f32(0)
    for k in range(many):
        total += taken(x, i * 4 + k)
    y[i] = total


def devices() -> list[Any]:
    found: list[Any] = [InterpreterDevice()]
    for name in ("cpu", "llvmpipe"):
        try:
            found.append(vk.device(name))
        except vk.VkjitError:
            continue
    return found


@pytest.mark.parametrize("checks", ["bounds", "bounds,races"])
def test_checks_in_front_of_loops_know_what_calls_access(checks: str) -> None:
    x = np.arange(32, dtype=np.float32)
    for device in devices():
        y = np.zeros(8, np.float32)
        given: dict[str, Any] = {"groups": 1, "device": device, "checks": checks}
        assert vk.testing.sanitize(sums_calls, x, y, 4, **given) == []
        np.testing.assert_array_equal(y, x.reshape(8, 4).sum(axis=1))
        (report,) = vk.testing.sanitize(sums_calls, x, y, 5, **given)
        assert (report.kind, report.values) == ("out_of_bounds", (32, 32))
        np.testing.assert_array_equal(y[:7], [x[4 * n : 4 * n + 5].sum() for n in range(7)])


@vk.kernel(local=64)
def reads_twice(y: vk.Out[vk.f32, "N"]):
    lane = vk.local_id(0)
    row = vk.shared(vk.f32, 65)
    row[lane] = vk.f32(lane)
    if lane == 0:
        row[64] = 0.0
    vk.barrier()
    total = vk.f32(0)
    for _ in vk.unroll(3):
        total += row[lane + 1]
    row[lane] = total
    vk.barrier()
    y[lane] = row[lane]


def test_reads_that_repeat_one_still_race_with_writes() -> None:
    for device in devices():
        y = np.zeros(64, np.float32)
        (report,) = vk.testing.sanitize(reads_twice, y, groups=1, device=device, checks="races")
        assert report.kind == "race_shared" and report.other is not None
