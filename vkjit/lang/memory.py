"""Shared and local arrays, barriers and fences."""

from __future__ import annotations

from typing import Any

from ._stub import kernel_only

__all__ = ["barrier", "fence", "local", "shared"]


@kernel_only
def shared(dtype: Any, shape: int | tuple[int, ...]) -> Any:
    """Return an array in shared memory, in C order and uninitialized. The shape must be known at compile time.

    Each call in the source allocates one array for the workgroup, even if it is executed several times. Not available
    in kernels with `over=`.

    Example::

        buffer = vk.shared(vk.f32, 256)
        buffer[vk.local_id(0)] = x[i]
        vk.barrier()
    """


@kernel_only
def local(dtype: Any, shape: int | tuple[int, ...]) -> Any:
    """Return an array private to this invocation, in C order and uninitialized. The shape must be known at compile
    time.
    """


@kernel_only
def barrier() -> Any:
    """Wait until all invocations of the workgroup reach this point; orders their accesses to shared and global memory.

    Must be in control flow that is uniform in the workgroup. Not available in kernels with `over=`.
    """


@kernel_only
def fence(scope: str = "device") -> Any:
    """Order this invocation's memory accesses at `scope`, "workgroup" or "device", without waiting for other
    invocations.
    """
