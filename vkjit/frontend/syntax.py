"""Errors for Python syntax that kernels don't support, with the alternative to use."""

from __future__ import annotations

import ast

from ..errors import CompileError
from .source import FunctionSource

__all__ = ["unsupported"]

_ALTERNATIVES: dict[str, tuple[str, str]] = {
    "ListComp": ("a comprehension", "write a for loop that stores into vk.local(dtype, shape)"),
    "SetComp": ("a comprehension", "write a for loop"),
    "DictComp": ("a comprehension", "write a for loop"),
    "GeneratorExp": ("a generator expression", "write a for loop with an accumulator"),
    "List": ("a list", "write a tuple for values known in number, vk.local(dtype, shape) for an array"),
    "Dict": ("a dictionary", "choose with if/elif, or pass a table as an array argument"),
    "Set": ("a set", "compare with `==` and `or`"),
    "JoinedStr": ("an f-string", "f-strings work in print() and in the message of an assert"),
    "NamedExpr": ("an assignment inside an expression", "assign on a line of its own, before"),
    "Starred": ("a starred expression", "write each item"),
    "Await": ("await", "kernels run to their end; nothing in them waits"),
    "Yield": ("yield", "store results into an array"),
    "YieldFrom": ("yield", "store results into an array"),
    "Try": ("try", "test the condition with `if`; nothing in a kernel raises"),
    "TryStar": ("try", "test the condition with `if`; nothing in a kernel raises"),
    "Raise": ("raise", 'write `assert condition, "message"`: a failing one is raised on the host'),
    "With": ("with", "call what is needed before and after, e.g. vk.barrier()"),
    "AsyncFor": ("async", "write a plain loop"),
    "AsyncWith": ("async", "write plain statements"),
    "AsyncFunctionDef": ("async", "write a plain function"),
    "ClassDef": ("a class definition", "define it outside"),
    "Global": ("global", "pass an array of one element and write to it"),
    "Nonlocal": ("nonlocal", "return the value, or write it to an array"),
    "Import": ("an import", "import at the top of the module"),
    "ImportFrom": ("an import", "import at the top of the module"),
    "Delete": ("del", "names end with the function; leave the line out"),
    "Match": ("match", "write if/elif/else"),
    "Slice": ("a slice", "give one index for each dimension, or loop over the elements"),
}
"""For each class of syntax nodes: what it is called in the message, and what to write instead."""


def unsupported(source: FunctionSource, node: ast.AST) -> CompileError:
    """Return the CompileError for an unsupported node."""
    what, instead = _ALTERNATIVES.get(
        type(node).__name__, (f"{type(node).__name__}", "write it with simpler statements")
    )
    return CompileError(f"{what} can't be used in a kernel", source.loc(node), hint=instead)
