# mypy: disable-error-code="union-attr, no-untyped-call, no-untyped-def"
"""Second derivatives through kept results: the same whether the user still has the results or not, as in PyTorch."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit.runtime.device import Device
from vkjit.runtime.dispatch_cache import set_repeating
from vkjit.tensor.autograd import tape
from vkjit.tensor.autograd.rules import RULES, RuleRow
from vkjit.tensor.op_cache import with_replay
from vkjit.tensor.op_cache.nodes import ReplayedNode

torch = pytest.importorskip("torch")

CALLS = 9
"""Calls until operations and their gradient rules are replayed, and some more."""
VALUES = np.random.default_rng(5).uniform(0.3, 1.1, (4, 6)).astype(np.float32)
WEIGHTS = np.random.default_rng(6).standard_normal((4, 6)).astype(np.float32)


@pytest.fixture(autouse=True)
def fresh(device: Device, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(RULES, "test_products", RuleRow(_products_gradient, True, True))
    set_repeating(True)
    device.dispatch_cache.clear()
    with vk.use_device(device):
        yield
    set_repeating(None)


def _products(x: Any) -> tuple[Any, Any, Any]:
    """Return x * exp(x), exp(x) and an integer tensor, recorded as one operation whose rule reads its results."""
    with vk.no_grad():
        power = x.exp()
        results = x * power, power, (x > 0.5).to(vk.i32)
    tape.record("test_products", (x,), {}, results)
    return results


products = with_replay("test_products()", _products)


def _products_gradient(node: Any, first: Any, second: Any, third: Any) -> tuple[Any]:
    assert third is None
    assert not node.output(2).requires_grad
    total = None if first is None else first * (node.output(0) + node.output(1))
    if second is None:
        return (total,)
    return (second * node.output(1) if total is None else total + second * node.output(1),)


def torch_products(x: Any) -> tuple[Any, Any, Any]:
    return x * x.exp(), x.exp(), None


def products_of(module: ModuleType) -> Any:
    return products if module is vk else torch_products


CASES: dict[str, Callable[[ModuleType, Any, Any], tuple[Any, Any]]] = {
    # the total, and the results that may be dropped before the first or kept until after the second backward pass
    "exp": lambda m, x, w: _weighted(x.exp(), w),
    "softmax": lambda m, x, w: _weighted(x.softmax(-1), w),
    "in place": lambda m, x, w: _weighted((x * 1).exp_(), w),
    "layer norm": lambda m, x, w: _weighted(m.nn.functional.layer_norm(x, (6,)), w),
    "view of a result": lambda m, x, w: _weighted(x.exp()[1:3].T, w[1:3].T),
    "first result": lambda m, x, w: _weighted(products_of(m)(x)[0], w),
    "view of the first": lambda m, x, w: _weighted(products_of(m)(x)[0].T.reshape(2, 12), w.reshape(2, 12)),
    "second result": lambda m, x, w: _weighted(products_of(m)(x)[1], w),
    "both results": lambda m, x, w: _sum_of_both(products_of(m)(x), w),
    "all results kept": lambda m, x, w: _first_of_kept(products_of(m)(x), w),
}


def _weighted(result: Any, weights: Any) -> tuple[Any, Any]:
    return (result * weights).sum(), result


def _sum_of_both(results: Any, weights: Any) -> tuple[Any, Any]:
    return (results[0] * weights + results[1]).sum(), results


def _first_of_kept(results: Any, weights: Any) -> tuple[Any, Any]:
    return (results[0] * weights).sum(), results


def second_derivatives(module: ModuleType, name: str, values: Any, keeps: bool) -> tuple[list[Any], Any]:
    """Return gradients of a sum of squared gradients: by `grad()` twice and by `backward()`; and the node of a result."""
    grad: Any = vk.autograd.grad if module is vk else torch.autograd.grad
    x = module.tensor(values, requires_grad=True)
    total, results = CASES[name](module, x, module.tensor(WEIGHTS))
    first_result = results[0] if isinstance(results, tuple) else results
    node = first_result.meta.node if module is vk else None
    first_result = None
    if not keeps:
        results = None
    (slope,) = grad(total, x, create_graph=True)
    if not keeps:
        total = None
    squares = (slope * slope).sum()
    slope = None
    found = [*grad(squares, x, retain_graph=True), *grad(squares, x, retain_graph=True)]
    squares.backward()
    return [t.detach().numpy() for t in (*found, x.grad)], node


@pytest.mark.parametrize("keeps", [False, True], ids=["dropped", "kept"])
@pytest.mark.parametrize("name", sorted(CASES))
def test_second_derivatives_through_kept_results(device: Device, name: str, keeps: bool) -> None:
    for seed in range(CALLS):
        values = VALUES + np.float32(0.01 * seed)
        found, node = second_derivatives(vk, name, values, keeps)
        wanted, _ = second_derivatives(torch, name, values, keeps)
        scale = np.abs(wanted[0]).max()
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-4 * scale, err_msg=f"call {seed}")
    if device.caps.kind != "interpreter" and name == "first result":
        assert isinstance(node, ReplayedNode)


def test_threads_that_restore_a_result_at_once(device: Device) -> None:
    x = vk.tensor(VALUES, requires_grad=True)
    total, ready, found = products(x)[0].sum(), threading.Barrier(4), []

    def work() -> None:
        with vk.use_device(device):
            ready.wait()
            (slope,) = vk.autograd.grad(total, x, create_graph=True)
            ready.wait()  # all have restored the results before one uses them
            found.append(vk.autograd.grad(slope.sum(), x, retain_graph=True)[0].numpy())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    for slope in found:
        np.testing.assert_allclose(slope, (VALUES + 2) * np.exp(VALUES), rtol=1e-4)


def test_restoring_is_reentrant(monkeypatch: pytest.MonkeyPatch) -> None:
    x = vk.tensor(VALUES, requires_grad=True)
    first = products(x)[0]
    node = first.meta.node
    inner: list[Any] = []

    class Restored(tape.GradMeta):
        """Restores the same result while it is being restored, as a signal handler may."""

        __slots__ = ()

        def __init__(self, *args: Any, **params: Any) -> None:
            super().__init__(*args, **params)
            if not inner:
                inner.append(None)
                inner[0] = node.output(1)

    monkeypatch.setattr(tape, "GradMeta", Restored)
    outer = node.output(1)
    assert outer.meta is inner[0].meta is node.results[1]
    assert outer.meta.node is node
    assert not tape._restoring


def test_restored_results_keep_nothing_alive() -> None:
    for _ in range(CALLS):
        x = vk.tensor(VALUES, requires_grad=True)
        first = products(x)[0]
        kept = weakref.ref(first.meta.node.output(1)._array.buffer)
        gc.disable()
        try:
            slope = vk.autograd.grad(first.sum(), x, create_graph=True)[0]
            assert slope.requires_grad
            assert kept() is not None
            del slope, first
            assert kept() is None
        finally:
            gc.enable()
