"""Candidate repairs of a kernel's grid (its number of workgroups): one more workgroup along an axis, or axes reversed.

Only a grid that is given by `groups=` in the kernel's decorator is edited. The argument must be an expression for a
number or a tuple, or a lambda with such an expression. A grid computed by a named function isn't edited.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterator
from typing import Any

from vkjit.frontend.source import FunctionSource, source_of
from vkjit.launch.kernel import Kernel

from .edit import Edit, replaced
from .mutations import text_of

__all__ = ["grids"]

Grid = Any
"""The number of workgroups: a number, or a tuple of numbers by axis."""
Change = Callable[[Grid], Grid]
"""A function that returns a changed grid."""


def grids(kernel: Kernel) -> Iterator[tuple[Edit, Kernel]]:
    """Yield each edit with the edited kernel. Edits that add a workgroup come first."""
    source = source_of(kernel.spec.fn)
    node = _groups(source)
    given = kernel._groups
    if node is None or given is None:
        return
    for edit, change in _changes(source, node):
        groups = _with_change(given, change) if callable(given) else change(given)
        yield edit, kernel.variant(groups=groups)


def _groups(source: FunctionSource) -> ast.expr | None:
    """Return the expression that gives the grid in the decorator; None if there is nothing to edit.

    This is the argument `groups=`, or the body of the lambda if the argument is one.
    """
    for decorator in source.node.decorator_list:
        for keyword in decorator.keywords if isinstance(decorator, ast.Call) else ():
            if keyword.arg == "groups":
                value = keyword.value
                value = value.body if isinstance(value, ast.Lambda) else value
                return None if isinstance(value, ast.Name) else value
    return None


def _changes(source: FunctionSource, node: ast.expr) -> Iterator[tuple[Edit, Change]]:
    """Yield each edit of the grid's expression `node`, with a function that makes the same change to a grid."""
    if not isinstance(node, ast.Tuple):
        yield replaced("grid", node, source.lines, _one_more(source, node)), lambda grid: grid + 1
        return
    for axis, item in enumerate(node.elts):
        yield replaced("grid", item, source.lines, _one_more(source, item)), functools.partial(_longer, axis)
    texts = [text_of(source.lines, item) for item in node.elts]
    if len(set(texts)) > 1:
        reversed_text = f"({', '.join(reversed(texts))})"
        yield replaced("grid", node, source.lines, reversed_text), lambda grid: tuple(reversed(grid))


def _one_more(source: FunctionSource, node: ast.expr) -> str:
    """Return the text of an expression plus 1."""
    text = text_of(source.lines, node)
    return f"{text} + 1" if isinstance(node, (ast.BinOp, ast.Call, ast.Subscript)) else f"({text}) + 1"


def _longer(axis: int, grid: Grid) -> Grid:
    """Return the grid with one more workgroup along an axis."""
    return (*grid[:axis], grid[axis] + 1, *grid[axis + 1 :])


def _with_change(given: Callable[..., Any], change: Change) -> Callable[..., Any]:
    """Return a function with the parameters of `given`, which computes a grid by `given` and applies `change` to it."""

    @functools.wraps(given)
    def groups(**named: Any) -> Any:
        return change(given(**named))

    return groups
