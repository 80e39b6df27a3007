"""Connectionist temporal classification (CTC) loss.

Targets and lengths are read on the host, which waits for the device if they are device tensors. The forward and
backward recursions over time steps are kernels of `stdlib.loss.ctc`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vkjit import dtypes
from vkjit.errors import ArgumentError, ShapeError
from vkjit.stdlib.loss import ctc as kernels

from ..dispatch import operation
from ..ops import creation
from ..ops.arithmetic import where
from ..ops.elementwise_launch import arithmetic_type
from ..tensor import Tensor
from .common import allocate_like, check_float, dense, dense_view

__all__ = ["ctc_loss"]


def _host_integers(values: Any, what: str) -> Any:
    """Return integers (a tensor, an array or a sequence) as an i64 NumPy array. `what` names them in errors."""
    array = values.detach().numpy() if isinstance(values, Tensor) else np.asarray(values)
    if array.dtype.kind not in "iu":
        raise ArgumentError(f"ctc_loss(): {what} are {array.dtype}, expected integers")
    return array.astype(np.int64)


def _with_blanks(targets: Any, lengths: Any, classes: int, blank: int) -> Any:
    """Return the labels of each target sequence with blanks between and around them: blank, label, blank, ...

    targets: (N, S) or all sequences concatenated; lengths: labels per sequence (N,). The result has the shape (N, 2 *
    largest length + 1); shorter sequences are padded with blanks.
    """
    ends = np.cumsum(lengths)
    longest = int(lengths.max(initial=0))
    labels = np.full((len(lengths), 2 * longest + 1), blank, np.int32)
    if targets.ndim not in (1, 2):
        raise ShapeError(f"ctc_loss(): targets of shape {targets.shape}, expected one or two axes")
    if targets.ndim == 1 and len(targets) < (int(ends[-1]) if len(ends) else 0):
        raise ShapeError(f"ctc_loss(): {len(targets)} labels, but the lengths add up to {int(ends[-1])}")
    if targets.ndim == 2 and (targets.shape[0] != len(lengths) or targets.shape[1] < longest):
        raise ShapeError(
            f"ctc_loss(): targets of {targets.shape}, expected ({len(lengths)}, {longest}) or more columns, or one axis"
        )
    for n, length in enumerate(lengths):
        row = targets[ends[n] - length : ends[n]] if targets.ndim == 1 else targets[n, :length]
        if row.size and not (row.min() >= 0 and row.max() < classes):
            raise ArgumentError(f"ctc_loss(): a label of sequence {n} lies outside 0 to {classes - 1}")
        labels[n, 1 : 2 * length : 2] = row
    return labels


@operation("ctc")
def _ctc(
    p: Tensor, labels: Tensor, times: Tensor, label_lengths: Tensor, *, blank: int, saved: dict[str, Any]
) -> Tensor:
    """Return the losses (N,) from log-probabilities p (T, N, C) in f32 or f64.

    labels: (N, L), the result of `_with_blanks`; times: time steps of each input (N,); label_lengths: number of labels
    of each sequence (N,), including blanks. Stores alpha, the logarithms of the forward variables (T, N, L), in the
    dictionary `saved` for the gradient rule.
    """
    steps, count, _ = p.shape
    alpha = allocate_like((steps, count, labels.shape[1]), p.dtype, p)
    sequences = (labels._array, times._array, label_lengths._array)
    values = dense(p)
    for t in range(steps):
        kernels.forward_step(values, sequences, alpha._array, t, blank)
    saved["alpha"] = alpha
    # an alignment ends in the last element of the sequence, a blank, or in the one before it, the last label: add the
    # probabilities of both cases
    flattened = dense_view(alpha._array, steps, count * labels.shape[1])
    alpha_matrix: Any = Tensor(flattened)
    row_offsets = creation.arange(count, device=p.device) * labels.shape[1]
    # start of each sequence's last time step in the flattened alpha
    last_step_offsets: Any = (times.to(dtypes.i64) - 1).clamp(min=0) * (count * labels.shape[1]) + row_offsets
    forward_variables: Any = alpha_matrix.reshape(-1)
    ends_in_blank = forward_variables[last_step_offsets + label_lengths.to(dtypes.i64) - 1]
    ends_in_label = where(
        label_lengths > 1,
        forward_variables[last_step_offsets + (label_lengths.to(dtypes.i64) - 2).clamp(min=0)],
        kernels.LOG_ZERO,
    )
    # log(exp(low) + exp(high)) without overflow
    low = where(ends_in_blank > ends_in_label, ends_in_label, ends_in_blank)
    high = where(ends_in_blank > ends_in_label, ends_in_blank, ends_in_label)
    loss: Any = -(high + (low - high).exp().log1p())
    # zero time steps admit only the empty sequence, whose one element is a blank
    empty_log_prob: Any = where(label_lengths == 1, 0.0, kernels.LOG_ZERO)
    return where(times == 0, -empty_log_prob.to(loss.dtype), loss)


def ctc_gradient(p: Tensor, sequences: tuple[Tensor, ...], alpha: Tensor, loss: Tensor, g: Any, blank: int) -> Tensor:
    """Return the gradient of the log-probabilities p, given the gradient g of the losses. Autograd doesn't record the
    call.

    sequences: labels, times and label_lengths, as in `_ctc`.
    """
    labels, times, label_lengths = (x._array for x in sequences)
    beta, out = allocate_like(alpha.shape, p.dtype, p), allocate_like(p.shape, p.dtype, p)
    values = dense(p)
    for t in reversed(range(p.shape[0])):
        kernels.backward_step(values, (labels, times, label_lengths), beta._array, t, blank)
    kernels.gradient(
        values, (labels, times, label_lengths), alpha._array, beta._array, loss._array, dense(g), out._array
    )
    return out


def ctc_loss(
    log_probs: Tensor,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Return the negative log-probability of each target sequence, summed over its alignments (Graves et al., 2006).

    log_probs: (T, N, C) or (T, C), as returned by log_softmax; targets: class indices (N, S), or all sequences
    concatenated; input_lengths, target_lengths: (N,) integers, as tensors or sequences. "mean" divides the losses by
    the target lengths (at least 1), then averages over the batch. The loss is infinite if the target doesn't fit into
    the time steps; with zero_infinity it is 0 and has no gradient. The gradient is with respect to log_probs itself,
    not to the scores before log_softmax.
    """
    check_float(log_probs, "ctc_loss")
    single = log_probs.ndim == 2
    batched: Any = log_probs.unsqueeze(1) if single else log_probs
    if batched.ndim != 3:
        raise ShapeError(f"ctc_loss() takes (T, N, C) or (T, C), found {log_probs.shape}")
    steps, count, classes = batched.shape
    if not 0 <= blank < classes:
        raise ArgumentError(f"ctc_loss(): blank={blank} is none of the {classes} classes")
    times, lengths = (
        _host_integers(v, name).reshape(-1)
        for v, name in ((input_lengths, "input_lengths"), (target_lengths, "target_lengths"))
    )
    if len(times) != count or len(lengths) != count or (times > steps).any() or min(times.min(), lengths.min()) < 0:
        raise ArgumentError(
            f"ctc_loss() needs {count} input lengths of 0 to {steps} and as many target lengths, found {times} and {lengths}"
        )
    labels = _with_blanks(_host_integers(targets, "targets"), lengths, classes, blank)
    target_device = log_probs.device
    lengths_with_blanks = 2 * lengths + 1  # blanks between and around the labels
    host_operands = (labels, times, lengths_with_blanks)
    tensors = [creation.upload(v.astype(np.int32), dtypes.i32, target_device) for v in host_operands]
    computed = batched.to(arithmetic_type(batched.dtype))
    losses: Any = _ctc(computed, *tensors, blank=blank, saved={}).to(batched.dtype)
    # impossible targets have a log-probability of about LOG_ZERO, a finite number; half of it is a safe threshold
    is_possible = losses < -kernels.LOG_ZERO / 2
    losses = where(is_possible, losses, 0.0 if zero_infinity else float("inf"))
    if reduction == "none":
        return losses[0] if single else losses  # type: ignore[no-any-return]
    if reduction == "sum":
        return losses.sum()  # type: ignore[no-any-return]
    if reduction != "mean":
        raise ArgumentError(f'ctc_loss(reduction=...) is "mean", "sum" or "none", found {reduction!r}')
    inverse_lengths = creation.upload(1.0 / np.maximum(lengths, 1), losses.dtype, target_device)
    return (losses * inverse_lengths).mean()  # type: ignore[no-any-return]
