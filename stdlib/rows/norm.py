"""Layer, RMS, batch, group and instance normalization: choose and launch the kernels, forward and backward.

`vkjit.tensor.nn.norm` calls these functions. The kernels are in `norm_per_row`, for rows that one invocation or
workgroup can process, and in `norm_chunks`, for rows of any length, which are split into chunks whose results are
combined in a fixed order.

Arrays are dense. `Rows` describes the sets of elements that share a mean and a variance (the statistics);
`AffineLayout` maps an element to its statistics and its weight. Statistics are computed in f32 (f64 for f64), variances
from the squared deviations from the mean. `scale` is always 1 / sqrt(variance + epsilon) of each row, and "the
normalized x" is (x - mean) * scale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import vkjit as vk
from vkjit.runtime.device import DeviceArray

from ..partial_sums import accumulator_type, flattened, placeholder, scratch, sum_partials
from ..registry import MAX_CPU_ITERATIONS, device_class, row_kernel_class
from . import norm_chunks as kernels, norm_per_row

__all__ = [
    "AffineLayout",
    "Rows",
    "column_sums",
    "gradient",
    "gradient_sums",
    "moments",
    "normalize",
    "normalize_channels",
    "normalize_rows",
    "row_gradient",
    "update_running",
]

CPU_SEGMENT = 8
"""Adjacent elements that an invocation of `norm_chunks.normalize` normalizes on devices of class "cpu".

GPUs use one, so that accesses are coalesced.
"""
MAX_CHANNEL = 4096
"""Maximum number of elements of a channel that one workgroup normalizes: more are split into chunks."""
MAX_ELEMENTS_PER_INVOCATION = 32
"""Maximum number of elements of a row that an invocation of a workgroup keeps in registers."""
MIN_CHUNK = 256
"""Elements of a row that aren't distributed over several invocations on a software driver."""
MIN_ROWS_PER_INVOCATION_KERNEL = 64
"""Minimum number of rows for which one invocation per row keeps all threads of a software driver busy."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Sets of elements that share a mean and a variance: `count` rows of `outer * inner` elements.

    Element (i, j) of a row is at the offset `row * step + i * outer_step + j * inner_step` in the flattened array.
    """

    count: int
    outer: int
    inner: int
    step: int
    outer_step: int
    inner_step: int

    @property
    def length(self) -> int:
        """Number of elements in a row."""
        return self.outer * self.inner

    def with_longer_axis_inner(self) -> Rows:
        """Return the same rows with the longer axis as the inner one."""
        if self.outer <= self.inner:
            return self
        return Rows(self.count, self.inner, self.outer, self.step, self.inner_step, self.outer_step)


@dataclass(frozen=True, slots=True)
class AffineLayout:
    """Mapping from elements to their statistics and weights, with the array viewed as `rows` rows of `length` elements.

    If `per_element` (layer and RMS norm), each row has its own statistics, and element j of a row has weight j.
    Otherwise each row is a channel of a sample: row r is channel c = r % channels of sample n = r // channels. Its
    weight has index c, and its statistics have index n * sample_stride + c // channels_per_statistic.
    """

    rows: int
    length: int
    per_element: bool
    channels: int = 1
    sample_stride: int = 1
    channels_per_statistic: int = 1


def _sizes(x: DeviceArray, *values: int) -> list[Any]:
    """Convert sizes to the integer type of the kernels' indices: i32 if all offsets fit, else i64."""
    # the margin of 2**12 is for indices past the end, as surplus invocations of the last workgroup have
    index_type = np.int32 if math.prod(x.shape) < 2**31 - 2**12 else np.int64
    return [index_type(v) for v in values]


def _scalar(x: DeviceArray, value: float) -> Any:
    """Convert a float to the accumulator type of x."""
    return np.asarray(value, accumulator_type(x.dtype).numpy)


def _chunk_shape(rows: Rows, kind: str) -> tuple[int, int]:
    """Return the extents (outer, inner) of a chunk of a row, for the device class `kind`.

    On class "cpu" chunks are small enough that loops stay short. On both classes there are enough of them to keep the
    device busy.
    """
    # at most about 256 chunks in all, or 2048 on GPUs
    if kind == "cpu":
        max_elements = min(MAX_CPU_ITERATIONS // 4, max(MIN_CHUNK, vk.cdiv(rows.count * rows.length, 256)))
    else:
        max_elements = max(4096, vk.cdiv(rows.count * rows.length, 2048))
    if rows.inner >= max_elements:
        return 1, max_elements
    return max(1, min(rows.outer, max_elements // rows.inner)), rows.inner


def moments(
    x: DeviceArray, rows: Rows, epsilon: float, *, center: bool = True
) -> tuple[DeviceArray, DeviceArray, DeviceArray]:
    """Return the mean, the variance and 1 / sqrt(variance + epsilon) of each row.

    Without `center` (RMS norm) the mean is 0, and the variance is the mean square. `x` is dense and not empty.
    """
    rows = rows.with_longer_axis_inner()
    dtype, device = accumulator_type(x.dtype), x.device
    kernel_class = row_kernel_class(device)
    chunk_shape = _chunk_shape(rows, kernel_class)
    chunks = vk.cdiv(rows.outer, chunk_shape[0]) * vk.cdiv(rows.inner, chunk_shape[1])
    means, squares = (scratch((rows.count, chunks), dtype, device) for _ in range(2))
    sizes = _sizes(x, rows.outer, rows.inner, rows.step, rows.outer_step, rows.inner_step, *chunk_shape)
    if kernel_class == "cpu":
        kernels.chunk_moments(flattened(x), means, squares, *sizes, center)
    else:
        # NESTED: loop over both axes of a chunk if its outer extent is 1 or its inner extent keeps all invocations of
        # the workgroup busy; else loop over the flattened chunk
        nested = chunk_shape[0] == 1 or chunk_shape[1] >= kernels.GROUP
        kernels.chunk_moments_workgroup(flattened(x), means, squares, *sizes, center, nested)
    mean, variance, scale = (scratch((rows.count,), dtype, device) for _ in range(3))
    sizes = _sizes(x, rows.outer, rows.inner, *chunk_shape)
    kernels.combine_moments(means, squares, mean, variance, scale, _scalar(x, epsilon), *sizes, center)
    return mean, variance, scale


def normalize_channels(
    x: DeviceArray,
    weight: DeviceArray | None,
    bias: DeviceArray | None,
    running: tuple[DeviceArray | None, DeviceArray | None],
    y: DeviceArray,
    rows: Rows,
    epsilon: float,
    momentum: float,
    *,
    stored: bool,
) -> tuple[DeviceArray, DeviceArray] | None:
    """Compute y, the batch norm of x; if `stored`, return the mean and scale of each channel. x is dense and not empty.

    `rows` are the channels over the batch, `weight` and `bias` have an element for each. `running` are the running mean
    and variance to update by `momentum`, in place. The running variance is unbiased (divided by length - 1).
    """
    unbiased = rows.length / max(rows.length - 1, 1)
    dtype, device, count = accumulator_type(x.dtype), x.device, rows.count
    if row_kernel_class(device) != "gpu" or rows.length > MAX_CHANNEL:
        mean, variance, scale = moments(x, rows, epsilon)
        # rows are channels of samples; with a sample stride of 0, all samples share the statistics of a channel
        affine = AffineLayout(count * rows.outer, rows.inner, per_element=False, channels=count, sample_stride=0)
        normalize(x, mean, scale, weight, bias, y, affine)
        for old, batch, factor in zip(running, (mean, variance), (1.0, unbiased), strict=True):
            if old is not None:
                update_running(old, batch, 1 - momentum, momentum * factor)
        return mean, scale
    unused = placeholder(y)
    mean, scale = (scratch((count,), dtype, device) if stored else placeholder(y, dtype) for _ in range(2))
    rows = rows.with_longer_axis_inner()
    nested = rows.outer == 1 or rows.inner >= kernels.GROUP
    scalars = [_scalar(x, value) for value in (epsilon, 1 - momentum, momentum, momentum * unbiased)]
    optional = (weight, bias, *running)
    kernels.normalize_channels(
        flattened(x), *(unused if array is None else array for array in optional), flattened(y), mean, scale,
        *scalars, *_sizes(x, count, rows.outer, rows.inner, rows.step, rows.outer_step, rows.inner_step),
        *(array is not None for array in optional), stored, nested,
    )  # fmt: skip
    return (mean, scale) if stored else None


def update_running(running: DeviceArray, batch: DeviceArray, running_weight: float, batch_weight: float) -> None:
    """Update running statistics in place: running = running_weight * running + batch_weight * batch."""
    kernels.update_running(running, batch, _scalar(batch, running_weight), _scalar(batch, batch_weight))


def _segments(affine: AffineLayout, x: DeviceArray) -> tuple[int, int]:
    """Return (segments per row, elements per segment); an invocation processes one segment."""
    size = CPU_SEGMENT if device_class(x.device) == "cpu" else 1
    return vk.cdiv(affine.length, size), size


def normalize(
    x: DeviceArray,
    mean: DeviceArray | None,
    scale: DeviceArray,
    weight: DeviceArray | None,
    bias: DeviceArray | None,
    y: DeviceArray,
    affine: AffineLayout,
) -> None:
    """Compute y = (x - mean) * scale * weight + bias. Terms whose array is None are omitted.

    `affine` maps each element to its index in `mean` and `scale` and to its index in `weight` and `bias`.
    """
    if 0 in y.shape:
        return
    segments, size = _segments(affine, x)
    unused = placeholder(scale)
    kernels.normalize(
        flattened(x), scale if mean is None else mean, scale, unused if weight is None else weight,
        unused if bias is None else bias, flattened(y),
        *_sizes(x, affine.rows, segments, affine.length, affine.channels, affine.sample_stride, affine.channels_per_statistic),
        affine.per_element, weight is not None, bias is not None, mean is not None, size,
    )  # fmt: skip


def _matrix(x: DeviceArray, affine: AffineLayout) -> DeviceArray:
    """View a dense array as a matrix (rows, length)."""
    return DeviceArray(x.buffer, x.offset, x.dtype, (affine.rows, affine.length), (affine.length, 1))


def _register_plan(affine: AffineLayout) -> tuple[int, int] | None:
    """Return (elements per invocation, invocations) for a workgroup that keeps a row in registers.

    None if the row is too long for that.
    """
    # at most 4, 8, 16 or 32 elements per invocation for the workgroup sizes 32, 64, 128 and 256
    size = next((s for s, limit in ((32, 128), (64, 512), (128, 2048), (256, 8192)) if affine.length <= limit), 512)
    per_invocation = vk.cdiv(affine.length, size)
    return (per_invocation, size) if per_invocation <= MAX_ELEMENTS_PER_INVOCATION else None


def _use_invocation_per_row(affine: AffineLayout) -> bool:
    """True if one invocation per row is efficient on a software driver: rows are many and not too long, or short."""
    max_length = MAX_CPU_ITERATIONS // 4 if affine.rows >= MIN_ROWS_PER_INVOCATION_KERNEL else MIN_CHUNK
    return affine.length <= max_length


def normalize_rows(
    x: DeviceArray,
    weight: DeviceArray | None,
    bias: DeviceArray | None,
    y: DeviceArray,
    affine: AffineLayout,
    epsilon: float,
    *,
    center: bool,
    stored: bool = True,
) -> tuple[DeviceArray, DeviceArray] | None:
    """Compute y, the layer norm of each row of x (without `center` the RMS norm).

    If `stored`, return each row's mean and `scale`, which is 1 / sqrt(variance + epsilon). `affine.per_element` is true,
    and x isn't empty.
    """
    dtype, device = accumulator_type(x.dtype), x.device
    register_plan = _register_plan(affine)
    is_gpu = row_kernel_class(device) == "gpu"
    if (register_plan is None) if is_gpu else not _use_invocation_per_row(affine):
        # contiguous rows of one axis: the outer extent is 1
        mean, _, scale = moments(x, Rows(affine.rows, 1, affine.length, affine.length, 0, 1), epsilon, center=center)
        normalize(x, mean if center else None, scale, weight, bias, y, affine)
        return mean, scale
    unused = placeholder(y, dtype)
    mean, scale = (scratch((affine.rows,), dtype, device) if stored else unused for _ in range(2))
    arguments = (
        _matrix(x, affine), unused if weight is None else weight, unused if bias is None else bias, _matrix(y, affine),
        mean, scale, _scalar(x, epsilon), weight is not None, bias is not None, center, stored,
    )  # fmt: skip
    if is_gpu:
        norm_per_row.norm_per_workgroup(*arguments, *(register_plan or ()))
    else:
        norm_per_row.norm_per_invocation(*arguments)
    return (mean, scale) if stored else None


def row_gradient(
    g: DeviceArray,
    x: DeviceArray,
    mean: DeviceArray | None,
    scale: DeviceArray,
    weight: DeviceArray | None,
    y: DeviceArray,
    affine: AffineLayout,
) -> None:
    """Compute y, the gradient of the input x of `normalize_rows`, from g, the gradient of its output.

    `mean` and `scale` are the results of `normalize_rows`; `mean` is None if it wasn't subtracted (RMS norm).
    """
    # `scale` stands in for a missing weight or mean, which the kernels don't read
    factors = scale if weight is None else weight
    center = scale if mean is None else mean
    flags = (weight is not None, mean is not None)
    register_plan = _register_plan(affine)
    kernel_class = row_kernel_class(g.device)
    arrays = (_matrix(g, affine), _matrix(x, affine), center, scale, factors, _matrix(y, affine))
    if kernel_class == "gpu" and register_plan is not None:
        norm_per_row.gradient_per_workgroup(*arrays, *flags, *register_plan)
    elif kernel_class == "cpu" and _use_invocation_per_row(affine):
        norm_per_row.gradient_per_invocation(*arrays, *flags)
    else:
        shift, slope = gradient_sums(g, x, mean, scale, weight, affine)
        gradient(g, x, mean, scale, weight, shift, slope, y, affine, 1 / affine.length)


def gradient_sums(
    g: DeviceArray,
    x: DeviceArray,
    mean: DeviceArray | None,
    scale: DeviceArray,
    weight: DeviceArray | None,
    affine: AffineLayout,
) -> tuple[DeviceArray, DeviceArray]:
    """Return two arrays with one sum per row: the sums of the gradients g, and those of g times the normalized x.

    If `affine.per_element`, g is first multiplied by the weight. `mean` is None if it wasn't subtracted.
    """
    dtype, device = accumulator_type(g.dtype), g.device
    arrays = (flattened(g), flattened(x), scale if mean is None else mean, scale, scale if weight is None else weight)
    flags = (affine.per_element, weight is not None, mean is not None)
    layout = (affine.length, affine.channels, affine.sample_stride, affine.channels_per_statistic)
    if row_kernel_class(device) == "gpu" and affine.length >= kernels.GROUP // 2:
        sums = scratch((1, 2, affine.rows), dtype, device)
        kernels.row_gradient_sums(*arrays, sums, *_sizes(g, affine.rows, *layout), *flags)
        return _sum_chunks(sums)
    # at most about 256 chunks in all, unless loops would get too long
    chunk_length = min(
        affine.length, MAX_CPU_ITERATIONS // 2, max(MIN_CHUNK, vk.cdiv(affine.rows * affine.length, 256))
    )
    chunks = vk.cdiv(affine.length, chunk_length)
    sums = scratch((chunks, 2, affine.rows), dtype, device)
    kernels.chunk_gradient_sums(*arrays, sums, *_sizes(g, affine.rows, chunks, chunk_length, *layout), *flags)
    return _sum_chunks(sums)


def _sum_chunks(parts: DeviceArray) -> tuple[DeviceArray, DeviceArray]:
    """Sum `parts`, of shape (chunks, 2, length), over the chunks; return the two results of shape (length,)."""
    total = parts
    if parts.shape[0] > 1:
        total = scratch((1, *parts.shape[1:]), parts.dtype, parts.device)
        count = parts.shape[1] * parts.shape[2]
        sum_partials(DeviceArray(parts.buffer, 0, parts.dtype, (parts.shape[0], count), (count, 1)), total)
    length = parts.shape[2]
    first = DeviceArray(total.buffer, 0, total.dtype, (length,), (1,))
    return first, DeviceArray(total.buffer, length * total.dtype.itemsize, total.dtype, (length,), (1,))


def column_sums(
    g: DeviceArray, x: DeviceArray, mean: DeviceArray | None, scale: DeviceArray, affine: AffineLayout
) -> tuple[DeviceArray, DeviceArray]:
    """Return two arrays with one sum over all rows per column: the sums of g, and those of g times the normalized x.

    They are the gradients of the bias and of the weight of `normalize_rows`; g is the gradient of its output.
    """
    dtype, device = accumulator_type(g.dtype), g.device
    # there is an invocation per column and chunk: about 4096 on class "cpu", 131,072 on GPUs
    target_invocations = 4096 if device_class(device) == "cpu" else 131_072
    target_chunks = max(1, vk.cdiv(target_invocations, affine.length))
    rows_per_chunk = max(1, min(vk.cdiv(affine.rows, target_chunks), MAX_CPU_ITERATIONS // 4))
    sums = scratch((vk.cdiv(affine.rows, rows_per_chunk), 2, affine.length), dtype, device)
    center = scale if mean is None else mean
    kernels.column_gradient_sums(
        _matrix(g, affine), _matrix(x, affine), center, scale, sums, *_sizes(g, rows_per_chunk), mean is not None
    )
    return _sum_chunks(sums)


def gradient(
    g: DeviceArray,
    x: DeviceArray,
    mean: DeviceArray | None,
    scale: DeviceArray,
    weight: DeviceArray | None,
    shift: DeviceArray,
    slope: DeviceArray,
    y: DeviceArray,
    affine: AffineLayout,
    inverse_count: float = 1.0,
) -> None:
    """Compute y = scale * (g * weight - (shift + normalized x * slope) * inverse_count), the gradient of x.

    `shift` and `slope` are the two sums of `gradient_sums`, `inverse_count` is 1 / the number of elements in each. If
    `mean` is None (RMS norm), the term with `shift` is omitted.
    """
    if 0 in y.shape:
        return
    segments, size = _segments(affine, x)
    kernels.gradient_values(
        flattened(g), flattened(x), scale if mean is None else mean, scale, scale if weight is None else weight, shift,
        slope, flattened(y),
        _scalar(g, inverse_count), *_sizes(g, affine.rows, segments, affine.length, affine.channels,
        affine.sample_stride, affine.channels_per_statistic),
        affine.per_element, weight is not None, mean is not None, size,
    )  # fmt: skip
