"""Philox-4x32-10 in NumPy (Salmon, Moraes, Dror, Shaw, SC 2011)."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["philox"]


def philox(seed: int, count: int, first: int = 0, stream: int = 0) -> Any:
    """Return four words for each of `count` counters, starting at `first`: (count, 4) of u64 with 32-bit values."""
    low = np.uint64(0xFFFFFFFF)
    counters = np.arange(count, dtype=np.uint64) + np.uint64(first)
    words = [counters & low, counters >> np.uint64(32), np.full_like(counters, stream), np.zeros_like(counters)]
    key = [seed & 0xFFFFFFFF, seed >> 32]
    for step in range(10):
        if step:
            key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
        p, q = words[0] * np.uint64(0xD2511F53), words[2] * np.uint64(0xCD9E8D57)
        words = [
            (q >> np.uint64(32)) ^ words[1] ^ np.uint64(key[0]), q & low,
            (p >> np.uint64(32)) ^ words[3] ^ np.uint64(key[1]), p & low,
        ]  # fmt: skip
    return np.stack(words, axis=1)
