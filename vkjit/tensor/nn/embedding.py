"""Embeddings, one-hot vectors, and dropout."""

from __future__ import annotations

from typing import Any

from vkjit import dtypes
from vkjit.errors import ArgumentError, DTypeError, ShapeError
from vkjit.stdlib.index import embedding as kernels
from vkjit.stdlib.partial_sums import accumulator_type
from vkjit.stdlib.random import dropout as dropout_kernels

from ..argument_views import own_result
from ..autograd.mode import no_grad
from ..dispatch import operation
from ..op_cache import cached
from ..ops import creation, random
from ..ops.arithmetic import where
from ..ops.elementwise_launch import common_device
from ..ops.reductions import norm
from ..ops.scatter import index_add
from ..tensor import Tensor
from .common import allocate_like, check_float, dense, dense_view

__all__ = ["dropout", "dropout1d", "dropout2d", "dropout3d", "embedding", "one_hot"]


def _check_indices(x: Any, name: str) -> Tensor:
    """Return x after checking that it is an integer tensor."""
    if not isinstance(x, Tensor):
        raise ArgumentError(f"{name}(): the indices are a {type(x).__name__}, expected a tensor of integers")
    if not x.dtype.is_integer:
        raise DTypeError(f"{name}(): the indices hold {x.dtype!r}, expected integers: convert with .to(vk.i64)")
    return x


@operation("embedding")
def _embedding(table: Tensor, indices: Tensor, *, skipped: int, by_frequency: bool = False) -> Tensor:  # noqa: ARG001  # for the gradient
    """Return the rows of a table (V, D) at indices, as (*indices.shape, D).

    skipped and by_frequency are for the gradient rule. Row `skipped` of the table (-1: none) gets no gradient;
    by_frequency divides each row's gradient by the number of times it occurs in `indices`.
    """
    y = allocate_like((*indices.shape, table.shape[1]), table.dtype, table)
    kernels.embedding(
        dense(table), dense_view(dense(indices), indices.numel()), dense_view(y._array, indices.numel(), table.shape[1])
    )
    return y


@operation("embedding_gradient")
def embedding_gradient(g: Tensor, indices: Tensor, *, rows: int, skipped: int) -> Tensor:
    """Return the gradient of a table with `rows` rows, given the gradient g of the rows that were looked up.

    Each row is the sum of the gradients at its occurrences in `indices`, added in this order, so that results are
    deterministic. Row `skipped` (-1: none) stays zero.
    """
    y = allocate_like((rows, g.shape[-1]), g.dtype, g)
    count = indices.numel()
    kernels.gradient(
        dense_view(dense(g), count, g.shape[-1]), dense_view(dense(indices), count), y._array, padding_index=skipped
    )
    return y


def inverse_counts(indices: Tensor, rows: int, like: Tensor) -> Tensor:
    """Return 1 / (number of times that the index occurs) for each index, as (*indices.shape, 1).

    `rows` is the number of rows of the table, `like` a tensor of the result's dtype.
    """
    flat: Any = indices.reshape(-1).to(dtypes.i64)
    count_dtype = accumulator_type(like.dtype)
    ones = creation.ones(flat.shape, dtype=count_dtype, device=like.device)
    counts: Any = index_add(creation.zeros(rows, dtype=count_dtype, device=like.device), 0, flat, ones)
    return (1 / counts[flat]).to(like.dtype).reshape(*indices.shape, 1)  # type: ignore[no-any-return]


def renormalize_(weight: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> None:
    """Scale the rows of `weight` at `indices` in place so that their norms of order norm_type are at most max_norm."""
    with no_grad():
        flat: Any = indices.reshape(-1)
        rows: Any = _embedding(weight, flat, skipped=-1)
        norms: Any = norm(rows, norm_type, -1, True)
        scaled = rows * where(norms > max_norm, max_norm / (norms + 1e-7), 1.0)  # PyTorch's epsilon
        weight[flat.to(dtypes.i64)] = scaled  # duplicate indices write identical values


def check_table(name: str, weight: Any, padding_idx: int | None, max_norm: float | None, sparse: bool) -> int:
    """Check a table and its options; return the index of the padding row, which gets no gradient, or -1."""
    check_float(weight, name, "the weight")
    if weight.ndim != 2:
        raise ShapeError(f"{name}(): the weight has shape {weight.shape}, expected (rows, width)")
    if sparse:
        raise ArgumentError(f"{name}(): there are no sparse gradients: leave out sparse=True, gradients are dense")
    if max_norm is not None and not max_norm >= 0:
        raise ArgumentError(f"{name}(): max_norm={max_norm}, expected at least 0")
    rows = weight.shape[0]
    if padding_idx is not None and not -rows <= padding_idx < rows:
        raise ArgumentError(f"{name}(): padding_idx={padding_idx} is no row of a table of {rows}")
    return -1 if padding_idx is None else padding_idx % rows


@cached("embedding()")
def embedding(
    indices: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Return weight[indices]: rows of the table weight (V, D), as (*indices.shape, D).

    The row padding_idx gets no gradient. With max_norm, the rows that are looked up are first scaled in place so that
    their norm (of order norm_type) is at most max_norm. scale_grad_by_freq divides each row's gradient by its number of
    occurrences in indices. Out-of-range indices raise an error at the next read from the device.
    """
    _check_indices(indices, "embedding")
    skipped = check_table("embedding", weight, padding_idx, max_norm, sparse)
    common_device((indices, weight))
    if max_norm is not None:
        renormalize_(weight, indices, float(max_norm), norm_type)
    if scale_grad_by_freq:
        return _embedding(weight, indices, skipped=skipped, by_frequency=True)
    return _embedding(weight, indices, skipped=skipped)


def one_hot(indices: Tensor, num_classes: int = -1) -> Tensor:
    """Return an i64 tensor (*indices.shape, num_classes) that is 1 at each index along the last axis, and else 0.

    num_classes=-1 stands for the largest index + 1, which is read from the device.
    """
    _check_indices(indices, "one_hot")
    if num_classes == -1:
        if indices.numel() == 0:
            raise ArgumentError("one_hot() of no indices needs num_classes")
        num_classes = int(indices.max().item()) + 1
    if num_classes < 1:
        raise ArgumentError(f"one_hot(): num_classes={num_classes}, expected at least 1")
    y = allocate_like((*indices.shape, num_classes), dtypes.i64, indices)
    kernels.one_hot(dense_view(dense(indices), indices.numel()), dense_view(y._array, indices.numel(), num_classes))
    return y


@operation("dropout", replayable=True)
def dropout_with_seed(x: Tensor, seed: Tensor, p: float) -> Tensor:
    """Zero elements of x with probability p, and divide the remaining ones by 1 - p.

    The seed, a u64 tensor with one element, selects the elements.
    """
    y = allocate_like(x.shape, x.dtype, x)
    dropout_kernels.dropout(dense(x), y._array, seed._array, p)
    return y


def _check_probability(p: float, name: str) -> float:
    """Return p as a float after checking that it is in [0, 1]."""
    if not 0 <= p <= 1:
        raise ArgumentError(f"{name}(): p={p}, expected a chance from 0 to 1")
    return float(p)


def dropout(x: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """Zero elements of x with probability p, and divide the remaining ones by 1 - p. Return x itself if not training.

    The random state is seeded by `vk.manual_seed`.
    """
    check_float(x, "dropout")
    if _check_probability(p, "dropout") == 0 or not training:
        return own_result(x)  # type: ignore[no-any-return]
    return dropout_with_seed(x, random.next_seed_tensor(x.device), float(p))


def _dropout_channels(x: Tensor, p: float, training: bool, axes: int) -> Tensor:
    """Apply dropout to whole channels of x, (N, C, *size) or (C, *size) with `axes` spatial axes."""
    name = f"dropout{axes}d"
    check_float(x, name)
    if x.ndim not in (axes + 1, axes + 2):
        raise ShapeError(
            f"{name}(): input of shape {x.shape}, expected {axes + 2} axes (or {axes + 1}, without a batch)"
        )
    if not training or _check_probability(p, name) == 0:
        return own_result(x)  # type: ignore[no-any-return]
    mask_shape = x.shape[: x.ndim - axes]
    ones = creation.ones(mask_shape, dtype=x.dtype, device=x.device)
    mask = dropout_with_seed(ones, random.next_seed_tensor(x.device), float(p))
    return x * mask.reshape(*mask_shape, *[1] * axes)


def dropout1d(x: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """Zero whole channels of x (N, C, L) with probability p, and divide the remaining ones by 1 - p.

    Returns x itself if not training.
    """
    return _dropout_channels(x, p, training, 1)


def dropout2d(x: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """Zero whole channels of x (N, C, H, W) with probability p, and divide the remaining ones by 1 - p.

    Returns x itself if not training.
    """
    return _dropout_channels(x, p, training, 2)


def dropout3d(x: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """Zero whole channels of x (N, C, D, H, W) with probability p and divide the remaining ones by 1 - p.

    Returns x itself if not training.
    """
    return _dropout_channels(x, p, training, 3)
