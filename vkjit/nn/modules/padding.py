"""Padding layers for the last one to three axes."""

from __future__ import annotations

import numpy as np

from vkjit.errors import ArgumentError
from vkjit.tensor.tensor import Tensor

from .. import functional as F
from .module import Module

__all__ = [
    "CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d",
    "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d", "ReplicationPad3d",
    "ZeroPad1d", "ZeroPad2d", "ZeroPad3d",
]  # fmt: skip

Widths = int | tuple[int, ...]


class _Pad(Module):
    """Base class of padding layers.

    padding: an int for all sides, or 2 * rank ints: the widths before and after the last axis, then those of the axis
    before it, and so on. `rank` is the number of padded axes, the last ones.
    """

    rank: int
    mode = "constant"

    def __init__(self, padding: Widths) -> None:
        super().__init__()
        widths = (padding,) * (2 * self.rank) if isinstance(padding, (int, np.integer)) else tuple(padding)
        if len(widths) != 2 * self.rank or not all(isinstance(w, (int, np.integer)) for w in widths):
            raise ArgumentError(f"{type(self).__name__} takes an int or {2 * self.rank} ints, found {padding!r}")
        self.padding = tuple([int(w) for w in widths])

    def forward(self, x: Tensor) -> Tensor:
        """(..., *size) -> padded shape."""
        return F.pad(x, self.padding, mode=self.mode)

    def extra_repr(self) -> str:
        """Return the options shown by `repr`."""
        return str(self.padding)


class _ConstantPad(_Pad):
    """Base class of layers that pad with the constant `value`."""

    def __init__(self, padding: Widths, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, x: Tensor) -> Tensor:
        """(..., *size) -> padded shape."""
        return F.pad(x, self.padding, value=self.value)

    def extra_repr(self) -> str:
        """Return the options shown by `repr`."""
        return f"padding={self.padding}, value={self.value}"


class _ZeroPad(_ConstantPad):
    """Base class of layers that pad with zeros."""

    def __init__(self, padding: Widths) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        """Return the options shown by `repr`."""
        return str(self.padding)


class ConstantPad1d(_ConstantPad):
    """Pad the last axis with a constant; negative padding crops."""

    rank = 1


class ConstantPad2d(_ConstantPad):
    """Pad the last two axes with a constant; negative padding crops."""

    rank = 2


class ConstantPad3d(_ConstantPad):
    """Pad the last three axes with a constant; negative padding crops."""

    rank = 3


class ZeroPad1d(_ZeroPad):
    """Pad the last axis with zeros; negative padding crops."""

    rank = 1


class ZeroPad2d(_ZeroPad):
    """Pad the last two axes with zeros; negative padding crops."""

    rank = 2


class ZeroPad3d(_ZeroPad):
    """Pad the last three axes with zeros; negative padding crops."""

    rank = 3


class ReflectionPad1d(_Pad):
    """Pad the last axis by reflection, without repeating the edge; negative padding crops."""

    rank = 1
    mode = "reflect"


class ReflectionPad2d(_Pad):
    """Pad the last two axes by reflection, without repeating the edge; negative padding crops."""

    rank = 2
    mode = "reflect"


class ReflectionPad3d(_Pad):
    """Pad the last three axes by reflection, without repeating the edge; negative padding crops."""

    rank = 3
    mode = "reflect"


class ReplicationPad1d(_Pad):
    """Pad the last axis by replicating the edge; negative padding crops."""

    rank = 1
    mode = "replicate"


class ReplicationPad2d(_Pad):
    """Pad the last two axes by replicating the edge; negative padding crops."""

    rank = 2
    mode = "replicate"


class ReplicationPad3d(_Pad):
    """Pad the last three axes by replicating the edge; negative padding crops."""

    rank = 3
    mode = "replicate"


class CircularPad1d(_Pad):
    """Pad the last axis by wrapping around; negative padding crops."""

    rank = 1
    mode = "circular"


class CircularPad2d(_Pad):
    """Pad the last two axes by wrapping around; negative padding crops."""

    rank = 2
    mode = "circular"


class CircularPad3d(_Pad):
    """Pad the last three axes by wrapping around; negative padding crops."""

    rank = 3
    mode = "circular"
