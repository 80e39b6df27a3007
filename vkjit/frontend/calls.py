"""Lowering of calls: intrinsics, dtype conversions, device functions, methods.

Intrinsics are registered by object identity, under every Python object that denotes them (`vk.exp`, `math.exp`,
`np.exp`).
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

from .. import dtypes
from ..dtypes import DType
from ..errors import InternalError
from ..ir.core import Value
from ..lang import random
from .context import Call, Context, evaluate_items, expression
from .conversions import convert, dtype_of_value, numeric
from .elementwise import is_spread, is_tile, map_elements
from .elsewhere import advice_on_attribute, advice_on_object
from .resolve import also_capturable
from .values import KernelValue, Method, describe_value, is_array, is_literal, is_matrix

__all__ = ["bind_arguments", "callable_values", "cast_value", "intrinsic", "intrinsic_of", "lowers", "lowers_method"]

IntrinsicLowering = Callable[..., KernelValue]
_INTRINSICS: dict[Any, IntrinsicLowering] = {}
_TENSOR_ALIASES = {("vkjit.tensor.random", name): getattr(random, name) for name in ("rand", "randn", "randint")}
"""Tensor functions exported from `vk` under the name of a kernel intrinsic, mapped to that intrinsic."""
_ELEMENTWISE: set[IntrinsicLowering] = set()
_CALLABLES: list[tuple[Callable[[KernelValue], bool], IntrinsicLowering]] = []


def intrinsic(*objects: Any) -> Callable[[IntrinsicLowering], IntrinsicLowering]:
    """Register a lowering `(context, call)` for calls of any of the objects."""

    def register(function: IntrinsicLowering) -> IntrinsicLowering:
        for key in objects:
            if key in _INTRINSICS:
                raise InternalError(f"{key} has a lowering already")
            _INTRINSICS[key] = function
        return function

    return register


def intrinsic_of(key: Any) -> IntrinsicLowering:
    """Return the lowering registered for an object."""
    return _INTRINSICS[key]


def lowers(stub: Any, *others: Any) -> Callable[[IntrinsicLowering], IntrinsicLowering]:
    """Register a lowering `(context, call, *arguments)` for a stub of `lang`; arguments are bound by the stub's
    signature.
    """
    signature = inspect.signature(stub)

    def register(function: IntrinsicLowering) -> IntrinsicLowering:
        def lower(ctx: Context, call: Call) -> KernelValue:
            bound = bind_arguments(ctx, call, signature, stub.__name__)
            return function(ctx, call, *bound.args, **bound.kwargs)

        intrinsic(stub, *others)(lower)
        if function in _ELEMENTWISE:
            _ELEMENTWISE.add(lower)
        return function

    return register


def lowers_method(stub: Any, function: IntrinsicLowering) -> IntrinsicLowering:
    """Convert a lowering that takes the arguments of a stub to a method lowering `(context, call, owner)`."""
    signature = inspect.signature(stub)
    parameters = [p for name, p in signature.parameters.items() if name != "self"]
    without_self = signature.replace(parameters=parameters)

    def lower(ctx: Context, call: Call, owner: KernelValue) -> KernelValue:
        bound = bind_arguments(ctx, call, without_self, stub.__name__)
        return function(ctx, call, owner, *bound.args, **bound.kwargs)

    return lower


def callable_values(test: Callable[[KernelValue], bool]) -> Callable[[IntrinsicLowering], IntrinsicLowering]:
    """Register a lowering `(context, call, callee)` for calls of values that satisfy the predicate `test`."""

    def register(function: IntrinsicLowering) -> IntrinsicLowering:
        _CALLABLES.append((test, function))
        return function

    return register


def bind_arguments(ctx: Context, call: Call, signature: inspect.Signature, name: str) -> inspect.BoundArguments:
    """Bind a call's arguments to a signature and apply defaults. Raises CompileError if they don't match."""
    try:
        bound = signature.bind(*call.args, **call.keywords)
    except TypeError as error:
        shown = ", ".join(str(p.replace(annotation=p.empty)) for p in signature.parameters.values())
        raise ctx.error(call.node, f"{name}(): {error}", f"its parameters are ({shown})") from None
    bound.apply_defaults()
    return bound


@expression(ast.Call)
def _call(ctx: Context, node: ast.Call) -> KernelValue:
    callee = ctx.evaluate(node.func)
    for keyword in node.keywords:
        if keyword.arg is None:
            raise ctx.error(keyword.value, "** can't be used in a kernel", "write each keyword")
    lower = _find(callee)
    if lower is None:
        raise _not_callable(ctx, node, callee)
    raw = getattr(lower, "_raw_arguments", False)
    args = [] if raw else evaluate_items(ctx, node.args)
    keywords = {} if raw else {k.arg: ctx.evaluate(k.value) for k in node.keywords if k.arg is not None}
    ctx.builder.loc = ctx.loc(node)
    values = [*args, *keywords.values()]
    if any(map(is_spread, values)) and _is_elementwise(callee, lower) and not _takes_tiles(callee, values):
        return _map(ctx, node, lower, args, keywords)
    return lower(ctx, Call(node, args, keywords))


def elementwise(function: IntrinsicLowering) -> IntrinsicLowering:
    """Mark a lowering as elementwise, so that it is mapped over lazy slices and tiles."""
    _ELEMENTWISE.add(function)
    return function


def _is_elementwise(callee: KernelValue, lower: IntrinsicLowering) -> bool:
    is_device_function = any(test(callee) for test, _ in _CALLABLES)
    return isinstance(callee, DType) or lower in _ELEMENTWISE or is_device_function


def _takes_tiles(callee: KernelValue, values: list[KernelValue]) -> bool:
    """True if a device function is called with whole tiles rather than mapped over their elements.

    This is the case if one argument is a workgroup or subgroup object and no argument is a lazy slice.
    """
    if not any(test(callee) for test, _ in _CALLABLES):
        return False
    from .collectives import ScopeValue

    return any(isinstance(v, ScopeValue) for v in values) and all(is_tile(v) for v in values if is_spread(v))


def _map(
    ctx: Context, node: ast.Call, lower: IntrinsicLowering, args: list[KernelValue], keywords: dict[str, KernelValue]
) -> KernelValue:
    """Map a call over the elements of its lazy or tile arguments."""

    def function(inner: Context, *values: KernelValue) -> KernelValue:
        named = dict(zip(keywords, values[len(args) :], strict=True))
        return lower(inner, Call(node, list(values[: len(args)]), named))

    return map_elements(ctx, node, function, [*args, *keywords.values()])


def _find(callee: KernelValue) -> IntrinsicLowering | None:
    if isinstance(callee, Method):
        method = callee
        return lambda ctx, call: method.lower(ctx, call, method.owner)
    if isinstance(callee, DType):
        dtype = callee
        return lambda ctx, call: _cast(ctx, call, dtype)
    for test, lower in _CALLABLES:
        if test(callee):
            return lambda ctx, call: lower(ctx, call, callee)
    if isinstance(callee, Value | tuple | str) or callee is None or is_literal(callee):
        return None
    if isinstance(callee, FunctionType):
        callee = _TENSOR_ALIASES.get((callee.__module__, callee.__name__), callee)
    return _INTRINSICS.get(callee)


_CALLABLE_HINT = "functions of numbers have one: those of vk, and math's and NumPy's of the same names"


def _not_callable(ctx: Context, node: ast.Call, callee: KernelValue) -> Exception:
    text = ast.unparse(node.func)
    if isinstance(callee, FunctionType) and callee.__module__.split(".")[0] == "vkjit":
        hint = advice_on_attribute(sys.modules["vkjit"], callee.__name__)
        hint = hint if hint and not hint.startswith("did") else "in a kernel, write the loop over the elements"
        return ctx.error(node.func, f"{text} works on whole tensors", hint)
    if isinstance(callee, FunctionType):
        return ctx.error(
            node.func,
            f"{text} is a plain Python function: it can't be called in a kernel",
            f"decorate {callee.__name__} with @vk.func",
        )
    if callable(callee):
        return ctx.error(node.func, f"{text} has no meaning in a kernel", advice_on_object(callee) or _CALLABLE_HINT)
    hint = f"index it: {text}[{', '.join(map(ast.unparse, node.args)) or 'i'}]" if is_array(callee) else ""
    return ctx.error(node.func, f"{text} is {describe_value(callee)}: it can't be called", hint)


def _cast(ctx: Context, call: Call, dtype: DType) -> KernelValue:
    """Lower `vk.f32(x)` and the like; `vk.index()` without arguments is the index tuple of an `over=` kernel."""
    if dtype is dtypes.index and not call.args and not call.keywords:
        return _index_tuple(ctx, call)
    if len(call.args) != 1 or call.keywords:
        raise ctx.error(call.node, f"{dtype!r}(x) takes one value, found {len(call.args) + len(call.keywords)}")
    return cast_value(ctx, call.node, call.args[0], dtype)


def cast_value(ctx: Context, node: ast.AST, value: KernelValue, dtype: DType) -> Value:
    """Convert a value explicitly: floats to integers truncate and saturate, integers wrap, conversion to bool is `!=
    0`.
    """
    if is_matrix(value):
        from .matrices import cast_matrix

        return cast_matrix(ctx, node, value, dtype)
    numeric(ctx, node, value, "a number to convert")
    if is_literal(value):
        return ctx.builder.const(_converted(value, dtype), dtype)
    assert isinstance(value, Value)
    return (
        value if dtype_of_value(value) is dtype and value not in ctx.weak else _cast_to_strong(ctx, node, value, dtype)
    )


def _cast_to_strong(ctx: Context, node: ast.AST, value: Value, dtype: DType) -> Value:
    converted = convert(ctx, node, value, dtype)
    return ctx.builder.emit("cast", converted, type=converted.type) if converted is value else converted


def _converted(value: float, dtype: DType) -> bool | int | float:
    """Convert a literal with the semantics of the `cast` operation."""
    from ..ir.semantics import cast, quiet

    if isinstance(value, int) and dtype.is_integer:
        wrapped = int(value) & ((1 << dtype.bits) - 1)
        return wrapped - (1 << dtype.bits) if dtype.is_signed and wrapped >> (dtype.bits - 1) else wrapped
    with quiet():
        converted = cast(np.float64(value), dtypes.f64, dtype)
    return bool(converted) if dtype.kind == "bool" else float(converted) if dtype.is_float else int(converted)


def _index_tuple(ctx: Context, call: Call) -> KernelValue:
    if ctx.index is None:
        raise ctx.error(
            call.node,
            "vk.index() is the index of an over= kernel",
            "in other kernels use vk.global_id(d); in device functions pass the index as arguments",
        )
    return ctx.index


def _is_callable_object(value: object) -> bool:
    try:
        return value in _INTRINSICS
    except TypeError:  # unhashable
        return False


also_capturable(_is_callable_object)
