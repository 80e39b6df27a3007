"""Tensors: strided arrays on a device, operations on them, methods.

The package has the name of a function, `vk.tensor(...)`: it can be called, and is that function then.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _TensorPackage(ModuleType):
    """A package that is also `creation.tensor`."""

    def __call__(self, data: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Any:
        """A new tensor with a copy of `data`; see `vkjit.tensor.creation.tensor`."""
        from . import api
        from .creation import tensor

        del api  # imported so that methods are installed
        return tensor(data, dtype, device, requires_grad)


sys.modules[__name__].__class__ = _TensorPackage
