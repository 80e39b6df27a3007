"""Memory of devices for users: how much, who holds it, and giving it back.

Enters: devices. Leaves: numbers in bytes and text. Holds: asking changes nothing, save that it waits for no work but notes what
is complete.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from . import dtypes
from .devices import device as open_device
from .dtypes import DType
from .errors import ArgumentError, DTypeError
from .lang.packed import PackedFloat
from .runtime import ledger
from .runtime.interface import Device
from .runtime.ledger import LiveBuffer

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
    """Bytes `allocated` to arrays, `reserved` from the driver or system, the `peak` of allocated, and the `count` of buffers.

    Vulkan devices tell more: the `limit` of what this process may take (0.95 of its budget; VKJIT_MEMORY_FRACTION sets
    another part), and of what is reserved the `free` bytes and the `largest_free` range: where that is much smaller than
    `free`, memory is fragmented.
    """
    return open_device(device).memory_stats()


def memory_summary(device: int | str | Device | None = None) -> str:
    """The statistics and a table of who holds how much, as text."""
    target = open_device(device)
    lines = [f"memory of {target.name}"]
    for name, value in target.memory_stats().items():
        shown = f"{value:>16,}" + ("" if name == "count" else " bytes")
        lines.append(f"  {name.replace('_', ' '):<14}{shown}")
    return "\n".join([*lines, ledger.holders(target)])


def reset_peak_memory_stats(device: int | str | Device | None = None) -> None:
    """Has the peak begin anew at what is allocated now."""
    open_device(device).reset_peak_memory()


def pinned_empty(
    shape: int | tuple[int, ...], dtype: Any = np.float32, device: int | str | Device | None = None
) -> npt.NDArray[Any]:
    """A NumPy array, not set to anything, from which and to which the device (the default one) copies without a detour.

    `dtype` is a type of NumPy's or of vkjit's; bf16 and floats of 8 bits are ml_dtypes' types where that package is loaded, else
    their bits, unsigned. The array outlives the device. It is ordinary where the device works on the host's memory, where the
    array is small, and once a quarter of the host's memory is pinned. Raises ArgumentError for sizes below 0, OutOfMemoryError.
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
    """The type of a NumPy array's elements that `dtype` names."""
    package: Any = sys.modules.get("ml_dtypes")
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
    if element is None or element.hasobject:
        raise DTypeError(f"dtype={dtype!r} is no type of an array's elements: use one of NumPy's or of {dtypes.ALL}")
    return element


def empty_cache(device: int | str | Device | None = None) -> None:
    """Gives memory that no array uses back to the driver or system."""
    open_device(device).empty_cache()


def live_buffers(device: int | str | Device | None = None) -> list[LiveBuffer]:
    """The buffers that are alive, largest first, with the arrays that view them: for finding leaks.

    With `trace_memory()` or VKJIT_TRACE_MEMORY=1, each tells the lines of the program that made it.
    """
    return ledger.live_buffers(open_device(device))


def trace_memory(enabled: bool = True) -> None:
    """Has the place noted at which each buffer is made from now on; costs some microseconds per allocation."""
    ledger.trace(enabled)
