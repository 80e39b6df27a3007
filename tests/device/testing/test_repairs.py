# mypy: disable-error-code="arg-type, assignment, index, no-untyped-def, operator, valid-type"
"""Suggested fixes of kernels: grids, sizes and indices, and fixes that leave only NaN and infinities wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vkjit as vk

pytestmark = pytest.mark.usefixtures("long_repair_search")

SETTINGS: dict[str, Any] = {"devices": "interpreter", "seed": 1}


def failure_of(kernel: Any, reference: Any = None, **settings: Any) -> vk.testing.CheckFailure:
    with pytest.raises(vk.testing.CheckFailure) as caught:
        vk.testing.check_kernel(kernel, reference, **SETTINGS, **settings)
    return caught.value


def change_of(failure: vk.testing.CheckFailure) -> tuple[str, str]:
    assert failure.mend is not None, failure
    return failure.mend.edit.before, failure.mend.edit.after


@vk.kernel(groups=lambda x: x.shape[0] // 32, local=32)
def a_group_short(x: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "N"]):
    y.put(vk.global_id(0), x.get(vk.global_id(0), pad=0))


@vk.kernel(groups=lambda x: (vk.cdiv(x.shape[0], 8), vk.cdiv(x.shape[1], 8)), local=(8, 8))
def axes_turned(x: vk.In[vk.i32, "M N"], y: vk.Out[vk.i32, "M N"]):
    i, j = vk.global_id(1), vk.global_id(0)
    y.put(i, j, x.get(i, j, pad=0))


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], 32), local=32)
def neighbours(x: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "N"]):
    held, lane, i = vk.shared(vk.i32, 34), vk.local_id(0), vk.global_id(0)
    held[lane + 1] = x.get(i, pad=0)
    if lane == 0:
        held[0] = x.get(i - 1, pad=0)
        held[33] = x.get(i + 34, pad=0)
    vk.barrier()
    y.put(i, held[lane] + held[lane + 2])


def neighbours_by_hand(x: Any) -> Any:
    padded = np.pad(x, 1)
    return padded[:-2] + padded[2:]


@vk.kernel(over="y")
def by_columns(x: vk.In[vk.i32, "M N"], s: vk.In[vk.i32, "M"], t: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "M N"]):
    i, j = vk.index()
    y[i, j] = x[i, j] + s[i] * t[vk.min(i, t.shape[0] - 1)]


@vk.kernel(over="y")
def last_largest(x: vk.In[vk.f32, "R C"], y: vk.Out[vk.i32, "R"]):
    r = vk.global_id(0)
    best, at = x[r, 0], vk.i32(0)
    for c in range(1, x.shape[1]):
        if x[r, c] >= best:
            best, at = x[r, c], vk.i32(c)
    y[r] = at


@vk.kernel(over="y")
def halves(x: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "N"]):
    low, high = vk.i32(0), vk.i32(8)
    while low < high:
        middle = (low + high) // 2
        if middle < x[vk.global_id(0)]:
            low = middle
        else:
            high = middle
    y[vk.global_id(0)] = low


@vk.kernel(over="x")
def unwritten(x: vk.In[vk.i32, "N"], y: vk.InOut[vk.i32, "N"], z: vk.InOut[vk.i32, "N"]):
    y[vk.global_id(0)] = x[vk.global_id(0)]


@vk.func
def shifted(value: Any) -> Any:
    return value - 1


@vk.func
def twice_shifted(value: Any) -> Any:
    return 2 * shifted(value)


@vk.kernel(over="y")
def through_functions(x: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "N"]):
    y[vk.global_id(0)] = twice_shifted(x[vk.global_id(0)])


def test_a_change_of_a_device_function() -> None:
    failure = failure_of(through_functions, lambda x: 2 * x + 2)
    assert change_of(failure) == ("-", "+") and failure.mend is not None
    line = Path(__file__).read_text(encoding="utf-8").splitlines()[failure.mend.loc.line - 1]
    assert line == "    return value - 1" and failure.mend.loc.file == __file__


def test_a_workgroup_more() -> None:
    failure = failure_of(a_group_short, lambda x: x)
    assert failure.kind == "unwritten" and failure.dims == {"N": 1}
    assert change_of(failure) == ("x.shape[0] // 32", "x.shape[0] // 32 + 1")
    assert (
        "x.shape[0] // 32 + 1" in str(failure)
        and failure.lines[0].line == a_group_short.spec.fn.__code__.co_firstlineno
    )


def test_axes_of_a_grid_the_other_way_round() -> None:
    before, after = change_of(failure_of(axes_turned, lambda x: x))
    assert before == "(vk.cdiv(x.shape[0], 8), vk.cdiv(x.shape[1], 8))"
    assert after == "(vk.cdiv(x.shape[1], 8), vk.cdiv(x.shape[0], 8))"


def test_a_size_that_the_kernel_knows() -> None:
    assert change_of(failure_of(neighbours, neighbours_by_hand)) == ("34", "32")


def test_another_index() -> None:
    settings = {"dims": {"M": (0, 40), "N": (1, 40)}}
    found = failure_of(by_columns, lambda x, s, t: x + s[:, None] * t, **settings)
    assert change_of(found) == ("i", "j")


def test_what_is_right_without_nan() -> None:
    failure = failure_of(last_largest, lambda x: x.argmax(axis=1).astype(np.int32), dims={"C": (1, None)})
    assert change_of(failure) == (">=", ">")
    assert failure.mend is not None and failure.mend.finite
    assert "all inputs without NaN and infinities that were tried come out right" in str(failure)


@pytest.mark.slow
def test_a_loop_without_end_is_found(tmp_path: Any) -> None:
    failure = failure_of(halves, lambda x: np.clip(x, 0, 8), elements={"x": 3}, dims={"N": 1})
    assert failure.reports[0].kind == "loop_limit" and "checks='loops'" in failure.script


def test_an_output_that_nothing_writes_is_called_so() -> None:
    failure = failure_of(unwritten, lambda x, y, z: {"y": x, "z": x})
    assert "nothing in the kernel writes z" in str(failure)
