"""Indexing with the stride of the wrong axis or for the wrong layout."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

import vkjit as vk
from tests.buggy.pair import pair

T = TypeVar("T", bound=vk.Element)


@vk.kernel(over="y")
def transposed(x: vk.In[T, "M N"], y: vk.Out[T, "N M"]):
    i, j = vk.index()
    y[i, j] = x.get(i, j, pad=0)  # bug: not transposed


@vk.kernel(over="y")
def transposed_good(x: vk.In[T, "M N"], y: vk.Out[T, "N M"]):
    i, j = vk.index()
    y[i, j] = x[j, i]


@vk.kernel(over="y")
def unflattened(x: vk.In[vk.i32, "M*N"], y: vk.Out[vk.i32, "M N"]):
    i, j = vk.index()
    y[i, j] = x.get(i * y.shape[0] + j, pad=0)  # bug: uses the number of rows as the row length


@vk.kernel(over="y")
def unflattened_good(x: vk.In[vk.i32, "M*N"], y: vk.Out[vk.i32, "M N"]):
    i, j = vk.index()
    y[i, j] = x[i * y.shape[1] + j]


@vk.kernel(over="y")
def channels(x: vk.In[vk.f32, "3*N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    n = y.shape[0]
    y[i] = x[i] + x[i + n] + x[i + 2 * n]  # bug: channels are interleaved, not planar


@vk.kernel(over="y")
def channels_good(x: vk.In[vk.f32, "3*N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = x[3 * i] + x[3 * i + 1] + x[3 * i + 2]


@vk.kernel(over="y")
def every_second(x: vk.In[vk.i32, "2*N"], y: vk.Out[vk.i32, "N"]):
    i = vk.global_id(0)
    y[i] = x[i]  # bug: reads the first half instead of every second element


@vk.kernel(over="y")
def every_second_good(x: vk.In[vk.i32, "2*N"], y: vk.Out[vk.i32, "N"]):
    i = vk.global_id(0)
    y[i] = x[2 * i]


@vk.kernel(over="c")
def product(a: vk.In[vk.f32, "M K"], b: vk.In[vk.f32, "K N"], c: vk.Out[vk.f32, "M N"]):
    i, j = vk.index()
    total = vk.f32(0)
    for k in range(a.shape[1]):
        total += a[i, k] * b.get(j, k, pad=0)  # bug: reads the second matrix by rows
    c[i, j] = total


@vk.kernel(over="c")
def product_good(a: vk.In[vk.f32, "M K"], b: vk.In[vk.f32, "K N"], c: vk.Out[vk.f32, "M N"]):
    i, j = vk.index()
    total = vk.f32(0)
    for k in range(a.shape[1]):
        total += a[i, k] * b.get(k, j, pad=0)
    c[i, j] = total


@vk.kernel(over="y")
def diagonal(x: vk.In[vk.i32, "N*N"], y: vk.Out[vk.i32, "N"]):
    i = vk.global_id(0)
    y[i] = x[i * y.shape[0]]  # bug: reads the first column


@vk.kernel(over="y")
def diagonal_good(x: vk.In[vk.i32, "N*N"], y: vk.Out[vk.i32, "N"]):
    i = vk.global_id(0)
    y[i] = x[i * (y.shape[0] + 1)]


def _unflattened(x: Any, y: Any) -> Any:
    return x.reshape(y.shape)


def _diagonal(x: Any, y: Any) -> Any:
    return x.reshape(len(y), len(y)).diagonal()


PAIRS = (
    pair(transposed, transposed_good, np.transpose),
    pair(unflattened, unflattened_good, _unflattened),
    pair(channels, channels_good, lambda x: x.reshape(-1, 3).sum(axis=1), minimal={"N": 2}),
    pair(every_second, every_second_good, lambda x: x[::2], minimal={"N": 2}),
    pair(product, product_good, np.matmul),
    pair(diagonal, diagonal_good, _diagonal, minimal={"N": 2}),
)
