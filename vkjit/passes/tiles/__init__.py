"""Tiles taken apart: layouts, staging, exchange, products.

Enters: IR with operations on tiles. Leaves: IR without them. `LowerTiles` is the pass.
"""

from __future__ import annotations

from .lower import LowerTiles, options_for

__all__ = ["LowerTiles", "options_for"]
