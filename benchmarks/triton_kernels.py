"""Triton kernels to compare with. Importing this module without Triton raises Absent."""

from __future__ import annotations

from benchmarks.framework import Absent

try:
    import triton
    import triton.language as tl
except ImportError as error:
    raise Absent("Triton isn't installed") from error

__all__ = ["add"]


@triton.jit  # type: ignore[misc, untyped-decorator, unused-ignore]  # Triton has no types
def add(a, b, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """out = a + b."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    tl.store(out + offsets, tl.load(a + offsets, mask=inside) + tl.load(b + offsets, mask=inside), mask=inside)
