"""Tiled attention and its gradients, on every executor, compared with float64: edges, heads, masks, views, types."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from tests.device.tiles.tile_errors import Attention, check, values
from vkjit.runtime.device import Device
from vkjit.stdlib.attention import dispatch as attention_host, small
from vkjit.stdlib.attention.backward import key_gradients, query_gradient, row_dot_products
from vkjit.stdlib.attention.dispatch import Masking, attend, gradients, tiles_for
from vkjit.stdlib.attention.forward import attention, attention_16bit
from vkjit.stdlib.registry import forcing_class

CASES = [  # type, mask, causal, shift, (H, G)
    (vk.f32, "", True, -2, (4, 2)), (vk.f16, "keep", False, 0, (2, 2)), (vk.bf16, "add", True, 8, (2, 1)),
    (vk.f64, "", False, 0, (1, 1)),
]  # fmt: skip
SIZES = [(19, 27, 12), (1, 1, 1), (16, 16, 16), (17, 31, 13), (3, 0, 5), (0, 3, 5)]
"""Rows of queries, rows of keys, head size, for tiles of 16 x 16 x 16."""


def masks(kind: str, shape: tuple[int, ...]) -> Any:
    rng = np.random.default_rng(9)
    if kind == "keep":
        kept = rng.random(shape) < 0.7
        kept[..., :1, :] = False  # a query without visible keys
        return kept
    return rng.normal(size=shape).astype(np.float32)


def run(tensors: Any, mask: Any, kind: str, causal: bool, shift: int, scale: float, **tile: int) -> dict[str, Any]:
    """Return o, dq, dk and dv computed by the kernels."""
    q, k, v, g = tensors
    total = vk.f64 if q.dtype is vk.f64 else vk.f32
    factor, extra = np.asarray(scale, total.numpy), q if mask is None else mask
    o, dq, dk, dv = vk.zeros_like(q), vk.zeros_like(q), vk.zeros_like(k), vk.zeros_like(v)
    lse, delta = (vk.zeros(q.shape[:3], dtype=total) for _ in range(2))
    options = {"scale": factor, "shift": shift, "CAUSAL": causal, "MASK": kind, **tile}
    if q.dtype is vk.f16:
        attention_16bit(q, k, v, extra, o, lse, PREFETCH="early", **options)
    else:
        attention(q, k, v, extra, o, lse, **options)
    row_dot_products(o, g, delta, SIZE=tile["SIZE"])
    hold = tile["SIZE"] < 256
    query_gradient(q, k, v, extra, g, lse, delta, dq, HOLD=hold, **options)
    key_gradients(q, k, v, extra, g, lse, delta, dk, dv, HOLD=hold, **options)
    return {"o": o, "dq": dq, "dk": dk, "dv": dv}


def skip_without(device: Device, dtype: Any) -> None:
    if device.caps.kind != "llvm-cpu" and dtype is vk.f64 and "f64" not in device.caps.dtypes:
        pytest.skip("the device has no f64")


def verify(
    device: Device, shapes: Any, dtype: Any, kind: str, causal: bool, shift: int, view: Any = lambda x: x, **tile: int
) -> None:
    """Compare the kernels with NumPy for q and k of the given shapes."""
    with vk.use_device(device):
        pairs = [values(shapes[n], dtype, n) for n in (0, 1, 1, 0)]
        tensors, exact = [view(t) for t, _ in pairs], [np.asarray(view(x)) for _, x in pairs]
        shape = (*exact[0].shape[:3], exact[1].shape[2])
        mask, seen = masks(kind, shape) if kind else None, np.ones(shape, bool)
        if causal:
            seen = np.broadcast_to(np.arange(shape[3]) <= np.arange(shape[2])[:, None] + shift, shape)
        if kind == "keep":
            seen = seen & mask
        given = None if mask is None else vk.tensor(mask)
        scale = 0.3 if dtype is vk.f64 else float(np.float32(0.3))
        found = run(tensors, given, kind, causal, shift, scale, **tile)
        q, k, v, g = exact
        expected = Attention(q, k, v, g, seen, mask if kind == "add" else 0.0, scale, dtype).results()
        for name, tensor in found.items():
            check(tensor, *expected[name], f"{name} of {shape} {dtype}")


@pytest.mark.parametrize(("dtype", "kind", "causal", "shift", "heads"), CASES)
def test_attention_and_gradients(
    device: Device, dtype: Any, kind: str, causal: bool, shift: int, heads: tuple[int, int]
) -> None:
    """f64 also covers heads in the second to last axis, every other row, and a slice of each head."""
    skip_without(device, dtype)
    for m, n, d in SIZES:
        shapes = ((2, heads[0], m, d), (2, heads[1], n, d))
        if dtype is not vk.f64:
            verify(device, shapes, dtype, kind, causal, shift, SIZE=16, BM=16, BN=16)
            continue
        wide = tuple((b, 2 * rows, h, size + 4) for b, h, rows, size in shapes)
        verify(
            device, wide, dtype, kind, causal, shift, lambda x: x.swapaxes(1, 2)[:, :, ::2, 3:-1], SIZE=16, BM=16, BN=16
        )


@pytest.mark.parametrize("dtype", [vk.f32, vk.f16])
def test_large_heads(device: Device, dtype: Any) -> None:
    """A workgroup's operands aren't kept in registers if there is no room for them."""
    if device.caps.kind == "cpu" or (device.caps.kind != "interpreter" and dtype is vk.f16):
        pytest.skip("such kernels take long to compile; f32 on the device cpu and the interpreter hold them")
    verify(device, ((1, 1, 9, 251), (1, 1, 11, 251)), dtype, "", False, 0, SIZE=256, BM=8, BN=8)


@pytest.mark.parametrize("shared", [32 << 10, 48 << 10])
@pytest.mark.parametrize("itemsize", [2, 4, 8])
def test_tiles_fit(itemsize: int, shared: int) -> None:
    for head in (1, 16, 40, 64, 96, 128, 200, 256):
        tiles = tiles_for(head, itemsize, shared)
        if itemsize == 8 and head > 128 and shared < 48 << 10:
            continue
        assert tiles is not None
        assert tiles.size >= head
        for rows, columns in (tiles.forward, tiles.backward):
            assert (rows + columns) * tiles.size * itemsize <= shared


def test_by_the_host_functions(device: Device) -> None:
    """`attend` and `gradients` choose tiles and allocate intermediate results."""
    with vk.use_device(device):
        (q, a), (k, b), (v, c), (g, d) = (values((1, 2, n, 20), vk.f32, n) for n in (33, 29, 29, 33))
        o, targets = vk.zeros_like(q), [vk.zeros_like(t) for t in (q, k, v)]
        lse = attend(q._array, k._array, v._array, o._array, 0.2, Masking())
        gradients(
            (q._array, k._array, v._array), (o._array, lse), g._array, tuple(t._array for t in targets), 0.2, Masking()
        )  # fmt: skip
        expected = Attention(a, b, c, d, np.ones((1, 2, 33, 29), bool), 0.0, float(np.float32(0.2)), vk.f32).results()
        for tensor, name in zip((o, *targets), ("o", "dq", "dk", "dv"), strict=True):
            check(tensor, *expected[name], name)


# -- attention on tensors


@pytest.mark.parametrize("form", ["composed", "tiles"])
@pytest.mark.parametrize("dtype", [vk.f16, vk.bf16])
def test_16_bit_attention_rounds_only_its_result(device: Device, dtype: Any, form: str) -> None:
    """Scores have size 30: if they were rounded to 16 bits, weights would be off by several percent."""
    if form == "tiles" and device.caps.kind != "interpreter":
        pytest.skip("the kernels are compared above; here they are what tensors get")
    with vk.use_device(device):
        (q, a), (k, b), (v, c) = (values((2, 21, 8), dtype, n) for n in range(3))
        with forcing_class("gpu" if form == "tiles" else "cpu"):
            o = vk.scaled_dot_product_attention(q, k, v, scale=4.0)
        seen = np.ones((1, 2, 21, 21), bool)
        expected, error = Attention(a[None], b[None], c[None], a[None], seen, 0.0, 4.0, dtype).results()["o"]
        check(o, expected[0], error[0])


def test_the_gradient_keeps_no_scores(device: Device) -> None:
    """The fused operation saves neither scores nor weights on the tape, for any options."""
    with vk.use_device(device), forcing_class("gpu"):
        q = values((1, 2, 9, 4), vk.f32)[0].requires_grad_()
        for options in ({}, {"is_causal": True}, {"attn_mask": vk.tensor(masks("keep", (9, 9)))}):
            o = vk.scaled_dot_product_attention(q, q, q, **options)
            node = next(node for node in nodes_of(o) if node.name == "attention")
            kept = [node.output(n).shape for n in (0, 1)]
            assert kept == [(1, 2, 9, 4), (1, 2, 9)]


def test_heads_that_share_keys(device: Device) -> None:
    with vk.use_device(device):
        (q, a), (k, b), (v, c), (odd, _) = (values((1, h, 5, 4), vk.f32, n) for n, h in enumerate((6, 2, 2, 4)))
        with pytest.raises(vk.ShapeError, match="of the query a multiple"):
            vk.scaled_dot_product_attention(q, odd, odd, enable_gqa=True)
        expected, error = Attention(a, b, c, a, np.ones((1, 6, 5, 5), bool), 0.0, 0.5, vk.f32).results()["o"]
        for kind in ("cpu", "gpu"):
            with forcing_class(kind):
                check(vk.scaled_dot_product_attention(q, k, v, enable_gqa=True), expected, error, kind)


def test_many_scores_on_a_processor(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device cpu uses the tiled kernels above a threshold."""
    if device.caps.kind != "llvm-cpu":
        pytest.skip("what the device cpu does")
    monkeypatch.setattr(attention_host, "MIN_CPU_SCORES", 1 << 12)
    with vk.use_device(device):
        (q, a), (k, b), (v, c) = (values((1, 1, n, 8), vk.f32, n) for n in (65, 64, 64))
        q.requires_grad_()
        o = vk.scaled_dot_product_attention(q, k, v)
        few = vk.scaled_dot_product_attention(q[:, :, :63], k, v)
        assert "attention" not in {node.name for node in nodes_of(few)}
        assert "attention" in {node.name for node in nodes_of(o)}
        o.backward(vk.ones_like(o))
        exact = Attention(a, b, c, np.ones_like(a), np.ones((1, 1, 65, 64), bool), 0.0, 8**-0.5, vk.f32).results()
        check(o, *exact["o"])
        check(q.grad, *exact["dq"])


# -- few scores


@pytest.mark.parametrize(("dtype", "kind", "causal", "heads"), [
    (vk.f32, "", True, (4, 2)), (vk.f16, "keep", False, (2, 2)), (vk.bf16, "add", True, (2, 1)), (vk.f64, "", False, (1, 1)),
])  # fmt: skip
def test_few_scores(device: Device, dtype: Any, kind: str, causal: bool, heads: tuple[int, int]) -> None:
    """The kernels for few scores, on every executor: ragged sizes, strided operands, keys shared by heads."""
    skip_without(device, dtype)
    with vk.use_device(device):
        for m, n, size in ((5, 7, 3), (1, 1, 1), (4, 4, 16), (1, 33, 5)):
            q_heads, k_heads = heads
            shapes = [(2, m, q_heads, size), (2, n, k_heads, size), (2, n, k_heads, size), (2, m, q_heads, size)]
            pairs = [values(shape, dtype, number) for number, shape in enumerate(shapes)]
            q, k, v, g = (t.transpose(1, 2) for t, _ in pairs)
            exact = [np.swapaxes(x, 1, 2) for _, x in pairs]
            shape = (2, q_heads, m, n)
            mask, seen, bias = masks(kind, shape) if kind else None, np.ones(shape, bool), 0.0
            if causal:
                seen = np.broadcast_to(np.arange(n) <= np.arange(m)[:, None], shape)
            if kind == "keep":
                seen = seen & mask
            elif kind == "add":
                bias = mask.astype(np.float64)  # type: ignore[union-attr]
            total = vk.f64 if dtype is vk.f64 else vk.f32
            factor, extra = np.asarray(0.3, total.numpy), q if mask is None else vk.tensor(mask)
            o, dq, dk, dv = (vk.zeros_like(t) for t in (q, q, k, v))
            lse, lanes = vk.zeros((2, q_heads, m), dtype=total), device.caps.subgroup_size
            small.attend_row(q, k, v, extra, o, lse, factor, 0, lanes, 64, causal, kind)
            small.gradients_of_head(
                q, k, v, extra, g, lse, dq, dk, dv, factor, 0, lanes, 64, 64, causal, kind
            )  # fmt: skip
            operands: list[Any] = [*exact, seen, bias, float(factor), dtype]
            expected = Attention(*operands).results()
            for tensor, name in zip((o, dq, dk, dv), ("o", "dq", "dk", "dv"), strict=True):
                check(tensor, *expected[name], f"{name} {m, n, size}")


def test_few_scores_take_two_launches(device: Device) -> None:
    """On the device cpu attention of few scores is one node, with the second derivative of the composed form."""
    if device.caps.kind != "llvm-cpu":
        pytest.skip("what the device cpu does")
    with vk.use_device(device):
        inputs = [values((1, 2, 4, 8), vk.f64, n)[0] for n in range(3)]
        slopes = []
        for kind in (None, "cpu"):  # "cpu": composed
            q, k, v = (x.detach().requires_grad_() for x in inputs)
            with contextlib.nullcontext() if kind is None else forcing_class(kind):
                o = vk.scaled_dot_product_attention(q, k, v, is_causal=True)
                assert ("attention" in {node.name for node in nodes_of(o)}) is (kind is None)
                only_query = vk.autograd.grad((o * o).sum(), q, retain_graph=True)[0]
                first = vk.autograd.grad((o * o).sum(), (q, k, v), create_graph=True)
                np.testing.assert_allclose(only_query.numpy(), first[0].detach().numpy(), rtol=1e-12, atol=1e-14)
                second = vk.autograd.grad(sum((t * t).sum() for t in first), (q, k, v))
            slopes.append([t.detach().numpy() for t in (o, *first, *second)])
        for fused, composed in zip(*slopes, strict=True):
            np.testing.assert_allclose(fused, composed, rtol=1e-11, atol=1e-13)
        many = vk.scaled_dot_product_attention(*(vk.zeros((1, 1, 33, 32)).requires_grad_() for _ in range(3)))
        assert "attention" not in {node.name for node in nodes_of(many)}


def nodes_of(x: Any) -> list[Any]:
    """Return the operations that produced a tensor, last first, following first operands."""
    found, node = [], x.meta.node
    while node is not None:
        found.append(node)
        node = next((e.node for e in node.edges if e is not None and e.node is not None), None)
    return found
