"""Matrix products against PyTorch: ranks, batches, strides, types, gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkjit as vk
from tests.parity.reference import EPS, assert_close, normal, torch

PRODUCTS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((3,), (3,)),
    ((1, 1), (1, 1)),
    ((2, 3), (3, 4)),
    ((2, 3), (3,)),
    ((3,), (3, 4)),
    ((7, 5), (5, 11)),
    ((64, 64), (64, 64)),
    ((65, 33), (33, 67)),
    ((1, 129), (129, 1)),
    ((17, 1), (1, 19)),
    ((0, 3), (3, 4)),
    ((2, 0), (0, 4)),
    ((2, 3), (3, 0)),
    ((5, 2, 3), (5, 3, 4)),
    ((5, 2, 3), (3, 4)),
    ((2, 3), (5, 3, 4)),
    ((5, 1, 2, 3), (6, 3, 4)),
    ((2, 1, 3, 4), (1, 5, 4, 2)),
    ((4, 3), (2, 3, 5)),
    ((3,), (2, 3, 4)),
    ((2, 4, 3), (3,)),
    ((0, 2, 3), (3, 4)),
    ((130, 70), (70, 90)),
    ((3, 300), (300, 8)),
]


def check(a: Any, b: Any, ours: Any, theirs: Any, what: str) -> None:
    x, y = vk.tensor(a, requires_grad=True), vk.tensor(b, requires_grad=True)
    p, q = (torch.tensor(v.astype(np.float64), requires_grad=True) for v in (a, b))
    found, expected = ours(x, y), theirs(p, q)
    depth = a.shape[-1]
    with torch.no_grad():
        magnitude = theirs(p.abs(), q.abs()).numpy()
    assert_close(found, expected, EPS["f32"] * (depth + 2) * magnitude + 1e-37, what)
    weights = normal(np.random.default_rng(9), tuple(expected.shape))
    expected.backward(torch.tensor(weights.astype(np.float64)))
    found.backward(vk.tensor(weights))
    for mine, other in ((x, p), (y, q)):
        terms = max(1, found.numel() * depth // max(1, mine.numel()))
        size = float(np.max(np.abs(other.grad.numpy()), initial=0.0)) + 4
        assert_close(mine.grad, other.grad, EPS["f32"] * (terms + 4) * size, f"gradient of {what}")


@pytest.mark.parametrize("shapes", PRODUCTS, ids=str)
def test_matmul_and_gradients(device: Any, shapes: Any) -> None:
    rng = np.random.default_rng(8)
    check(normal(rng, shapes[0]), normal(rng, shapes[1]), vk.matmul, torch.matmul, f"matmul {shapes}")


def test_products_of_views(device: Any) -> None:
    rng = np.random.default_rng(10)
    for m, k, n in ((5, 7, 3), (33, 20, 65)):
        check(
            normal(rng, (k, m)),
            normal(rng, (n, k)),
            lambda x, y: x.t() @ y.t(),
            lambda x, y: x.t() @ y.t(),
            "both transposed",
        )
        check(
            normal(rng, (2 * m, k)),
            normal(rng, (k, 3 * n)),
            lambda x, y: x[::2] @ y[:, ::3],
            lambda x, y: x[::2] @ y[:, ::3],
            "sliced",
        )
        check(
            normal(rng, (1, k)),
            normal(rng, (k, 1)),
            lambda x, y, m=m, k=k, n=n: x.expand(m, k) @ y.expand(k, n),
            lambda x, y, m=m, k=k, n=n: x.expand(m, k) @ y.expand(k, n),
            "expanded",
        )
        check(
            normal(rng, (k, 4, m)),
            normal(rng, (n, k, 4)),
            lambda x, y: x.permute(1, 2, 0) @ y.permute(2, 1, 0),
            lambda x, y: x.permute(1, 2, 0) @ y.permute(2, 1, 0),
            "batches of views",
        )


@pytest.mark.parametrize(("ours", "theirs"), [(vk.f16, torch.float16), (vk.bf16, torch.bfloat16)], ids=["f16", "bf16"])
def test_half_products_accumulate_in_single(device: Any, ours: Any, theirs: Any) -> None:
    rng = np.random.default_rng(11)
    a, b = normal(rng, (37, 130)), normal(rng, (130, 21))
    x, y = vk.tensor(a, dtype=ours), vk.tensor(b, dtype=ours)
    p, q = (torch.tensor(v).to(theirs).double() for v in (a, b))
    allowed = EPS[ours.name] * 1.01 * (p @ q).abs().numpy() + EPS["f32"] * 132 * (p.abs() @ q.abs()).numpy()
    found = x @ y
    assert found.dtype is ours
    assert_close(found, p @ q, allowed, "half matmul")


def test_integers_and_doubles(device: Any) -> None:
    rng = np.random.default_rng(12)
    a, b = rng.integers(-9, 9, (6, 40)), rng.integers(-9, 9, (40, 5))
    for dtype in (vk.i32, vk.i64):
        found = vk.tensor(a, dtype=dtype) @ vk.tensor(b, dtype=dtype)
        assert found.dtype is dtype and np.array_equal(found.numpy(), a @ b)
    c, d = rng.standard_normal((6, 40)), rng.standard_normal((40, 5))
    assert_close(vk.tensor(c) @ vk.tensor(d), c @ d, 2.0**-53 * 42 * (np.abs(c) @ np.abs(d)), "f64")


def test_long_products(device: Any) -> None:
    rng = np.random.default_rng(13)
    a, b = normal(rng, (2, 40_000)), normal(rng, (40_000, 3))
    exact = a.astype(np.float64) @ b.astype(np.float64)
    allowed = EPS["f32"] * 16_400 * (np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64))
    assert_close(vk.tensor(a) @ vk.tensor(b), exact, allowed, "long product")


def test_the_named_products(device: Any) -> None:
    rng = np.random.default_rng(14)
    a, b, c, v = normal(rng, (4, 6)), normal(rng, (6, 5)), normal(rng, (5,)), normal(rng, (6,))
    x, y, z, w = map(vk.tensor, (a, b, c, v))
    p, q, r, s = map(torch.tensor, (a, b, c, v))
    pairs = [
        (vk.mm(x, y), torch.mm(p, q)),
        (vk.mv(x, w), torch.mv(p, s)),
        (vk.dot(w, w), torch.dot(s, s)),
        (vk.outer(w, z), torch.outer(s, r)),
        (vk.addmm(z, x, y), torch.addmm(r, p, q)),
        (vk.addmm(z, x, y, beta=0.5, alpha=2), torch.addmm(r, p, q, beta=0.5, alpha=2)),
        (vk.linear(x, y.t(), z), torch.nn.functional.linear(p, q.t(), r)),
        (vk.bmm(x[None], y[None]), torch.bmm(p[None], q[None])),
        (vk.trace(x), torch.trace(p)),
    ]
    for found, expected in pairs:
        assert_close(found, expected, 1e-5, "named product")


def test_wrong_shapes_are_refused_with_both_shapes(device: Any) -> None:
    with pytest.raises(vk.ShapeError, match=r"\(2, 3\).*\(4, 5\)"):
        vk.zeros(2, 3) @ vk.zeros(4, 5)
    with pytest.raises(vk.ShapeError, match="broadcast"):
        vk.zeros(2, 2, 3) @ vk.zeros(3, 3, 5)
    with pytest.raises(vk.DTypeError, match="f32.*f16"):
        vk.zeros(2, 3) @ vk.zeros(3, 5, dtype=vk.f16)
    with pytest.raises(vk.ShapeError, match="linear"):
        vk.linear(vk.zeros(2, 3), vk.zeros(5, 4))
