# mypy: disable-error-code="no-untyped-def"
"""Values that autograd keeps, and replays of graphs that write them: gradients are right, or refused."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import vkjit as vk

CHANGED = r"changed in place"


def weights() -> Any:
    return vk.ones(2, requires_grad=True)


@pytest.mark.parametrize("warm", [0, 6])
def test_replays_that_write_a_kept_operand(device: Any, warm: int) -> None:
    a, w = vk.tensor([1.0, 2.0]), weights()
    for _ in range(warm):  # then the op cache records and derives
        (w * a).sum().backward()
    with vk.capture() as graph:
        a.add_(10.0)
    y = (w * a).sum()
    graph.replay()
    with pytest.raises(vk.VkjitError, match=CHANGED):
        y.backward()
    w.grad = None
    (w * a).sum().backward()
    assert w.grad.tolist() == [11, 12]
    y = (w * a).sum()
    graph.close()
    y.backward()
    assert w.grad.tolist() == [22, 24]


def test_replays_that_write_a_result_of_the_graph(device: Any) -> None:
    x, w = vk.tensor([1.0, 2.0]), weights()
    with vk.capture(x=x) as graph:
        doubled = x * 2
    for i in range(5):
        graph.replay(x=vk.full((2,), float(i)))
        y = (w * doubled).sum()
        w.grad = None
        y.backward()
        assert w.grad.tolist() == [2 * i] * 2
    y = (w * doubled).sum()
    graph.replay()
    with pytest.raises(vk.VkjitError, match=CHANGED):
        y.backward()


def test_replays_that_write_a_kept_result(device: Any) -> None:
    w = weights()
    y = w.exp()
    with vk.no_grad(), vk.capture() as graph:
        z = y.detach()
        z.mul_(2.0)
    y = w.exp()
    with vk.no_grad(), vk.capture() as second:
        vk.zeros(2).copy_(y.detach())
    graph.replay()
    second.replay()  # writes nothing that is kept
    y.sum().backward()
    assert w.grad.tolist() == pytest.approx([2.7182817] * 2)


def test_replays_that_write_an_index(device: Any) -> None:
    index, w = vk.tensor([0, 1]), vk.ones(3, requires_grad=True)
    with vk.capture() as graph:
        index.add_(1)
    y = w[index].sum()
    graph.replay()
    with pytest.raises(vk.VkjitError, match=CHANGED):
        y.backward()


def test_replays_that_write_what_a_function_saved(device: Any) -> None:
    class Square(vk.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, gradient):
            return 2 * gradient * ctx.saved_tensors[0]

    w = weights()
    with vk.no_grad(), vk.capture() as graph:
        w.add_(1.0)
    y = Square.apply(w).sum()
    graph.replay()
    with pytest.raises(vk.ArgumentError, match=CHANGED):
        y.backward()


def test_an_argument_that_the_graph_writes(device: Any) -> None:
    x, other, w = vk.zeros(2), vk.tensor([3.0, 4.0]), weights()
    with vk.capture(x=x) as graph:
        x.add_(10.0)
    kept, unused = (w * other).sum(), (w * x).sum()
    graph.replay(x=other)
    with pytest.raises(vk.VkjitError, match=CHANGED):
        kept.backward()
    unused.backward()  # the replay didn't write x
    assert w.grad.tolist() == [0, 0]


def test_nested_graphs(device: Any) -> None:
    a, w = vk.tensor([1.0, 2.0]), weights()
    with vk.capture() as inner:
        a.add_(10.0)
    y = (w * a).sum()
    with vk.capture() as outer:
        inner.replay()
    y.backward(retain_graph=True)  # nothing has run
    outer.replay()
    with pytest.raises(vk.VkjitError, match=CHANGED):
        y.backward()


@vk.kernel(over="x")
def add_one(x: vk.InOut[vk.f32, "N"]):
    i = vk.global_id(0)
    x[i] = x[i] + 1


WRITES: dict[str, Callable[[Any], Any]] = {
    "a view": lambda a: a[1:].add_(1.0),
    "the base": lambda a: a.add_(1.0),
    "an alias": lambda a: a.detach().add_(1.0),
    "set_item": lambda a: a.__setitem__(0, 7.0),
    "a fill": lambda a: a.zero_(),
    "a copy": lambda a: a.copy_(vk.zeros(4)),
    "a kernel": lambda a: add_one(a),
}


@pytest.mark.parametrize("kept", ["whole", "view"])
@pytest.mark.parametrize("form", WRITES)
def test_forms_of_writes(device: Any, form: str, kept: str) -> None:
    a, w = vk.ones(4), vk.ones(2, 2, requires_grad=True)
    with vk.capture() as graph:
        WRITES[form](a)
    y = (w * (a.reshape(2, 2) if kept == "whole" else a[1:3])).sum()
    graph.replay()
    with pytest.raises(vk.VkjitError, match=CHANGED):
        y.backward()


@pytest.mark.parametrize("where", ["stream", "thread"])
def test_replays_elsewhere(device: Any, where: str) -> None:
    a, w = vk.ones(2), weights()
    with vk.capture() as graph:
        a.add_(1.0)
    y = (w * a).sum()
    if where == "stream":
        stream = vk.Stream(device)
        with stream:
            graph.replay()
        stream.synchronize()
    else:
        thread = threading.Thread(target=graph.replay)
        thread.start()
        thread.join()
    with pytest.raises(vk.VkjitError, match=CHANGED):
        y.backward()


# -- gradients of captured work


def test_gradients_of_captured_work_stay_right(device: Any) -> None:
    a, w = vk.tensor([1.0, 2.0]), weights()
    with vk.capture() as step:
        a.add_(10.0)
    with vk.capture() as graph:
        a.add_(1.0)
        y = (w * a).exp().log().sum()
    for scale in (1, 2):
        graph.replay()
        w.grad = None
        y.backward(retain_graph=True)
        assert w.grad.tolist() == pytest.approx([11 * scale - 9, 11 * scale - 8], rel=1e-5)
        step.replay()
        with pytest.raises(vk.VkjitError, match=CHANGED):
            y.backward(retain_graph=True)


@pytest.mark.parametrize(
    ("change", "is_right"),
    [
        (lambda x, other: None, True),
        (lambda x, other: x.add_(1.0), True),
        (lambda x, other: other.add_(1.0), False),
        (lambda x, other: other.detach()[0].zero_(), False),
    ],
    ids=["unchanged", "the captured one", "the present one", "a part of the present one"],
)
def test_arguments_written_after_a_replay(device: Any, change: Callable[[Any, Any], Any], is_right: bool) -> None:
    x, other, w = vk.zeros(2), vk.tensor([3.0, 4.0]), weights()
    with vk.capture(x=x) as graph:
        y = (w * x).sum()
    other.add_(1.0)
    graph.replay(x=other)
    change(x, other)
    if not is_right:
        with pytest.raises(vk.VkjitError, match=CHANGED):
            y.backward(retain_graph=True)
        graph.replay()
    y.backward()
    assert w.grad.tolist() == [v - 0.0 for v in other.tolist()]


def test_gradients_in_a_block_of_what_was_written_before(device: Any) -> None:
    x, a, w = vk.tensor([1.0, 2.0]), vk.tensor([3.0, 4.0]), weights()
    with vk.capture() as before:
        x.add_(1.0)
        a.add_(1.0)
    before.replay()
    x.add_(1.0)
    w.grad = vk.zeros(2)
    with vk.capture(x=x) as graph:
        x.mul_(2.0)
        (w * x * a).sum().backward()
    graph.replay()
    assert w.grad.tolist() == [24, 40]


def test_values_written_later_in_the_block(device: Any) -> None:
    a, w = vk.tensor([1.0, 2.0]), weights()
    with vk.capture() as graph:
        y = (w * a).sum()
        a.add_(10.0)
    graph.replay()
    with pytest.raises(vk.VkjitError, match=CHANGED):
        y.backward()


def test_replays_raise_versions(device: Any) -> None:
    a, b = vk.zeros(2), vk.zeros(2)
    with vk.capture() as graph:
        a.copy_(b)
    before = a.version, b.version
    graph.replay()
    assert a.version > before[0] and b.version == before[1]
    assert a[:1].version == a.version
