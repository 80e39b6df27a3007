"""Lowering of statements other than loops: assignments, `if`, `return`, `assert`, expressions.

Each lowering is registered for its syntax node by `@statement` and returns True if control never reaches the
statement's end. Assignment targets other than names and tuples (array elements, struct fields, vector lanes) are in
`assignment`, loops in `loops`.
"""

from __future__ import annotations

import ast

from vkjit.errors import ReportSite
from vkjit.ir.core import Region, Value
from vkjit.ir.types import BOOL, Array, Scalar, Vector

from ..calls.messages import message_of
from ..context import Context, Return, statement
from ..expressions import operators
from ..expressions.expressions import binary_name, condition
from ..kernel_values import KernelValue, describe_value, parts_of
from ..scope import elif_chain
from ..signature.annotations import dtype_of
from ..values.closures import leaving
from ..values.conversions import as_exactly
from ..values.joins import Names, join_branches
from .assignment import target_of

__all__ = ["assign"]

VALUE_LIMIT = 30
"""The maximum number of values in an assert's message, which must all fit into the report that the device writes."""


@statement(ast.Pass)
def _pass(_ctx: Context, _node: ast.Pass) -> bool:
    return False


@statement(ast.Expr)
def _expression(ctx: Context, node: ast.Expr) -> bool:
    """Lower an expression statement; docstrings and `...` emit nothing."""
    if isinstance(node.value, ast.Constant) and (isinstance(node.value.value, str) or node.value.value is ...):
        return False
    ctx.evaluate(node.value)
    return False


@statement(ast.Assign)
def _assign(ctx: Context, node: ast.Assign) -> bool:
    value = ctx.evaluate(node.value)
    for target in node.targets:
        assign(ctx, target, value, node.value)
    return False


@statement(ast.AnnAssign)
def _annotated(ctx: Context, node: ast.AnnAssign) -> bool:
    """Lower an annotated assignment such as `total: vk.f32 = 0`.

    The literal becomes an f32 that keeps its type. Without an annotation, it would adapt to the values that it is
    combined with (see `values.conversions`).
    """
    dtype = dtype_of(ctx.evaluate(node.annotation))
    if dtype is None:
        raise ctx.error(node.annotation, "a variable's annotation is a dtype", "write e.g. `total: vk.f32 = 0`")
    if node.value is None:
        raise ctx.error(node, "a variable is declared by its first value", f"write `{ast.unparse(node)} = 0`")
    value = as_exactly(ctx, node.value, ctx.evaluate(node.value), dtype, "the variable")
    assign(ctx, node.target, value)
    return False


def assign(ctx: Context, target: ast.expr, value: KernelValue, value_node: ast.expr | None = None) -> None:
    """Assign a value to a target: bind a name, store into memory, or unpack a tuple.

    `value_node` is the syntax node of the value, for errors. It is None if no single node denotes the value, such as an
    item of an unpacked tuple.
    """
    ctx.builder.loc = ctx.loc(target)
    if isinstance(target, ast.Name):
        ctx.bind(target.id, value)
    elif isinstance(target, ast.Tuple | ast.List):
        _unpack(ctx, target, value, value_node)
    else:
        target_of(ctx, target).store(value, value_node)


def _unpack(ctx: Context, target: ast.Tuple | ast.List, value: KernelValue, value_node: ast.expr | None) -> None:
    """Assign the items of a tuple or the lanes of a vector to several targets.

    `value_node` is the syntax node of the value or None, as in `assign`.
    """
    items = _items_to_unpack(ctx, value)
    if items is None:
        raise ctx.error(target, f"expected a tuple of {len(target.elts)} to unpack, found {describe_value(value)}")
    if any(isinstance(t, ast.Starred) for t in target.elts):
        _unpack_starred(ctx, target, items)
        return
    if len(items) != len(target.elts):
        raise ctx.error(target, f"{len(items)} values for {len(target.elts)} names", _UNPACK_HINT)
    item_nodes = (
        value_node.elts
        if isinstance(value_node, ast.Tuple) and len(value_node.elts) == len(items)
        else [None] * len(items)
    )
    for item_target, item, item_node in zip(target.elts, items, item_nodes, strict=True):
        assign(ctx, item_target, item, item_node)


def _unpack_starred(ctx: Context, target: ast.Tuple | ast.List, items: tuple[KernelValue, ...]) -> None:
    """Assign items to targets, one of which is starred.

    The starred target gets a tuple of the items that the other targets don't take.
    """
    count_before = next(i for i, t in enumerate(target.elts) if isinstance(t, ast.Starred))
    count_after = len(target.elts) - count_before - 1
    if len(items) < count_before + count_after:
        raise ctx.error(
            target, f"{len(items)} values for {count_before + count_after} names and a starred one", _UNPACK_HINT
        )
    stop = len(items) - count_after
    values = [*items[:count_before], items[count_before:stop], *items[stop:]]
    for item_target, item in zip(target.elts, values, strict=True):
        assign(ctx, item_target.value if isinstance(item_target, ast.Starred) else item_target, item)


def _items_to_unpack(ctx: Context, value: KernelValue) -> tuple[KernelValue, ...] | None:
    """Return the items of a tuple or the lanes of a vector; None for other values."""
    if isinstance(value, tuple):
        return value
    if isinstance(value, Value) and isinstance(value.type, Vector):
        lane_type = Scalar(value.type.dtype)
        return tuple(ctx.builder.emit("vec_extract", value, lane=i, type=lane_type) for i in range(value.type.size))
    return None


_UNPACK_HINT = "write one name for each value; `_` for those that you don't need"


@statement(ast.AugAssign)
def _augmented(ctx: Context, node: ast.AugAssign) -> bool:
    """Lower `target op= value`; the target's indices are evaluated once."""
    name = binary_name(ctx, node)
    target = target_of(ctx, node.target)
    old_value = target.load()
    new_value = operators.binary(ctx, node, name, old_value, ctx.evaluate(node.value))
    ctx.builder.loc = ctx.loc(node)
    target.store(new_value, node)
    return False


_MAX_ARMS = 200
"""The maximum number of conditions of a chain of `elif`s, which are nested in each other: Python's stack has room for them."""


@statement(ast.If)
def _if(ctx: Context, node: ast.If) -> bool:
    """Lower an `if`: lower each branch into its own region, with its own copy of the names, and join the branches."""
    if (arms := len(elif_chain(node))) > _MAX_ARMS:
        raise ctx.error(
            node, f"a chain of if and elif with {arms} conditions: expected up to {_MAX_ARMS}",
            "write ifs one after another that return, or look the value up in an array",
        )  # fmt: skip
    test = condition(ctx, node.test)
    if isinstance(test, bool):  # known at compile time: only one branch is lowered
        return ctx.block(node.body if test else node.orelse)
    regions = [Region(), Region()]
    names: list[Names] = []
    exited: list[bool] = []
    names_before, if_loc = ctx.env, ctx.loc(node)
    for region, body in zip(regions, (node.body, node.orelse), strict=True):
        ctx.env = dict(names_before)
        with ctx.builder.at(region):
            exited.append(ctx.block(body))
        names.append(ctx.env)
    ctx.env, ctx.builder.loc = names_before, if_loc
    return join_branches(ctx, node, test, regions, names, exited)


@statement(ast.Return)
def _return(ctx: Context, node: ast.Return) -> bool:
    """Lower a `return`. In a device function, the operands are filled in when all its `return`s have been lowered."""
    value = leaving(ctx, node, ctx.evaluate(node.value)) if node.value is not None else None
    ctx.builder.loc = ctx.loc(node)
    if ctx.is_kernel:
        if value is not None:
            raise ctx.error(node, "a kernel returns nothing", "store results into an array annotated as vk.Out")
        ctx.builder.op("return")
        return True
    if _holds_array(value):
        raise ctx.error(node, "a device function can't return an array", "let the caller make it and pass it in")
    op = ctx.builder.op("return")
    ctx.returns.append(Return(ctx.builder.region, op, value, ctx.loc(node)))
    return True


def _holds_array(value: KernelValue) -> bool:
    """True if the value is or contains an array."""
    parts = parts_of(value)
    if parts is not None:
        return any(map(_holds_array, parts))
    return isinstance(value, Value) and isinstance(value.type, Array)


@statement(ast.Assert)
def _assert(ctx: Context, node: ast.Assert) -> bool:
    """Lower an assertion. If it fails at run time, the failure is reported, and the kernel continues.

    A condition that is false at compile time is a CompileError if the assertion is certainly reached.
    """
    test = condition(ctx, node.test)
    if test is True:
        return False
    template, values = message_of(ctx, node.msg) if node.msg is not None else (_quoted(node.test), [])
    if test is False and ctx.is_certainly_reached():
        raise ctx.error(node.test, f"assertion fails at compile time: {template.format(*values)}")
    if len(values) > VALUE_LIMIT:
        raise ctx.error(node.msg or node, f"{len(values)} values in one message (up to {VALUE_LIMIT})", "show fewer")
    site = ctx.session.module.add_site(ReportSite("assert", ctx.loc(node), template))
    ctx.builder.loc = ctx.loc(node)
    failed = ctx.builder.const(True, BOOL) if test is False else ctx.builder.emit("not", test)
    ctx.builder.op("report", failed, *[v for v in values if isinstance(v, Value)], site=site)
    return False


def _quoted(node: ast.expr) -> str:
    """Return an expression's text as a `str.format` template."""
    return ast.unparse(node).replace("{", "{{").replace("}", "}}")
