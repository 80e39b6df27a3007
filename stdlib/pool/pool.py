"""Pooling over three spatial axes: max pooling with indices, average pooling, and their gradients.

`vkjit.tensor.nn.pool` calls the host functions at the end. Arrays are dense, of shape (N * C, D, H, W) for inputs and
(N * C, O, P, Q) for outputs, with N batch elements of C channels; a `Window` describes the pooling. Each gradient
element is computed by one invocation, which sums over the windows that cover the input element in a fixed order, so
results are deterministic.

Kernels take arrays flattened to one axis. Parameters that they share:

- count: the number of invocations, one per element of y (in `_scatter_at_indices`, of g).
- D, O, kernel_d, stride_d, pad_d, dilation_d: `Window` along the first spatial axis, with input size D and output size
  O; the next two rows of parameters describe the second axis (H, P) and the third (W, Q). The `axis` parameter of the
  device functions is the tuple of these six values for one axis.
- taps_d, taps_h, taps_w: `Window.taps()`. windows_d, windows_h, windows_w: `Window.covering()`.
- at: the indices that `max_pool` stores.
- size and out: the number of elements of a channel in the input and in the output.
- divisor, ADAPTIVE and COUNT_PAD: `Window.divisor`, `Window.adaptive` and `Window.count_pad`.
- A and I: the types to compute values and indices in.

In the kernels, nc is the index of a batch element and channel, (d, h, w) are coordinates in the input and (o, p, q) in
the output. The loops over t, r and s go through the taps of a window, or the windows that cover an element, along the
three axes. Their numbers of iterations are the same for all elements, so they test whether each tap or window exists.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

import vkjit as vk
from vkjit.runtime.device import DeviceArray

from ..partial_sums import accumulator_type, flattened, index_type

__all__ = ["Window", "avg_pool", "avg_pool_gradient", "gather_at_indices", "max_pool", "max_pool_gradient"]

T = TypeVar("T", bound=vk.Element)

Triple = tuple[int, int, int]
"""A value per spatial axis."""
LOCAL = 64
"""Invocations of a workgroup."""


@dataclass(frozen=True, slots=True)
class Window:
    """Geometry of a pooling from an input of `size` elements per axis to an output of `out` elements.

    A window consists of the input elements that are combined to one output element. Normally it has `kernel` elements
    ("taps"), `dilation` apart, windows begin every `stride` elements, and the input is padded by `pad` elements at both
    ends. In `adaptive` pooling, output element i covers the input elements from floor(i D / O) to ceil((i + 1) D / O),
    exclusive, for input size D and output size O; kernel, stride, pad and dilation are unused.

    `divisor` divides the sums of average pooling; 0 stands for the number of elements of the window, including its
    padding if `count_pad`.
    """

    size: Triple
    out: Triple
    kernel: Triple = (1, 1, 1)
    stride: Triple = (1, 1, 1)
    pad: Triple = (0, 0, 0)
    dilation: Triple = (1, 1, 1)
    adaptive: bool = False
    count_pad: bool = True
    divisor: int = 0

    def taps(self) -> Triple:
        """Return, for each axis, an upper bound of the number of input elements per window."""
        if self.adaptive:  # D / O elements, rounded outward at both ends; no window exists if O is 0
            d, h, w = (s // o + 2 if o else 0 for s, o in zip(self.size, self.out, strict=True))
        else:
            d, h, w = self.kernel
        return d, h, w

    def covering(self) -> Triple:
        """Return, for each axis, an upper bound of the number of windows that cover an input element."""
        if self.adaptive:
            d, h, w = (o // s + 2 if s else 0 for s, o in zip(self.size, self.out, strict=True))
        else:  # windows begin every s elements and extend over (k - 1) * t + 1 elements
            d, h, w = ((k - 1) * t // s + 1 for k, t, s in zip(self.kernel, self.dilation, self.stride, strict=True))
        return d, h, w

    def overlaps(self) -> bool:
        """True if an input element may be covered by several windows."""
        axes = zip(self.size, self.out, self.kernel, self.stride, self.dilation, strict=True)
        if self.adaptive:  # unless O divides D, windows are rounded outward
            return any(out and size % out for size, out, *_ in axes)
        # windows extend over (kernel - 1) * dilation + 1 elements
        return any(out > 1 and (kernel - 1) * dilation + 1 > stride for _, out, kernel, stride, dilation in axes)

    def kernel_arguments(self) -> tuple[int, ...]:
        """Return the 18 scalars that the kernels take: size, out, kernel, stride, pad and dilation of each axis."""
        columns = (self.size, self.out, self.kernel, self.stride, self.pad, self.dilation)
        return tuple(n for axis in zip(*columns, strict=True) for n in axis)


@vk.func
def bounds(i, axis, ADAPTIVE: vk.Const[bool]):
    """Return (first, end, step) of the input indices of window i along an axis.

    `first` is negative if the window begins in the padding.
    """
    size, out, kernel, stride, pad, dilation = axis
    if ADAPTIVE:
        return i * size // out, ((i + 1) * size + out - 1) // out, 1
    first = i * stride - pad
    return first, vk.min(first + kernel * dilation, size), dilation


@vk.func
def covering(i, axis, ADAPTIVE: vk.Const[bool]):
    """Return the range (first, end), end exclusive, of the output indices whose windows may cover input index i.

    `Window.covering` returns an upper bound of the length of this range.

    With a dilation above 1, a window of this range may skip element i, which lies between two of the window's elements.
    """
    size, out, kernel, stride, pad, dilation = axis
    if ADAPTIVE:
        return i * out // size, vk.min(((i + 1) * out + size - 1) // size, out)
    first = (i + pad - (kernel - 1) * dilation + stride - 1) // stride
    return vk.max(first, 0), vk.min((i + pad) // stride + 1, out)


@vk.func
def divisor_along(i, axis, ADAPTIVE: vk.Const[bool], COUNT_PAD: vk.Const[bool]):
    """Return the number of elements of window i along an axis, a factor of the divisor of average pooling.

    Elements of the padding are counted if COUNT_PAD. The dilation is 1.
    """
    size, _, kernel, _, pad, _ = axis
    first, end, _ = bounds(i, axis, ADAPTIVE)
    if COUNT_PAD and not ADAPTIVE:
        return vk.min(first + kernel, size + pad) - first
    return end - vk.max(first, 0)


@vk.func
def window_divisor(o, p, q, axes, divisor, ADAPTIVE: vk.Const[bool], COUNT_PAD: vk.Const[bool]):
    """Return the divisor of the mean at output index (o, p, q): `divisor` or, if it is 0, the number of elements.

    `axes` has the tuple of six values for each axis.
    """
    if divisor != 0:
        return divisor
    d, h = divisor_along(o, axes[0], ADAPTIVE, COUNT_PAD), divisor_along(p, axes[1], ADAPTIVE, COUNT_PAD)
    return d * h * divisor_along(q, axes[2], ADAPTIVE, COUNT_PAD)


@vk.func
def unravel(e, a, b, c):
    """Return the four coordinates of the linear index e of an array of shape (n, a, b, c), for any n."""
    k, quotient = e % c, e // c
    j, quotient = quotient % b, quotient // b
    return quotient // a, quotient % a, j, k


# debug=False: no bounds checks, even in debug mode and on CPUs, since indices are in range or checked by the kernels
@vk.kernel(groups=lambda count: vk.cdiv(count, LOCAL), local=LOCAL, debug=False)
def _max_pool(
    x: vk.In[T],
    y: vk.Out[T],
    at: vk.Out[vk.i64],
    count: vk.i32,
    D: vk.i32, O: vk.i32, kernel_d: vk.i32, stride_d: vk.i32, pad_d: vk.i32, dilation_d: vk.i32,  # noqa: E741
    H: vk.i32, P: vk.i32, kernel_h: vk.i32, stride_h: vk.i32, pad_h: vk.i32, dilation_h: vk.i32,
    W: vk.i32, Q: vk.i32, kernel_w: vk.i32, stride_w: vk.i32, pad_w: vk.i32, dilation_w: vk.i32,
    taps_d: vk.i32,
    taps_h: vk.i32,
    taps_w: vk.i32,
    ADAPTIVE: vk.Const[bool],
    A: vk.Const[object],
    I: vk.Const[object],  # noqa: E741
):  # fmt: skip
    """y = the maximum of each window, or NaN if it contains one; one invocation per window.

    `at` = the index of the maximum among the D * H * W elements of its channel; of equal elements, the first.
    """
    e = I(vk.global_id(0))
    if e >= count:
        return
    nc, o, p, q = unravel(e, I(O), I(P), I(Q))
    d0, d_end, d_step = bounds(I(o), (I(D), I(O), I(kernel_d), I(stride_d), I(pad_d), I(dilation_d)), ADAPTIVE)
    h0, h_end, h_step = bounds(I(p), (I(H), I(P), I(kernel_h), I(stride_h), I(pad_h), I(dilation_h)), ADAPTIVE)
    w0, w_end, w_step = bounds(I(q), (I(W), I(Q), I(kernel_w), I(stride_w), I(pad_w), I(dilation_w)), ADAPTIVE)
    best, best_index = A(-math.inf), I(-1)
    for t in range(taps_d):
        d = d0 + t * d_step
        for r in range(taps_h):
            h = h0 + r * h_step
            if d >= 0 and d < d_end and h >= 0 and h < h_end:
                for s in range(taps_w):
                    w = w0 + s * w_step
                    if w >= 0 and w < w_end:
                        index = (d * H + h) * W + w
                        value = A(x[nc * (I(D) * H * W) + index])
                        # the first element is always taken, even -inf; NaN replaces all elements before it (value != value)
                        if value > best or value != value or best_index < 0:
                            best, best_index = value, index
    y[e] = T(best)
    at[e] = vk.i64(best_index)


@vk.kernel(groups=lambda count: vk.cdiv(count, LOCAL), local=LOCAL, debug=False)
def _max_pool_gradient(
    g: vk.In[T],
    at: vk.In[vk.i64],
    y: vk.Out[T],
    count: vk.i32,
    D: vk.i32, O: vk.i32, kernel_d: vk.i32, stride_d: vk.i32, pad_d: vk.i32, dilation_d: vk.i32,  # noqa: E741
    H: vk.i32, P: vk.i32, kernel_h: vk.i32, stride_h: vk.i32, pad_h: vk.i32, dilation_h: vk.i32,
    W: vk.i32, Q: vk.i32, kernel_w: vk.i32, stride_w: vk.i32, pad_w: vk.i32, dilation_w: vk.i32,
    windows_d: vk.i32,
    windows_h: vk.i32,
    windows_w: vk.i32,
    ADAPTIVE: vk.Const[bool],
    A: vk.Const[object],
    I: vk.Const[object],  # noqa: E741
):  # fmt: skip
    """y = for each input element, the sum of g over the windows whose maximum it is.

    g is the gradient of the output.
    """
    e = I(vk.global_id(0))
    if e >= count:
        return
    nc, d, h, w = unravel(e, I(D), I(H), I(W))
    o0, o_end = covering(I(d), (I(D), I(O), I(kernel_d), I(stride_d), I(pad_d), I(dilation_d)), ADAPTIVE)
    p0, p_end = covering(I(h), (I(H), I(P), I(kernel_h), I(stride_h), I(pad_h), I(dilation_h)), ADAPTIVE)
    q0, q_end = covering(I(w), (I(W), I(Q), I(kernel_w), I(stride_w), I(pad_w), I(dilation_w)), ADAPTIVE)
    index = vk.i64(e - nc * (I(D) * H * W))
    total = A(0)
    for t in range(windows_d):
        for r in range(windows_h):
            if o0 + t < o_end and p0 + r < p_end:
                row = ((nc * O + o0 + t) * P + p0 + r) * Q
                for s in range(windows_w):
                    if q0 + s < q_end:
                        if at[row + q0 + s] == index:
                            total += A(g[row + q0 + s])
    y[e] = T(total)


@vk.kernel(groups=lambda count: vk.cdiv(count, LOCAL), local=LOCAL, debug=False)
def _scatter_at_indices(
    g: vk.In[T],
    at: vk.In[vk.i64],
    y: vk.InOut[T],
    count: vk.i32,
    size: vk.i32,
    out: vk.i32,
    I: vk.Const[object],  # noqa: E741
):
    """Scatter g into the zero-initialized y at the indices `at`, which must be distinct within a channel."""
    e = I(vk.global_id(0))
    if e < count:
        index = at[e]
        if index >= 0:
            y[I(e // out) * size + I(index)] = g[e]


@vk.kernel(groups=lambda count: vk.cdiv(count, LOCAL), local=LOCAL, debug=False)
def _avg_pool(
    x: vk.In[T],
    y: vk.Out[T],
    count: vk.i32,
    D: vk.i32, O: vk.i32, kernel_d: vk.i32, stride_d: vk.i32, pad_d: vk.i32, dilation_d: vk.i32,  # noqa: E741
    H: vk.i32, P: vk.i32, kernel_h: vk.i32, stride_h: vk.i32, pad_h: vk.i32, dilation_h: vk.i32,
    W: vk.i32, Q: vk.i32, kernel_w: vk.i32, stride_w: vk.i32, pad_w: vk.i32, dilation_w: vk.i32,
    taps_d: vk.i32,
    taps_h: vk.i32,
    taps_w: vk.i32,
    divisor: vk.i32,
    ADAPTIVE: vk.Const[bool],
    COUNT_PAD: vk.Const[bool],
    A: vk.Const[object],
    I: vk.Const[object],  # noqa: E741
):  # fmt: skip
    """y = the mean of each window, by one invocation per window; the dilation is 1."""
    e = I(vk.global_id(0))
    if e >= count:
        return
    nc, o, p, q = unravel(e, I(O), I(P), I(Q))
    depth = (I(D), I(O), I(kernel_d), I(stride_d), I(pad_d), I(dilation_d))
    height = (I(H), I(P), I(kernel_h), I(stride_h), I(pad_h), I(dilation_h))
    width = (I(W), I(Q), I(kernel_w), I(stride_w), I(pad_w), I(dilation_w))
    d0, d_end, _ = bounds(o, depth, ADAPTIVE)
    h0, h_end, _ = bounds(p, height, ADAPTIVE)
    w0, w_end, _ = bounds(q, width, ADAPTIVE)
    total = A(0)
    for t in range(taps_d):
        d = d0 + t
        for r in range(taps_h):
            h = h0 + r
            if d >= 0 and d < d_end and h >= 0 and h < h_end:
                row = ((nc * D + d) * H + h) * W
                for s in range(taps_w):
                    w = w0 + s
                    if w >= 0 and w < w_end:
                        total += A(x[row + w])
    y[e] = T(total / A(window_divisor(o, p, q, (depth, height, width), I(divisor), ADAPTIVE, COUNT_PAD)))


@vk.kernel(groups=lambda count: vk.cdiv(count, LOCAL), local=LOCAL, debug=False)
def _avg_pool_gradient(
    g: vk.In[T],
    y: vk.Out[T],
    count: vk.i32,
    D: vk.i32, O: vk.i32, kernel_d: vk.i32, stride_d: vk.i32, pad_d: vk.i32, dilation_d: vk.i32,  # noqa: E741
    H: vk.i32, P: vk.i32, kernel_h: vk.i32, stride_h: vk.i32, pad_h: vk.i32, dilation_h: vk.i32,
    W: vk.i32, Q: vk.i32, kernel_w: vk.i32, stride_w: vk.i32, pad_w: vk.i32, dilation_w: vk.i32,
    windows_d: vk.i32,
    windows_h: vk.i32,
    windows_w: vk.i32,
    divisor: vk.i32,
    ADAPTIVE: vk.Const[bool],
    COUNT_PAD: vk.Const[bool],
    A: vk.Const[object],
    I: vk.Const[object],  # noqa: E741
):  # fmt: skip
    """y = for each input element, the sum of g / divisor over the windows that cover it.

    g is the gradient of the output.
    """
    e = I(vk.global_id(0))
    if e >= count:
        return
    nc, d, h, w = unravel(e, I(D), I(H), I(W))
    depth = (I(D), I(O), I(kernel_d), I(stride_d), I(pad_d), I(dilation_d))
    height = (I(H), I(P), I(kernel_h), I(stride_h), I(pad_h), I(dilation_h))
    width = (I(W), I(Q), I(kernel_w), I(stride_w), I(pad_w), I(dilation_w))
    o0, o_end = covering(d, depth, ADAPTIVE)
    p0, p_end = covering(h, height, ADAPTIVE)
    q0, q_end = covering(w, width, ADAPTIVE)
    total = A(0)
    for t in range(windows_d):
        o = o0 + t
        for r in range(windows_h):
            p = p0 + r
            if o < o_end and p < p_end:
                row = ((nc * O + o) * P + p) * Q
                for s in range(windows_w):
                    q = q0 + s
                    if q < q_end:
                        own_divisor = window_divisor(o, p, q, (depth, height, width), I(divisor), ADAPTIVE, COUNT_PAD)
                        total += A(g[row + q]) / A(own_divisor)
    y[e] = T(total)


@vk.kernel(groups=lambda count: vk.cdiv(count, LOCAL), local=LOCAL, debug=False)
def _gather_at_indices(
    x: vk.In[T],
    at: vk.In[vk.i64],
    y: vk.Out[T],
    count: vk.i32,
    size: vk.i32,
    out: vk.i32,
    I: vk.Const[object],  # noqa: E741
):
    """y = the elements of x at the indices `at` of the same channel."""
    e = I(vk.global_id(0))
    if e < count:
        y[e] = x[vk.i64(e // out) * size + at[e]]


def max_pool(x: DeviceArray, y: DeviceArray, indices: DeviceArray, window: Window) -> None:
    """Max pooling: y = the maximum of each window, indices = its index among the elements of its channel (i64)."""
    count = math.prod(y.shape)
    if count:
        compute_type = accumulator_type(x.dtype) if x.dtype.is_float else vk.i64
        _max_pool(
            flattened(x), flattened(y), flattened(indices), count, *window.kernel_arguments(), *window.taps(),
            window.adaptive, compute_type, index_type(x, y),
        )  # fmt: skip


def max_pool_gradient(g: DeviceArray, at: DeviceArray, y: DeviceArray, window: Window) -> None:
    """Compute y = the gradient of the input of `max_pool`, from g, the gradient of its output, and its indices `at`."""
    count = math.prod(y.shape)
    if count and g.device.caps.kind == "llvm-cpu" and not window.overlaps():
        # without overlapping windows, scattering to the indices is less work than gathering for each element
        padded_bytes = (count * y.dtype.itemsize + 3) & ~3  # memory is filled in 4-byte words
        y.device.fill(y.buffer, y.offset, padded_bytes, 0)
        _scatter_at_indices(
            flattened(g), flattened(at), flattened(y), math.prod(g.shape), math.prod(y.shape[1:]),
            math.prod(g.shape[1:]), index_type(g, y),
        )  # fmt: skip
    elif count:
        _max_pool_gradient(
            flattened(g), flattened(at), flattened(y), count, *window.kernel_arguments(), *window.covering(),
            window.adaptive, accumulator_type(g.dtype), index_type(g, y),
        )  # fmt: skip


def gather_at_indices(x: DeviceArray, at: DeviceArray, y: DeviceArray) -> None:
    """Gather elements of x at the indices from `max_pool`.

    x is (N * C, D, H, W); at and y are (N * C, O, P, Q).
    """
    count = math.prod(y.shape)
    if count:
        _gather_at_indices(
            flattened(x),
            flattened(at),
            flattened(y),
            count,
            math.prod(x.shape[1:]),
            math.prod(y.shape[1:]),
            index_type(x, y),
        )


def avg_pool(x: DeviceArray, y: DeviceArray, window: Window) -> None:
    """Average pooling: y = the mean of each window."""
    count = math.prod(y.shape)
    if count:
        _avg_pool(
            flattened(x), flattened(y), count, *window.kernel_arguments(), *window.taps(), window.divisor,
            window.adaptive, window.count_pad, accumulator_type(x.dtype), index_type(x, y),
        )  # fmt: skip


def avg_pool_gradient(g: DeviceArray, y: DeviceArray, window: Window) -> None:
    """Compute y = the gradient of the input of `avg_pool`, from g, the gradient of its output."""
    count = math.prod(y.shape)
    if count:
        _avg_pool_gradient(
            flattened(g), flattened(y), count, *window.kernel_arguments(), *window.covering(), window.divisor,
            window.adaptive, window.count_pad, accumulator_type(g.dtype), index_type(g, y),
        )  # fmt: skip
