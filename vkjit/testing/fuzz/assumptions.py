"""Attributes of generated kernels that state properties of their arrays, and a check that the arrays have them.

The compiler relies on the kernel attributes `narrow`, `aligned` and `backward` (see
`vkjit.frontend.signature.signature`) and on the `contiguous` flag of array types. In a real launch, the host sets
them from the arguments. For programs on tiles, `with_random_attributes` sets a random selection that holds; for other
programs, `generate` sets them. `violated_attributes` checks them before a launch. `narrow`, `aligned` and
`contiguous` allow optimizations and must not be set if they don't hold. `backward` is the opposite: it must be set if
a stride is negative, since code compiled without it may be wrong for such arrays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from random import Random

from vkjit.ir.attributes import LaunchFlag
from vkjit.ir.core import Function, Value
from vkjit.ir.types import Array, Vector
from vkjit.runtime.array import ROW_ALIGNMENT
from vkjit.runtime.device import contiguous_strides

from .program import Layout, Program

__all__ = ["violated_attributes", "with_random_attributes"]

_SALT = 0xA11C
"""Distinguishes the random generator of this module from others with the same seed."""
_NARROW, _ALIGNED, _CONTIGUOUS = 0.6, 0.4, 0.5
"""Probability of setting each property if it holds or can be made to hold."""


def with_random_attributes(program: Program) -> Program:
    """Set a random selection of the attributes that hold, and `backward` if it is required.

    If `aligned` is selected, changes the layouts of arrays so that it holds. Modifies the kernel and returns the
    program with the changed layouts. The selection depends on the program's seed only.
    """
    random = Random(program.seed ^ _SALT)
    kernel = program.module.kernel
    narrow, aligned = random.random() < _NARROW, random.random() < _ALIGNED
    layouts = tuple(_aligned(p, layout) for p, layout in zip(kernel.params, program.layouts, strict=True))
    if aligned and all(_is_aligned(p, layout) for p, layout in zip(kernel.params, layouts, strict=True)):
        program = replace(program, layouts=layouts)
    for param, layout in zip(kernel.params, program.layouts, strict=True):
        if layout is not None and random.random() < _CONTIGUOUS and _is_contiguous(layout):
            assert isinstance(param.type, Array)
            param.type = replace(param.type, contiguous=True)
    attributes: dict[LaunchFlag, bool] = {
        "narrow": narrow,
        "aligned": aligned and all(_is_aligned(p, layout) for p, layout in zip(kernel.params, layouts, strict=True)),
        "backward": _is_backward(program.layouts),
    }
    for name, is_set in attributes.items():
        if is_set:
            kernel.attrs[name] = True
    return program


def violated_attributes(kernel: Function, layouts: Sequence[Layout | None]) -> list[str]:
    """Describe each property that the kernel's attributes and types state but the arrays lack, and `backward` if it is
    required but not set.
    """
    broken = []
    if _is_backward(layouts) and not kernel.attrs.get("backward"):
        broken.append("an array has a negative stride, and the kernel's attribute `backward` isn't set")
    pairs = list(zip(kernel.params, layouts, strict=True))
    if kernel.attrs.get("aligned") and not all(_is_aligned(param, layout) for param, layout in pairs):
        broken.append("the kernel is `aligned`, and not all rows of its arrays begin at multiples of 16 bytes")
    for param, layout in pairs:
        if (
            layout is not None
            and isinstance(param.type, Array)
            and param.type.contiguous
            and not _is_contiguous(layout)
        ):
            broken.append(f"%{param.name} is contiguous by its type, with strides {layout.strides}")
    return broken


def _is_backward(layouts: Sequence[Layout | None]) -> bool:
    return any(stride < 0 for layout in layouts if layout is not None for stride in layout.strides)


def _is_contiguous(layout: Layout) -> bool:
    expected = contiguous_strides(layout.shape)
    pairs = zip(layout.shape, layout.strides, expected, strict=True)
    return 0 in layout.shape or all(extent == 1 or stride == required for extent, stride, required in pairs)


def _lanes(param: Value) -> int:
    """Return the smallest number of elements whose size in bytes is a multiple of `ROW_ALIGNMENT` (16)."""
    assert isinstance(param.type, Array)
    size = param.type.element.size if isinstance(param.type.element, Vector) else 1
    item = param.type.dtype.itemsize * size
    return ROW_ALIGNMENT // math.gcd(item, ROW_ALIGNMENT)


def _is_aligned(param: Value, layout: Layout | None) -> bool:
    """True if the array and each of its rows start at a multiple of 16 bytes in the buffer."""
    if layout is None:
        return True
    lanes = _lanes(param)
    row_strides = layout.strides[:-1]
    if _is_contiguous(layout):  # the compiler may compute the strides from the extents, even for axes of length 1
        row_strides = layout.shape[-1:] if len(layout.shape) > 1 else ()
    return not any(stride % lanes for stride in (*row_strides, layout.first))


def _aligned(param: Value, layout: Layout | None) -> Layout | None:
    """Return a layout of the same shape, in C order, with padded rows that start at multiples of 16 bytes.

    Strides keep their signs; strides of 0 stay 0. A contiguous array keeps its strides if its type requires them or its
    rows are aligned without padding; in the first case, the rows may stay unaligned.
    """
    if layout is None:
        return None
    lanes = _lanes(param)
    strides, step = [0] * len(layout.shape), 1
    for axis in reversed(range(len(layout.shape))):
        sign = (layout.strides[axis] > 0) - (layout.strides[axis] < 0)
        strides[axis] = sign * step
        step = _round_up(step * max(layout.shape[axis], 1), lanes)
    assert isinstance(param.type, Array)
    if param.type.contiguous or (_is_contiguous(layout) and not (layout.shape and layout.shape[-1] % lanes)):
        strides = list(layout.strides)
    last_offsets = [stride * (extent - 1) for stride, extent in zip(strides, layout.shape, strict=True) if extent]
    first = _round_up(max(layout.first, -sum(end for end in last_offsets if end < 0)), lanes)
    total = max(first + sum(end for end in last_offsets if end > 0) + 1, layout.total)
    return replace(layout, strides=tuple(strides), first=first, total=total)


def _round_up(number: int, step: int) -> int:
    """Round up to a multiple of `step`."""
    return -(-number // step) * step
