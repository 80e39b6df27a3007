"""Name resolution, and the objects that a kernel may capture.

A name is looked up in the local names, then in the closure, the type parameters, the globals and the builtins. An
object found outside the local names is captured by value when the kernel is compiled: numbers, strings, None, enum
members, dtypes, functions, modules, types, frozen dataclasses, tuples of these, and dictionaries of constants.
Capturing an array or another mutable object is an error, because it may change later.
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
import enum
import functools
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, TypeVar, cast

import numpy as np

from .. import dtypes
from ..dtypes import DType
from ..errors import CompileError, Note
from ..ir.core import Value
from ..lang.control import Tune
from ..lang.vectors import VectorType
from .context import Context, Place, check_items
from .kernel_values import Aggregate, Binding, Conflict, IntMember, KernelValue, MappingKind, PartialKind, Unbound
from .migration_hints import advice_on_capture, advice_on_name, advice_on_object, is_foreign_function
from .signature.annotations import dtype_of
from .signature.free_names import MISSING, find_global, is_frozen, is_mapping, size_fault
from .signature.spec import KernelSpec

__all__ = ["MISSING", "capturable", "captured", "constant_fields", "find_global", "look_up"]


def look_up(ctx: Context, node: ast.Name) -> KernelValue:
    """Return the value of a name. Raises CompileError if it is undefined or may be unbound."""
    if node.id in ctx.scope.local_names:
        return _local(ctx, node)
    value = find_global(ctx.function, node.id)
    if value is MISSING:
        raise ctx.error(node, f"the name {node.id} isn't defined", _spelling_hint(ctx, node.id))
    return captured(ctx, node, node.id, value)


def _local(ctx: Context, node: ast.Name) -> KernelValue:
    """Return the value of a local name. Raises CompileError if it is unbound or has values of different types here."""
    entry = ctx.env.get(node.id)
    if isinstance(entry, Binding):
        return entry.value
    if isinstance(entry, Conflict):
        raise ctx.error(
            node,
            f"{node.id} has values of two kinds here: {entry.first} or {entry.second}",
            _conflict_hint(entry),
            (Note(entry.first_loc, f"here it is {entry.first}"), Note(entry.second_loc, f"here it is {entry.second}")),
        )
    notes = (Note(entry.loc, entry.reason),) if isinstance(entry, Unbound) and entry.loc else ()
    why = "may be read before it has a value" if notes else "is read before it has a value"
    raise ctx.error(node, f"{node.id} {why}", f"bind {node.id} before, on every way that leads here", notes)


def _conflict_hint(entry: Conflict) -> str:
    """Return the hint for a name that has values of different types on two control-flow paths."""
    if "lazy" in entry.first or "lazy" in entry.second:
        return "slices can't be chosen at run time: evaluate each where it is made"
    if entry.first.startswith(("a function", "the function")):
        return "functions can't be chosen at run time: call each in a branch of its own"
    if "array" in entry.first or "array" in entry.second:
        return "arrays can't be chosen at run time: choose the element, or call a function with each"
    return "convert one of them, or use two names"


def _spelling_hint(ctx: Context, name: str) -> str:
    """Return the hint for an undefined name: what to write instead, or a similar name."""
    import difflib

    names = [*ctx.scope.local_names, *ctx.function.__globals__, *vars(builtins)]
    close = difflib.get_close_matches(name, names, 1)
    return advice_on_name(name) or (f"did you mean {close[0]}?" if close else "")


# Types whose instances may always be captured.
_ATOMS = (bool, int, float, str, type(None), enum.Enum, DType, FunctionType, BuiltinFunctionType, ModuleType, type)


def capturable(value: object) -> bool:
    """True if a kernel may capture the object by value."""
    if isinstance(value, tuple):
        return all(map(capturable, value))
    if isinstance(value, (np.generic, np.ufunc, np.dtype, TypeVar, Tune, *_ATOMS)):
        return True
    if isinstance(value, functools.partial):
        return all(map(capturable, (value.func, *value.args, *value.keywords.values())))
    if isinstance(value, MethodType):
        return capturable(value.__func__) and capturable(value.__self__)
    fields = constant_fields(value)
    if fields:
        return all(capturable(getattr(value, name)) for name in fields)
    return any(test(value) for test in _CAPTURABLE_TESTS)


def constant_fields(value: object) -> tuple[str, ...]:
    """Return the field names of a frozen dataclass instance or named tuple; empty for anything else."""
    if isinstance(value, type | Value):
        return ()
    if isinstance(value, tuple):
        return tuple(getattr(value, "_fields", ()))
    return tuple(f.name for f in dataclasses.fields(cast(Any, value))) if is_frozen(value) else ()


_CAPTURABLE_TESTS: list[Callable[[object], bool]] = []
"""Predicates for further objects that kernels may capture, registered by `also_capturable`."""


def also_capturable(test: Callable[[object], bool]) -> None:
    """Register a predicate for further objects that kernels may capture."""
    _CAPTURABLE_TESTS.append(test)


def captured(ctx: Context, node: Place, text: str, value: Any) -> KernelValue:
    """Convert a captured object to a kernel value. Raises CompileError if it may not be captured.

    `text` is the source text that denotes the object, for messages.
    """
    if isinstance(value, TypeVar):
        return _type_variable(ctx, node, value)
    if isinstance(value, VectorType) and isinstance(value.dtype, TypeVar):
        return VectorType(_type_variable(ctx, node, value.dtype), value.size)
    if is_mapping(value):
        check_items(ctx, node, len(value))
        return Aggregate(
            MappingKind(tuple(value)), tuple(captured(ctx, node, f"{text}[{k!r}]", v) for k, v in value.items())
        )
    fault = size_fault(value)
    if fault:
        raise ctx.error(node, f"the constant {text} {fault}", "capture a smaller one, or pass the numbers in an array")
    if not capturable(value):
        raise _not_capturable(ctx, node, text, value)
    return _as_kernel_value(ctx, node, value)


def _as_kernel_value(ctx: Context, node: Place, value: Any) -> KernelValue:
    """Convert a capturable object, or a part of one, to a kernel value."""
    if isinstance(value, TypeVar):
        return _type_variable(ctx, node, value)
    if isinstance(value, np.float64):  # becomes a literal, as it does when passed as an argument
        return float(value)
    if isinstance(value, np.generic):
        dtype = dtypes.from_numpy(value.dtype)
        return ctx.builder.const(value.item(), dtype)
    if isinstance(value, np.dtype):
        return dtype_of(value)
    if isinstance(value, int) and isinstance(value, enum.Enum):
        return IntMember.of(value)
    if isinstance(value, tuple):
        items = tuple(_as_kernel_value(ctx, node, item) for item in value)
        return cast(Any, type(value))._make(items) if hasattr(value, "_fields") else items
    if isinstance(value, functools.partial):
        parts = (value.func, *value.args, *value.keywords.values())
        kind = PartialKind(len(value.args), tuple(value.keywords))
        return Aggregate(kind, tuple(_as_kernel_value(ctx, node, part) for part in parts))
    if isinstance(value, MethodType):
        return Aggregate(PartialKind(1), (value.__func__, _as_kernel_value(ctx, node, value.__self__)))
    return value


def _not_capturable(ctx: Context, node: Place, text: str, value: object) -> CompileError:
    """Return the error for an object that may not be captured, with advice by its kind."""
    if is_foreign_function(value):
        return ctx.error(node, f"{text} has no meaning in a kernel", advice_on_object(value))
    if isinstance(getattr(value, "spec", None), KernelSpec):
        hint = "move what both need into a function decorated with @vk.func, or launch one after the other"
        return ctx.error(node, f"{text} is a kernel: kernels are launched by the host, not by kernels", hint)
    kind = "an array of NumPy" if isinstance(value, np.ndarray) else _with_article(type(value).__name__)
    reason = f"{text} is {kind}: a kernel captures constants when it is compiled, and this can change"
    return ctx.error(node, reason, advice_on_capture(text, value))


def _with_article(word: str) -> str:
    return f"an {word}" if word[:1].lower() in "aeiou" else f"a {word}"


def _type_variable(ctx: Context, node: Place, variable: TypeVar) -> DType:
    """Return the dtype bound to a type variable."""
    name = variable.__name__
    if name not in ctx.typevars:
        raise ctx.error(node, f"the type variable {name} isn't bound: no argument has it as its type")
    return ctx.typevars[name]
