"""Checked memory accesses: instruments SPIR-V modules to check the address of every access at run time.

Some drivers let a kernel read and write any mapped address, which hides errors; with others, such an access loses the
device. `watched` changes a module so that it checks the range and alignment of each address, and the sign of indices,
before use. Invalid accesses are redirected to scratch memory. `run` launches one kernel with these checks and returns
the errors. `Watcher` does so for all launches of a device. The fuzzer uses `run`; tools.watch_plugin uses `Watcher`.
"""

from __future__ import annotations

from .instrument import Span, Watched, watched
from .launch import Watcher, run

__all__ = ["Span", "Watched", "Watcher", "run", "watched"]
