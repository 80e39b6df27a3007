"""Tile lowering: layout assignment, shared-memory staging, layout conversion, and matrix products.

`LowerTiles` is the pass; it replaces all operations on tiles by operations of single invocations. Its modules use these
terms:

- tile: a value of type `Tile`, an array of fixed shape that the invocations of its scope (a workgroup or a subgroup)
  hold together.
- slice: the part of an array that a `tile_load` reads or a `tile_store` writes. Elements that a `tile_load` would read
  outside of the array have a padding value instead.
- product: a `tile_mma`, C + A @ B, where A has M x K elements, B has K x N, and the accumulators C have M x N. Operand
  numbers are 0 for A and 1 for B.
- slot: one of an invocation's registers that hold elements of a tile. A `Layout` maps slots to elements.
- to stage: to store a tile in shared memory, from where all invocations can read it.
- engine: how a product is computed (see `engines`), on cooperative matrices or by multiply-add in registers.
"""

from __future__ import annotations

from .lower import LowerTiles, options_for

__all__ = ["LowerTiles", "options_for"]
