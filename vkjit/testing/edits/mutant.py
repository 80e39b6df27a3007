"""Create a mutant: a kernel compiled from edited source, whose source locations are those of the original file."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vkjit.frontend import DeviceFunction
from vkjit.frontend.source import source_of, with_edited_source
from vkjit.launch.kernel import Kernel

from .device_functions import with_device_function
from .edit import Edit, changed_lines

__all__ = ["mutant"]


def mutant(kernel: Kernel, edit: Edit, inside: DeviceFunction | None = None) -> Kernel:
    """Return a copy of the kernel with an edit applied to its source; launch options and signature are the same.

    `inside` is the device function whose source the edit changes; None if the edit changes the kernel itself. Raises
    CompileError if the edited source doesn't parse.
    """
    changed: Any = kernel.spec.fn if inside is None else inside.fn
    function = with_edited_source(changed, changed_lines(source_of(changed).lines, edit))
    if inside is not None:
        function = with_device_function(kernel.spec.fn, inside, DeviceFunction(function, inside.scope))
    changed_kernel = kernel.variant(function)
    changed_kernel.spec = replace(kernel.spec, fn=function)
    changed_kernel._forget()  # reads again which variables the function captures
    return changed_kernel
