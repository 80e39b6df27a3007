"""Memory of workgroups and invocations, and its ordering."""

from __future__ import annotations

from typing import Any

from ._stub import kernel_only

__all__ = ["barrier", "fence", "local", "shared"]


@kernel_only
def shared(dtype: Any, shape: int | tuple[int, ...]) -> Any:
    """An array that the workgroup shares, C order, uninitialised. The shape is known at compile time.

    One array per place in the program, however often control passes it. Not in `over=` kernels.
    """


@kernel_only
def local(dtype: Any, shape: int | tuple[int, ...]) -> Any:
    """An array of this invocation alone, C order, uninitialised. The shape is known at compile time."""


@kernel_only
def barrier() -> Any:
    """Waits until the whole workgroup has come here; orders shared and global memory among its invocations.

    Must be in control flow that is uniform in the workgroup. Not in `over=` kernels.
    """


@kernel_only
def fence(scope: str = "device") -> Any:
    """Orders this invocation's memory accesses at `scope`, "workgroup" or "device"; waits for nobody."""
