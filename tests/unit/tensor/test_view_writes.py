"""Tests of in-place writes to views and their bases while gradients are recorded: both see the change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vkjit as vk


def leaf(*values: float) -> Any:
    return vk.tensor([float(v) for v in values], requires_grad=True)


def gradients(*leaves: Any) -> list[Any]:
    return [None if x.grad is None else x.grad.tolist() for x in leaves]


def test_a_view_that_is_written_changes_its_root(device: Any) -> None:
    x, w = leaf(1, 2, 3), leaf(5)
    y = x * 2
    y[1:].mul_(w)
    (y * vk.tensor([1.0, 10.0, 100.0])).sum().backward()
    assert y.tolist() == [2, 20, 30]
    assert gradients(x, w) == [[2, 100, 1000], [640]]


def test_a_root_that_required_no_gradient_does_after_the_write(device: Any) -> None:
    buffer, w = vk.zeros(2, 3), leaf(1, 2, 3)
    earlier = buffer[:, 2]
    buffer[0].add_(w)
    assert buffer.requires_grad and earlier.requires_grad and not earlier.is_leaf
    (earlier * 7).sum().backward()
    assert gradients(w) == [[0, 0, 7]]


def test_views_of_views_and_transposed_ones(device: Any) -> None:
    x, w = leaf(*range(6)), leaf(2)
    y = (x * 1).reshape(2, 3)
    corner = y.t()[1:][:, 1]
    corner.mul_(w)
    y.add_(1)
    weights = vk.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    ((y * weights).sum() + corner.sum()).backward()
    assert y.tolist() == [[1, 2, 3], [4, 9, 11]] and corner.tolist() == [9, 11]
    assert gradients(x, w) == [[1, 2, 3, 4, 12, 14], [(4 * 6 + 5 * 7)]]


def test_the_root_outlived_by_its_views(device: Any) -> None:
    x = leaf(1, 2, 3, 4)
    y = x * 1
    first, second = y[:3], y[2:]
    del y
    first.mul_(3)
    del first
    second.sum().backward()
    assert gradients(x) == [[0, 0, 3, 1]]


def test_windows_and_expanded_views_sum_what_comes_back(device: Any) -> None:
    x = leaf(1, 2, 3)
    y = x * 1
    windows, wide = y.unfold(0, 2, 1), y.expand(2, 3)
    y.mul_(2)
    (windows.sum() + 10 * wide.sum()).backward()
    assert gradients(x) == [[42, 44, 42]]
    with pytest.raises(vk.ArgumentError, match="same memory"):
        windows.mul_(2)
    with pytest.raises(vk.ArgumentError, match="same memory"):
        wide.mul_(2)


def test_a_part_of_an_expanded_view_is_written_once(device: Any) -> None:
    x, w = leaf(1, 2, 3), leaf(4)
    y = x * 1
    y.expand(2, 3)[0] = w
    y.sum().backward()
    assert y.tolist() == [4, 4, 4] and gradients(x, w) == [[0, 0, 0], [3]]


def test_backward_starts_from_what_a_view_has_become(device: Any) -> None:
    x = leaf(1, 2)
    y = x * 1
    part = y[0]
    y.mul_(5)
    part.backward()
    assert gradients(x) == [[5, 0]]
    y = x * 1
    part = y[0]
    y.mul_(7)
    (found,) = vk.grad(part, x)
    assert found.tolist() == [7, 0]


def test_gradients_of_gradients_go_through_written_views(device: Any) -> None:
    x = leaf(2, 3)
    y = x * x
    y[0].mul_(x[1])
    (first,) = vk.grad((y * y).sum(), x, create_graph=True)
    first.sum().backward()
    # (x0^2 x1)^2 + x1^4: gradient (4 x0^3 x1^2, 2 x0^4 x1 + 4 x1^3)
    assert first.tolist() == [288, 204]
    assert gradients(x) == [[12 * 4 * 9 + 8 * 8 * 3, 8 * 8 * 3 + 2 * 16 + 12 * 9]]


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda x: x[0].add_(1), "view of a leaf"),
        (lambda x: x.view(-1).zero_(), "view of a leaf"),
        (lambda x: x.t().__setitem__(0, 5.0), "view of a leaf"),
        (lambda x: Doubled.apply(x * 1).mul_(2), "while nothing was recorded"),
    ],
)
def test_writes_that_autograd_cannot_follow_are_refused(device: Any, write: Callable[[Any], Any], message: str) -> None:
    x = vk.ones(2, 2).requires_grad_()
    with pytest.raises(vk.ArgumentError, match=message):
        write(x)
    assert x.tolist() == [[1, 1], [1, 1]]


class Doubled(vk.autograd.Function):
    """Custom function that returns a view of its input and doubles the gradient."""

    @staticmethod
    def forward(_ctx: Any, x: Any) -> Any:
        return x.view(-1)

    @staticmethod
    def backward(_ctx: Any, gradient: Any) -> Any:
        return gradient.reshape(2, 2) * 2


def test_a_detached_tensor_is_written_apart_from_its_source(device: Any) -> None:
    x, w = leaf(1, 2), leaf(3)
    y = x * 1
    apart = y.detach()
    apart.mul_(w)
    apart.sum().backward()
    assert gradients(x, w) == [None, [3]]
    y.sum().backward()  # it keeps its history, and has the values that were written apart from it
    assert gradients(x, w) == [[1, 1], [3]] and y.tolist() == [3, 6]


def test_saved_values_of_other_parts_count_as_changed(device: Any) -> None:
    x = leaf(1, 2)
    y = x * 1
    square = (y[0] * y[0]).sum()
    y[1].mul_(2)
    with pytest.raises(vk.VkjitError, match="changed in place"):
        square.backward()


def test_retained_gradients_are_those_after_the_write(device: Any) -> None:
    x = leaf(1, 2)
    y = x * 1
    y.retain_grad()
    y.mul_(3)
    (y * 5).sum().backward()
    assert y.grad.tolist() == [5, 5] and gradients(x) == [[15, 15]]


def test_random_numbers_written_into_a_view_cut_its_gradient(device: Any) -> None:
    x = leaf(1, 2, 3)
    y = x * 1
    y[1:].uniform_()
    y.sum().backward()
    assert gradients(x) == [[1, 0, 0]]


def test_nothing_is_kept_alive_by_views_made_without_recording(device: Any) -> None:
    import weakref

    x = leaf(1, 2, 3)
    y = x.exp()
    with vk.no_grad():
        part = y[:2]
    node = weakref.ref(y.meta)
    del y
    assert node() is None and part.shape == (2,)
    buffer = vk.zeros(3)
    view = buffer[1:]
    view.mul_(x[1:])
    gone = weakref.ref(buffer)
    del buffer, view
    assert gone() is None


def test_written_views_agree_with_the_same_written_out(device: Any) -> None:
    rng = np.random.default_rng(5)
    for _ in range(6):
        values = rng.uniform(0.5, 1.5, (3, 4)).astype(np.float32)
        rows, columns = rng.integers(0, 3), rng.integers(0, 3)
        first, second = (vk.tensor(values, requires_grad=True) for _ in range(2))
        y = first * 1
        y[rows].sin_()
        y[:, columns:].mul_(y[0, 0].clone())
        (y * y.t().reshape(3, 4)).sum().backward()
        z = second * 1
        z = vk.select_scatter(z, z[rows].sin(), 0, int(rows))
        z = vk.slice_scatter(z, z[:, columns:] * z[0, 0], 1, int(columns))
        (z * z.t().reshape(3, 4)).sum().backward()
        assert first.grad is not None and second.grad is not None
        assert np.array_equal(first.grad.numpy(), second.grad.numpy())


UNRECORDED_VIEWS: dict[str, Callable[[Any], Any]] = {
    "slice": lambda y: y[0:2],
    "row": lambda y: y[0],
    "split": lambda y: y.split(1)[0],
    "unbind": lambda y: y.unbind()[1],
    "chunk": lambda y: vk.chunk(y, 3)[0],
    "permute": lambda y: y.t(),
    "reshape": lambda y: y.reshape(6),
    "view of a view": lambda y: y[1:][0],
    "diagonal": lambda y: y.diagonal(),
    "narrow": lambda y: y.narrow(0, 1, 1),
}


UNRECORDED_WRITES: list[Callable[[Any], Any]] = [
    lambda part: part.mul_(2),
    lambda part: part.zero_(),
    lambda part: part.__setitem__(0, 1),
    lambda part: part[..., :1].fill_(1),
    lambda part: part.copy_(vk.zeros_like(part)),
    lambda part: vk.add(vk.zeros_like(part), 0, out=part),
]


@pytest.mark.parametrize("mode", [vk.no_grad, vk.inference_mode])
@pytest.mark.parametrize("kind", UNRECORDED_VIEWS)
def test_views_made_without_recording_are_refused_a_write_while_recording(
    device: Any, kind: str, mode: Callable[[], Any]
) -> None:
    x = leaf(1, 2, 3, 4, 5, 6)
    y = (x * 2).reshape(3, 2) * 1
    for _ in range(2):  # the second view comes from the cache of views
        with mode():
            part = UNRECORDED_VIEWS[kind](y)
        for write in UNRECORDED_WRITES:
            with pytest.raises(vk.ArgumentError, match=r"while nothing was recorded|isn't recorded"):
                write(part)
    with mode():
        part.zero_()  # on the caller's own responsibility
    (y.reshape(6)).sum().backward()
    assert gradients(x) == [[2] * 6]


def test_views_made_without_recording_of_a_root_that_requires_a_gradient_later(device: Any) -> None:
    x, w = leaf(1, 2, 3), leaf(4)
    late = vk.ones(3)
    view = late[:2]
    late.requires_grad_()
    with pytest.raises(vk.ArgumentError, match="a view of a leaf"):
        view.mul_(2)
    y = vk.ones(3)
    stale = y[:2]
    y.mul_(x)
    with vk.no_grad():
        inner = stale[:1]
    writes: list[Any] = [lambda: inner.mul_(2), lambda: inner.mul_(w), lambda: vk.neg(vk.ones(1), out=inner)]
    for write in writes:
        with pytest.raises(vk.ArgumentError, match=r"while nothing was recorded|isn't recorded"):
            write()
    stale.mul_(2)
    y.sum().backward()
    assert gradients(x) == [[2, 2, 1]] and y.tolist() == [2, 4, 3]


def test_views_of_constants_made_without_recording_are_written(device: Any) -> None:
    x, y = leaf(3), vk.ones(3)
    with vk.no_grad():
        part, result = y[0:1], Doubled.apply(vk.ones(2, 2))
    part.mul_(2).mul_(x)
    result.mul_(2)
    Doubled.apply(vk.ones(2, 2)).mul_(2)
    y.sum().backward()
    assert gradients(x) == [[2]] and y.tolist() == [6, 1, 1]
    apart = (x * 2).detach()
    with vk.no_grad():
        row = apart[0:1]
    row.mul_(2)
    assert apart.tolist() == [12]
