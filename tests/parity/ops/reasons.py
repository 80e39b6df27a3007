"""Reasons for failing PyTorch samples by operation; `opinfo.py` inserts them into docs/operations.md."""

from __future__ import annotations

__all__ = ["REASONS"]

REASONS: dict[str, str] = {
    "linalg.matrix_power": "negative powers require a matrix inverse, and decompositions aren't implemented",
    "nn.functional.batch_norm": "an empty input with one axis is rejected; one sum of 16-bit floats differs by one rounding",
    "norm": "the nuclear norm requires singular values, and decompositions aren't implemented",
}
"""Reasons for failures by operation."""
