"""The kernel with an edit made to its text.

Enters: a kernel and an `Edit`. Leaves: another kernel, compiled from the changed text, with the places of the original.
"""

from __future__ import annotations

from dataclasses import replace

from ...frontend.source import edited, source_of
from ...jit import Kernel
from .edits import Edit, changed_lines

__all__ = ["mutant"]


def mutant(kernel: Kernel, edit: Edit) -> Kernel:
    """The changed kernel; launch options and signature stay. CompileError where it doesn't parse."""
    source = source_of(kernel.spec.fn)
    function = edited(kernel.spec.fn, changed_lines(source.lines, edit))
    made = kernel.variant(function)
    made.spec = replace(kernel.spec, fn=function)
    made._forget()
    return made
