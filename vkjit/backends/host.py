"""What devices have in common on which a launch has run when it returns: what it printed and reported waits for `synchronize`.

Enters: lines and errors, added under the lock. Leaves: text on the standard output, the first error. Holds: an interruption loses
neither; what one thread takes is written before another goes on.
"""

from __future__ import annotations

import sys
from typing import Any

from ..errors import KernelError
from ..runtime.device import Device

__all__ = ["ImmediateDevice"]


class ImmediateDevice(Device):
    """A device that runs a launch at once."""

    _lock: Any
    _lines: list[str]
    _errors: list[KernelError]

    def _surface(self) -> None:
        with self._lock:  # with no call between what is taken and its use: no interruption comes in between
            if self._lines:
                text = "".join(self._lines)
                self._lines = []
                if sys.stdout is not None:
                    sys.stdout.write(text)
            if self._errors:
                first = self._errors[0]
                self._errors = []
                raise first
