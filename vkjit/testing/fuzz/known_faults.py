"""Known driver bugs that give wrong results for correct modules and for which the compiler has no workaround.

If such a bug may explain a difference, the fuzzer counts the difference instead of reporting it. A bug is recognized by
the driver and by operations in the module.

`llvmpipe` (Mesa 22.3 with LLVM 15): a value may become 0 if its sign bit is cleared by `and` with a mask after a
barrier and a store, and the value is then selected by a comparison of the same magnitude. See docs/fuzzing.md.
"""

from __future__ import annotations

from vkjit.ir.core import Module, Op
from vkjit.ir.rewrite import constant_of
from vkjit.runtime.device import Device

__all__ = ["known_fault"]

_MAGNITUDES = frozenset((1 << (bits - 1)) - 1 for bits in (16, 32, 64))
"""For each width of floats, the mask of all bits except the sign."""


def known_fault(device: Device, module: Module) -> str:
    """Return the name of the bug that may explain a difference; "" if there is none."""
    if "llvmpipe" not in device.caps.driver:
        return ""
    ops = list(module.kernel.body.walk())
    if any(op.name == "barrier" for op in ops) and any(map(_clears_sign, ops)):
        return "llvmpipe's sign masks after barriers"
    return ""


def _clears_sign(op: Op) -> bool:
    """True if an operation may clear the sign bit of a float by a mask."""
    return op.name == "and" and any(constant_of(v) in _MAGNITUDES for v in op.operands)
