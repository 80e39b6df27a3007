"""Checked memory accesses: instruments SPIR-V modules to verify alignment, range and sign of indices at run time.

Some drivers read and write any mapped address; others lose the device. `watched` changes a module so that it checks
each address before use and redirects invalid accesses; `Watcher` does so for all launches of a device.
"""

from __future__ import annotations

from .instrument import Span, Watched, watched
from .launch import Watcher, run

__all__ = ["Span", "Watched", "Watcher", "run", "watched"]
