"""Layers that put elements around their input's last axes."""

from __future__ import annotations

from ..errors import ArgumentError
from ..tensor.tensor import Tensor
from . import functional as F
from .module import Module

__all__ = [
    "CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d",
    "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d", "ReplicationPad3d",
    "ZeroPad1d", "ZeroPad2d", "ZeroPad3d",
]  # fmt: skip

Widths = int | tuple[int, ...]


class _Pad(Module):
    """What the layers share. padding: an int, or (before, after) of the last axis, then of the one before it, and so on."""

    rank: int
    mode = "constant"

    def __init__(self, padding: Widths) -> None:
        super().__init__()
        widths = (padding,) * (2 * self.rank) if isinstance(padding, int) else tuple(padding)
        if len(widths) != 2 * self.rank or not all(isinstance(w, int) for w in widths):
            raise ArgumentError(f"{type(self).__name__} takes an int or {2 * self.rank} ints, found {padding!r}")
        self.padding = widths

    def forward(self, x: Tensor) -> Tensor:
        """(..., *size) -> the same with wider last axes."""
        return F.pad(x, self.padding, mode=self.mode)

    def extra_repr(self) -> str:
        """The widths."""
        return str(self.padding)


class _ConstantPad(_Pad):
    def __init__(self, padding: Widths, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, x: Tensor) -> Tensor:
        """(..., *size) -> the same with wider last axes."""
        return F.pad(x, self.padding, value=self.value)

    def extra_repr(self) -> str:
        """The widths and the value."""
        return f"padding={self.padding}, value={self.value}"


class _ZeroPad(_ConstantPad):
    def __init__(self, padding: Widths) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        """The widths."""
        return str(self.padding)


class ConstantPad1d(_ConstantPad):
    """Pads the last axis with a value; negative widths take elements away."""

    rank = 1


class ConstantPad2d(_ConstantPad):
    """Pads the last two axes with a value; negative widths take elements away."""

    rank = 2


class ConstantPad3d(_ConstantPad):
    """Pads the last three axes with a value; negative widths take elements away."""

    rank = 3


class ZeroPad1d(_ZeroPad):
    """Pads the last axis with zeros; negative widths take elements away."""

    rank = 1


class ZeroPad2d(_ZeroPad):
    """Pads the last two axes with zeros; negative widths take elements away."""

    rank = 2


class ZeroPad3d(_ZeroPad):
    """Pads the last three axes with zeros; negative widths take elements away."""

    rank = 3


class ReflectionPad1d(_Pad):
    """Pads the last axis with the elements mirrored at the edge, without it; negative widths take elements away."""

    rank = 1
    mode = "reflect"


class ReflectionPad2d(_Pad):
    """Pads the last two axes with the elements mirrored at the edge, without it; negative widths take elements away."""

    rank = 2
    mode = "reflect"


class ReflectionPad3d(_Pad):
    """Pads the last three axes with the elements mirrored at the edge, without it; negative widths take elements away."""

    rank = 3
    mode = "reflect"


class ReplicationPad1d(_Pad):
    """Pads the last axis with the edge's elements; negative widths take elements away."""

    rank = 1
    mode = "replicate"


class ReplicationPad2d(_Pad):
    """Pads the last two axes with the edge's elements; negative widths take elements away."""

    rank = 2
    mode = "replicate"


class ReplicationPad3d(_Pad):
    """Pads the last three axes with the edge's elements; negative widths take elements away."""

    rank = 3
    mode = "replicate"


class CircularPad1d(_Pad):
    """Pads the last axis with the elements of the other end; negative widths take elements away."""

    rank = 1
    mode = "circular"


class CircularPad2d(_Pad):
    """Pads the last two axes with the elements of the other end; negative widths take elements away."""

    rank = 2
    mode = "circular"


class CircularPad3d(_Pad):
    """Pads the last three axes with the elements of the other end; negative widths take elements away."""

    rank = 3
    mode = "circular"
