"""In-place operations that change a tensor's shape and strides but not its memory, such as `t_` and `squeeze_`.

The tensor becomes the view of itself that the operation without the underscore returns. As in PyTorch, this counts as a
write, so gradient rules that kept the tensor refuse to use it afterwards. Other views of its memory don't change.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from vkjit.errors import ArgumentError, InternalError

from ..dispatch import is_recording
from ..managed import ManagedTensor
from ..tensor import Tensor
from ..view_tracking import check_writable
from . import views

__all__ = ["METHODS"]


def _in_place_view(name: str, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Make the in-place version of the view operation `name`: the tensor becomes the view that `function` returns."""

    @functools.wraps(function)
    def method(self: Tensor, *args: Any, **params: Any) -> Tensor:
        if isinstance(self, ManagedTensor):
            raise ArgumentError(f"{name}_() can't change a managed tensor, whose memory may migrate: use {name}()")
        recorded = is_recording((self,))
        if recorded:
            check_writable(f"{name}_", self)
        elif self.requires_grad and not self.is_leaf:
            raise ArgumentError(
                f"{name}_() of a tensor that depends on others (shape {self.shape}) while nothing is recorded would leave it "
                f"with gradients of another shape: use {name}(), or .detach() it first"
            )
        view = function(self.alias(), *args, **params)
        if view._array.buffer is not self._array.buffer:
            raise InternalError(f"{name}() of a tensor of strides {self.strides} made a copy")
        self._array = view._array  # the tensor takes over the view's shape and strides
        self.bump_version()
        if recorded:  # and the view's autograd history, whose last operation is `name`
            view.meta.retains_grad = self.meta.retains_grad
            self.meta = view.meta
            return self
        # not recorded: keep the autograd settings, and give the gradient the new shape too
        old_meta = self.meta
        self.reset_meta()
        self.meta.requires_grad, self.meta.hooks = old_meta.requires_grad, old_meta.hooks
        self.meta.grad = None if old_meta.grad is None else function(old_meta.grad, *args, **params)
        return self

    method.__name__ = method.__qualname__ = f"{name}_"
    method.__doc__ = f"In-place version of `{name}`: changes this tensor's shape and strides, not its memory."
    return method


METHODS: dict[str, Callable[..., Tensor]] = {
    f"{name}_": _in_place_view(name, getattr(views, name))
    for name in ("squeeze", "swapaxes", "swapdims", "t", "transpose", "unsqueeze")
}
"""In-place methods by name, which `methods.install` adds to `Tensor`."""
