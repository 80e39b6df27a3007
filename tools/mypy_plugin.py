"""A mypy plugin that checks string literals where mypy --strict accepts any string.

It exists for `OpName`, the `Literal` type of the IR's operation names, and for the `TypedDict`s of their attributes.
For a value `name` whose type is a `Literal` of strings, and a `TypedDict` `attrs`, mypy itself rejects `name == "typo"`
and `attrs["typo"]`. This plugin also rejects

    name in ("add", "typo")     mypy infers `tuple[str, str]` and only requires that the types overlap
    name in NAMES               if NAMES is a container of `str`, whose contents aren't checked: annotate it
    table[name]                 if table is a `dict[str, ...]`, and likewise `table.get(name)`: annotate it
    attrs.get("typo")           mypy infers `object`
    "typo" in attrs

mypy calls a hook for each call of the methods behind these expressions: `__contains__`, `__getitem__` and `get`.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy.errorcodes import COMPARISON_OVERLAP, INDEX, TYPEDDICT_ITEM, ErrorCode
from mypy.nodes import (
    CallExpr,
    ComparisonExpr,
    Context,
    DictExpr,
    Expression,
    IndexExpr,
    ListExpr,
    MemberExpr,
    SetExpr,
    StrExpr,
    TupleExpr,
)
from mypy.plugin import MethodContext, MethodSigContext, Plugin
from mypy.plugins.default import typed_dict_get_callback
from mypy.types import (
    TPDICT_FB_NAMES,
    CallableType,
    Instance,
    LiteralType,
    TupleType,
    Type,
    TypedDictType,
    UnionType,
    get_proper_type,
    get_proper_types,
)

__all__ = ["plugin"]

_CONTAINERS = ("tuple", "set", "frozenset", "list", "dict")
_CONTAINS = frozenset(f"builtins.{name}.__contains__" for name in _CONTAINERS)
_LOOKUPS = frozenset({"builtins.dict.__getitem__", "builtins.dict.get"})
# mypy gives the methods of a TypedDict the names of their fallback classes
_KEYED = frozenset(f"{name}.__contains__" for name in (*TPDICT_FB_NAMES, "typing.Mapping"))
_GET = "typing.Mapping.get"


class LiteralChecks(Plugin):
    """Selects the hook for a method by its full name."""

    def get_method_signature_hook(self, fullname: str) -> Callable[[MethodSigContext], CallableType] | None:
        if fullname in _CONTAINS:
            return _membership
        return _key_membership if fullname in _KEYED else None

    def get_method_hook(self, fullname: str) -> Callable[[MethodContext], Type] | None:
        if fullname in _LOOKUPS:
            return _lookup
        return _get if fullname == _GET else None


def _literals(type_: Type) -> frozenset[str] | None:
    """Return the strings of a `Literal` type; None for any other type."""
    proper = get_proper_type(type_)
    items = get_proper_types(proper.items) if isinstance(proper, UnionType) else [proper]
    if not all(isinstance(item, LiteralType) and isinstance(item.value, str) for item in items):
        return None
    return frozenset(str(item.value) for item in items if isinstance(item, LiteralType))


def _is_str(type_: Type) -> bool:
    """Return True if the type is `str` itself, not a `Literal`."""
    proper = get_proper_type(type_)
    return isinstance(proper, Instance) and proper.type.fullname == "builtins.str"


def _membership(ctx: MethodSigContext) -> CallableType:
    """Check `name in container`. The name is the call's only argument, `ctx.args[0][0]`."""
    names = _literals(ctx.api.get_expression_type(ctx.args[0][0]))
    if names is None:
        return ctx.default_signature
    container = _container(ctx)
    if isinstance(container, (TupleExpr, SetExpr, ListExpr)):
        for item in container.items:
            if isinstance(item, StrExpr) and item.value not in names:
                _report(ctx, f'"{item.value}" is never equal to the left operand', COMPARISON_OVERLAP)
        return ctx.default_signature
    proper = get_proper_type(ctx.type)
    # the types of a tuple's elements, the type of the elements of other containers, or of a dict's keys
    items = proper.items if isinstance(proper, TupleType) else getattr(proper, "args", ())[:1]
    if any(_is_str(item) for item in items):
        _report(ctx, "Membership of a Literal in a container of str: annotate the container", COMPARISON_OVERLAP)
    return ctx.default_signature


def _container(ctx: MethodSigContext) -> Expression | None:
    """Return the container expression of `name in container`, where `name` is the method's argument.

    A chained comparison such as `a in b in c` has several operands.
    """
    comparison = ctx.context
    if not isinstance(comparison, ComparisonExpr):
        return None
    return next(
        right
        for left, right in zip(comparison.operands, comparison.operands[1:], strict=False)
        if left is ctx.args[0][0]
    )


def _key_membership(ctx: MethodSigContext) -> CallableType:
    """Check `key in typed_dict`."""
    keys = _literals_of(ctx.args[0][0], ctx.api.get_expression_type(ctx.args[0][0]))
    proper = get_proper_type(ctx.type)
    if isinstance(proper, TypedDictType):
        for key in keys - proper.items.keys():
            _report(ctx, f'TypedDict has no key "{key}"', TYPEDDICT_ITEM)
    return ctx.default_signature


def _literals_of(expression: Expression, type_: Type) -> frozenset[str]:
    """Return the possible strings of an expression if they are known, else an empty set."""
    if isinstance(expression, StrExpr):
        return frozenset({expression.value})
    proper = get_proper_type(type_)
    if isinstance(proper, Instance) and proper.last_known_value is not None:
        proper = proper.last_known_value
    return _literals(proper) or frozenset()


def _lookup(ctx: MethodContext) -> Type:
    """Check `table[name]` and `table.get(name)`."""
    names = _literals(ctx.arg_types[0][0])
    if names is None:
        return ctx.default_return_type
    table = _table(ctx.context)
    if isinstance(table, DictExpr):
        for key, _ in table.items:
            if isinstance(key, StrExpr) and key.value not in names:
                ctx.api.fail(f'"{key.value}" is never looked up', ctx.context, code=COMPARISON_OVERLAP)
        return ctx.default_return_type
    proper = get_proper_type(ctx.type)
    if isinstance(proper, Instance) and any(map(_is_str, proper.args[:1])):  # the type of the keys
        ctx.api.fail("Lookup of a Literal in a dict with keys of str: annotate the dict", ctx.context, code=INDEX)
    return ctx.default_return_type


def _table(lookup: Context) -> Expression | None:
    """Return the expression `table` of `table[name]` or `table.get(name)`."""
    if isinstance(lookup, IndexExpr):
        return lookup.base
    if isinstance(lookup, CallExpr) and isinstance(lookup.callee, MemberExpr):
        return lookup.callee.expr
    return None


def _get(ctx: MethodContext) -> Type:
    """Check `typed_dict.get(key)`, and return the type that mypy's own hook infers, which this one replaces."""
    proper = get_proper_type(ctx.type)
    if isinstance(proper, TypedDictType) and ctx.args and ctx.args[0]:
        for key in _literals_of(ctx.args[0][0], ctx.arg_types[0][0]) - proper.items.keys():
            ctx.api.fail(f'TypedDict has no key "{key}"', ctx.context, code=TYPEDDICT_ITEM)
    return typed_dict_get_callback(ctx)


def _report(ctx: MethodSigContext, message: str, code: ErrorCode) -> None:
    """Report an error in an operand of `in`.

    If the container is iterable, mypy checks the call of `__contains__` under an error watcher, which discards errors.
    That watcher is removed while the error is reported.
    """
    watchers = ctx.api.errors._watchers  # type: ignore[attr-defined]  # of the checker, not of its interface
    watcher = watchers.pop() if watchers else None
    try:
        ctx.api.fail(message, ctx.context, code=code)
    finally:
        if watcher is not None:
            watchers.append(watcher)


def plugin(version: str) -> type[Plugin]:  # noqa: ARG001  # mypy's interface
    """Return the plugin class: the entry point that mypy looks up."""
    return LiteralChecks
