"""Views from the cache are those that the operations make, unrecorded and recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit.runtime import array
from vkjit.runtime.device import Device
from vkjit.runtime.dispatch_cache import set_repeating
from vkjit.tensor import view_cache
from vkjit.tensor.autograd import tape

VIEWS: dict[str, Callable[[Any], Any]] = {
    "reshape": lambda x: x.reshape(2, -1),
    "reshape to a tuple": lambda x: x.reshape((3, -1)),
    "reshape to the same shape": lambda x: x.reshape(x.shape),
    "view": lambda x: x.view(6, -1),
    "flatten": lambda x: x.flatten(),
    "unflatten": lambda x: x.unflatten(-1, (2, -1)),
    "unsqueeze": lambda x: x.unsqueeze(dim=1),
    "squeeze": lambda x: x.unsqueeze(1).squeeze(),
    "permute": lambda x: x.permute(list(range(x.ndim))[::-1]),
    "transpose": lambda x: x.transpose(0, -1),
    "t": lambda x: x[0].T if x.ndim == 3 else x.T,
    "mT": lambda x: x.mT,
    "movedim": lambda x: x.movedim(0, -1),
    "expand": lambda x: x.expand(2, *x.shape),
    "narrow": lambda x: x.narrow(0, 1, 2),
    "select": lambda x: x.select(-1, 1),
    "int": lambda x: x[1],
    "negative int": lambda x: x[-2],
    "slice": lambda x: x[1:3],
    "slices": lambda x: x[1:, ..., ::2],
    "None and int": lambda x: x[None, -1],
    "backward slice": lambda x: x[::-1],
    "empty slice": lambda x: x[2:2],
    "split": lambda x: x.split([1, x.shape[0] - 1]),
    "chunk": lambda x: x.chunk(2, dim=-1),
    "unbind": lambda x: x.unbind(),
    "iteration": tuple,
    "diagonal": lambda x: x.diagonal(0, -1),
    "chain": lambda x: x.reshape(3, -1).T.unsqueeze(0)[:, 1:],
}
LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "matrix": lambda x: x.reshape(6, 12),
    "tensor": lambda x: x.reshape(3, 4, 6),
    "part": lambda x: x.reshape(6, 12)[1:5, 2:8],
    "transposed": lambda x: x.reshape(12, 6).T,
    "backward": lambda x: x.reshape(6, 12)[::-1],
}


@pytest.fixture(autouse=True)
def fresh(device: Device) -> Iterator[None]:
    for table in (view_cache._unrecorded, view_cache._recorded, view_cache._rows):
        table.clear()
    with vk.use_device(device):
        yield
    set_repeating(None)


def operand(layout: str, kind: str) -> Any:
    base = vk.tensor(np.arange(72, dtype=np.float32) if kind != "ints" else np.arange(72), requires_grad=kind == "leaf")
    if kind == "computed":
        base = base.requires_grad_() * 1.0
    return LAYOUTS[layout](base)


def history(meta: Any) -> list[Any]:
    """Return what is recorded on the way from a tensor to a leaf."""
    steps: list[Any] = []
    while meta.node is not None and meta.node.name in tape.VIEWS:
        node = meta.node
        assert node.results[0] is meta and node.needs == (True,) and len(node.edges) == 1
        steps.append(
            (node.name, node.params, node._parameters or (), node._inputs, node._outputs, meta.shape, meta.dtype)
        )
        meta = node.edges[0]
    return steps


def facts(x: Any, view: Any) -> tuple[Any, ...]:
    """Return all that matters of a view."""
    array, root = view._array, view._root
    is_root = root is (x if x._root is None else x._root)
    return (
        view is x, array.shape, array.strides, array.offset - x._array.offset, array.dtype, array.spec_class,
        array.layout is None, array.descriptor[0] - array.buffer.address - array.offset, array.descriptor[1:],
        view._version is x._version, view._history, view._is_view, root is tape.UNTRACKED, root is None, is_root,
        view.requires_grad, view.meta.shape, view.meta.dtype, view.meta.device is x.device, view.is_leaf,
        history(view.meta), view.numpy() if not view.requires_grad else view.detach().numpy(),
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["leaf", "computed", "constant", "ints"])
@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("name", VIEWS)
def test_views_equal_those_of_the_operations(name: str, enabled: bool, kind: str) -> None:
    def found(layout: str) -> list[Any]:
        x = operand(layout, kind)
        with vk.set_grad_enabled(enabled):
            result = VIEWS[name](x)
        return [facts(x, view) for view in (result if isinstance(result, tuple) else (result,))]

    for layout in LAYOUTS:
        set_repeating(False)
        try:
            expected = found(layout)
        except vk.errors.VkjitError:
            continue  # no such view
        set_repeating(True)
        found(layout)
        for one, other in zip(found(layout), expected, strict=True):
            assert repr(one) == repr(other)
    assert view_cache._unrecorded or view_cache._recorded or view_cache._rows


def test_equal_arguments_of_other_types_are_told_apart() -> None:
    x = vk.tensor(np.arange(12, dtype=np.float32).reshape(4, 3))
    for _ in range(3):
        assert x[1].shape == (3,) and x[:1].shape == (1, 3) and x[(1,)].shape == (3,)
        assert x[True].shape == (1, 4, 3) and x[False].shape == (0, 4, 3)
        assert x[[1]].shape == (1, 3)  # an index tensor
        assert x.reshape(4, 3).shape == (4, 3)
        with pytest.raises(vk.errors.ArgumentError):
            x.reshape(4.0, 3)
        with pytest.raises(vk.errors.ArgumentError):
            x.unsqueeze(True)
        assert x.unsqueeze(1).shape == (4, 1, 3)
        with pytest.raises(TypeError):
            x[1.0:2]
        assert x[1:2].shape == (1, 3)
        with pytest.raises(IndexError):
            x[4]


def test_copies_are_made_anew() -> None:
    x = vk.tensor(np.arange(12, dtype=np.float32).reshape(4, 3))
    copies = [x.T.reshape(12) for _ in range(4)]
    x.zero_()
    for copy in copies:
        assert not copy.is_view
        np.testing.assert_array_equal(copy.numpy(), np.arange(12, dtype=np.float32).reshape(4, 3).T.reshape(12))


def test_stale_views_and_written_views() -> None:
    for _ in range(3):
        leaf: Any = vk.tensor(np.ones(6, np.float32), requires_grad=True)
        x = leaf * 2.0
        before, part = x.reshape(2, 3), x[1:3]
        part.mul_(5.0)
        total = (before[1] * 3.0).sum() + before.T[0].sum() + x[0]
        total.backward()
        np.testing.assert_array_equal(leaf.grad.numpy(), [4, 0, 0, 8, 6, 6])
        np.testing.assert_array_equal(before.detach().numpy(), [[2, 10, 10], [2, 2, 2]])
        with pytest.raises(vk.errors.ArgumentError):
            leaf.reshape(2, 3).mul_(2.0)  # a view of a leaf


def test_tables_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_cache, "_MAX_PLANS", 8)
    x = vk.tensor(np.arange(64, dtype=np.float32))
    for start in range(40):
        assert x[start:].shape == (64 - start,)
        assert x[start].item() == start
        assert len(view_cache._unrecorded) <= 8 and len(view_cache._rows) <= 8


def test_layouts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array, "_MAX_LAYOUTS", 16)
    monkeypatch.setattr(array, "_layouts", {})
    monkeypatch.setattr(array, "_fresh", {})
    for n in range(1, 60):
        assert ((vk.ones(n) + 1)[:1] * n).tolist() == [2 * n]
    assert len(array._layouts) <= 16 and len(array._fresh) <= 16


def test_anomaly_mode_records_its_own_nodes() -> None:
    x = vk.tensor(np.ones((2, 3), np.float32), requires_grad=True)
    x.T, x.T  # noqa: B018  # kept now
    with vk.autograd.detect_anomaly():
        assert tape.NodeClass is not tape.Node
        assert type(x.T.meta.node) is tape.NodeClass
    assert type(x.T.meta.node) is tape.Node
