"""Attributes of generated kernels that state properties of their arrays, and a check that the arrays have them.

The compiler relies on three attributes of the kernel and on a flag of array types:

- `narrow`: every array spans fewer than 2**31 elements.
- `aligned`: every array, and each of its rows (slices along the last axis), starts at a multiple of 16 bytes.
- `backward`: some array has a negative stride.
- `contiguous`, the flag: the array is in C order, without gaps.

If users launch a kernel, the host derives them from the arguments. For generated programs on tiles,
`with_random_attributes` sets them; for other generated programs, the module `generate` sets those it needs.
`violated_attributes` checks them before a launch.

`narrow`, `aligned` and `contiguous` allow optimizations and must not be set if they don't hold. `backward` is the
opposite: it must be set if a stride is negative, since code compiled without it may be wrong for such arrays.
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
"""Makes the random numbers of this module differ from those of other modules, which use the same seed."""
_NARROW, _ALIGNED, _CONTIGUOUS = 0.6, 0.4, 0.5
"""Probabilities of setting `narrow` (which holds in all generated programs, since their arrays are small), `aligned`
(if all layouts can be changed so that it holds) and, for each array, `contiguous` (if it holds).
"""


def with_random_attributes(program: Program) -> Program:
    """Set a random selection of the attributes that hold, and `backward` if it is required.

    If `aligned` is selected, pads the rows of arrays so that `aligned` holds; it isn't set if that isn't sufficient.
    Modifies the kernel in place, and returns the program with the changed layouts. The selection depends on the
    program's seed only.
    """
    random = Random(program.seed ^ _SALT)
    kernel = program.module.kernel
    narrow = random.random() < _NARROW
    selects_aligned = random.random() < _ALIGNED
    padded = tuple(_with_padded_rows(p, layout) for p, layout in zip(kernel.params, program.layouts, strict=True))
    # some arrays must stay contiguous, so that their rows may be unaligned nevertheless
    aligned = selects_aligned and _all_rows_aligned(kernel.params, padded)
    if aligned:
        program = replace(program, layouts=padded)
    for param, layout in zip(kernel.params, program.layouts, strict=True):
        if layout is not None and random.random() < _CONTIGUOUS and _is_contiguous(layout):
            assert isinstance(param.type, Array)
            param.type = replace(param.type, contiguous=True)
    attributes: dict[LaunchFlag, bool] = {
        "narrow": narrow,
        "aligned": aligned,
        "backward": _is_backward(program.layouts),
    }
    for name, is_set in attributes.items():
        if is_set:
            kernel.attrs[name] = True
    return program


def violated_attributes(kernel: Function, layouts: Sequence[Layout | None]) -> list[str]:
    """Describe each property that the kernel's attributes and types state but the arrays don't have. A `backward` that
    is required but not set counts, too. `narrow` isn't checked, since generated arrays are small.
    """
    violations = []
    if _is_backward(layouts) and not kernel.attrs.get("backward"):
        violations.append("an array has a negative stride, and the kernel's attribute `backward` isn't set")
    if kernel.attrs.get("aligned") and not _all_rows_aligned(kernel.params, layouts):
        violations.append("the kernel is `aligned`, and not all rows of its arrays begin at multiples of 16 bytes")
    for param, layout in zip(kernel.params, layouts, strict=True):
        if (
            layout is not None
            and isinstance(param.type, Array)
            and param.type.contiguous
            and not _is_contiguous(layout)
        ):
            violations.append(f"%{param.name} is contiguous by its type, with strides {layout.strides}")
    return violations


def _is_backward(layouts: Sequence[Layout | None]) -> bool:
    """True if an array has a negative stride."""
    return any(stride < 0 for layout in layouts if layout is not None for stride in layout.strides)


def _is_contiguous(layout: Layout) -> bool:
    """True for C order without gaps. Strides of axes of length 1 may have any value, as may those of empty arrays."""
    expected = contiguous_strides(layout.shape)
    axes = zip(layout.shape, layout.strides, expected, strict=True)
    return 0 in layout.shape or all(extent == 1 or stride == required for extent, stride, required in axes)


def _alignment_in_elements(param: Value) -> int:
    """Return the smallest number of elements of an array parameter that take a multiple of `ROW_ALIGNMENT` bytes.

    A row is aligned if its offset in elements is a multiple of this number (`ROW_ALIGNMENT` is 16).
    """
    assert isinstance(param.type, Array)
    size = param.type.element.size if isinstance(param.type.element, Vector) else 1
    element_bytes = param.type.dtype.itemsize * size
    return ROW_ALIGNMENT // math.gcd(element_bytes, ROW_ALIGNMENT)


def _all_rows_aligned(params: Sequence[Value], layouts: Sequence[Layout | None]) -> bool:
    """True if the rows of all arrays are aligned, as `aligned` states."""
    return all(_rows_aligned(param, layout) for param, layout in zip(params, layouts, strict=True))


def _rows_aligned(param: Value, layout: Layout | None) -> bool:
    """True if an array and each of its rows start at a multiple of 16 bytes in the buffer. True for scalars (None)."""
    if layout is None:
        return True
    alignment = _alignment_in_elements(param)
    row_strides = layout.strides[:-1]
    # The compiler may compute the strides of a contiguous array from its extents, even for axes of length 1, whose
    # actual strides may have any value. All computed strides of rows are multiples of the last extent.
    if _is_contiguous(layout):
        row_strides = layout.shape[-1:] if len(layout.shape) > 1 else ()
    return not any(offset % alignment for offset in (*row_strides, layout.first))


def _with_padded_rows(param: Value, layout: Layout | None) -> Layout | None:
    """Return a layout of the same shape, in C order, with padded rows that start at multiples of 16 bytes.

    Strides keep their signs; strides of 0 stay 0. The array keeps all its strides if its type is contiguous (its rows
    may then stay unaligned), or if it is contiguous and its rows are aligned without padding.
    """
    if layout is None:
        return None
    alignment = _alignment_in_elements(param)
    strides, step = [0] * len(layout.shape), 1
    for axis in reversed(range(len(layout.shape))):
        sign = (layout.strides[axis] > 0) - (layout.strides[axis] < 0)
        strides[axis] = sign * step
        step = _round_up(step * max(layout.shape[axis], 1), alignment)
    assert isinstance(param.type, Array)
    needs_padding = bool(layout.shape) and layout.shape[-1] % alignment != 0
    if param.type.contiguous or (_is_contiguous(layout) and not needs_padding):
        strides = list(layout.strides)
    # the offset of the last index along each axis, and from these the lowest and the highest offset of an element
    last_offsets = [stride * (extent - 1) for stride, extent in zip(strides, layout.shape, strict=True) if extent]
    lowest = sum(offset for offset in last_offsets if offset < 0)
    highest = sum(offset for offset in last_offsets if offset > 0)
    first = _round_up(max(layout.first, -lowest), alignment)
    total = max(first + highest + 1, layout.total)
    return replace(layout, strides=tuple(strides), first=first, total=total)


def _round_up(number: int, step: int) -> int:
    """Round up to a multiple of `step`."""
    return -(-number // step) * step
