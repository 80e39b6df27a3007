"""Max and average pooling over one to three axes, regular and adaptive.

Inputs are (N, C, *size) or (C, *size). Regular (not adaptive) pooling also takes integers. Each element of an input
gradient gathers the contributions of its windows instead of adding them atomically, so gradients are deterministic.

The kernels always have three spatial axes, and so do the sizes in a `Window`, the geometry of a pooling; inputs with
fewer spatial axes get leading axes of size 1. `axes` is the number of spatial axes of the input.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from vkjit import dtypes
from vkjit.errors import ArgumentError, ShapeError
from vkjit.runtime.device import DeviceArray
from vkjit.stdlib.pool import pool as kernels
from vkjit.stdlib.pool.pool import Window

from ..dispatch import operation
from ..op_cache import cacheable, cached
from ..tensor import Tensor
from .common import allocate_like, check_float, dense, dense_view, int_per_axis

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d",
    "adaptive_max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "max_pool1d", "max_pool2d", "max_pool3d",
]  # fmt: skip

cacheable(Window)  # calls with equal windows have the same launches, and share a cache entry


def _triple(values: Any, fill: int) -> Any:
    """Return a value per spatial axis as a tuple of three, with `fill` for the missing leading axes."""
    return (*[fill] * (3 - len(values)), *values)


def _channels(array: DeviceArray, size: tuple[int, int, int]) -> DeviceArray:
    """Return a view of a dense array (N, C, *size) or (C, *size) as (N * C, D, H, W), where `size` is (D, H, W)."""
    area = math.prod(size)
    return dense_view(array, math.prod(array.shape) // area if area else 0, *size)


def _out_shape(x: Tensor, axes: int, window: Window) -> tuple[int, ...]:
    """Return the shape of the output of a pooling of x."""
    return (*x.shape[: x.ndim - axes], *window.out[3 - axes :])


@operation("max_pool", replayable=True)
def _max_pool(x: Tensor, *, axes: int, window: Window) -> tuple[Tensor, Tensor]:
    """Return the maximum of each window, and the index of the maximum in the flattened spatial axes of x (i64)."""
    shape = _out_shape(x, axes, window)
    y, indices = allocate_like(shape, x.dtype, x), allocate_like(shape, dtypes.i64, x)
    kernels.max_pool(
        _channels(dense(x), window.size), _channels(y._array, window.out), _channels(indices._array, window.out), window
    )
    return y, indices


@operation("max_pool_gradient", replayable=True)
def max_pool_gradient(g: Tensor, indices: Tensor, *, axes: int, window: Window) -> Tensor:
    """Return the gradient of max pooling's input given the gradient of its output and the indices of the maxima."""
    x = allocate_like((*g.shape[: g.ndim - axes], *window.size[3 - axes :]), g.dtype, g)
    kernels.max_pool_gradient(
        _channels(dense(g), window.out), _channels(dense(indices), window.out), _channels(x._array, window.size), window
    )
    return x


@operation("gather_at_indices", replayable=True)
def gather_at_indices(x: Tensor, indices: Tensor, *, axes: int, window: Window) -> Tensor:  # noqa: ARG001  # for the gradient
    """Gather the elements of x at the indices returned by max pooling."""
    y = allocate_like(indices.shape, x.dtype, x)
    kernels.gather_at_indices(
        _channels(dense(x), window.size), _channels(dense(indices), window.out), _channels(y._array, window.out)
    )
    return y


@operation("avg_pool", replayable=True)
def mean_pool(x: Tensor, *, axes: int, window: Window) -> Tensor:
    """Return the mean of each window."""
    y = allocate_like(_out_shape(x, axes, window), x.dtype, x)
    kernels.avg_pool(_channels(dense(x), window.size), _channels(y._array, window.out), window)
    return y


@operation("avg_pool_gradient", replayable=True)
def mean_pool_gradient(g: Tensor, *, axes: int, window: Window) -> Tensor:
    """Return the gradient of average pooling's input given the gradient of its output."""
    x = allocate_like((*g.shape[: g.ndim - axes], *window.size[3 - axes :]), g.dtype, g)
    kernels.avg_pool_gradient(_channels(dense(g), window.out), _channels(x._array, window.size), window)
    return x


# -- checks


def _checked(x: Any, axes: int, name: str) -> Tensor:
    """Return x after checking its type and shape. `name` is the public function; only max pooling accepts integers.

    (Average pooling converts integers to floats before the check.)
    """
    if not (isinstance(x, Tensor) and x.dtype.is_integer and name.startswith("max")):
        check_float(x, name)
    if x.ndim not in (axes + 1, axes + 2) or 0 in x.shape[x.ndim - axes - 1 :]:
        raise ShapeError(
            f"{name}(): input of shape {x.shape}, expected {axes + 2} axes (or {axes + 1}, without a batch), none of them empty "
            f"but the batch"
        )
    return x  # type: ignore[no-any-return]


def _extent(size: int, kernel: int, stride: int, pad: int, dilation: int, ceil_mode: bool) -> int:
    """Return the output size along an axis.

    With ceil_mode windows may extend past the end, but must start inside the input or the padding before it.
    """
    # last index of the padded input at which a window may start without extending past the end
    last_start = size + 2 * pad - dilation * (kernel - 1) - 1
    if not ceil_mode:
        return last_start // stride + 1
    out = -(-last_start // stride) + 1  # rounded up
    return out - 1 if (out - 1) * stride >= size + pad else out


def _window(
    x: Tensor,
    axes: int,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    name: str,
    **options: Any,
) -> Window:
    """Return the geometry of a regular pooling, given the options of the public function `name`.

    `options`: further fields of the `Window`.
    """
    kernel = int_per_axis(kernel_size, axes, name, "kernel_size", 1)
    is_default = stride is None or (isinstance(stride, (tuple, list)) and not stride)
    chosen_stride = kernel if is_default else stride
    strides, pads = int_per_axis(chosen_stride, axes, name, "stride", 1), int_per_axis(padding, axes, name, "padding")
    dilations = int_per_axis(dilation, axes, name, "dilation", 1)
    if any(2 * p > (k - 1) * d + 1 for p, k, d in zip(pads, kernel, dilations, strict=True)):
        raise ArgumentError(f"{name}(): padding={pads} must be at most half of what kernel_size={kernel} spans")
    size = x.shape[x.ndim - axes :]
    if max(*kernel, *pads, *dilations) >= 2**31:
        raise ArgumentError(
            f"{name}(): kernel_size={kernel}, padding={pads}, dilation={dilations}: expected numbers below 2**31"
        )
    # a larger stride would do the same, a single window, but the kernels take 32 bits
    strides = tuple(min(s, max(n + 2 * p, 1)) for s, n, p in zip(strides, size, pads, strict=True))
    window = _regular_window(size, kernel, strides, pads, dilations, bool(ceil_mode), tuple(options.items()))
    if min(window.out) < 1:
        raise ShapeError(
            f"{name}(): an input of {size} with padding {pads} is smaller than the kernel {kernel} with dilation {dilations}: "
            f"enlarge the padding or the input"
        )
    return window


@functools.lru_cache(1024)
def _regular_window(
    size: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    pad: tuple[int, ...],
    dilation: tuple[int, ...],
    ceil_mode: bool,
    options: tuple[tuple[str, Any], ...],
) -> Window:
    """Return the geometry of a regular pooling. The output size may come out as 0 or less; the caller checks it."""
    out = [_extent(*axis, ceil_mode) for axis in zip(size, kernel, stride, pad, dilation, strict=True)]
    return Window(
        _triple(size, 1), _triple(out, 1), _triple(kernel, 1), _triple(stride, 1), _triple(pad, 0), _triple(dilation, 1),
        **dict(options),
    )  # fmt: skip


def _max(
    axes: int, x: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, return_indices: bool
) -> Any:
    """Check the operand and options of max pooling, and run it."""
    name = f"max_pool{axes}d"
    window = _window(_checked(x, axes, name), axes, kernel_size, stride, padding, dilation, ceil_mode, name)
    y, indices = _max_pool(x, axes=axes, window=window)
    return (y, indices) if return_indices else y


def _average(
    axes: int,
    x: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_pad: bool,
    divisor: int | None,
) -> Tensor:
    """Check the operand and options of average pooling, and run it. divisor: see divisor_override of `avg_pool2d`."""
    name = f"avg_pool{axes}d"
    if isinstance(x, Tensor) and x.dtype.is_integer:  # f64 is exact for sums below 2**53; results are truncated
        averaged = _average(axes, x.to(dtypes.f64), kernel_size, stride, padding, ceil_mode, count_pad, divisor)
        return averaged.to(x.dtype)
    if divisor is not None and (isinstance(divisor, bool) or not isinstance(divisor, int) or divisor == 0):
        raise ArgumentError(f"{name}(): divisor_override={divisor!r}, expected an int other than 0")
    window = _window(
        _checked(x, axes, name), axes, kernel_size, stride, padding, 1, ceil_mode, name, count_pad=count_pad,
        divisor=divisor or 0,  # 0: the number of elements
    )  # fmt: skip
    return mean_pool(x, axes=axes, window=window)


def _adaptive_window(x: Any, axes: int, output_size: Any, name: str) -> Window:
    """Return the geometry of an adaptive pooling of x to output_size: one size, or one (or None) per axis."""
    size = _checked(x, axes, name).shape[x.ndim - axes :]
    items = tuple(output_size) if isinstance(output_size, (tuple, list)) else (output_size,) * axes
    if len(items) == 1:
        items = items * axes
    sizes = [s if o is None else o for o, s in zip(items, size, strict=False)]
    out = int_per_axis(sizes, axes, name, "output_size", 0)
    return Window(_triple(size, 1), _triple(out, 1), adaptive=True)


def _adaptive_average(axes: int, x: Any, output_size: Any) -> Tensor:
    """Check the operand of adaptive average pooling, and run it."""
    window = _adaptive_window(x, axes, output_size, f"adaptive_avg_pool{axes}d")
    if window.out == (1, 1, 1):  # one window covers all elements of a channel: a mean over the spatial axes
        return x.mean(list(range(x.ndim - axes, x.ndim)), True)  # type: ignore[no-any-return]
    return mean_pool(x, axes=axes, window=window)


def _adaptive_max(axes: int, x: Any, output_size: Any, return_indices: bool) -> Any:
    """Check the operand of adaptive max pooling, and run it."""
    window = _adaptive_window(x, axes, output_size, f"adaptive_max_pool{axes}d")
    y, indices = _max_pool(x, axes=axes, window=window)
    return (y, indices) if return_indices else y


# -- public functions


@cached("max_pool1d()")
def max_pool1d(
    x: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:  # fmt: skip
    """Apply max pooling to x (N, C, L). Options are those of `max_pool2d`."""
    return _max(1, x, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@cached("max_pool2d()")
def max_pool2d(
    x: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:  # fmt: skip
    """Return the maximum of each window of x (N, C, H, W); NaN propagates.

    stride defaults to kernel_size. ceil_mode rounds the output size up, so that windows may extend past the end.
    return_indices also returns the index of each maximum in the flattened H * W plane (i64).
    """
    return _max(2, x, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@cached("max_pool3d()")
def max_pool3d(
    x: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:  # fmt: skip
    """Apply max pooling to x (N, C, D, H, W). Options are those of `max_pool2d`."""
    return _max(3, x, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@cached("avg_pool1d()")
def avg_pool1d(
    x: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """Apply average pooling to x (N, C, L). Options are those of `avg_pool2d`."""
    return _average(1, x, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


@cached("avg_pool2d()")
def avg_pool2d(
    x: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """Return the mean of each window of x (N, C, H, W).

    stride defaults to kernel_size. ceil_mode rounds the output size up, so that windows may extend past the end. The
    divisor is divisor_override if given, else the number of elements in the window, including the padding if
    count_include_pad.
    """
    return _average(2, x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@cached("avg_pool3d()")
def avg_pool3d(
    x: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """Apply average pooling to x (N, C, D, H, W). Options are those of `avg_pool2d`."""
    return _average(3, x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@cached("adaptive_avg_pool1d()")
def adaptive_avg_pool1d(x: Tensor, output_size: Any) -> Tensor:
    """Apply adaptive average pooling to x (N, C, L). output_size is as in `adaptive_avg_pool2d`."""
    return _adaptive_average(1, x, output_size)


@cached("adaptive_avg_pool2d()")
def adaptive_avg_pool2d(x: Tensor, output_size: Any) -> Tensor:
    """Average x (N, C, H, W) over windows chosen to yield output_size.

    output_size is an int, or one int per axis. None instead of an int keeps the input's size.
    """
    return _adaptive_average(2, x, output_size)


@cached("adaptive_avg_pool3d()")
def adaptive_avg_pool3d(x: Tensor, output_size: Any) -> Tensor:
    """Apply adaptive average pooling to x (N, C, D, H, W). output_size is as in `adaptive_avg_pool2d`."""
    return _adaptive_average(3, x, output_size)


@cached("adaptive_max_pool1d()")
def adaptive_max_pool1d(x: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """Apply adaptive max pooling to x (N, C, L). Options are those of `adaptive_max_pool2d`."""
    return _adaptive_max(1, x, output_size, return_indices)


@cached("adaptive_max_pool2d()")
def adaptive_max_pool2d(x: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """Return the maxima of x (N, C, H, W) over windows chosen to yield output_size.

    output_size is an int, or one int per axis. None instead of an int keeps the input's size. return_indices also
    returns the index of each maximum in the flattened H * W plane (i64).
    """
    return _adaptive_max(2, x, output_size, return_indices)


@cached("adaptive_max_pool3d()")
def adaptive_max_pool3d(x: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """Apply adaptive max pooling to x (N, C, D, H, W). Options are those of `adaptive_max_pool2d`."""
    return _adaptive_max(3, x, output_size, return_indices)
