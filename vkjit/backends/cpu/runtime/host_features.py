"""Instruction-set features of the host CPU that decide how kernels are compiled."""

from __future__ import annotations

__all__ = ["has_scaling"]


def has_scaling(features: frozenset[str]) -> bool:
    """Whether the processor multiplies by 2**floor(y), with the right overflow and underflow."""
    return "avx512vl" in features and "fma" in features
