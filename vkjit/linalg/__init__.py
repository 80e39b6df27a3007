"""Linear algebra under PyTorch's names: products, norms, diagonals and functions built from them.

Decompositions and inverses are not implemented.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..errors import ArgumentError, ShapeError
from ..tensor import api as _api  # noqa: F401  # installs the methods of tensors
from ..tensor.argument_errors import explain_all as _explain_all
from ..tensor.argument_views import own_result
from ..tensor.ops import creation
from ..tensor.ops.arithmetic import where
from ..tensor.ops.copies import cat
from ..tensor.ops.matmul import matmul
from ..tensor.ops.products import cross as _cross
from ..tensor.ops.reductions import Dims, amax, amin, norm, sum
from ..tensor.ops.views import axis_of, diagonal as _diagonal, expand, narrow, reshape, unsqueeze
from ..tensor.outputs import with_out as _with_out
from ..tensor.precision import computed_in_f32
from ..tensor.tensor import Tensor

__all__ = [
    "cross", "diagonal", "matmul", "matrix_norm", "matrix_power", "multi_dot", "vander", "vecdot", "vector_norm",
]  # fmt: skip


def cross(x: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """Return the cross product of the 3-vectors along an axis; the other axes are broadcast."""
    return _cross(x, other, dim)


def diagonal(x: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Return a view of the diagonal over two axes (default: the last two), which becomes the last axis.

    `offset` > 0 selects a diagonal above the main one.
    """
    return _diagonal(x, offset, dim1, dim2)


@computed_in_f32
def vecdot(x: Any, y: Any, *, dim: int = -1) -> Tensor:
    """Return the dot product along an axis; the other axes are broadcast."""
    product = x * y
    return sum(product, dim, dtype=product.dtype)


def vector_norm(x: Tensor, ord: float = 2, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """Return the vector norm over axes (None: all elements).

    It is the ord-th root of the sum of the ord-th powers of magnitudes. For ord=inf it is the largest magnitude, for
    ord=-inf the smallest, and for ord=0 the number of nonzero elements.
    """
    value = x if dtype is None else x.to(creation.as_dtype(dtype))
    return norm(value, ord, dim, keepdim)


def matrix_norm(x: Any, ord: Any = "fro", dim: tuple[int, int] = (-2, -1), keepdim: bool = False) -> Tensor:
    """Return the norm of the matrices over two axes.

    `ord` is "fro" (Frobenius), 1 or -1 (maximum or minimum of the columns' sums of magnitudes), or inf or -inf (the
    same for rows).
    """
    if not isinstance(dim, (tuple, list)) or len(dim) != 2:
        raise ArgumentError(f"matrix_norm(dim=...) is two axes, found {dim!r}")
    first, second = (axis_of(d, x.ndim, "matrix_norm") for d in dim)
    if ord == "fro":
        return norm(x, 2, (first, second), keepdim)
    if ord not in (1, -1, math.inf, -math.inf):
        raise ArgumentError(f'matrix_norm(ord=...) is "fro", 1, -1, inf or -inf, found {ord!r}')
    # the sum over a column is taken along the first of the two axes
    summed, kept = (first, second) if abs(ord) == 1 else (second, first)
    sums = sum(x.abs(), summed, True)
    result = (amax if ord > 0 else amin)(sums, (summed, kept), True)
    return result if keepdim else result.squeeze((first, second))


def multi_dot(tensors: Sequence[Tensor]) -> Tensor:
    """Return the product of several matrices, multiplied in the order with the fewest scalar multiplications.

    The first may be a row vector and the last a column vector, both with a single axis.
    """
    parts = list(tensors)
    if len(parts) < 2:
        raise ArgumentError(f"multi_dot() takes at least 2 tensors, found {len(parts)}")
    is_row, is_column = parts[0].ndim == 1, parts[-1].ndim == 1
    if is_row:
        parts[0] = reshape(parts[0], (1, -1) if parts[0].numel() else (1, 0))  # -1 is ambiguous for 0 elements
    if is_column:
        parts[-1] = reshape(parts[-1], (parts[-1].numel(), 1))
    sizes = [p.shape[0] for p in parts] + [parts[-1].shape[1]]
    result = _product(parts, _best_splits(sizes), 0, len(parts) - 1)
    shape = tuple(e for e, dropped in zip(result.shape, (is_row, is_column), strict=True) if not dropped)
    return reshape(result, shape)


def _best_splits(sizes: list[int]) -> dict[tuple[int, int], int]:
    """Find the best order for the product of a chain of matrices, by dynamic programming.

    Matrix i has the shape (sizes[i], sizes[i + 1]). Returns an index k for each range (first, last) of matrices: the
    product of matrices first to k is multiplied by the product of matrices k + 1 to last.
    """
    count = len(sizes) - 1
    costs = {(i, i): 0 for i in range(count)}
    splits: dict[tuple[int, int], int] = {}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            options = [(costs[i, k] + costs[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j)]
            costs[i, j], splits[i, j] = min(options)
    return splits


def _product(parts: list[Tensor], splits: dict[tuple[int, int], int], i: int, j: int) -> Tensor:
    """Return the product of matrices i to j, split as `_best_splits` determined."""
    if i == j:
        return parts[i]
    k = splits[i, j]
    return matmul(_product(parts, splits, i, k), _product(parts, splits, k + 1, j))


@computed_in_f32
def matrix_power(x: Any, n: int) -> Tensor:
    """Return the n-th power of square matrices, by repeated squaring. Raises ArgumentError for negative n."""
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeError(f"matrix_power() takes square matrices, found shape {x.shape}")
    if n < 0:
        raise ArgumentError(f"matrix_power({n}): there is no inverse here, expected a power of at least 0")
    if n == 0:
        one = creation.eye(x.shape[-1], dtype=x.dtype, device=x.device)
        # identity matrices in the shape of x; `where` always selects them, but connects x to the result for autograd
        return where(one == one, expand(one, x.shape), x)
    result, square = None, x
    while n:
        if n & 1:
            result = square if result is None else matmul(result, square)
        n >>= 1
        if n:
            square = matmul(square, square)
    return own_result(result)  # type: ignore[no-any-return]


@computed_in_f32
def vander(x: Any, *, N: int | None = None) -> Tensor:
    """Return the powers 0 to N - 1 of each element as a new last axis; N defaults to the size of the last axis."""
    x = reshape(x, 1) if x.ndim == 0 else x
    count = x.shape[-1] if N is None else N
    if count < 1:
        raise ArgumentError(f"vander(N={count}): expected at least 1")
    creation.empty(
        (*x.shape, count), dtype=x.dtype, device=x.device
    )  # raises OutOfMemoryError before anything is computed
    factor = unsqueeze(x, -1)  # x to the power of the number of powers so far
    powers: Any = creation.ones_like(factor)
    while powers.shape[-1] < count:
        lower = narrow(powers, -1, 0, min(powers.shape[-1], count - powers.shape[-1]))
        powers, factor = cat([powers, lower * factor], -1), factor * factor
    return powers  # type: ignore[no-any-return]


for _name in __all__:  # add the keyword `out` where PyTorch has it
    globals()[_name] = _with_out(_name, globals()[_name])
_explain_all(globals(), __all__)
