# mypy: disable-error-code="arg-type, assignment, index, no-untyped-def, operator, valid-type"
"""Suggestions in failures are backed by evidence: the argument that causes the failure, a fix that is verified."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkjit as vk

pytestmark = pytest.mark.usefixtures("long_repair_search")

SETTINGS: dict[str, Any] = {"devices": "interpreter", "seed": 2}


@vk.kernel(over="y")
def gathered(a: vk.In[vk.i32, "N"], at: vk.In[vk.i32, "N"], x: vk.In[vk.f32, "V"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = x[at[i]] + vk.f32(a[i])


@vk.kernel(over="y")
def next_one(a: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "N"]):
    i = vk.global_id(0)
    y[i] = a[i] if a[i] <= 0 else a[i + 1]


@vk.kernel(over="y")
def divided(a: vk.In[vk.i32, "N"], by: vk.In[vk.i32, "N"], more: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "N"]):
    i = vk.global_id(0)
    y[i] = a[i] // by[i] + more[i]


@vk.kernel(over="y")
def rectified(a: vk.In[vk.f32, "N"], b: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"], z: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = a[i]
    z[i] = b[i] if b[i] > 0.0 else 0.0


@vk.kernel(over="y")
def ends(x: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "2"]):
    last = vk.i32(x.shape[0]) - 1
    y[vk.global_id(0)] = x[last] if vk.global_id(0) == 1 else x[0]


@vk.kernel(over="y")
def subtracted(a: vk.In[vk.f32, "N"], b: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = a[i] - b[i]


@vk.kernel(over="y")
def flat_pick(x: vk.In[vk.f32, "R C"], row: vk.In[vk.i32, "N"], column: vk.In[vk.i32, "N"], y: vk.Out[vk.f32, "N"]):
    n = vk.global_id(0)
    columns = vk.i32(x.shape[1])
    flat = row[n] * columns + column[n]
    y[n] = x[flat // columns, flat % columns]


@vk.kernel(groups=4, local=64)
def last_of_some_workgroup(a: vk.In[vk.f32, "256"], y: vk.InOut[vk.f32, "1"]):
    if vk.local_id(0) == 63:
        vk.atomic.exchange(y, 0, a[vk.global_id(0)])


def failure_of(kernel: Any, reference: Any = None, **settings: Any) -> vk.testing.CheckFailure:
    with pytest.raises(vk.testing.CheckFailure) as caught:
        vk.testing.check_kernel(kernel, reference, **SETTINGS, **settings)
    return caught.value


def test_an_index_is_told_from_other_integers() -> None:
    empty = failure_of(gathered, lambda a, at, x: x[at] + a)
    assert empty.hint == "at may be any integer; if it is an index, say so: elements={'at': (0, 'V-1')}"
    some = failure_of(gathered, lambda a, at, x: x[at] + a, dims={"V": (1, None)})
    assert some.hint == empty.hint and some.dims == {"N": 1, "V": 1}


def test_a_divisor_is_told_from_other_integers() -> None:
    failure = failure_of(divided, lambda a, by, more: a // by + more)
    assert failure.hint == "by may be zero; if that is not meant, say so: elements={'by': (1, 100)}"


def test_nan_is_blamed_where_it_stands() -> None:
    failure = failure_of(rectified, lambda a, b: (a, np.maximum(b, 0)))
    assert failure.array == "z" and failure.hint.startswith("b holds NaN or an infinity;")


@pytest.mark.parametrize(
    ("kernel", "reference", "settings"),
    [
        (next_one, lambda a: a, {}), (ends, lambda x: x[[0, -1]], {"dims": {"N": (1, None)}}),
        (subtracted, lambda a, b: a + b, {}),
    ],
    ids=lambda value: getattr(value, "name", ""),
)  # fmt: skip
def test_inputs_that_are_not_to_blame_are_left_alone(kernel: Any, reference: Any, settings: Any) -> None:
    assert failure_of(kernel, reference, **settings).hint == ""


def test_a_change_is_suggested_where_a_reference_confirms_it() -> None:
    mended = failure_of(subtracted, lambda a, b: a + b).mend
    assert mended is not None and (mended.edit.before, mended.edit.after) == ("-", "+")


def test_nothing_is_suggested_where_schedules_disagree() -> None:
    """A kernel that writes nothing agrees with itself, which is no evidence."""
    failure = failure_of(last_of_some_workgroup)
    assert failure.kind == "disagreement" and failure.mend is None and failure.hint == ""
    assert failure_of(subtracted, lambda a, b: a + b).kind == "reference"


def test_without_a_reference_only_changes_that_leave_right_results_are_suggested() -> None:
    reads_past_the_end = failure_of(next_one)
    assert reads_past_the_end.reports[0].kind == "out_of_bounds" and reads_past_the_end.mend is None
    indices = {"row": (0, "R-1"), "column": (0, "C-1")}
    overflows = failure_of(flat_pick, dims={"R": (0, 2**31 - 1), "C": (1, 2**31 - 1)}, elements=indices)
    assert overflows.mend is not None and overflows.mend.edit.after == "vk.i64(row[n]) * vk.i64(columns)"


@vk.kernel(groups=1, local=64)
def pairs_of_subgroups(x: vk.In[vk.i32, "64"], y: vk.Out[vk.i32, "1"]):
    part, lane = vk.shared(vk.i32, 64), vk.local_id(0)
    part[lane] = vk.subgroup().sum(x[lane])
    vk.barrier()
    if lane == 0:
        y[0] = part[0] + part[32]


@vk.kernel(groups=1, local=64)
def half_a_sum(x: vk.In[vk.i32, "64"], y: vk.Out[vk.i32, "1"]):
    total, lane = vk.subgroup().sum(x[vk.local_id(0)]), vk.local_id(0)
    if lane == 0:
        y[0] = total


def test_the_size_of_subgroups_is_told_where_it_makes_the_difference() -> None:
    def total(x: Any) -> Any:
        return x.sum(keepdims=True)

    with pytest.raises(vk.testing.CheckFailure) as caught:
        vk.testing.check_kernel(pairs_of_subgroups, total, **SETTINGS)
    size = caught.value.schedule.subgroup_size
    assert f"subgroups have {size} invocations here, and with 32 the same input comes out right" in caught.value.hint
    with pytest.raises(vk.testing.CheckFailure) as caught:
        vk.testing.check_kernel(half_a_sum, total, **SETTINGS)
    assert caught.value.hint == ""


@vk.kernel(over="y")
def squared_halves(x: vk.In[vk.f16, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    square = x[i] * x[i]
    y[i] = vk.f32(square) + 1.0


def test_the_operation_that_overflows_is_named() -> None:
    with pytest.raises(vk.testing.CheckFailure) as caught:
        vk.testing.check_kernel(squared_halves, lambda x: x * x + 1, special=False, **SETTINGS)
    failure = caught.value
    first = squared_halves.spec.fn.__code__.co_firstlineno
    assert np.isinf(failure.found) and np.isfinite(failure.expected)
    assert [loc.line - first for loc in failure.origin.nonfinite_origins] == [3]
    assert "becomes infinite or NaN here" in str(failure) and failure.origin.nonfinite_origins[0] in failure.lines
