"""What kernels written with tiles reach on a hardware device, beside PyTorch with CUDA on the same one.

Every row first compares a result with PyTorch's (or with the definition), then times the kernel alone by the device's clock,
and PyTorch's by CUDA's. Rates are TFLOP/s for products and GB/s of bytes read and written for the rest.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

import vkjit as vk
from benchmarks.framework import Row, Target
from benchmarks.groups.memory import gpu, torch
from vkjit.stdlib.tile_attention import attention
from vkjit.stdlib.tile_gemm import gemm
from vkjit.stdlib.tile_rows import layer_norm, row_size, softmax

T = TypeVar("T", bound=vk.Element)
REPEATS = 7
SIZE = 4096
ROWS_SHAPE = (4096, 8192)
LONG = 1 << 28
HEADS = (4, 16, 4096, 128)


# -- kernels of this file


def parts(x: Any, SPAN: int) -> int:
    """Workgroups for parts of a row."""
    return vk.cdiv(x.shape[0], SPAN)


def blocks(x: Any, SPAN: int) -> tuple[int, int]:
    """Workgroups for blocks of a matrix."""
    return vk.cdiv(x.shape[1], SPAN), vk.cdiv(x.shape[0], SPAN)


@vk.kernel(groups=parts, local=256)
def add(x: vk.In[T, "N"], y: vk.In[T, "N"], z: vk.Out[T, "N"], SPAN: vk.Const[int] = 4096) -> None:
    """z = x + y."""
    wg, i = vk.workgroup(), vk.group_id(0) * SPAN
    wg.store(z[i : i + SPAN], wg.load(x[i : i + SPAN]) + wg.load(y[i : i + SPAN]))


@vk.kernel(groups=parts, local=256)
def partial_sums(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "G"], SPAN: vk.Const[int] = 16384) -> None:
    """y[g] = the sum of part g."""
    wg, g = vk.workgroup(), vk.group_id(0)
    i = g * SPAN
    wg.store(y[g : g + 1], wg.sum(wg.load(x[i : i + SPAN]), axis=0, keepdims=True))


@vk.kernel(groups=blocks, local=256)
def transpose(x: vk.In[T, "M N"], y: vk.Out[T, "N M"], SPAN: vk.Const[int] = 64) -> None:
    """y = x.T."""
    wg, i, j = vk.workgroup(), vk.group_id(1) * SPAN, vk.group_id(0) * SPAN
    wg.store(y[j : j + SPAN, i : i + SPAN], wg.load(x[i : i + SPAN, j : j + SPAN]).T)


# -- measuring


def milliseconds(run: Callable[[], object]) -> float:
    """The median of some runs by the device's clock, after two to warm up."""
    found: list[float] = []
    for _ in range(REPEATS + 2):
        start, end = vk.Event(timing=True), vk.Event(timing=True)
        start.record()
        run()
        end.record()
        found.append(start.elapsed_time(end))
    return statistics.median(found[2:])


def torch_milliseconds(run: Callable[[], object]) -> float:
    """The same of PyTorch, by CUDA's clock."""
    found = []
    for _ in range(REPEATS + 2):
        start, end = (torch().cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        torch().cuda.synchronize()
        found.append(start.elapsed_time(end))
    return statistics.median(found[2:])


def agree(found: Any, expected: Any, tolerance: float) -> None:
    """RuntimeError where results differ by more than a part of the largest one."""
    got = np.asarray(found, np.float64)
    wanted = np.asarray(expected, np.float64)
    worst = float(np.abs(got - wanted).max() / max(np.abs(wanted).max(), 1e-30))
    if not worst <= tolerance:
        raise RuntimeError(f"the result is off by {worst:.2g} of the largest element, {tolerance:.2g} is allowed")


def unit(dtype: str) -> float:
    found: dict[str, float] = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24, "i8": 0.0}
    return found[dtype]


@functools.cache
def factors(dtype: str) -> tuple[Any, Any]:
    """Two square matrices as NumPy arrays."""
    random = np.random.default_rng(0)
    if dtype == "i8":
        return tuple(random.integers(-4, 5, (1, SIZE, SIZE)).astype(np.int8) for _ in range(2))  # type: ignore[return-value]
    kind = np.float16 if dtype == "f16" else np.float32
    return tuple(random.normal(size=(1, SIZE, SIZE)).astype(kind) for _ in range(2))  # type: ignore[return-value]


# -- products

TILES = {"f16": (128, 128, 32, 128), "bf16": (128, 128, 32, 128), "f32": (128, 128, 16, 256), "i8": (128, 128, 64, 128)}
"""Rows, columns and depth of the tiles, and invocations of a workgroup."""


def product(dtype: str, total: str) -> Callable[[], float]:
    """TFLOP/s of `gemm`."""

    def measure() -> float:
        with vk.use_device(gpu()):
            left, right = factors(dtype)
            kind = getattr(vk, dtype)
            a, b = (vk.tensor(x).to(kind) if dtype == "bf16" else vk.tensor(x) for x in (left, right))
            result = getattr(vk, total)
            c, bias = vk.empty((1, SIZE, SIZE), dtype=result), vk.zeros(SIZE, dtype=result)
            bm, bn, bk, threads = TILES[dtype]

            def run() -> None:
                gemm(a, b, bias, c, BM=bm, BN=bn, BK=bk, ACC=result, THREADS=threads)

            run()
            rows = np.linspace(0, SIZE - 1, 16).astype(int)
            exact = a.to(vk.f32).numpy()[0, rows].astype(np.float64) @ b.to(vk.f32).numpy()[0].astype(np.float64)
            tolerance = SIZE * unit(total) if total in ("f16", "f32") else 0.0
            agree(c.to(vk.f32).numpy()[0, rows], exact, tolerance)
            return 2.0 * SIZE**3 / (milliseconds(run) * 1e9)

    return measure


def torch_product(dtype: str) -> Callable[[], float]:
    def measure() -> float:
        left, right = (torch().from_numpy(x[0]).cuda() for x in factors(dtype))
        if dtype == "i8":
            run = lambda: torch()._int_mm(left, right)  # noqa: E731  the only way to it
        else:
            kind = {"f16": torch().float16, "bf16": torch().bfloat16, "f32": torch().float32}[dtype]
            left, right = left.to(kind), right.to(kind)
            run = lambda: left @ right  # noqa: E731
        return float(2.0 * SIZE**3 / (torch_milliseconds(run) * 1e9))

    return measure


# -- memory-bound


@functools.cache
def rows() -> Any:
    return np.random.default_rng(1).normal(size=ROWS_SHAPE).astype(np.float32)


def softmax_rate() -> float:
    with vk.use_device(gpu()):
        x, y = vk.tensor(rows()), vk.empty(ROWS_SHAPE)
        run = functools.partial(softmax, x, y, SIZE=row_size(ROWS_SHAPE[1]))
        run()
        part = rows()[:64].astype(np.float64)
        e = np.exp(part - part.max(axis=1, keepdims=True))
        agree(y.numpy()[:64], e / e.sum(axis=1, keepdims=True), 1e-5)
        return 8.0 * math.prod(ROWS_SHAPE) / (milliseconds(run) * 1e6)


def norm_rate() -> float:
    with vk.use_device(gpu()):
        x, y = vk.tensor(rows()), vk.empty(ROWS_SHAPE)
        w, b = vk.ones(ROWS_SHAPE[1]), vk.zeros(ROWS_SHAPE[1])
        run = functools.partial(layer_norm, x, w, b, y, eps=1e-5, SIZE=row_size(ROWS_SHAPE[1]))
        run()
        part = rows()[:64].astype(np.float64)
        centred = part - part.mean(axis=1, keepdims=True)
        agree(y.numpy()[:64], centred / np.sqrt(part.var(axis=1, keepdims=True) + 1e-5), 1e-5)
        return 8.0 * math.prod(ROWS_SHAPE) / (milliseconds(run) * 1e6)


def torch_rows(name: str) -> Callable[[], float]:
    def measure() -> float:
        x = torch().from_numpy(rows()).cuda()
        functional = torch().nn.functional
        run = functools.partial(functional.softmax, x, -1)
        if name == "norm":
            run = functools.partial(functional.layer_norm, x, (ROWS_SHAPE[1],))
        return float(8.0 * math.prod(ROWS_SHAPE) / (torch_milliseconds(run) * 1e6))

    return measure


def add_rate() -> float:
    with vk.use_device(gpu()):
        x, y, z = vk.ones(LONG), vk.ones(LONG), vk.empty(LONG)
        run = functools.partial(add, x, y, z)
        run()
        agree(z[-5:].numpy(), np.full(5, 2.0), 0.0)
        return 12.0 * LONG / (milliseconds(run) * 1e6)


def sum_rate() -> float:
    with vk.use_device(gpu()):
        x, y = vk.ones(LONG), vk.empty(LONG // 16384)
        run = functools.partial(partial_sums, x, y)
        run()
        agree(y.numpy(), np.full(LONG // 16384, 16384.0), 0.0)
        return 4.0 * LONG / (milliseconds(run) * 1e6)


def transpose_rate() -> float:
    with vk.use_device(gpu()):
        host = np.arange(8192 * 8192, dtype=np.float32).reshape(8192, 8192)
        x, y = vk.tensor(host), vk.empty((8192, 8192))
        run = functools.partial(transpose, x, y)
        run()
        agree(y.numpy(), host.T, 0.0)
        return 8.0 * host.size / (milliseconds(run) * 1e6)


def torch_long(name: str) -> Callable[[], float]:
    def measure() -> float:
        if name == "transpose":
            x = torch().ones((8192, 8192), device="cuda")
            return float(8.0 * 8192**2 / (torch_milliseconds(lambda: x.T.contiguous()) * 1e6))
        x, y = (torch().ones(LONG, device="cuda") for _ in range(2))
        if name == "sum":
            return float(4.0 * LONG / (torch_milliseconds(lambda: x.sum()) * 1e6))
        return float(12.0 * LONG / (torch_milliseconds(lambda: x + y) * 1e6))

    return measure


# -- attention


def attention_rate() -> float:
    with vk.use_device(gpu()):
        random = np.random.default_rng(2)
        host = [random.normal(size=HEADS).astype(np.float16) for _ in range(3)]
        q, k, v = (vk.tensor(x) for x in host)
        o, lse = vk.empty(HEADS, dtype=vk.f16), vk.empty(HEADS[:3])
        run = functools.partial(attention, q, k, v, o, lse, scale=HEADS[3] ** -0.5, SIZE=HEADS[3])
        run()
        first = [x[0, 0].astype(np.float64) for x in host]
        s = first[0][:64] @ first[1].T * HEADS[3] ** -0.5
        p = np.exp(s - s.max(axis=1, keepdims=True))
        agree(o.numpy()[0, 0, :64], p / p.sum(axis=1, keepdims=True) @ first[2], 4 * unit("f16"))
        return 4.0 * math.prod(HEADS) * HEADS[2] / (milliseconds(run) * 1e9)


def torch_attention() -> float:
    q, k, v = (torch().randn(HEADS, device="cuda", dtype=torch().float16) for _ in range(3))
    run = functools.partial(torch().nn.functional.scaled_dot_product_attention, q, k, v)
    return float(4.0 * math.prod(HEADS) * HEADS[2] / (torch_milliseconds(run) * 1e9))


_COPY = Target(value=2300)  # 0.8 of what a copy reaches on an H100

ROWS = [
    Row("gemm f16 -> f32 4096^3", "TFLOP/s", product("f16", "f32"), Target(value=250), "torch", torch_product("f16")),
    Row(
        "gemm bf16 -> f32 4096^3", "TFLOP/s", product("bf16", "f32"), Target(value=250), "torch", torch_product("bf16")
    ),
    Row("gemm f16 -> f16 4096^3", "TFLOP/s", product("f16", "f16"), Target(value=250), "torch", torch_product("f16")),
    Row("gemm i8 -> i32 4096^3", "TFLOP/s", product("i8", "i32"), Target(value=250), "torch", torch_product("i8")),
    Row("gemm f32 4096^3", "TFLOP/s", product("f32", "f32"), Target(value=40), "torch", torch_product("f32")),
    Row("softmax 4096x8192 f32", "GB/s", softmax_rate, _COPY, "torch", torch_rows("softmax")),
    Row("layer norm 4096x8192 f32", "GB/s", norm_rate, _COPY, "torch", torch_rows("norm")),
    Row("add 2^28 f32", "GB/s", add_rate, _COPY, "torch", torch_long("add")),
    Row("sum 2^28 f32", "GB/s", sum_rate, _COPY, "torch", torch_long("sum")),
    Row("transpose 8192^2 f32", "GB/s", transpose_rate, _COPY, "torch", torch_long("transpose")),
    Row("attention 4x16x4096x128 f16", "TFLOP/s", attention_rate, Target(value=150), "torch", torch_attention),
]
