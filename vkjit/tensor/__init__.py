"""Tensors: strided arrays on a device, the operations on them, and their methods.

The package is callable: `vk.tensor(...)` calls `vkjit.tensor.ops.creation.tensor`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _TensorPackage(ModuleType):
    """The class of this package's module object, which makes the package callable like `creation.tensor`."""

    def __call__(self, data: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Any:
        """Return a new tensor with a copy of `data`; see `vkjit.tensor.ops.creation.tensor`."""
        from . import api
        from .ops.creation import tensor

        del api  # imported for its side effect: it installs the tensor methods
        return tensor(data, dtype, device, requires_grad)


sys.modules[__name__].__class__ = _TensorPackage
