"""Known driver bugs that give wrong results for correct modules and for which the compiler has no workaround.

The fuzzer counts a difference that such a bug may explain instead of reporting it. A bug is recognized by the driver
and by operations in the module.

`llvmpipe` (Mesa 22.3 with LLVM 15): if a sign bit is cleared by `and` with a mask, after a barrier and a store, and the
value is selected by a comparison of the same magnitude, then the value becomes 0. See docs/fuzzing.md.
"""

from __future__ import annotations

from vkjit.ir.core import Module, Op
from vkjit.ir.rewrite import constant_of
from vkjit.runtime.device import Device

__all__ = ["known_fault"]

_MAGNITUDES = frozenset((1 << (bits - 1)) - 1 for bits in (16, 32, 64))
"""The masks of all bits of a float except its sign."""


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
