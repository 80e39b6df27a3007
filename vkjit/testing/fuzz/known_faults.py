"""Known driver bugs that make correct modules give wrong results and that the compiler doesn't work around yet.

Each row names a driver and a pattern of operations, as narrow as the bug allows; the runs excused by it are counted.

`llvmpipe` (Mesa 22.3 with LLVM 15): after a barrier and a store, a sign cleared by `and` with a mask, in a value
selected by a comparison of the same magnitude, becomes 0 (see docs/fuzzing.md for the smallest kernel).
"""

from __future__ import annotations

from vkjit.ir.core import Module, Op
from vkjit.ir.rewrite import constant_of
from vkjit.runtime.device import Device

__all__ = ["known_fault"]

_MAGNITUDES = frozenset((1 << (bits - 1)) - 1 for bits in (16, 32, 64))


def known_fault(device: Device, module: Module) -> str:
    """Return the name of the bug that may explain a difference; "" if there is none."""
    if "llvmpipe" not in device.caps.driver:
        return ""
    ops = list(module.kernel.body.walk())
    if any(op.name == "barrier" for op in ops) and any(map(_clears_sign, ops)):
        return "llvmpipe's sign masks after barriers"
    return ""


def _clears_sign(op: Op) -> bool:
    return op.name == "and" and any(constant_of(v) in _MAGNITUDES for v in op.operands)
