"""What layers that normalise channels hold: weights, and running statistics.

Enters: a module under construction. Leaves: its parameters `weight` and `bias` and its buffers `running_mean` and
`running_var`, (num_features,), not filled yet, or None each.
"""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..tensor import creation
from ..tensor.tensor import Tensor
from .module import Module
from .parameter import Parameter

__all__ = ["declare_statistics"]


def declare_statistics(
    module: Module, num_features: int, affine: bool, bias: bool, tracked: bool, dtype: Any, device: Any
) -> Tensor | None:
    """Registers them; gives the counter of batches, where statistics are tracked."""
    for name in ("weight", "bias"):
        wanted = affine and (bias or name == "weight")
        made = Parameter(creation.empty(num_features, dtype=dtype, device=device)) if wanted else None
        module.register_parameter(name, made)
    for name in ("running_mean", "running_var"):
        module.register_buffer(name, creation.empty(num_features, dtype=dtype, device=device) if tracked else None)
    return creation.zeros((), dtype=dtypes.i64, device=device) if tracked else None
