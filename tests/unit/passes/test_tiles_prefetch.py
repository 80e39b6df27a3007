# mypy: disable-error-code="no-untyped-def, operator"
"""Tests of loops that prefetch the operands of their next iteration, run on the interpreter and compared with NumPy."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from tests.unit.passes.tile_lowering import OPTIONS, caps_with, high, lowered, matrices
from vkjit.backends.interp import run_module
from vkjit.compiler.driver import emit_module
from vkjit.errors import CompileError
from vkjit.ir.core import Module
from vkjit.passes import pipeline
from vkjit.runtime.device import Device
from vkjit.spirv import tools


def product(
    a: vk.In[vk.f32, "G M K"], b: vk.In[vk.f32, "G K N"], c: vk.Out[vk.f32, "G M N"], first: vk.i32, last: vk.i32,
    HOW: vk.Const[str], BM: vk.Const[int], BN: vk.Const[int], BK: vk.Const[int], FLIP: vk.Const[bool],
):  # fmt: skip
    wg, g = vk.workgroup(), vk.group_id(2)
    i, j = vk.group_id(1) * BM, vk.group_id(0) * BN
    acc = wg.zeros((BM, BN), vk.f32)
    for step in range(first, last, 2):
        k = step // 2 * BK
        if FLIP:
            acc = wg.mma(a[g, i : i + BM, k : k + BK], b[g, j : j + BN, k : k + BK].T, acc, prefetch=HOW)
        else:
            acc = wg.mma(a[g, i : i + BM, k : k + BK], b[g, k : k + BK, j : j + BN], acc, prefetch=HOW)
    wg.store(c[g, i : i + BM, j : j + BN], acc)


def halves(
    a: vk.In[vk.f16, "G M K"], b: vk.In[vk.f16, "G K N"], c: vk.Out[vk.f32, "G M N"], HOW: vk.Const[str],
    BM: vk.Const[int], BN: vk.Const[int], BK: vk.Const[int],
):  # fmt: skip
    wg, g = vk.workgroup(), vk.group_id(2)
    i, j = vk.group_id(1) * BM, vk.group_id(0) * BN
    acc = wg.zeros((BM, BN), vk.f32)
    for k in range(0, a.shape[2], BK):
        acc = wg.mma(a[g, i : i + BM, k : k + BK], b[g, k : k + BK, j : j + BN], acc, prefetch=HOW)
    wg.store(c[g, i : i + BM, j : j + BN], acc)


def whole(size: tuple[int, ...], seed: int, kind: Any = np.float32) -> Any:
    """Return small integers, so that sums are exact in any order."""
    return np.random.default_rng(seed).integers(-4, 5, size).astype(kind)


def notes(module: Module) -> str:
    return "\n".join(module.kernel.attrs["tiles"])


@pytest.mark.parametrize("how", ["early", "late"])
@pytest.mark.parametrize("seed", [0, 1, 2, 3, 5])
def test_random_products(how: str, seed: int) -> None:
    """Covers partial tiles, loops without iterations, induction variables other than K, and a transposed operand."""
    random = np.random.default_rng(seed)
    m, n, k = (int(random.integers(1, 40)) for _ in range(3))
    tile = tuple(int(random.choice(sizes)) for sizes in ((8, 16, 32), (8, 16, 32), (4, 8, 16)))
    threads, flip = int(random.choice((8, 32, 64))), bool(random.integers(2))
    rounds = -(-k // tile[2])
    first, last = (0, 2 * rounds) if seed else (4, 4)
    a, b = whole((2, m, k), seed), whole((2, n, k) if flip else (2, k, n), seed + 1)
    c = np.full((2, m, n), 7, np.float32)
    arguments = [a, b, c, np.int32(first), np.int32(last), how, *tile, flip]
    module = lowered(high(product, arguments, threads, contiguous=True))
    assert f"are loaded {'before' if how == 'early' else 'after'} the barrier" in notes(module)
    run_module(module, (-(-n // tile[1]), -(-m // tile[0]), 2), arguments[:5], subgroup_size=8)
    exact = np.matmul(a, b.swapaxes(1, 2) if flip else b) if seed else np.zeros_like(c)
    np.testing.assert_array_equal(c, exact)


@pytest.mark.parametrize("how", ["early", "late"])
@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("depth", [64, 40, 8])
def test_products_on_matrices(how: str, aligned: bool, depth: int) -> None:
    a, b = whole((1, 40, depth), 1, np.float16), whole((1, depth, 72), 2, np.float16)
    c = np.full((1, 40, 72), 7, np.float32)
    arguments = [a, b, c, how, 32, 64, 32]
    module = lowered(high(halves, arguments, 64, contiguous=True, aligned=aligned), caps_with(matrices(16, 16, 16), 16))
    assert "engine matrix" in notes(module)
    assert "the next round's factors are loaded" in notes(module)
    run_module(module, (2, 2, 1), arguments[:3], subgroup_size=16)
    np.testing.assert_array_equal(c, np.matmul(a.astype(np.float32), b.astype(np.float32)))


def turned_halves(
    a: vk.In[vk.f16, "G K M"], b: vk.In[vk.f16, "G N K"], c: vk.Out[vk.f32, "G M N"], HOW: vk.Const[str],
    BM: vk.Const[int], BN: vk.Const[int], BK: vk.Const[int],
):  # fmt: skip
    wg, g = vk.workgroup(), vk.group_id(2)
    i, j = vk.group_id(1) * BM, vk.group_id(0) * BN
    acc = wg.zeros((BM, BN), vk.f32)
    for k in range(0, a.shape[1], BK):
        acc = wg.mma(a[g, k : k + BK, i : i + BM].T, b[g, j : j + BN, k : k + BK].T, acc, prefetch=HOW)
    wg.store(c[g, i : i + BM, j : j + BN], acc)


@pytest.mark.parametrize("how", ["overlap", "overlap late"])
@pytest.mark.parametrize(("room", "parts"), [(48, 1), (20, 2), (16, 4)])
@pytest.mark.parametrize("depth", [256, 136, 64, 8])
@pytest.mark.parametrize("turn", [False, True])
def test_rounds_that_overlap(how: str, room: int, parts: int, depth: int, turn: bool) -> None:
    """Covers operands staged in parts for lack of shared memory, empty loops, edges, odd iteration counts."""
    a, b = whole((1, 40, depth), 1, np.float16), whole((1, depth, 72), 2, np.float16)
    c = np.full((1, 40, 72), 7, np.float32)
    given = [np.ascontiguousarray(x.swapaxes(1, 2)) if turn else x for x in (a, b)]
    tile = [64, 32, 64] if turn else [32, 64, 64]
    arguments = [*given, c, how, *tile]
    module = lowered(
        high(turned_halves if turn else halves, arguments, 64, contiguous=True, aligned=True),
        caps_with(matrices(16, 16, 16), 16), dataclasses.replace(OPTIONS, shared_bytes=room << 10),
    )  # fmt: skip
    assert f"rounds overlap, {'a' if turn else 'b'} is staged in {parts} parts" in notes(module) or parts == 1
    loop = next(op for op in module.kernel.body.walk() if op.name == "for")
    assert sum(op.name == "barrier" for op in loop.regions[0].walk()) == 2 * parts
    run_module(module, (3, 1, 1) if turn else (2, 2, 1), arguments[:3], subgroup_size=16)
    np.testing.assert_array_equal(c, np.matmul(a.astype(np.float32), b.astype(np.float32)))


@pytest.mark.parametrize("how", ["overlap", "overlap late"])
def test_what_cannot_overlap_is_loaded_ahead(how: str) -> None:
    """Covers products without matrix instructions and operands that can't be split into whole vectors."""
    arguments = [whole((1, 16, 16), 1), whole((1, 16, 16), 2), np.zeros((1, 16, 16), np.float32)]
    module = lowered(high(product, [*arguments, np.int32(0), np.int32(4), how, 16, 16, 8, False], 32))
    assert f"are loaded {'after' if 'late' in how else 'before'} the barrier" in notes(module)
    run_module(module, (1, 1, 1), [*arguments, np.int32(0), np.int32(4)], subgroup_size=8)
    np.testing.assert_array_equal(arguments[2], np.matmul(*arguments[:2]))


@pytest.mark.skipif(not tools.available("spirv-val"), reason="spirv-val isn't installed")
@pytest.mark.parametrize("kind", ["f16", "f32", "overlap"])
def test_spirv_is_valid(kind: str) -> None:
    gpu = dataclasses.replace(caps_with(matrices(16, 16, 16), 32), kind="discrete", push_constant_bytes=256)
    gpu = dataclasses.replace(gpu, features=gpu.features | {"cooperative_matrix"})
    if kind != "f32":
        how = "early" if kind == "f16" else kind
        arguments: list[Any] = [*(whole((1, 64, 64), n, np.float16) for n in (1, 2)), np.zeros((1, 64, 64), np.float32)]
        module = high(halves, [*arguments, how, 64, 64, 32], 128, contiguous=True, aligned=True)
    else:
        arguments = [
            *(whole((1, 64, 64), n) for n in (1, 2)),
            np.zeros((1, 64, 64), np.float32),
            np.int32(0),
            np.int32(8),
        ]
        module = high(product, [*arguments, "late", 64, 64, 16, False], 128, contiguous=True, aligned=True)
    module = pipeline.run(module, gpu)
    tools.validate(emit_module(module, gpu).code)
    assert ("engine matrix" in notes(module)) == (kind != "f32")
    assert "the next round's factors are loaded" in notes(module)


def test_a_round_waits_twice_still() -> None:
    arguments = [whole((1, 16, 16), 1), whole((1, 16, 16), 2), np.zeros((1, 16, 16), np.float32)]
    for how in ("early", "late"):
        module = lowered(high(product, [*arguments, np.int32(0), np.int32(4), how, 16, 16, 8, False], 32))
        assert sum(op.name == "barrier" for op in module.kernel.body.walk()) == 2


def test_how_factors_are_staged_is_told() -> None:
    arguments = [whole((1, 16, 16), 1), whole((1, 16, 16), 2), np.zeros((1, 16, 16), np.float32)]
    text = notes(lowered(high(product, [*arguments, np.int32(0), np.int32(4), "", 16, 16, 8, True], 32)))
    assert "a staged in rows of 8, 12 apart: 16 bytes further, as rows are written" in text
    assert "b staged in rows of 16, 17 apart: one bank further, as columns are written" in text
    half = [x.astype(np.float16) for x in arguments[:2]]
    module = high(halves, [*half, arguments[2], "", 16, 16, 16], 32, contiguous=True, aligned=True)
    text = notes(lowered(module, caps_with(matrices(16, 16, 16), 32)))
    assert "a staged in lines of 2 vectors of 16 bytes, 3 apart: other banks" in text


def test_nothing_is_loaded_that_may_have_changed() -> None:
    def in_place(a: vk.InOut[vk.f32, "M N"], HOW: vk.Const[str]):
        wg = vk.workgroup()
        acc = wg.zeros((8, 8), vk.f32)
        for k in range(0, a.shape[1], 8):
            acc = wg.mma(a[0:8, k : k + 8], a[k : k + 8, 0:8], acc, prefetch=HOW)
            wg.store(a[0:8, 0:8], acc)

    found = {}
    for how in ("", "early"):
        a = whole((24, 24), 3)
        module = lowered(high(in_place, [a, how], 16))
        run_module(module, (1, 1, 1), [a], subgroup_size=8)
        found[how] = a
        assert ("nothing is loaded ahead: a factor's array is written by the kernel" in notes(module)) == bool(how)
    np.testing.assert_array_equal(found[""], found["early"])


def test_engines_without_shared_memory_say_so() -> None:
    arguments = [whole((1, 16, 16), 1), whole((1, 16, 16), 2), np.zeros((1, 16, 16), np.float32)]
    options = dataclasses.replace(OPTIONS, reads_global_memory=True)
    module = lowered(
        high(product, [*arguments, np.int32(0), np.int32(4), "late", 16, 16, 8, False], 32), options=options
    )
    assert "nothing is loaded ahead: this engine reads the factors where they are" in notes(module)


def test_other_words_are_errors() -> None:
    arguments = [whole((1, 16, 16), 1), whole((1, 16, 16), 2), np.zeros((1, 16, 16), np.float32)]
    with pytest.raises(
        CompileError, match="prefetch is one of early, late, overlap, overlap late, found the literal 'soon'"
    ):
        high(product, [*arguments, np.int32(0), np.int32(4), "soon", 16, 16, 8, False], 32)


def test_on_devices(device: Device) -> None:
    kernel: Any = vk.kernel(groups=lambda c, BM, BN: (vk.cdiv(c.shape[2], BN), vk.cdiv(c.shape[1], BM), 1), local=32)(
        product
    )
    a, b = whole((1, 19, 20), 4), whole((1, 20, 21), 5)
    with vk.use_device(device):
        c = kernel(a, b, first=0, last=6, HOW="early", BM=16, BN=16, BK=8, FLIP=False)
    np.testing.assert_array_equal(c, np.matmul(a, b))
