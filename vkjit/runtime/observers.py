"""Launch requests: the values that devices launch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from .device import Buffer, LoadedKernel

__all__ = ["Extents", "LaunchRequest", "new_request"]

Extents: TypeAlias = "dict[int, tuple[int, int]]"
"""The address ranges [low, high) of arrays, by parameter index."""


class LaunchRequest(NamedTuple):
    """A launch of `groups` workgroups with the packed argument block `block`.

    `reads` and `writes` are the buffers that the kernel accesses. `extents` are the address ranges of its arrays, known
    only for launches that are captured: argument blocks have the addresses of arrays, but not their ends.
    """

    kernel: LoadedKernel
    groups: tuple[int, int, int]
    block: bytes
    reads: Sequence[Buffer]
    writes: Sequence[Buffer]
    extents: Extents | None = None


_Fields: TypeAlias = (
    "tuple[LoadedKernel, tuple[int, int, int], bytes, Sequence[Buffer], Sequence[Buffer], Extents | None]"
)
new_request: Callable[[_Fields], LaunchRequest] = functools.partial(tuple.__new__, LaunchRequest)
"""Return a request with these fields, all of them, without the Python call that `LaunchRequest(...)` makes."""
