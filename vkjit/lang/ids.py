"""Ids of invocations and workgroups, and the sizes of workgroups and the grid."""

from __future__ import annotations

from typing import Any

from ._stub import kernel_only

__all__ = ["global_id", "group_id", "local_id", "local_size", "num_groups"]


@kernel_only
def global_id(dim: int = 0) -> Any:
    """Return the id of the invocation in the whole grid along `dim` (0, 1 or 2), an `index`.

    In a kernel with `over="x"`, which has one invocation per element of the array x, it is the index of the element
    along axis `x.ndim - 1 - dim`, for a `dim` from 0 to `x.ndim - 1`.
    """


@kernel_only
def local_id(dim: int = 0) -> Any:
    """Return the id of the invocation in its workgroup along `dim` (0, 1 or 2), an `index`."""


@kernel_only
def group_id(dim: int = 0) -> Any:
    """Return the id of the workgroup in the grid along `dim` (0, 1 or 2), an `index`; uniform in the workgroup."""


@kernel_only
def local_size(dim: int = 0) -> Any:
    """Return the number of invocations of a workgroup along `dim` (0, 1 or 2), an `index`."""


@kernel_only
def num_groups(dim: int = 0) -> Any:
    """Return the number of workgroups of the grid along `dim` (0, 1 or 2), an `index`."""
