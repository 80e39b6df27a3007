"""Device memory: statistics, live buffers, pinned host memory and the allocator's cache.

In all functions, `device` defaults to the default device. Queries don't wait for the device. They first reclaim the
memory of work that is complete, so it isn't counted.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import dtypes
from ..backends.selection import device as open_device
from ..dtypes import DType
from ..errors import ArgumentError, DTypeError
from ..lang.packed import PackedFloat
from ..runtime import memory_ledger
from ..runtime.device import Device
from ..runtime.memory_ledger import LiveBuffer

__all__ = [
    "LiveBuffer",
    "empty_cache",
    "live_buffers",
    "memory_stats",
    "memory_summary",
    "pinned_empty",
    "reset_peak_memory_stats",
    "trace_memory",
]


def memory_stats(device: int | str | Device | None = None) -> dict[str, int]:
    """Return memory statistics by name.

    - `allocated`: bytes allocated to arrays. `peak`: the maximum of `allocated` so far.
    - `reserved`: bytes that the allocator got from the driver or system.
    - `count`: number of buffers.

    Vulkan devices add:

    - `limit`: bytes that this process may use, 0.95 of its budget. VKJIT_MEMORY_FRACTION sets another fraction.
    - `free`: unused bytes within the reserved memory. `largest_free`: size of the largest contiguous part of them.
      Memory is fragmented if `largest_free` is much smaller than `free`.
    """
    return open_device(device).memory_stats()


def memory_summary(device: int | str | Device | None = None) -> str:
    """Return the statistics of `memory_stats`, and a table of the arrays and caches that hold memory, as text."""
    target = open_device(device)
    lines = [f"memory of {target.name}"]
    for name, value in target.memory_stats().items():
        shown = f"{value:>16,}" + ("" if name == "count" else " bytes")
        lines.append(f"  {name.replace('_', ' '):<14}{shown}")
    return "\n".join([*lines, memory_ledger.holders(target)])


def reset_peak_memory_stats(device: int | str | Device | None = None) -> None:
    """Reset the peak to the memory allocated now."""
    open_device(device).reset_peak_memory()


def pinned_empty(
    shape: int | tuple[int, ...], dtype: Any = np.float32, device: int | str | Device | None = None
) -> npt.NDArray[Any]:
    """Return an uninitialized NumPy array in pinned memory, for copies to and from the device without staging.

    `dtype` is a NumPy or vkjit type. bf16 and 8-bit floats become ml_dtypes types if that package is loaded, else
    unsigned integers with their bits. The array may outlive the device. It is in ordinary memory if the device uses
    host memory, if the array is small, or if a quarter of the host's memory is already pinned. Raises ArgumentError for
    negative sizes, DTypeError for other types, and OutOfMemoryError.
    """
    sizes = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    if any(isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 0 for size in sizes):
        raise ArgumentError(f"pinned_empty({shape!r}): expected sizes of at least 0")
    sizes = tuple(int(size) for size in sizes)
    element = _element_of(dtype)
    data: npt.NDArray[Any] = open_device(device).host_array(math.prod(sizes) * element.itemsize)
    shaped: npt.NDArray[Any] = data.view(element).reshape(sizes)
    return shaped


def _element_of(dtype: Any) -> np.dtype[Any]:
    """Return the NumPy element type for a NumPy or vkjit type. Raises DTypeError for anything else."""
    package: Any = sys.modules.get("ml_dtypes")  # only if the program has loaded it
    element: np.dtype[Any] | None = None
    try:
        if dtype is dtypes.bf16 and package is not None:
            element = np.dtype(package.bfloat16)
        elif isinstance(dtype, PackedFloat):
            element = np.dtype(np.uint8 if package is None else getattr(package, dtype.numpy))
        else:
            element = dtype.storage if isinstance(dtype, DType) and dtype in dtypes.ALL else np.dtype(dtype)
    except (TypeError, ValueError):
        pass
    if element is None or element.hasobject:  # Python objects have no representation on the device
        raise DTypeError(f"dtype={dtype!r} is no type of an array's elements: use one of NumPy's or of {dtypes.ALL}")
    return element


def empty_cache(device: int | str | Device | None = None) -> None:
    """Return unused cached memory to the driver or system."""
    open_device(device).empty_cache()


def live_buffers(device: int | str | Device | None = None) -> list[LiveBuffer]:
    """Return the live buffers, largest first, with the arrays that view them; useful to find leaks.

    Other threads may go on meanwhile. Objects that `gc.freeze()` hides from the garbage collector aren't listed.

    If `trace_memory()` or VKJIT_TRACE_MEMORY=1 was in effect at the allocation, a buffer also has the source lines that
    allocated it.
    """
    return memory_ledger.live_buffers(open_device(device))


def trace_memory(enabled: bool = True) -> None:
    """Enable or disable recording of the source lines of allocations, which takes some microseconds per allocation."""
    memory_ledger.trace(enabled)
