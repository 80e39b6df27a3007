"""Mutations of a kernel's source: small edits that resemble common programming errors.

They change operators and comparisons, make constants and loop bounds off by one, drop or negate conditions, delete
barriers and stores, swap indices, replace atomics by plain updates, and exchange functions such as min and max.
`vkjit.testing.mutate` measures if tests detect them; `repairs` tries them as repairs of a faulty kernel.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from types import FunctionType
from typing import Any

from vkjit.frontend.source import source_of
from vkjit.launch.kernel import Kernel

from .edit import Edit, replaced, span_text

__all__ = ["mutations", "mutations_of", "operator_edit", "text_of"]

# operators: the text of each, and the text that replaces it
_COMPARISONS = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
}  # fmt: skip

_ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "+"), ast.Div: ("/", "*"), ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "//"), ast.LShift: ("<<", ">>"), ast.RShift: (">>", "<<"), ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"), ast.BitXor: ("^", "|"), ast.Pow: ("**", "*"),
}  # fmt: skip

_TWINS = {
    "min": "max", "max": "min", "fmin": "fmax", "fmax": "fmin", "sum": "max", "prod": "sum", "any": "all", "all": "any",
    "argmin": "argmax", "argmax": "argmin", "exp": "log", "log": "exp", "sqrt": "abs", "floor": "ceil", "ceil": "floor",
}  # fmt: skip
"""Functions, and the functions that replace them."""

_ID_FUNCTIONS = {"global_id", "local_id", "group_id"}
_NO_VALUES = {*_ID_FUNCTIONS, "barrier", "shared", "local"}
"""Functions whose arguments are sizes, types or axes; of these arguments, only the axes of ids are mutated."""


def mutations(kernel: Kernel) -> list[Edit]:
    """Return all mutations of a kernel in source order, without duplicates."""
    return mutations_of(kernel.spec.fn)


def mutations_of(function: FunctionType) -> list[Edit]:
    """Return all mutations of the Python function of a kernel or of a device function, in source order."""
    source = source_of(function)
    visitor = _Visitor(source.lines)
    for statement in _body(source.node):
        visitor.visit(statement)
    unique = dict.fromkeys(visitor.found)
    return sorted(unique, key=lambda e: (e.line, e.start, e.end_line, e.end))


def _body(node: ast.FunctionDef) -> list[ast.stmt]:
    """Return the statements of a function without its docstring."""
    first = node.body[0]
    has_docstring = (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    )
    return node.body[1:] if has_docstring else node.body


def text_of(lines: Sequence[str], node: Any) -> str:
    """Return the source text of a node as one line."""
    text = span_text(lines, node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)
    return " ".join(text.split())


def operator_edit(kind: str, lines: Sequence[str], left: Any, right: Any, old: str, new: str) -> Edit | None:
    """Return the edit that replaces the operator `old` between two operand nodes by `new`.

    Returns None if the operands are on different lines, or if `old` isn't found between them.
    """
    if left.end_lineno != right.lineno:
        return None
    line, start, end = right.lineno, left.end_col_offset, right.col_offset
    between = lines[line - 1].encode()[start:end].decode()
    offset = between.find(old)
    if offset < 0:
        return None
    column = start + len(between[:offset].encode())
    return Edit(kind, line, column, line, column + len(old.encode()), old, new)


class _Visitor(ast.NodeVisitor):
    """Collects in `found` the mutations of the statements that it visits. `lines` are the lines of the source."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines
        self.found: list[Edit] = []

    def add(self, kind: str, node: ast.AST, after: str) -> None:
        """Add the mutation that replaces a node."""
        self.found.append(replaced(kind, node, self.lines, after))

    def operator(self, kind: str, left: Any, right: Any, old: str, new: str) -> None:
        """Add the mutation that replaces the operator between two nodes."""
        edit = operator_edit(kind, self.lines, left, right, old, new)
        if edit is not None:
            self.found.append(edit)

    def text(self, node: Any) -> str:
        """Return the source text of a node as one line."""
        return text_of(self.lines, node)

    # -- expressions

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        for left, operation, right in zip(operands[:-1], node.ops, operands[1:], strict=True):
            if type(operation) in _COMPARISONS:
                old, new = _COMPARISONS[type(operation)]
                self.operator("comparison", left, right, old, new)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in _ARITHMETIC:
            self.operator("wrong operator", node.left, node.right, *_ARITHMETIC[type(node.op)])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self.operator("wrong operator", left, right, old, new)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.USub) and not isinstance(node.operand, ast.Constant):
            self.add("lost sign", node, f"({self.text(node.operand)})")
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self.add("turned condition", node.test, f"not ({self.text(node.test)})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool) or not isinstance(node.value, (int, float)):
            return
        if isinstance(node.value, int):
            self.add("off by one", node, str(node.value + 1))
            if node.value > 1:
                self.add("off by one", node, str(node.value - 1))
        elif node.value == node.value and abs(node.value) < 1e30:  # not NaN, and small enough for adding 1 to matter
            self.add("wrong constant", node, repr(node.value + 1.0))

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if isinstance(node.slice, ast.Tuple) and len(node.slice.elts) > 1:
            first, second, *rest = map(self.text, node.slice.elts)
            if first != second:
                self.add("swapped index", node.slice, ", ".join([second, first, *rest]))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in _TWINS and isinstance(node.func, ast.Attribute):
            self.add("wrong function", node.func, f"{self.text(node.func.value)}.{_TWINS[name]}")
        if name in ("get", "put") and len(node.args) - (name == "put") > 1:  # `put` also has a value as an argument
            self._swap(node, 0, 1)
        if name == "where" and len(node.args) == 3:
            self._swap(node, 1, 2)
        if name == "range" and node.args:
            self._range(node)
        if name in _NO_VALUES or _is_conversion(node):
            self.visit(node.func)
            if name in _ID_FUNCTIONS or _is_conversion(node):
                for argument in node.args:
                    self.visit(argument)
            return
        self.generic_visit(node)

    def _swap(self, node: ast.Call, one: int, two: int) -> None:
        """Add the mutation that swaps two positional arguments of a call; `one` and `two` are their positions."""
        texts = [self.text(a) for a in node.args]
        if texts[one] == texts[two] or any(isinstance(a, ast.Starred) for a in node.args):
            return
        texts[one], texts[two] = texts[two], texts[one]
        texts += [f"{k.arg}={self.text(k.value)}" for k in node.keywords if k.arg]
        kind = "swapped index" if one == 0 else "swapped choice"  # of `get` and `put`, or of `where`
        self.add(kind, node, f"{self.text(node.func)}({', '.join(texts)})")

    def _range(self, node: ast.Call) -> None:
        """Add the mutation of a `range` call that drops the last iteration of its loop."""
        texts = [self.text(a) for a in node.args]
        end_argument = 0 if len(texts) == 1 else 1
        shorter = [*texts]
        shorter[end_argument] = f"{texts[end_argument]} - 1"
        self.add("off by one", node, f"{self.text(node.func)}({', '.join(shorter)})")

    # -- statements

    def visit_If(self, node: ast.If) -> None:
        self.add("dropped mask", node.test, "True")
        self.add("turned condition", node.test, f"not ({self.text(node.test)})")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        old, new = _ARITHMETIC.get(type(node.op), ("", ""))
        if old:
            self.operator("wrong operator", node.target, node.value, f"{old}=", f"{new}=")
        self.add("dropped statement", node, "pass")
        self.visit(node.target)
        self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        if any(isinstance(t, ast.Subscript) for t in node.targets):
            self.add("dropped store", node, "pass")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        call = node.value
        if isinstance(call, ast.Constant):
            return
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            if call.func.attr == "barrier":
                self.add("dropped barrier", node, "pass")
                return
            plain_update = self._plain_update(call)
            if plain_update:
                self.add("removed atomic", node, plain_update)
        self.add("dropped statement", node, "pass")
        self.generic_visit(node)

    def _plain_update(self, call: ast.Call) -> str:
        """Return the text of the non-atomic equivalent of an atomic update; "" for other calls."""
        assert isinstance(call.func, ast.Attribute)
        owner = call.func.value
        if not (isinstance(owner, ast.Attribute) and owner.attr == "atomic") or len(call.args) != 3:
            return ""
        array, index, value = map(self.text, call.args)
        index = index[1:-1] if isinstance(call.args[1], ast.Tuple) and index.startswith("(") else index
        signs = {"add": "+=", "sub": "-=", "and_": "&=", "or_": "|=", "xor": "^="}
        if call.func.attr in signs:
            return f"{array}[{index}] {signs[call.func.attr]} {value}"
        if call.func.attr in ("min", "max"):
            name = f"{self.text(owner.value)}.{call.func.attr}"
            return f"{array}[{index}] = {name}({array}[{index}], {value})"
        return ""

    def visit_Assert(self, node: ast.Assert) -> None:
        self.add("dropped statement", node, "pass")
        self.visit(node.test)


def _is_conversion(node: ast.Call) -> bool:
    """True for a conversion such as vk.f32(0), whose argument is mutated like any other value."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name[:1] in "iufb" and name[1:].isdigit()
