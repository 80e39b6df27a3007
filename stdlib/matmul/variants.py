"""The variants of a matrix product on each device class: the candidates that `tuning` measures.

A variant is a pair of a name, which identifies it in tuning records, and a function without arguments that queues the
product. The first variant, "by rule", leaves the choice to `by_rule`. In all functions, a, b and c are the arrays of
the product c = a @ b, and `accumulate` is the accumulator type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import vkjit as vk
from vkjit.runtime.device import DeviceArray
from vkjit.runtime.matrix_shapes import native_shape
from vkjit.stdlib.matmul import by_rule, cooperative_plan, cpu_panels, registers, shared_tiles, split_k, vec4
from vkjit.stdlib.matmul.cooperative_plan import TileShape
from vkjit.stdlib.matmul.operands import flat_operand
from vkjit.stdlib.matmul.tile_plan import TilePlan, multiply_by_tiles
from vkjit.stdlib.registry import choose, variant

__all__ = ["Launch", "variants_of"]

Launch = Callable[[], object]
Variants = list[tuple[str, Launch]]


def variants_of(a: DeviceArray, b: DeviceArray, c: DeviceArray, accumulate: Any) -> Variants:
    """Return all variants of the product on the device of c; the first is the kernel chosen by rule."""
    default: tuple[str, Launch] = ("by rule", lambda: choose("matmul", c.device)(a, b, c, accumulate))
    others: Variants = choose("matmul variants", c.device)(a, b, c, accumulate)
    return [default, *others]


def _tiles(each: int) -> Iterator[TileShape]:
    """Yield the tile shapes for cooperative matrices to try; `each` is the number of elements in 16 bytes."""
    depth = 4 * each
    for rows, columns, subgroup_rows, subgroup_columns in (
        (256, 128, 4, 2), (128, 256, 2, 4), (128, 128, 2, 2), (128, 64, 2, 2), (64, 128, 2, 2), (64, 64, 2, 2),
        (32, 64, 1, 2),
    ):  # fmt: skip
        for a_depth_factor, early in ((2, True), (1, False), (1, True)):
            yield TileShape(rows, columns, depth, subgroup_rows, subgroup_columns, a_depth_factor, early)


@variant("matmul variants", "gpu")
def _on_gpu(a: DeviceArray, b: DeviceArray, c: DeviceArray, accumulate: Any) -> Variants:
    """Return the kernels of `cooperative`, `vec4`, `shared_tiles` and `tiles` with several tilings, and split-K."""
    variants: Variants = []
    for tile, launch in _on_matrices(a, b, c):
        # "halves": the `a_depth_factor`; stored tuning records contain this name
        early = ", early" if tile.early_loads else ""
        variants.append((f"matrices {tile.rows}x{tile.columns}, {tile.a_depth_factor} halves{early}", launch))
    # A_ROWS and B_ROWS of the kernels in `shared_tiles`
    row_major = abs(a.strides[2]) <= abs(a.strides[1]), abs(b.strides[2]) <= abs(b.strides[1])
    if a.dtype is b.dtype is accumulate is vk.f32 and flat_operand(a, vk.f32) and flat_operand(b, vk.f32):
        variants.append(("vectors", lambda: vec4.multiply_vec4(a, b, c)))
    variants.append(("large tiles", lambda: shared_tiles.multiply_large_tiles(a, b, c, accumulate, *row_major)))
    if accumulate.is_float:
        variants.append(("small tiles", lambda: shared_tiles.multiply_tiles(a, b, c, accumulate, *row_major, vk.fma)))
    variants.append(("in one part", lambda: by_rule.multiply_without_split_k(a, b, c, accumulate)))
    variants += [_in_parts(a, b, c, accumulate, n) for n in (2, 4, 8) if c.shape[0] == 1 and a.shape[2] >= 256 * n]
    depth = max(16, 64 // a.dtype.itemsize)
    threads = 256 if a.dtype.itemsize >= 4 else 128
    for side in (128, 64):
        for prefetch_mode in ("", "early", "late"):
            variants.append(
                _by_tiles(a, b, c, accumulate, TilePlan(side, side, depth, threads, prefetch=prefetch_mode))
            )
    return variants


def _in_parts(a: DeviceArray, b: DeviceArray, c: DeviceArray, accumulate: Any, parts: int) -> tuple[str, Launch]:
    """Return the variant with `parts` split-K parts."""
    run = split_k.multiply_split_k
    return f"in {parts} parts", lambda: run(a, b, c, accumulate, parts, by_rule.multiply_without_split_k)


def _by_tiles(a: DeviceArray, b: DeviceArray, c: DeviceArray, accumulate: Any, plan: TilePlan) -> tuple[str, Launch]:
    """Return the variant by the tile kernels of `tiles` with the given tiling."""
    return f"tiles {plan}", lambda: multiply_by_tiles(a, b, c, accumulate, plan=plan)


def _on_matrices(a: DeviceArray, b: DeviceArray, c: DeviceArray) -> Iterator[tuple[TileShape, Launch]]:
    """Yield the tile shapes for cooperative matrices that fit the device, each with a function that queues the product.

    Yield nothing if the device, the types or the layouts don't allow cooperative matrices.
    """
    caps, type_name = c.device.caps, a.dtype.name
    accumulator_name = cooperative_plan.ACCUMULATORS.get(type_name, "")
    shape = native_shape(caps.matrices, type_name, type_name, accumulator_name)
    left, right = flat_operand(a, vk.u32), flat_operand(b, vk.u32)
    if shape is None or left is None or right is None or a.dtype is not b.dtype:
        return
    each = 16 // a.dtype.itemsize  # elements per vector
    along = (left.along_last_axis, not right.along_last_axis)  # for (a, b): True if the vectors lie along K
    for tile in _tiles(each):
        if cooperative_plan.fits(tile, shape, each, caps, along):
            # default arguments bind the values of this iteration
            tile_copy, matrix_shape, acc = tile, shape, getattr(vk, accumulator_name)
            yield (
                tile,
                lambda t=tile_copy, s=matrix_shape, k=acc: cooperative_plan.multiply_coopmat_tile(a, b, c, k, s, t),
            )


@variant("matmul variants", "cpu")
def _on_cpu(a: DeviceArray, b: DeviceArray, c: DeviceArray, accumulate: Any) -> Variants:
    """Return the kernels of `registers` with several block sizes; none for the interpreter."""
    size, variants = c.device.caps.subgroup_size, []
    if c.device.caps.kind == "interpreter":
        return []
    for rows in (4, 8):
        for columns in (1, 2, 4):
            variants.append(_registers(a, b, c, accumulate, (rows, columns, size)))
            if "subgroup_shuffle" in c.device.caps.features and rows <= size:
                variants.append(_broadcast(a, b, c, accumulate, (rows, columns, size)))
    return variants


def _registers(
    a: DeviceArray, b: DeviceArray, c: DeviceArray, accumulate: Any, shape: tuple[int, int, int]
) -> tuple[str, Launch]:
    """Return the variant by `multiply_registers`; `shape` is (ROWS, COLUMNS, LANES)."""
    name = f"registers {shape[0]}x{shape[1]}"
    return name, lambda: registers.multiply_registers(a, b, c, accumulate, *shape)


def _broadcast(
    a: DeviceArray, b: DeviceArray, c: DeviceArray, accumulate: Any, shape: tuple[int, int, int]
) -> tuple[str, Launch]:
    """Return the variant by `multiply_broadcast`; `shape` is (ROWS, COLUMNS, SIZE)."""
    name = f"broadcast {shape[0]}x{shape[1]}"
    return name, lambda: registers.multiply_broadcast(a, b, c, accumulate, *shape)


@variant("matmul variants", "llvm-cpu")
def _on_llvm_cpu(a: DeviceArray, b: DeviceArray, c: DeviceArray, accumulate: Any) -> Variants:
    """Return `multiply_panels` with several block sizes, and the tile kernels with one tiling."""
    size = c.device.caps.subgroup_size
    shapes = [(rows, columns, blocks) for rows in (4, 6, 8) for columns in (2, 4) for blocks in (1, 4, 16)]
    tiles = _by_tiles(a, b, c, accumulate, TilePlan(64, 64, 64, 64))
    return [*(_panels(a, b, c, accumulate, (size, *shape)) for shape in shapes), tiles]


def _panels(
    a: DeviceArray, b: DeviceArray, c: DeviceArray, accumulate: Any, shape: tuple[int, int, int, int]
) -> tuple[str, Launch]:
    """Return the variant by `multiply_panels`; `shape` is (SIZE, ROWS, COLUMNS, BLOCKS)."""
    name = f"panels {shape[1]}x{shape[2]}, {shape[3]} blocks"
    return name, lambda: cpu_panels.multiply_panels(a, b, c, accumulate, *shape)
