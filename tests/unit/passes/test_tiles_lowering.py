# mypy: disable-error-code="var-annotated, no-untyped-def"
"""Tests of lowering tiles: layouts, engines, barriers, and lowered programs against the interpreter on tiles."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from tests.unit.passes.tile_lowering import OPTIONS, caps_with, high, lowered, matrices
from vkjit.backends.interp import run_module
from vkjit.backends.interp.runtime.device import INTERPRETER_CAPS
from vkjit.compiler.driver import emit_module
from vkjit.errors import CompileError
from vkjit.ir.core import Module
from vkjit.ir.types import Scalar, Vector
from vkjit.passes import pipeline
from vkjit.passes.tiles.layout import Layout, default_layout, staging
from vkjit.passes.tiles.lower import options_for
from vkjit.spirv import tools
from vkjit.stdlib.attention.backward import key_gradients, query_gradient
from vkjit.stdlib.attention.dispatch import MATRIX_HEAD_SIZES, MATRIX_SHARED_BYTES, MATRIX_TILE, tiles_for
from vkjit.stdlib.attention.forward import attention, attention_16bit
from vkjit.stdlib.matmul.tiles import gemm, gemm_transposed
from vkjit.testing.fuzz.check import Checker
from vkjit.testing.fuzz.tiles import generate_tiles

SHAPES = [(1,), (7,), (64,), (1000,), (1, 1), (1, 33), (33, 1), (16, 16), (5, 128), (128, 3), (2, 3, 5), (4, 2, 8, 3)]


def owners(layout: Layout, invocations: int) -> Counter[tuple[int, ...]]:
    """Count the slots of all invocations that hold each element."""
    found: Counter[tuple[int, ...]] = Counter()
    for rank in range(invocations):
        if rank & ~layout.used_mask:
            continue
        for slot in layout.slots():
            at = tuple(
                axis.offset(s) + (rank >> axis.shift) % (1 << axis.bits) * axis.group
                for axis, s in zip(layout.axes, slot, strict=True)
            )
            if all(p < axis.size for p, axis in zip(at, layout.axes, strict=True)):
                found[at] += 1
    return found


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bits", [0, 3, 6])
@pytest.mark.parametrize("vector", [1, 4])
def test_each_element_has_one_owner(shape: tuple[int, ...], bits: int, vector: int) -> None:
    layouts = [
        default_layout(shape, bits, "workgroup", vector),
        default_layout(shape, bits, "workgroup", vector, lane_bits=2),
    ]
    layouts += [staging(shape, fastest, bits, "workgroup", vector) for fastest in range(len(shape))]
    everywhere = set(np.ndindex(*shape))
    for layout in layouts:
        found = owners(layout, 1 << bits)
        assert set(found) == everywhere
        assert set(found.values()) == {1}


def product_arguments(
    sizes: tuple[int, int, int], tile: tuple[int, int, int], factor: Any, total: Any, acc: Any, threads: int
) -> tuple[list[Any], Any]:
    (m, k, n), random = sizes, np.random.default_rng(1)
    a, b = (random.integers(-4, 5, (1, *shape)).astype(np.float32) for shape in ((m, k), (k, n)))
    expected = np.matmul(a, b)
    if factor == np.uint16:  # bf16
        a, b = ((x.view(np.uint32) >> 16).astype(np.uint16) for x in (a, b))  # type: ignore[assignment]
    else:
        a, b = a.astype(factor), b.astype(factor)
    c = np.full(expected.shape, 77, total)
    return [a, b, np.zeros(n, total), c, *tile, acc, "", False, threads, "", False], expected


def run_product(module: Module, arguments: list[Any], subgroup: int) -> None:
    (_, m, n), (bm, bn) = arguments[3].shape, arguments[4:6]
    run_module(module, (-(-n // bn), -(-m // bm), 1), arguments[:4], subgroup_size=subgroup)


@pytest.mark.parametrize(
    ("sizes", "tile", "factor", "total", "acc", "shape", "subgroup", "threads"),
    [
        ((64, 64, 64), (32, 32, 16), np.float16, np.float32, vk.f32, (16, 16, 16), 8, 32),
        ((40, 24, 40), (32, 32, 16), np.float16, np.float32, vk.f32, (8, 16, 4), 8, 64),
        ((37, 21, 45), (32, 64, 16), np.float16, np.float32, vk.f32, (16, 8, 8), 32, 128),
        ((40, 24, 40), (32, 64, 16), np.float16, np.float16, vk.f16, (16, 16, 16), 32, 128),
        ((40, 24, 40), (32, 64, 16), np.float16, np.float16, vk.f32, (16, 16, 16), 16, 64),
        ((40, 32, 40), (32, 64, 16), np.uint16, np.float32, vk.f32, (16, 16, 16), 32, 128),
        ((72, 24, 136), (128, 128, 16), np.float16, np.float32, vk.f32, (16, 16, 16), 32, 128),
        ((140, 24, 88), (128, 128, 16), np.float16, np.float16, vk.f16, (16, 16, 16), 32, 128),
        ((37, 64, 45), (32, 64, 32), np.int8, np.int32, vk.i32, (16, 16, 32), 16, 64),
    ],
)
@pytest.mark.parametrize("aligned", [True, False])
def test_products_on_a_stand_in_for_matrices(
    sizes: Any, tile: Any, factor: Any, total: Any, acc: Any, shape: Any, subgroup: int, threads: int, aligned: bool
) -> None:
    arguments, expected = product_arguments(sizes, tile, factor, total, acc, threads)
    itemsize = arguments[0].itemsize
    aligned = aligned and all(size * itemsize % 16 == 0 for size in sizes[1:])  # what launches guarantee
    module = lowered(
        high(gemm, arguments, threads, contiguous=True, aligned=aligned), caps_with(matrices(*shape), subgroup)
    )
    notes = str(module.kernel.attrs["tiles"])
    assert "engine matrix" in notes
    assert ("in the memory of factors, 2 columns of subgroups one after the other" in notes) == (tile[1] == 128)
    run_product(module, arguments, subgroup)
    np.testing.assert_array_equal(arguments[3], expected)


@pytest.mark.parametrize("sizes", [(64, 64, 64), (40, 24, 40), (37, 20, 44), (5, 0, 8)])
@pytest.mark.parametrize(("factor", "acc"), [(np.float32, vk.f32), (np.int32, vk.i32)])
@pytest.mark.parametrize("how", ["", "early"])
def test_factors_of_32_bits_are_staged_in_vectors(sizes: Any, factor: Any, acc: Any, how: str) -> None:
    """Applies where rows begin at multiples of 16 bytes and the matrix engine isn't used."""
    for depth in (16, 4):
        arguments, expected = product_arguments(sizes, (16, 32, depth), factor, factor, acc, 64)
        arguments[-2] = how
        module = lowered(high(gemm, arguments, 64, contiguous=True, aligned=True))
        notes = str(module.kernel.attrs["tiles"])
        assert "engine fma" in notes
        assert f"a staged in lines of {depth // 4} vectors of 16 bytes" in notes
        run_product(module, arguments, 8)
        np.testing.assert_array_equal(arguments[3], expected.astype(factor))


@pytest.mark.parametrize("how", ["", "early", "late", "overlap"])
def test_attention_on_a_stand_in_for_matrices(how: str) -> None:
    random, (m, n, d) = np.random.default_rng(2), (37, 51, 32)
    q, k, v = (random.normal(size=(1, h, rows, d)).astype(np.float16) for h, rows in ((2, m), (1, n), (1, n)))
    o, lse = np.zeros_like(q), np.zeros((1, 2, m), np.float32)
    arguments = [q, k, v, q, o, lse, np.float32(0.2), np.int32(n - m), 32, 32, 32, True, "", 128, how]
    module = lowered(
        high(attention, arguments, 128, contiguous=True, aligned=bool(how)), caps_with(matrices(16, 16, 16), 32)
    )
    assert str(module.kernel.attrs["tiles"]).count("engine matrix") == 2
    assert str(module.kernel.attrs["tiles"]).count("the next round's right factor is loaded") == (2 if how else 0)
    assert "the slice stays in matrices, for a product in a loop" in str(module.kernel.attrs["tiles"])
    run_module(module, (2, 2, 1), arguments[:8], subgroup_size=32)
    s = q.astype(np.float64) @ k.astype(np.float64).transpose(0, 1, 3, 2) * 0.2
    s = np.where(np.arange(n) <= np.arange(m)[:, None] + n - m, s, -np.inf)
    p = np.exp(s - s.max(axis=-1, keepdims=True))
    exact = p / p.sum(axis=-1, keepdims=True) @ v.astype(np.float64)
    np.testing.assert_allclose(o, exact, atol=8 * float(np.finfo(np.float16).eps))


def test_gradients_of_attention_on_a_stand_in_for_matrices() -> None:
    """Accumulators carried by two nested loops stay in matrices."""
    random, (m, n, d) = np.random.default_rng(2), (37, 51, 32)
    q, k, v, g = (
        random.normal(size=(1, h, rows, d)).astype(np.float16) for h, rows in ((2, m), (1, n), (1, n), (2, m))
    )
    s = q.astype(np.float64) @ k.astype(np.float64).transpose(0, 1, 3, 2) * 0.2
    s = np.where(np.arange(n) <= np.arange(m)[:, None] + n - m, s, -np.inf)
    lse = np.log(np.exp(s).sum(axis=-1))
    p = np.exp(s - lse[..., None])
    slope = g.astype(np.float64) @ v.astype(np.float64).transpose(0, 1, 3, 2)
    delta = (slope * p).sum(axis=-1)
    ds = p * (slope - delta[..., None])
    dk, dv = np.zeros_like(k), np.zeros_like(v)
    given = [q, k, v, q, g, lse.astype(np.float32), delta.astype(np.float32), dk, dv, np.float32(0.2), np.int32(n - m)]
    module = lowered(
        high(key_gradients, [*given, 32, 32, 32, True, "", True], 128, contiguous=True),
        caps_with(matrices(16, 16, 16), 32),
    )
    assert str(module.kernel.attrs["tiles"]).count("engine matrix") == 4
    run_module(module, (2, 1, 1), given, subgroup_size=32)
    unit = float(np.finfo(np.float16).eps)
    for found, left, right in ((dk, ds * 0.2, q), (dv, p, g)):
        exact = (left.transpose(0, 1, 3, 2) @ right).sum(axis=1, keepdims=True)
        size = (np.abs(left).transpose(0, 1, 3, 2) @ np.abs(right)).sum(axis=1, keepdims=True)
        assert (np.abs(found - exact) <= unit * (size + np.abs(exact)) + 2**-24).all()


@pytest.mark.parametrize(
    ("head", "dtype", "shared"), [(256, np.float16, 48), (128, np.float16, 48), (256, np.float32, 32)]
)
def test_tiles_of_attention_fit_into_shared_memory(head: int, dtype: Any, shared: int) -> None:
    caps = dataclasses.replace(GPU, shared_bytes=shared << 10)
    tiles = tiles_for(head, np.dtype(dtype).itemsize, caps.shared_bytes)
    assert tiles is not None
    x, sums = np.zeros((1, 1, 4, head), dtype), np.zeros((1, 1, 4), np.float32)
    numbers = [np.float32(1), np.int32(0), tiles.size]
    forward = [x, x, x, x, x, sums, *numbers, *tiles.forward, True, "", 128, "early"]
    query = [x, x, x, x, x, sums, sums, x, *numbers, *tiles.backward, True, "", tiles.stage_operands]
    keys = [*query[:8], x, *query[8:]]
    for kernel, arguments in ((attention, forward), (query_gradient, query), (key_gradients, keys)):
        lowered(high(kernel, arguments, 128, contiguous=True), caps, options_for(caps))  # CompileError if too large


@pytest.mark.parametrize("mask", ["", "keep", "add"])
@pytest.mark.parametrize("head", MATRIX_HEAD_SIZES)
def test_large_tiles_of_attention_fit_into_shared_memory(head: int, mask: str) -> None:
    x, sums = np.zeros((1, 1, 4, head), np.float16), np.zeros((1, 1, 4), np.float32)
    seen = {"": x, "keep": np.zeros((1, 1, 4, 4), np.bool_), "add": np.zeros((1, 1, 4, 4), np.float16)}[mask]
    arguments = [
        x,
        x,
        x,
        seen,
        x,
        sums,
        np.float32(1),
        np.int32(0),
        head,
        *MATRIX_TILE[:2],
        True,
        mask,
        MATRIX_TILE[2],
        "late",
    ]
    caps = dataclasses.replace(GPU, shared_bytes=MATRIX_SHARED_BYTES)
    lowered(high(attention_16bit, arguments, MATRIX_TILE[2], contiguous=True), caps, options_for(caps))


GPU = dataclasses.replace(
    INTERPRETER_CAPS, kind="discrete", subgroup_sizes=(32,), shared_bytes=48 << 10, push_constant_bytes=256,
    matrices=matrices(16, 16, 16), features=INTERPRETER_CAPS.features | {"cooperative_matrix"},
)  # fmt: skip


@pytest.mark.skipif(not tools.available("spirv-val"), reason="spirv-val isn't installed")
@pytest.mark.parametrize("factor", [np.float16, np.float32])
def test_spirv_of_products_is_valid(factor: Any) -> None:
    arguments, _ = product_arguments((64, 64, 64), (64, 64, 16), factor, np.float32, vk.f32, 128)
    module = pipeline.run(high(gemm, arguments, 128, contiguous=True, aligned=True), GPU)
    tools.validate(emit_module(module, GPU).code)
    assert ("engine matrix" in str(module.kernel.attrs["tiles"])) == (factor == np.float16)


@pytest.mark.parametrize("ahead", ["", "early", "late"])
@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("sizes", [(64, 32, 64), (40, 24, 52), (36, 4, 8)])
def test_factors_of_32_bits_are_read_in_vectors(sizes: Any, transposed: tuple[bool, bool], ahead: str) -> None:
    """Covers both memory orders, tiles partly outside their arrays, and fewer blocks than invocations."""
    m, k, n = sizes
    random = np.random.default_rng(3)
    a, b = (random.integers(-4, 5, (1, *shape)).astype(np.float32) for shape in ((m, k), (k, n)))
    factors = [
        np.ascontiguousarray(x.swapaxes(1, 2)) if flip else x for x, flip in zip((a, b), transposed, strict=True)
    ]
    c = np.full((1, m, n), 77, np.float32)
    arguments = [*factors, np.zeros(n, np.float32), c, 32, 32, 16, vk.f32, *transposed, "", False, 32, ahead]
    module = lowered(high(gemm_transposed, [*arguments, False], 32, contiguous=True, aligned=True))
    text = str(module.kernel.attrs["tiles"])
    assert "each invocation sums 32 = 8 x 4 by 4, 32 = 4 x 8 by 4" in text
    assert text.count("turned on the way") == (not transposed[0]) + transposed[1]
    loads = [op for op in module.kernel.body.walk() if op.name == "load" and isinstance(op.result.type, Vector)]
    assert loads
    products = [op for op in module.kernel.body.walk() if op.name == "mul" and op.result.type == Scalar(vk.f32)]
    assert len(products) == 32 * (16 if ahead else 2), "steps of a round that are written out"
    run_module(module, (-(-n // 32), -(-m // 32), 1), arguments[:4], subgroup_size=8)
    np.testing.assert_array_equal(c, np.matmul(a, b))


# -- division


def shared_divisors(x: vk.In[vk.f32, "N"], d: vk.In[vk.f32, "R"], y: vk.Out[vk.f32, "R N"], z: vk.Out[vk.f32, "R N"]):
    wg, r = vk.workgroup(), vk.group_id(0)
    row = wg.load(x[0:256])
    wg.store(y[r, 0:256], row / d[r])
    columns = wg.reshape(wg.load(d[r : r + 1]), (1, 1))
    wg.store(z[r : r + 1, 0:256], wg.reshape(row, (1, 256)) / columns)


def test_quotients_by_shared_numbers() -> None:
    """Results are within the error bound of a division at any magnitude; infinities, zeros and NaN are exact."""
    random = np.random.default_rng(5)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1, -3, 2.0**-126, 2.0**127, -(2.0**-90), 3e38], np.float32)
    x, d = (
        np.concatenate([special, np.ldexp(random.uniform(1, 2, n), random.integers(-120, 120, n)).astype(np.float32)])
        for n in (256 - len(special), 30)
    )
    found = [np.zeros((len(d), 256), np.float32) for _ in range(2)]
    module = lowered(high(shared_divisors, [x, d, *found], 32))
    assert sum(op.name == "div" for op in module.kernel.body.walk()) == 2
    with np.errstate(all="ignore"):
        run_module(module, (len(d), 1, 1), [x, d, *found], subgroup_size=8)
        exact = x.astype(np.float64) / d[:, None].astype(np.float64)
        rounded = exact.astype(np.float32)
    normal = np.isfinite(rounded) & (np.abs(rounded) >= 2.0**-126)
    for y in found:
        np.testing.assert_array_equal(np.isnan(y), np.isnan(exact))
        off = np.abs(y.astype(np.float64)[normal] - exact[normal]) / np.spacing(np.abs(rounded[normal]))
        assert off.max() < 2.5
        others = ~normal & ~np.isnan(exact)
        np.testing.assert_allclose(y[others], rounded[others], atol=2.0**-126)
        np.testing.assert_array_equal(np.signbit(y[others]), np.signbit(rounded[others]))


def test_few_elements_and_strict_kernels_are_divided() -> None:
    arguments = [
        np.zeros(256, np.float32),
        np.zeros(1, np.float32),
        *(np.zeros((1, 256), np.float32) for _ in range(2)),
    ]
    strict = high(shared_divisors, arguments, 32)
    strict.kernel.attrs["strict"] = True
    for module in (strict, high(shared_divisors, arguments, 128)):
        assert (
            sum(op.name == "div" for op in lowered(module).kernel.body.walk())
            == 2 * 256 // module.kernel.attrs["local_size"][0]
        )


# -- barriers


def barriers(module: Module) -> int:
    return sum(op.name == "barrier" for op in module.kernel.body.walk())


def test_a_round_of_a_product_waits_twice() -> None:
    arguments, _ = product_arguments((32, 32, 32), (32, 32, 8), np.float32, np.float32, vk.f32, 64)
    assert barriers(lowered(high(gemm, arguments, 64))) == 2
    direct = lowered(high(gemm, arguments, 64), options=dataclasses.replace(OPTIONS, reads_global_memory=True))
    assert barriers(direct) == 0
    assert not any(op.name == "shared" for op in direct.kernel.body.walk())


def elementwise(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    wg = vk.workgroup()
    wg.store(y[0:100], wg.load(x[0:100]) * 2 + 1)


def in_place_reversed(x: vk.InOut[vk.f32, "N"]):
    wg = vk.workgroup()
    t = wg.load(x[0:64])
    wg.store(x[0:64], t + 1)
    wg.store(x[0:64], wg.reshape(wg.load(x[0:64]), (8, 8)).T.shape[0] + wg.load(x[0:64]))


def test_only_what_conflicts_waits() -> None:
    x = np.zeros(100, np.float32)
    assert barriers(lowered(high(elementwise, [x, x], 32))) == 0
    assert barriers(lowered(high(in_place_reversed, [x], 32))) >= 3


# -- limits


def too_much(x: vk.InOut[vk.f32, "M N"]):
    wg = vk.workgroup()
    wg.store(x[0:128, 0:128], wg.load(x[0:128, 0:128]) * 2)


def too_much_shared(a: vk.In[vk.f32, "M N"], x: vk.InOut[vk.f32, "M N"]):
    wg = vk.workgroup()
    wg.store(x[0:32, 0:32], wg.mma(a[0:32, 0:512], a[0:512, 0:32], wg.zeros((32, 32), vk.f32)))


def test_limits_are_told() -> None:
    x = np.zeros((4, 4), np.float32)
    with pytest.raises(CompileError, match="each of the 8 invocations would hold 2048 elements of a tile of 128 x 128"):
        lowered(high(too_much, [x], 8))
    with pytest.raises(CompileError, match="bytes of shared memory, this device has 49152"):
        lowered(high(too_much_shared, [x, x], 64))


# -- random programs


@pytest.mark.parametrize("seed", range(24))
def test_random_programs(seed: int) -> None:
    """A sample of `python -m vkjit.testing.fuzz --tiles`: the interpreter on tiles against the lowered program."""
    finding = Checker([]).check(generate_tiles(seed, 5), "tiles")
    assert finding is None
