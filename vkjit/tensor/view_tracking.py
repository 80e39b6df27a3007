"""Autograd for views that are written in place.

A view's `root` is the tensor that owns its memory. When a view is written, the new value of its root is recorded as the
old value with that part replaced (operation `replace_part`). All other views of the root become stale: their autograd
history describes the old values. When a stale view is next used, it *follows* its root: it is recorded as a part of the
root's current value (operation `part_of`). A tensor without a root keeps its history: a write through a detached tensor doesn't
concern the tensor that it was detached from, nor the reverse; as in PyTorch, only the values change. Cases that can't
be tracked (a view made while recording was off, a root whose memory has gaps) raise an error rather than yield
gradients of old values.

`dispatch` calls `check_writable` before and `record_written` after a write in place. It reaches `follow`, for stale
operands, as a method of `Tensor` (`METHODS`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import ArgumentError, VkjitError
from ..runtime.device import DeviceArray, contiguous_strides
from .autograd import tape
from .tensor import Tensor

__all__ = ["METHODS", "check_writable", "record_written", "shares_recorded_memory"]


def can_follow(view: Tensor) -> bool:
    """True if a stale view can be recorded as a part of its root's current value."""
    root = view.root
    if root is None:
        return True
    if not isinstance(root, Tensor) or (root.is_stale and not can_follow(root)) or _order(root._array) is None:
        return False
    # not a view made a leaf by `requires_grad_()`: it keeps its GradMeta, in which its gradient accumulates
    return view.meta.node is not None or not view.meta.requires_grad


def follow(view: Tensor) -> None:
    """If the view is stale, record it as a part of its root's current value.

    Raises VkjitError if that isn't possible.
    """
    if view.is_stale:
        _follow(view)


def follow_if_possible(view: Tensor) -> None:
    """Call `follow` if `can_follow` says that it will succeed, else do nothing.

    `Tensor` uses this for properties such as `requires_grad`, which must not raise.
    """
    if can_follow(view):
        _follow(view)


def _follow(view: Tensor) -> None:
    """Do the work of `follow` for a stale view."""
    if not can_follow(view):
        raise VkjitError(
            f"a tensor of shape {view.shape} shares memory with one that was changed in place after it was made, and "
            "its gradient would be wrong: make the view again after the change, or .clone() it before"
        )
    root = view.root
    if root is None:
        view.keep_meta()
        return
    follow(root)
    view.reset_meta()
    tape.record("part_of", (_in_c_order(root),), _location(root, view), (view,), always=True)


def shares_recorded_memory(target: Tensor) -> bool:
    """True if the tensor is a view of one that requires a gradient, or was when the view was made without recording.

    The view itself may require none. Call `check_writable` before it is written while gradients are recorded.
    """
    root = target.root
    return root is not None and (root is tape.UNTRACKED or root.requires_grad)


def check_writable(name: str, target: Tensor) -> None:
    """Raise ArgumentError if autograd can't track a write by operation `name` into `target`.

    This is the case for a leaf that requires a gradient, a view of such a leaf, a view that was made without recording,
    and a view whose root has memory with gaps.
    """
    root = target.root  # None if the target is no view
    owner = target if root is None or root is tape.UNTRACKED else root
    if owner.requires_grad and owner.is_leaf:
        what = "a leaf" if owner is target else "a view of a leaf"
        raise ArgumentError(
            f"{name} would change {what} that requires a gradient in place (shape {target.shape}): use `with "
            "vk.no_grad():` to update it, or an operation that makes a new tensor"
        )
    unrecorded = root is tape.UNTRACKED or (root is not None and root.requires_grad and not target.requires_grad)
    if unrecorded or (root is not None and _order(root._array) is None):
        why = "was made while nothing was recorded" if unrecorded else "belongs to memory with gaps"
        raise ArgumentError(
            f"{name} would change a view in place (shape {target.shape}) that {why}: assign through the tensor itself, "
            "as in x[index] = value, or .clone() the view first"
        )


def record_written(name: str, operands: tuple[Any, ...], params: dict[str, Any], target: Tensor, root: Tensor) -> None:
    """Record that operation `name` on `operands` has written the view `target`, and thereby a part of its root.

    `replace_part` describes the part by its location in a root in C order. For a root with another order of axes, it is
    recorded for the root permuted to C order (`_in_c_order`), and the inverse permutation is recorded after it.
    """
    before = _in_c_order(root.alias())  # the root with its old autograd history
    root.rebase()
    target.reset_meta()
    tape.record(name, operands, params, (target,))
    order = _order(root._array)
    assert order is not None  # checked before the write
    if order == tuple(range(len(order))):
        tape.record("replace_part", (before, target), _location(root, target), (root,))
        return
    # the root's new value in C order, then permuted back to the root's own order of axes
    reordered = Tensor(_permuted(root._array, order), version=root._version)
    tape.record("replace_part", (before, target), _location(root, target), (reordered,))
    tape.record("permute", (reordered,), {"order": tuple(order.index(i) for i in range(len(order)))}, (root,))


def _in_c_order(root: Tensor) -> Tensor:
    """Return the root with its axes permuted to descending strides, so that it is contiguous. Records the permutation.

    Returns the root itself if it is contiguous already, or if its memory has gaps (`_order` is None).
    """
    order = _order(root._array)
    if order is None or order == tuple(range(len(order))):
        return root
    ordered = Tensor(_permuted(root._array, order), version=root._version)
    tape.record("permute", (root,), {"order": order}, (ordered,), always=True)
    return ordered


def _permuted(array: DeviceArray, order: tuple[int, ...]) -> DeviceArray:
    """View the array with its axes in this order."""
    shape, strides = tuple(array.shape[i] for i in order), tuple(array.strides[i] for i in order)
    return DeviceArray(array.buffer, array.offset, array.dtype, shape, strides)


def _order(array: DeviceArray) -> tuple[int, ...] | None:
    """Return the axes sorted by descending stride, or None if the array isn't contiguous in that order.

    Axes of size 1, whose strides mean nothing, come last unless the other axes are in ascending order already.
    """
    if 0 in array.shape:
        return tuple(range(len(array.shape)))
    nontrivial = [i for i, extent in enumerate(array.shape) if extent != 1]
    nontrivial.sort(key=lambda i: -array.strides[i])
    shape = tuple(array.shape[i] for i in nontrivial)
    if tuple(array.strides[i] for i in nontrivial) != contiguous_strides(shape):
        return None
    if nontrivial == sorted(nontrivial):
        return tuple(range(len(array.shape)))
    return (*nontrivial, *(i for i in range(len(array.shape)) if i not in nontrivial))


def _location(root: Tensor, view: Tensor) -> dict[str, Any]:
    """Return the parameters of `part_of` and `replace_part` that describe the view as a part of its root.

    These are the view's shape and strides, and the offset `start` of its first element from the root's, in elements.
    """
    start = (view._array.offset - root._array.offset) // view.dtype.itemsize if view.numel() else 0
    return {"shape": view.shape, "strides": view.strides, "start": start}


METHODS: dict[str, Callable[..., Any]] = {"follow": follow, "_follow_if_possible": follow_if_possible}
"""Functions that `methods.install` adds to `Tensor` as methods, by the method's name."""
