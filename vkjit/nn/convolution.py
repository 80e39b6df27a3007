"""Convolutions of one and two axes."""

from __future__ import annotations

import math
from typing import Any

from .. import dtypes
from ..errors import ArgumentError
from ..tensor import creation
from ..tensor.tensor import Tensor
from . import functional as F
from . import init
from .module import Module
from .parameter import Parameter

__all__ = ["Conv1d", "Conv2d", "sizes"]

Sizes = int | tuple[int, ...]


def sizes(value: Any, rank: int, name: str, *, least: int = 1) -> tuple[int, ...]:
    """An int, or one per axis, as a tuple of `rank` ints of at least `least`."""
    found = (value,) * rank if isinstance(value, int) else tuple(value)
    if len(found) != rank or any(not isinstance(v, int) or isinstance(v, bool) or v < least for v in found):
        raise ArgumentError(f"{name} is an int or {rank} ints of at least {least}, found {value!r}")
    return found


class _Conv(Module):
    """What the convolutions share. weight: (out_channels, in_channels / groups, *kernel_size), bias: (out_channels,),
    both uniform within +-1/sqrt(in_channels / groups * elements of the kernel) at first.
    """

    rank: int
    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = dtypes.f32,
    ) -> None:
        super().__init__()
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ArgumentError(
                f"in_channels {in_channels} and out_channels {out_channels} have to be multiples of groups {groups}"
            )
        if padding_mode != "zeros":
            raise ArgumentError(f'padding_mode is "zeros", found {padding_mode!r}: pad the input before the layer')
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = sizes(kernel_size, self.rank, "kernel_size")
        self.stride = sizes(stride, self.rank, "stride")
        self.dilation = sizes(dilation, self.rank, "dilation")
        self.padding = self._padding_of(padding)
        shape = (out_channels, in_channels // groups, *self.kernel_size)
        self.weight = Parameter(creation.empty(shape, dtype=dtype, device=device))
        self.register_parameter(
            "bias", Parameter(creation.empty(out_channels, dtype=dtype, device=device)) if bias else None
        )
        self.reset_parameters()

    def _padding_of(self, padding: Sizes | str) -> tuple[int, ...] | str:
        if not isinstance(padding, str):
            return sizes(padding, self.rank, "padding", least=0)
        if padding not in ("same", "valid"):
            raise ArgumentError(f'padding is "same", "valid", an int or {self.rank} ints, found {padding!r}')
        if padding == "same" and any(s != 1 for s in self.stride):
            raise ArgumentError(f'padding="same" needs a stride of 1, found {self.stride}')
        return padding

    def reset_parameters(self) -> None:
        """Draws weight and bias anew."""
        fan_in = math.prod(self.weight.shape[1:])
        bound = 1 / math.sqrt(fan_in) if fan_in else 0.0
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        """Channels, kernel and what isn't at its default."""
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        if self.padding != (0,) * self.rank:
            text += f", padding={self.padding}"
        if self.dilation != (1,) * self.rank:
            text += f", dilation={self.dilation}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        return text if self.bias is not None else f"{text}, bias=False"


class Conv1d(_Conv):
    """Convolution (cross-correlation) along one axis.

    Length out = floor((L + 2 padding - dilation (kernel_size - 1) - 1) / stride) + 1; padding "same" keeps the length.
    """

    rank = 1

    def forward(self, x: Tensor) -> Tensor:
        """(N, in_channels, L) or (in_channels, L) -> (N, out_channels, L out) or (out_channels, L out)."""
        return F.conv1d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class Conv2d(_Conv):
    """Convolution (cross-correlation) over images.

    H out = floor((H + 2 padding - dilation (kernel_size - 1) - 1) / stride) + 1, W likewise; padding "same" keeps the
    size.
    """

    rank = 2

    def forward(self, x: Tensor) -> Tensor:
        """(N, in_channels, H, W) or without N -> (N, out_channels, H out, W out) or without N."""
        return F.conv2d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)
