"""Why samples of PyTorch's tests fail here, operation by operation; `opinfo.py` puts it into docs/operations.md."""

from __future__ import annotations

__all__ = ["REASONS"]

REASONS: dict[str, str] = {
    "linalg.matrix_power": "negative powers need an inverse, and there are no decompositions here",
    "nn.functional.batch_norm": "an input of one axis without elements is refused; one sum of 16-bit floats is off by a rounding",
    "norm": "the nuclear norm needs singular values, and there are no decompositions here",
}
"""Operation to the reason of its failures."""
