"""Base class of devices whose launches complete before `launch` returns (CPU, interpreter).

Printed lines and reported errors are collected under the lock and surface at `synchronize` or `read`: the text on
standard output, then the first error as an exception. An interrupt loses neither, and one thread's text is written
before another thread continues.
"""

from __future__ import annotations

import sys
from typing import Any

from ..errors import KernelError
from ..runtime.device import Device

__all__ = ["ImmediateDevice"]


class ImmediateDevice(Device):
    """A device that runs launches synchronously."""

    _lock: Any
    _lines: list[str]
    _errors: list[KernelError]

    def _surface(self) -> None:
        with self._lock:  # no call between taking an item and using it: no interrupt can come in between
            if self._lines:
                text = "".join(self._lines)
                self._lines = []
                if sys.stdout is not None:
                    sys.stdout.write(text)
            if self._errors:
                first = self._errors[0]
                self._errors = []
                raise first
