"""Facts about arguments that launches guarantee to the compiler, for generated programs.

Sets the kernel attributes `backward`, `narrow` and `aligned`, and the `contiguous` flag of array types, and checks
them. A launched program must not claim facts that its memory violates, nor omit facts that the compiler relies on:
`backward` says that a stride is negative, and code compiled without it may be wrong for such arrays.
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

__all__ = ["broken_promises", "promised"]

_SALT = 0xA11C
_NARROW, _ALIGNED, _CONTIGUOUS = 0.6, 0.4, 0.5
"""Probability of each fact being claimed if it holds or can be made to hold."""


def promised(program: Program) -> Program:
    """Return the program with random facts that hold; some array layouts are changed to make `aligned` hold. The result
    depends on the seed only, independently of its other uses.
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
    facts: dict[LaunchFlag, bool] = {
        "narrow": narrow,
        "aligned": aligned and all(_is_aligned(p, layout) for p, layout in zip(kernel.params, layouts, strict=True)),
        "backward": _is_backward(program.layouts),
    }
    for name, holds in facts.items():
        if holds:
            kernel.attrs[name] = True
    return program


def broken_promises(kernel: Function, layouts: Sequence[Layout | None]) -> list[str]:
    """Return the facts that the kernel's attributes and types claim but the arrays violate, and required ones that are
    missing.
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
    plain = contiguous_strides(layout.shape)
    pairs = zip(layout.shape, layout.strides, plain, strict=True)
    return 0 in layout.shape or all(extent == 1 or stride == step for extent, stride, step in pairs)


def _lanes(param: Value) -> int:
    """Return the smallest number of elements whose size in bytes is a multiple of the row alignment."""
    assert isinstance(param.type, Array)
    size = param.type.element.size if isinstance(param.type.element, Vector) else 1
    item = param.type.dtype.itemsize * size
    return ROW_ALIGNMENT // math.gcd(item, ROW_ALIGNMENT)


def _is_aligned(param: Value, layout: Layout | None) -> bool:
    """True if the array and each of its rows start at a multiple of 16 bytes in the buffer."""
    if layout is None:
        return True
    lanes = _lanes(param)
    steps = layout.strides[:-1]
    if _is_contiguous(layout):  # the compiler may compute the strides from the extents, even for axes of length 1
        steps = layout.shape[-1:] if len(layout.shape) > 1 else ()
    return not any(step % lanes for step in (*steps, layout.first))


def _aligned(param: Value, layout: Layout | None) -> Layout | None:
    """Return a layout with the same shape and stride signs, in C order, whose rows are aligned to 16 bytes where the
    type permits.
    """
    if layout is None:
        return None
    lanes = _lanes(param)
    strides, step = [0] * len(layout.shape), 1
    for axis in reversed(range(len(layout.shape))):
        sign = (layout.strides[axis] > 0) - (layout.strides[axis] < 0)
        strides[axis] = sign * step
        step = _up(step * max(layout.shape[axis], 1), lanes)
    assert isinstance(param.type, Array)
    if param.type.contiguous or (_is_contiguous(layout) and not (layout.shape and layout.shape[-1] % lanes)):
        strides = list(layout.strides)
    ends = [stride * (extent - 1) for stride, extent in zip(strides, layout.shape, strict=True) if extent]
    first = _up(max(layout.first, -sum(end for end in ends if end < 0)), lanes)
    total = max(first + sum(end for end in ends if end > 0) + 1, layout.total)
    return replace(layout, strides=tuple(strides), first=first, total=total)


def _up(number: int, step: int) -> int:
    return -(-number // step) * step
