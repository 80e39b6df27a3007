"""Matrix multiplication on cooperative matrices: choose the tile shape, and launch the kernel of `cooperative`.

`by_rule` calls `multiply_coopmat`; `variants` calls `multiply_coopmat_tile` to tune the tile shape. In this module, a
vector is 16 bytes of an operand along its contiguous axis. `each` is the number of elements in a vector. `along` is a
pair of booleans for (a, b): True if the operand's vectors lie along K.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import vkjit as vk
from vkjit.runtime.device import Device, DeviceArray, DeviceCaps, MatrixShape
from vkjit.runtime.matrix_shapes import native_shape
from vkjit.stdlib.matmul.cooperative import multiply_coopmat_tiles
from vkjit.stdlib.matmul.operands import Operand, flat_operand

__all__ = ["ACCUMULATORS", "TileShape", "fits", "multiply_coopmat", "multiply_coopmat_tile", "tile_for"]


@dataclass(frozen=True, slots=True)
class TileShape:
    """Tiling of a product: the parameters BM to SUBGROUP_COLUMNS, EARLY and BAND of `multiply_coopmat_tiles`.

    A workgroup of `subgroup_rows` x `subgroup_columns` subgroups computes `rows` x `columns` results. Its shared memory
    holds `depth` elements of b along K, and `a_depth_factor` times as many of a. With `early_loads`, the global loads
    of the next tiles are issued between the two barriers of an iteration, else after the second one. Consecutive
    workgroups compute the tiles in bands of `swizzle_height` rows of tiles, column by column (L2 locality).
    """

    rows: int
    columns: int
    depth: int
    subgroup_rows: int
    subgroup_columns: int
    a_depth_factor: int = 1
    early_loads: bool = False
    swizzle_height: int = 8


@dataclass(frozen=True, slots=True)
class _Operands:
    """Both operands as flat arrays, with `each` elements per 16-byte vector."""

    a: Operand
    b: Operand
    each: int

    @property
    def along(self) -> tuple[bool, bool]:
        """For (a, b): True if the vectors lie along K."""
        return self.a.along_last_axis, not self.b.along_last_axis


def _operands(a: DeviceArray, b: DeviceArray) -> _Operands | None:
    """View a and b as flat arrays of 16-byte vectors; return None if their layout doesn't allow it."""
    left, right = flat_operand(a, vk.u32), flat_operand(b, vk.u32)
    each = 16 // a.dtype.itemsize
    if left is None or right is None or a.shape[2] % each:
        return None
    return _Operands(left, right, each)


def _can_store(c: DeviceArray) -> bool:
    """True if cooperative matrices can be stored to c: its rows begin at multiples of 16 bytes."""
    return c.offset % 16 == 0 and c.shape[2] * c.dtype.itemsize % 16 == 0


def _plan(c: DeviceArray, depth: int, operands: _Operands, shape: MatrixShape, tile: TileShape) -> tuple[Any, ...]:
    """Return PLAN, the compile-time parameters of `multiply_coopmat_tiles`, in the order in which it unpacks them."""
    exact = depth % (tile.depth * tile.a_depth_factor) == 0  # K consists of whole tiles
    edges = c.shape[1] % tile.rows != 0 or c.shape[2] % tile.columns != 0  # some tiles extend beyond c
    return (
        tile.rows, tile.columns, tile.depth, tile.a_depth_factor, tile.subgroup_rows, tile.subgroup_columns,
        c.device.caps.subgroup_size, shape.m, shape.n, shape.k, operands.each, *operands.along, exact, edges,
        tile.early_loads, tile.swizzle_height,
    )  # fmt: skip


def multiply_coopmat_tile(
    a: DeviceArray, b: DeviceArray, c: DeviceArray, accumulate: Any, shape: MatrixShape, tile: TileShape
) -> bool:
    """Queue c = a @ b with the given tiling on the device of c.

    Return False, and queue nothing, if the layout of the arrays isn't supported. `accumulate` is the accumulator type,
    `shape` the shape of one cooperative matrix product. The caller guarantees that c is contiguous and that the tile
    fits the device (see `fits`).
    """
    operands = _operands(a, b)
    if operands is None or not _can_store(c):
        return False
    _launch(a, c, accumulate, operands, _plan(c, a.shape[2], operands, shape, tile))
    return True


def _launch(a: DeviceArray, c: DeviceArray, accumulate: Any, operands: _Operands, plan: tuple[Any, ...]) -> None:
    """Launch the kernel; `operands` are the views of a and b, `plan` is its parameter PLAN."""
    multiply_coopmat_tiles(
        operands.a.words, operands.b.words, c, a.shape[2] // operands.each, operands.a.line_stride,
        operands.a.batch_stride, operands.b.line_stride,
        operands.b.batch_stride, a.dtype, accumulate, plan,
    )  # fmt: skip


ACCUMULATORS = {"f16": "f32", "bf16": "f32", "i8": "i32", "u8": "u32"}
"""Maps the element types of a and b to the accumulator type that is used with them."""
MIN_TILES = 96
"""Minimum number of workgroups that keeps a large GPU busy."""
DEPTH_BYTES = 64
"""Extent of a tile of b along K in bytes: 32 elements of 16 bits."""


def candidate_tiles(each: int) -> tuple[TileShape, ...]:
    """Return the tile shapes from which `tile_for` chooses, largest first."""
    depth = DEPTH_BYTES // 16 * each
    return (
        TileShape(256, 128, depth, 4, 2, 2, early_loads=True),
        TileShape(128, 128, depth, 2, 2),
        TileShape(64, 128, depth, 2, 2),
        TileShape(64, 64, depth, 2, 2),
    )


def fits(tile: TileShape, shape: MatrixShape, each: int, caps: DeviceCaps, along: tuple[bool, bool]) -> bool:
    """True if a device can run a tile: it divides into cooperative matrices and vectors, and fits into shared memory.

    `each` and `along` are explained in the module docstring.
    """
    subgroups = tile.subgroup_rows * tile.subgroup_columns
    invocations = subgroups * caps.subgroup_size
    if (
        tile.rows % (tile.subgroup_rows * shape.m)
        or tile.columns % (tile.subgroup_columns * shape.n)
        or tile.depth % shape.k
    ):
        return False
    sizes = (tile.rows, tile.columns, shape.m, shape.n, shape.k)
    # a row of a result matrix, of 32-bit elements, must consist of whole vectors of four (see `_staging_slots`)
    if invocations > caps.max_invocations or shape.n % 4 or any(size % each for size in sizes):
        return False
    a_lines, a_vectors = _tile_lines(tile.rows, tile.depth * tile.a_depth_factor, each, along[0])
    b_lines, b_vectors = _tile_lines(tile.columns, tile.depth, each, along[1])
    # Invocations must divide the loads of a tile evenly; the tile of a is loaded in `a_depth_factor` equal portions.
    if invocations % a_vectors or a_lines * a_vectors % (invocations * tile.a_depth_factor):
        return False
    if invocations % b_vectors or b_lines * b_vectors % invocations:
        return False
    # each line is padded by one vector of 16 bytes
    shared = a_lines * (a_vectors + 1) * 16 + b_lines * (b_vectors + 1) * 16
    return shared <= caps.shared_bytes and _staging_slots(a_lines, a_vectors, shape) >= subgroups


def _tile_lines(size: int, k_extent: int, each: int, along: bool) -> tuple[int, int]:
    """Return (number of lines, vectors per line) of an operand's tile of `size` x `k_extent` elements.

    `size` is its extent along M or N. `along`: the vectors, and thus the lines, lie along K.
    """
    return (size, k_extent // each) if along else (k_extent, size // each)


def _staging_slots(lines: int, vectors: int, shape: MatrixShape) -> int:
    """Return the number of result matrices that fit side by side into the tile of a in shared memory.

    After the last product, the kernel reuses the tile of a to stage results that can't be stored to c directly: at
    edges, or where their type is converted. For this, each subgroup needs a slot for one matrix of 32-bit elements:
    `shape.m` lines high and `shape.n` / 4 vectors wide. The tile has `lines` lines of `vectors` vectors, padded by one.
    """
    slots_down = lines // shape.m
    slots_across = (vectors + 1) // (shape.n // 4)
    return slots_down * slots_across


def tile_for(
    rows: int, columns: int, batch: int, shape: MatrixShape, each: int, caps: DeviceCaps, along: tuple[bool, bool]
) -> TileShape | None:
    """Choose the tile for `batch` products of `rows` x `columns` results; return None if no tile fits the device.

    Among the tiles that fit, choose the largest that yields enough workgroups to keep the device busy, else the
    smallest. `shape` is the shape of one cooperative matrix product; `each` and `along` are explained in the module
    docstring.
    """
    usable = [tile for tile in candidate_tiles(each) if fits(tile, shape, each, caps, along)]
    for tile in usable:
        if batch * vk.cdiv(rows, tile.rows) * vk.cdiv(columns, tile.columns) >= MIN_TILES:
            return tile
    return usable[-1] if usable else None


Choice = tuple[Any, tuple[Any, ...]]
"""The accumulator type and the PLAN of `multiply_coopmat_tiles`."""
_CHOICES: weakref.WeakKeyDictionary[Device, dict[Any, Choice | None]] = weakref.WeakKeyDictionary()
"""Per device: the choice for each combination of types, shapes and layouts; None without cooperative matrices."""
MAX_CHOICES = 4096
"""Number of choices per device at which they are discarded."""


def multiply_coopmat(a: DeviceArray, b: DeviceArray, c: DeviceArray) -> bool:
    """Queue c = a @ b on the device of c, with accumulator type, matrix shape and tiling chosen by rule.

    Return False, and queue nothing, if the layout of the arrays isn't supported or the device has no suitable matrices.
    """
    device = c.device
    if not device.caps.matrices or a.dtype.itemsize > 2 or a.dtype is not b.dtype:
        return False
    operands = _operands(a, b)
    if operands is None or c.strides[2] != 1 or c.strides[1] != c.shape[2] or not _can_store(c):
        return False
    choices = _CHOICES.setdefault(device, {})
    key = (a.dtype, c.dtype, c.shape, a.shape[2], operands.along)
    if key not in choices:
        if len(choices) >= MAX_CHOICES:
            choices.clear()
        choices[key] = _choose(a, c, operands)
    choice = choices[key]
    if choice is None:
        return False
    _launch(a, c, choice[0], operands, choice[1])
    return True


def _choose(a: DeviceArray, c: DeviceArray, operands: _Operands) -> Choice | None:
    """Choose the accumulator type, matrix shape and tiling for a product; None if the device can't compute it."""
    caps, accumulator_name = c.device.caps, ACCUMULATORS.get(a.dtype.name, "")
    shape = native_shape(caps.matrices, a.dtype.name, a.dtype.name, accumulator_name)
    if shape is None:
        return None
    tile = tile_for(c.shape[1], c.shape[2], c.shape[0], shape, operands.each, caps, operands.along)
    if tile is None:
        return None
    return getattr(vk, accumulator_name), _plan(c, a.shape[2], operands, shape, tile)
