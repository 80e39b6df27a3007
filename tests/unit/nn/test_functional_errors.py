"""Tests of the errors of neural-network functions for mismatched operands: they say what was found and expected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

import vkjit as vk
from vkjit.nn import functional as F


@pytest.fixture(autouse=True)
def _on_the_interpreter() -> Any:
    vk.set_default_device(vk.device("interpreter"))
    yield
    vk.set_default_device(None)


def t(*shape: int, dtype: Any = None) -> Any:
    return vk.zeros(*shape, dtype=dtype or vk.f32)


CASES: list[tuple[str, Callable[[], Any], type[Exception], list[str]]] = [
    (
        "conv2d channels",
        lambda: F.conv2d(t(1, 3, 5, 5), t(4, 2, 3, 3)),
        vk.ShapeError,
        ["3 channels", "(4, 2, 3, 3)", "groups"],
    ),
    ("conv2d axes", lambda: F.conv2d(t(5, 5), t(4, 2, 3, 3)), vk.ShapeError, ["(5, 5)", "4 axes"]),
    ("conv2d kernel", lambda: F.conv2d(t(1, 1, 2, 2), t(1, 1, 3, 3)), vk.ShapeError, ["(2, 2)", "(3, 3)", "padding"]),
    (
        "conv2d types",
        lambda: F.conv2d(t(1, 1, 4, 4), t(1, 1, 3, 3, dtype=vk.f16)),
        vk.DTypeError,
        ["f32", "f16", ".to("],
    ),
    ("conv2d integers", lambda: F.conv2d(t(1, 1, 4, 4, dtype=vk.i32), t(1, 1, 3, 3)), vk.DTypeError, ["i32", "f32"]),
    ("conv2d bias", lambda: F.conv2d(t(1, 1, 4, 4), t(2, 1, 3, 3), t(3)), vk.ShapeError, ["(3,)", "(2,)"]),
    (
        "conv2d stride",
        lambda: F.conv2d(t(1, 1, 4, 4), t(2, 1, 3, 3), stride=0),
        vk.ArgumentError,
        ["stride=0", "at least 1"],
    ),
    (
        "conv2d stride count",
        lambda: F.conv2d(t(1, 1, 4, 4), t(2, 1, 3, 3), stride=(1, 1, 1)),
        vk.ArgumentError,
        ["2 of them"],
    ),
    (
        "conv2d same",
        lambda: F.conv2d(t(1, 1, 4, 4), t(2, 1, 3, 3), stride=2, padding="same"),
        vk.ArgumentError,
        ["same", "stride"],
    ),
    (
        "conv2d padding",
        lambda: F.conv2d(t(1, 1, 4, 4), t(2, 1, 3, 3), padding="full"),
        vk.ArgumentError,
        ["'full'", '"valid"'],
    ),
    (
        "conv2d groups",
        lambda: F.conv2d(t(1, 2, 4, 4), t(3, 1, 3, 3), groups=2),
        vk.ShapeError,
        ["filters (3)", "groups"],
    ),
    ("conv2d list", lambda: F.conv2d(cast("Any", [[1.0]]), t(3, 1, 3, 3)), vk.ArgumentError, ["list", "vk.tensor"]),
    (
        "conv_transpose2d",
        lambda: F.conv_transpose2d(t(1, 2, 4, 4), t(3, 1, 3, 3)),
        vk.ShapeError,
        ["2 channels", "takes 3"],
    ),
    (
        "conv_transpose2d output_padding",
        lambda: F.conv_transpose2d(t(1, 3, 4, 4), t(3, 1, 3, 3), output_padding=1),
        vk.ArgumentError,
        ["output_padding", "stride"],
    ),
    (
        "max_pool2d padding",
        lambda: F.max_pool2d(t(1, 1, 4, 4), 2, padding=2),
        vk.ArgumentError,
        ["padding=(2, 2)", "half"],
    ),
    ("max_pool2d size", lambda: F.max_pool2d(t(1, 1, 2, 2), 3), vk.ShapeError, ["(2, 2)", "(3, 3)"]),
    ("max_pool2d axes", lambda: F.max_pool2d(t(4, 4), 2), vk.ShapeError, ["(4, 4)", "4 axes"]),
    (
        "adaptive_max_pool2d integers",
        lambda: F.adaptive_max_pool2d(t(1, 1, 4, 4, dtype=vk.i64), 2),
        vk.DTypeError,
        ["i64"],
    ),
    (
        "avg_pool2d divisor",
        lambda: F.avg_pool2d(t(1, 1, 4, 4), 2, divisor_override=0),
        vk.ArgumentError,
        ["divisor_override=0"],
    ),
    (
        "adaptive size",
        lambda: F.adaptive_avg_pool2d(t(1, 1, 4, 4), (-1, 2)),
        vk.ArgumentError,
        ["output_size", "at least 0"],
    ),
    ("softmax dim", lambda: F.softmax(t(2, 3), 2), vk.ShapeError, ["axis 2", "2 axes"]),
    ("softmax integers", lambda: F.softmax(t(2, 3, dtype=vk.i32)), vk.DTypeError, ["i32"]),
    ("layer_norm shape", lambda: F.layer_norm(t(2, 3), (4,)), vk.ShapeError, ["(4,)", "(2, 3)"]),
    ("layer_norm weight", lambda: F.layer_norm(t(2, 3), 3, t(4)), vk.ShapeError, ["weight", "(4,)", "(3,)"]),
    ("group_norm groups", lambda: F.group_norm(t(2, 4, 3), 3), vk.ArgumentError, ["num_groups=3", "4 channels"]),
    ("batch_norm one", lambda: F.batch_norm(t(1, 4), training=True), vk.ShapeError, ["more than one value", "(1, 4)"]),
    ("batch_norm running", lambda: F.batch_norm(t(2, 4)), vk.ArgumentError, ["running_mean"]),
    (
        "batch_norm running shape",
        lambda: F.batch_norm(t(2, 4), t(3), t(4)),
        vk.ShapeError,
        ["running_mean", "(3,)", "(4,)"],
    ),
    (
        "cross_entropy shape",
        lambda: F.cross_entropy(t(2, 4), t(3, dtype=vk.i64)),
        vk.ShapeError,
        ["(2, 4)", "(2,)", "(3,)"],
    ),
    ("cross_entropy probabilities", lambda: F.cross_entropy(t(2, 4), t(2, 3)), vk.ShapeError, ["(2, 3)", "(2, 4)"]),
    (
        "cross_entropy weight",
        lambda: F.cross_entropy(t(2, 4), t(2, dtype=vk.i64), t(3)),
        vk.ShapeError,
        ["(3,)", "(4,)"],
    ),
    (
        "cross_entropy reduction",
        lambda: F.cross_entropy(t(2, 4), t(2, dtype=vk.i64), reduction="max"),
        vk.ArgumentError,
        ["'max'"],
    ),
    (
        "cross_entropy smoothing",
        lambda: F.cross_entropy(t(2, 4), t(2, dtype=vk.i64), label_smoothing=2),
        vk.ArgumentError,
        ["0 to 1"],
    ),
    ("nll_loss floats", lambda: F.nll_loss(t(2, 4), t(2)), vk.DTypeError, ["f32", "class indices"]),
    ("mse_loss shapes", lambda: F.mse_loss(t(2, 4), t(3, 4)), vk.ShapeError, ["(2, 4)", "(3, 4)"]),
    ("binary_cross_entropy shapes", lambda: F.binary_cross_entropy(t(2, 4), t(4)), vk.ShapeError, ["(2, 4)", "(4,)"]),
    ("huber_loss delta", lambda: F.huber_loss(t(2), t(2), delta=0), vk.ArgumentError, ["delta=0"]),
    ("embedding floats", lambda: F.embedding(t(2), t(3, 4)), vk.DTypeError, ["f32", "integers"]),
    ("embedding table", lambda: F.embedding(t(2, dtype=vk.i64), t(3)), vk.ShapeError, ["(3,)", "(rows, width)"]),
    (
        "embedding padding",
        lambda: F.embedding(t(2, dtype=vk.i64), t(3, 4), 3),
        vk.ArgumentError,
        ["padding_idx=3", "3"],
    ),
    ("one_hot classes", lambda: F.one_hot(t(2, dtype=vk.i64), 0), vk.ArgumentError, ["num_classes=0"]),
    ("dropout chance", lambda: F.dropout(t(2), 1.5), vk.ArgumentError, ["p=1.5", "0 to 1"]),
    ("glu odd", lambda: F.glu(t(2, 3)), vk.ShapeError, ["even", "(2, 3)"]),
    ("prelu weight", lambda: F.prelu(t(2, 3), t(2)), vk.ShapeError, ["2 elements", "3 channels"]),
    (
        "attention shapes",
        lambda: F.scaled_dot_product_attention(t(2, 3), t(4, 5), t(4, 5)),
        vk.ShapeError,
        ["(2, 3)", "(4, 5)", "(..., L, E)"],
    ),
    (
        "attention masks",
        lambda: F.scaled_dot_product_attention(t(2, 3), t(2, 3), t(2, 3), t(2, 2), is_causal=True),
        vk.ArgumentError,
        ["attn_mask", "is_causal"],
    ),
]


@pytest.mark.parametrize(("call", "error", "words"), [row[1:] for row in CASES], ids=[row[0] for row in CASES])
def test_errors_name_what_was_found_and_expected(
    call: Callable[[], Any], error: type[Exception], words: list[str]
) -> None:
    with pytest.raises(error) as caught:
        call()
    for word in words:
        assert word in str(caught.value)


def test_class_out_of_range_is_reported() -> None:
    loss = F.cross_entropy(vk.zeros(2, 3), vk.tensor([1, 3]))
    with pytest.raises(vk.KernelAssertionError, match="target 3 is no class"):
        loss.item()


def test_index_out_of_range_is_reported() -> None:
    rows = F.embedding(vk.tensor([0, 7]), vk.zeros(5, 2))
    with pytest.raises(vk.KernelAssertionError, match="index 7 is no row"):
        rows.numpy()


def test_operands_on_two_devices() -> None:
    devices = vk.devices()
    if len(devices) < 2:
        pytest.skip("one device on this machine")
    other = vk.device(devices[0].index)
    with pytest.raises(vk.ArgumentError, match=r"\.to\(device"):
        F.conv2d(vk.zeros(1, 1, 3, 3), vk.zeros(1, 1, 2, 2, device=other))
