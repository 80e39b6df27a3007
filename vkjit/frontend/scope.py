"""Names of a function: which are local, which a statement assigns, and which are still read after it.

Enters: the tree of a function. Leaves: a `Scope`. Liveness is conservative: a name that isn't live is never read, so
that a join or a loop may forget it. In terms of sets: before = reads + (after - writes), with both branches of a
choice joined.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field

__all__ = ["Scope", "analyse", "assigned_names", "local_names", "read_names", "stored_names"]

Names = frozenset[str]
NONE: Names = frozenset()


def assigned_names(nodes: Iterable[ast.AST]) -> Names:
    """Names that any of the nodes, or what they hold, assigns; `p.x = v` assigns p."""
    found = (_assigned(n) for node in nodes for n in ast.walk(node))
    return frozenset(name for name in found if name is not None)


def _assigned(node: ast.AST) -> str | None:
    if not isinstance(node, ast.Name | ast.Attribute) or not isinstance(node.ctx, ast.Store | ast.Del):
        return None
    root: ast.expr = node
    while isinstance(root, ast.Attribute):
        root = root.value
    return root.id if isinstance(root, ast.Name) else None


def stored_names(nodes: Iterable[ast.AST]) -> Names:
    """Names of what any of the nodes stores into by an index, as `v[0] = x` does: it makes a new value of a vector."""
    found: set[str] = set()
    for node in (inner for outer in nodes for inner in ast.walk(outer)):
        if isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store):
            root: ast.expr = node
            while isinstance(root, ast.Subscript | ast.Attribute):
                root = root.value
            if isinstance(root, ast.Name):
                found.add(root.id)
    return frozenset(found)


def read_names(*nodes: ast.AST | None) -> Names:
    """Names that the nodes read."""
    return frozenset(
        n.id
        for node in nodes
        if node is not None
        for n in ast.walk(node)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
    )


@dataclass(slots=True)
class Scope:
    """`local_names` of the function; `after` an `if` or loop the live names; `head` those at the start of a loop's
    round.
    """

    local_names: Names
    after: dict[ast.AST, Names] = field(default_factory=dict)
    head: dict[ast.AST, Names] = field(default_factory=dict)


def local_names(function: ast.FunctionDef) -> Names:
    """Parameters and assigned names of a function definition."""
    a = function.args
    return frozenset(p.arg for p in (*a.posonlyargs, *a.args, *a.kwonlyargs)) | assigned_names(function.body)


def analyse(function: ast.FunctionDef) -> Scope:
    """The scope of a function definition."""
    scope = Scope(local_names(function))
    _Liveness(scope).block(function.body, NONE, NONE, NONE)
    return scope


class _Liveness:
    """Walks statements backwards; `stop` and `again` are live where `break` and `continue` lead."""

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
