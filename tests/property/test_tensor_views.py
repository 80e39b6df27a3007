"""Property tests of chains of views on random tensors: their contents and results of operations equal NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import vkjit as vk
from tests.selection import examples

QUICK = settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
SIZES = st.integers(0, 5)
SHAPES = st.lists(SIZES, max_size=4).map(tuple)


@st.composite
def indices(draw: Any, shape: tuple[int, ...]) -> Any:
    """Draw an index of ints, slices, None and an ellipsis that is valid for the shape."""
    items: list[Any] = []
    for extent in shape[: draw(st.integers(0, len(shape)))]:
        if draw(st.booleans()) or extent == 0:
            items.append(draw(st.slices(extent)))
        else:
            items.append(draw(st.integers(-extent, extent - 1)))
    if draw(st.booleans()):
        items.insert(draw(st.integers(0, len(items))), None)
    if draw(st.booleans()):
        items.append(Ellipsis)
    return tuple(items)


@st.composite
def chains(draw: Any) -> tuple[tuple[int, ...], list[tuple[str, Any]]]:
    """Draw a shape and steps that are each valid for the result of the steps before."""
    shape = draw(SHAPES)
    shadow = np.zeros(shape)
    steps: list[tuple[str, Any]] = []
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["index", "permute", "reshape", "expand", "flip"]))
        if kind == "index":
            argument: Any = draw(indices(shadow.shape))
        elif kind == "permute":
            argument = draw(st.permutations(range(shadow.ndim)))
        elif kind == "reshape":
            argument = draw(st.sampled_from([(-1,), (1, *shadow.shape), (*shadow.shape, 1)])) if shadow.size else (0,)
        elif kind == "expand":
            argument = (draw(st.integers(1, 3)), *shadow.shape)
        else:
            argument = draw(st.integers(0, shadow.ndim - 1)) if shadow.ndim else None
        steps.append((kind, argument))
        shadow = apply(shadow, kind, argument)
    return shape, steps


def apply(x: Any, kind: str, argument: Any) -> Any:
    ours = isinstance(x, vk.Tensor)
    if kind == "index":
        return x[argument]
    if kind == "permute":
        return (x.permute(argument) if ours else x.transpose(argument)) if argument else x
    if kind == "reshape":
        return x.reshape(argument)
    if kind == "expand":
        return x.expand(argument) if ours else np.broadcast_to(x, argument)
    if argument is None:
        return x
    transposed = (*[slice(None)] * argument, slice(None, None, -1))
    return x[transposed]


@given(chain=chains())
@QUICK
def test_chains_of_views(device: Any, chain: Any) -> None:
    shape, steps = chain
    values = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    ours, theirs = vk.tensor(values), values
    for kind, argument in steps:
        ours, theirs = apply(ours, kind, argument), apply(theirs, kind, argument)
    assert ours.shape == theirs.shape
    assert np.array_equal(ours.numpy(), theirs)
    assert np.array_equal((ours + 1).numpy(), theirs + 1)
    assert np.array_equal(ours.sum().numpy(), theirs.sum(dtype=np.float64).astype(np.float32))
    assert np.array_equal(ours.contiguous().reshape(-1).numpy() if theirs.size else theirs.ravel(), theirs.ravel())


@given(chain=chains())
@QUICK
def test_gradients_of_chains_count_how_often_an_element_shows(device: Any, chain: Any) -> None:
    shape, steps = chain
    size = int(np.prod(shape, dtype=int))
    x = vk.zeros(shape, requires_grad=True)
    shown, numbers = x, np.arange(size).reshape(shape)
    for kind, argument in steps:
        shown, numbers = apply(shown, kind, argument), apply(numbers, kind, argument)
    shown.sum().backward()
    counts = np.bincount(numbers.ravel(), minlength=size).reshape(shape)
    assert x.grad is not None
    assert np.array_equal(x.grad.numpy(), counts)


@given(data=st.data())
@QUICK
def test_writes_through_indices(device: Any, data: Any) -> None:
    shape = data.draw(SHAPES)
    index = data.draw(indices(shape))
    values = np.zeros(shape, np.float32)
    x = vk.tensor(values)
    part = values[index]
    value = np.arange(np.size(part), dtype=np.float32).reshape(np.shape(part)) + 1
    values[index] = value
    x[index] = vk.tensor(value)
    assert np.array_equal(x.numpy(), values)


@pytest.mark.parametrize("keepdim", [False, True])
@given(shape=SHAPES, data=st.data())
@QUICK
def test_sums_over_any_axes(device: Any, keepdim: bool, shape: tuple[int, ...], data: Any) -> None:
    axes = tuple(data.draw(st.sets(st.integers(0, len(shape) - 1)))) if shape else ()
    order = data.draw(st.permutations(range(len(shape))))
    values = np.random.default_rng(0).integers(-9, 9, shape).astype(np.float32).transpose(order)
    x = (
        vk.tensor(np.ascontiguousarray(values.transpose(np.argsort(order))).reshape(shape)).permute(order)
        if shape
        else vk.tensor(values)
    )
    found = x.sum(axes, keepdim) if axes else x.sum(None, keepdim)
    assert np.array_equal(found.numpy(), values.sum(axes or None, keepdims=keepdim))
