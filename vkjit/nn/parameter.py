"""`Parameter`: a tensor that is learned, registered by modules when assigned as an attribute."""

from __future__ import annotations

from typing import Any

from ..errors import ArgumentError
from ..tensor import api as _api  # noqa: F401  # puts the methods on Tensor
from ..tensor.autograd.tape import GradMeta
from ..tensor.op_cache import cacheable
from ..tensor.tensor import Tensor

__all__ = ["Parameter", "replace_memory"]


@cacheable
class Parameter(Tensor):
    """A tensor that is learned: modules list it among `parameters()`. It requires a gradient by default.

    data: the initial values. The parameter shares the memory of this tensor, but is a separate leaf on the autograd
    tape.
    """

    __slots__ = ()

    def __init__(self, data: Tensor, requires_grad: bool = True) -> None:
        if not isinstance(data, Tensor):
            raise ArgumentError(f"a Parameter is made of a tensor, found {type(data).__name__}: use vk.tensor(...)")
        super().__init__(data._array)
        self.requires_grad_(requires_grad)

    @property
    def data(self) -> Tensor:
        """A view of the parameter's memory that is detached from the tape.

        Assigning a tensor to `data` makes the parameter use that tensor's memory.
        """
        return self.detach()

    @data.setter
    def data(self, value: Tensor) -> None:
        replace_memory(self, value)

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        copied = Parameter(self.detach().clone(), self.requires_grad)
        memo[id(self)] = copied
        return copied


def replace_memory(target: Tensor, value: Tensor) -> None:
    """Make the leaf `target` use the memory, type, shape and device of `value`. References to the leaf stay valid.

    If the shape is the same, the leaf's gradient is kept, converted to the new type and device.
    """
    if not target.is_leaf:
        raise ArgumentError("only leaves can be given other memory: this tensor is the result of a recorded operation")
    gradient, old_meta = target.grad, target.meta
    fresh = Tensor(value._array)  # for its version: writes to `value` aren't writes to the leaf
    target._array, target._version, target._history = fresh._array, fresh._version, fresh._history
    target._is_view, target._root = False, None  # a leaf that was a view of another tensor is one no longer
    if (old_meta.shape, old_meta.dtype, old_meta.device) == (value.shape, value.dtype, value.device):
        return  # operations recorded earlier still propagate gradients to the leaf
    target.meta = GradMeta(value.shape, value.dtype, value.device, requires_grad=old_meta.requires_grad)
    target.meta.hooks = old_meta.hooks
    if gradient is not None and gradient.shape == value.shape:
        target.meta.grad = gradient.detach().to(dtype=value.dtype, device=value.device)
