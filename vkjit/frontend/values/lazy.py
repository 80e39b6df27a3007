"""Lazy values: array slices such as `x[i:j]`, and elementwise expressions of them.

With wg = `vk.workgroup()`, a collective (`wg.sum(x[i:j] * 2)`) or a store (`wg.store(y[i:j], x[i:j] * 2)`) evaluates
the elements, each in one of the invocations. The result must be the same as if the slice had been copied at the point
where it is written. Therefore it is an error to evaluate a lazy value after a store that may have changed its elements;
the message names the store. A lazy value can't leave the branch or loop in which it is made.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vkjit.errors import Note
from vkjit.ir import types
from vkjit.ir.core import Region, Value
from vkjit.ir.types import Array

from ..context import Context, Place
from ..kernel_values import KernelValue, Lazy, Source
from .conversions import as_index, materialize, static_value

__all__ = [
    "SliceTarget",
    "check_sources",
    "check_target",
    "element_of",
    "for_each_index",
    "map_lazy",
    "note_write",
    "slice_of",
    "unflattened",
]


@dataclass(frozen=True, slots=True)
class SliceTarget:
    """The location of a slice in its array.

    For each dimension of the array, `starts` has the first index, and `axes` has the axis of the slice that runs along
    the dimension, or None if the dimension has a single index.
    """

    array: Value
    starts: tuple[Value, ...]
    axes: tuple[int | None, ...]

    def at(self, ctx: Context, index: tuple[Value, ...]) -> list[Value]:
        """Return the array indices of the slice's element at `index`, which has one item per axis of the slice."""
        return [
            start if axis is None else ctx.builder.emit("add", start, index[axis])
            for start, axis in zip(self.starts, self.axes, strict=True)
        ]


def slice_of(ctx: Context, node: ast.Subscript, array: Value) -> Lazy:
    """Lower a subscript with slices to a lazy value."""
    items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    assert isinstance(array.type, Array)
    if len(items) != array.type.rank:
        raise ctx.error(node, f"expected {array.type.rank} indices or slices, found {len(items)}", "write `:` for all")
    starts: list[Value] = []
    axes: list[int | None] = []
    shape: list[Value] = []
    sizes: list[int | None] = []
    for axis, item in enumerate(items):
        if isinstance(item, ast.Slice):
            start, length = _bounds(ctx, item, array, axis)
            sizes.append(_size(ctx, item, length))
            axes.append(len(shape))
            starts.append(start)
            shape.append(length)
        else:
            axes.append(None)
            starts.append(_lower_index(ctx, item, array, axis))
    target = SliceTarget(array, tuple(starts), tuple(axes))
    source = Source(array, len(ctx.session.writes), ctx.loc(node), tuple(starts), tuple(ctx.loops))

    def element(inner: Context, index: tuple[Value, ...]) -> KernelValue:
        return inner.builder.emit("load", array, *target.at(inner, index))

    return Lazy(tuple(shape), element, (source,), target, tuple(sizes))


def _size(ctx: Context, node: ast.Slice, length: Value) -> int | None:
    """Return the static size of a slice, or None if unknown. `length` is the length that `_bounds` returns.

    The size is known for `start:start+SIZE`, for `:` of an array of static shape, and for constant bounds. Unlike
    `length`, a size that follows from the bounds alone isn't clipped to the array.
    """
    static_length = static_value(length)
    if static_length is not None:
        return int(static_length)
    upper, lower = node.upper, node.lower
    if upper is None:
        return None
    if isinstance(upper, ast.BinOp) and isinstance(upper.op, ast.Add) and lower is not None:
        if ast.dump(lower) == ast.dump(upper.left):  # start:start+SIZE
            return _positive(static_value(ctx.evaluate(upper.right)))
    start = static_value(ctx.evaluate(lower)) if lower is not None else 0
    stop = static_value(ctx.evaluate(upper))
    if start is None or stop is None or (start < 0) != (stop < 0):
        return None  # if only one counts from the end, the size depends on the extent
    return _positive(stop - start)


def _positive(size: float | None) -> int | None:
    """Return the size if it is a positive integer, else None."""
    return size if isinstance(size, int) and size > 0 else None


def _extent(ctx: Context, array: Value, axis: int) -> Value:
    """Return the extent along an axis as an IR value of type `index`."""
    assert isinstance(array.type, Array)
    static_shape = array.type.shape
    return (
        ctx.builder.emit("extent", array, axis=axis) if static_shape is None else ctx.builder.index(static_shape[axis])
    )


def _lower_index(ctx: Context, node: ast.expr, array: Value, axis: int) -> Value:
    """Lower the index along an axis, or one bound of a slice; a negative constant counts from the end of the axis."""
    value = ctx.evaluate(node)
    number = static_value(value)
    if number is not None and number < 0:
        return ctx.builder.emit("add", _extent(ctx, array, axis), as_index(ctx, node, value))
    return as_index(ctx, node, value)


def _bounds(ctx: Context, node: ast.Slice, array: Value, axis: int) -> tuple[Value, Value]:
    """Return the start and length of a slice along one axis; the end is clipped to the array, as in Python."""
    b = ctx.builder
    size = _extent(ctx, array, axis)
    if node.step is not None and static_value(ctx.evaluate(node.step)) != 1:
        raise ctx.error(node.step, "a slice goes in steps of 1", "loop over the elements")
    if node.lower is None and node.upper is None:
        return b.index(0), size
    start = _lower_index(ctx, node.lower, array, axis) if node.lower is not None else b.index(0)
    stop = b.emit("min", _lower_index(ctx, node.upper, array, axis), size) if node.upper is not None else size
    return start, b.emit("max", b.emit("sub", stop, start), b.index(0))


def map_lazy(ctx: Context, node: Place, function: Callable[..., KernelValue], values: list[KernelValue]) -> Lazy:
    """Return the lazy value of applying `function(context, *elements)` elementwise; at least one of `values` is lazy.

    The function gets the elements of lazy values, and the other values as they are.
    """
    lazies = [v for v in values if isinstance(v, Lazy)]
    shape = lazies[0].shape
    for other in lazies[1:]:
        if len(other.shape) != len(shape):
            hint = "index the other dimensions, so that both have as many left"
            raise ctx.error(node, f"slices with {len(shape)} and {len(other.shape)} dimensions can't be combined", hint)
        _check_extents(ctx, node, shape, other.shape)
    sources = tuple(dict.fromkeys(s for lazy in lazies for s in lazy.sources))  # unique, in order
    node_loc = ctx.loc(node)

    def element(inner: Context, index: tuple[Value, ...]) -> KernelValue:
        saved, inner.builder.loc = inner.builder.loc, node_loc
        result = function(inner, *(v.element(inner, index) if isinstance(v, Lazy) else v for v in values))
        inner.builder.loc = saved
        return result

    mapped = Lazy(shape, element, sources, None, lazies[0].sizes)
    with ctx.builder.at(Region()):  # lowered once and discarded, to report type errors here
        element(ctx, tuple(ctx.builder.emit("poison", type=types.INDEX) for _ in shape))
    return mapped


def _check_extents(ctx: Context, node: Place, a: tuple[Value, ...], b: tuple[Value, ...]) -> None:
    """Raise CompileError if two shapes differ in an extent that is static in both of them."""
    for x, y in zip(a, b, strict=True):
        sizes = static_value(x), static_value(y)
        if None not in sizes and sizes[0] != sizes[1]:
            hint = "give both the same extents, as in x[i : i + SIZE]"
            raise ctx.error(node, f"slices of {sizes[0]} and {sizes[1]} elements can't be combined", hint)


# -- evaluation
def check_sources(ctx: Context, node: Place, lazy: Lazy) -> None:
    """Raise CompileError if a store may have changed elements of a lazy value since its slices were taken.

    A loop that encloses this evaluation but not the slice evaluates the slice again in each iteration, after the stores
    of the previous iteration. The evaluation is recorded in such a loop, and checked when the whole body is lowered.
    """
    for source in lazy.sources:
        check_source(ctx, node, source, source.writes)
        for frame in ctx.loops:
            encloses_slice = any(frame is enclosing for enclosing in source.loops)
            if not encloses_slice:
                frame.evaluated.append((node, source))


def check_source(ctx: Context, node: Place, source: Source, since: int) -> None:
    """Raise CompileError if one of the stores in `Session.writes`, from number `since` on, may have changed the source.

    Does nothing if the source was taken after store number `since`.
    """
    if source.writes > since:
        return
    for written, store_loc in ctx.session.writes[since:]:
        if _may_alias(source.array, written):
            raise ctx.error(
                node,
                "the slice is evaluated after a store that may have changed it",
                "evaluate it before the store, or take the slice again after it",
                (Note(source.loc, "the slice"), Note(store_loc, "the store")),
            )


def check_target(ctx: Context, node: Place, lazy: Lazy, target: SliceTarget) -> None:
    """Raise CompileError if a store of the lazy value may overwrite elements that other invocations have yet to read.

    Such a conflict is impossible for a source slice of the value in two cases: its array can't share memory with the
    target's array; or it is a slice of the same array and begins at the same element as the target, so that each
    invocation reads only the elements that it stores itself.
    """
    for source in lazy.sources:
        if source.array is target.array and _same_starts(source.starts, target.starts):
            continue
        if not _may_alias(source.array, target.array):
            continue
        raise ctx.error(
            node,
            "the value reads elements of the array that it is stored to, which other invocations may have stored by then",
            "store into another array, one that doesn't overlap",
            (Note(source.loc, "the slice that is read"),),
        )


def _same_starts(a: tuple[Value, ...], b: tuple[Value, ...]) -> bool:
    """True if two slices of one array certainly begin at the same element."""
    if len(a) != len(b):
        return False
    return all(
        x is y or (static_value(x) is not None and static_value(x) == static_value(y))
        for x, y in zip(a, b, strict=True)
    )


def _may_alias(a: Value, b: Value) -> bool:
    """True if two arrays may share memory.

    An array that is allocated in the kernel, or marked `restrict`, shares memory only with itself.
    """
    if a is b:
        return True
    assert isinstance(a.type, Array)
    assert isinstance(b.type, Array)
    return a.type.space == b.type.space == "global" and not (a.type.restrict or b.type.restrict)


def note_write(ctx: Context, array: Value) -> None:
    """Record a store to an array, so that slices that are evaluated later can be checked against it."""
    ctx.session.writes.append((array, ctx.builder.loc))


def element_of(ctx: Context, node: Place, lazy: Lazy, index: tuple[Value, ...]) -> Value:
    """Return the element of a lazy value at an index, as a run-time value."""
    return materialize(ctx, node, lazy.element(ctx, index))


def for_each_index(
    ctx: Context,
    shape: tuple[Value, ...],
    start: Value,
    step: Value,
    carried: list[Value],
    body: Callable[[tuple[Value, ...], Value, list[Value]], list[Value]],
) -> list[Value]:
    """Emit a loop over the elements of `shape`, from linear (C-order) index `start` in steps of `step`.

    `carried` are the initial values of the loop-carried variables, whose final values are returned. `body(index,
    linear, values)` gets an element's index along each axis, its linear index and the current values, and returns the
    next values.
    """
    b = ctx.builder
    total = shape[0]
    for size in shape[1:]:
        total = b.emit("mul", total, size)
    region = Region([types.INDEX, *(v.type for v in carried)])
    with b.at(region):
        linear, *state = region.args
        b.op("continue", *body(unflattened(ctx, linear, shape), linear, state))
    return b.op("for", start, total, step, *carried, types=[v.type for v in carried], regions=[region]).results


def unflattened(ctx: Context, linear: Value, shape: Sequence[Value]) -> tuple[Value, ...]:
    """Convert a linear (C-order) index to one index per axis of `shape`."""
    indices: list[Value] = []
    for size in reversed(shape[1:]):
        indices.append(ctx.builder.emit("floormod", linear, size))
        linear = ctx.builder.emit("floordiv", linear, size)
    return (linear, *reversed(indices))
