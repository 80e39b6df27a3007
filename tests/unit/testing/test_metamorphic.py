"""Tests of metamorphic relations: they hold or name the failing index; also gradients of constants and tolerances."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit.testing import metamorphic
from vkjit.testing.cases.reference import uncertainty

X = np.random.default_rng(3).standard_normal((6, 4)).astype(np.float32)


def test_laws_that_hold() -> None:
    metamorphic.deterministic(lambda x: x.sum(axis=1), X)
    metamorphic.linear(lambda x: 3 * x.sum(axis=1), X)
    metamorphic.permutation_equivariant(lambda x: np.tanh(x), X)
    metamorphic.batch_invariant(lambda x: x * 2, X)
    metamorphic.idempotent(lambda x: np.maximum(x, 0), X)
    metamorphic.associative(np.maximum, X, -X, X * 2)
    metamorphic.round_trip(np.transpose, np.transpose, X)


@pytest.mark.parametrize(
    ("law", "call"),
    [
        ("linear", lambda: metamorphic.linear(lambda x: x + 1, X)),
        ("permutation equivariant", lambda: metamorphic.permutation_equivariant(lambda x: np.cumsum(x, axis=0), X)),
        ("batch invariant", lambda: metamorphic.batch_invariant(lambda x: x - x.mean(axis=0), X)),
        ("idempotent", lambda: metamorphic.idempotent(lambda x: 2 * x, X)),
        ("associative", lambda: metamorphic.associative(np.subtract, X, X, X)),
        ("a round trip", lambda: metamorphic.round_trip(np.floor, np.ceil, X)),
    ],
)
def test_laws_that_are_broken(law: str, call: Any) -> None:
    with pytest.raises(metamorphic.RelationFailure) as caught:
        call()
    assert law in caught.value.law and caught.value.index != ()


def test_the_place_is_that_in_the_whole_result() -> None:
    def second_row_is_off(x: Any) -> Any:
        made = 2 * x
        if len(x) > 1:
            made[1, 2] += 1
        return made

    with pytest.raises(metamorphic.RelationFailure, match=r"slice 1\): at \[1, 2\] there is") as caught:
        metamorphic.batch_invariant(second_row_is_off, X)
    assert caught.value.index == (1, 2)


def test_the_place_is_that_of_the_worst_element() -> None:
    off = np.array([1.0, 5.0, 2.0], np.float32)
    with pytest.raises(metamorphic.RelationFailure) as caught:
        metamorphic.idempotent(lambda x: x + off, np.zeros(3, np.float32))
    assert caught.value.index == (1,)


@pytest.mark.parametrize("law", [metamorphic.permutation_equivariant, metamorphic.batch_invariant])
def test_results_of_another_length_break_a_law(law: Any) -> None:
    for function in (lambda x: x[: len(x) // 2], lambda x: x.sum()):
        with pytest.raises(metamorphic.RelationFailure, match=r"the result has the shape \(.*\), the law says \(6"):
            law(function, X)


def test_a_single_number_has_no_index() -> None:
    with pytest.raises(metamorphic.RelationFailure, match="not linear: the result is") as caught:
        metamorphic.linear(lambda x: np.float32(x.sum() + 1), X)
    assert caught.value.index == ()


def test_chance_is_no_law() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(metamorphic.RelationFailure, match="not deterministic"):
        metamorphic.deterministic(lambda x: x + rng.random(), X)


@vk.kernel(over="y")
def exact_difference(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = x[i] - x[i]


def test_a_reference_that_cancels_accuses_nobody() -> None:
    """The kernel returns 0 where the reference, due to its own rounding, returns 1e-16."""
    vk.testing.check_kernel(
        exact_difference, lambda x: x * 0.1 + x * 0.2 - x * 0.3, devices="interpreter", max_examples=30, special=False
    )
    with pytest.raises(vk.testing.CheckFailure):
        vk.testing.check_kernel(
            exact_difference, lambda x: x * 1e-9, devices="interpreter", max_examples=30, special=False
        )
    assert uncertainty is not None


def test_gradients_of_a_constant_are_zero() -> None:
    vk.testing.check_grads(lambda x: vk.tensor(np.ones(3, np.float32)), [X])


def test_a_function_that_loses_its_gradient_is_found() -> None:
    with pytest.raises(vk.testing.GradientError, match="isn't connected"):
        vk.testing.check_grads(lambda x: (x * x).detach().sum(), [X])


def test_second_order_gradients() -> None:
    vk.testing.check_grads(lambda x: (x.tanh() * x).sum(), [X], order=2, dtype=vk.f64, device="interpreter")


def test_infinities_allow_nothing() -> None:
    x = np.array([1.0, np.inf, -2.0], np.float32)
    with pytest.raises(metamorphic.RelationFailure, match="not idempotent"):
        metamorphic.idempotent(lambda v: v + 1, x)
    metamorphic.idempotent(np.abs, x)


@pytest.mark.parametrize(
    ("law", "arguments", "words"),
    [
        (metamorphic.linear, (), "no argument 0"),
        (metamorphic.idempotent, (), "no argument 0"),
        (metamorphic.linear, (np.arange(3),), "expected floating point"),
        (metamorphic.permutation_equivariant, (np.float32(1),), "an axis 0"),
        (metamorphic.batch_invariant, (), "no argument 0"),
    ],
)
def test_arguments_that_are_not_there(law: Any, arguments: tuple[Any, ...], words: str) -> None:
    with pytest.raises(vk.ArgumentError, match=words):
        law(lambda *given: given[0], *arguments)
