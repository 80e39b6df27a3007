"""In-place operations without kernels of their own: the result is computed, then copied into the first operand.

Autograd records the operation and then the copy. While it is recording, the operation reads a clone of the first
operand, so that the old values remain available to the gradient rule.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from vkjit.errors import DTypeError, ShapeError

from ..dispatch import is_recording
from ..promotion import category
from ..tensor import Tensor
from ..view_tracking import check_writable
from . import arithmetic, cumulative, elementwise, flat_indexing, matmul, products, scatter, special, triangles
from .copies import copy_

__all__ = ["METHODS", "in_place_by_copy"]

# (module, names of its functions that get an in-place version)
_FUNCTIONS: tuple[tuple[Any, str], ...] = (
    (
        elementwise,
        (
            "acos acosh asin asinh atan atanh bitwise_not cosh erf erfc exp2 expm1 frac log10 log1p log2 logical_not sign "
            "sinh tan"
        ),
    ),
    (
        arithmetic,
        (
            "atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor clip copysign eq fmod ge gt hypot le "
            "logical_and logical_or logical_xor lt ne true_divide xlogy"
        ),
    ),
    (
        special,
        "addcdiv addcmul clamp_max clamp_min deg2rad erfinv float_power gcd heaviside lcm ldexp logit nan_to_num rad2deg sgn sinc",
    ),
    (matmul, "addmm baddbmm"),
    (products, "addbmm addmv addr"),
    (cumulative, "cumprod cumsum"),
    (triangles, "tril triu"),
    (scatter, "index_add index_copy index_fill index_reduce scatter scatter_add scatter_reduce"),
    (flat_indexing, "index_put masked_scatter put"),
)


def in_place_by_copy(name: str, function: Callable[..., Any]) -> Callable[..., Tensor]:
    """Make the in-place version of operation `name`: it copies the result of `function` into the first operand."""

    @functools.wraps(function)
    def method(self: Tensor, *args: Any, **params: Any) -> Tensor:
        source = self
        if is_recording((self, *args)):
            check_writable(f"{name}_", self)
            source = self.clone()  # keeps the old values for the gradient rule
        result = function(source, *args, **params)
        if result.shape != self.shape:
            raise ShapeError(
                f"{name}_(): a result of shape {result.shape} can't be written into a tensor of {self.shape}"
            )
        if category(result.dtype) > category(self.dtype):
            raise DTypeError(
                f"{name}_() would make {result.dtype!r}, which a tensor of {self.dtype!r} can't hold: convert it first"
            )
        return copy_(self, result)

    method.__name__ = method.__qualname__ = f"{name}_"
    method.__doc__ = f"In-place version of `{name}`."
    return method


METHODS: dict[str, Callable[..., Tensor]] = {
    f"{name}_": in_place_by_copy(name, getattr(module, name)) for module, names in _FUNCTIONS for name in names.split()
}
"""In-place methods by name, which `methods.install` adds to `Tensor`."""
