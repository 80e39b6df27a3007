"""Matrix products of tensors: batched, broadcast, with vectors, fused with an addition.

Enters: tensors of one type. Leaves: new tensors of that type; 16-bit floats accumulate in f32.
"""

from __future__ import annotations

import math
from typing import Any

from ..dtypes import DType
from ..errors import DTypeError, ShapeError
from ..runtime.interface import DeviceArray, contiguous_strides
from ..stdlib import matmul as kernels
from ..stdlib import processor  # noqa: F401  registers variants for the device "cpu"
from ..stdlib.matmul_operands import flat_operand
from ..stdlib.registry import device_class
from . import creation, iterate, maps
from .copies import copy_values
from .dispatch import operation
from .maps import arithmetic_type
from .precision import widened
from .tensor import Tensor
from .views import reshape, reshaped_strides, unsqueeze

__all__ = ["addmm", "baddbmm", "bmm", "dot", "linear", "matmul", "mm", "mv", "outer", "trace"]


def _batched(array: DeviceArray, batch: tuple[int, ...]) -> DeviceArray:
    """The array as (batch, rows, columns); a copy where a broadcast batch has no single stride."""
    rows, columns = array.shape[-2:]
    wide = iterate.expand(array, (*batch, rows, columns))
    strides = reshaped_strides(batch, wide.strides[:-2], (math.prod(batch),)) if 0 not in wide.shape else (0,)
    if strides is None:
        copied = creation.allocate(wide.shape, wide.dtype, wide.device)
        copy_values(wide, copied)
        wide, strides = copied, (rows * columns,)
    return DeviceArray(
        wide.buffer, wide.offset, wide.dtype, (math.prod(batch), rows, columns), (*strides, *wide.strides[-2:])
    )


def multiply(a: DeviceArray, b: DeviceArray, c: DeviceArray, accumulate: DType) -> None:
    """c = a @ b of (batch, rows, columns); on software drivers long sums are made of parts."""
    depth = a.shape[2]
    if 0 in c.shape:
        return
    if depth == 0:
        creation.write_value(c, 0)
        return
    if device_class(c.device) == "gpu" and a.dtype.itemsize < 4 and c.device.caps.matrices:
        a, b, whole = _whole_vectors(a, b, c)
        if whole is not c:
            kernels.multiply(a, b, whole, accumulate)
            copy_values(_cut(whole, 2, 0, c.shape[2]), c)
            return
    if device_class(c.device) == "gpu" or depth <= kernels.MOST_K:
        kernels.multiply(_readable(a, c, left=True), _readable(b, c, left=False), c, accumulate)
        return
    parts = creation.allocate((-(-depth // kernels.MOST_K), *c.shape), accumulate, c.device)
    for i in range(parts.shape[0]):
        start, stop = i * kernels.MOST_K, min(depth, (i + 1) * kernels.MOST_K)
        part = DeviceArray(parts.buffer, i * math.prod(c.shape) * accumulate.itemsize, accumulate, c.shape, c.strides)
        kernels.multiply(_cut(a, 2, start, stop), _cut(b, 1, start, stop), part, accumulate)
    from . import reducing

    total = reducing.reduce_axes(parts, (0,), reducing.SUM, c.dtype, accumulate)
    copy_values(total, c)


def _whole_vectors(a: DeviceArray, b: DeviceArray, c: DeviceArray) -> tuple[DeviceArray, DeviceArray, DeviceArray]:
    """Factors and result as cooperative matrices take them: lines of whole vectors of 16 bytes. Where they aren't, and the
    product is worth it, copies padded with zeros, and a wider result.
    """
    each = 16 // a.dtype.itemsize
    depth = -(-a.shape[2] // each) * each
    if math.prod(c.shape) * depth < WORTH_PADDING or a.dtype is not b.dtype:
        return a, b, c
    columns = -(-c.shape[2] // each) * each
    found = []
    for array, left in ((a, True), (b, False)):
        whole = depth == a.shape[2] and (left or columns == array.shape[2])
        if whole and flat_operand(array, array.dtype) is not None:
            found.append(array)
            continue
        shape = (array.shape[0], array.shape[1], depth) if left else (array.shape[0], depth, columns)
        made = creation.allocate(shape, array.dtype, array.device)
        creation.write_value(made, 0)
        copy_values(array, DeviceArray(made.buffer, made.offset, array.dtype, array.shape, made.strides))
        found.append(made)
    fits = columns == c.shape[2] and c.offset % 16 == 0
    wide = c if fits else creation.allocate((*c.shape[:2], columns), c.dtype, c.device)
    return found[0], found[1], wide


WORTH_PADDING = 1 << 24
"""Multiply-adds of a product from which on copies of its factors cost less than a slower kernel."""


def _readable(array: DeviceArray, c: DeviceArray, *, left: bool) -> DeviceArray:
    """The factor itself, or where a processor reads neighbours at once and the product is worth it, a copy in C
    order.
    """
    kind = c.device.caps.kind
    uses = c.shape[2 if left else 1]
    if device_class(c.device) == "gpu" or kind == "interpreter" or uses < 16 or math.prod(c.shape) < 4096:
        return array
    if left and kind == "llvm-cpu":  # its elements are read one by one, for all columns of the product
        return array
    pairs = kind == "cpu" and array.dtype.name == "f32" and array.shape[2] % 2 == 0
    if abs(array.strides[2]) == 1 and (not pairs or kernels.in_pairs(array)):
        return array
    copied = creation.allocate(array.shape, array.dtype, array.device)
    copy_values(array, copied)
    return copied


def _cut(array: DeviceArray, axis: int, start: int, stop: int) -> DeviceArray:
    shape = tuple(stop - start if i == axis else e for i, e in enumerate(array.shape))
    offset = array.offset + start * array.strides[axis] * array.dtype.itemsize
    return DeviceArray(array.buffer, offset, array.dtype, shape, array.strides)


def _product_type(a: Tensor, b: Tensor, name: str) -> DType:
    if a.dtype is not b.dtype:
        raise DTypeError(
            f"{name}() takes tensors of one type, found {a.dtype!r} and {b.dtype!r}: convert one with .to(...)"
        )
    if a.dtype.kind == "bool":
        raise DTypeError(f"{name}() has no meaning for bool: convert with .to(vk.f32)")
    return a.dtype


@operation("matmul", repeated=True)
def _matmul(a: Tensor, b: Tensor) -> Tensor:
    """Of tensors with at least two axes."""
    dtype = _product_type(a, b, "matmul")
    if a.shape[-1] != b.shape[-2]:
        raise ShapeError(
            f"matmul(): the rows of the first ({a.shape}) have {a.shape[-1]} elements, the columns of the second "
            f"({b.shape}) {b.shape[-2]}: expected the same number"
        )
    device = maps.common_device((a, b))
    batch = iterate.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    rows, columns = a.shape[-2], b.shape[-1]
    out = creation.allocate((*batch, rows, columns), dtype, device)
    if (
        len(b.shape) == 2 and len(batch) and a.is_contiguous()
    ):  # one matrix for the whole batch: more rows of one product
        count = math.prod(batch) * rows
        left = DeviceArray(a._array.buffer, a._array.offset, dtype, (1, count, a.shape[-1]), (0, a.shape[-1], 1))
        target = DeviceArray(out.buffer, 0, dtype, (1, count, columns), (0, columns, 1))
        multiply(left, _batched(b._array, (1,)), target, arithmetic_type(dtype))
        return Tensor(out)
    target_shape = (math.prod(batch), rows, columns)
    target = DeviceArray(out.buffer, 0, dtype, target_shape, contiguous_strides(target_shape))
    multiply(_batched(a._array, batch or (1,)), _batched(b._array, batch or (1,)), target, arithmetic_type(dtype))
    return Tensor(out)


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """The matrix product of the last two axes, the axes before them broadcast; a vector counts as a row on the left and
    as a column on the right, and that axis is left out of the result.
    """
    if a.ndim == 0 or b.ndim == 0:
        raise ShapeError(f"matmul() takes vectors and matrices, found shapes {a.shape} and {b.shape}: multiply with *")
    left = unsqueeze(a, 0) if a.ndim == 1 else a
    right = unsqueeze(b, 1) if b.ndim == 1 else b
    result = _matmul(left, right)
    if a.ndim == 1:
        result = reshape(result, (*result.shape[:-2], result.shape[-1]))
    return reshape(result, result.shape[:-1]) if b.ndim == 1 else result


def _with_ranks(a: Tensor, b: Tensor, ranks: tuple[int, int], name: str) -> Tensor:
    if (a.ndim, b.ndim) != ranks:
        raise ShapeError(
            f"{name}() takes tensors with {ranks[0]} and {ranks[1]} axes, found shapes {a.shape} and {b.shape}"
        )
    return matmul(a, b)


def mm(a: Tensor, b: Tensor) -> Tensor:
    """The product of two matrices."""
    return _with_ranks(a, b, (2, 2), "mm")


def mv(a: Tensor, b: Tensor) -> Tensor:
    """The product of a matrix and a vector."""
    return _with_ranks(a, b, (2, 1), "mv")


def dot(a: Tensor, b: Tensor) -> Tensor:
    """The sum of the products of two vectors."""
    return _with_ranks(a, b, (1, 1), "dot")


def bmm(a: Tensor, b: Tensor) -> Tensor:
    """The products of two batches of matrices of one size; nothing is broadcast."""
    if a.ndim == 3 and b.ndim == 3 and a.shape[0] != b.shape[0]:
        raise ShapeError(
            f"bmm() takes batches of one size, found shapes {a.shape} and {b.shape}: use matmul() to broadcast"
        )
    return _with_ranks(a, b, (3, 3), "bmm")


def outer(a: Tensor, b: Tensor) -> Tensor:
    """All products of an element of one vector and an element of another: (M,) and (N,) give (M, N)."""
    if a.ndim != 1 or b.ndim != 1:
        raise ShapeError(f"outer() takes vectors, found shapes {a.shape} and {b.shape}")
    return unsqueeze(a, 1) * unsqueeze(b, 0)


@widened
def addmm(c: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta c + alpha (a @ b); c broadcasts. With beta=0 c isn't read."""
    return plus_scaled(c, matmul(a, b), beta, alpha)


@widened
def plus_scaled(c: Any, product: Any, beta: float, alpha: float) -> Tensor:
    """beta c + alpha product, c broadcast to the product's shape; with beta=0 c isn't read."""
    if not product.dtype.is_float:
        alpha, beta = int(alpha), int(beta)
    scaled: Tensor = product if alpha == 1 else product * alpha
    if beta == 0:
        return scaled
    return scaled + (c if beta == 1 else c * beta)  # type: ignore[no-any-return]


baddbmm = addmm


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x @ weight.T + bias; x: (..., inputs), weight: (outputs, inputs), bias: (outputs,)."""
    if weight.ndim != 2 or x.ndim == 0 or x.shape[-1] != weight.shape[1]:
        raise ShapeError(
            f"linear(): x of shape {x.shape} needs a weight of (outputs, {x.shape[-1] if x.ndim else '?'}), found "
            f"{weight.shape}"
        )
    product: Any = matmul(x, weight.t())
    return product if bias is None else product + bias  # type: ignore[no-any-return]


def trace(x: Tensor) -> Tensor:
    """The sum of a matrix' diagonal."""
    from .reductions import sum
    from .views import diagonal

    if x.ndim != 2:
        raise ShapeError(f"trace() takes a matrix, found shape {x.shape}: use .diagonal(...).sum(-1)")
    return sum(diagonal(x))
