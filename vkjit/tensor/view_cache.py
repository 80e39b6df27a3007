"""Views, computed once per layout of the operand and arguments of the call.

The shape, strides and offset of a view, and the operations recorded for it, follow from the operand's type, shape and
strides and from the arguments. `cached_view` keeps them for later calls as a `ViewPlan`. Calls whose result isn't a view
of the operand, such as a `reshape` that must copy, aren't kept, and with
VKJIT_REPEAT=0 none are.

Keys are flat tuples. Their items are ints, strings, None and `...`, which are equal only if they are the same argument,
and types that stand for the structure: tuples and lists are preceded by their type and length, slices by `slice`,
keywords by `dict`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from ..runtime.array import layout_of
from ..runtime.capture import open_captures
from ..runtime.dispatch_cache import repeating
from .argument_errors import explain_errors, explains
from .argument_views import own_result
from .autograd import tape
from .autograd.mode import modes, recording
from .autograd.rules import RuleRow
from .autograd.tape import UNTRACKED, GradMeta, Node
from .op_cache.key import _TENSORS
from .op_cache.nodes import NodePlan, ReplayedNode
from .tensor import Tensor

__all__ = ["cached_view", "row_view"]

F = TypeVar("F", bound=Callable[..., Any])

_MAX_PLANS = 1 << 14
_INVERTED = frozenset({"permute", "reshape"})
"""Views whose gradient rules just make another view, which is faster than replaying them."""
_MAX_RESULTS = 64
"""Results of a call that is kept."""
_PLAIN = frozenset({int, str, type(None), type(Ellipsis)})

_new = object.__new__


class ViewPlan(NamedTuple):
    """A view: `shift` bytes after its operand, with a layout of `layout_of`; None stands for the operand itself.

    `nodes` are the operations to record, first to last: name, gradient rule, parameters, the shape of the result, and
    the plan of a `ReplayedNode`, or None for those in `_INVERTED`.
    """

    shift: int
    layout: Any
    nodes: tuple[tuple[str, RuleRow, dict[str, Any], tuple[int, ...], NodePlan | None], ...]


Plan = tuple[int, Any, tuple[tuple[str, RuleRow, dict[str, Any], tuple[int, ...], NodePlan | None], ...]]
"""A `ViewPlan` or a plain tuple of its fields."""
Plans = ViewPlan | list[ViewPlan]
"""The plan of a call that returns one view, or the plans of one that returns a tuple."""

_unrecorded: dict[tuple[Any, ...], Plans] = {}
_recorded: dict[tuple[Any, ...], Plans] = {}
_rows: dict[Any, tuple[int, int, Any]] = {}
"""By layout: the extent of the first axis, its stride in bytes, and the layout of what one index of it selects."""


def cached_view(function: F) -> F:
    """Decorate a function that returns views of its first argument, or a tuple of them.

    Which views these are may depend only on the operand's type, shape and strides, and on the other arguments.
    """
    name = function.__name__
    function = explain_errors(function)

    @functools.wraps(function)
    def run(x: Any, *args: Any, **params: Any) -> Any:
        kind: Any = x.__class__
        if open_captures:  # views of arguments follow them
            result = function(x, *args, **params)
            return own_result(x) if result is x else result
        if kind not in _TENSORS or modes.get().special or x._history != x._version.recorded:
            return function(x, *args, **params)
        key: Any = args
        try:
            if not _PLAIN.issuperset(map(type, args)):
                key = _flat(args)
            if params and key is not None:
                named = _flat(chain.from_iterable(params.items()))
                key = None if named is None else (*key, dict, *named)
        except RecursionError:  # the function explains that arguments are nested too deep
            key = None
        if key is None:
            return function(x, *args, **params)
        array = x._array
        key = (array.layout or (array.dtype, array.shape, array.strides), name, *key)
        recorded = x.meta.requires_grad and recording.get()
        if recorded and tape.NodeClass is not Node:
            return function(x, *args, **params)
        plans: Any = (_recorded if recorded else _unrecorded).get(key)
        if plans.__class__ is ViewPlan:
            return _view(x, plans)
        if plans is not None:  # a list
            return tuple([_view(x, plan) for plan in plans])
        result = function(x, *args, **params)
        if repeating():
            _keep(_recorded if recorded else _unrecorded, key, x, result)
        return result

    return explains(run)  # type: ignore[return-value]  # wraps keeps the signature


def _flat(args: Iterable[Any]) -> list[Any] | None:
    """Return the items of a key for these arguments, None if there are others than ints, None, slices and the like."""
    items: list[Any] = []
    for value in args:
        kind = value.__class__
        if kind in _PLAIN:
            items.append(value)
        elif kind is slice:
            bounds = value.start, value.stop, value.step
            if not _PLAIN.issuperset(map(type, bounds)):
                return None
            items += (slice, *bounds)
        else:
            inner = _flat(value) if kind is tuple or kind is list else None
            if inner is None:
                return None
            items += (kind, len(inner), *inner)
    return items


def row_view(x: Tensor, index: int) -> Tensor | None:
    """Return the view `x[index]` without recording it; None if the index is out of range, the tensor has no elements, or
    work is captured.

    Indices vary more than other arguments, so all of a layout share a plan.
    """
    if open_captures:
        return None
    array = x._array
    key = array.layout or (array.dtype, array.shape, array.strides)
    row = _rows.get(key)
    if row is None:
        if not array.shape or 0 in array.shape:
            return None
        if len(_rows) >= _MAX_PLANS:
            _rows.clear()
        layout = layout_of(array.dtype, array.shape[1:], array.strides[1:])
        row = _rows[key] = array.shape[0], array.strides[0] * array.dtype.itemsize, layout
    extent, step, layout = row
    return _view(x, (index % extent * step, layout, ())) if -extent <= index < extent else None


def _view(x: Any, plan: Plan) -> Tensor:
    """Make a view of a tensor that isn't stale, as `Tensor.view_of` does, and record it if the plan has nodes."""
    shift, layout, nodes = plan
    if layout is None:
        return x  # type: ignore[no-any-return]
    array, version, root = x._array, x._version, x._root
    edge, dtype, device = x.meta, array.dtype, array.buffer.device
    view: Any = _new(Tensor)
    view._array, view._is_view = array.shifted(shift, layout), True
    view._version, view._history = version, version.recorded
    if nodes or not edge.requires_grad:
        view._root = x if root is None else root
    else:
        view._root = UNTRACKED
    view.meta = meta = GradMeta(layout[3], dtype, device)
    last = len(nodes) - 1
    for number, (name, row, params, shape, node_plan) in enumerate(nodes):
        result: Any = meta if number == last else GradMeta(shape, dtype, device)
        if node_plan is None:
            Node.of_view(name, row, edge, params, result)
        else:
            ReplayedNode.of_view(name, row, edge, params, result)
            result.node.plan = node_plan
        edge = result
    return view  # type: ignore[no-any-return]


def _keep(table: dict[tuple[Any, ...], Plans], key: tuple[Any, ...], x: Tensor, result: Any) -> None:
    """Keep the plans of a call on `x` that returned `result`, unless it isn't replaceable by them."""
    results = result if result.__class__ is tuple else (result,)
    plans = [plan for plan in (_plan_of(x, view, table is _recorded) for view in results) if plan is not None]
    if len(plans) < len(results) or len(plans) > _MAX_RESULTS:
        return
    if len(table) >= _MAX_PLANS:
        table.clear()
    table[key] = plans if result.__class__ is tuple else plans[0]


def _plan_of(x: Tensor, view: Any, recorded: bool) -> ViewPlan | None:
    """Return the plan of a view of `x`, or None if it isn't one, or more has been recorded than operations on views."""
    if view is x:
        return ViewPlan(0, None, ())
    if view.__class__ is not Tensor or view._version is not x._version or view._array.buffer is not x._array.buffer:
        return None
    nodes: list[Any] = []
    meta: Any = view.meta
    while recorded and meta is not x.meta:
        node = meta.node
        if node is None or len(node.edges) != 1 or node._parameters or node.row.keeps_inputs or node.row.keeps_outputs:
            return None
        name, row, params, plan = node.name, node.row, node.params, None
        if name not in _INVERTED:
            plan = NodePlan(name, row, params, (), ((0, None, False),), (True,), ((1, True, False),), object())
        nodes.append((name, row, params, meta.shape, plan))
        meta = node.edges[0]
    array = view._array
    layout = layout_of(array.dtype, array.shape, array.strides)
    return ViewPlan(array.offset - x._array.offset, layout, tuple(reversed(nodes)))
