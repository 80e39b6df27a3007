"""Lowering of lambdas and nested functions, and of calls of them; see `values.closures`."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from types import FunctionType

from vkjit.dtypes import DType

from ..context import Call, Context, expression, statement
from ..intrinsics import callable_values
from ..kernel_values import Aggregate, Binding, Conflict, KernelValue, Unbound
from ..scope import NestedFunction, free_names, parameters_of
from ..signature.annotations import Annotation, nested_annotation
from ..source import FunctionSource, as_definition
from ..values.closures import LocalFunction
from .device_functions import call_function

__all__: list[str] = []


_VK_FUNC = ("vkjit.launch.kernel", "func")
"""The module and the name of `vk.func`, which may decorate a nested function; it makes no difference."""


@expression(ast.Lambda)
def _lambda(ctx: Context, node: ast.Lambda) -> KernelValue:
    definition = ctx.session.lambdas.setdefault(node, as_definition(node))
    return _function(ctx, definition, node)


@statement(ast.FunctionDef)
def _nested(ctx: Context, node: ast.FunctionDef) -> bool:
    for decorator in node.decorator_list:
        value = ctx.evaluate(decorator)
        if not isinstance(value, FunctionType) or (value.__module__, value.__name__) != _VK_FUNC:
            reason = f"a nested function can't be decorated by {ast.unparse(decorator)}"
            raise ctx.error(decorator, reason, "leave the decorator out, or define the function outside")
    ctx.bind(node.name, _function(ctx, node, node), ctx.loc(node))
    return False


def _function(ctx: Context, definition: ast.FunctionDef, node: NestedFunction) -> Aggregate:
    """Return the function that a definition makes at the current point; `node` is its syntax node in the source."""
    a = node.args
    free = tuple(sorted(free_names(node) & ctx.scope.local_names))
    parameters = [*a.posonlyargs, *a.args, *a.kwonlyargs, *(p for p in (a.vararg, a.kwarg) if p)]
    annotations = tuple(
        nested_annotation(ctx.function, f"{p.arg} in {definition.name}", p.annotation, ctx.loc(p)) for p in parameters
    )
    defaults = [ctx.evaluate(default) for default in (*a.defaults, *filter(None, a.kw_defaults))]
    return Aggregate(LocalFunction(definition, ctx, annotations, free), tuple(defaults))


def _is_local(value: KernelValue) -> bool:
    return isinstance(value, Aggregate) and isinstance(value.kind, LocalFunction)


@callable_values(_is_local)
def _call(ctx: Context, call: Call, callee: KernelValue) -> KernelValue:
    assert isinstance(callee, Aggregate)
    assert isinstance(callee.kind, LocalFunction)
    return call_function(ctx, call, _Callee(callee, callee.kind))


@dataclass(frozen=True, slots=True)
class _Callee:
    """A detached nested function, as `device_functions.Callee`."""

    value: Aggregate
    kind: LocalFunction

    @property
    def fn(self) -> FunctionType:
        return self.kind.ctx.function

    @property
    def name(self) -> str:
        return self.kind.node.name

    @property
    def key(self) -> object:
        return self.kind

    @property
    def source(self) -> FunctionSource:
        around = self.kind.ctx.source
        return FunctionSource(self.kind.node, around.file, around.lines)

    @property
    def typevars(self) -> Mapping[str, DType]:
        return self.kind.ctx.typevars

    @property
    def signature(self) -> inspect.Signature:
        a, kinds, empty = self.kind.node.args, inspect._ParameterKind, inspect.Parameter.empty
        values = iter(self.value.items)
        required = len(a.posonlyargs) + len(a.args) - len(a.defaults)
        defaults = [empty] * required + [next(values) for _ in a.defaults]
        defaults += [empty if default is None else next(values) for default in a.kw_defaults]
        parameter_kinds = [kinds.POSITIONAL_ONLY] * len(a.posonlyargs) + [kinds.POSITIONAL_OR_KEYWORD] * len(a.args)
        named = [
            inspect.Parameter(p.arg, kind, default=default)
            for p, kind, default in zip(
                (*a.posonlyargs, *a.args, *a.kwonlyargs),
                parameter_kinds + [kinds.KEYWORD_ONLY] * len(a.kwonlyargs),
                defaults,
                strict=True,
            )
        ]
        if a.vararg:
            named.insert(len(parameter_kinds), inspect.Parameter(a.vararg.arg, kinds.VAR_POSITIONAL))
        if a.kwarg:
            named.append(inspect.Parameter(a.kwarg.arg, kinds.VAR_KEYWORD))
        return inspect.Signature(named)

    @property
    def annotations(self) -> Mapping[str, Annotation]:
        return dict(zip(parameters_of(self.kind.node), self.kind.annotations, strict=True))

    @property
    def captured(self) -> Mapping[str, Binding | Unbound | Conflict]:
        """The entries of the names that the function takes from the function around it."""
        names = self.kind.names or ()
        values = self.value.items[len(self.value.items) - len(names) :]
        loc = self.kind.ctx.loc(self.kind.node)
        taken = {name: Binding(value, loc) for name, value in zip(names, values, strict=True)}
        itself = {name: Binding(self.value, place) for name, place in self.kind.itself}
        return {**taken, **itself, **dict(self.kind.unbound)}
