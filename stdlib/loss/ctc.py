"""Connectionist temporal classification (CTC): the forward-backward recursion and the gradient.

Takes log probabilities (T, N, C), labels (N, L) with interleaved blanks, and lengths (N,). Computes for each time step and label
position the log probability of all alignments that lead there from the start (alpha) or on to the end (beta). Impossible
alignments have the log probability LOW instead of -inf, so that differences never become NaN. Each time step is one launch
with one invocation per position; results are reproducible.
"""

from __future__ import annotations

from typing import Any, TypeVar

import vkjit as vk
from vkjit.runtime.device import DeviceArray

__all__ = ["LOG_ZERO", "backward_step", "forward_step", "gradient"]

T = TypeVar("T", bound=vk.Element)

LOG_ZERO = -1e30
"""A finite substitute for log(0)."""


@vk.func
def _logaddexp(a, b):
    """Return log(exp(a) + exp(b))."""
    most = vk.max(a, b)
    return most + vk.log1p(vk.exp(vk.min(a, b) - most))


@vk.kernel(over="y", debug=False)
def _forward(
    p: vk.In[T, "N C"],
    labels: vk.In[vk.i32, "N L"],
    times: vk.In[vk.i32, "N"],
    lengths: vk.In[vk.i32, "N"],
    before: vk.In[T, "N L"],
    y: vk.Out[T, "N L"],
    time: vk.i32,
    blank: vk.i32,
    FIRST: vk.Const[bool],
):
    """y = alpha at a time step, from alpha at the previous one. FIRST: initialize the recursion."""
    n, s = vk.index()
    value = T(LOG_ZERO)
    if time < times[n] and s < lengths[n]:
        label = labels[n, s]
        if FIRST:
            if s < 2:
                value = p[n, label]
        else:
            ways = before[n, s]
            if s > 0:
                ways = _logaddexp(ways, before[n, s - 1])
            if s > 1:
                if label != blank and label != labels[n, s - 2]:
                    ways = _logaddexp(ways, before[n, s - 2])
            value = vk.max(ways + p[n, label], T(LOG_ZERO))
    y[n, s] = value


@vk.kernel(over="y", debug=False)
def _backward(
    p: vk.In[T, "N C"],
    labels: vk.In[vk.i32, "N L"],
    times: vk.In[vk.i32, "N"],
    lengths: vk.In[vk.i32, "N"],
    after: vk.In[T, "N L"],
    y: vk.Out[T, "N L"],
    time: vk.i32,
    blank: vk.i32,
):
    """y = beta at a time step, from beta at the next one."""
    n, s = vk.index()
    value = T(LOG_ZERO)
    if time < times[n] and s < lengths[n]:
        label = labels[n, s]
        if time == times[n] - 1:
            if s + 2 >= lengths[n]:
                value = p[n, label]
        else:
            ways = after[n, s]
            if s + 1 < lengths[n]:
                ways = _logaddexp(ways, after[n, s + 1])
            if s + 2 < lengths[n]:
                if label != blank and label != labels[n, s + 2]:
                    ways = _logaddexp(ways, after[n, s + 2])
            value = vk.max(ways + p[n, label], T(LOG_ZERO))
    y[n, s] = value


@vk.kernel(over="y", debug=False)
def _gradient(
    p: vk.In[T, "T N C"],
    labels: vk.In[vk.i32, "N L"],
    times: vk.In[vk.i32, "N"],
    lengths: vk.In[vk.i32, "N"],
    alpha: vk.In[T, "T N L"],
    beta: vk.In[T, "T N L"],
    loss: vk.In[T, "N"],
    g: vk.In[T, "N"],
    y: vk.Out[T, "T N C"],
):
    """y = -g times the posterior probability of each class at each time step."""
    t, n, c = vk.index()
    share = T(0)
    if t < times[n]:
        for s in range(lengths[n]):
            if labels[n, s] == c:
                share += vk.exp(vk.min(alpha[t, n, s] + beta[t, n, s] - p[t, n, c] + loss[n], T(80)))
    y[t, n, c] = -g[n] * share


def _row(array: DeviceArray, t: int) -> DeviceArray:
    offset = array.offset + t * array.strides[0] * array.dtype.itemsize
    return DeviceArray(array.buffer, offset, array.dtype, array.shape[1:], array.strides[1:])


Targets = tuple[DeviceArray, DeviceArray, DeviceArray]
"""Labels (N, L), numbers of time steps (N,) and of label positions (N,), all i32."""


def forward_step(p: DeviceArray, targets: Targets, alpha: DeviceArray, t: int, blank: int) -> None:
    """Compute alpha[t] of (T, N, L) from alpha[t - 1]."""
    _forward(_row(p, t), *targets, _row(alpha, max(t - 1, 0)), _row(alpha, t), t, blank, t == 0)


def backward_step(p: DeviceArray, targets: Targets, beta: DeviceArray, t: int, blank: int) -> None:
    """Compute beta[t] of (T, N, L) from beta[t + 1]."""
    _backward(_row(p, t), *targets, _row(beta, min(t + 1, p.shape[0] - 1)), _row(beta, t), t, blank)


def gradient(p: DeviceArray, targets: Targets, alpha: Any, beta: Any, loss: Any, g: Any, y: DeviceArray) -> None:
    """y (T, N, C) = the gradient of the log probabilities; g (N,) is the gradient of the losses."""
    _gradient(p, *targets, alpha, beta, loss, g, y)
