"""Scope and liveness analysis of a function's names.

Liveness is conservative: a name that isn't live is never read, so joins and loops may drop it. The transfer function is
before = reads + (after - writes); the branches of an `if` are united.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field

__all__ = ["Scope", "analyze", "assigned_names", "local_names", "read_names", "stored_names"]

Names = frozenset[str]
NONE: Names = frozenset()


def assigned_names(nodes: Iterable[ast.AST]) -> Names:
    """Return the names assigned anywhere in the nodes; `p.x = v` assigns p."""
    names = (_assigned(n) for node in nodes for n in ast.walk(node))
    return frozenset(name for name in names if name is not None)


def _assigned(node: ast.AST) -> str | None:
    if not isinstance(node, ast.Name | ast.Attribute) or not isinstance(node.ctx, ast.Store | ast.Del):
        return None
    root: ast.expr = node
    while isinstance(root, ast.Attribute):
        root = root.value
    return root.id if isinstance(root, ast.Name) else None


def stored_names(nodes: Iterable[ast.AST]) -> Names:
    """Return the names stored into by subscript or attribute; `v[0] = x` makes a new value of a vector."""
    names: set[str] = set()
    for node in (inner for outer in nodes for inner in ast.walk(outer)):
        if isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store):
            root: ast.expr = node
            while isinstance(root, ast.Subscript | ast.Attribute):
                root = root.value
            if isinstance(root, ast.Name):
                names.add(root.id)
    return frozenset(names)


def read_names(*nodes: ast.AST | None) -> Names:
    """Return the names that the nodes read."""
    return frozenset(
        n.id
        for node in nodes
        if node is not None
        for n in ast.walk(node)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
    )


@dataclass(slots=True)
class Scope:
    """The names of a function.

    `after` maps each `if` and loop to the names live after it, `head` each loop to the names live at the start of an
    iteration.
    """

    local_names: Names
    after: dict[ast.AST, Names] = field(default_factory=dict)
    head: dict[ast.AST, Names] = field(default_factory=dict)


def local_names(function: ast.FunctionDef) -> Names:
    """Return the parameters and assigned names of a function definition."""
    a = function.args
    return frozenset(p.arg for p in (*a.posonlyargs, *a.args, *a.kwonlyargs)) | assigned_names(function.body)


def analyze(function: ast.FunctionDef) -> Scope:
    """Analyze the scope of a function definition."""
    scope = Scope(local_names(function))
    _Liveness(scope).block(function.body, NONE, NONE, NONE)
    return scope


class _Liveness:
    """Backward walk over statements; `stop` and `again` are the names live after `break` and `continue`."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def block(self, statements: list[ast.stmt], after: Names, stop: Names, again: Names) -> Names:
        for statement in reversed(statements):
            after = self.statement(statement, after, stop, again)
        return after

    def statement(self, node: ast.stmt, after: Names, stop: Names, again: Names) -> Names:
        if isinstance(node, ast.If):
            self.scope.after[node] = self.scope.after.get(node, NONE) | after
            taken, other = self.block(node.body, after, stop, again), self.block(node.orelse, after, stop, again)
            return read_names(node.test) | taken | other
        if isinstance(node, ast.For):
            return self.loop(node, node.iter, node.target, after, stop, again)
        if isinstance(node, ast.While):
            return self.loop(node, node.test, None, after, stop, again)
        if isinstance(node, ast.Break):
            return stop
        if isinstance(node, ast.Continue):
            return again
        if isinstance(node, ast.Return):
            return read_names(node.value)
        if isinstance(node, ast.AugAssign):
            return after | read_names(node.value, node.target) | assigned_names([node.target])
        return read_names(node) | (after - assigned_names([node]))

    def loop(
        self,
        node: ast.For | ast.While,
        head: ast.expr,
        target: ast.expr | None,
        after: Names,
        stop: Names,
        again: Names,
    ) -> Names:
        self.scope.after[node] = self.scope.after.get(node, NONE) | after
        done = self.block(node.orelse, after, stop, again)
        written = assigned_names([target]) if target is not None else NONE
        tested = read_names(head) if isinstance(node, ast.While) else NONE
        start = done | tested
        body = self.block(node.body, start, after, start) - written
        if not body <= start:
            body = self.block(node.body, start | body, after, start | body) - written
        self.scope.head[node] = self.scope.head.get(node, NONE) | start | body
        return start | body | read_names(head)
