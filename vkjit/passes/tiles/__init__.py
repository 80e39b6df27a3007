"""Tile lowering: layout assignment, shared-memory staging, layout conversion, and matrix products.

`LowerTiles` is the pass; it replaces all operations on tiles by operations of single invocations.
"""

from __future__ import annotations

from .lower import LowerTiles, options_for

__all__ = ["LowerTiles", "options_for"]
