"""Normalization: mean and variance of rows, normalized values, and the sums and values needed by gradients.

Arrays are dense. `Rows` describes the elements that share a mean and a variance; `Affine` maps an element to its
statistics and weights. Statistics are computed in f32 (f64 for f64); variances are sums of squared deviations from the
mean. Long rows are split into chunks whose results are combined in a fixed order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import vkjit as vk
from vkjit.runtime.device import DeviceArray

from ..partial_sums import accumulator, flat, scratch, sum_parts
from ..registry import CPU_LOOP, device_class, rows_class
from . import norm_chunks as kernels, norm_per_row

__all__ = [
    "Affine",
    "Rows",
    "column_sums",
    "gradient",
    "gradient_sums",
    "line_gradient",
    "lines",
    "moments",
    "move",
    "normalize",
]

SEGMENT = 8
"""Elements normalized per invocation on devices of class "cpu". GPUs use one, so that accesses are coalesced."""
MOST_HELD = 32
"""Maximum number of elements of a row that an invocation of a workgroup keeps in registers."""
MANY_LINES = 64
"""Minimum number of rows for which one invocation per row keeps all threads of a software driver busy."""


@dataclass(frozen=True, slots=True)
class Rows:
    """`count` rows of `outer * inner` elements; element (row, i, j) is at `row * step + i * outer_step + j *
    inner_step`.
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

    def longest_inside(self) -> Rows:
        """Return the same rows with the longer axis as the inner one."""
        if self.outer <= self.inner:
            return self
        return Rows(self.count, self.inner, self.outer, self.step, self.inner_step, self.outer_step)


@dataclass(frozen=True, slots=True)
class Affine:
    """Mapping from elements to statistics and weights, with the array viewed as `lines` rows of `length` elements.

    If `per_element` (layer norm), each row has one mean, and each of its elements has its own weight. Otherwise each
    row is a channel of a sample: row l is channel c = l % channels of sample n = l // channels; its weight has index c,
    its statistics have index n * stride + c // share.
    """

    lines: int
    length: int
    per_element: bool
    channels: int = 1
    stride: int = 1
    share: int = 1


def _sizes(x: DeviceArray, *values: int) -> list[Any]:
    """Convert sizes to the integer type of the kernels' indices: i32 if all offsets fit, else i64."""
    kind = np.int32 if math.prod(x.shape) < 2**31 - 2**12 else np.int64
    return [kind(v) for v in values]


def _number(x: DeviceArray, value: float) -> Any:
    return np.asarray(value, accumulator(x.dtype).numpy)


def _cuts(rows: Rows, kind: str) -> tuple[int, int]:
    """Return the number of elements along the outer and the inner axis of a row that form one chunk."""
    if kind == "cpu":
        most = min(CPU_LOOP // 4, max(256, vk.cdiv(rows.count * rows.length, 256)))
    else:
        most = max(4096, vk.cdiv(rows.count * rows.length, 2048))
    if rows.inner >= most:
        return 1, most
    return max(1, min(rows.outer, most // rows.inner)), rows.inner


def moments(
    x: DeviceArray, rows: Rows, epsilon: float, *, center: bool = True
) -> tuple[DeviceArray, DeviceArray, DeviceArray]:
    """Return the mean, the variance and 1 / sqrt(variance + epsilon) of each row.

    Without `center` the mean counts as 0, and the variance is the mean square. `x` is dense and not empty.
    """
    rows = rows.longest_inside()
    dtype, device = accumulator(x.dtype), x.device
    kind = rows_class(device)
    cuts = _cuts(rows, kind)
    chunks = vk.cdiv(rows.outer, cuts[0]) * vk.cdiv(rows.inner, cuts[1])
    means, squares = (scratch((rows.count, chunks), dtype, device) for _ in range(2))
    sizes = _sizes(x, rows.outer, rows.inner, rows.step, rows.outer_step, rows.inner_step, *cuts)
    if kind == "cpu":
        kernels.moments_of_chunks(flat(x), means, squares, *sizes, center)
    else:
        kernels.moments_of_groups(flat(x), means, squares, *sizes, center, cuts[0] == 1 or cuts[1] >= kernels.GROUP)
    mean, variance, scale = (scratch((rows.count,), dtype, device) for _ in range(3))
    sizes = _sizes(x, rows.outer, rows.inner, *cuts)
    kernels.combined_moments(means, squares, mean, variance, scale, _number(x, epsilon), *sizes, center)
    return mean, variance, scale


def move(running: DeviceArray, found: DeviceArray, keep: float, take: float) -> None:
    """Update running statistics in place: running = keep * running + take * found."""
    kernels.moved(running, found, _number(found, keep), _number(found, take))


def _segments(affine: Affine, x: DeviceArray) -> tuple[int, int]:
    """Return (segments per row, elements per segment)."""
    size = SEGMENT if device_class(x.device) == "cpu" else 1
    return vk.cdiv(affine.length, size), size


def normalize(
    x: DeviceArray,
    mean: DeviceArray | None,
    scale: DeviceArray,
    weight: DeviceArray | None,
    bias: DeviceArray | None,
    y: DeviceArray,
    affine: Affine,
) -> None:
    """Compute y = (x - mean) * scale * weight + bias. `mean`, `weight` and `bias` are omitted where None."""
    if 0 in y.shape:
        return
    segments, size = _segments(affine, x)
    kernels.normalized(
        flat(x), scale if mean is None else mean, scale, scale if weight is None else weight,
        scale if bias is None else bias, flat(y),
        *_sizes(x, affine.lines, segments, affine.length, affine.channels, affine.stride, affine.share),
        affine.per_element, weight is not None, bias is not None, mean is not None, size,
    )  # fmt: skip


def _matrix(x: DeviceArray, affine: Affine) -> DeviceArray:
    return DeviceArray(x.buffer, x.offset, x.dtype, (affine.lines, affine.length), (affine.length, 1))


def _held(affine: Affine) -> tuple[int, int] | None:
    """Return (elements per invocation, invocations) of a workgroup that keeps a row in registers; None if it is too
    long.
    """
    size = next((s for s, limit in ((32, 128), (64, 512), (128, 2048), (256, 8192)) if affine.length <= limit), 512)
    held = vk.cdiv(affine.length, size)
    return (held, size) if held <= MOST_HELD else None


def _at_once(affine: Affine) -> bool:
    """True if one invocation per row is efficient on a software driver."""
    return affine.lines >= MANY_LINES and affine.length <= CPU_LOOP // 4


def lines(
    x: DeviceArray,
    weight: DeviceArray | None,
    bias: DeviceArray | None,
    y: DeviceArray,
    affine: Affine,
    epsilon: float,
    *,
    center: bool,
) -> tuple[DeviceArray, DeviceArray]:
    """Normalize each row of `x` into `y`; return the mean and 1 / standard deviation of each row. `x` is not empty."""
    dtype, device = accumulator(x.dtype), x.device
    mean, scale = (scratch((affine.lines,), dtype, device) for _ in range(2))
    eps_scalar = _number(x, epsilon)
    flags = (weight is not None, bias is not None, center)
    factors, offsets = scale if weight is None else weight, scale if bias is None else bias
    register_plan = _held(affine)
    if rows_class(device) == "gpu" and register_plan is not None:
        norm_per_row.norm_of_groups(
            _matrix(x, affine), factors, offsets, _matrix(y, affine), mean, scale, eps_scalar, *flags, *register_plan
        )
        return mean, scale
    if rows_class(device) == "cpu" and _at_once(affine):
        norm_per_row.norm_of_lines(
            _matrix(x, affine), factors, offsets, _matrix(y, affine), mean, scale, eps_scalar, *flags
        )
        return mean, scale
    mean, _, scale = moments(x, Rows(affine.lines, 1, affine.length, affine.length, 0, 1), epsilon, center=center)
    normalize(x, mean if center else None, scale, weight, bias, y, affine)
    return mean, scale


def line_gradient(
    g: DeviceArray,
    x: DeviceArray,
    mean: DeviceArray | None,
    scale: DeviceArray,
    weight: DeviceArray | None,
    y: DeviceArray,
    affine: Affine,
) -> None:
    """Compute y = the gradient of the input of `lines` from `g`, the gradient of its output. `mean` is None for
    uncentered rows.
    """
    factors, center = scale if weight is None else weight, scale if mean is None else mean
    flags, register_plan, kind = (weight is not None, mean is not None), _held(affine), rows_class(g.device)
    arrays = (_matrix(g, affine), _matrix(x, affine), center, scale, factors, _matrix(y, affine))
    if kind == "gpu" and register_plan is not None:
        norm_per_row.gradient_of_groups(*arrays, *flags, *register_plan)
    elif kind == "cpu" and _at_once(affine):
        norm_per_row.gradient_of_lines(*arrays, *flags)
    else:
        shift, slope = gradient_sums(g, x, mean, scale, weight, affine)
        gradient(g, x, mean, scale, weight, shift, slope, y, affine, 1 / affine.length)


def gradient_sums(
    g: DeviceArray,
    x: DeviceArray,
    mean: DeviceArray | None,
    scale: DeviceArray,
    weight: DeviceArray | None,
    affine: Affine,
) -> tuple[DeviceArray, DeviceArray]:
    """Return per-row sums of g (times the weight if `per_element`) and of the same terms times the normalized x."""
    dtype, device = accumulator(g.dtype), g.device
    arrays = (flat(g), flat(x), scale if mean is None else mean, scale, scale if weight is None else weight)
    flags = (affine.per_element, weight is not None, mean is not None)
    layout = (affine.length, affine.channels, affine.stride, affine.share)
    if rows_class(device) == "gpu" and affine.length >= kernels.GROUP // 2:
        sums = scratch((1, 2, affine.lines), dtype, device)
        kernels.sums_of_groups(*arrays, sums, *_sizes(g, affine.lines, *layout), *flags)
        return _pair(sums)
    cut = min(affine.length, CPU_LOOP // 2, max(256, vk.cdiv(affine.lines * affine.length, 256)))
    chunks = vk.cdiv(affine.length, cut)
    sums = scratch((chunks, 2, affine.lines), dtype, device)
    kernels.sums_of_chunks(*arrays, sums, *_sizes(g, affine.lines, chunks, cut, *layout), *flags)
    return _pair(sums)


def _pair(parts: DeviceArray) -> tuple[DeviceArray, DeviceArray]:
    """Add up both sums over the chunks."""
    total = parts
    if parts.shape[0] > 1:
        total = scratch((1, *parts.shape[1:]), parts.dtype, parts.device)
        count = parts.shape[1] * parts.shape[2]
        sum_parts(DeviceArray(parts.buffer, 0, parts.dtype, (parts.shape[0], count), (count, 1)), total)
    length = parts.shape[2]
    first = DeviceArray(total.buffer, 0, total.dtype, (length,), (1,))
    return first, DeviceArray(total.buffer, length * total.dtype.itemsize, total.dtype, (length,), (1,))


def column_sums(
    g: DeviceArray, x: DeviceArray, mean: DeviceArray | None, scale: DeviceArray, affine: Affine
) -> tuple[DeviceArray, DeviceArray]:
    """Return per-column sums over all rows of g, and of g times the normalized x: the gradients of bias and weight."""
    dtype, device = accumulator(g.dtype), g.device
    chunks_wanted = max(1, vk.cdiv(4096 if device_class(device) == "cpu" else 131_072, affine.length))
    cut = max(1, min(vk.cdiv(affine.lines, chunks_wanted), CPU_LOOP // 4))
    sums = scratch((vk.cdiv(affine.lines, cut), 2, affine.length), dtype, device)
    center = scale if mean is None else mean
    kernels.sums_of_columns(
        _matrix(g, affine), _matrix(x, affine), center, scale, sums, *_sizes(g, cut), mean is not None
    )
    return _pair(sums)


def gradient(
    g: DeviceArray,
    x: DeviceArray,
    mean: DeviceArray | None,
    scale: DeviceArray,
    weight: DeviceArray | None,
    shift: DeviceArray,
    slope: DeviceArray,
    y: DeviceArray,
    affine: Affine,
    over: float = 1.0,
) -> None:
    """Compute y = scale * (g * weight - (shift + normalized x * slope) * over), the gradient of x.

    `shift` and `slope` are the sums from `gradient_sums`, `over` is 1 / the number of summed elements.
    """
    if 0 in y.shape:
        return
    segments, size = _segments(affine, x)
    kernels.gradient_values(
        flat(g), flat(x), scale if mean is None else mean, scale, scale if weight is None else weight, shift, slope, flat(y),
        _number(g, over), *_sizes(g, affine.lines, segments, affine.length, affine.channels, affine.stride, affine.share),
        affine.per_element, weight is not None, mean is not None, size,
    )  # fmt: skip
