"""Map names of PyTorch's OpInfo operations to vkjit functions."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import vkjit as vk
from vkjit.dtypes import DType

__all__ = ["function_of"]

_OPERATORS: dict[str, Callable[..., Any]] = {
    "__getitem__": operator.getitem,
    "__radd__": lambda x, other: other + x,
    "__rand__": lambda x, other: other & x,
    "__rdiv__": lambda x, other: other / x,
    "__rmatmul__": lambda x, other: other @ x,
    "__rmod__": lambda x, other: other % x,
    "__rmul__": lambda x, other: other * x,
    "__ror__": lambda x, other: other | x,
    "__rpow__": lambda x, other: other**x,
    "__rsub__": lambda x, other: other - x,
    "__rxor__": lambda x, other: other ^ x,
    "T": lambda x: x.T,
    "einsum": lambda tensors, equation: vk.einsum(equation, *tensors),
    "where": lambda x, condition, other, **options: vk.where(condition, x, other, **options),
    "zero_": lambda x: x.clone().zero_(),
    "mT": lambda x: x.mT,
    "nn.functional.embedding": lambda weight, indices, **options: vk.nn.functional.embedding(
        indices, weight, **options
    ),
    "slice": lambda x, dim=0, start=None, end=None, step=1: x[
        (slice(None),) * (dim % x.ndim) + (slice(start, end, step),)
    ],
}


def function_of(name: str) -> Callable[..., Any] | None:
    """Return vkjit's function for a PyTorch operation; None if there is none."""
    if name in _OPERATORS:
        return _OPERATORS[name]
    place: Any = vk
    *spaces, last = name.split(".")
    for space in spaces:
        place = getattr(place, space, None)
    found = getattr(place, last, None)
    if found is not None and not isinstance(found, DType):
        return found  # type: ignore[no-any-return]
    if spaces:
        return None
    methods: dict[str, str] = {"normal": "normal_", "uniform": "uniform_", "bernoulli": "bernoulli_"}
    if not hasattr(vk.Tensor, last):
        last = methods.get(last, last)
    if not hasattr(vk.Tensor, last):
        return None
    return lambda x, *args, **kwargs: getattr(x, last)(*args, **kwargs)
