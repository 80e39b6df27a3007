"""Small changes that mend common mistakes: the way back from the mutations.

Enters: a kernel. Leaves: `Edit`s: what `mutations` lists, and identities of reductions, rounding up in place of down,
wider products, missing barriers, comparisons that NaN doesn't pass.
"""

from __future__ import annotations

import ast
from typing import Any

from ...frontend.source import source_of
from ...jit import Kernel
from .edits import Edit, replaced
from .operators import mutations, text_of

__all__ = ["repairs"]

_IDENTITIES = ("0", "1", "-1", "-1e999", "1e999", "2147483647", "-2147483648")
_COSTLY = {"dropped statement", "dropped store", "dropped barrier", "removed atomic", "dropped mask"}
"""Mutations that mend nothing."""


def repairs(kernel: Kernel) -> list[Edit]:
    """The changes to try, likely ones first."""
    source = source_of(kernel.spec.fn)
    collector = _Collector(source.lines)
    for statement in source.node.body:
        collector.visit(statement)
    usual = [e for e in mutations(kernel) if e.kind not in _COSTLY]
    return list(dict.fromkeys([*collector.found, *usual]))


class _Collector(ast.NodeVisitor):
    """Collects what only mends."""

    def __init__(self, lines: Any) -> None:
        self.lines = lines
        self.found: list[Edit] = []

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool) or not isinstance(node.value, (int, float)):
            return
        for text in _IDENTITIES:
            if text != str(node.value):
                self.found.append(replaced("identity", node, self.lines, text))

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in ("local", "shared"):
            return  # how much memory there is
        if name != "range":
            self.generic_visit(node)
            return
        for argument in node.args:
            if not isinstance(argument, ast.Constant):
                self.visit(argument)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        left, right = text_of(self.lines, node.left), text_of(self.lines, node.right)
        if isinstance(node.op, ast.FloorDiv):
            self.found.append(replaced("rounding up", node, self.lines, f"(({left}) + ({right}) - 1) // ({right})"))
        if isinstance(node.op, (ast.Mult, ast.Add)):
            sign = "*" if isinstance(node.op, ast.Mult) else "+"
            self.found.append(replaced("wider", node, self.lines, f"vk.i64({left}) {sign} vk.i64({right})"))
        self.generic_visit(node)
