"""Matrix products of tensors: batched, broadcast, with vectors, combined with an addition.

Operands and result have the same type; 16-bit floats accumulate in f32. `multiply` prepares the layouts of the operands
for the kernels in `vkjit.stdlib.matmul`. A is the left and B the right operand, K the axis that is summed over.
"""

from __future__ import annotations

import math
from typing import Any

from vkjit.dtypes import DType
from vkjit.errors import DTypeError, ShapeError
from vkjit.runtime.device import DeviceArray, contiguous_strides
from vkjit.stdlib.matmul import dispatch as kernels
from vkjit.stdlib.matmul.operands import flat_operand
from vkjit.stdlib.matmul.registers import MAX_K, readable_as_pairs
from vkjit.stdlib.registry import device_class

from ..argument_errors import ERRORS, explain, explains
from ..dispatch import operation
from ..memory import allocate, write_value
from ..precision import computed_in_f32
from ..tensor import Tensor
from . import broadcast, elementwise_launch
from .copies import copy_values
from .elementwise_launch import arithmetic_type
from .views import reshape, reshaped_strides, unsqueeze

__all__ = ["addmm", "baddbmm", "bmm", "dot", "linear", "matmul", "mm", "mv", "outer", "trace"]


def _batched(array: DeviceArray, batch: tuple[int, ...]) -> DeviceArray:
    """Return the array with its leading axes broadcast to the shape `batch` and merged: (batch, rows, columns).

    This is a view if the strides allow it, else a copy.
    """
    rows, columns = array.shape[-2:]
    expanded = broadcast.expand(array, (*batch, rows, columns))
    # the stride of the merged batch axis; that of an empty array is never used
    strides = reshaped_strides(batch, expanded.strides[:-2], (math.prod(batch),)) if 0 not in expanded.shape else (0,)
    if strides is None:
        copied = allocate(expanded.shape, expanded.dtype, expanded.device)
        copy_values(expanded, copied)
        expanded, strides = copied, (rows * columns,)
    return DeviceArray(
        expanded.buffer,
        expanded.offset,
        expanded.dtype,
        (math.prod(batch), rows, columns),
        (*strides, *expanded.strides[-2:]),
    )


def multiply(a: DeviceArray, b: DeviceArray, c: DeviceArray, accumulate: DType) -> None:
    """Compute c = a @ b for arrays of (batch, rows, columns), summing in the type `accumulate`.

    On devices of class "cpu", where loops must not be too long, a K dimension above `MAX_K` is split, and the products
    of the parts are summed.
    """
    k = a.shape[2]
    if 0 in c.shape:
        return
    if k == 0:
        write_value(c, 0)
        return
    if device_class(c.device) == "gpu" and a.dtype.itemsize < 4 and c.device.caps.matrices:
        a, b, padded_c = _padded_operands(a, b, c)
        if padded_c is not c:
            kernels.multiply(a, b, padded_c, accumulate)
            copy_values(_cut(padded_c, 2, 0, c.shape[2]), c)
            return
    if device_class(c.device) == "gpu" or k <= MAX_K:
        kernels.multiply(_contiguous_operand(a, c, left=True), _contiguous_operand(b, c, left=False), c, accumulate)
        return
    partial_products = allocate((-(-k // MAX_K), *c.shape), accumulate, c.device)
    for i in range(partial_products.shape[0]):
        start, stop = i * MAX_K, min(k, (i + 1) * MAX_K)
        partial_product = DeviceArray(
            partial_products.buffer, i * math.prod(c.shape) * accumulate.itemsize, accumulate, c.shape, c.strides
        )
        kernels.multiply(_cut(a, 2, start, stop), _cut(b, 1, start, stop), partial_product, accumulate)
    from . import reduction_launch

    total = reduction_launch.reduce_axes(partial_products, (0,), reduction_launch.SUM, c.dtype, accumulate)
    copy_values(total, c)


def _padded_operands(a: DeviceArray, b: DeviceArray, c: DeviceArray) -> tuple[DeviceArray, DeviceArray, DeviceArray]:
    """Return a, b and c, padded so that each row consists of whole 16-byte vectors.

    The kernels with cooperative matrices require that. An operand with other rows is copied and padded with zeros; in
    place of c, a new array with more columns is returned. If the product is too small for that to pay, all three are
    returned unchanged.
    """
    per_vector = 16 // a.dtype.itemsize  # elements per vector
    padded_k = -(-a.shape[2] // per_vector) * per_vector
    if math.prod(c.shape) * padded_k < PADDING_THRESHOLD or a.dtype is not b.dtype:
        return a, b, c
    columns = -(-c.shape[2] // per_vector) * per_vector
    operands = []
    for array, left in ((a, True), (b, False)):
        # a row of A has K elements, a row of B as many as c has columns; B also needs the padded K as number of rows
        has_whole_vectors = padded_k == a.shape[2] and (left or columns == array.shape[2])
        if has_whole_vectors and flat_operand(array, array.dtype) is not None:
            operands.append(array)
            continue
        shape = (array.shape[0], array.shape[1], padded_k) if left else (array.shape[0], padded_k, columns)
        padded = allocate(shape, array.dtype, array.device)
        write_value(padded, 0)
        copy_values(array, DeviceArray(padded.buffer, padded.offset, array.dtype, array.shape, padded.strides))
        operands.append(padded)
    fits = columns == c.shape[2] and c.offset % 16 == 0
    result = c if fits else allocate((*c.shape[:2], columns), c.dtype, c.device)
    return operands[0], operands[1], result


PADDING_THRESHOLD = 1 << 24
"""Minimum number of multiply-adds for which padded copies of the operands cost less than a slower kernel."""
_MIN_REUSE = 16
"""Minimum number of times that a product reads each element of an operand for a contiguous copy of it to pay."""
_MIN_PRODUCT_SIZE = 4096
"""Minimum number of elements of a product for a contiguous copy of an operand to pay."""


def _contiguous_operand(array: DeviceArray, c: DeviceArray, *, left: bool) -> DeviceArray:
    """Return an operand of a product c, copied to contiguous memory if that makes the product faster.

    The operand is A if `left`, else B. A copy pays for large products on devices of class "cpu" whose kernels read
    several adjacent elements at once.
    """
    kind = c.device.caps.kind
    reuse_count = c.shape[2 if left else 1]  # how often each element of the operand is read
    if device_class(c.device) == "gpu" or kind == "interpreter":
        return array
    if reuse_count < _MIN_REUSE or math.prod(c.shape) < _MIN_PRODUCT_SIZE:
        return array
    if left and kind == "llvm-cpu":  # elements of A are read one by one and broadcast over the columns
        return array
    # kernels on software Vulkan drivers read two f32 as one 64-bit word
    reads_pairs = kind == "cpu" and array.dtype.name == "f32" and array.shape[2] % 2 == 0
    if abs(array.strides[2]) == 1 and (not reads_pairs or readable_as_pairs(array)):
        return array
    copied = allocate(array.shape, array.dtype, array.device)
    copy_values(array, copied)
    return copied


def _cut(array: DeviceArray, axis: int, start: int, stop: int) -> DeviceArray:
    """View the indices start:stop of an axis."""
    shape = tuple(stop - start if i == axis else e for i, e in enumerate(array.shape))
    offset = array.offset + start * array.strides[axis] * array.dtype.itemsize
    return DeviceArray(array.buffer, offset, array.dtype, shape, array.strides)


def _product_type(a: Tensor, b: Tensor, name: str) -> DType:
    """Return the common type of two operands. Raises DTypeError if their types differ or are bool."""
    if a.dtype is not b.dtype:
        raise DTypeError(
            f"{name}() takes tensors of one type, found {a.dtype!r} and {b.dtype!r}: convert one with .to(...)"
        )
    if a.dtype.kind == "bool":
        raise DTypeError(f"{name}() has no meaning for bool: convert with .to(vk.f32)")
    return a.dtype


@operation("matmul", replayable=True)
def _matmul(a: Tensor, b: Tensor) -> Tensor:
    """Multiply tensors that have at least two axes."""
    dtype = _product_type(a, b, "matmul")
    if a.shape[-1] != b.shape[-2]:
        raise ShapeError(
            f"matmul(): the rows of the first ({a.shape}) have {a.shape[-1]} elements, the columns of the second "
            f"({b.shape}) {b.shape[-2]}: expected the same number"
        )
    device = elementwise_launch.common_device((a, b))
    batch = broadcast.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    rows, columns = a.shape[-2], b.shape[-1]
    out = allocate((*batch, rows, columns), dtype, device)
    # one matrix B for the whole batch: a single product, with the batch folded into the rows of A
    if len(b.shape) == 2 and len(batch) and a.is_contiguous():
        count = math.prod(batch) * rows
        a_rows = DeviceArray(a._array.buffer, a._array.offset, dtype, (1, count, a.shape[-1]), (0, a.shape[-1], 1))
        target = DeviceArray(out.buffer, 0, dtype, (1, count, columns), (0, columns, 1))
        multiply(a_rows, _batched(b._array, (1,)), target, arithmetic_type(dtype))
        return Tensor(out)
    target_shape = (math.prod(batch), rows, columns)  # the product of an empty `batch` is 1
    target = DeviceArray(out.buffer, 0, dtype, target_shape, contiguous_strides(target_shape))
    multiply(_batched(a._array, batch or (1,)), _batched(b._array, batch or (1,)), target, arithmetic_type(dtype))
    return Tensor(out)


@explains
def matmul(a: Tensor, b: Tensor) -> Tensor:
    """Return the matrix product over the last two axes, with leading axes broadcast.

    A vector counts as a row on the left and as a column on the right; that axis is dropped from the result.
    """
    try:
        left_rank, right_rank = a.ndim, b.ndim
    except ERRORS as error:  # `explain_errors` would cost each product a call
        explain(error, matmul, (a, b), {})
        raise
    if not left_rank or not right_rank:
        raise ShapeError(f"matmul() takes vectors and matrices, found shapes {a.shape} and {b.shape}: multiply with *")
    result = _matmul(unsqueeze(a, 0) if left_rank == 1 else a, unsqueeze(b, 1) if right_rank == 1 else b)
    if left_rank == 1:
        result = reshape(result, (*result.shape[:-2], result.shape[-1]))
    return reshape(result, result.shape[:-1]) if right_rank == 1 else result


def _with_ranks(a: Tensor, b: Tensor, ranks: tuple[int, int], name: str) -> Tensor:
    """Return matmul(a, b). Raises ShapeError if a and b don't have these numbers of axes."""
    if (a.ndim, b.ndim) != ranks:
        raise ShapeError(
            f"{name}() takes tensors with {ranks[0]} and {ranks[1]} axes, found shapes {a.shape} and {b.shape}"
        )
    return matmul(a, b)


def mm(a: Tensor, b: Tensor) -> Tensor:
    """Return the product of two matrices, (M, K) and (K, N)."""
    return _with_ranks(a, b, (2, 2), "mm")


def mv(a: Tensor, b: Tensor) -> Tensor:
    """Return the product of a matrix and a vector, (M, K) and (K,)."""
    return _with_ranks(a, b, (2, 1), "mv")


def dot(a: Tensor, b: Tensor) -> Tensor:
    """Return the dot product of two vectors of the same size."""
    return _with_ranks(a, b, (1, 1), "dot")


def bmm(a: Tensor, b: Tensor) -> Tensor:
    """Return the batched product of two tensors of matrices, (B, M, K) and (B, K, N), without broadcasting."""
    if a.ndim == 3 and b.ndim == 3 and a.shape[0] != b.shape[0]:
        raise ShapeError(
            f"bmm() takes batches of one size, found shapes {a.shape} and {b.shape}: use matmul() to broadcast"
        )
    return _with_ranks(a, b, (3, 3), "bmm")


def outer(a: Tensor, b: Tensor) -> Tensor:
    """Return the outer product of two vectors: (M,) and (N,) give (M, N)."""
    if a.ndim != 1 or b.ndim != 1:
        raise ShapeError(f"outer() takes vectors, found shapes {a.shape} and {b.shape}")
    return unsqueeze(a, 1) * unsqueeze(b, 0)


@computed_in_f32
def addmm(c: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """Return beta * c + alpha * (a @ b); c broadcasts. With beta=0, c isn't read."""
    return plus_scaled(c, matmul(a, b), beta, alpha)


@computed_in_f32
def plus_scaled(c: Any, product: Any, beta: float, alpha: float) -> Tensor:
    """Return beta * c + alpha * product; c broadcasts to the product's shape. With beta=0, c isn't read."""
    if not product.dtype.is_float:
        alpha, beta = int(alpha), int(beta)
    scaled: Tensor = product if alpha == 1 else product * alpha
    if beta == 0:
        return scaled
    return scaled + (c if beta == 1 else c * beta)  # type: ignore[no-any-return]


baddbmm = addmm


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x @ weight.T + bias for x of (..., inputs), weight of (outputs, inputs) and bias of (outputs,)."""
    if weight.ndim != 2 or x.ndim == 0 or x.shape[-1] != weight.shape[1]:
        raise ShapeError(
            f"linear(): x of shape {x.shape} needs a weight of (outputs, {x.shape[-1] if x.ndim else '?'}), found "
            f"{weight.shape}"
        )
    product: Any = matmul(x, weight.t())
    return product if bias is None else product + bias  # type: ignore[no-any-return]


def trace(x: Tensor) -> Tensor:
    """Return the sum of a matrix's diagonal."""
    from .reductions import sum
    from .views import diagonal

    if x.ndim != 2:
        raise ShapeError(f"trace() takes a matrix, found shape {x.shape}: use .diagonal(...).sum(-1)")
    return sum(diagonal(x))
