"""Functions that are nested in a kernel or device function, as values.

A nested function is an Aggregate of kind `LocalFunction`; its parts are the values of its defaults. As in Python, the
names that it takes from the function around it are looked up when it is called. A value that leaves the function around
it, as an argument or result, is detached: the values that these names have now become parts of it, too. They can't
change while the value is away, and a value that comes back is attached again.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace

from vkjit.errors import Loc

from ..context import Context, Place
from ..kernel_values import (
    Aggregate,
    Binding,
    Conflict,
    FunctionKind,
    KernelValue,
    Unbound,
    holds_lazy,
    parts_of,
    with_parts,
)
from ..signature.annotations import Annotation

__all__ = ["LocalFunction", "attached", "detached", "leaving"]


@dataclass(frozen=True, slots=True)
class LocalFunction(FunctionKind):
    """The kind of a nested function: its definition in the function that `ctx` lowers.

    - `annotations`: the annotations of its parameters, in order.
    - `free`: the names that it takes from the function around it.
    - `names`: those that have values, which are the last parts of a detached function; None for one that isn't.
    - `unbound`: the entries of the others when it was detached. `itself` are the names of the function itself.
    """

    node: ast.FunctionDef
    ctx: Context
    annotations: tuple[Annotation, ...]
    free: tuple[str, ...]
    names: tuple[str, ...] | None = None
    unbound: tuple[tuple[str, Unbound | Conflict], ...] = ()
    itself: tuple[tuple[str, Loc], ...] = ()

    def __str__(self) -> str:
        return f"function {self.node.name}"


def leaving(ctx: Context, node: Place, value: KernelValue) -> KernelValue:
    """Return a value that leaves the function as an argument or result, with the functions in it detached.

    Raises CompileError if one takes a lazy slice along.
    """
    result = detached(ctx, node, value)
    if result is not value and holds_lazy(result) and not holds_lazy(value):
        reason = "this function reads a slice of the function around it: slices can't be taken along"
        raise ctx.error(node, reason, "give it the slice as an argument, or read elements: x[i]")
    return result


def detached(ctx: Context, node: Place, value: KernelValue, within: tuple[object, ...] = ()) -> KernelValue:
    """Return a value with the functions in it detached. `within` are the kinds of those that are being detached."""
    parts = parts_of(value)
    if not parts and not isinstance(value, Aggregate):
        return value
    kind = value.kind if isinstance(value, Aggregate) else None
    new = [detached(ctx, node, part, within) for part in parts or ()]
    if not isinstance(kind, LocalFunction) or kind.names is not None:
        return value if all(a is b for a, b in zip(new, parts or (), strict=True)) else with_parts(value, new)
    names, unbound, itself = [], [], []
    for name in kind.free:
        entry = kind.ctx.env.get(name) or Unbound("", None)
        if not isinstance(entry, Binding):
            unbound.append((name, entry))
        elif isinstance(entry.value, Aggregate) and entry.value == value:
            itself.append((name, entry.loc))
        elif isinstance(entry.value, Aggregate) and entry.value.kind in within:
            reason = (
                f"{kind.node.name} and {name} call each other: a nested function can call itself and those before it"
            )
            raise ctx.error(node, reason, "define them at the top of the module, decorated with @vk.func")
        else:
            names.append(name)
            new.append(detached(ctx, node, entry.value, (*within, kind)))
    return Aggregate(replace(kind, names=tuple(names), unbound=tuple(unbound), itself=tuple(itself)), tuple(new))


def attached(ctx: Context, value: KernelValue) -> KernelValue:
    """Return a value that has come back, with the functions in it that belong to `ctx` attached."""
    parts = parts_of(value)
    if not parts and not isinstance(value, Aggregate):
        return value
    kind = value.kind if isinstance(value, Aggregate) else None
    if isinstance(kind, LocalFunction) and kind.ctx is ctx and kind.names is not None:
        parts = (parts or ())[: len(parts or ()) - len(kind.names)]
        value = Aggregate(replace(kind, names=None, unbound=(), itself=()), parts)
    new = [attached(ctx, part) for part in parts or ()]
    return value if all(a is b for a, b in zip(new, parts or (), strict=True)) else with_parts(value, new)
