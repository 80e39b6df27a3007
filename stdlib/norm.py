"""Normalisation: moments of rows, the normalised values, and the sums and values that gradients need.

Enters: dense arrays. `Rows` says which elements share a mean and a variance; `Affine` how those statistics and the weights are
found from an element's place. Leaves: arrays that the caller gives or gets. Statistics are kept in f32 (f64 for f64); variances
are sums of squared distances from the mean. Long rows are cut into chunks that are combined in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import vkjit as vk
from vkjit.runtime.interface import DeviceArray

from .partial import accumulator, flat, scratch, sum_parts
from .registry import CPU_LOOP, choose, device_class, variant
from .softmax import tree

__all__ = ["Affine", "Rows", "column_sums", "gradient", "gradient_sums", "moments", "normalize"]

T = TypeVar("T", bound=vk.Element)
U = TypeVar("U", bound=vk.Element)
W = TypeVar("W", bound=vk.Element)
B = TypeVar("B", bound=vk.Element)
R = TypeVar("R", bound=vk.Element)
A = TypeVar("A", bound=vk.Element)

LOCAL = 64
BLOCK = 32
"""Terms that are summed before the sum is added to the total: rounding grows with the number of blocks only."""
SEGMENT = 8
"""Elements that an invocation normalises on devices of class "cpu"; one on GPUs, where neighbours read neighbours."""
WIDTHS = (64, 32, 16, 8, 4, 2, 1)
"""Steps of the tree over a workgroup."""


@dataclass(frozen=True, slots=True)
class Rows:
    """`count` rows of `outer * inner` elements: element (row, i, j) lies at row * step + i * outer_step + j * inner_step."""

    count: int
    outer: int
    inner: int
    step: int
    outer_step: int
    inner_step: int

    @property
    def length(self) -> int:
        """Elements of a row."""
        return self.outer * self.inner

    def longest_inside(self) -> Rows:
        """The same rows with the longer axis inside."""
        if self.outer <= self.inner:
            return self
        return Rows(self.count, self.inner, self.outer, self.step, self.inner_step, self.outer_step)


@dataclass(frozen=True, slots=True)
class Affine:
    """Where statistics and weights of an element lie, the array seen as `lines` of `length`.

    per_element (layer norm): a line has one mean, each of its elements a weight. Otherwise a line is a channel of a sample:
    line l is channel c = l % channels of sample n = l // channels, has weight c and statistics n * stride + c // share.
    """

    lines: int
    length: int
    per_element: bool
    channels: int = 1
    stride: int = 1
    share: int = 1


@vk.func
def chunk_bounds(chunk, outer, inner, outer_cut, inner_cut):
    """(first outer, outer count, first inner, inner count) of a chunk of a row."""
    across = (inner + inner_cut - 1) // inner_cut
    i, j = chunk // across * outer_cut, chunk % across * inner_cut
    return i, vk.min(outer - i, outer_cut), j, vk.min(inner - j, inner_cut)


@vk.kernel(groups=lambda mean: vk.cdiv(mean.shape[0] * mean.shape[1], LOCAL), local=LOCAL, debug=False)
def moments_of_chunks(
    x: vk.In[T, "N"],
    mean: vk.Out[A, "rows chunks"],
    squares: vk.Out[A, "rows chunks"],
    outer: vk.i32,
    inner: vk.i32,
    step: vk.i64,
    outer_step: vk.i64,
    inner_step: vk.i64,
    outer_cut: vk.i32,
    inner_cut: vk.i32,
    CENTER: vk.Const[bool],
):
    """The mean of each chunk and the sum of squared distances from it; without CENTER the mean counts as 0."""
    e = vk.global_id(0)
    if e >= mean.shape[0] * mean.shape[1]:
        return
    row, chunk = e // mean.shape[1], e % mean.shape[1]
    i0, rows, j0, columns = chunk_bounds(vk.i32(chunk), outer, inner, outer_cut, inner_cut)
    base = row * step + vk.i64(i0) * outer_step + vk.i64(j0) * inner_step
    center = A(0)
    if CENTER:
        total = A(0)
        for i in range(rows):
            for b in range(vk.cdiv(columns, BLOCK)):
                part = A(0)
                for j in range(b * BLOCK, vk.min((b + 1) * BLOCK, columns)):
                    part += A(x[base + i * outer_step + j * inner_step])
                total += part
        center = total / A(rows * columns)
    total = A(0)
    for i in range(rows):
        for b in range(vk.cdiv(columns, BLOCK)):
            part = A(0)
            for j in range(b * BLOCK, vk.min((b + 1) * BLOCK, columns)):
                distance = A(x[base + i * outer_step + j * inner_step]) - center
                part += distance * distance
            total += part
    mean[row, chunk] = center
    squares[row, chunk] = total


@vk.kernel(groups=lambda mean: (mean.shape[0], mean.shape[1], 1), local=2 * WIDTHS[0], debug=False)
def moments_of_groups(
    x: vk.In[T, "N"],
    mean: vk.Out[A, "rows chunks"],
    squares: vk.Out[A, "rows chunks"],
    outer: vk.i32,
    inner: vk.i32,
    step: vk.i64,
    outer_step: vk.i64,
    inner_step: vk.i64,
    outer_cut: vk.i32,
    inner_cut: vk.i32,
    CENTER: vk.Const[bool],
):
    """As `moments_of_chunks`, a workgroup per chunk."""
    values = vk.shared(A, 2 * WIDTHS[0])
    lane = vk.i32(vk.local_id(0))
    row, chunk = vk.group_id(0), vk.group_id(1)
    i0, rows, j0, columns = chunk_bounds(vk.i32(chunk), outer, inner, outer_cut, inner_cut)
    base = row * step + vk.i64(i0) * outer_step + vk.i64(j0) * inner_step
    center = A(0)
    if CENTER:
        total = A(0)
        for k in range(lane, rows * columns, 2 * WIDTHS[0]):
            total += A(x[base + k // columns * outer_step + k % columns * inner_step])
        center = tree(values, lane, total, WIDTHS, False) / A(rows * columns)
    total = A(0)
    for k in range(lane, rows * columns, 2 * WIDTHS[0]):
        distance = A(x[base + k // columns * outer_step + k % columns * inner_step]) - center
        total += distance * distance
    total = tree(values, lane, total, WIDTHS, False)
    if lane == 0:
        mean[row, chunk] = center
        squares[row, chunk] = total


@vk.kernel(over="variance", debug=False)
def combined_moments(
    means: vk.In[A, "rows chunks"],
    squares: vk.In[A, "rows chunks"],
    mean: vk.Out[A, "rows"],
    variance: vk.Out[A, "rows"],
    outer: vk.i32,
    inner: vk.i32,
    outer_cut: vk.i32,
    inner_cut: vk.i32,
    CENTER: vk.Const[bool],
):
    """The mean and the variance (divided by the number of elements) of whole rows from those of their chunks, in order."""
    row = vk.global_id(0)
    center, total, count = means[row, 0], squares[row, 0], A(0)
    for c in range(means.shape[1]):
        _, rows, _, columns = chunk_bounds(vk.i32(c), outer, inner, outer_cut, inner_cut)
        size = A(rows * columns)
        if c > 0:
            if CENTER:
                distance = means[row, c] - center
                center += distance * (size / (count + size))
                total += squares[row, c] + distance * distance * (count * (size / (count + size)))
            else:
                total += squares[row, c]
        count += size
    mean[row] = center
    variance[row] = total / count


@vk.func
def statistic(line, channels, stride, share, PER_ELEMENT: vk.Const[bool]):
    """Where the statistics of a line lie."""
    if PER_ELEMENT:
        return line
    return line // channels * stride + line % channels // share


@vk.kernel(groups=lambda lines, segments: vk.cdiv(lines * segments, LOCAL), local=LOCAL, debug=False)
def normalized(
    x: vk.In[T, "N"],
    mean: vk.In[A, "S"],
    scale: vk.In[A, "S"],
    weight: vk.In[W, "C"],
    bias: vk.In[B, "D"],
    y: vk.Out[R, "N"],
    lines: vk.i64,
    segments: vk.i64,
    length: vk.i64,
    channels: vk.i64,
    stride: vk.i64,
    share: vk.i64,
    PER_ELEMENT: vk.Const[bool],
    WEIGHT: vk.Const[bool],
    BIAS: vk.Const[bool],
    CENTER: vk.Const[bool],
    SIZE: vk.Const[int],
):
    """y = (x - mean) * scale * weight + bias; SIZE elements of a line per invocation."""
    e = vk.i64(vk.global_id(0))
    line = e // segments
    if line >= lines:
        return
    first = (e - line * segments) * SIZE
    at = statistic(line, channels, stride, share, PER_ELEMENT)
    center, factor = A(0), scale[at]
    if CENTER:
        center = mean[at]
    w, b = A(1), A(0)
    if not PER_ELEMENT:
        if WEIGHT:
            w = A(weight[line % channels])
        if BIAS:
            b = A(bias[line % channels])
    for i in range(vk.min(length - first, SIZE)):
        j = first + i
        if PER_ELEMENT:
            if WEIGHT:
                w = A(weight[j])
            if BIAS:
                b = A(bias[j])
        y[line * length + j] = R((A(x[line * length + j]) - center) * factor * w + b)


@vk.kernel(groups=lambda lines, chunks: vk.cdiv(lines * chunks, LOCAL), local=LOCAL, debug=False)
def sums_of_chunks(
    g: vk.In[T, "N"],
    x: vk.In[U, "N"],
    mean: vk.In[A, "S"],
    scale: vk.In[A, "S"],
    weight: vk.In[W, "C"],
    sums: vk.Out[A, "chunks lines"],
    products: vk.Out[A, "chunks lines"],
    lines: vk.i64,
    chunks: vk.i64,
    cut: vk.i64,
    length: vk.i64,
    channels: vk.i64,
    stride: vk.i64,
    share: vk.i64,
    PER_ELEMENT: vk.Const[bool],
    WEIGHT: vk.Const[bool],
    CENTER: vk.Const[bool],
):
    """Of each line the sum of g and of g times the normalised x; PER_ELEMENT: of g times the weight."""
    e = vk.i64(vk.global_id(0))
    if e >= lines * chunks:
        return
    line, chunk = e % lines, e // lines
    at = statistic(line, channels, stride, share, PER_ELEMENT)
    center = A(0)
    if CENTER:
        center = mean[at]
    total, product = A(0), A(0)
    trips = vk.min(length - chunk * cut, cut)
    base = line * length + chunk * cut
    for b in range(vk.cdiv(trips, BLOCK)):
        part, part_product = A(0), A(0)
        for j in range(b * BLOCK, vk.min((b + 1) * BLOCK, trips)):
            slope = A(g[base + j])
            if PER_ELEMENT and WEIGHT:
                slope *= A(weight[chunk * cut + j])
            part += slope
            part_product += slope * (A(x[base + j]) - center)
        total += part
        product += part_product
    sums[chunk, line] = total
    products[chunk, line] = product * scale[at]


@vk.kernel(groups=lambda lines: lines, local=2 * WIDTHS[0], debug=False)
def sums_of_groups(
    g: vk.In[T, "N"],
    x: vk.In[U, "N"],
    mean: vk.In[A, "S"],
    scale: vk.In[A, "S"],
    weight: vk.In[W, "C"],
    sums: vk.Out[A, "chunks lines"],
    products: vk.Out[A, "chunks lines"],
    lines: vk.i64,
    length: vk.i64,
    channels: vk.i64,
    stride: vk.i64,
    share: vk.i64,
    PER_ELEMENT: vk.Const[bool],
    WEIGHT: vk.Const[bool],
    CENTER: vk.Const[bool],
):
    """As `sums_of_chunks`, a workgroup per line."""
    values = vk.shared(A, 2 * WIDTHS[0])
    lane, line = vk.i64(vk.local_id(0)), vk.i64(vk.group_id(0))
    at = statistic(line, channels, stride, share, PER_ELEMENT)
    center = A(0)
    if CENTER:
        center = mean[at]
    total, product = A(0), A(0)
    for j in range(lane, length, 2 * WIDTHS[0]):
        slope = A(g[line * length + j])
        if PER_ELEMENT and WEIGHT:
            slope *= A(weight[j])
        total += slope
        product += slope * (A(x[line * length + j]) - center)
    total = tree(values, lane, total, WIDTHS, False)
    product = tree(values, lane, product, WIDTHS, False)
    if lane == 0:
        sums[0, line] = total
        products[0, line] = product * scale[at]


@vk.kernel(groups=lambda sums: (vk.cdiv(sums.shape[1], LOCAL), sums.shape[0], 1), local=LOCAL, debug=False)
def sums_of_columns(
    g: vk.In[T, "lines length"],
    x: vk.In[U, "lines length"],
    mean: vk.In[A, "lines"],
    scale: vk.In[A, "lines"],
    sums: vk.Out[A, "chunks length"],
    products: vk.Out[A, "chunks length"],
    cut: vk.i64,
    CENTER: vk.Const[bool],
):
    """Over `cut` lines each, for every column the sum of g and of g times the normalised x."""
    j, chunk = vk.i64(vk.global_id(0)), vk.i64(vk.group_id(1))
    if j >= g.shape[1]:
        return
    total, product = A(0), A(0)
    for i in range(vk.min(g.shape[0] - chunk * cut, cut)):
        line = chunk * cut + i
        slope, value = A(g[line, j]), A(x[line, j])
        if CENTER:
            value -= mean[line]
        total += slope
        product += slope * (value * scale[line])
    sums[chunk, j] = total
    products[chunk, j] = product


@vk.kernel(groups=lambda lines, segments: vk.cdiv(lines * segments, LOCAL), local=LOCAL, debug=False)
def gradient_values(
    g: vk.In[T, "N"],
    x: vk.In[U, "N"],
    mean: vk.In[A, "S"],
    scale: vk.In[A, "S"],
    weight: vk.In[W, "C"],
    shift: vk.In[A, "S"],
    slope: vk.In[A, "S"],
    y: vk.Out[R, "N"],
    lines: vk.i64,
    segments: vk.i64,
    length: vk.i64,
    channels: vk.i64,
    stride: vk.i64,
    share: vk.i64,
    PER_ELEMENT: vk.Const[bool],
    WEIGHT: vk.Const[bool],
    CENTER: vk.Const[bool],
    SIZE: vk.Const[int],
):
    """y = scale * (g * weight - shift - normalised x * slope); without CENTER there is no shift."""
    e = vk.i64(vk.global_id(0))
    line = e // segments
    if line >= lines:
        return
    first = (e - line * segments) * SIZE
    at = statistic(line, channels, stride, share, PER_ELEMENT)
    center, offset, factor, rate = A(0), A(0), scale[at], slope[at]
    if CENTER:
        center, offset = mean[at], shift[at]
    w = A(1)
    if WEIGHT and not PER_ELEMENT:
        w = A(weight[line % channels])
    for i in range(vk.min(length - first, SIZE)):
        j = first + i
        if WEIGHT and PER_ELEMENT:
            w = A(weight[j])
        value = (A(x[line * length + j]) - center) * factor
        y[line * length + j] = R(factor * (A(g[line * length + j]) * w - offset - value * rate))


# -- launching


def moments(x: DeviceArray, rows: Rows, *, center: bool = True) -> tuple[DeviceArray, DeviceArray]:
    """The mean and the variance of each row; without `center` 0 and the mean square. x is dense and not empty."""
    rows = rows.longest_inside()
    dtype, device = accumulator(x.dtype), x.device
    cuts = _cuts(rows, device_class(device))
    chunks = vk.cdiv(rows.outer, cuts[0]) * vk.cdiv(rows.inner, cuts[1])
    means, squares = (scratch((rows.count, chunks), dtype, device) for _ in range(2))
    kernel = choose("moments", device)
    kernel(flat(x), means, squares, rows.outer, rows.inner, rows.step, rows.outer_step, rows.inner_step, *cuts, center)
    mean, variance = (scratch((rows.count,), dtype, device) for _ in range(2))
    combined_moments(means, squares, mean, variance, rows.outer, rows.inner, *cuts, center)
    return mean, variance


variant("moments", "cpu")(moments_of_chunks)
variant("moments", "gpu")(moments_of_groups)


def _cuts(rows: Rows, kind: str) -> tuple[int, int]:
    """How a row is cut: elements along its outer and inner axis that belong to one chunk."""
    if kind == "cpu":
        most = min(CPU_LOOP // 4, max(256, vk.cdiv(rows.count * rows.length, 256)))
    else:
        most = max(4096, vk.cdiv(rows.count * rows.length, 2048))
    if rows.inner >= most:
        return 1, most
    return max(1, min(rows.outer, most // rows.inner)), rows.inner


def _segments(affine: Affine, x: DeviceArray) -> tuple[int, int]:
    """(segments per line, elements per segment)."""
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
    """y = (x - mean) * scale * weight + bias; what is None is left out."""
    if 0 in y.shape:
        return
    segments, size = _segments(affine, x)
    normalized(
        flat(x), scale if mean is None else mean, scale, scale if weight is None else weight,
        scale if bias is None else bias, flat(y), affine.lines, segments, affine.length, affine.channels, affine.stride,
        affine.share, affine.per_element, weight is not None, bias is not None, mean is not None, size,
    )  # fmt: skip


def gradient_sums(
    g: DeviceArray,
    x: DeviceArray,
    mean: DeviceArray | None,
    scale: DeviceArray,
    weight: DeviceArray | None,
    affine: Affine,
) -> tuple[DeviceArray, DeviceArray]:
    """Of each line the sum of g (per_element: times the weight), and of that times the normalised x."""
    dtype, device = accumulator(g.dtype), g.device
    center = scale if mean is None else mean
    factors = scale if weight is None else weight
    flags = (affine.per_element, weight is not None, mean is not None)
    places = (affine.length, affine.channels, affine.stride, affine.share)
    if device_class(device) == "gpu" and affine.length >= WIDTHS[0]:
        sums, products = (scratch((1, affine.lines), dtype, device) for _ in range(2))
        sums_of_groups(flat(g), flat(x), center, scale, factors, sums, products, affine.lines, *places, *flags)
        return _first(sums), _first(products)
    cut = min(affine.length, CPU_LOOP // 2, max(256, vk.cdiv(affine.lines * affine.length, 256)))
    chunks = vk.cdiv(affine.length, cut)
    sums, products = (scratch((chunks, affine.lines), dtype, device) for _ in range(2))
    sums_of_chunks(flat(g), flat(x), center, scale, factors, sums, products, affine.lines, chunks, cut, *places, *flags)
    return _summed(sums), _summed(products)


def _first(parts: DeviceArray) -> DeviceArray:
    return DeviceArray(parts.buffer, parts.offset, parts.dtype, parts.shape[1:], (1,))


def _summed(parts: DeviceArray) -> DeviceArray:
    """The sum over the first axis."""
    if parts.shape[0] == 1:
        return _first(parts)
    total = scratch(parts.shape[1:], parts.dtype, parts.device)
    sum_parts(parts, total)
    return total


def column_sums(
    g: DeviceArray, x: DeviceArray, mean: DeviceArray | None, scale: DeviceArray, affine: Affine
) -> tuple[DeviceArray, DeviceArray]:
    """For each element of a line the sum over the lines of g, and of g times the normalised x."""
    dtype, device = accumulator(g.dtype), g.device
    shape = (affine.lines, affine.length)
    wanted = max(1, vk.cdiv(4096 if device_class(device) == "cpu" else 65536, affine.length))
    cut = max(1, min(vk.cdiv(affine.lines, wanted), CPU_LOOP // 4))
    chunks = vk.cdiv(affine.lines, cut)
    sums, products = (scratch((chunks, affine.length), dtype, device) for _ in range(2))
    sums_of_columns(
        _shaped(g, shape), _shaped(x, shape), scale if mean is None else mean, scale, sums, products, cut, mean is not None
    )
    return _summed(sums), _summed(products)


def _shaped(x: DeviceArray, shape: tuple[int, int]) -> DeviceArray:
    return DeviceArray(x.buffer, x.offset, x.dtype, shape, (shape[1], 1))


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
) -> None:
    """y = scale * (g * weight - shift - normalised x * slope): the gradient of x, with means of the sums as shift and slope."""
    if 0 in y.shape:
        return
    segments, size = _segments(affine, x)
    gradient_values(
        flat(g), flat(x), scale if mean is None else mean, scale, scale if weight is None else weight, shift, slope, flat(y),
        affine.lines, segments, affine.length, affine.channels, affine.stride, affine.share,
        affine.per_element, weight is not None, mean is not None, size,
    )  # fmt: skip


