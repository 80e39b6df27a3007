"""Tests of the check for reads of uninitialized memory: certain errors are rejected, possibly correct code is not."""

from __future__ import annotations

from types import FunctionType
from typing import Any

import pytest

import vkjit as vk
from vkjit.frontend import ArrayArg, Signature, describe, lower_kernel
from vkjit.passes.analysis.check_written import CheckWritten


@vk.func
def _filled(s: Any) -> Any:
    for i in range(4):
        s[i] = i
    return 0


def written_in_the_round_before(y: vk.Out[vk.i32, "N"]):
    s = vk.local(vk.i32, 4)
    for i in range(4):
        if i > 0:
            y[i] = s[i - 1]
        s[i] = i


def written_perhaps(y: vk.InOut[vk.i32, "N"]):
    s = vk.local(vk.i32, 4)
    if y[0] > 0:
        s[0] = 1
    y[1] = s[0]


def written_by_an_atomic(y: vk.Out[vk.i32, "N"]):
    s = vk.shared(vk.i32, 4)
    vk.atomic.add(s, 0, 1)
    y[1] = s[0]


def written_by_a_function(y: vk.Out[vk.i32, "N"]):
    s = vk.local(vk.i32, 4)
    y[0] = _filled(s)
    y[1] = s[0]


def written_by_the_iteration_before(y: vk.Out[vk.i32, "N"]):
    s = vk.local(vk.i32, 4)
    for i in range(4):
        total = i
        for k in range(i):
            total += s[k]
        s[i] = total
    y[0] = s[3]


def only_measured(y: vk.Out[vk.i32, "N"]):
    s = vk.local(vk.i32, 4)
    y[0] = len(s)


@pytest.mark.parametrize(
    "kernel",
    [
        written_in_the_round_before,
        written_by_the_iteration_before,
        written_perhaps,
        written_by_an_atomic,
        written_by_a_function,
        only_measured,
    ],
    ids=lambda k: k.__name__,
)
def test_what_may_be_right_is_compiled(kernel: FunctionType) -> None:
    module = lower_kernel(describe(kernel), Signature((ArrayArg(vk.i32, 1),), (1, 1, 1)))
    assert CheckWritten().run(module) is module
