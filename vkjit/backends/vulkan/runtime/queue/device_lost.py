"""Diagnostics for lost devices: names the kernels that were running.

Uses only state that kernels keep anyway, so that only the last launches of each kernel are known. All named kernels
were in flight; the first one is most likely at fault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import record as launch_record

if TYPE_CHECKING:
    from ..pipeline.pipeline import VulkanKernel
    from .completion import SentWork

__all__ = ["under_way"]

_MAX_NAMED = 4


def under_way(queue: SentWork) -> str:
    """Return text for the error: the kernels not known to be complete, oldest first, with their grids and the stream.

    "" if there are none.
    """
    done = queue.completed
    used = [kernel for kernel in list(queue.group.kernels) if kernel.user is queue and kernel.last_use > done]
    kernels = sorted(used, key=lambda kernel: kernel.last_use)
    if not kernels:
        return ""
    named = [f"kernel {k.artifact.name} ({_grids(k)})" for k in kernels[:_MAX_NAMED]]
    if len(kernels) > _MAX_NAMED:
        named.append(f"{len(kernels) - _MAX_NAMED} others")
    return f"; under way in {_stream(queue)}: {', '.join(named)}"


def _grids(kernel: VulkanKernel) -> str:
    """Return the grids of the kernel's last launches as text."""
    grids = [] if kernel.grid is None else [kernel.grid]
    grids += [launch_record.groups(memory) for known in kernel.records.valuerefs() if (memory := known()) is not None]
    shown = dict.fromkeys(" x ".join(map(str, grid)) for grid in grids if 0 not in grid)
    return f"{' or '.join(shown) or 'an unknown number of'} workgroups"


def _stream(queue: SentWork) -> str:
    number = next((i for i, known in enumerate(queue.group.queues) if known is queue), 0)
    return f"stream {number}" if number else "the default stream"
