"""The kernel with an edit made to its text.

Enters: a kernel and an `Edit`. Leaves: another kernel, compiled from the changed text, with the places of the original.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...frontend import DeviceFunction
from ...frontend.source import edited, source_of
from ...jit import Kernel
from .edits import Edit, changed_lines
from .inner import with_inner

__all__ = ["mutant"]


def mutant(kernel: Kernel, edit: Edit, inside: DeviceFunction | None = None) -> Kernel:
    """The changed kernel; launch options and signature stay. `inside`: the device function whose text is edited. CompileError
    where it doesn't parse."""
    changed: Any = kernel.spec.fn if inside is None else inside.fn
    function = edited(changed, changed_lines(source_of(changed).lines, edit))
    if inside is not None:
        function = with_inner(kernel.spec.fn, inside, DeviceFunction(function, inside.scope))
    made = kernel.variant(function)
    made.spec = replace(kernel.spec, fn=function)
    made._forget()
    return made
