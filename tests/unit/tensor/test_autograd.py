"""Tests of autograd: leaves, accumulation, retained graphs, higher derivatives, in-place changes, user-defined
operations, memory.
"""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import vkjit as vk


def leaf(*values: float) -> Any:
    return vk.tensor(list(map(float, values)), requires_grad=True)


def test_gradients_accumulate_in_leaves(device: Any) -> None:
    x = leaf(1, 2, 3)
    (x * x).sum().backward()
    (x * 3).sum().backward()
    assert x.grad.tolist() == [5, 7, 9]
    x.grad = None
    (x + x).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


def test_a_tensor_used_on_several_ways_gets_the_sum(device: Any) -> None:
    x = leaf(2)
    y = x * x
    (y * y + y + x).sum().backward()
    assert x.grad.tolist() == [4 * 8 + 4 + 1]


def test_nothing_is_recorded_without_need(device: Any) -> None:
    x = leaf(1, 2)
    with vk.no_grad():
        assert not (x * 2).requires_grad
        with vk.enable_grad():
            assert (x * 2).requires_grad
    with vk.inference_mode(), vk.inference_mode(False):
        assert (x * 2).requires_grad
    assert not vk.inference_mode(lambda: x * 2)().requires_grad
    assert not vk.inference_mode()(lambda: x * 2)().requires_grad
    assert not (x.detach() * 2).requires_grad
    assert not (x > 1).requires_grad
    assert (x * 2).requires_grad and not (x * 2).is_leaf


def test_backward_twice_needs_the_graph_retained(device: Any) -> None:
    x = leaf(3)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [12]
    with pytest.raises(vk.VkjitError, match="retain_graph"):
        y.backward()


def test_higher_derivatives(device: Any) -> None:
    x = leaf(2.0)
    (first,) = vk.grad((x**4).sum(), x, create_graph=True)
    (second,) = vk.grad(first.sum(), x, create_graph=True)
    (third,) = vk.grad(second.sum(), x)
    assert [first.item(), second.item(), third.item()] == [32, 48, 48]
    assert x.grad is None


@pytest.mark.parametrize(
    "name", ["sigmoid", "tanh", "silu", "gelu", "exp", "sin", "softplus", "logsumexp", "norm", "var", "prod"]
)
def test_second_derivatives_are_the_differences_of_first_ones(device: Any, name: str) -> None:
    values, weights, step = np.array([0.3, -0.7, 1.1]), np.array([0.5, -1.0, 0.8]), 1e-4
    dtype = vk.f64 if "f64" in device.caps.dtypes else vk.f32
    if dtype is vk.f32:
        pytest.skip("the device has no f64, and differences of f32 say little")

    def slope(at: Any, *, graph: bool) -> Any:
        (g,) = vk.grad(getattr(vk, name)(at).sum(), at, create_graph=graph)
        return g

    x = vk.tensor(values, dtype=dtype, requires_grad=True)
    (found,) = vk.grad((slope(x, graph=True) * vk.tensor(weights, dtype=dtype)).sum(), x)
    for i in range(3):
        ends = []
        for sign in (1, -1):
            moved = values.copy()
            moved[i] += sign * step
            ends.append(slope(vk.tensor(moved, dtype=dtype, requires_grad=True), graph=False).numpy())
        expected = float((weights * (ends[0] - ends[1])).sum() / (2 * step))
        # finite differences in f64: error step**2 * third derivative, about 1e-7
        assert abs(found.numpy()[i] - expected) < 1e-6, (name, i)


def test_grad_names_what_was_not_used(device: Any) -> None:
    x, y = leaf(1), leaf(2)
    with pytest.raises(vk.ArgumentError, match="allow_unused"):
        vk.grad((x * 2).sum(), [x, y])
    assert vk.grad((x * 2).sum(), [x, y], allow_unused=True)[1] is None
    with pytest.raises(vk.ShapeError, match="one element"):
        (leaf(1, 2) * 2).backward()
    with pytest.raises(vk.ArgumentError, match="requires_grad"):
        vk.zeros(1).backward()


def test_hooks_and_retained_gradients(device: Any) -> None:
    x = leaf(1, 2)
    y = x * 2
    y.retain_grad()
    handle = y.register_hook(lambda g: g * 10)
    y.sum().backward()
    assert y.grad.tolist() == [10, 10] and x.grad.tolist() == [20, 20]
    handle.remove()
    handle.remove()
    x.grad = None
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2, 2]
    x.register_hook(lambda g: g.sum())
    with pytest.raises(vk.ArgumentError, match=r"a hook gave a gradient of vk.f32 \(\) for one of vk.f32 \(2,\)"):
        (x * 2).sum().backward()
    with pytest.raises(vk.ArgumentError, match="would never be called"):
        vk.zeros(2).register_hook(lambda g: g)


def gradient_of(x: Any) -> Any:
    assert x.grad is not None
    return x.grad.numpy()


def test_gradients_of_nan_are_pytorchs(device: Any) -> None:
    torch = pytest.importorskip("torch")
    nan = float("nan")
    cases: list[tuple[Any, list[Any]]] = [
        (lambda m, x: m.relu(x), [[nan, 1, -1]]),
        (lambda m, x, y: m.maximum(x, y), [[nan, 1, 2, 3, 4], [1, nan, 2, 4, 3]]),
        (lambda m, x, y: m.minimum(x, y), [[nan, 1, 2, 3, 4], [1, nan, 2, 4, 3]]),
        (lambda m, x: m.amax(x, 1), [[[nan, 1], [2, 2]]]),
        (lambda m, x: m.amin(x, 1), [[[nan, 1], [2, 3]]]),
        (lambda m, y, x: m.atan2(y, x), [[0, 1, 0], [0, 0, -1]]),
    ]
    for function, inputs in cases:
        ours = [vk.tensor(np.array(v, np.float32), requires_grad=True) for v in inputs]
        theirs = [torch.tensor(np.array(v, np.float32), requires_grad=True) for v in inputs]
        function(vk, *ours).sum().backward()
        function(torch, *theirs).sum().backward()
        for mine, other in zip(ours, theirs, strict=True):
            assert np.array_equal(gradient_of(mine), other.grad.numpy(), equal_nan=True)


def test_unused_results_of_functions_give_zeros(device: Any) -> None:
    class Two(vk.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, keep: bool) -> Any:
            ctx.set_materialize_grads(keep)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx: Any, first: Any, second: Any) -> Any:
            return first * 2 + (7 if second is None else second * 3), None

    for keep, expected in ((True, [2, 2]), (False, [9, 9])):
        x = leaf(1, 2)
        Two.apply(x, keep)[0].sum().backward()
        assert x.grad.tolist() == expected


def test_attention_of_a_query_that_may_look_at_nothing(device: Any) -> None:
    torch = pytest.importorskip("torch")
    attention, theirs = vk.nn.functional.scaled_dot_product_attention, torch.nn.functional.scaled_dot_product_attention
    values = np.random.default_rng(1).standard_normal((1, 3, 4)).astype(np.float32)
    mask = np.array([[True, False, True], [False, False, False], [True, True, True]])
    q, t = vk.tensor(values, requires_grad=True), torch.tensor(values, requires_grad=True)
    mine, other = attention(q, q, q, attn_mask=vk.tensor(mask)), theirs(t, t, t, attn_mask=torch.tensor(mask))
    assert mine.detach().numpy()[0, 1].tolist() == [0, 0, 0, 0]
    assert np.allclose(mine.detach().numpy(), other.detach().numpy(), atol=1e-5)
    mine.sum().backward()
    other.sum().backward()
    assert np.allclose(gradient_of(q), t.grad.numpy(), atol=1e-5)


# -- in-place changes


def test_in_place_operations_are_recorded(device: Any) -> None:
    x = leaf(1, 2, 3)
    y = x * 2
    y.add_(x)
    y *= 4
    y.relu_()
    y.sum().backward()
    assert y.tolist() == [12, 24, 36]
    assert x.grad.tolist() == [12, 12, 12]


def test_leaves_are_changed_without_recording_only(device: Any) -> None:
    x = leaf(1, 2)
    with pytest.raises(vk.ArgumentError, match="no_grad"):
        x.add_(1)
    with pytest.raises(vk.ArgumentError, match="no_grad"):
        x[0] = 5
    with vk.no_grad():
        x.add_(1)
    assert x.tolist() == [2, 3] and x.requires_grad and x.is_leaf


def test_values_that_a_gradient_needs_must_stay(device: Any) -> None:
    x = leaf(1, 2)
    y = x * 1
    z = y * y
    y.add_(1)
    with pytest.raises(vk.VkjitError, match="changed in place"):
        z.sum().backward()
    x = leaf(1, 2)
    y = x.exp()
    y.mul_(2)
    with pytest.raises(vk.VkjitError, match="changed in place"):
        y.sum().backward()
    x = leaf(1, 2)
    y = x + 1
    z = y * 3
    y.add_(1)  # multiplication by a scalar doesn't need its operand for the gradient
    z.sum().backward()
    assert x.grad.tolist() == [3, 3]


def test_views_follow_what_is_recorded_elsewhere(device: Any) -> None:
    x = leaf(1, 2, 3)
    y = x * 1
    view = y[:2]
    view.mul_(2)
    y[0] = x[2] * 10
    (view * 3).sum().backward()
    assert view.tolist() == [30, 4] and x.grad.tolist() == [0, 6, 30]
    x.grad = None
    y = x * 1
    with vk.no_grad():
        untracked = y[:2]
    with pytest.raises(vk.ArgumentError, match="while nothing was recorded"):
        untracked.mul_(x[0])
    y[0] = x[2] * 10
    with pytest.raises(vk.VkjitError, match="make the view again"):
        untracked * 2
    y[:2].sum().backward()
    assert x.grad.tolist() == [0, 1, 10]
    plain = vk.zeros(4)
    part = plain[1:3]
    part += 5  # without recorded gradients, views may be written
    assert plain.tolist() == [0, 5, 5, 0]


def test_assignment_takes_the_gradient_away_and_gives_it_to_the_value(device: Any) -> None:
    x, v = leaf(1, 2, 3, 4), leaf(9)
    y = x * 1
    y[1:3] = v
    (y * vk.tensor([1.0, 10.0, 100.0, 1000.0])).sum().backward()
    assert y.tolist() == [1, 9, 9, 4]
    assert x.grad.tolist() == [1, 0, 0, 1000] and v.grad.tolist() == [110]


def test_in_place_keeps_the_type_of_its_target(device: Any) -> None:
    x = vk.tensor([1, 2])
    with pytest.raises(vk.DTypeError, match="f32"):
        x.add_(1.5)
    with pytest.raises(vk.DTypeError, match="div_"):
        x.div_(2)
    x.floor_divide_(2)
    assert x.tolist() == [0, 1]
    with pytest.raises(vk.ArgumentError, match="expanded"):
        vk.zeros(1).expand(3).add_(1)
    with pytest.raises(vk.ArgumentError, match="shape"):
        vk.zeros(1).add_(vk.zeros(3))


def test_operands_that_overlap_the_target_are_read_before_they_are_written(device: Any) -> None:
    x = vk.arange(0, 300, dtype=vk.f32)
    x[1:].add_(x[:-1])
    values = np.arange(300, dtype=np.float32)
    assert np.array_equal(x.numpy(), np.concatenate([values[:1], values[1:] + values[:-1]]))
    y = vk.arange(0, 300, dtype=vk.f32)
    y.copy_(y.flip(0))
    assert np.array_equal(y.numpy(), values[::-1])


# -- user-defined operations


class Cube(vk.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, scale: float) -> Any:
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x * x * x * scale

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (x,) = ctx.saved_tensors
        return gradient * 3 * x * x * ctx.scale, None


@vk.kernel(over="y")
def doubled(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = 2 * x[i]


class Doubled(vk.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return doubled(x)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return doubled(gradient)


def test_functions_of_the_user_are_on_the_tape(device: Any) -> None:
    x = leaf(1, 2)
    y = Cube.apply(x, 0.5)
    assert y.tolist() == [0.5, 4]
    Doubled.apply(y).sum().backward()
    assert x.grad.tolist() == [3, 12]
    (second,) = vk.grad(vk.grad(Cube.apply(x, 1.0).sum(), x, create_graph=True)[0].sum(), x)
    assert second.tolist() == [6, 12]


def test_mistakes_in_functions_of_the_user_are_named(device: Any) -> None:
    class Wrong(vk.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.save_for_backward(x)
            return x + y

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient

    with pytest.raises(vk.ArgumentError, match="Wrong.backward gave 1 gradients"):
        Wrong.apply(leaf(1), leaf(2)).sum().backward()
    x = leaf(1, 2)
    y = x * 1
    z = Cube.apply(y, 1.0)
    y.add_(1)
    with pytest.raises(vk.ArgumentError, match="changed in place"):
        z.sum().backward()


# -- memory


def test_tensors_and_their_nodes_are_freed_at_once(device: Any) -> None:
    x = leaf(1, 2)
    gc.disable()
    try:
        y = x.exp()
        z = y * y
        gone = [weakref.ref(y._array.buffer), weakref.ref(z._array.buffer)]
        del y, z
        assert [r() for r in gone] == [None, None]
    finally:
        gc.enable()


def test_backward_releases_what_the_graph_kept(device: Any) -> None:
    x = leaf(1, 2)
    y = x.exp()
    kept = weakref.ref(y._array.buffer)
    total = (y * y).sum()
    del y
    assert kept() is not None
    total.backward()
    assert kept() is None


def test_set_grad_enabled_acts_at_once() -> None:
    from vkjit.autograd import is_grad_enabled, set_grad_enabled

    try:
        set_grad_enabled(False)
        assert not is_grad_enabled()
        set_grad_enabled(True)
        assert is_grad_enabled()
        with set_grad_enabled(False):
            assert not is_grad_enabled()
            set_grad_enabled(True)
            assert is_grad_enabled()
            with set_grad_enabled(False):
                assert not is_grad_enabled()
            assert is_grad_enabled()
        assert is_grad_enabled()
        with vk.no_grad():
            set_grad_enabled(True)
        assert is_grad_enabled()
    finally:
        set_grad_enabled(True)


def test_set_grad_enabled_as_an_object_and_decorator() -> None:
    from vkjit.autograd import is_grad_enabled, set_grad_enabled

    try:

        @set_grad_enabled(False)
        def inside() -> bool:
            return is_grad_enabled()

        assert is_grad_enabled() and not inside() and is_grad_enabled()
        block = set_grad_enabled(False)
        assert not is_grad_enabled()
        for _ in range(2):
            with block:
                assert not is_grad_enabled()
            assert is_grad_enabled()
        with pytest.raises(ZeroDivisionError), set_grad_enabled(False):
            _ = 1 / 0
        assert is_grad_enabled()
        vk.no_grad(), vk.inference_mode(), vk.enable_grad()  # blocks only
        assert is_grad_enabled()
        set_grad_enabled(False)
        seen: list[bool] = []
        thread = threading.Thread(target=lambda: seen.append(is_grad_enabled()))
        thread.start()
        thread.join()
        assert seen == [True]
    finally:
        set_grad_enabled(True)


class Scaled(vk.autograd.Function):
    """Product of two tensors and a number, with an optional argument; tests set what backward returns."""

    returned: Any = None

    @staticmethod
    def forward(_ctx: Any, x: Any, y: Any, k: float, _flag: bool = True) -> Any:
        return x * y * k

    @staticmethod
    def backward(_ctx: Any, gradient: Any) -> Any:
        return Scaled.returned(gradient)


def test_gradients_beyond_the_arguments_may_be_none(device: Any) -> None:
    x, y = vk.tensor([1.0, 2.0], requires_grad=True), vk.tensor([3.0, 4.0], requires_grad=True)
    Scaled.returned = lambda g: (g, g * 2, None, None, None)
    Scaled.apply(x, y, 3.0).sum().backward()
    assert x.grad is not None and y.grad is not None and x.grad.tolist() == [1, 1] and y.grad.tolist() == [2, 2]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda g: (g, g, None, g), "gave 4 gradients, expected one for each of the 3 arguments"),
        (lambda g: (1.0, g, None), "gave float for argument 0, expected a tensor"),
        (lambda g: (g, g.numpy(), None), "gave ndarray for argument 1, expected a tensor"),
        (lambda g: (g, g, 5), "gave int for argument 2, expected a tensor"),
        (lambda g: 2.0, "gave 1 gradients"),
    ],
)
def test_gradients_of_another_kind_are_refused(device: Any, returned: Any, message: str) -> None:
    x = vk.tensor([1.0, 2.0], requires_grad=True)
    Scaled.returned = returned
    with pytest.raises(vk.ArgumentError, match=message):
        Scaled.apply(x, x, 3.0).sum().backward()


def test_threads_accumulate_all_gradients(device: Any) -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(10):
            x = leaf(1, 2)
            sums = [(x * k).sum() for k in range(1, 9)]
            threads = [threading.Thread(target=y.backward) for y in sums]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert x.grad.tolist() == [36, 36]
    finally:
        sys.setswitchinterval(interval)
