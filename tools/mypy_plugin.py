"""A mypy plugin that checks string literals where mypy --strict accepts any string.

For a value `name` whose type is a `Literal` of strings, and a `TypedDict` `attrs`, mypy itself rejects `name == "typo"`
and `attrs["typo"]`. This plugin also rejects

    name in ("add", "typo")     mypy infers `tuple[str, str]` and only requires that the types overlap
    name in NAMES               where NAMES is a container of `str`: its contents aren't checked, so annotate it
    table[name]                 where table is a `dict[str, ...]`, and `table.get(name)`: annotate it
    attrs.get("typo")           mypy infers `object`
    "typo" in attrs
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
_KEYED = frozenset(f"{name}.__contains__" for name in (*TPDICT_FB_NAMES, "typing.Mapping"))
_GET = "typing.Mapping.get"


class LiteralChecks(Plugin):
    """Hooks of the methods behind `in`, `[]` and `get`."""

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
    proper = get_proper_type(type_)
    return isinstance(proper, Instance) and proper.type.fullname == "builtins.str"


def _membership(ctx: MethodSigContext) -> CallableType:
    """Check `name in container`."""
    names = _literals(ctx.api.get_expression_type(ctx.args[0][0]))
    if names is None:
        return ctx.default_signature
    display = _container(ctx)
    if isinstance(display, (TupleExpr, SetExpr, ListExpr)):
        for item in display.items:
            if isinstance(item, StrExpr) and item.value not in names:
                _report(ctx, f'"{item.value}" is never equal to the left operand', COMPARISON_OVERLAP)
        return ctx.default_signature
    proper = get_proper_type(ctx.type)
    items = proper.items if isinstance(proper, TupleType) else getattr(proper, "args", ())[:1]
    if any(_is_str(item) for item in items):
        _report(ctx, "Membership of a Literal in a container of str: annotate the container", COMPARISON_OVERLAP)
    return ctx.default_signature


def _container(ctx: MethodSigContext) -> Expression | None:
    """Return the right operand of the comparison whose left operand is the argument."""
    comparison = ctx.context
    if not isinstance(comparison, ComparisonExpr):
        return None
    return next(b for a, b in zip(comparison.operands, comparison.operands[1:], strict=False) if a is ctx.args[0][0])


def _key_membership(ctx: MethodSigContext) -> CallableType:
    """Check `key in typed_dict`."""
    keys = _literals_of(ctx.args[0][0], ctx.api.get_expression_type(ctx.args[0][0]))
    proper = get_proper_type(ctx.type)
    if isinstance(proper, TypedDictType):
        for key in keys - proper.items.keys():
            _report(ctx, f'TypedDict has no key "{key}"', TYPEDDICT_ITEM)
    return ctx.default_signature


def _literals_of(expression: Expression, type_: Type) -> frozenset[str]:
    """Return the possible values of an expression if they are known, else none."""
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
    if isinstance(proper, Instance) and any(map(_is_str, proper.args[:1])):
        ctx.api.fail("Lookup of a Literal in a dict with keys of str: annotate the dict", ctx.context, code=INDEX)
    return ctx.default_return_type


def _table(lookup: Context) -> Expression | None:
    """Return the operand of `table[name]` or `table.get(name)`."""
    if isinstance(lookup, IndexExpr):
        return lookup.base
    if isinstance(lookup, CallExpr) and isinstance(lookup.callee, MemberExpr):
        return lookup.callee.expr
    return None


def _get(ctx: MethodContext) -> Type:
    """Check `typed_dict.get(key)`; infer its type as mypy does."""
    proper = get_proper_type(ctx.type)
    if isinstance(proper, TypedDictType) and ctx.args and ctx.args[0]:
        for key in _literals_of(ctx.args[0][0], ctx.arg_types[0][0]) - proper.items.keys():
            ctx.api.fail(f'TypedDict has no key "{key}"', ctx.context, code=TYPEDDICT_ITEM)
    return typed_dict_get_callback(ctx)


def _report(ctx: MethodSigContext, message: str, code: ErrorCode) -> None:
    """Report an error in an operand of `in`. mypy discards errors of `__contains__` if the container is iterable: it
    records them in a watcher, which is set aside here.
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
