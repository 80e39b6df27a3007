"""Elementwise operations with one operand against PyTorch: results and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkjit as vk
from tests.parity.reference import Case, between, normal, run_all, torch

F = torch.nn.functional
one = lambda x: np.ones_like(x)  # noqa: E731  # for results with cancellation: errors relative to 1
size = lambda x: np.abs(x)  # noqa: E731  # errors relative to the operand

CASES = [
    Case("neg", lambda x: -x, lambda x: -x, normal, 0),
    Case("abs", vk.abs, torch.abs, normal, 0),
    Case("square", vk.square, torch.square, normal, 2),
    Case("exp", vk.exp, torch.exp, normal, 8),
    Case("exp2", vk.exp2, torch.exp2, normal, 8),
    Case("expm1", vk.expm1, torch.expm1, normal, 8),
    Case("log", vk.log, torch.log, between(0.1, 9), 8, one),
    Case("log2", vk.log2, torch.log2, between(0.1, 9), 8, one),
    Case("log10", vk.log10, torch.log10, between(0.1, 9), 8, one),
    Case("log1p", vk.log1p, torch.log1p, between(-0.5, 4), 8),
    Case("sqrt", vk.sqrt, torch.sqrt, between(0.05, 9), 5),
    Case("rsqrt", vk.rsqrt, torch.rsqrt, between(0.05, 9), 5),
    Case("sin", vk.sin, torch.sin, normal, 8),
    Case("cos", vk.cos, torch.cos, normal, 8, one),
    Case("tan", vk.tan, torch.tan, between(-1.2, 1.2), 12),
    Case("asin", vk.asin, torch.asin, between(-0.9, 0.9), 8),
    Case("acos", vk.acos, torch.acos, between(-0.9, 0.9), 8),
    Case("atan", vk.atan, torch.atan, normal, 8),
    Case("sinh", vk.sinh, torch.sinh, normal, 12),
    Case("cosh", vk.cosh, torch.cosh, normal, 12),
    Case("tanh", vk.tanh, torch.tanh, normal, 8),
    Case("asinh", vk.asinh, torch.asinh, normal, 12),
    Case("acosh", vk.acosh, torch.acosh, between(1.1, 5), 12, one),
    Case("atanh", vk.atanh, torch.atanh, between(-0.9, 0.9), 12),
    Case("erf", vk.erf, torch.erf, normal, 8),
    Case("erfc", vk.erfc, torch.erfc, normal, 16),
    Case("sigmoid", vk.sigmoid, torch.sigmoid, normal, 12),
    Case("logit", vk.logit, torch.logit, between(0.05, 0.95), 12, one),
    Case("reciprocal", vk.reciprocal, torch.reciprocal, between(0.2, 3), 5),
    Case("floor", vk.floor, torch.floor, normal, 0),
    Case("ceil", vk.ceil, torch.ceil, normal, 0),
    Case("trunc", vk.trunc, torch.trunc, normal, 0),
    Case("round", vk.round, torch.round, normal, 0),
    Case("sign", vk.sign, torch.sign, normal, 0),
    Case("relu", vk.relu, torch.relu, normal, 0),
    Case("gelu", vk.gelu, F.gelu, normal, 16, size),
    Case(
        "gelu tanh", lambda x: vk.gelu(x, approximate="tanh"), lambda x: F.gelu(x, approximate="tanh"), normal, 16, size
    ),
    Case("silu", vk.silu, F.silu, normal, 16),
    Case("softplus", lambda x: vk.softplus(x, beta=2.0), lambda x: F.softplus(x, beta=2.0), normal, 16, one),
    Case("elu", lambda x: vk.elu(x, alpha=0.7), lambda x: F.elu(x, alpha=0.7), normal, 12),
    Case("leaky_relu", lambda x: vk.leaky_relu(x, negative_slope=0.2), lambda x: F.leaky_relu(x, 0.2), normal, 2),
    Case("logsigmoid", vk.logsigmoid, F.logsigmoid, normal, 16, one),
    Case("pow 3", lambda x: x**3, lambda x: x**3, normal, 4),
    Case("pow 2.5", lambda x: x**2.5, lambda x: x**2.5, between(0.1, 3), 40),
    Case("number ** x", lambda x: 2.0**x, lambda x: 2.0**x, normal, 40),
    Case("isnan", vk.isnan, torch.isnan, normal, None, gradient_ulp=None),
    Case("isfinite", vk.isfinite, torch.isfinite, normal, None, gradient_ulp=None),
    Case("logical_not", vk.logical_not, torch.logical_not, normal, None, gradient_ulp=None),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_results_and_gradients_are_pytorchs(device: Any, case: Case) -> None:
    run_all(case)


SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 1e-30, 3e38, -3e38], np.float32)


@pytest.mark.parametrize(
    "name",
    "abs neg floor ceil trunc round relu exp log sqrt rsqrt sigmoid tanh erf sin cos atan isnan isinf isfinite".split(),
)
def test_special_values_give_what_pytorch_gives(device: Any, name: str) -> None:
    found = getattr(vk, name)(vk.tensor(SPECIAL)).numpy()
    expected = getattr(torch, name)(torch.tensor(SPECIAL)).numpy()
    assert found.dtype == expected.dtype
    if name in ("sin", "cos"):  # for large arguments, only check which results are finite
        assert np.array_equal(np.isnan(found), np.isnan(expected))
        return
    assert np.allclose(found, expected, rtol=1e-6, atol=0, equal_nan=True), (found, expected)


@pytest.mark.parametrize(
    ("ours", "theirs"), [(vk.i8, torch.int8), (vk.i32, torch.int32), (vk.i64, torch.int64), (vk.u8, torch.uint8)]
)
def test_integers_keep_their_type_or_become_floats(device: Any, ours: Any, theirs: Any) -> None:
    values = [0, 1, 5, 100, 127]
    x, y = vk.tensor(values, dtype=ours), torch.tensor(values, dtype=theirs)
    for name in ("neg", "square", "sign", "floor", "relu", "bitwise_not", "abs"):
        found, expected = getattr(vk, name)(x), getattr(torch, name)(y)
        assert found.dtype is ours, name
        assert np.array_equal(found.numpy(), expected.numpy()), name
    for name in ("exp", "sqrt", "sin", "sigmoid"):
        found, expected = getattr(vk, name)(x), getattr(torch, name)(y)
        assert found.dtype is vk.f32, name
        assert np.allclose(found.numpy(), expected.numpy(), rtol=2e-6), name
