"""Counter-based random numbers: Philox-4x32-10, the same on every device.

A number depends on `seed` and `counter` alone (any integers, 64 bits of each), so that each invocation draws its own
by counting from its index. `stream` (32 bits) tells several numbers of one counter apart. Source: Salmon, Moraes,
Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

from typing import Any

from ._stub import kernel_only

__all__ = ["philox", "rand", "randint", "randn"]


@kernel_only
def philox(seed: Any, counter: Any, stream: Any = 0) -> Any:
    """Four random u32, a tuple."""


@kernel_only
def rand(seed: Any, counter: Any, stream: Any = 0) -> Any:
    """A uniform f32 in [0, 1), a multiple of 2**-24."""


@kernel_only
def randn(seed: Any, counter: Any, stream: Any = 0) -> Any:
    """A normal f32 of mean 0 and variance 1, by Box and Muller's method."""


@kernel_only
def randint(seed: Any, counter: Any, low: Any, high: Any, stream: Any = 0) -> Any:
    """A uniform i32 in [low, high), by the high word of a product: of bias at most (high - low) / 2**32."""
