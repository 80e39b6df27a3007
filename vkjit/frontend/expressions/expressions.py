"""Lowering of expressions: names, constants, operators, comparisons, conditionals, tuples, attributes.

Each lowering is registered for its syntax node by `@expression`; subscripts are in `subscripts`, calls in
`calls.calls`. Operations on compile-time values alone are evaluated at compile time and emit no IR.
"""

from __future__ import annotations

import ast
import enum
from collections.abc import Callable
from types import ModuleType
from typing import Literal

import numpy as np

from vkjit.dtypes import DType
from vkjit.ir import types
from vkjit.ir.core import Region, Value
from vkjit.ir.ops import OpName

from ..context import Context, checked_tuple, evaluate_items, expression, unloaded_expression
from ..kernel_values import Element, IntMember, KernelValue, describe_value
from ..migration_hints import advice_on_attribute, advice_on_object
from ..resolve import MISSING, captured, look_up
from ..syntax import unsupported
from ..values.attributes import attribute_of
from ..values.conversions import truth
from ..values.joins import choose, is_speculatable
from ..values.mappings import items_of
from ..values.members import class_member
from ..values.struct_arrays import load_element, load_scalar, locate_part
from . import operators

__all__ = ["binary_name", "condition"]

_BINARY: dict[type[ast.operator], OpName] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floordiv",
    ast.Mod: "floormod",
    ast.Pow: "pow",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
    ast.LShift: "shl",
    ast.RShift: "shr",
}

_COMPARE: dict[type[ast.cmpop], OpName] = {
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
}


@expression(ast.Constant)
def _constant(ctx: Context, node: ast.Constant) -> KernelValue:
    if isinstance(node.value, bool | int | float | str) or node.value is None:
        return node.value
    hint = (
        advice_on_object(complex) if isinstance(node.value, complex) else "kernels know numbers, bools, text and None"
    )
    raise ctx.error(node, f"{node.value!r} has no meaning in a kernel", hint)


@expression(ast.Name)
def _name(ctx: Context, node: ast.Name) -> KernelValue:
    return look_up(ctx, node)


@expression(ast.Tuple)
def _tuple(ctx: Context, node: ast.Tuple) -> KernelValue:
    return checked_tuple(ctx, node, tuple(evaluate_items(ctx, node.elts)))


@unloaded_expression(ast.Attribute)
def _unloaded_attribute(ctx: Context, node: ast.Attribute) -> KernelValue:
    """Lower an attribute. A struct, vector or array field of an unloaded element, as in `p[i].v`, isn't loaded."""
    base = ctx.evaluate_unloaded(node.value)
    if not isinstance(base, Element):
        return _attribute(ctx, node, base)
    location = locate_part(ctx, node, base)
    return attribute_of(ctx, node, load_element(ctx, base)) if location is None else load_scalar(ctx, location)


@expression(ast.Attribute)
def _attribute_value(ctx: Context, node: ast.Attribute) -> KernelValue:
    return load_element(ctx, ctx.evaluate_unloaded(node))


def _attribute(ctx: Context, node: ast.Attribute, base: KernelValue) -> KernelValue:
    """Return the attribute of a module, a class or a kernel value."""
    if isinstance(base, ModuleType | type) and not isinstance(base, DType):
        member = getattr(base, node.attr, MISSING)
        if member is MISSING:
            hint = advice_on_attribute(base, node.attr)
            raise ctx.error(node, f"{describe_value(base)} has no {node.attr}", hint)
        return (
            class_member(ctx, node, base) if isinstance(base, type) else captured(ctx, node, ast.unparse(node), member)
        )
    return attribute_of(ctx, node, base)


def binary_name(ctx: Context, node: ast.BinOp | ast.AugAssign) -> OpName:
    """Return the IR operation of a binary operator. Raises CompileError for `@`."""
    name = _BINARY.get(type(node.op))
    if name is None:
        raise ctx.error(node, "the operator @ has no meaning for single elements", "write the loop over the products")
    return name


@expression(ast.BinOp)
def _binary(ctx: Context, node: ast.BinOp) -> KernelValue:
    """Lower a binary operator. Left operands are walked in a loop: `a + b + c + ...` is nested as deep as it is long."""
    chain = [node]
    while isinstance(left := chain[-1].left, ast.BinOp):
        chain.append(left)
    names = [binary_name(ctx, item) for item in chain]
    value = ctx.evaluate(left)
    for item, name in zip(reversed(chain), reversed(names), strict=True):
        ctx.builder.loc = ctx.loc(item)
        value = operators.binary(ctx, item, name, value, ctx.evaluate(item.right))
    return value


@expression(ast.UnaryOp)
def _unary(ctx: Context, node: ast.UnaryOp) -> KernelValue:
    if isinstance(node.op, ast.Not):
        return operators.negate(ctx, node.operand, condition(ctx, node.operand))
    name: OpName | Literal["pos"]
    name = "neg" if isinstance(node.op, ast.USub) else "pos" if isinstance(node.op, ast.UAdd) else "not"
    return operators.unary(ctx, node, name, ctx.evaluate(node.operand))


def condition(ctx: Context, node: ast.expr) -> Value | bool:
    """Lower an expression to its truth value: a run-time bool, or a Python bool if it is known at compile time."""
    if isinstance(node, ast.BoolOp):
        operands = [_operand(ctx, item) for item in node.values]
        return _logical(ctx, isinstance(node.op, ast.And), operands)
    return truth(ctx, node, ctx.evaluate(node))


def _operand(ctx: Context, node: ast.expr) -> Callable[[], Value | bool]:
    """Return a function that lowers an operand of `and` or `or` when it is called."""
    return lambda: condition(ctx, node)


def _logical(ctx: Context, is_and: bool, operands: list[Callable[[], Value | bool]]) -> Value | bool:
    """Lower a short-circuit `and` (if `is_and`, else `or`) of conditions, from left to right."""
    result: Value | bool = is_and
    for operand in operands:
        if isinstance(result, Value):
            result = _combined(ctx, is_and, result, operand)
        elif result is is_and:
            result = operand()
    return result


def _combined(ctx: Context, is_and: bool, left: Value, operand: Callable[[], Value | bool]) -> Value | bool:
    """Combine a run-time condition with a second one, which `operand` lowers, by `and` (if `is_and`) or `or`.

    The operations of the second condition are placed in an `if`, unless they may be executed speculatively.
    """
    region = Region()
    with ctx.builder.at(region):
        right = operand()
    if isinstance(right, bool):
        return left if right is is_and else right
    if is_speculatable(region):
        ctx.builder.region.ops += region.ops
        return ctx.builder.emit("and" if is_and else "or", left, right)
    short_circuit = Region()
    with ctx.builder.at(region):
        ctx.builder.op("yield", right)
    with ctx.builder.at(short_circuit):
        ctx.builder.op("yield", ctx.builder.const(not is_and, types.BOOL))
    regions = [region, short_circuit] if is_and else [short_circuit, region]
    return ctx.builder.op("if", left, types=[types.BOOL], regions=regions).result


@expression(ast.BoolOp)
def _boolean(ctx: Context, node: ast.BoolOp) -> KernelValue:
    """Lower `a and b`, `a or b` as values: the result is the deciding operand, as in Python."""
    is_and = isinstance(node.op, ast.And)
    return _decide(ctx, node, is_and, node.values)


def _decide(ctx: Context, node: ast.BoolOp, is_and: bool, operands: list[ast.expr]) -> KernelValue:
    """Return the operand that decides an `and` (if `is_and`) or `or`: the first false (or true) one, or the last."""
    first = ctx.evaluate(operands[0])
    if len(operands) == 1:
        return first
    test = truth(ctx, operands[0], first)
    remaining = operands[1:]
    if isinstance(test, bool):
        return _decide(ctx, node, is_and, remaining) if test is is_and else first
    if test is first:  # `first` is a bool: if the right operand is one too, the result is a logical operation
        return _decide_bool(ctx, node, is_and, test, remaining)
    if is_and:
        return choose(ctx, node, test, lambda: _decide(ctx, node, is_and, remaining), lambda: first)
    return choose(ctx, node, test, lambda: first, lambda: _decide(ctx, node, is_and, remaining))


def _decide_bool(ctx: Context, node: ast.BoolOp, is_and: bool, first: Value, remaining: list[ast.expr]) -> KernelValue:
    """Lower `and` (if `is_and`) or `or` of the run-time bool `first` and the operands `remaining`.

    If the value of the remaining operands is a bool, too, the result is the logical combination, else the operand that
    decides. The remaining operands are lowered once, into a separate region, to find their type; `move_second` then
    moves the operations to where they are needed.
    """
    region = Region()
    with ctx.builder.at(region):
        second = _decide(ctx, node, is_and, remaining)

    def move_second() -> KernelValue:
        ctx.builder.region.ops += region.ops
        return second

    if isinstance(second, bool) or (isinstance(second, Value) and second.type == types.BOOL):
        return _combined(ctx, is_and, first, lambda: truth(ctx, node, move_second()))
    if is_and:
        return choose(ctx, node, first, move_second, lambda: first)
    return choose(ctx, node, first, lambda: first, move_second)


@expression(ast.IfExp)
def _conditional(ctx: Context, node: ast.IfExp) -> KernelValue:
    test = condition(ctx, node.test)
    if isinstance(test, bool):
        return ctx.evaluate(node.body if test else node.orelse)
    return choose(ctx, node, test, lambda: ctx.evaluate(node.body), lambda: ctx.evaluate(node.orelse))


@expression(ast.Compare)
def _compare(ctx: Context, node: ast.Compare) -> KernelValue:
    """Lower a comparison, or a chain of comparisons such as `a < b < c`.

    Each operand is evaluated at most once, and only if all previous comparisons are true.
    """
    pairs = list(zip(node.ops, node.comparators, strict=True))
    left = [ctx.evaluate(node.left)]  # a list, so that `evaluate` can replace the item by the next left operand
    if len(pairs) == 1:
        return _compare_pair(ctx, node, pairs[0][0], left[0], ctx.evaluate(pairs[0][1]), pairs[0][1])

    def link(op: ast.cmpop, right_node: ast.expr) -> Callable[[], Value | bool]:
        def evaluate() -> Value | bool:
            right = ctx.evaluate(right_node)
            result = _compare_pair(ctx, node, op, left[0], right, right_node)
            left[0] = right
            return truth(ctx, node, result)

        return evaluate

    return _chain(ctx, [link(op, right) for op, right in pairs])


def _chain(ctx: Context, links: list[Callable[[], Value | bool]]) -> Value | bool:
    """Lower a chain of comparisons; each of the `links` is a function that lowers one comparison.

    The right operand of a comparison is the left operand of the next one. Therefore the next comparison is lowered
    where this operand is available: inside the `if` that tests the first comparison.
    """
    first = links[0]()
    if len(links) == 1 or first is False:
        return first
    if first is True:
        return _chain(ctx, links[1:])
    return _combined(ctx, True, first, lambda: _chain(ctx, links[1:]))  # True: by `and`


def _compare_pair(
    ctx: Context, node: ast.Compare, op: ast.cmpop, a: KernelValue, b: KernelValue, right: ast.expr
) -> KernelValue:
    """Lower one comparison, `is` or `in` of the operands a and b; `right` is the syntax node of b."""
    name = _COMPARE.get(type(op))
    if name is not None:
        return operators.compare(ctx, node, name, a, b)
    if isinstance(op, ast.Is | ast.IsNot):
        return _identity(ctx, node, a, b) is isinstance(op, ast.Is)
    return _membership(ctx, node, a, b, isinstance(op, ast.In), right)


def _identity(ctx: Context, node: ast.Compare, a: KernelValue, b: KernelValue) -> bool:
    """Evaluate `a is b` at compile time; equal numbers and strings of one type count as identical.

    Members of an `IntFlag` aren't compared with numbers, which operators make of them.
    """
    a, b = (value.member if isinstance(value, IntMember) else value for value in (a, b))
    if a is None or b is None:
        return a is b
    if isinstance(a, Value) or isinstance(b, Value):
        raise ctx.error(node, "`is` compares what is known at compile time only", "write ==")
    for one, other in ((a, b), (b, a)):
        is_numpy = isinstance(other, np.dtype) or (isinstance(other, type) and issubclass(other, np.generic))
        if isinstance(one, DType) and is_numpy:
            raise ctx.error(
                node, "`is` doesn't compare element types with NumPy's, which are other objects", "write =="
            )
        if isinstance(one, enum.IntFlag) and isinstance(other, int) and not isinstance(other, enum.Enum | bool):
            raise ctx.error(
                node, f"`is` compares {one!r} with {describe_value(other)}, which may be a flag", "write =="
            )
    same_kind = isinstance(a, bool | int | str) and type(a) is type(b)
    return a is b or (same_kind and not isinstance(a, enum.Enum) and bool(a == b))


def _membership(
    ctx: Context, node: ast.Compare, a: KernelValue, b: KernelValue, positive: bool, right: ast.expr
) -> KernelValue:
    """Lower `a in b` (if `positive`) or `a not in b` to comparisons of a with the items of the tuple b.

    Flags and texts are looked into at compile time.
    """
    plain = [value.member if isinstance(value, IntMember) else value for value in (a, b)]
    kinds = (enum.Flag, str)
    if any(isinstance(plain[1], kind) and isinstance(plain[0], kind) for kind in kinds):
        return (plain[0] in plain[1]) is positive  # type: ignore[operator]
    items = items_of(ctx, right, b)
    if items is None:
        raise ctx.error(right, f"`in` looks into a tuple, found {describe_value(b)}", "compare with == and `or`")
    compared = (truth(ctx, node, operators.compare(ctx, node, "eq", a, item)) for item in items)
    result = operators.combine(ctx, "or", compared)
    return result if positive else operators.negate(ctx, node, result)


@expression(ast.JoinedStr)
def _fstring(ctx: Context, node: ast.JoinedStr) -> KernelValue:
    """Reject an f-string; `calls.messages` lowers those in `print` and `assert`."""
    raise unsupported(ctx.source, node)
