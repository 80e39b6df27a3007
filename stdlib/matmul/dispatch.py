"""The entry point of matrix products: reduced precision if permitted, else the tuned variant, else a kernel by rule.

Products are batched: c[g, i, j] = sum over k of a[g, i, k] * b[g, k, j]. Arrays have three axes and any strides
(transposed views, broadcast batches). `vkjit.tensor.ops.matmul` calls `multiply`.
"""

from __future__ import annotations

from typing import Any

from vkjit.stdlib.matmul.precision import multiply_reduced
from vkjit.stdlib.matmul.tuning_lookup import tuned_variant
from vkjit.stdlib.matmul.variants import variants_of
from vkjit.stdlib.registry import choose, device_class

__all__ = ["multiply"]


def multiply(a: Any, b: Any, c: Any, accumulate: Any) -> None:
    """Queue c = a @ b on the device of c; `accumulate` is the accumulator type.

    On devices of class "cpu", K must be at most `registers.MAX_K`; the caller splits longer products.
    """
    if device_class(c.device) == "gpu" and multiply_reduced(a, b, c):
        return
    best_name = tuned_variant(a, b, c)
    if best_name is not None:
        for name, launch in variants_of(a, b, c, accumulate):
            if name == best_name:
                launch()
                return
    choose("matmul", c.device)(a, b, c, accumulate)
