"""Counter-based random numbers: Philox-4x32-10, with the same results on every device.

The functions have no state. Their result depends only on `seed` and `counter` (any integers, of which 64 bits are used)
and `stream` (32 bits). Compute the counter from the invocation's index, so that each invocation gets different numbers;
`stream` distinguishes several numbers for the same counter. Source: Salmon, Moraes, Dror, Shaw, "Parallel Random
Numbers: As Easy as 1, 2, 3", SC 2011.

Example: `y[i] = vk.rand(seed, i)`.
"""

from __future__ import annotations

from typing import Any

from ._stub import kernel_only

__all__ = ["philox", "rand", "randint", "randn"]


@kernel_only
def philox(seed: Any, counter: Any, stream: Any = 0) -> Any:
    """Return a tuple of four random u32."""


@kernel_only
def rand(seed: Any, counter: Any, stream: Any = 0) -> Any:
    """Return an f32 uniform in [0, 1), a multiple of 2**-24."""


@kernel_only
def randn(seed: Any, counter: Any, stream: Any = 0) -> Any:
    """Return a normal f32 with mean 0 and variance 1, by the Box-Muller method."""


@kernel_only
def randint(seed: Any, counter: Any, low: Any, high: Any, stream: Any = 0) -> Any:
    """Return an i32 uniform in [low, high).

    It is the high word of a product of a random u32 and high - low; the bias is at most (high - low) / 2**32.
    """
