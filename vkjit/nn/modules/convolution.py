"""Convolution and transposed convolution layers over one to three axes."""

from __future__ import annotations

import math
from typing import Any

from vkjit import dtypes
from vkjit.errors import ArgumentError
from vkjit.tensor.ops import creation
from vkjit.tensor.tensor import Tensor

from .. import functional as F, init
from ..parameter import Parameter
from .module import Module

__all__ = [
    "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "sizes",
]  # fmt: skip

Sizes = int | tuple[int, ...]
_PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


def sizes(value: Any, rank: int, name: str, *, minimum: int = 1) -> tuple[int, ...]:
    """Return `value`, an int or one int per axis, as a tuple of `rank` ints. A single int is repeated for all axes.

    Raises ArgumentError, naming the option `name`, if an int is below `minimum`.
    """
    values = (value,) * rank if isinstance(value, int) else tuple(value)
    if len(values) != rank or any(not isinstance(v, int) or isinstance(v, bool) or v < minimum for v in values):
        raise ArgumentError(f"{name} is an int or {rank} ints of at least {minimum}, found {value!r}")
    return values


class _Conv(Module):
    """Base class of convolutions.

    weight: (out_channels, in_channels / groups, *kernel_size), bias: (out_channels,), both initialized uniformly within
    +-1/sqrt(in_channels / groups * kernel elements).
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
        if padding_mode not in _PADDING_MODES:
            raise ArgumentError(f"padding_mode is one of {', '.join(_PADDING_MODES)}, found {padding_mode!r}")
        self.padding_mode = padding_mode
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
        """Check the constructor's `padding`, and return it as "same", "valid", or one int per axis."""
        if not isinstance(padding, str):
            return sizes(padding, self.rank, "padding", minimum=0)
        if padding not in ("same", "valid"):
            raise ArgumentError(f'padding is "same", "valid", an int or {self.rank} ints, found {padding!r}')
        if padding == "same" and any(s != 1 for s in self.stride):
            raise ArgumentError(f'padding="same" needs a stride of 1, found {self.stride}')
        return padding

    def _pad_widths(self) -> list[int]:
        """Return the padding before and after each axis in the order of `F.pad`: the last axis first."""
        spans = [d * (k - 1) for d, k in zip(self.dilation, self.kernel_size, strict=True)]
        if self.padding == "same":
            pairs = [(span // 2, span - span // 2) for span in spans]
        else:
            pairs = [(0, 0) if self.padding == "valid" else (int(p), int(p)) for p in self.padding]
        return [width for pair in reversed(pairs) for width in pair]

    def forward(self, x: Tensor) -> Tensor:
        """(N, in_channels, *size) -> (N, out_channels, *output size). N may be missing from both."""
        padding = self.padding
        if self.padding_mode != "zeros":  # convolutions themselves only pad with zeros
            x = F.pad(x, self._pad_widths(), mode=self.padding_mode)
            padding = (0,) * self.rank
        convolve = _CONVOLUTIONS[self.rank]
        output: Tensor = convolve(x, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)
        return output

    def reset_parameters(self) -> None:
        """Reinitialize weight and bias."""
        fan_in = math.prod(self.weight.shape[1:])
        bound = 1 / math.sqrt(fan_in) if fan_in else 0.0
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        """Return the options shown by `repr`."""
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        if self.padding != (0,) * self.rank:
            text += f", padding={self.padding}"
        if self.dilation != (1,) * self.rank:
            text += f", dilation={self.dilation}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        return text if self.padding_mode == "zeros" else f"{text}, padding_mode={self.padding_mode}"


class Conv1d(_Conv):
    """Convolution (cross-correlation) along one axis.

    Output length = floor((L + 2 * padding - dilation * (kernel_size - 1) - 1) / stride) + 1, where L is the input
    length; padding="same" preserves the length. padding_mode determines the values of the padding: "zeros", "reflect",
    "replicate" or "circular".
    """

    rank = 1


class Conv2d(_Conv):
    """Convolution (cross-correlation) over images: like `Conv1d` along each of two axes."""

    rank = 2


class Conv3d(_Conv):
    """Convolution (cross-correlation) over volumes: like `Conv1d` along each of three axes."""

    rank = 3


class _ConvTranspose(Module):
    """Base class of transposed convolutions: the gradient of a convolution with respect to its input, as a layer.

    weight: (in_channels, out_channels / groups, *kernel_size), bias: (out_channels,), both initialized uniformly within
    +-1/sqrt(out_channels / groups * kernel elements).
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
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Sizes = 1,
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
            raise ArgumentError(f'a transposed convolution has padding_mode="zeros", found {padding_mode!r}')
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.padding_mode = padding_mode
        self.kernel_size = sizes(kernel_size, self.rank, "kernel_size")
        self.stride = sizes(stride, self.rank, "stride")
        self.dilation = sizes(dilation, self.rank, "dilation")
        self.padding = sizes(padding, self.rank, "padding", minimum=0)
        self.output_padding = sizes(output_padding, self.rank, "output_padding", minimum=0)
        shape = (in_channels, out_channels // groups, *self.kernel_size)
        self.weight = Parameter(creation.empty(shape, dtype=dtype, device=device))
        bias_parameter = Parameter(creation.empty(out_channels, dtype=dtype, device=device)) if bias else None
        self.register_parameter("bias", bias_parameter)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reinitialize weight and bias."""
        fan_in = math.prod(self.weight.shape[1:])
        bound = 1 / math.sqrt(fan_in) if fan_in else 0.0
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def _output_padding_for(self, x: Tensor, output_size: Any) -> tuple[int, ...]:
        """Return the output padding that yields `output_size`, or the layer's own if that is None.

        Raises ArgumentError if no allowed output padding yields it.
        """
        if output_size is None:
            return self.output_padding
        requested = sizes(
            output_size if isinstance(output_size, int) else tuple(output_size)[-self.rank :], self.rank, "output_size"
        )  # may begin with batch and channels
        # the output sizes for an output padding of 0
        min_sizes = [
            (n - 1) * s - 2 * p + d * (k - 1) + 1
            for n, s, p, d, k in zip(
                x.shape[-self.rank :], self.stride, self.padding, self.dilation, self.kernel_size, strict=True
            )
        ]
        extra = tuple(size - minimum for size, minimum in zip(requested, min_sizes, strict=True))
        if any(e < 0 or e >= max(s, d) for e, s, d in zip(extra, self.stride, self.dilation, strict=True)):
            max_sizes = [
                minimum + max(s, d) - 1 for minimum, s, d in zip(min_sizes, self.stride, self.dilation, strict=True)
            ]
            raise ArgumentError(
                f"output_size {requested} can't be reached: it lies between {min_sizes} and {max_sizes}"
            )
        return extra

    def forward(self, x: Tensor, output_size: Any = None) -> Tensor:
        """(N, in_channels, *size) -> (N, out_channels, *output size). N may be missing from both."""
        output: Tensor = _TRANSPOSED[self.rank](
            x,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            self._output_padding_for(x, output_size),
            self.groups,
            self.dilation,
        )
        return output

    def extra_repr(self) -> str:
        """Return the options shown by `repr`."""
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        for name, default in (("padding", 0), ("dilation", 1), ("output_padding", 0)):
            if getattr(self, name) != (default,) * self.rank:
                text += f", {name}={getattr(self, name)}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        return text if self.bias is not None else f"{text}, bias=False"


class ConvTranspose1d(_ConvTranspose):
    """Transposed convolution along one axis.

    Output length = (L - 1) * stride - 2 * padding + dilation * (kernel_size - 1) + output_padding + 1, where L is the
    input length. A call with `output_size=...` chooses the output_padding that yields this size.
    """

    rank = 1


class ConvTranspose2d(_ConvTranspose):
    """Transposed convolution over images: like `ConvTranspose1d` along each of two axes."""

    rank = 2


class ConvTranspose3d(_ConvTranspose):
    """Transposed convolution over volumes: like `ConvTranspose1d` along each of three axes."""

    rank = 3


_CONVOLUTIONS: dict[int, Any] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED: dict[int, Any] = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
"""Functions of convolutions and of transposed convolutions, by number of spatial axes (`rank`)."""
