"""Registry of the lowerings of calls, and checks of their arguments.

Intrinsics are registered by object identity, under every Python object that denotes them (`vk.exp`, `math.exp`,
`np.exp`). Other callable values, such as device functions and struct types, are registered by a predicate.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ..errors import InternalError
from ..ir.core import Value
from .context import Call, Context
from .kernel_values import KernelValue, describe_value, is_literal
from .resolve import also_capturable

__all__ = [
    "IntrinsicLowering",
    "bind_arguments",
    "callable_values",
    "elementwise",
    "intrinsic",
    "intrinsic_of",
    "is_callable_value",
    "is_elementwise",
    "lowering_of",
    "lowers",
    "lowers_method",
    "not_in_over",
    "one_of",
]

IntrinsicLowering = Callable[..., KernelValue]
_INTRINSICS: dict[Any, IntrinsicLowering] = {}
_ELEMENTWISE: set[IntrinsicLowering] = set()
"""Lowerings marked by `elementwise`."""
_CALLABLES: list[tuple[Callable[[KernelValue], bool], IntrinsicLowering]] = []
"""Predicates of callable values, each with the lowering of their calls."""


# -- registration
def intrinsic(*objects: Any) -> Callable[[IntrinsicLowering], IntrinsicLowering]:
    """Register a lowering `(context, call)` for calls of any of the objects, such as `vk.exp` and `math.exp`."""

    def register(function: IntrinsicLowering) -> IntrinsicLowering:
        for key in objects:
            if key in _INTRINSICS:
                raise InternalError(f"{key} has a lowering already")
            _INTRINSICS[key] = function
        return function

    return register


def lowers(stub: Any, *others: Any) -> Callable[[IntrinsicLowering], IntrinsicLowering]:
    """Register a lowering `(context, call, *arguments)` for calls of the stub function `stub`, and of `others`.

    A stub is a function of `lang` without a body. The call's arguments are bound by its signature.
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
    """Convert a lowering `(context, call, owner, *arguments)` to a method lowering `(context, call, owner)`.

    The call's arguments are bound by the signature of the method `stub`, without `self`.
    """
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


def elementwise(function: IntrinsicLowering) -> IntrinsicLowering:
    """Mark a lowering of scalars as elementwise: calls with lazy slices or tiles map it over their elements."""
    _ELEMENTWISE.add(function)
    return function


# -- look-up
def intrinsic_of(key: Any) -> IntrinsicLowering:
    """Return the lowering registered for an object."""
    return _INTRINSICS[key]


def lowering_of(callee: KernelValue) -> IntrinsicLowering | None:
    """Return the lowering `(context, call)` registered for calls of a value, or None."""
    for test, lower in _CALLABLES:
        if test(callee):
            return lambda ctx, call: lower(ctx, call, callee)
    if isinstance(callee, Value | tuple | str) or callee is None or is_literal(callee):
        return None
    return _INTRINSICS.get(callee)


def is_callable_value(value: KernelValue) -> bool:
    """True if a lowering is registered for calls of this kind of value."""
    return any(test(value) for test, _ in _CALLABLES)


def is_elementwise(lower: IntrinsicLowering) -> bool:
    """True if a lowering is marked as elementwise."""
    return lower in _ELEMENTWISE


def _is_callable_object(value: object) -> bool:
    """True if a lowering is registered for calls of this very object; kernels may capture it."""
    try:
        return value in _INTRINSICS
    except TypeError:  # unhashable
        return False


also_capturable(_is_callable_object)


# -- arguments
def bind_arguments(ctx: Context, call: Call, signature: inspect.Signature, name: str) -> inspect.BoundArguments:
    """Bind a call's arguments to a signature and apply defaults. Raises CompileError if they don't match.

    `name` is the function's name for the message.
    """
    try:
        bound = signature.bind(*call.args, **call.keywords)
    except TypeError as error:
        shown = ", ".join(str(p.replace(annotation=p.empty)) for p in signature.parameters.values())
        raise ctx.error(call.node, f"{name}(): {error}", f"its parameters are ({shown})") from None
    bound.apply_defaults()
    return bound


def one_of(ctx: Context, call: Call, name: str, value: KernelValue, allowed: tuple[str, ...]) -> str:
    """Return the string argument `name`. Raises CompileError unless its value is one of `allowed`."""
    if value not in allowed:
        actual = repr(value) if isinstance(value, str) else describe_value(value)
        raise ctx.error(call.node, f"{name} is one of {', '.join(map(repr, allowed))}, found {actual}")
    return str(value)


def not_in_over(ctx: Context, call: Call, what: str) -> None:
    """Raise CompileError if the kernel is decorated with `over=`; `what` names the forbidden call in the message.

    In such a kernel, invocations outside the array don't run the body, so barriers and collectives would be undefined.
    """
    over = ctx.session.over
    if over is not None:
        raise ctx.error(
            call.node,
            f"{what} can't be used in a kernel with over={over!r}: invocations past its end don't run",
            "launch with groups= and local=, and guard reads and writes with .get and .put",
        )
