"""Tests of `out=` and of in-place operations: checks of shape, type and gradients, and operands that alias results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit.tensor import outputs
from vkjit.tensor.ops import inplace, inplace_copies
from vkjit.tensor.ops.views import strided

VALUES = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize("out_type", [vk.f32, vk.f64, vk.f16])
def test_results_are_written_and_converted(device: Any, out_type: Any) -> None:
    x, out = vk.tensor(VALUES), vk.zeros(3, 4, dtype=out_type)
    before = out.version
    assert vk.add(x, 1, out=out) is out
    assert out.dtype is out_type and out.version > before
    np.testing.assert_array_equal(out.numpy(), VALUES + 1)
    assert vk.div(x, 2, rounding_mode="floor", out=out) is out  # a composite operation
    np.testing.assert_array_equal(out.numpy(), VALUES // 2)
    shared: Any = vk.exp  # also an intrinsic of kernels, where it has no `out`
    assert shared(vk.zeros(3, 4), out=out) is out
    np.testing.assert_array_equal(out.numpy(), np.ones((3, 4)))
    assert vk.add(x, 1, out=None) is not out


def test_any_strides_are_written(device: Any) -> None:
    x, memory = vk.tensor(VALUES), vk.zeros(4, 6)
    out = memory.t()[::2][:, 1:4:1]
    vk.mul(x[:, :3], 2, out=out.t()[:3].t()[:3])
    expected = np.zeros((4, 6), np.float32)
    expected.T[::2][:, 1:4] = VALUES[:, :3] * 2
    np.testing.assert_array_equal(memory.numpy(), expected)


def test_several_results_go_into_a_tuple(device: Any) -> None:
    x = vk.tensor([3.0, 1.0, 2.0])
    values, places = vk.empty(3), vk.empty(3, dtype=vk.i64)
    found = vk.sort(x, out=(values, places))
    assert found[0] is values and found[1] is places
    assert values.tolist() == [1, 2, 3] and places.tolist() == [1, 2, 0]
    with pytest.raises(vk.ArgumentError, match="2 results"):
        vk.sort(x, out=values)
    with pytest.raises(vk.ArgumentError, match="share memory"):
        vk.aminmax(x, out=(values[0], values[1]))
    with pytest.raises(vk.DTypeError, match="the same type"):
        vk.sort(x, out=(values, vk.empty(3, dtype=vk.i32)))


def test_a_tensor_without_elements_takes_any_shape(device: Any) -> None:
    out = vk.empty(0)
    vk.matmul(vk.tensor(VALUES), vk.tensor(VALUES.T), out=out)
    np.testing.assert_array_equal(out.numpy(), VALUES @ VALUES.T)
    x, taken = vk.tensor(VALUES), vk.empty(0)
    vk.maximum(x, x, out=taken)
    taken.zero_()
    np.testing.assert_array_equal(x.numpy(), VALUES)  # the result doesn't share the operand's memory


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: vk.add(x, 1, out=vk.empty(4, 3)), vk.ShapeError, "expected the same shape"),
        (lambda x: vk.add(x, 1, out=vk.empty(3, 1)), vk.ShapeError, "expected the same shape"),
        (lambda x: vk.square(x, out=vk.empty(3, 4, dtype=vk.i64)), vk.DTypeError, "can hold it"),
        (lambda x: vk.sum(x, out=vk.empty((), dtype=vk.i64)), vk.DTypeError, "can't be held"),
        (lambda x: vk.matmul(x, x.t(), out=vk.empty(3, 3, dtype=vk.f64)), vk.DTypeError, "the same type"),
        (lambda x: vk.add(x, 1, out=vk.empty(3, 1).expand(3, 4)), vk.ArgumentError, "same memory"),
        (lambda x: vk.add(x, 1, out=VALUES), vk.ArgumentError, "found ndarray"),
        (lambda x: vk.add(x.requires_grad_(), 1, out=vk.empty(3, 4)), vk.ArgumentError, "requires a gradient"),
        (lambda x: vk.add(x, 1, out=vk.empty(3, 4, requires_grad=True)), vk.ArgumentError, "requires a gradient"),
        (lambda x: vk.stack([x, x.requires_grad_()], out=vk.empty(0)), vk.ArgumentError, "requires a gradient"),
    ],
)
def test_what_does_not_fit_is_refused(device: Any, call: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        call(vk.tensor(VALUES))


def test_leaves_are_written_without_recording(device: Any) -> None:
    out = vk.zeros(3, 4, requires_grad=True)
    with vk.no_grad():
        vk.mul(vk.tensor(VALUES).requires_grad_(), 2, out=out)
    assert out.requires_grad and out.is_leaf
    np.testing.assert_array_equal(out.detach().numpy(), VALUES * 2)


def test_out_may_lie_over_the_operands(device: Any) -> None:
    for name, (read, write) in {
        "the same": (slice(0, 8), slice(0, 8)),
        "ahead": (slice(0, 8), slice(1, 9)),
        "behind": (slice(2, 10), slice(0, 8)),
        "backwards": (slice(0, 8), slice(7, None, -1)),
    }.items():
        values = np.arange(1, 11, dtype=np.float32)
        x, expected = vk.tensor(values), values.copy()
        expected[write] = np.cumsum(values[read])
        vk.cumsum(x[read], 0, out=x[write])
        np.testing.assert_array_equal(x.numpy(), expected, err_msg=name)
        x, expected = vk.tensor(values), values.copy()
        expected[write] = values[read] * values[:8]
        vk.mul(x[read], x[:8], out=x[write])
        np.testing.assert_array_equal(x.numpy(), expected, err_msg=name)
    square = vk.tensor(VALUES[:, :3].copy())
    vk.matmul(square, square, out=square.t())
    np.testing.assert_array_equal(square.numpy(), (VALUES[:, :3] @ VALUES[:, :3]).T)


def test_what_is_saved_for_a_gradient_counts_as_changed(device: Any) -> None:
    x = vk.tensor([1.0, 2.0], requires_grad=True)
    y = x * 1
    z = (y * y).sum()
    vk.add(vk.ones(2), 1, out=y.detach())
    with pytest.raises(vk.VkjitError, match="changed in place"):
        z.backward()


def test_creation_goes_by_the_type_of_out(device: Any) -> None:
    out = vk.empty(3, dtype=vk.i32)
    assert vk.arange(3, out=out).tolist() == [0, 1, 2] and out.dtype is vk.i32
    assert vk.ones(3, out=out).tolist() == [1, 1, 1]
    assert vk.sum(vk.tensor([0.1, 0.2]), out=vk.empty((), dtype=vk.f64)).dtype is vk.f64


def test_every_name_is_a_function_that_takes_out(device: Any) -> None:
    found = set()
    for module in (vk, vk.special, vk.linalg):
        found |= {name for name in outputs.NAMES if hasattr(module, name)}
    assert found == outputs.NAMES
    kinds = (outputs.CONVERTED, outputs.TYPED, outputs.CREATING, outputs.EXACT)
    assert sum(len(kind) for kind in kinds) == len(outputs.NAMES)
    with pytest.raises(vk.ArgumentError, match="takes no out="):
        vk.relu(vk.ones(2), out=vk.ones(2))  # type: ignore[call-arg]


# -- in-place operations


def test_in_place_forms_are_those_of_their_operations(device: Any) -> None:
    assert not inplace.METHODS.keys() & inplace_copies.METHODS.keys()
    x, w = vk.tensor([0.2, 0.5], requires_grad=True), vk.tensor([3.0, 4.0], requires_grad=True)
    y = x * 1
    y.atanh_().addcmul_(w, w, value=0.5)
    y.sum().backward()
    assert x.grad is not None and w.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), 1 / (1 - np.array([0.2, 0.5]) ** 2), 1e-6)
    np.testing.assert_allclose(w.grad.numpy(), [3, 4], 1e-6)
    y = x * 1
    y[1:].cumsum_(0).scatter_add_(0, vk.tensor([0]), w[:1])
    assert y.tolist() == pytest.approx([0.2, 3.5])
    flags = vk.tensor([1.0, 2.0])
    assert flags.gt_(1.5).tolist() == [0.0, 1.0] and flags.dtype is vk.f32
    with pytest.raises(vk.DTypeError, match="can't hold"):
        vk.tensor([1, 2]).atan_()
    with pytest.raises(vk.ShapeError, match="can't be written"):
        vk.ones(2).atan2_(vk.ones(3, 2))
    with pytest.raises(vk.ArgumentError, match="leaf"):
        x.tan_()


def test_in_place_forms_over_memory_that_operands_share(device: Any) -> None:
    values = np.arange(1, 9, dtype=np.float32)
    x = vk.tensor(values)
    x[1:].atan2_(x[:-1])
    np.testing.assert_allclose(x.numpy()[1:], np.arctan2(values[1:], values[:-1]), 1e-6)
    with pytest.raises(vk.ArgumentError, match="same memory"):
        strided(vk.ones(4), (3, 2), (1, 1)).tan_()
    assert strided(vk.arange(8.0), (2, 3), (3, 2)).mul_(2).tolist() == [[0, 4, 8], [6, 10, 14]]


def test_a_tensor_leaves_the_tape(device: Any) -> None:
    x = vk.ones(2, requires_grad=True)
    y = x * 2
    assert y.detach_() is y and y.is_leaf and not y.requires_grad
    with pytest.raises(vk.ArgumentError, match="view"):
        (x * 2)[:1].detach_()
