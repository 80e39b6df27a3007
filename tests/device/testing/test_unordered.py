# mypy: disable-error-code="arg-type, assignment, index, no-untyped-def, operator, valid-type"
"""Property tests of kernels with unordered outputs, with properties instead of a reference, or with ignored
outputs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit.testing.compare.unordered import aligned, unordered_of

BLOCKS: Any = lambda x: vk.cdiv(x.shape[0], 64)  # noqa: E731  a lambda, as in kernel decorators
INPUTS: dict[str, Any] = {"elements": {"count": 0}, "max_examples": 16, "seed": 3}


@vk.kernel(groups=BLOCKS, local=64)
def positives(x: vk.In[vk.f32, "N"], count: vk.InOut[vk.i32, "1"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    if i < x.shape[0]:
        if x[i] > 0.0:
            y[vk.atomic.add(count, 0, 1)] = x[i]


@vk.kernel(groups=BLOCKS, local=64)
def positives_but_one(x: vk.In[vk.f32, "N"], count: vk.InOut[vk.i32, "1"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    if i < x.shape[0]:
        if x[i] > 0.0:
            y[vk.atomic.add(count, 0, 1)] = x[i] if i != 3 else 0.25


@vk.kernel(groups=BLOCKS, local=64)
def one_too_few(x: vk.In[vk.f32, "N"], count: vk.InOut[vk.i32, "1"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    if i < x.shape[0] and i != 2:
        if x[i] > 0.0:
            y[vk.atomic.add(count, 0, 1)] = x[i]


@vk.kernel(groups=BLOCKS, local=64)
def with_places(
    x: vk.In[vk.i32, "N"], count: vk.InOut[vk.u32, "1"], place: vk.Out[vk.i32, "N"], value: vk.Out[vk.i32, "N"]
):
    i = vk.global_id(0)
    if i < x.shape[0]:
        if x[i] > 0:
            k = vk.atomic.add(count, 0, 1)
            place[k] = vk.i32(i)
            value[k] = x[i]


@vk.kernel(groups=BLOCKS, local=64)
def shuffled(x: vk.In[vk.f32, "N 2"], count: vk.InOut[vk.u32, "1"], y: vk.Out[vk.f32, "N 2"]):
    i = vk.global_id(0)
    if i < x.shape[0]:
        k = vk.atomic.add(count, 0, 1)
        y[k, 0] = x[i, 0]
        y[k, 1] = x[i, 1]


def kept(x: Any, count: Any) -> dict[str, Any]:
    return {"count": count + (x > 0).sum(), "y": x[x > 0]}


def test_rows_in_any_order_are_right(device: Any) -> None:
    vk.testing.check_kernel(positives, kept, devices=["interpreter", device], unordered={"y": "count"}, **INPUTS)
    vk.testing.check_kernel(positives, devices=["interpreter", device], unordered={"y": "count"}, **INPUTS)
    vk.testing.check_kernel(
        shuffled, lambda x, count: {"y": x}, devices=["interpreter", device], unordered="y", **INPUTS
    )


def test_without_it_order_is_taken_for_a_mistake_and_the_way_out_is_shown() -> None:
    with pytest.raises(vk.testing.CheckFailure) as caught:
        vk.testing.check_kernel(shuffled, lambda x, count: {"y": x[::-1]}, devices="interpreter", **INPUTS)
    assert "help: y holds the same rows in another order; if that isn't specified, say so: unordered='y'" in str(
        caught.value
    )


def test_a_wrong_row_is_found_among_right_ones(tmp_path: Path) -> None:
    with pytest.raises(vk.testing.CheckFailure) as caught:
        vk.testing.check_kernel(positives_but_one, kept, devices="interpreter", unordered={"y": "count"}, **INPUTS)
    failure = caught.value
    assert (failure.array, failure.found, failure.dims) == ("y", 0.25, {"N": 4})
    assert failure.bad == 1 and failure.arguments["x"].tolist() == [0, 0, 0, 1]
    path = failure.write_script(tmp_path / "failure.py")
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)
    assert "AssertionError" in done.stderr, done.stderr


def test_too_few_rows_show_in_the_counter() -> None:
    with pytest.raises(vk.testing.CheckFailure) as caught:
        vk.testing.check_kernel(
            one_too_few, lambda x, count: {"y": x[x > 0]}, devices="interpreter", unordered={"y": "count"}, **INPUTS
        )
    assert (caught.value.array, caught.value.found, caught.value.expected) == ("count", 0, 1)
    assert caught.value.dims == {"N": 3}


def test_rows_that_belong_together() -> None:
    def right(x: Any, count: Any) -> dict[str, Any]:
        places = np.flatnonzero(x > 0)
        return {"count": count + len(places), "place": places, "value": x[places]}

    def exchanged(x: Any, count: Any) -> dict[str, Any]:
        return {**right(x, count), "value": x[x > 0][::-1]}

    together: dict[str, Any] = {"unordered": {("place", "value"): "count"}, "devices": "interpreter", **INPUTS}
    vk.testing.check_kernel(with_places, right, **together)
    with pytest.raises(vk.testing.CheckFailure) as caught:
        vk.testing.check_kernel(with_places, exchanged, **together)
    assert caught.value.array == "value" and caught.value.dims == {"N": 2}
    apart: dict[str, Any] = {"unordered": {"place": "count", "value": "count"}}
    vk.testing.check_kernel(with_places, exchanged, **{**together, **apart})


@pytest.mark.parametrize(
    "reference",
    [lambda x, count: {"count": count + (x > 0).sum()}, lambda x, count: (count + (x > 0).sum(), None)],
    ids=["dictionary", "none"],
)
def test_nothing_is_asked_of_outputs_that_the_reference_leaves_out(device: Any, reference: Any) -> None:
    vk.testing.check_kernel(positives, reference, devices=["interpreter", device], **INPUTS)


def as_they_were(x: Any, count: Any, y: Any, before: Any) -> None:
    assert before["count"][0] == 0
    assert sorted(y[: count[0]]) == sorted(x[x > 0])


def test_properties_stand_in_for_a_reference(device: Any) -> None:
    settings: dict[str, Any] = {"properties": as_they_were, "partial": True, "special": False, **INPUTS}
    vk.testing.check_kernel(positives, devices=["interpreter", device], **settings)


def test_a_property_that_does_not_hold_is_a_failure() -> None:
    settings: dict[str, Any] = {"properties": as_they_were, "partial": True, "special": False, **INPUTS}
    with pytest.raises(vk.testing.CheckFailure) as caught:
        vk.testing.check_kernel(positives_but_one, devices="interpreter", **settings)
    assert caught.value.kind == "property" and caught.value.dims == {"N": 4}
    assert "the property as_they_were doesn't hold: assert " in str(caught.value)


def test_a_property_may_give_false() -> None:
    def few(count: Any) -> bool:
        return bool(count[0] < 2)

    with pytest.raises(vk.testing.CheckFailure, match="the property few doesn't hold") as caught:
        vk.testing.check_kernel(positives, devices="interpreter", properties=[few], partial=True, **INPUTS)
    assert caught.value.dims == {"N": 2}


@pytest.mark.parametrize("given", ["x", ["y", "y"], {"y": "y"}, {"y": "x"}, 3, [()]])
def test_what_is_no_output_is_refused(given: Any) -> None:
    with pytest.raises(vk.ArgumentError, match="unordered: "):
        vk.testing.check_kernel(positives, kept, devices="interpreter", unordered=given)


def test_equal_rows_are_put_beside_each_other_and_the_rest_beside_the_nearest() -> None:
    found = np.array([[3, 1], [np.nan, 2], [1, 1], [1, 1], [8, 8]], np.float32)
    expected = np.array([[1, 1], [9, 9], [3, 1], [1, 1.5], [np.nan, 2]])
    (placed,) = aligned([found], [expected], [vk.f32])
    np.testing.assert_array_equal(placed, [[3, 1], [np.nan, 2], [1, 1], [1, 1.5], [9, 9]])
    names = unordered_of(positives.spec, {"count": ["count"], "y": ["y"]}, {"y": "count"})
    assert [(g.names, g.counter) for g in names] == [(("y",), "count")]
