"""Elementwise operations with two or three operands against PyTorch: broadcasting, scalars, types, gradients."""

from __future__ import annotations

import itertools
import math
import operator
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from tests.parity.reference import PAIRS, Case, between, normal, run, run_pairs, torch


def away_from_zero(rng: np.random.Generator, shape: tuple[int, ...], number: int = 0) -> Any:
    values = rng.uniform(0.3, 3, shape) * np.where(rng.random(shape) < 0.5, -1, 1)
    return values.astype(np.float32)


def positive_base(rng: np.random.Generator, shape: tuple[int, ...], number: int) -> Any:
    return between(0.2, 3)(rng, shape, number) if number == 0 else normal(rng, shape)


total = lambda a, b: np.abs(a) + np.abs(b)  # noqa: E731  # errors relative to both operands

PAIR_CASES = [
    Case("add", vk.add, torch.add, normal, 1, total, inputs=2),
    Case(
        "add alpha",
        lambda a, b: vk.add(a, b, alpha=0.5),
        lambda a, b: torch.add(a, b, alpha=0.5),
        normal,
        2,
        total,
        inputs=2,
    ),
    Case("sub", operator.sub, operator.sub, normal, 1, total, inputs=2),
    Case("mul", operator.mul, operator.mul, normal, 1, inputs=2),
    Case("div", operator.truediv, operator.truediv, away_from_zero, 5, gradient_scale=10, inputs=2),
    Case("pow", vk.pow, torch.pow, positive_base, 60, gradient_ulp=100, inputs=2),
    Case("maximum", vk.maximum, torch.maximum, normal, 0, inputs=2),
    Case("minimum", vk.minimum, torch.minimum, normal, 0, inputs=2),
    Case("fmax", vk.fmax, torch.fmax, normal, 0, inputs=2),
    Case("atan2", vk.atan2, torch.atan2, away_from_zero, 12, gradient_scale=10, inputs=2),
    Case("hypot", vk.hypot, torch.hypot, away_from_zero, 8, inputs=2),
    Case("copysign", vk.copysign, torch.copysign, away_from_zero, 0, gradient_ulp=None, inputs=2),
    Case("xlogy", vk.xlogy, torch.xlogy, between(0.2, 3), 12, lambda a, _b: np.abs(a), inputs=2),
    Case("eq", vk.eq, torch.eq, normal, None, gradient_ulp=None, inputs=2),
    Case("lt", operator.lt, operator.lt, normal, None, gradient_ulp=None, inputs=2),
    Case("ge", operator.ge, operator.ge, normal, None, gradient_ulp=None, inputs=2),
    Case("logical_and", vk.logical_and, torch.logical_and, normal, None, gradient_ulp=None, inputs=2),
    Case("where", lambda a, b: vk.where(a > 0, a, b), lambda a, b: torch.where(a > 0, a, b), normal, 0, inputs=2),
    Case("lerp", lambda a, b: vk.lerp(a, b, 0.3), lambda a, b: torch.lerp(a, b, 0.3), normal, 4, total, inputs=2),
    Case(
        "lerp tensor",
        lambda a, b: vk.lerp(a, b, a),
        lambda a, b: torch.lerp(a, b, a),
        normal,
        8,
        lambda a, b: (np.abs(a) + 1) * (np.abs(a) + np.abs(b)),
        gradient_scale=10,
        inputs=2,
    ),
    Case(
        "clamp tensors",
        lambda a, b: vk.clamp(a, b - 0.5, b + 0.5),
        lambda a, b: torch.clamp(a, b - 0.5, b + 0.5),
        normal,
        2,
        total,
        inputs=2,
    ),
]


@pytest.mark.parametrize("case", PAIR_CASES, ids=lambda c: c.name)
def test_pairs_of_tensors(device: Any, case: Case) -> None:
    run_pairs(case)


ONE_CASES = [
    Case("x + 2.5", lambda x: x + 2.5, lambda x: x + 2.5, normal, 1, lambda x: np.abs(x) + 2.5),
    Case("3 - x", lambda x: 3 - x, lambda x: 3 - x, normal, 1, lambda x: np.abs(x) + 3),
    Case("x * 0.3", lambda x: x * 0.3, lambda x: x * 0.3, normal, 3),
    Case("2 / x", lambda x: 2 / x, lambda x: 2 / x, away_from_zero, 5, gradient_scale=10),
    Case("x / 7", lambda x: x / 7, lambda x: x / 7, normal, 5),
    Case("x % 0.75", lambda x: x % 0.75, lambda x: x % 0.75, normal, 4, lambda x: np.abs(x) + 1),
    Case("clamp", lambda x: vk.clamp(x, -0.5, 0.8), lambda x: torch.clamp(x, -0.5, 0.8), normal, 1),
    Case("clamp min", lambda x: x.clamp(min=0.1), lambda x: x.clamp(min=0.1), normal, 1),
    Case("clamp max", lambda x: x.clamp(max=0.1), lambda x: x.clamp(max=0.1), normal, 1),
    Case("where numbers", lambda x: vk.where(x > 0, x, -1.5), lambda x: torch.where(x > 0, x, -1.5), normal, 0),
    Case("masked_fill", lambda x: x.masked_fill(x > 0, 4.0), lambda x: x.masked_fill(x > 0, 4.0), normal, 0),
    Case("number > x", lambda x: 0.2 > x, lambda x: 0.2 > x, normal, None, gradient_ulp=None),
]


@pytest.mark.parametrize("case", ONE_CASES, ids=lambda c: c.name)
def test_tensors_with_numbers(device: Any, case: Case) -> None:
    for pair in PAIRS:
        run(case, [pair[0]])


TYPES = [
    (vk.boolean, torch.bool),
    (vk.u8, torch.uint8),
    (vk.i8, torch.int8),
    (vk.i16, torch.int16),
    (vk.i32, torch.int32),
    (vk.i64, torch.int64),
    (vk.f16, torch.float16),
    (vk.bf16, torch.bfloat16),
    (vk.f32, torch.float32),
    (vk.f64, torch.float64),
]
OF_TORCH = {theirs: ours for ours, theirs in TYPES}


@pytest.mark.parametrize(
    ("name", "x", "y"),
    [
        ("copysign", (4, 1), (3,)),
        ("copysign", (3,), (4, 3)),
        ("copysign", (4, 3), (1,)),
        ("copysign", [0.0, -0.0, 1.5, -2.0, math.nan], [-1.0, 1.0, -1.0, math.nan, 1.0]),
        ("copysign", [0.0, 1.5, -2.0, math.nan], -1.0),
        ("special.xlog1py", [0.0, 2.0, -2.0] * 2, [-3.0, -2.0, -1.5, -1.0, -1.0, 0.5]),
        *[("special.xlog1py", [0.0, 2.0, -2.0, math.nan], y) for y in (-math.inf, -2, -1, -0.5, 0, 3.0, math.inf)],
        *[("special.xlog1py", x, [-3.0, -1.0, -0.5, 0.0, 3.0, math.nan]) for x in (0.0, 2.0, -2)],
        *[("xlogy", [0.0, 2.0, -2.0, math.nan], y) for y in (-math.inf, -2, 0, 0.5, 3.0, math.inf)],
        *[("xlogy", x, [-3.0, 0.0, 0.5, 3.0, math.nan]) for x in (0.0, 2.0, -2)],
        *[
            (f, [1.0, 1.0, 2.0, math.nan, 1.0, math.inf], [1.0, 2.0, 1.0, 1.0, math.nan, math.inf])
            for f in ("fmax", "fmin")
        ],
        ("true_divide", [0.0, 1e-20, 3.0, 1e30, 0.0], [1e-30, 1e-30, 1e25, 1e28, -1e30]),
        ("hypot", [1e-30, 0.0, 3e30], [0.0, 1e-30, 4e30]),
    ],
)
def test_gradients_at_edges_and_of_broadcast_operands(device: Any, name: str, x: Any, y: Any) -> None:
    """A tuple is the shape of a random operand."""
    rng = np.random.default_rng(0)
    values = [away_from_zero(rng, v) if isinstance(v, tuple) else v for v in (x, y)]
    for needs in itertools.product([False, True], repeat=2):
        gradients = []
        for module in (vk, torch):
            operands: list[Any] = [
                v if isinstance(v, (int, float)) else module.tensor(np.array(v, np.float32), requires_grad=need)
                for v, need in zip(values, needs, strict=True)
            ]
            leaves = [t for t in operands if getattr(t, "requires_grad", False)]
            result: Any = operator.attrgetter(name)(module)(*operands)
            if leaves:
                result.sum().backward()
            gradients.append([result.detach().numpy(), *(t.grad.numpy() for t in leaves)])
        for mine, other in zip(*gradients, strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-5)


def usable(device: Any, *dtypes: Any) -> bool:
    return all(d.name in device.caps.dtypes or d is vk.bf16 for d in dtypes)


def check_result_types(x: Any, b: Any, y: Any, c: Any) -> None:
    for function in (operator.add, operator.mul, operator.truediv):
        found, expected = function(x, b), function(y, c)
        assert found.dtype is OF_TORCH[expected.dtype], (function, x.dtype, getattr(b, "dtype", b))
        if function is not operator.truediv:
            values = expected.float() if expected.is_floating_point() else expected
            assert np.array_equal(found.numpy(), values.numpy())


def test_result_types_are_pytorchs(device: Any) -> None:
    for (ours, theirs), (other, their_other) in itertools.product(TYPES, TYPES):
        if not usable(device, ours, other):
            continue
        valued = (ours, other) in VALUED  # elsewhere, empty tensors test only the result types
        a, b = ([1, 0, 1], [1, 1, 0]) if valued else ([], [])
        x, y = vk.tensor(a, dtype=ours), torch.tensor(a, dtype=theirs)
        check_result_types(x, vk.tensor(b, dtype=other), y, torch.tensor(b, dtype=their_other))
        scalar = vk.tensor(1, dtype=other)
        check_result_types(x[:0], scalar, y[:0], torch.tensor(1, dtype=their_other))


VALUED = {
    (vk.boolean, vk.boolean),
    (vk.boolean, vk.f32),
    (vk.u8, vk.i8),
    (vk.i8, vk.i64),
    (vk.i32, vk.f16),
    (vk.f16, vk.bf16),
    (vk.bf16, vk.f32),
    (vk.i64, vk.f64),
}


@pytest.mark.parametrize("number", [1, 1.5, True])
def test_result_types_with_numbers_are_pytorchs(device: Any, number: Any) -> None:
    for ours, theirs in TYPES:
        if usable(device, ours):
            check_result_types(vk.tensor([1, 0, 1], dtype=ours), number, torch.tensor([1, 0, 1], dtype=theirs), number)


@pytest.mark.parametrize(("ours", "theirs"), [t for t in TYPES if t[0].is_integer], ids=lambda t: str(t))
def test_integer_arithmetic(device: Any, ours: Any, theirs: Any) -> None:
    low = 0 if ours is vk.u8 else -20
    rng = np.random.default_rng(3)
    a = rng.integers(low, 20, (5, 7))
    b = np.where((d := rng.integers(low, 20, (5, 7))) == 0, 3, d)
    x, y = vk.tensor(a, dtype=ours), vk.tensor(b, dtype=ours)
    p, q = torch.tensor(a, dtype=theirs), torch.tensor(b, dtype=theirs)
    for function in (
        operator.add,
        operator.sub,
        operator.mul,
        operator.floordiv,
        operator.mod,
        operator.and_,
        operator.or_,
        operator.xor,
        operator.lt,
        operator.eq,
    ):
        found, expected = function(x, y), function(p, q)
        assert np.array_equal(found.numpy(), expected.numpy()), function
    assert np.array_equal(vk.div(x, y, rounding_mode="trunc").numpy(), torch.div(p, q, rounding_mode="trunc").numpy())
    assert np.array_equal((x**2).numpy(), (p**2).numpy())
    assert np.array_equal(vk.maximum(x, y).numpy(), torch.maximum(p, q).numpy())
    assert np.array_equal((x % 7).numpy(), (p % 7).numpy())
    assert np.array_equal((x << 1).numpy(), (p << 1).numpy())
    assert np.array_equal((x >> 1).numpy(), (p >> 1).numpy())


@pytest.mark.parametrize(("ours", "theirs"), [t for t in TYPES if t[0].is_float], ids=lambda t: str(t))
@pytest.mark.parametrize(("other", "their_other"), TYPES, ids=lambda t: str(t))
def test_conversions(device: Any, ours: Any, theirs: Any, other: Any, their_other: Any) -> None:
    if not usable(device, ours, other):
        pytest.skip(f"the device lacks {ours!r} or {other!r}")
    values = [0.0, 1.0, 0.5, 2.75, 100.25, 65.5, 3.99]
    found = vk.tensor(values, dtype=ours).to(other)
    expected = torch.tensor(values, dtype=theirs).to(their_other)
    assert found.dtype is other
    assert np.array_equal(found.numpy(), expected.float().numpy() if other is vk.bf16 else expected.numpy())
    back = found.to(ours)
    again = expected.to(theirs)
    assert np.array_equal(back.numpy(), again.float().numpy() if ours is vk.bf16 else again.numpy())


def test_half_precision_is_computed_in_single_and_rounded_once(device: Any) -> None:
    rng = np.random.default_rng(5)
    for ours, theirs in ((vk.f16, torch.float16), (vk.bf16, torch.bfloat16)):
        a, b = rng.standard_normal((2, 300)).astype(np.float32)
        x, y = vk.tensor(a, dtype=ours), vk.tensor(b, dtype=ours)
        p, q = torch.tensor(a).to(theirs), torch.tensor(b).to(theirs)
        assert np.array_equal((x * y).numpy().astype(np.float32), (p.float() * q.float()).to(theirs).float().numpy())
        assert np.array_equal((x + y).numpy().astype(np.float32), (p.float() + q.float()).to(theirs).float().numpy())
