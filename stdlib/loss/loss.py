"""Loss functions: elementwise losses, and cross entropy and NLL of rows of scores against class indices.

The elementwise losses are device functions of a prediction x and a target (y or t), applied by `elementwise.maps`. The
other losses take dense scores x viewed as (outer, C, inner). A row consists of the scores of the C classes, x[i, :, k];
its number is i * inner + k. `target` (outer, inner) holds a class index per row, and each row has one loss. `mean`
reduces the losses.

Parameters that the kernels share:

- m and s: (rows, chunks), statistics of `rows.softmax.row_statistics`: the maximum of each chunk of a row, and the sum
  of exp(x - maximum) over the chunk. A chunk has `length` classes; the last chunk may be shorter.
- weight: (C,), the weight of each class. Const WEIGHT is false if classes aren't weighted; `weight` isn't read then,
  and has any length D.
- ignored: rows with this target have loss and gradient 0.
- smoothing: label smoothing, from 0 to 1: this share of the target probability is distributed evenly over all classes.
- loss and scale: (outer, inner), the loss of each row and the weight of its target class. g is the gradient of `loss`.

Kernels compute in the type A, f32 or f64. The other type variables are the types of the scores (T), targets (K), class
weights (W), results (R) and gradients (G).
"""

from __future__ import annotations

from typing import TypeVar

import vkjit as vk
from vkjit.runtime.device import DeviceArray

from ..partial_sums import flattened, placeholder, scratch
from ..rows.softmax import GROUP, chunk_length, combine_chunks, matrix, row_statistics, use_workgroups

__all__ = ["cross_entropy", "cross_entropy_gradient", "nll", "nll_gradient"]

T = TypeVar("T", bound=vk.Element)
K = TypeVar("K", bound=vk.Element)
W = TypeVar("W", bound=vk.Element)
R = TypeVar("R", bound=vk.Element)
G = TypeVar("G", bound=vk.Element)
A = TypeVar("A", bound=vk.Element)

LOCAL = 64
"""Invocations of a workgroup."""
BLOCK = 32
"""Terms that are summed before the partial sum is added to the total, which limits the rounding error."""
MIN_LOG = -100
"""Lower bound of the logarithms in binary cross entropy: a confident wrong prediction has a finite loss."""


# -- elementwise losses


@vk.func
def squared_difference(x, y):
    """(x - y)**2."""
    return (x - y) * (x - y)


@vk.func
def absolute_difference(x, y):
    """|x - y|."""
    return vk.abs(x - y)


@vk.func
def smooth_l1(x, y, beta):
    """Smooth L1 loss: quadratic where |x - y| < beta, else |x - y| - beta / 2."""
    d = vk.abs(x - y)
    return vk.where(d < beta, 0.5 * d * d / beta, d - 0.5 * beta)


@vk.func
def huber(x, y, delta):
    """Huber loss: quadratic where |x - y| <= delta, else linear with slope delta."""
    d = vk.abs(x - y)
    return vk.where(d <= delta, 0.5 * d * d, delta * (d - 0.5 * delta))


@vk.func
def binary_cross_entropy(x, t):
    """Binary cross entropy of a probability x, with logarithms of at least MIN_LOG."""
    assert 0 <= x <= 1, (
        f"binary_cross_entropy: {x} is no probability, expected 0 to 1: take the sigmoid, or the form with logits"
    )
    return -(t * vk.max(vk.log(x), MIN_LOG) + (1 - t) * vk.max(vk.log(1 - x), MIN_LOG))


@vk.func
def binary_cross_entropy_logits(x, t):
    """Binary cross entropy of the probability sigmoid(x), computed without overflow."""
    return (1 - t) * x + vk.max(-x, 0) + vk.log1p(vk.exp(-vk.abs(x)))


@vk.func
def kl_divergence(x, t):
    """Pointwise KL divergence t * (log(t) - x) of a log probability x and a probability t; 0 where t is 0."""
    # the inner `where` avoids log(0) where the product isn't selected
    return vk.where(t == 0, 0, t * (vk.log(vk.where(t == 0, 1, t)) - x))


@vk.func
def kl_divergence_log_target(x, t):
    """Pointwise KL divergence exp(t) * (t - x) of two log probabilities."""
    return vk.exp(t) * (t - x)


# -- losses of rows against class indices


# debug=False: no bounds checks, even in debug mode and on CPUs, since indices are in range or checked by the kernels
@vk.kernel(groups=lambda y: vk.cdiv(y.shape[0] * y.shape[1], LOCAL), local=LOCAL, debug=False)
def smoothing_sums(
    x: vk.In[T, "outer C inner"],
    m: vk.In[A, "rows chunks"],
    s: vk.In[A, "rows chunks"],
    weight: vk.In[W, "D"],
    y: vk.Out[A, "rows chunks"],
    length: vk.i32,
    WEIGHT: vk.Const[bool],
):
    """y[row, chunk] = the sum of weight * -log softmax(x) over the classes of a chunk, for label smoothing."""
    e = vk.global_id(0)
    if e >= y.shape[0] * y.shape[1]:
        return
    row, chunk = e // y.shape[1], e % y.shape[1]
    i, k = row // x.shape[2], row % x.shape[2]
    top, total = combine_chunks(m, s, row, m.shape[1])
    log_sum = vk.log(total)
    first, result = chunk * length, A(0)
    chunk_size = vk.min(x.shape[1] - first, length)
    for b in range(vk.cdiv(chunk_size, BLOCK)):
        part = A(0)
        for j in range(b * BLOCK, vk.min((b + 1) * BLOCK, chunk_size)):
            value = log_sum - (A(x[i, first + j, k]) - top)
            if WEIGHT:
                value *= A(weight[first + j])
            part += value
        result += part
    y[row, chunk] = result


@vk.kernel(over="loss")
def cross_entropy_rows(
    x: vk.In[T, "outer C inner"],
    target: vk.In[K, "outer inner"],
    weight: vk.In[W, "D"],
    m: vk.In[A, "rows chunks"],
    s: vk.In[A, "rows chunks"],
    smooth: vk.In[A, "rows chunks"],
    loss: vk.Out[R, "outer inner"],
    scale: vk.Out[A, "outer inner"],
    ignored: vk.i64,
    smoothing: A,
    WEIGHT: vk.Const[bool],
    SMOOTH: vk.Const[bool],
):
    """loss = the cross entropy of each row, scale = the weight of its target class; both 0 for `ignored` targets.

    Const SMOOTH enables label smoothing; `smooth`, the result of `smoothing_sums`, isn't read otherwise.
    """
    k, i = vk.global_id(0), vk.global_id(1)
    t = vk.i64(target[i, k])
    value, factor = A(0), A(0)
    if t != ignored:
        assert t >= 0, f"target {t} is no class: it is below 0"
        assert t < x.shape[1], f"target {t} is no class: there are {x.shape[1]}"
        if t >= 0 and t < x.shape[1]:
            row = i * x.shape[2] + k
            top, total = combine_chunks(m, s, row, m.shape[1])
            factor = A(1)
            if WEIGHT:
                factor = A(weight[t])
            value = factor * (vk.log(total) - (A(x[i, t, k]) - top))
            if SMOOTH:
                smoothing_sum = A(0)
                for c in range(smooth.shape[1]):
                    smoothing_sum += smooth[row, c]
                value = (1 - smoothing) * value + smoothing / A(x.shape[1]) * smoothing_sum
    loss[i, k] = R(value)
    scale[i, k] = factor


@vk.func
def gradient_factors(
    g, t, classes, weight, weights, m, s, row, ignored, smoothing, A: vk.Const[object], WEIGHT: vk.Const[bool]
):
    """Return (target_share, even_share, top, factor), from which the gradient of a row's scores is computed.

    The gradient at class c is exp(x[c] - top) * factor - even_share * weight[c], minus `target_share` at the target
    class t. `top` is the maximum of the row; `target_share`, `even_share` and `factor` are 0 for rows without a loss.

    g is the gradient of the row's loss, `classes` the number of classes, and weights[0] the sum of all class weights. A
    is the type to compute in.
    """
    loss_gradient, target_share = A(0), A(0)
    if t != ignored and t >= 0 and t < classes:
        loss_gradient = A(g)
        target_share = loss_gradient * (1 - smoothing)
        if WEIGHT:
            target_share *= A(weight[t])
    even_share, weight_sum = loss_gradient * smoothing / A(classes), A(classes)
    if WEIGHT:
        weight_sum = weights[0]
    top, total = combine_chunks(m, s, row, m.shape[1])
    factor = A(0)
    if loss_gradient != 0:
        factor = (target_share + even_share * weight_sum) / total
    return target_share, even_share, top, factor


@vk.kernel(groups=lambda m: vk.cdiv(m.shape[0] * m.shape[1], LOCAL), local=LOCAL, debug=False)
def cross_entropy_gradient_rows(
    g: vk.In[G, "outer inner"],
    x: vk.In[T, "outer C inner"],
    target: vk.In[K, "outer inner"],
    weight: vk.In[W, "D"],
    weight_sum: vk.In[A, "E"],
    m: vk.In[A, "rows chunks"],
    s: vk.In[A, "rows chunks"],
    y: vk.Out[R, "outer C inner"],
    length: vk.i32,
    ignored: vk.i64,
    smoothing: A,
    WEIGHT: vk.Const[bool],
):
    """y = the gradient of x, by one invocation per chunk of a row.

    `weight_sum` has one element, the sum of all class weights.
    """
    e = vk.global_id(0)
    if e >= m.shape[0] * m.shape[1]:
        return
    row, chunk = e // m.shape[1], e % m.shape[1]
    i, k = row // x.shape[2], row % x.shape[2]
    t = vk.i64(target[i, k])
    first = chunk * length
    target_share, even_share, top, factor = gradient_factors(
        g[i, k], t, x.shape[1], weight, weight_sum, m, s, row, ignored, smoothing, A, WEIGHT
    )
    for j in range(vk.min(x.shape[1] - first, length)):
        share = even_share
        if WEIGHT:
            share *= A(weight[first + j])
        if first + j == t:
            share += target_share
        # a row without a loss has the gradient 0, even if its scores are NaN
        y[i, first + j, k] = R(vk.where(factor == 0, 0, vk.exp(A(x[i, first + j, k]) - top) * factor - share))


@vk.kernel(groups=lambda x, chunks: (x.shape[0], chunks, 1), local=GROUP, debug=False)
def cross_entropy_gradient_by_groups(
    g: vk.In[G, "rows one"],
    x: vk.In[T, "rows C"],
    target: vk.In[K, "rows one"],
    weight: vk.In[W, "D"],
    weight_sum: vk.In[A, "E"],
    m: vk.In[A, "rows parts"],
    s: vk.In[A, "rows parts"],
    y: vk.Out[R, "rows C"],
    length: vk.i32,
    chunks: vk.i32,  # noqa: ARG001  # used by `groups`
    ignored: vk.i64,
    smoothing: A,
    WEIGHT: vk.Const[bool],
):
    """Variant of `cross_entropy_gradient_rows` for rows along the last axis, with a workgroup per chunk of a row.

    `chunks` is the number of chunks per row.
    """
    thread, row = vk.i32(vk.local_id(0)), vk.group_id(0)
    first = vk.i32(vk.group_id(1)) * length
    t = vk.i64(target[row, 0])
    target_share, even_share, top, factor = gradient_factors(
        g[row, 0], t, x.shape[1], weight, weight_sum, m, s, row, ignored, smoothing, A, WEIGHT
    )
    for j in range(first + thread, vk.min(first + length, vk.i32(x.shape[1])), GROUP):
        share = even_share
        if WEIGHT:
            share *= A(weight[j])
        if j == t:
            share += target_share
        y[row, j] = R(vk.where(factor == 0, 0, vk.exp(A(x[row, j]) - top) * factor - share))


@vk.kernel(over="loss")
def nll_rows(
    x: vk.In[T, "outer C inner"],
    target: vk.In[K, "outer inner"],
    weight: vk.In[W, "D"],
    loss: vk.Out[R, "outer inner"],
    scale: vk.Out[A, "outer inner"],
    ignored: vk.i64,
    WEIGHT: vk.Const[bool],
):
    """loss = -weight[t] * x[t] and scale = weight[t] for the target t of each row; both 0 where it is `ignored`."""
    k, i = vk.global_id(0), vk.global_id(1)
    t = vk.i64(target[i, k])
    value, factor = A(0), A(0)
    if t != ignored:
        assert t >= 0, f"target {t} is no class: it is below 0"
        assert t < x.shape[1], f"target {t} is no class: there are {x.shape[1]}"
        if t >= 0 and t < x.shape[1]:
            factor = A(1)
            if WEIGHT:
                factor = A(weight[t])
            value = -(factor * A(x[i, t, k]))
    loss[i, k] = R(value)
    scale[i, k] = factor


@vk.kernel(over="y", debug=False)
def nll_gradient_rows(
    g: vk.In[G, "outer inner"],
    target: vk.In[K, "outer inner"],
    scale: vk.In[A, "outer inner"],
    y: vk.Out[R, "outer C inner"],
):
    """y = -scale * g at each row's target, 0 elsewhere."""
    k, c, i = vk.global_id(0), vk.global_id(1), vk.global_id(2)
    y[i, c, k] = R(vk.where(vk.i64(target[i, k]) == c, -(scale[i, k] * A(g[i, k])), 0))


def cross_entropy(
    x: DeviceArray,
    target: DeviceArray,
    weight: DeviceArray | None,
    loss: DeviceArray,
    scale: DeviceArray,
    *,
    ignore_index: int,
    smoothing: float,
) -> tuple[DeviceArray, DeviceArray]:
    """Compute `loss` and `scale`, one element per row of a nonempty x; return (m, s) for `cross_entropy_gradient`.

    Classes aren't weighted if `weight` is None. Rows with the target `ignore_index` have loss and scale 0.
    """
    m, s, length = row_statistics(x)
    factors = placeholder(m) if weight is None else weight
    smooth = m  # a placeholder
    if smoothing:
        smooth = scratch(m.shape, m.dtype, x.device)
        smoothing_sums(x, m, s, factors, smooth, length, weight is not None)
    cross_entropy_rows(
        x,
        target,
        factors,
        m,
        s,
        smooth,
        loss,
        scale,
        ignore_index,
        float(smoothing),
        weight is not None,
        smoothing != 0,
    )
    return m, s


def cross_entropy_gradient(
    g: DeviceArray,
    x: DeviceArray,
    target: DeviceArray,
    weight: DeviceArray | None,
    weight_sum: DeviceArray | None,
    statistics: tuple[DeviceArray, DeviceArray],
    y: DeviceArray,
    *,
    ignore_index: int,
    smoothing: float,
) -> None:
    """y = the gradient of x, from g, the gradient of each row's loss.

    `statistics` is the result of `cross_entropy`; `weight_sum` has one element, the sum of `weight`. Both weights are
    None if classes aren't weighted.
    """
    m, s = statistics
    factors = placeholder(m) if weight is None else weight
    weight_total = placeholder(m) if weight_sum is None else flattened(weight_sum)
    options = (ignore_index, float(smoothing), weight is not None)
    # as in `row_statistics`: a workgroup or an invocation per chunk
    if use_workgroups(x):
        chunks = m.shape[1]
        length = vk.cdiv(x.shape[1], chunks)
        cross_entropy_gradient_by_groups(
            g, matrix(x), target, factors, weight_total, m, s, matrix(y), length, chunks, *options
        )
        return
    length = chunk_length(x.shape)
    cross_entropy_gradient_rows(g, x, target, factors, weight_total, m, s, y, length, *options)


def nll(
    x: DeviceArray,
    target: DeviceArray,
    weight: DeviceArray | None,
    loss: DeviceArray,
    scale: DeviceArray,
    *,
    ignore_index: int,
) -> None:
    """Compute the loss of each row, -weight * x at the target class, and `scale`, the weight of this class."""
    factors = placeholder(scale) if weight is None else weight
    nll_rows(x, target, factors, loss, scale, ignore_index, weight is not None)


def nll_gradient(g: DeviceArray, target: DeviceArray, scale: DeviceArray, y: DeviceArray) -> None:
    """y = the gradient of x, from g, the gradient of each row's loss, and `scale`, computed by `nll`."""
    if 0 not in y.shape:
        nll_gradient_rows(g, target, scale, y)
