"""Every access to memory that a SPIR-V module makes, watched while it runs: alignment, range, negative indices.

Some drivers read and write whatever is mapped, at any address; others lose the device. `watched` changes a module so that it
checks each address before it is used and goes elsewhere with a wrong one, `Watcher` does so to all launches of a device.
"""

from __future__ import annotations

from .instrument import Span, Watched, watched
from .launch import Watcher, run

__all__ = ["Span", "Watched", "Watcher", "run", "watched"]
