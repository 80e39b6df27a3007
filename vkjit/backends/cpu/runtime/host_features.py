"""Instruction-set features of the host CPU that decide how kernels are compiled."""

from __future__ import annotations

__all__ = ["has_scaling"]


def has_scaling(features: frozenset[str]) -> bool:
    """True if the CPU has an instruction that multiplies by 2**floor(y) with correct overflow and underflow."""
    return "avx512vl" in features and "fma" in features
