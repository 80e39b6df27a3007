"""Linear layer with bias as a single operation: x @ weight.T + bias.

x is (..., inputs), weight (outputs, inputs), bias (outputs,). A row is one vector of `inputs` or `outputs` elements. On
GPUs small layers take one launch forward and two backward. In all other cases forward is a matrix product and an
in-place addition, and backward is a product each for x and weight, and a sum for bias. The functions work on arrays
instead of tensors to avoid views that autograd would record.
"""

from __future__ import annotations

import math
from typing import Any

from vkjit.errors import DTypeError, ShapeError
from vkjit.runtime.device import DeviceArray
from vkjit.stdlib.elementwise import functions, maps
from vkjit.stdlib.matmul import linear as kernels

from ..autograd.mode import modes
from ..dispatch import operation
from ..memory import allocate
from ..op_cache import cached
from ..ops import creation, reduction_launch
from ..ops.elementwise_launch import arithmetic_type, common_device
from ..ops.matmul import multiply
from ..tensor import Tensor
from .common import dense

__all__ = ["bias_gradient", "input_gradient", "linear", "parameter_gradients", "weight_gradient"]


def _batch_of_one(array: DeviceArray, rows: int, columns: int) -> DeviceArray:
    """Return a dense array as a batch of one matrix, (1, rows, columns), the form that `multiply` takes."""
    return DeviceArray(array.buffer, array.offset, array.dtype, (1, rows, columns), (0, columns, 1))


def _rows_and_batch(x: Tensor) -> tuple[int, DeviceArray]:
    """Return the number of rows of x, (..., columns), and x as a batch of one matrix (1, rows, columns).

    This is the form that `multiply` takes. Only tensors with two axes keep their strides; others are made contiguous.
    """
    shape, array = x.shape, x._array
    if len(shape) == 2:
        return shape[0], DeviceArray(array.buffer, array.offset, array.dtype, (1, *shape), (0, *array.strides))
    rows = math.prod(shape[:-1])
    return rows, _batch_of_one(dense(x), rows, shape[-1])


def _flat_matrix(x: Any) -> DeviceArray:
    """Return x, (..., columns), as a matrix (rows, columns), the form that the fused kernels take.

    Only tensors with two axes keep their strides; others are made contiguous.
    """
    array: DeviceArray = x._array
    if len(array.shape) == 2:
        return array
    shape = math.prod(array.shape[:-1]), array.shape[-1]
    array = dense(x)
    return DeviceArray(array.buffer, array.offset, array.dtype, shape, (shape[1], 1))


def _transposed(array: DeviceArray) -> DeviceArray:
    """Return a transposed view of a matrix (1, rows, columns)."""
    (_, rows, columns), (_, row_stride, column_stride) = array.shape, array.strides
    return DeviceArray(array.buffer, array.offset, array.dtype, (1, columns, rows), (0, column_stride, row_stride))


@operation("linear")
def _linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return x @ weight.T + bias for checked operands of one type."""
    array, weight_array = x._array, weight._array
    dtype, shape, (outputs, inputs) = array.dtype, array.shape, weight_array.shape
    device = array.buffer.device
    if weight_array.buffer.device is not device or (bias is not None and bias._array.buffer.device is not device):
        common_device((x, weight, bias))  # raises the error for tensors on different devices
    out = allocate((*shape[:-1], outputs), dtype, device)
    if kernels.supports(device, dtype, math.prod(shape[:-1]), outputs, inputs):
        output = Tensor(out)
        kernels.linear(
            _flat_matrix(x),
            weight_array,
            None if bias is None else bias._array,
            _flat_matrix(output),
            arithmetic_type(dtype),
        )
        return output
    rows, left = _rows_and_batch(x)
    target = _batch_of_one(out, rows, outputs)
    _, right = _rows_and_batch(weight)
    compute = arithmetic_type(dtype)
    multiply(left, _transposed(right), target, compute)
    if bias is not None and rows * outputs:
        out_matrix = DeviceArray(out.buffer, 0, dtype, (rows, outputs), (outputs, 1))  # `out` as (rows, outputs)
        array = bias._array
        # the bias as rows with a stride of 0: repeated without a copy
        bias_rows = DeviceArray(array.buffer, array.offset, dtype, (rows, outputs), (0, array.strides[0]))
        maps.map2(out_matrix, bias_rows, out_matrix, functions.add, compute)
    return Tensor(out)


@cached("linear()")
def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x @ weight.T + bias; x: (..., inputs), weight: (outputs, inputs), bias: (outputs,)."""
    if weight.ndim != 2 or x.ndim == 0 or x.shape[-1] != weight.shape[1]:
        raise ShapeError(
            f"linear(): x of shape {x.shape} needs a weight of (outputs, {x.shape[-1] if x.ndim else '?'}), found "
            f"{weight.shape}"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ShapeError(f"linear(): a weight of {weight.shape} needs a bias of {weight.shape[:1]}, found {bias.shape}")
    dtype = x.dtype
    same_type = weight.dtype is dtype and (bias is None or bias.dtype is dtype) and dtype.kind != "bool"
    if not same_type and modes.get().autocast is None:
        raise DTypeError(
            f"linear() takes tensors of one type of numbers, found {dtype!r}, {weight.dtype!r}"
            f"{'' if bias is None else f' and {bias.dtype!r}'}: convert with .to(...)"
        )
    return _linear(x, weight, bias)


# -- gradients: `gradient` is that of the output; autograd doesn't record these calls


def input_gradient(gradient: Any, weight: Tensor) -> Tensor:
    """Return the gradient of x: gradient @ weight."""
    rows, left = _rows_and_batch(gradient)
    out = allocate((*gradient.shape[:-1], weight.shape[1]), gradient.dtype, gradient.device)
    multiply(
        left, _rows_and_batch(weight)[1], _batch_of_one(out, rows, weight.shape[1]), arithmetic_type(gradient.dtype)
    )
    return Tensor(out)


def parameter_gradients(gradient: Any, x: Tensor, has_bias: bool) -> tuple[Tensor, Tensor | None]:
    """Return the gradients of weight and bias, in one launch if the device supports it.

    The gradient of the bias is None unless `has_bias`.
    """
    outputs, inputs = gradient.shape[-1], x.shape[-1]
    dtype, device = gradient.dtype, gradient.device
    # the product is (outputs, rows) @ (rows, inputs)
    if not kernels.supports(device, dtype, outputs, inputs, math.prod(x.shape[:-1])):
        return weight_gradient(gradient, x), bias_gradient(gradient) if has_bias else None
    weight = allocate((outputs, inputs), dtype, device)
    bias = allocate((outputs,), dtype, device) if has_bias else None
    kernels.linear_gradients(_flat_matrix(gradient), _flat_matrix(x), weight, bias, arithmetic_type(dtype))
    return Tensor(weight), None if bias is None else Tensor(bias)


def weight_gradient(gradient: Any, x: Tensor) -> Tensor:
    """Return the gradient of the weight: gradient.T @ x, over all rows."""
    _, left = _rows_and_batch(gradient)
    outputs, inputs = gradient.shape[-1], x.shape[-1]
    out = allocate((outputs, inputs), gradient.dtype, gradient.device)
    multiply(
        _transposed(left), _rows_and_batch(x)[1], _batch_of_one(out, outputs, inputs), arithmetic_type(gradient.dtype)
    )
    return Tensor(out)


def bias_gradient(gradient: Any) -> Tensor:
    """Return the gradient of the bias: the sum of the rows of the output's gradient."""
    rows, array = _rows_and_batch(gradient)
    outputs = gradient.shape[-1]
    if rows == 0 or outputs == 0:
        return creation.zeros(outputs, dtype=gradient.dtype, device=gradient.device)
    matrix = DeviceArray(array.buffer, array.offset, array.dtype, array.shape[1:], array.strides[1:])
    return Tensor(
        reduction_launch.reduce_axes(
            matrix, (0,), reduction_launch.SUM, gradient.dtype, arithmetic_type(gradient.dtype)
        )
    )
