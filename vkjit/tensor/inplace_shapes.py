"""Forms in place that change a tensor's shape and strides, not its memory: `t_`, `transpose_`, `squeeze_` and their like.

Enters: a tensor and the axes. Leaves: the same tensor, as the view that the operation makes of it. Holds: it counts as written,
as in PyTorch, so that what a gradient rule kept of it is refused later; other views of its memory stay what they are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..errors import ArgumentError, InternalError
from . import views
from .dispatch import is_recording
from .managed import ManagedTensor
from .parts import check_written
from .tensor import Tensor

__all__ = ["METHODS"]


def _shaped(name: str, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`name_`: the tensor becomes the operation's view of it."""

    @functools.wraps(function)
    def method(self: Tensor, *args: Any, **params: Any) -> Tensor:
        if isinstance(self, ManagedTensor):
            raise ArgumentError(f"{name}_() of a managed tensor: its place moves with it, so use {name}()")
        recorded = is_recording((self,))
        if recorded:
            check_written(f"{name}_", self)
        elif self.requires_grad and not self.is_leaf:
            raise ArgumentError(
                f"{name}_() of a tensor that depends on others (shape {self.shape}) while nothing is recorded would leave it "
                f"with gradients of another shape: use {name}(), or .detach() it first"
            )
        made = function(self.alias(), *args, **params)
        if made._array.buffer is not self._array.buffer:
            raise InternalError(f"{name}() of a tensor of strides {self.strides} made a copy")
        self._array = made._array
        self.bump_version()
        if recorded:
            made.meta.retains_grad = self.meta.retains_grad
            self.meta = made.meta
            return self
        kept = self.meta
        self.replace()
        self.meta.requires_grad, self.meta.hooks = kept.requires_grad, kept.hooks
        self.meta.grad = None if kept.grad is None else function(kept.grad, *args, **params)
        return self

    method.__name__ = method.__qualname__ = f"{name}_"
    method.__doc__ = f"`{name}` in place: the tensor itself gets the other shape, its memory stays."
    return method


METHODS: dict[str, Callable[..., Tensor]] = {
    f"{name}_": _shaped(name, getattr(views, name))
    for name in ("squeeze", "swapaxes", "swapdims", "t", "transpose", "unsqueeze")
}
"""Method name to function."""
