"""Indexing, gathering and scattering against PyTorch: values and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkjit as vk
from tests.parity.reference import Case, normal, run, torch

INDICES: list[tuple[str, tuple[int, ...], Any]] = [
    ("int", (5, 4), lambda _t: 2),
    ("negative", (5, 4), lambda _t: -1),
    ("ints", (5, 4), lambda _t: (1, -2)),
    ("slice", (5, 4), lambda _t: slice(1, 4)),
    ("step", (7, 4), lambda _t: slice(None, None, 3)),
    ("empty", (5, 4), lambda _t: slice(3, 1)),
    ("past the end", (5, 4), lambda _t: slice(2, 99)),
    ("mixed", (5, 4, 3), lambda _t: (slice(1, 3), 2)),
    ("dots", (5, 4, 3), lambda _t: (..., 1)),
    ("none", (5, 4), lambda _t: (slice(None), None, 1)),
    ("dots none", (5, 4, 3), lambda _t: (0, ..., None)),
    ("list", (5, 4), lambda _t: [3, 0, 3]),
    ("tensor", (5, 4), lambda t: t([4, -1, 0])),
    ("tensor 2d", (5, 4), lambda t: t([[4, 1], [0, 2]])),
    ("tensor second", (5, 4), lambda t: (slice(None), t([3, 3, 0]))),
    ("tensor and slice", (5, 4, 3), lambda t: (slice(1, 4), t([1, 0]))),
    ("int and tensor", (5, 4, 3), lambda t: (2, t([1, -2]))),
    ("two tensors", (5, 4, 3), lambda t: (t([4, 0, 1]), t([1, 1, -1]))),
    ("broadcast tensors", (5, 4, 3), lambda t: (t([[4], [0]]), t([1, 2, 3]))),
    ("apart", (5, 4, 3), lambda t: (t([4, 0]), slice(None), t([1, 2]))),
    ("0-d tensor", (5, 4), lambda t: t(3)),
    ("vector", (9,), lambda t: t([8, 0, 0, 3])),
    ("mask", (5, 4), lambda t: t([True, False, True, False, True])),
    ("full mask", (2, 3), lambda t: t([[True, False, True], [False, True, False]])),
    ("True", (2, 3), lambda _t: True),
    ("False", (2, 3), lambda _t: False),
    ("0-d mask", (2, 3), lambda t: t(True)),
    ("0-d mask, false", (2, 3), lambda t: t(False)),
    ("bools", (2, 3), lambda _t: (True, slice(1, 2), False)),
    ("int and True", (2, 3), lambda _t: (0, True)),
    ("True and int", (2, 3), lambda _t: (True, 0)),
    ("dots True", (2, 3), lambda _t: (..., True)),
    ("None True", (2, 3), lambda _t: (None, True)),
    ("0-d mask and tensor", (2, 3), lambda t: (t(True), t([1, 0]))),
    ("True apart", (2, 3, 4), lambda t: (True, t([0, 1]), slice(None), t([3, 1]))),
    ("mask second", (2, 3, 4), lambda t: (slice(None), t([True, False, True]))),
    ("mask and int", (2, 3, 4), lambda t: (t([True, False]), 0)),
    ("masks", (2, 3, 4), lambda t: (t([True, True]), t([True, False, True]))),
    ("masks apart", (2, 3, 4), lambda t: (t([True, True]), slice(None), t([True, False, True, False]))),
    ("matrix mask and tensor", (2, 3, 4), lambda t: (t([[True, False, True], [False, False, False]]), t([1, 3]))),
    ("mask dots tensor", (2, 3, 4), lambda t: (t([True, True]), ..., t([0, 3]))),
    ("u8 mask", (2, 3), lambda t: t([2, 0]).byte()),
    ("u8 mask second", (2, 3), lambda t: (slice(None), t([1, 0, 1]).byte())),
    ("0-d tensor apart", (2, 3, 4), lambda t: (t(1), slice(None), t([0, 3]))),
    ("0-d tensors", (2, 3, 4), lambda t: (t(1), slice(None), t(2))),
    ("int between tensors", (2, 3, 4), lambda t: (t([0, 1]), 2, t([1, 3]))),
    ("tensor None tensor", (2, 3, 4), lambda t: (t([0, 1]), None, t([1, 2]))),
    ("range", (5, 4), lambda _t: range(2)),
    ("tuple in tuple", (5, 4), lambda _t: ((3, 0),)),
    ("list of bools", (2, 3), lambda _t: [False, True]),
    ("list with slice", (5, 4), lambda _t: [slice(1, 3), 2]),
    ("list with None", (5, 4), lambda _t: [None, 2]),
    ("list of lists", (5, 4), lambda _t: [[0, 3], [1, 2]]),
    ("list of tensors", (5, 4), lambda t: [t([0, 3]), t(2)]),
]


@pytest.mark.filterwarnings("ignore:.*(uint8|u8|non-tuple sequence)")
@pytest.mark.parametrize(("name", "shape", "index"), INDICES, ids=[row[0] for row in INDICES])
def test_reading(device: Any, name: str, shape: tuple[int, ...], index: Any) -> None:
    case = Case(name, lambda x: x[index(vk.tensor)], lambda x: x[index(torch.tensor)], normal, 0, gradient_ulp=8)
    run(case, [shape])
    run(case, [(*reversed(shape),)], lambda x: x.permute(*reversed(range(len(shape)))), "transposed")


@pytest.mark.filterwarnings("ignore:.*(uint8|u8|non-tuple sequence)")
@pytest.mark.parametrize(("name", "shape", "index"), INDICES, ids=[row[0] for row in INDICES])
@pytest.mark.parametrize("tensor_value", [False, True], ids=["number", "tensor"])
def test_writing(device: Any, name: str, shape: tuple[int, ...], index: Any, tensor_value: bool) -> None:
    if tensor_value and name in ("list", "tensor second", "False"):
        pytest.skip("several writes to one place, or none, for which PyTorch's gradient of the value is None")
    if "u8" in name and not tensor_value:
        pytest.skip("PyTorch refuses to write numbers at masks of u8")
    values = normal(np.random.default_rng(1), shape)
    x, y = vk.tensor(values), torch.tensor(values)
    target = y[index(torch.tensor)]
    value = normal(np.random.default_rng(2), tuple(target.shape)) if tensor_value else None
    a: Any = vk.tensor(values, requires_grad=True)
    b = torch.tensor(values, requires_grad=True)
    pair: Any = (
        (vk.tensor(value, requires_grad=True), torch.tensor(value, requires_grad=True)) if tensor_value else (2.5, 2.5)
    )
    v, w = pair
    x, y = a * 1.0, b * 1.0
    x[index(vk.tensor)] = v
    y[index(torch.tensor)] = w
    if name not in ("vector",) or not tensor_value:  # for duplicate indices, either value may be stored
        assert np.array_equal(x.detach().numpy(), y.detach().numpy())
    weights = normal(np.random.default_rng(3), shape)
    (x * vk.tensor(weights)).sum().backward()
    (y * torch.tensor(weights)).sum().backward()
    assert np.array_equal(a.grad.numpy(), b.grad.numpy())
    if tensor_value:
        assert np.allclose(v.grad.numpy(), w.grad.numpy())


ALONG: list[tuple[tuple[int, ...], int, tuple[int, ...]]] = [
    ((5,), 0, (7,)),
    ((5, 4), 0, (3, 4)),
    ((5, 4), 1, (5, 9)),
    ((5, 4), 1, (2, 3)),
    ((3, 4, 5), 1, (3, 2, 5)),
    ((3, 4, 5), 1, (2, 6, 4)),
    ((3, 4, 5), 0, (1, 1, 1)),
    ((3, 4, 5), 2, (3, 4, 1)),
    ((1, 1), 0, (5, 1)),
    ((5, 4), 0, (0, 4)),
    ((2, 3, 4, 5), 2, (2, 3, 7, 5)),
    ((2, 3, 4, 5), 1, (1, 2, 3, 4)),
    ((64, 3), 0, (200, 3)),
]


@pytest.mark.parametrize(("shape", "axis", "index_shape"), ALONG, ids=str)
def test_gather_and_scatter(device: Any, shape: tuple[int, ...], axis: int, index_shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(4)
    index = rng.integers(0, shape[axis], index_shape)
    i, j = vk.tensor(index), torch.tensor(index)
    for view in (lambda x: x, lambda x: (x * 2).transpose(0, -1).contiguous().transpose(0, -1)):
        case = Case(
            "gather", lambda x: vk.gather(x, axis, i), lambda x: torch.gather(x, axis, j), normal, 0, gradient_ulp=64
        )
        run(case, [shape], view)
    added = Case(
        "scatter_add",
        lambda x, s: vk.scatter_add(x, axis, i, s),
        lambda x, s: torch.scatter_add(x, axis, j, s),
        normal,
        64,
        lambda _x, _s: 4.0,
        gradient_ulp=4,
        inputs=2,
    )
    run(added, [shape, index_shape])
    values = normal(rng, shape)
    number = vk.scatter(vk.tensor(values), axis, i, 3.0).numpy()
    assert np.array_equal(number, torch.scatter(torch.tensor(values), axis, j, 3.0).numpy())


def test_index_select_and_index_add(device: Any) -> None:
    index = np.array([5, 0, 0, 2, 5, 5])
    i, j = vk.tensor(index), torch.tensor(index)
    for shape, axis in (((6,), 0), ((6, 3), 0), ((4, 6), 1), ((2, 6, 3), 1), ((2, 3, 6), -1)):
        selected = Case(
            "index_select",
            lambda x, a=axis: vk.index_select(x, a, i),
            lambda x, a=axis: torch.index_select(x, a, j),
            normal,
            0,
        )
        run(selected, [shape])
        added = Case(
            "index_add",
            lambda x, s, a=axis: vk.index_add(x, a, i, s, alpha=2),
            lambda x, s, a=axis: torch.index_add(x, a, j, s, alpha=2),
            normal,
            16,
            lambda _x, _s: 8.0,
            inputs=2,
        )
        run(added, [shape, shape])


def test_take_along_dim_masks_and_nonzero(device: Any) -> None:
    values = normal(np.random.default_rng(5), (4, 5))
    x, y = vk.tensor(values), torch.tensor(values)
    order = np.argsort(values, 1)
    assert np.array_equal(vk.take_along_dim(x, vk.tensor(order), 1).numpy(), np.take_along_axis(values, order, 1))
    assert np.array_equal(vk.masked_select(x, x > 0).numpy(), torch.masked_select(y, y > 0).numpy())
    assert np.array_equal(vk.nonzero(x > 0).numpy(), torch.nonzero(y > 0).numpy())


def test_wrong_indices_are_refused(device: Any) -> None:
    x = vk.zeros(3, 4)
    with pytest.raises(IndexError, match="3 elements"):
        x[3]
    with pytest.raises(vk.ArgumentError, match="3 axes"):
        x[0, 0, 0]
    with pytest.raises(vk.DTypeError, match="f32"):
        x[vk.zeros(2)]
    with pytest.raises(vk.ShapeError, match="mask"):
        x[vk.tensor([True, False])]
    with pytest.raises(vk.ArgumentError, match="str"):
        x["a"]


NEGATIVE_INDICES: dict[str, Any] = {
    "x[i]": lambda L, x, i: x[i],
    "x[:, i]": lambda L, x, i: x[:, i],
    "x[i, i]": lambda L, x, i: x[i, i],
    "set_item": lambda L, x, i: _assigned(x * 2, i),
    "take": lambda L, x, i: L.take(x, i),
    "put": lambda L, x, i: (x * 2).put(i, x[0, :2]),
    "index_put": lambda L, x, i: (x * 2).index_put((i,), x[2]),
    "index_put accumulate": lambda L, x, i: (x * 2).index_put((i, i), x[2, :2], accumulate=True),
    "index_fill": lambda L, x, i: (x * 2).index_fill(0, i, 3.0),
    "take_along_dim": lambda L, x, i: L.take_along_dim(x, i[None, :], 1),
    "gather": lambda L, x, i: x.gather(1, i[None, :]),
    "gather, first axis": lambda L, x, i: x.gather(0, i[:, None]),
    "index_select": lambda L, x, i: x.index_select(0, i),
    "index_select, last axis": lambda L, x, i: x.index_select(1, i),
    "index_select, 0-d": lambda L, x, i: x[0, 0].index_select(0, i[:1]),
    "scatter": lambda L, x, i: x.scatter(1, i[None, :], x[:1, :2]),
    "scatter, number": lambda L, x, i: x.scatter(0, i[:, None], 3.0),
    "scatter, add": lambda L, x, i: x.scatter(0, i[:, None], 3.0, reduce="add"),
    "scatter_add": lambda L, x, i: x.scatter_add(0, i[:, None], x[:2, :1]),
    "scatter_add, vector": lambda L, x, i: x[0].scatter_add(0, i, x[1, :2]),
    "scatter_reduce": lambda L, x, i: x.scatter_reduce(0, i[:, None], x[:2, :1], "amax"),
    "scatter_reduce, mean": lambda L, x, i: x.scatter_reduce(0, i[:, None], x[:2, :1], "mean", include_self=False),
    "index_add": lambda L, x, i: x.index_add(0, i, x[:2]),
    "index_copy": lambda L, x, i: x.index_copy(1, i, x[:, :2]),
    "index_reduce": lambda L, x, i: x.detach().index_reduce(0, i, x.detach()[:2], "prod"),
    "scatter_": lambda L, x, i: (x * 2).scatter_(0, i[:, None], 3.0),
    "index_add_": lambda L, x, i: (x * 2).index_add_(0, i, x[:2]),
    "searchsorted": lambda L, x, i: L.searchsorted(x.detach()[0, :2], x.detach(), sorter=i),
    "max_unpool1d": lambda L, x, i: L.nn.functional.max_unpool1d(x[:1, :2], i[None, :], 2),
    "embedding": lambda L, x, i: L.nn.functional.embedding(i, x),
    "one_hot": lambda L, x, i: L.nn.functional.one_hot(i, 4),
    "nll_loss": lambda L, x, i: L.nn.functional.nll_loss(x[:2], i),
    "multi_margin_loss": lambda L, x, i: L.nn.functional.multi_margin_loss(x[:2], i),
    "multilabel_margin_loss": lambda L, x, i: L.nn.functional.multilabel_margin_loss(x[0, :2], i - 1),
    "scatter, empty": lambda L, x, i: L.cat([x[0], x[0, :0].scatter(0, i + 1, 3.0)]),
}  # fmt: skip
"""Calls on x of shape (3, 4) with a vector i of two indices, one of which is negative."""


def _assigned(x: Any, index: Any) -> Any:
    x[index] = 7.0
    return x


NEGATIVE_INDEX_CASES = [(name, "i64") for name in NEGATIVE_INDICES] + [
    (name, "i32") for name in ("x[i]", "set_item", "gather", "index_select", "scatter", "scatter_add", "embedding")
]


@pytest.mark.parametrize(("name", "dtype"), NEGATIVE_INDEX_CASES)
def test_negative_indices_count_from_the_end_or_are_refused(device: Any, name: str, dtype: str) -> None:
    call = NEGATIVE_INDICES[name]
    values = normal(np.random.default_rng(6), (3, 4))

    def results(library: Any, x: Any, index: Any) -> list[Any]:
        y = call(library, x, index)
        if y.requires_grad:
            (y * y).sum().backward()
        return [a.detach().numpy() for a in (y, x.grad) if a is not None]

    x, y = vk.tensor(values, requires_grad=True), torch.tensor(values, requires_grad=True)
    try:
        expected = results(torch, y, torch.tensor([0, -1], dtype=getattr(torch, dtype.replace("i", "int"))))
    except (IndexError, RuntimeError):
        with pytest.raises((vk.KernelAssertionError, vk.ArgumentError)):
            results(vk, x, vk.tensor([0, -1], dtype=getattr(vk, dtype)))
        return
    for actual, wanted in zip(results(vk, x, vk.tensor([0, -1], dtype=getattr(vk, dtype))), expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-6)


def test_an_index_out_of_range_adds_nothing_elsewhere(device: Any) -> None:
    """Where indices aren't checked, as on GPUs, index_put(accumulate=True) skips those out of range."""
    x = vk.zeros(3, 4)
    made = x.index_put((vk.tensor([5, -1]), vk.tensor([0, -9])), vk.tensor([1.0, 2.0]), accumulate=True)
    with pytest.raises(vk.KernelAssertionError, match="out of range"):
        made.tolist()
    assert made.tolist() == x.tolist()


def test_bools_index_scalars(device: Any) -> None:
    x = vk.tensor(5.0)
    assert (
        x[True].tolist()
        == x[vk.tensor(True)].tolist()
        == x[np.bool_(True)].tolist()
        == x[None, True][0].tolist()
        == [5.0]
    )
    assert x[False].shape == x[vk.tensor(False)].shape == x[True, False].shape == (0,)
    x[False] = 7.0
    assert x.item() == 5.0
    x[vk.tensor(True)] = 7.0
    assert x.item() == 7.0
    with pytest.raises(vk.ShapeError, match="broadcast"):
        vk.zeros(3)[False, [0, 1]]


def test_a_mask_of_u8_warns(device: Any) -> None:
    with pytest.warns(UserWarning, match="mask.*vk.i64"):
        assert vk.tensor([1.0, 2.0])[vk.tensor([0, 1], dtype=vk.u8)].tolist() == [2.0]
