"""Every gradient rule compared with finite differences: one case per rule of the table, with second derivatives
for smooth operations.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit.runtime.dispatch_cache import renew
from vkjit.stdlib.registry import forcing_class
from vkjit.tensor import api
from vkjit.tensor.autograd.rules import RULES
from vkjit.tensor.dispatch import OPERATIONS
from vkjit.tensor.ops import elementwise

assert api  # importing it registers every operation
RNG = np.random.default_rng(3)
F = vk.nn.functional


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape)


def between(low: float, high: float, *shape: int) -> Any:
    return RNG.uniform(low, high, shape)


def well_separated(*shape: int) -> Any:
    """Return values that differ by more than the finite-difference step, so that min/max and signs don't change."""
    count = int(np.prod(shape))
    return (RNG.permutation(count) - count / 2 + 0.3).reshape(shape)


INDEX = np.array([[0, 2, 1, 0], [2, 2, 0, 1]])
MASK = np.array([[True, False, True, False], [False, True, True, False], [True, True, False, False]])


def on_tensor(name: str, **params: Any) -> Callable[..., Any]:
    return lambda x, *rest: getattr(x, name)(*rest, **params)


def in_place(x: Any, write: Callable[[Any], Any]) -> Any:
    y = x * 1.0
    write(y)
    return y


def _attended(query: Any, key: Any, value: Any) -> Any:
    """Attention with GPU kernels, which small inputs don't use on CPUs."""
    with forcing_class("gpu"):
        return vk.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)


SMOOTH: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "acos": (vk.acos, [between(-0.8, 0.8, 5)]),
    "acosh": (vk.acosh, [between(1.5, 3, 5)]),
    "add": (lambda a, b: vk.add(a, b, alpha=2.0) ** 2, [normal(3, 4), normal(4)]),
    "asin": (vk.asin, [between(-0.8, 0.8, 5)]),
    "asinh": (vk.asinh, [normal(5)]),
    "atan": (vk.atan, [normal(5)]),
    "atan2": (vk.atan2, [between(1, 2, 3, 4), between(1, 2, 4)]),
    "atanh": (vk.atanh, [between(-0.8, 0.8, 5)]),
    "cos": (vk.cos, [normal(5)]),
    "cosh": (vk.cosh, [normal(5)]),
    "cumprod": (lambda x: vk.cumprod(x, 1), [between(0.5, 2, 3, 4)]),
    "cumsum": (lambda x: vk.cumsum(x, 0) ** 2, [normal(3, 4)]),
    "entr": (vk.special.entr, [between(0.5, 2, 5)]),
    "erf": (vk.erf, [normal(5)]),
    "erfc": (vk.erfc, [normal(5)]),
    "erfinv": (vk.erfinv, [between(-0.7, 0.7, 5)]),
    "exp": (vk.exp, [normal(5)]),
    "exp2": (vk.exp2, [normal(5)]),
    "expm1": (vk.expm1, [normal(5)]),
    "gather": (lambda x: vk.gather(x, 1, vk.tensor(INDEX)) ** 2, [normal(2, 3)]),
    "col2im": (lambda x: F.fold(x, (3, 4), (2, 2), 1, 1, (2, 1)) ** 2, [normal(1, 8, 10)]),
    "hypot": (vk.hypot, [between(1, 2, 3, 4), between(1, 2, 4)]),
    "ldexp": (vk.ldexp, [normal(3, 4), normal(4)]),
    "lerp": (vk.lerp, [normal(3, 4), normal(4), between(0, 1, 3, 4)]),
    "log": (vk.log, [between(0.5, 2, 5)]),
    "log10": (vk.log10, [between(0.5, 2, 5)]),
    "log1p": (vk.log1p, [between(0.5, 2, 5)]),
    "log2": (vk.log2, [between(0.5, 2, 5)]),
    "attention": (_attended, [normal(1, 4, 5, 3), normal(1, 2, 5, 3), normal(1, 2, 5, 3)]),
    "log_softmax": (lambda x: vk.log_softmax(x, 1), [normal(3, 4)]),
    "logaddexp": (vk.logaddexp, [normal(3, 4), normal(4)]),
    "logaddexp2": (vk.logaddexp2, [normal(3, 4), normal(4)]),
    "logcumsumexp": (lambda x: vk.logcumsumexp(x, 1), [normal(3, 4)]),
    "logit": (vk.logit, [between(0.2, 0.8, 5)]),
    "logsumexp": (lambda x: vk.logsumexp(x, 1), [normal(3, 4)]),
    "matmul": (vk.matmul, [normal(2, 3, 4), normal(4, 2)]),
    "mean": (lambda x: vk.mean(x, 0) ** 2, [normal(3, 4)]),
    "mish": (F.mish, [normal(5)]),
    "mul": (vk.mul, [normal(3, 4), normal(3, 1)]),
    "ndtr": (vk.special.ndtr, [normal(5)]),
    "norm2": (lambda x: vk.norm(x, 2, 1), [between(1, 2, 3, 4)]),
    "pow": (vk.pow, [between(0.5, 2, 3, 4), between(0.5, 2, 4)]),
    "reciprocal": (vk.reciprocal, [between(1, 2, 5)]),
    "replace_part": (lambda x, s: vk.diagonal_scatter(x, s) ** 2, [normal(3, 4), normal(3)]),
    "rsqrt": (vk.rsqrt, [between(1, 2, 5)]),
    "scatter_add": (lambda x, s: vk.scatter_add(x, 1, vk.tensor(INDEX), s) ** 2, [normal(2, 3), normal(2, 4)]),
    "sigmoid": (vk.sigmoid, [normal(5)]),
    "silu": (F.silu, [normal(5)]),
    "sin": (vk.sin, [normal(5)]),
    "sinh": (vk.sinh, [normal(5)]),
    "softmax": (lambda x: vk.softmax(x, 1), [normal(3, 4)]),
    "sqrt": (vk.sqrt, [between(1, 2, 5)]),
    "square": (vk.square, [normal(5)]),
    "sub": (lambda a, b: vk.sub(a, b, alpha=2.0) ** 2, [normal(3, 4), normal(4)]),
    "sum": (lambda x: vk.sum(x, 1) ** 2, [normal(3, 4)]),
    "tan": (vk.tan, [between(-1, 1, 5)]),
    "tanh": (vk.tanh, [normal(5)]),
    "true_divide": (vk.true_divide, [normal(3, 4), between(1, 2, 4)]),
    "var": (lambda x: vk.var(x, 1), [normal(3, 4)]),
    "xlog1py": (vk.special.xlog1py, [normal(5), between(0.5, 2, 5)]),
    "xlogy": (vk.xlogy, [normal(5), between(0.5, 2, 5)]),
}
"""Rules whose second derivatives are checked, too."""

OTHERS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "abs": (vk.abs, [well_separated(5)]),
    "amax": (lambda x: vk.amax(x, 1), [well_separated(3, 4)]),
    "amin": (lambda x: vk.amin(x, (0, 1)), [well_separated(3, 4)]),
    "cast": (lambda x: (x.to(vk.f64) ** 2).to(vk.f32), [normal(5)]),
    "cat": (lambda a, b: vk.cat([a, b], 1), [normal(2, 3), normal(2, 1)]),
    "ceil": (vk.ceil, [well_separated(5)]),
    "clamp": (lambda x: vk.clamp(x, -1.5, 1.5), [well_separated(6)]),
    "clamp_high": (lambda x: x.clamp(max=1.5), [well_separated(6)]),
    "clamp_low": (lambda x: x.clamp(min=-1.5), [well_separated(6)]),
    "clone": (lambda x: x.clone(), [normal(5)]),
    "im2col": (lambda x: F.unfold(x, (2, 3), 1, (0, 1), (2, 1)), [normal(1, 2, 5, 4)]),
    "compact": (lambda x: vk.masked_select(x, vk.tensor(MASK)), [normal(3, 4)]),
    "copy": (lambda x, y: in_place(x, lambda t: t.copy_(y)), [normal(3, 4), normal(4)]),
    "copysign": (vk.copysign, [well_separated(6), well_separated(6)]),
    "diagonal": (lambda x: vk.diagonal(x, 1), [normal(3, 4)]),
    "elu": (lambda x: F.elu(x), [well_separated(6)]),
    "expand": (lambda x: x.expand(3, 4), [normal(4)]),
    "fill": (lambda x: in_place(x, lambda t: t.fill_(2.0)) + x, [normal(5)]),
    "floor": (vk.floor, [well_separated(5)]),
    "floor_divide": (lambda x: vk.floor_divide(x, 7.0) + x, [well_separated(5)]),
    "fmax": (vk.fmax, [well_separated(6), well_separated(6) + 0.17]),
    "fmin": (vk.fmin, [well_separated(6), well_separated(6) + 0.17]),
    "fmod": (lambda x: vk.fmod(x, 3.7), [well_separated(6)]),
    "gelu": (lambda x: F.gelu(x), [normal(5)]),
    "hardtanh": (lambda x: F.hardtanh(x, -1.5, 1.5), [well_separated(6)]),
    "leaky_relu": (lambda x: F.leaky_relu(x), [well_separated(6)]),
    "masked_fill": (lambda x, v: in_place(x, lambda t: t.masked_fill_(vk.tensor(MASK), v)), [normal(3, 4), normal()]),
    "maximum": (vk.maximum, [well_separated(6), well_separated(6) + 0.17]),
    "minimum": (vk.minimum, [well_separated(6), well_separated(6) + 0.17]),
    "neg": (vk.neg, [normal(5)]),
    "pad": (lambda x: F.pad(x, (1, 2)), [normal(3, 4)]),
    "permute": (lambda x: vk.permute(x, 1, 0), [normal(3, 4)]),
    "positive": (vk.positive, [normal(5)]),
    "prod": (lambda x: vk.prod(x, 1), [between(0.5, 2, 3, 4)]),
    "put": (lambda x, v: vk.index_put(x, (vk.tensor([0, 2]),), v), [normal(3, 4), normal(2, 4)]),
    "relu": (vk.relu, [well_separated(6)]),
    "remainder": (lambda x: vk.remainder(x, 3.7), [well_separated(6)]),
    "reshape": (lambda x: x.reshape(4, 3), [normal(3, 4)]),
    "round": (vk.round, [well_separated(5)]),
    "scatter": (lambda x, s: vk.scatter(x, 1, vk.tensor([[0, 2], [1, 0]]), s), [normal(2, 3), normal(2, 2)]),
    "scatter_combine": (
        lambda x, s: vk.scatter_reduce(x, 1, vk.tensor(INDEX), s, "prod"), [between(1, 2, 2, 3), between(1, 2, 2, 4)]
    ),
    "set_item": (lambda x, v: in_place(x, lambda t: t.__setitem__(1, v)), [normal(3, 4), normal(4)]),
    "shared_value": (lambda x: vk.median(x) ** 2, [well_separated(6)]),
    "sign": (lambda x: vk.sign(x) + x, [well_separated(5)]),
    "sinc": (vk.sinc, [between(0.2, 2, 5)]),
    "slice": (lambda x: x[::2, 1:], [normal(3, 4)]),
    "softplus": (lambda x: F.softplus(x), [normal(5)]),
    "std": (lambda x: vk.std(x, 1), [normal(3, 4)]),
    "take": (lambda x: x[vk.tensor([2, 0, 2])], [normal(3, 4)]),
    "triangle": (lambda x: vk.tril(x), [normal(4, 4)]),
    "trunc": (vk.trunc, [well_separated(5)]),
    "trunc_divide": (lambda x: vk.div(x, 7.0, rounding_mode="trunc") + x, [well_separated(5)]),
    "where": (lambda a, b: vk.where(vk.tensor(MASK), a, b), [normal(3, 4), normal(4)]),
    "windows": (lambda x: x.unfold(1, 3, 1), [normal(2, 5)]),
}  # fmt: skip

OF_GRADIENTS = frozenset(
    "gelu_erf_grad gelu_tanh_grad leaky_relu_grad part_of relu_grad sigmoid_grad silu_grad tanh_grad undiagonal unslice".split()
)
"""Rules of gradient operations, which second derivatives of the operations above run."""


NO_GRADIENT = frozenset(
    "bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor eq gcd ge gt heaviside isfinite isinf "
    "isnan isneginf isposinf le logical_and logical_not logical_or logical_xor lt ne searchsorted signbit".split()
)
"""Operations without a gradient: on integers or bool, or with steps that PyTorch doesn't differentiate either."""


def test_every_operation_has_a_rule_or_none_for_a_reason() -> None:
    missing = OPERATIONS.keys() - RULES.keys()
    unnamed = sorted(missing - NO_GRADIENT)
    assert not unnamed, (
        f"operations without a gradient rule: add one, or name them in NO_GRADIENT: {', '.join(unnamed)}"
    )
    assert not NO_GRADIENT - missing, "no operation, or one with a rule"


def test_every_rule_has_a_case() -> None:
    from tests.parity.ops import test_gradient_rules_nn as layers  # uses helpers of this file

    known = SMOOTH.keys() | OTHERS.keys() | layers.SMOOTH.keys() | layers.OTHERS.keys() | OF_GRADIENTS | {"checkpoint"}
    assert not RULES.keys() - known, "rules without a case: add one"
    assert not known - RULES.keys(), "cases without a rule"


def check_rule(monkeypatch: pytest.MonkeyPatch, name: str, case: Any, device: Any, order: int) -> None:
    """Compare a case with finite differences and check that it runs the rule."""
    if device.caps.kind != "llvm-cpu":
        pytest.skip("the rules are the same on every device: checked on the device cpu")
    ran, row = [], RULES[name]

    def counted(*arguments: Any) -> Any:
        ran.append(name)
        return row.vjp(*arguments)

    monkeypatch.setitem(RULES, name, dataclasses.replace(row, vjp=counted))
    renew(device)  # replayed calls use the rule that was registered when they were recorded
    function, inputs = case
    dtype = vk.f32 if name == "cast" else None  # f64 input would need no cast
    vk.testing.check_grads(function, inputs, device=device, directions=1, order=order, dtype=dtype)
    assert ran, f"the case of {name} doesn't run its rule"


def test_gradients_of_logcumsumexp_that_are_nan_or_zero(device: Any) -> None:
    with vk.use_device(device):
        x = vk.tensor(np.zeros(3, np.float32), requires_grad=True)
        (gradient,) = vk.autograd.grad(vk.logcumsumexp(x, 0), [x], [vk.tensor(np.array([0, np.nan, 0], np.float32))])
        np.testing.assert_array_equal(gradient.numpy(), [np.nan, np.nan, 0])


@pytest.mark.parametrize("name", sorted(SMOOTH))
def test_first_and_second_derivatives(device: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_rule(monkeypatch, name, SMOOTH[name], device, 2)


@pytest.mark.parametrize("name", sorted(OTHERS))
def test_first_derivatives(device: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_rule(monkeypatch, name, OTHERS[name], device, 1)


@pytest.mark.parametrize("name", ["relu", "silu", "gelu", "leaky_relu", "sigmoid", "tanh"])
def test_second_derivatives_of_activations(device: Any, name: str) -> None:
    if device.caps.kind != "llvm-cpu":
        pytest.skip("the rules are the same on every device: checked on the device cpu")
    function = getattr(elementwise, name)
    vk.testing.check_grads(lambda x: function(x) ** 2, [well_separated(6) / 2], device=device, directions=1, order=2)


def test_derivatives_of_sinc_near_zero(device: Any) -> None:
    """Both derivatives are accurate at 0 and near it, also where x * x underflows (PyTorch's second ones are NaN there)."""
    if device.caps.kind != "llvm-cpu":
        pytest.skip("the rules are the same on every device: checked on the device cpu")
    values = np.array([0, 1e-30, -1e-30, 1e-6, -1e-4, 1e-3, 0.05, -0.0999, 0.1, 0.11, -0.5, 0.5, -1], np.float32)
    z = np.pi * values.astype(np.float64)
    n = np.arange(1, 12)[:, None]  # sinc(x) is the sum of (-1)**n z**(2 n) / (2 n + 1)!
    terms = (-1.0) ** n / np.cumprod(2.0 * n * (2 * n + 1), axis=0)
    first = np.pi * (terms * 2 * n * z ** (2 * n - 1)).sum(0)
    second = np.pi**2 * (terms * 2 * n * (2 * n - 1) * z ** (2 * n - 2)).sum(0)

    x = vk.tensor(values, device=device, requires_grad=True)
    (gradient,) = vk.autograd.grad(vk.sinc(x).sum(), x, create_graph=True)
    (curvature,) = vk.autograd.grad(gradient.sum(), x)
    np.testing.assert_allclose(gradient.detach().numpy(), first, rtol=2e-5)
    np.testing.assert_allclose(curvature.numpy(), second, rtol=2e-4)
