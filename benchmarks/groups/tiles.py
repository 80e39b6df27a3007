"""Performance of tile kernels: on a hardware device compared with PyTorch on CUDA, and at small sizes on CPU devices.

Every row first compares a result with the definition in float64, then times the kernel alone, by the device's clock on
hardware and by wall time elsewhere. Rates are FLOP/s for products (also for i8) and GB/s of bytes read and written for
the others. PyTorch runs on CUDA for hardware, else on the CPU. On hardware, memory-bound kernels are also compared with
a copy of the same array, using the faster of the device's copy command and a copy kernel.
"""

from __future__ import annotations

import functools
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import vkjit as vk
from benchmarks.framework import Absent, Row, Target
from benchmarks.groups import memory
from benchmarks.tile_kernels import add, copy, partial_sums, transpose
from vkjit.stdlib.attention.dispatch import Masking, attend
from vkjit.stdlib.conv.geometry import Geometry
from vkjit.stdlib.conv.tile_plan import convolve_by_tiles
from vkjit.stdlib.matmul.tiles import gemm
from vkjit.stdlib.rows.tile_softmax_norm import layer_norm, row_size, softmax

REPEATS = 7
UNITS: dict[str, float] = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24}
"""Half an ulp of 1, by element type."""
Tiles = dict[str, tuple[int, int, int, int, str]]
"""Tile sizes BM, BN, BK, the workgroup size and the prefetch mode, by operand and accumulator types."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Devices and problem sizes of a set of rows. `suffix` is appended to row names; `kinds` are device kinds."""

    suffix: str
    kinds: tuple[str, ...]
    side: int
    rows: tuple[int, int]
    long: int
    square: int
    heads: tuple[int, int, int, int]
    conv: tuple[int, int, int]
    tiles: Tiles
    scale: float
    """Divisor for rates of products: 1e12 for TFLOP/s."""

    @property
    def hardware(self) -> bool:
        return not self.suffix

    @property
    def rounds(self) -> int:
        """Measurements per row; only one on CPU devices, where rows are slow and only informative."""
        return 3 if self.hardware else 1

    def device(self) -> Any:
        """Return the device; raises Absent if there is none."""
        if self.hardware:
            return memory.gpu()
        for info in vk.devices():
            if info.kind in self.kinds and not info.missing:
                return vk.device(info.index)
        raise Absent(f"no device of kind {' or '.join(self.kinds)}")

    def torch(self) -> Any:
        """Return PyTorch, with CUDA for hardware."""
        if self.hardware:
            return memory.torch()
        try:
            import torch
        except ImportError as error:
            raise Absent("PyTorch isn't installed") from error
        return torch

    def milliseconds(self, run: Callable[[], object]) -> float:
        """Return the median milliseconds of several runs after two warm-up runs."""
        times: list[float] = []
        for _ in range(REPEATS + 2):
            if self.hardware:
                start, end = vk.Event(timing=True), vk.Event(timing=True)
                start.record()
                run()
                end.record()
                times.append(start.elapsed_time(end))
            else:
                times.append(on_the_wall(run, vk.synchronize))
        return float(statistics.median(times[2:]))

    def torch_milliseconds(self, run: Callable[[], object]) -> float:
        """Return the median milliseconds of several runs of PyTorch code after two warm-up runs."""
        if not self.hardware:
            return statistics.median([on_the_wall(run) for _ in range(REPEATS + 2)][2:])
        cuda = self.torch().cuda
        times = []
        for _ in range(REPEATS + 2):
            start, end = (cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            run()
            end.record()
            cuda.synchronize()
            times.append(start.elapsed_time(end))
        return float(statistics.median(times[2:]))

    def to_torch(self, x: Any) -> Any:
        """Return a NumPy array as a tensor on the PyTorch device."""
        tensor = self.torch().from_numpy(x)
        return tensor.cuda() if self.hardware else tensor


def on_the_wall(*runs: Callable[[], object]) -> float:
    """Return the wall time in milliseconds of calling some functions in sequence."""
    start = time.perf_counter()
    for run in runs:
        run()
    return (time.perf_counter() - start) * 1e3


def milliseconds(run: Callable[[], object]) -> float:
    """Return the milliseconds of a run by the clock of the default device, which must be hardware."""
    return HARDWARE.milliseconds(run)


def agree(found: Any, expected: Any, tolerance: float) -> None:
    """Check results; raises RuntimeError if they differ by more than `tolerance` times the largest element."""
    actual = np.asarray(found, np.float64)
    reference = np.asarray(expected, np.float64)
    worst = float(np.abs(actual - reference).max() / max(np.abs(reference).max(), 1e-30))
    if not worst <= tolerance:
        raise RuntimeError(f"the result is off by {worst:.2g} of the largest element, {tolerance:.2g} is allowed")


# -- matrix products


@functools.cache
def operands(dtype: str, side: int) -> tuple[Any, Any]:
    """Return two square matrices as NumPy arrays; their values are exact in `dtype`, except for bf16."""
    random = np.random.default_rng(0)
    if dtype == "i8":
        return tuple(random.integers(-4, 5, (1, side, side)).astype(np.int8) for _ in range(2))  # type: ignore[return-value]
    kind = np.float16 if dtype == "f16" else np.float32
    return tuple(random.normal(size=(1, side, side)).astype(kind) for _ in range(2))  # type: ignore[return-value]


def product_rate(at: Setting, dtype: str, total: str) -> float:
    """Return the FLOP/s of `gemm`, divided by `at.scale`."""
    with vk.use_device(at.device()):
        kind, result, side = getattr(vk, dtype), getattr(vk, total), at.side
        a, b = (vk.tensor(x, dtype=kind) for x in operands(dtype, side))
        c, bias = vk.empty((1, side, side), dtype=result), vk.zeros(side, dtype=result)
        bm, bn, bk, threads, ahead = at.tiles[f"{dtype} {total}"]
        sizes: dict[str, Any] = {
            "BM": bm,
            "BN": bn,
            "BK": bk,
            "THREADS": threads,
            "PREFETCH": ahead,
            "WHOLE": ahead != "",
        }
        run = functools.partial(gemm, a, b, bias, c, ACC=result, **sizes)
        run()
        rows = np.linspace(0, side - 1, 16).astype(int)
        exact = a.to(vk.f32).numpy()[0, rows].astype(np.float64) @ b.to(vk.f32).numpy()[0].astype(np.float64)
        agree(c.to(vk.f32).numpy()[0, rows], exact, side * UNITS.get(total, 0.0))
        return 2.0 * side**3 / (at.milliseconds(run) / 1e3) / at.scale


def torch_product_rate(at: Setting, dtype: str, _total: str) -> float:
    torch = at.torch()
    left, right = (at.to_torch(x[0]) for x in operands(dtype, at.side))
    if dtype == "i8":
        run = functools.partial(torch._int_mm, left, right)  # the only integer matrix product
    else:
        kind = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}[dtype]
        left, right = left.to(kind), right.to(kind)
        run = functools.partial(torch.matmul, left, right)
    return 2.0 * at.side**3 / (at.torch_milliseconds(run) / 1e3) / at.scale


# -- memory-bound kernels


@functools.cache
def matrix(shape: tuple[int, int]) -> Any:
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)


def softmax_rate(at: Setting) -> float:
    with vk.use_device(at.device()):
        x, y = vk.tensor(matrix(at.rows)), vk.empty(at.rows)
        run = functools.partial(softmax, x, y, SIZE=row_size(at.rows[1]))
        run()
        part = matrix(at.rows)[:64].astype(np.float64)
        e = np.exp(part - part.max(axis=1, keepdims=True))
        agree(y.numpy()[:64], e / e.sum(axis=1, keepdims=True), 1e-5)
        return 8.0 * math.prod(at.rows) / (at.milliseconds(run) * 1e6)


def norm_rate(at: Setting) -> float:
    with vk.use_device(at.device()):
        x, y = vk.tensor(matrix(at.rows)), vk.empty(at.rows)
        w, b = vk.ones(at.rows[1]), vk.zeros(at.rows[1])
        run = functools.partial(layer_norm, x, w, b, y, eps=1e-5, SIZE=row_size(at.rows[1]))
        run()
        part = matrix(at.rows)[:64].astype(np.float64)
        centred = part - part.mean(axis=1, keepdims=True)
        agree(y.numpy()[:64], centred / np.sqrt(part.var(axis=1, keepdims=True) + 1e-5), 1e-5)
        return 8.0 * math.prod(at.rows) / (at.milliseconds(run) * 1e6)


def torch_softmax_rate(at: Setting) -> float:
    x, functional = at.to_torch(matrix(at.rows)), at.torch().nn.functional
    return 8.0 * math.prod(at.rows) / (at.torch_milliseconds(lambda: functional.softmax(x, -1)) * 1e6)


def torch_norm_rate(at: Setting) -> float:
    x, functional = at.to_torch(matrix(at.rows)), at.torch().nn.functional
    return 8.0 * math.prod(at.rows) / (at.torch_milliseconds(lambda: functional.layer_norm(x, (at.rows[1],))) * 1e6)


def add_rate(at: Setting) -> float:
    with vk.use_device(at.device()):
        x, y, z = vk.arange(at.long, dtype=vk.f32), vk.ones(at.long), vk.empty(at.long)
        run = functools.partial(add, x, y, z)
        run()
        agree(z[-500:].numpy(), np.arange(at.long - 500, at.long) + 1.0, UNITS["f32"])
        return 12.0 * at.long / (at.milliseconds(run) * 1e6)


def sum_rate(at: Setting) -> float:
    with vk.use_device(at.device()):
        x, y = vk.ones(at.long), vk.empty(at.long // 16384)
        run = functools.partial(partial_sums, x, y)
        run()
        agree(y.numpy(), np.full(at.long // 16384, 16384.0), 0.0)
        return 4.0 * at.long / (at.milliseconds(run) * 1e6)


def transpose_rate(at: Setting) -> float:
    with vk.use_device(at.device()):
        host = np.arange(at.square**2, dtype=np.float32).reshape(at.square, at.square)
        x, y = vk.tensor(host), vk.empty(host.shape)
        run = functools.partial(transpose, x, y)
        run()
        agree(y.numpy(), host.T, 0.0)
        return 8.0 * host.size / (at.milliseconds(run) * 1e6)


def torch_ones(at: Setting, shape: Any) -> Any:
    return at.torch().ones(shape, **({"device": "cuda"} if at.hardware else {}))


def torch_add_rate(at: Setting) -> float:
    x, y, z = (torch_ones(at, at.long) for _ in range(3))
    return 12.0 * at.long / (at.torch_milliseconds(lambda: at.torch().add(x, y, out=z)) * 1e6)


def torch_sum_rate(at: Setting) -> float:
    return 4.0 * at.long / (at.torch_milliseconds(torch_ones(at, at.long).sum) * 1e6)


def torch_transpose_rate(at: Setting) -> float:
    x = torch_ones(at, (at.square, at.square))
    return 8.0 * at.square**2 / (at.torch_milliseconds(lambda: x.T.contiguous()) * 1e6)


def copy_rate(at: Setting, elements: int) -> float:
    """Return the GB/s of copying `elements` f32 values."""
    with vk.use_device(at.device()):
        x, y = vk.arange(elements, dtype=vk.f32), vk.empty(elements)
        runs = (functools.partial(copy, x, y), functools.partial(y.copy_, x))
        for run in runs:
            y.zero_()
            run()
            agree(y[-500:].numpy(), np.arange(elements - 500, elements), UNITS["f32"])
        return 8.0 * elements / (min(at.milliseconds(run) for run in runs) * 1e6)


# -- attention


def attention_rate(at: Setting) -> float:
    with vk.use_device(at.device()):
        random, size = np.random.default_rng(2), at.heads[3]
        host = [random.normal(size=at.heads).astype(np.float16) for _ in range(3)]
        q, k, v = (vk.tensor(x) for x in host)
        o = vk.empty(at.heads, dtype=vk.f16)
        run = functools.partial(attend, q._array, k._array, v._array, o._array, size**-0.5, Masking())
        run()
        first = [x[0, 0].astype(np.float64) for x in host]
        s = first[0][:64] @ first[1].T * size**-0.5
        p = np.exp(s - s.max(axis=1, keepdims=True))
        agree(o.numpy()[0, 0, :64], p / p.sum(axis=1, keepdims=True) @ first[2], 4 * UNITS["f16"])
        return 4.0 * math.prod(at.heads) * at.heads[2] / (at.milliseconds(run) / 1e3) / at.scale


def torch_attention_rate(at: Setting) -> float:
    torch = at.torch()
    q, k, v = (at.to_torch(np.random.default_rng(2).normal(size=at.heads).astype(np.float16)) for _ in range(3))
    run = functools.partial(torch.nn.functional.scaled_dot_product_attention, q, k, v)
    return 4.0 * math.prod(at.heads) * at.heads[2] / (at.torch_milliseconds(run) / 1e3) / at.scale


# -- convolution


@functools.cache
def images(sizes: tuple[int, int, int]) -> tuple[Any, Any]:
    """Return f16 images (N, C, 1, H, H) and weights (C, C, 1, 3, 3)."""
    batch, channels, side = sizes
    random = np.random.default_rng(3)
    shapes = ((batch, channels, 1, side, side), (channels, channels, 1, 3, 3))
    return tuple(random.normal(size=shape).astype(np.float16) for shape in shapes)  # type: ignore[return-value]


def conv_flops(at: Setting) -> float:
    batch, channels, side = at.conv
    return 2.0 * batch * channels**2 * side**2 * 9


def conv_rate(at: Setting) -> float:
    batch, channels, side = at.conv
    with vk.use_device(at.device()):
        x, w = (vk.tensor(host) for host in images(at.conv))
        y, one = vk.empty(x.shape, dtype=vk.f16), (1, 1, 1)
        size, taps = (1, side, side), (1, 3, 3)
        geometry = Geometry(batch, 1, channels, channels, size, taps, size, one, (0, 1, 1), one)
        run = functools.partial(convolve_by_tiles, x._array, w._array, None, y._array, geometry)
        run()
        image, kernel = (host.astype(np.float64) for host in images(at.conv))
        wide = np.pad(image[-1, :, 0], ((0, 0), (1, 1), (1, 1)))
        exact = sum(
            np.einsum("chw,fc->fhw", wide[:, r : r + side, s : s + side], kernel[-8:, :, 0, r, s])
            for r in range(3) for s in range(3)
        )  # fmt: skip
        agree(y[-1, -8:, 0].to(vk.f32).numpy(), exact, 2 * UNITS["f16"])
        return conv_flops(at) / (at.milliseconds(run) / 1e3) / at.scale


def torch_conv_rate(at: Setting) -> float:
    torch = at.torch()
    x, w = (at.to_torch(host[:, :, 0]) for host in images(at.conv))
    if at.hardware:
        x, w = (t.to(memory_format=torch.channels_last) for t in (x, w))
    run = functools.partial(torch.nn.functional.conv2d, x, w, padding=1)
    return conv_flops(at) / (at.torch_milliseconds(run) / 1e3) / at.scale


# -- rows

PRODUCTS = (("f16", "f32"), ("bf16", "f32"), ("f16", "f16"), ("i8", "i32"), ("f32", "f32"))
"""Operand and accumulator types."""
LARGE_TILES: Tiles = {
    "f16 f32": (128, 256, 64, 256, "overlap"),
    "bf16 f32": (128, 256, 64, 256, "overlap"),
    "f16 f16": (256, 256, 32, 256, "overlap late"),
    "i8 i32": (256, 128, 128, 256, "overlap"),
    "f32 f32": (128, 128, 32, 256, "early"),
}
HARDWARE = Setting(
    "", ("discrete", "integrated", "virtual"), 4096, (4096, 8192), 1 << 28, 8192, (4, 16, 4096, 128), (32, 256, 56),
    LARGE_TILES, 1e12,
)  # fmt: skip
PROCESSOR = Setting(
    ", cpu", ("llvm-cpu",), 512, (1024, 1024), 1 << 22, 1024, (1, 2, 256, 64), (2, 32, 28),
    dict.fromkeys(LARGE_TILES, (64, 64, 32, 64, "")), 1e9,
)  # fmt: skip
SOFTWARE = Setting(
    ", software driver", ("cpu",), 128, (256, 1024), 1 << 20, 512, (1, 1, 128, 64), (1, 16, 14),
    dict.fromkeys(LARGE_TILES, (16, 32, 32, 64, "")), 1e9,
)  # fmt: skip


_COPY = Target(value=2300)  # 0.8 of the copy rate of an H100
_BESIDE = Target(ratio=0.8)


def rows_of(at: Setting, product: Target, f32: Target, bytes_moved: Target, heads: Target) -> list[Row]:
    """Return all rows of a setting; `heads` is the target of attention and convolution."""
    flops, made = ("TFLOP/s" if at.hardware else "GFLOP/s"), []

    def row(name: str, unit: str, ours: Any, target: Target, theirs: Any, *more: str) -> None:
        first, second = (functools.partial(f, at, *more) for f in (ours, theirs))
        made.append(Row(name + at.suffix, unit, first, target, "torch", second, at.rounds))

    for dtype, total in PRODUCTS:
        name = f"gemm {dtype} -> {total} {at.side}^3" if dtype != "f32" else f"gemm f32 {at.side}^3"
        target = f32 if dtype == "f32" else product
        row(name, flops, product_rate, target, torch_product_rate, dtype, total)
    height, width = at.rows
    power = at.long.bit_length() - 1
    bound: list[tuple[str, Any, Any, int]] = [
        (f"softmax {height}x{width} f32", softmax_rate, torch_softmax_rate, height * width),
        (f"layer norm {height}x{width} f32", norm_rate, torch_norm_rate, height * width),
        (f"add 2^{power} f32", add_rate, torch_add_rate, at.long),
        (f"sum 2^{power} f32", sum_rate, torch_sum_rate, at.long),
        (f"transpose {at.square}^2 f32", transpose_rate, torch_transpose_rate, at.square**2),
    ]
    for name, ours, theirs, _ in bound:
        row(name, "GB/s", ours, bytes_moved, theirs)
    for name, ours, _, elements in bound if at.hardware else ():
        beside = functools.partial(copy_rate, at, elements)
        made.append(
            Row(f"{name} beside a copy", "GB/s", functools.partial(ours, at), _BESIDE, "copy", beside, at.rounds)
        )
    row(f"attention {'x'.join(map(str, at.heads))} f16", flops, attention_rate, heads, torch_attention_rate)
    row(f"conv {'x'.join(map(str, (*at.conv, at.conv[2])))} k3 f16", flops, conv_rate, heads, torch_conv_rate)
    return made


_ONE, _HALF = Target(value=1.0), Target(value=0.5)

ROWS = [
    *rows_of(HARDWARE, Target(value=250), Target(value=40), _COPY, Target(value=150)),
    *rows_of(PROCESSOR, _ONE, Target(value=30), _ONE, _ONE),
    *rows_of(SOFTWARE, _HALF, _ONE, _HALF, Target(value=0.1)),
]
