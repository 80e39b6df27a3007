"""Gradient clipping by total norm or by value.

Nothing waits for the device, except `clip_grad_norm_` with error_if_nonfinite.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from vkjit.errors import ArgumentError
from vkjit.tensor.autograd.mode import no_grad
from vkjit.tensor.ops import arithmetic, copies, creation, elementwise, reductions
from vkjit.tensor.tensor import Tensor

__all__ = ["clip_grad_norm_", "clip_grad_value_", "total_norm"]


def _with_gradients(parameters: Iterable[Tensor] | Tensor) -> list[Tensor]:
    """Return the parameters that have a gradient, as a list."""
    try:
        candidates = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    except TypeError:
        raise ArgumentError(f"expected parameters, found a {type(parameters).__name__}") from None
    others = [p for p in candidates if not isinstance(p, Tensor)]
    if others:
        raise ArgumentError(f"expected parameters, found a {type(others[0]).__name__} among them")
    return [p for p in candidates if p.grad is not None]


def _number(value: Any, name: str) -> float:
    """Return the value as a float. Raises ArgumentError if it is no number, or too large."""
    try:
        if isinstance(value, str):
            raise TypeError
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(f"{name} is a number that fits a float, found a {type(value).__name__}") from None


def total_norm(tensors: Iterable[Tensor], norm_type: float = 2.0) -> Tensor:
    """Return the norm of all elements of all tensors together, as a 0-d tensor.

    It is the p-norm with p = norm_type; for inf, the largest absolute value.
    """
    magnitudes = [elementwise.abs(t) for t in tensors]
    if not magnitudes:
        return creation.zeros(())
    if norm_type == math.inf:
        return reductions.amax(copies.stack([reductions.amax(magnitude) for magnitude in magnitudes]))
    if norm_type <= 0:
        raise ArgumentError(f"norm_type is above 0 or inf, found {norm_type}")
    powers = copies.stack([reductions.sum(arithmetic.pow(magnitude, float(norm_type))) for magnitude in magnitudes])
    return arithmetic.pow(reductions.sum(powers), 1.0 / norm_type)


def clip_grad_norm_(
    parameters: Iterable[Tensor] | Tensor,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
) -> Tensor:
    """Scale all gradients by one factor so that their total norm is at most max_norm.

    Returns the total norm before clipping, a 0-d tensor. error_if_nonfinite: raise ArgumentError if this norm is
    infinite or NaN, which waits for the device.
    """
    with_gradient, max_norm = _with_gradients(parameters), _number(max_norm, "max_norm")
    norm_type = _number(norm_type, "norm_type")
    with no_grad():
        # the condition is always true; it is for type checkers
        norm = total_norm((p.grad for p in with_gradient if p.grad is not None), norm_type)
        if error_if_nonfinite and not math.isfinite(norm.item()):
            raise ArgumentError(f"the total norm of the gradients is {norm.item()}: they can't be clipped")
        # PyTorch's epsilon, against division by zero
        factor = arithmetic.clamp(arithmetic.true_divide(max_norm, arithmetic.add(norm, 1e-6)), max=1.0)
        for parameter in with_gradient:
            # out of place, because two parameters may share one gradient tensor
            parameter.meta.grad = arithmetic.mul(parameter.grad, factor)
    return norm


def clip_grad_value_(parameters: Iterable[Tensor] | Tensor, clip_value: float) -> None:
    """Clamp every element of every gradient to [-clip_value, clip_value]."""
    clip_value = _number(clip_value, "clip_value")
    if clip_value < 0:
        raise ArgumentError(f"clip_value is at least 0, found {clip_value}")
    with no_grad():
        for parameter in _with_gradients(parameters):
            assert parameter.grad is not None
            parameter.meta.grad = arithmetic.clamp(parameter.grad, -clip_value, clip_value)
