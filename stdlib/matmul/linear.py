"""Small linear layers on GPUs: the product fused with the bias, and the gradients of weight and bias in one launch.

`vkjit.tensor.nn.linear` calls these functions where `supports` is true. A small layer has too few large tiles to keep a
GPU busy, and its launches cost the host more time than the device takes to run it. These kernels therefore use small
tiles and few launches.

x is (M, K), weight (N, K), bias (N,) and y (M, N), of any strides; g is the gradient of y. T is the element type of x,
weight and bias, U that of g, and R that of the results. Products are accumulated in the type ACC in order of the
summation index and converted once. BIASED: there is a bias; otherwise the array is a placeholder that isn't accessed.
MUL_ADD(a, b, c) returns a * b + c.

The invocations of a workgroup form a grid of 16 x 16, in which each computes 2 x 2 results of a tile, 16 apart.
"""

from __future__ import annotations

from typing import Any, TypeVar

import vkjit as vk
from vkjit.stdlib.partial_sums import placeholder
from vkjit.stdlib.registry import device_class

__all__ = ["linear", "linear_gradients", "supports"]

T = TypeVar("T", bound=vk.Element)
U = TypeVar("U", bound=vk.Element)
R = TypeVar("R", bound=vk.Element)

TILE = 32
"""Rows and columns of a tile of results, and its extent along the summed axis."""
GROUP = 256
"""Invocations per workgroup."""
ROWS = GROUP // TILE
"""Rows of a tile that the workgroup loads at a time."""
ELEMENTS_PER_INVOCATION = TILE // ROWS
"""Elements of a tile that each invocation loads."""
MAX_RESULTS = 1 << 20
"""Maximum number of results: beyond it, large tiles keep a GPU busy."""
MAX_K = 4096
"""Maximum extent of the summed axis: beyond it, split-K is faster."""


@vk.func
def multiply_tile(acc, left, right, row, column, MUL_ADD: vk.Const[Any]):
    """Compute acc += left.T @ right for the 2 x 2 results of an invocation: rows row + 16 i, columns column + 16 j.

    `left` and `right` are tiles in shared memory. MUL_ADD(a, b, c) returns a * b + c.
    """
    for k in vk.unroll(TILE):
        for i in vk.unroll(2):
            for j in vk.unroll(2):
                acc[i, j] = MUL_ADD(left[k, row + 16 * i], right[k, column + 16 * j], acc[i, j])


@vk.kernel(groups=lambda y: (vk.cdiv(y.shape[1], TILE), vk.cdiv(y.shape[0], TILE)), local=GROUP, debug=False)
def linear_tiles(
    x: vk.In[T, "M K"],
    weight: vk.In[T, "N K"],
    bias: vk.In[T, "B"],
    y: vk.Out[R, "M N"],
    ACC: vk.Const[Any],
    BIASED: vk.Const[bool],
    MUL_ADD: vk.Const[Any],
):
    """Compute y = x @ weight.T + bias in TILE x TILE tiles; the next tiles of x and weight are prefetched.

    ACC, BIASED and MUL_ADD are described in the module docstring.
    """
    # one column of padding avoids bank conflicts
    left, right = vk.shared(ACC, (TILE, TILE + 1)), vk.shared(ACC, (TILE, TILE + 1))
    next_x, next_w = vk.local(ACC, ELEMENTS_PER_INVOCATION), vk.local(ACC, ELEMENTS_PER_INVOCATION)
    acc = vk.local(ACC, (2, 2))
    invocation = vk.i32(vk.local_id(0))
    row, column = vk.i32(vk.group_id(1)) * TILE, vk.i32(vk.group_id(0)) * TILE
    # this invocation loads the elements `inner` of the rows outer, outer + ROWS, ... of both tiles
    inner, outer = invocation % TILE, invocation // TILE
    depth = vk.i32(x.shape[1])
    for i in vk.unroll(2):
        for j in vk.unroll(2):
            acc[i, j] = ACC(0)
    for s in vk.unroll(ELEMENTS_PER_INVOCATION):
        next_x[s] = ACC(x.get(row + outer + ROWS * s, inner, pad=0))
        next_w[s] = ACC(weight.get(column + outer + ROWS * s, inner, pad=0))
    for k in range(0, depth, TILE):
        for s in vk.unroll(ELEMENTS_PER_INVOCATION):
            left[inner, outer + ROWS * s] = next_x[s]
            right[inner, outer + ROWS * s] = next_w[s]
        vk.barrier()
        for s in vk.unroll(ELEMENTS_PER_INVOCATION):
            next_x[s] = ACC(x.get(row + outer + ROWS * s, k + TILE + inner, pad=0))
            next_w[s] = ACC(weight.get(column + outer + ROWS * s, k + TILE + inner, pad=0))
        multiply_tile(acc, left, right, invocation // 16, invocation % 16, MUL_ADD)
        vk.barrier()
    for j in vk.unroll(2):
        n = column + invocation % 16 + 16 * j
        bias_value = ACC(0)
        if BIASED:
            bias_value = ACC(bias.get(n, pad=0))
        for i in vk.unroll(2):
            y.put(row + invocation // 16 + 16 * i, n, R(acc[i, j] + bias_value))


@vk.kernel(
    groups=lambda weight: (vk.cdiv(weight.shape[1], TILE), vk.cdiv(weight.shape[0], TILE)), local=GROUP, debug=False
)
def gradient_tiles(
    g: vk.In[U, "M N"],
    x: vk.In[T, "M K"],
    weight: vk.Out[R, "N K"],
    bias: vk.Out[R, "B"],
    ACC: vk.Const[Any],
    BIASED: vk.Const[bool],
    MUL_ADD: vk.Const[Any],
):
    """Compute the gradients weight = g.T @ x and, if BIASED, bias = g.sum(0) in TILE x TILE tiles.

    `weight` and `bias` receive the gradients. The workgroups of the first tile column compute that of the bias. ACC and
    MUL_ADD are described in the module docstring.
    """
    left, right = vk.shared(ACC, (TILE, TILE + 1)), vk.shared(ACC, (TILE, TILE + 1))
    next_g, next_x = vk.local(ACC, ELEMENTS_PER_INVOCATION), vk.local(ACC, ELEMENTS_PER_INVOCATION)
    acc = vk.local(ACC, (2, 2))
    invocation = vk.i32(vk.local_id(0))
    row, column = vk.i32(vk.group_id(1)) * TILE, vk.i32(vk.group_id(0)) * TILE
    # this invocation loads the elements `inner` of the rows outer, outer + ROWS, ... of both tiles
    inner, outer = invocation % TILE, invocation // TILE
    depth, total = vk.i32(x.shape[0]), ACC(0)
    for i in vk.unroll(2):
        for j in vk.unroll(2):
            acc[i, j] = ACC(0)
    for s in vk.unroll(ELEMENTS_PER_INVOCATION):
        next_g[s] = ACC(g.get(outer + ROWS * s, row + inner, pad=0))
        next_x[s] = ACC(x.get(outer + ROWS * s, column + inner, pad=0))
    for m in range(0, depth, TILE):
        for s in vk.unroll(ELEMENTS_PER_INVOCATION):
            left[outer + ROWS * s, inner] = next_g[s]
            right[outer + ROWS * s, inner] = next_x[s]
        vk.barrier()
        for s in vk.unroll(ELEMENTS_PER_INVOCATION):
            next_g[s] = ACC(g.get(m + TILE + outer + ROWS * s, row + inner, pad=0))
            next_x[s] = ACC(x.get(m + TILE + outer + ROWS * s, column + inner, pad=0))
        if BIASED:
            if column == 0 and invocation < TILE:
                part = ACC(0)
                for k in vk.unroll(TILE):
                    part += left[k, invocation]
                total += part
        multiply_tile(acc, left, right, invocation // 16, invocation % 16, MUL_ADD)
        vk.barrier()
    if BIASED:
        if column == 0 and invocation < TILE:
            bias.put(row + invocation, R(total))
    for i in vk.unroll(2):
        for j in vk.unroll(2):
            weight.put(row + invocation // 16 + 16 * i, column + invocation % 16 + 16 * j, R(acc[i, j]))


def supports(device: Any, dtype: vk.DType, rows: int, columns: int, depth: int) -> bool:
    """True if these kernels are the best choice for a product of matrices (rows, depth) and (depth, columns).

    False if an extent is 0. `dtype` is the element type of the matrices.
    """
    if device_class(device) != "gpu" or not dtype.is_float or not 0 < rows * columns <= MAX_RESULTS:
        return False
    prefers_matrices = dtype.itemsize < 4 and device.caps.matrices  # cooperative matrices multiply 16-bit floats
    return 0 < depth <= MAX_K and not prefers_matrices


def linear(x: Any, weight: Any, bias: Any, y: Any, accumulate: vk.DType) -> None:
    """Queue y = x @ weight.T + bias, summed in the type `accumulate`. The bias has one axis or is None."""
    linear_tiles(x, weight, placeholder(weight) if bias is None else bias, y, accumulate, bias is not None, vk.fma)


def linear_gradients(g: Any, x: Any, weight: Any, bias: Any, accumulate: vk.DType) -> None:
    """Queue the computation of the gradients weight = g.T @ x and, unless bias is None, bias = g.sum(0).

    g is the gradient of the output of `linear`; `accumulate` is the type of the sums.
    """
    gradient_tiles(g, x, weight, placeholder(weight) if bias is None else bias, accumulate, bias is not None, vk.fma)
