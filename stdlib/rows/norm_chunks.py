"""Normalization kernels for rows of any length: chunk statistics, their combination, normalized values and gradients.

`norm` launches them. Arrays are dense and mostly flattened to one axis. In `chunk_moments` and `combine_moments`, the
sizes and steps are the fields of `norm.Rows`, and a chunk is a block of `outer_cut` x `inner_cut` elements of a row. In
the other kernels, the array is `lines` rows of `length` elements, and `channels`, `stride` and `share` are the fields
`channels`, `sample_stride` and `channels_per_statistic` of `norm.AffineLayout`, which map a row to its statistics and
weight.

`mean` and `scale` are the mean and 1 / sqrt(variance + epsilon); "the normalized x" is (x - mean) * scale. g is the
gradient of the normalization's output. Element types: T is that of the first array of each kernel, U that of x in the
gradients, U and V those of the running statistics, W and B those of weight and bias, R that of the result. All sizes
have type I, which is i32 if all offsets fit, else i64. Statistics and sums have type A, f32 or f64.

The constants WEIGHT and BIAS are true if there is a weight or bias; otherwise the array is a placeholder. CENTER is
true if the mean is subtracted, and PER_ELEMENT is `norm.AffineLayout.per_element`.
"""

from __future__ import annotations

from typing import TypeVar

import vkjit as vk

__all__ = [
    "GROUP",
    "LOCAL",
    "chunk_gradient_sums",
    "chunk_moments",
    "chunk_moments_workgroup",
    "column_gradient_sums",
    "combine_moments",
    "gradient_values",
    "normalize",
    "normalize_channels",
    "row_gradient_sums",
    "update_running",
]  # fmt: skip

T = TypeVar("T", bound=vk.Element)
U = TypeVar("U", bound=vk.Element)
V = TypeVar("V", bound=vk.Element)
W = TypeVar("W", bound=vk.Element)
B = TypeVar("B", bound=vk.Element)
R = TypeVar("R", bound=vk.Element)
A = TypeVar("A", bound=vk.Element)
I = TypeVar("I", bound=vk.Element)  # noqa: E741  # the type of sizes and offsets

LOCAL = 64
"""Invocations per workgroup of the kernels in which each invocation works alone."""
GROUP = 128
"""Invocations of a workgroup that sums one row or chunk."""
BLOCK = 32
"""Number of terms that are summed before their sum is added to the total.

The rounding error thus grows with the number of blocks instead of the number of terms.
"""


@vk.func
def chunk_bounds(chunk, outer, inner, outer_cut, inner_cut):
    """Return (first outer index, outer count, first inner index, inner count) of the chunk with the given number.

    A row of `outer` x `inner` elements consists of chunks of `outer_cut` x `inner_cut`; the last ones may be smaller.
    """
    chunks_across = (inner + inner_cut - 1) // inner_cut
    i, j = chunk // chunks_across * outer_cut, chunk % chunks_across * inner_cut
    return i, vk.min(outer - i, outer_cut), j, vk.min(inner - j, inner_cut)


@vk.kernel(groups=lambda mean: vk.cdiv(mean.shape[0] * mean.shape[1], LOCAL), local=LOCAL, debug=False)
def chunk_moments(
    x: vk.In[T, "N"],
    mean: vk.Out[A, "rows chunks"],
    squares: vk.Out[A, "rows chunks"],
    outer: I,
    inner: I,
    step: I,
    outer_step: I,
    inner_step: I,
    outer_cut: I,
    inner_cut: I,
    CENTER: vk.Const[bool],
):
    """Compute each chunk's mean and, in `squares`, the sum of squared deviations from it: one invocation per chunk.

    Without CENTER, 0 is used as the mean. The other parameters are described in the module docstring.
    """
    e = I(vk.global_id(0))
    if e >= mean.shape[0] * mean.shape[1]:
        return
    row, chunk = e // I(mean.shape[1]), e % I(mean.shape[1])
    # the chunk is `rows` x `columns` elements, from (i0, j0) on
    i0, rows, j0, columns = chunk_bounds(chunk, outer, inner, outer_cut, inner_cut)
    base = row * step + i0 * outer_step + j0 * inner_step
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


@vk.func
def sum_over(
    x, base, invocation, rows, columns, outer_step, inner_step, center,
    A: vk.Const[object], NESTED: vk.Const[bool], SQUARES: vk.Const[bool],
):  # fmt: skip
    """Return an invocation's part of the sum over a chunk of x - center, or with SQUARES of (x - center)**2.

    The GROUP invocations of a workgroup share the chunk of `rows` x `columns` elements, which starts at offset `base`.
    With NESTED they are distributed along the inner axis, else over the flattened chunk, for inner axes shorter than
    GROUP. A is the accumulator type.
    """
    total = A(0)
    if NESTED:
        for i in range(rows):
            for j in range(invocation, columns, GROUP):
                distance = A(x[base + i * outer_step + j * inner_step]) - center
                if SQUARES:
                    distance = distance * distance
                total += distance
    else:
        for k in range(invocation, rows * columns, GROUP):
            distance = A(x[base + k // columns * outer_step + k % columns * inner_step]) - center
            if SQUARES:
                distance = distance * distance
            total += distance
    return total


@vk.kernel(groups=lambda mean: (mean.shape[0], mean.shape[1], 1), local=GROUP, debug=False)
def chunk_moments_workgroup(
    x: vk.In[T, "N"],
    mean: vk.Out[A, "rows chunks"],
    squares: vk.Out[A, "rows chunks"],
    outer: I,
    inner: I,
    step: I,
    outer_step: I,
    inner_step: I,
    outer_cut: I,
    inner_cut: I,
    CENTER: vk.Const[bool],
    NESTED: vk.Const[bool],
):
    """Variant of `chunk_moments` with one workgroup per chunk. NESTED is explained at `sum_over`.

    The other parameters are described in the module docstring.
    """
    wg, invocation = vk.workgroup(), I(vk.local_id(0))
    row, chunk = I(vk.group_id(0)), I(vk.group_id(1))
    i0, rows, j0, columns = chunk_bounds(chunk, outer, inner, outer_cut, inner_cut)
    base = row * step + i0 * outer_step + j0 * inner_step
    center = A(0)
    if CENTER:
        # the last argument, SQUARES: the first call sums the elements, the second one the squared deviations
        total = sum_over(x, base, invocation, rows, columns, outer_step, inner_step, center, A, NESTED, False)
        center = wg.sum(total) / A(rows * columns)
    total = sum_over(x, base, invocation, rows, columns, outer_step, inner_step, center, A, NESTED, True)
    total = wg.sum(total)
    if invocation == 0:
        mean[row, chunk] = center
        squares[row, chunk] = total


@vk.kernel(over="variance", debug=False)
def combine_moments(
    means: vk.In[A, "rows chunks"],
    squares: vk.In[A, "rows chunks"],
    mean: vk.Out[A, "rows"],
    variance: vk.Out[A, "rows"],
    scale: vk.Out[A, "rows"],
    epsilon: A,
    outer: I,
    inner: I,
    outer_cut: I,
    inner_cut: I,
    CENTER: vk.Const[bool],
):
    """Combine the chunks of each row in order into its mean, population variance and 1 / sqrt(variance + epsilon).

    Two parts with sums of squared deviations s_a and s_b and means that differ by delta are combined by the formula of
    Chan et al.: s_a + s_b + delta^2 * count_a * count_b / (count_a + count_b). The parameters are described in the
    module docstring.
    """
    row = vk.global_id(0)
    center, total, count = means[row, 0], squares[row, 0], A(0)
    for c in range(means.shape[1]):
        _, rows, _, columns = chunk_bounds(I(c), outer, inner, outer_cut, inner_cut)
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
    scale[row] = 1 / vk.sqrt(total / count + epsilon)


@vk.kernel(over="running", debug=False)
def update_running(running: vk.InOut[T, "N"], batch: vk.In[A, "N"], running_weight: A, batch_weight: A):
    """Update running statistics with those of a batch: running = running_weight * running + batch_weight * batch."""
    i = vk.global_id(0)
    running[i] = T(running_weight * A(running[i]) + batch_weight * batch[i])


@vk.kernel(groups=lambda rows: int(rows), local=GROUP, debug=False)
def normalize_channels(
    x: vk.In[T, "N"],
    weight: vk.In[W, "V"],
    bias: vk.In[B, "D"],
    running_mean: vk.InOut[U, "E"],
    running_variance: vk.InOut[V, "F"],
    y: vk.Out[R, "N"],
    mean: vk.Out[A, "S"],
    scale: vk.Out[A, "S"],
    epsilon: A,
    running_weight: A,
    mean_weight: A,
    variance_weight: A,
    rows: I,  # noqa: ARG001  # used by the grid size
    outer: I,
    inner: I,
    step: I,
    outer_step: I,
    inner_step: I,
    WEIGHT: vk.Const[bool],
    BIAS: vk.Const[bool],
    RUNNING_MEAN: vk.Const[bool],
    RUNNING_VARIANCE: vk.Const[bool],
    STORED: vk.Const[bool],
    NESTED: vk.Const[bool],
):
    """Do the work of `chunk_moments`, `combine_moments`, `update_running` and `normalize`, one workgroup per row.

    A row, a channel over the batch, is a single chunk, and has one weight and bias. With RUNNING_MEAN and
    RUNNING_VARIANCE the running statistics are updated: `mean_weight` and `variance_weight` are those of the batch. Mean
    and scale are written if STORED. The other parameters are those of the kernels named.
    """
    wg, invocation, row = vk.workgroup(), I(vk.local_id(0)), I(vk.group_id(0))
    base, count = row * step, A(outer * inner)
    total = sum_over(x, base, invocation, outer, inner, outer_step, inner_step, A(0), A, NESTED, False)
    center = wg.sum(total) / count
    total = sum_over(x, base, invocation, outer, inner, outer_step, inner_step, center, A, NESTED, True)
    spread = wg.sum(total) / count
    factor = 1 / vk.sqrt(spread + epsilon)
    w, b = A(1), A(0)
    if WEIGHT:
        w = A(weight[row])
    if BIAS:
        b = A(bias[row])
    for k in range(invocation, outer * inner, GROUP):
        place = base + k // inner * outer_step + k % inner * inner_step
        y[place] = R((A(x[place]) - center) * factor * w + b)
    if invocation == 0:
        if STORED:
            mean[row] = center
            scale[row] = factor
        if RUNNING_MEAN:
            running_mean[row] = U(running_weight * A(running_mean[row]) + mean_weight * center)
        if RUNNING_VARIANCE:
            running_variance[row] = V(running_weight * A(running_variance[row]) + variance_weight * spread)


@vk.func
def statistic_index(line, channels, stride, share, PER_ELEMENT: vk.Const[bool]):
    """Return the index of the statistics of row `line`, as `norm.AffineLayout` defines it.

    The other parameters are described in the module docstring.
    """
    if PER_ELEMENT:
        return line
    return line // channels * stride + line % channels // share


@vk.kernel(groups=lambda lines, segments: vk.cdiv(int(lines) * int(segments), LOCAL), local=LOCAL, debug=False)
def normalize(
    x: vk.In[T, "N"],
    mean: vk.In[A, "S"],
    scale: vk.In[A, "S"],
    weight: vk.In[W, "C"],
    bias: vk.In[B, "D"],
    y: vk.Out[R, "N"],
    lines: I,
    segments: I,
    length: I,
    channels: I,
    stride: I,
    share: I,
    PER_ELEMENT: vk.Const[bool],
    WEIGHT: vk.Const[bool],
    BIAS: vk.Const[bool],
    CENTER: vk.Const[bool],
    SIZE: vk.Const[int],
):
    """Compute y = (x - mean) * scale * weight + bias.

    Each row is divided into `segments` segments of SIZE elements, one per invocation. The other parameters are
    described in the module docstring.
    """
    e = I(vk.global_id(0))
    line = e // segments
    if line >= lines:
        return
    first = (e - line * segments) * SIZE
    statistic = statistic_index(line, channels, stride, share, PER_ELEMENT)
    center, factor = A(0), scale[statistic]
    if CENTER:
        center = mean[statistic]
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


@vk.kernel(groups=lambda lines, chunks: vk.cdiv(int(lines) * int(chunks), LOCAL), local=LOCAL, debug=False)
def chunk_gradient_sums(
    g: vk.In[T, "N"],
    x: vk.In[U, "N"],
    mean: vk.In[A, "S"],
    scale: vk.In[A, "S"],
    weight: vk.In[W, "C"],
    sums: vk.Out[A, "chunks 2 lines"],
    lines: I,
    chunks: I,
    cut: I,
    length: I,
    channels: I,
    stride: I,
    share: I,
    PER_ELEMENT: vk.Const[bool],
    WEIGHT: vk.Const[bool],
    CENTER: vk.Const[bool],
):
    """Compute two sums for each chunk of `cut` elements of a row, one invocation per chunk.

    sums[:, 0] is the sum of g, sums[:, 1] that of g times the normalized x. With PER_ELEMENT, g is first multiplied by
    the weight, if any. `chunks` is the number of chunks per row. The other parameters are described in the module
    docstring.
    """
    e = I(vk.global_id(0))
    if e >= lines * chunks:
        return
    line, chunk = e % lines, e // lines
    statistic = statistic_index(line, channels, stride, share, PER_ELEMENT)
    center = A(0)
    if CENTER:
        center = mean[statistic]
    total, product = A(0), A(0)
    count = vk.min(length - chunk * cut, cut)
    base = line * length + chunk * cut
    for b in range(vk.cdiv(count, BLOCK)):
        part, part_product = A(0), A(0)
        for j in range(b * BLOCK, vk.min((b + 1) * BLOCK, count)):
            slope = A(g[base + j])
            if PER_ELEMENT and WEIGHT:
                slope *= A(weight[chunk * cut + j])
            part += slope
            part_product += slope * (A(x[base + j]) - center)
        total += part
        product += part_product
    sums[chunk, 0, line] = total
    sums[chunk, 1, line] = product * scale[statistic]


@vk.kernel(groups=lambda lines: int(lines), local=GROUP, debug=False)
def row_gradient_sums(
    g: vk.In[T, "N"],
    x: vk.In[U, "N"],
    mean: vk.In[A, "S"],
    scale: vk.In[A, "S"],
    weight: vk.In[W, "C"],
    sums: vk.Out[A, "chunks 2 lines"],
    lines: I,  # noqa: ARG001  # used by the grid size
    length: I,
    channels: I,
    stride: I,
    share: I,
    PER_ELEMENT: vk.Const[bool],
    WEIGHT: vk.Const[bool],
    CENTER: vk.Const[bool],
):
    """Variant of `chunk_gradient_sums` with one workgroup per row, in which each row is a single chunk.

    The parameters are described in the module docstring.
    """
    wg, invocation, line = vk.workgroup(), I(vk.local_id(0)), I(vk.group_id(0))
    statistic = statistic_index(line, channels, stride, share, PER_ELEMENT)
    center = A(0)
    if CENTER:
        center = mean[statistic]
    total, product = A(0), A(0)
    for j in range(invocation, length, GROUP):
        slope = A(g[line * length + j])
        if PER_ELEMENT and WEIGHT:
            slope *= A(weight[j])
        total += slope
        product += slope * (A(x[line * length + j]) - center)
    total, product = wg.sum(total), wg.sum(product)
    if invocation == 0:
        sums[0, 0, line] = total
        sums[0, 1, line] = product * scale[statistic]


@vk.kernel(groups=lambda sums: (vk.cdiv(sums.shape[2], LOCAL), sums.shape[0], 1), local=LOCAL, debug=False)
def column_gradient_sums(
    g: vk.In[T, "lines length"],
    x: vk.In[U, "lines length"],
    mean: vk.In[A, "lines"],
    scale: vk.In[A, "lines"],
    sums: vk.Out[A, "chunks 2 length"],
    cut: I,
    CENTER: vk.Const[bool],
):
    """Compute two sums over each chunk of `cut` rows, for each column.

    sums[:, 0] is the sum of g, sums[:, 1] that of g times the normalized x. The other parameters are described in the
    module docstring.
    """
    j, chunk = I(vk.global_id(0)), I(vk.group_id(1))
    if j >= g.shape[1]:
        return
    total, product = A(0), A(0)
    first = chunk * cut
    for i in range(vk.min(I(g.shape[0]) - first, cut)):
        slope, value = A(g[first + i, j]), A(x[first + i, j])
        if CENTER:
            value -= mean[first + i]
        total += slope
        product += slope * (value * scale[first + i])
    sums[chunk, 0, j] = total
    sums[chunk, 1, j] = product


@vk.kernel(groups=lambda lines, segments: vk.cdiv(int(lines) * int(segments), LOCAL), local=LOCAL, debug=False)
def gradient_values(
    g: vk.In[T, "N"],
    x: vk.In[U, "N"],
    mean: vk.In[A, "S"],
    scale: vk.In[A, "S"],
    weight: vk.In[W, "C"],
    shift: vk.In[A, "S"],
    slope: vk.In[A, "S"],
    y: vk.Out[R, "N"],
    inverse_count: A,
    lines: I,
    segments: I,
    length: I,
    channels: I,
    stride: I,
    share: I,
    PER_ELEMENT: vk.Const[bool],
    WEIGHT: vk.Const[bool],
    CENTER: vk.Const[bool],
    SIZE: vk.Const[int],
):
    """Compute y = scale * (g * weight - (shift + normalized x * slope) * inverse_count), the gradient of the input.

    `shift` and `slope` are the sums of g and of g times the normalized x. `inverse_count` is 1 / the number of elements
    in each sum. Without CENTER, `shift` is omitted. Each row is divided into `segments` segments of SIZE elements, one
    per invocation. The other parameters are described in the module docstring.
    """
    e = I(vk.global_id(0))
    line = e // segments
    if line >= lines:
        return
    first = (e - line * segments) * SIZE
    statistic = statistic_index(line, channels, stride, share, PER_ELEMENT)
    center, offset, factor, rate = A(0), A(0), scale[statistic], slope[statistic] * inverse_count
    if CENTER:
        center, offset = mean[statistic], shift[statistic] * inverse_count
    w = A(1)
    if WEIGHT and not PER_ELEMENT:
        w = A(weight[line % channels])
    for i in range(vk.min(length - first, SIZE)):
        j = first + i
        if WEIGHT and PER_ELEMENT:
            w = A(weight[j])
        value = (A(x[line * length + j]) - center) * factor
        y[line * length + j] = R(factor * (A(g[line * length + j]) * w - offset - value * rate))
