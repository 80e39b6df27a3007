"""Connectionist temporal classification (CTC): the forward-backward recursion and the gradient.

`vkjit.tensor.nn.ctc_loss` calls these functions, and computes the loss from alpha. Parameters:

- p: log probabilities (T, N, C) of T time steps, N sequences and C classes; one time step, (N, C), in the recursion.
- labels: (N, L), the target sequences with a blank before, between and after the labels. `blank` is the class of
  blanks.
- times and lengths: (N,), the number of time steps and of label positions (blanks included) that each sequence uses.
- alpha and beta: (T, N, L), for each time step and label position the log probability of all alignments that lead to
  this position from the start (alpha), or from it to the end (beta). Both include p at this time step.

Impossible alignments have the log probability LOG_ZERO instead of -inf, so that differences never become NaN. Each time
step is one launch with one invocation per sequence n and label position s; results are reproducible.
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
    largest = vk.max(a, b)
    return largest + vk.log1p(vk.exp(vk.min(a, b) - largest))


# debug=False: no bounds checks, even in debug mode and on CPUs, since indices are in range or checked by the kernels
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
    """y = alpha at the time step `time`, from `before`, alpha at the previous step.

    p is (N, C), the log probabilities of this time step. FIRST is true for time step 0, which initializes the
    recursion: an alignment begins at the first blank or the first label. At a later step, an alignment comes from the
    same position or the previous one, or from the previous label, if the two labels differ, so that no blank is needed
    between them.
    """
    n, s = vk.index()
    value = T(LOG_ZERO)
    if time < times[n] and s < lengths[n]:
        label = labels[n, s]
        if FIRST:
            if s < 2:
                value = p[n, label]
        else:
            log_sum = before[n, s]
            if s > 0:
                log_sum = _logaddexp(log_sum, before[n, s - 1])
            if s > 1:
                if label != blank and label != labels[n, s - 2]:
                    log_sum = _logaddexp(log_sum, before[n, s - 2])
            value = vk.max(log_sum + p[n, label], T(LOG_ZERO))
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
    """y = beta at the time step `time`, from `after`, beta at the next step.

    p is (N, C), the log probabilities of this time step. The last time step of a sequence initializes the recursion: an
    alignment ends at the last label or the last blank.
    """
    n, s = vk.index()
    value = T(LOG_ZERO)
    if time < times[n] and s < lengths[n]:
        label = labels[n, s]
        if time == times[n] - 1:
            if s + 2 >= lengths[n]:
                value = p[n, label]
        else:
            log_sum = after[n, s]
            if s + 1 < lengths[n]:
                log_sum = _logaddexp(log_sum, after[n, s + 1])
            if s + 2 < lengths[n]:
                if label != blank and label != labels[n, s + 2]:
                    log_sum = _logaddexp(log_sum, after[n, s + 2])
            value = vk.max(log_sum + p[n, label], T(LOG_ZERO))
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
    """y = -g times the posterior probability of each class at each time step, given the target sequence.

    `loss` is the negative log probability of each target sequence, and g its gradient.
    """
    t, n, c = vk.index()
    posterior = T(0)
    if t < times[n]:
        for s in range(lengths[n]):
            # alpha and beta both include p, so p is subtracted once; `min` keeps exp finite
            if labels[n, s] == c:
                posterior += vk.exp(vk.min(alpha[t, n, s] + beta[t, n, s] - p[t, n, c] + loss[n], T(80)))
    y[t, n, c] = -g[n] * posterior


def _at_step(array: DeviceArray, t: int) -> DeviceArray:
    """Return the view array[t]."""
    offset = array.offset + t * array.strides[0] * array.dtype.itemsize
    return DeviceArray(array.buffer, offset, array.dtype, array.shape[1:], array.strides[1:])


Targets = tuple[DeviceArray, DeviceArray, DeviceArray]
"""The arrays (labels, times, lengths), all i32."""


def forward_step(p: DeviceArray, targets: Targets, alpha: DeviceArray, t: int, blank: int) -> None:
    """Compute alpha[t] from alpha[t - 1]; called for t = 0, 1, ... in order."""
    previous = _at_step(alpha, max(t - 1, 0))  # not read at time step 0
    _forward(_at_step(p, t), *targets, previous, _at_step(alpha, t), t, blank, t == 0)


def backward_step(p: DeviceArray, targets: Targets, beta: DeviceArray, t: int, blank: int) -> None:
    """Compute beta[t] from beta[t + 1]; called for t from the last time step down to 0."""
    following = _at_step(beta, min(t + 1, p.shape[0] - 1))  # not read at the last time step
    _backward(_at_step(p, t), *targets, following, _at_step(beta, t), t, blank)


def gradient(p: DeviceArray, targets: Targets, alpha: Any, beta: Any, loss: Any, g: Any, y: DeviceArray) -> None:
    """y (T, N, C) = the gradient of the log probabilities p. g (N,) is the gradient of the losses, `loss` (N,)."""
    _gradient(p, *targets, alpha, beta, loss, g, y)
