"""Scope and liveness analysis of a function's names.

Runs on the syntax tree before a function is lowered. Joins and loops use the result to carry live names only. Liveness
is conservative: a name that isn't live is certainly not read. The transfer function of a statement is
live before = reads + (live after - writes); before an `if`, the names live in either branch are live.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

__all__ = [
    "NestedFunction",
    "Scope",
    "analyze",
    "assigned_names",
    "elif_chain",
    "free_names",
    "local_names",
    "parameters_of",
    "read_names",
    "stored_names",
]

Names = frozenset[str]
NestedFunction = ast.FunctionDef | ast.Lambda
NONE: Names = frozenset()
"""The empty set of names."""


def own_nodes(root: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes below and including `root`, as `ast.walk` does, but not the bodies of nested functions."""
    pending = [root]
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, NestedFunction):
            a = node.args
            pending += [*a.defaults, *(d for d in a.kw_defaults if d), *getattr(node, "decorator_list", ())]
        else:
            pending += ast.iter_child_nodes(node)


def assigned_names(nodes: Iterable[ast.AST]) -> Names:
    """Return the names assigned anywhere in the nodes, outside of nested functions; `p.x = v` assigns p."""
    names = (_assigned(n) for node in nodes for n in own_nodes(node))
    return frozenset(name for name in names if name is not None)


def _assigned(node: ast.AST) -> str | None:
    """Return the name that a node assigns (p for `p` and `p.x`), or None."""
    if isinstance(node, ast.FunctionDef):
        return node.name
    if not isinstance(node, ast.Name | ast.Attribute) or not isinstance(node.ctx, ast.Store | ast.Del):
        return None
    root: ast.expr = node
    while isinstance(root, ast.Attribute):
        root = root.value
    return root.id if isinstance(root, ast.Name) else None


def stored_names(nodes: Iterable[ast.AST]) -> Names:
    """Return the names stored into by subscript or attribute.

    These may be rebound, too: if v is a vector in registers, `v[0] = x` binds v to a new vector.
    """
    names: set[str] = set()
    for node in (descendant for root_node in nodes for descendant in own_nodes(root_node)):
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
    """The local names of a function, and their liveness.

    `after` maps each `if` and loop to the names live after it. `head` maps each loop to the names live at the start of
    an iteration. Names that nested functions read are live everywhere: calls read them.
    """

    local_names: Names
    after: dict[ast.AST, Names] = field(default_factory=dict)
    head: dict[ast.AST, Names] = field(default_factory=dict)


def parameters_of(function: NestedFunction) -> tuple[str, ...]:
    """Return the names of a function's parameters, `*args` and `**kwargs` last."""
    a = function.args
    variable = [p for p in (a.vararg, a.kwarg) if p is not None]
    return tuple(p.arg for p in (*a.posonlyargs, *a.args, *a.kwonlyargs, *variable))


def local_names(function: ast.FunctionDef) -> Names:
    """Return the parameters and assigned names of a function definition."""
    return frozenset(parameters_of(function)) | assigned_names(function.body)


def free_names(function: NestedFunction) -> Names:
    """Return the names that a nested function takes from outside: those that it reads, or stores a part of.

    `p.x = v` stores a part of p. Assigning `p` itself makes it local.
    """
    body = function.body if isinstance(function, ast.FunctionDef) else [function.body]
    local: set[str] = set(parameters_of(function))
    read: set[str] = set()
    for node in (descendant for root in body for descendant in own_nodes(root)):
        if isinstance(node, NestedFunction):
            read |= free_names(node)
        if isinstance(node, ast.FunctionDef):
            local.add(node.name)
        elif isinstance(node, ast.Name):
            (read if isinstance(node.ctx, ast.Load) else local).add(node.id)
    return frozenset(read - local)


def elif_chain(node: ast.If) -> list[ast.If]:
    """Return an `if` and the `elif`s after it."""
    chain = [node]
    while len(chain[-1].orelse) == 1 and isinstance(chain[-1].orelse[0], ast.If):
        chain.append(chain[-1].orelse[0])
    return chain


def analyze(function: ast.FunctionDef) -> Scope:
    """Analyze the scope of a function definition."""
    scope = Scope(local_names(function))
    _Liveness(scope).block(function.body, NONE, NONE, NONE)
    nested = [n for statement in function.body for n in own_nodes(statement) if isinstance(n, NestedFunction)]
    if nested:
        shared = scope.local_names & frozenset().union(*map(free_names, nested))
        for live in (scope.after, scope.head):
            live.update({node: names | shared for node, names in live.items()})
    return scope


class _Liveness:
    """Backward walk over statements that fills in a Scope.

    The methods take the names live after a node and return those live before it. `live_at_break` and `live_at_continue`
    are the names live at the targets of `break` and `continue` of the innermost loop.
    """

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def block(self, statements: list[ast.stmt], after: Names, live_at_break: Names, live_at_continue: Names) -> Names:
        """Return the names live before a list of statements."""
        for statement in reversed(statements):
            after = self.statement(statement, after, live_at_break, live_at_continue)
        return after

    def statement(self, node: ast.stmt, after: Names, live_at_break: Names, live_at_continue: Names) -> Names:
        """Return the names live before a statement."""
        if isinstance(node, ast.If):
            chain = elif_chain(node)
            live = self.block(chain[-1].orelse, after, live_at_break, live_at_continue)
            for arm in reversed(chain):
                self.scope.after[arm] = self.scope.after.get(arm, NONE) | after
                live |= read_names(arm.test) | self.block(arm.body, after, live_at_break, live_at_continue)
            return live
        if isinstance(node, ast.For):
            return self.loop(node, node.iter, node.target, after, live_at_break, live_at_continue)
        if isinstance(node, ast.While):
            return self.loop(node, node.test, None, after, live_at_break, live_at_continue)
        if isinstance(node, ast.Break):
            return live_at_break
        if isinstance(node, ast.Continue):
            return live_at_continue
        if isinstance(node, ast.Return):
            return read_names(node.value)
        if isinstance(node, ast.AugAssign):  # the target is read, too, though its context is ast.Store
            return after | read_names(node.value, node.target) | assigned_names([node.target])
        read = read_names(node)
        written = assigned_names([node]) - read
        # the same set is returned if nothing changes: copies would make long code with many names quadratic
        live = after if written.isdisjoint(after) else after - written
        return live if read <= live else live | read

    def loop(
        self,
        node: ast.For | ast.While,
        header: ast.expr,
        target: ast.expr | None,
        after: Names,
        live_at_break: Names,
        live_at_continue: Names,
    ) -> Names:
        """Return the names live before a loop.

        `header` is the iterable of a `for` or the test of a `while`, and `target` is the target of a `for`.
        """
        # The body of a loop may be walked twice, and a nested loop more often: each visit adds to `after` and `head`.
        self.scope.after[node] = self.scope.after.get(node, NONE) | after
        live_before_else = self.block(node.orelse, after, live_at_break, live_at_continue)
        target_names = assigned_names([target]) if target is not None else NONE
        read_by_test = read_names(header) if isinstance(node, ast.While) else NONE
        # The end of an iteration leads out of the loop, through the test and the `else` block, or to the next
        # iteration. The first walk over the body considers the exit only.
        live_at_end = live_before_else | read_by_test
        live_before_body = self.block(node.body, live_at_end, after, live_at_end) - target_names
        # A name that an iteration takes from the previous one is also live at the body's end. Walk the body again, to
        # add these names to `after` and `head` of the statements in it.
        if not live_before_body <= live_at_end:
            live_at_end |= live_before_body
            live_before_body = self.block(node.body, live_at_end, after, live_at_end) - target_names
        live_at_start = live_at_end | live_before_body
        self.scope.head[node] = self.scope.head.get(node, NONE) | live_at_start
        return live_at_start | read_names(header)
