"""Candidate repairs of a kernel's source: small edits that may fix common programming errors.

They include mutations (see `mutations`), since a bug often has the form of a mutation, which another mutation undoes.
Other edits change the initial value of a reduction, replace a size by another size in the kernel, round a quotient up
instead of down, widen products and sums to 64 bits, and replace an index variable by another. Device functions that the
kernel calls are edited, too. `explain.localize` tries the edits.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from vkjit.frontend import DeviceFunction
from vkjit.frontend.source import FunctionSource, source_of
from vkjit.launch.kernel import Kernel

from .device_functions import device_functions
from .edit import Edit, replaced
from .mutations import mutations_of, text_of

__all__ = ["repairs"]

_IDENTITIES = ("0", "1", "-1", "-1e999", "1e999", "2147483647", "-2147483648")
"""Identity elements of reductions, as source text; 1e999 is infinite."""
_WIDEST: dict[Any, str] = {2147483647: "9223372036854775807", 2147483648: "9223372036854775808"}
"""Limits of 32-bit integers (of -2147483648 without the sign) and the corresponding limits of 64-bit integers."""

_NEVER_REPAIRS = {"dropped statement", "dropped store", "dropped barrier", "removed atomic", "dropped mask"}
"""Kinds of mutations that aren't tried as repairs, since they only remove code."""

_RANKS = {
    "comparison": 0, "identity": 0, "rounding up": 0, "wider": 0, "off by one": 1, "wrong function": 1, "swapped index": 1,
    "another size": 2, "another index": 2, "wrong operator": 3,
}  # fmt: skip
"""The rank of each kind of edit: edits with lower ranks are tried first. Kinds without a rank come last."""

_INITIAL_VALUE_FUNCTIONS = {"full", "where", "min", "max", "fmin", "fmax", "float", "int"}
"""Functions, besides type conversions, whose constant arguments may be the initial value of a reduction."""

_INDEX_FUNCTIONS = {"global_id", "local_id", "group_id", "index", "range", "unroll", "grid_stride"}
"""Functions that return indices."""


def repairs(kernel: Kernel) -> list[tuple[Edit, DeviceFunction | None]]:
    """Return the edits to try, the most likely first, each with the device function to edit (None: the kernel)."""
    local_sizes = [n for n in kernel.declared_local() or () if n > 1]
    in_kernel = [(edit, None) for edit in _repairs_of(kernel.spec.fn, local_sizes)]
    in_device_functions = [
        (edit, function)
        for function in device_functions(kernel.spec.fn)
        for edit in _repairs_of(function.fn, local_sizes)
    ]
    return sorted([*in_kernel, *in_device_functions], key=lambda pair: _RANKS.get(pair[0].kind, len(_RANKS)))


def _repairs_of(function: Any, local_sizes: list[int]) -> list[Edit]:
    """Return the edits of one function.

    `local_sizes` are the kernel's workgroup sizes along each axis, which are tried in place of other sizes.
    """
    source = source_of(function)
    collector = _Collector(source, local_sizes)
    for statement in source.node.body:
        collector.visit(statement)
    mutations = [e for e in mutations_of(function) if e.kind not in _NEVER_REPAIRS]
    return list(dict.fromkeys([*collector.found, *mutations]))


class _Collector(ast.NodeVisitor):
    """Collects in `found` the repairs of the statements that it visits, except mutations.

    `sizes` are the integers in the function and the workgroup size. `indices` are the names of variables that hold
    indices.
    """

    def __init__(self, source: FunctionSource, local_sizes: list[int]) -> None:
        self.lines = source.lines
        self.found: list[Edit] = []
        self.sizes = list(dict.fromkeys([*local_sizes, *sorted(n.value for n in _numbers(source.node))]))
        self.indices = list(dict.fromkeys(_indices(source.node)))

    def add(self, kind: str, node: ast.AST, after: str) -> None:
        """Add the edit that replaces a node."""
        self.found.append(replaced(kind, node, self.lines, after))

    # -- numbers

    def visit_Constant(self, node: ast.Constant) -> None:
        """Add edits that replace 1 by 0, and a larger integer by its half, its double, or another of the `sizes`."""
        if type(node.value) is int and node.value == 1:
            self.add("off by one", node, "0")
        if type(node.value) is not int or node.value < 2:
            return
        half_and_double = [2 * node.value, node.value // 2]
        for other in dict.fromkeys([*half_and_double, *self.sizes]):
            if other > 1 and abs(other - node.value) > 1:  # mutations try the adjacent numbers
                self.add("another size", node, str(other))

    def _replace_initial(self, node: ast.AST) -> None:
        """Add edits of an expression that may give an initial value: replace each constant by other initial values.

        Looks into tuples, conditional expressions, signs and conversions.
        """
        if isinstance(node, ast.IfExp):
            self._replace_initial(node.body)
            self._replace_initial(node.orelse)
        elif isinstance(node, ast.Tuple):
            for item in node.elts:
                self._replace_initial(item)
        elif isinstance(node, ast.UnaryOp):
            self._replace_initial(node.operand)
        elif isinstance(node, ast.Call) and (_name(node) in _INITIAL_VALUE_FUNCTIONS or _is_type_name(_name(node))):
            for argument in node.args:
                self._replace_initial(argument)
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
            texts = [*_IDENTITIES, *([_WIDEST[node.value]] if node.value in _WIDEST else [])]
            for text in texts:
                if text != str(node.value):
                    self.add("identity", node, text)

    def visit_Assign(self, node: ast.Assign) -> None:
        self._replace_initial(node.value)
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None:
            self._replace_initial(node.value)
        self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg == "pad":
            self._replace_initial(node.value)
        self.generic_visit(node)

    # -- expressions

    def visit_Call(self, node: ast.Call) -> None:
        name = _name(node)
        if name in ("local", "shared"):
            return  # the arguments are array sizes
        if name in ("get", "put"):
            for argument in node.args:
                self._other_indices(argument)
        if name in _INITIAL_VALUE_FUNCTIONS or _is_type_name(name):
            for argument in node.args:
                if not isinstance(argument, ast.Call):  # an argument that is a call is visited on its own
                    self._replace_initial(argument)
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self._other_indices(node.slice)
        self.generic_visit(node)

    def _other_indices(self, node: ast.AST) -> None:
        """Add edits that replace each index variable in an expression by each other index variable."""
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and part.id in self.indices:
                for other in self.indices:
                    if other != part.id:
                        self.add("another index", part, other)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        left, right = text_of(self.lines, node.left), text_of(self.lines, node.right)
        right_is_one = isinstance(node.right, ast.Constant) and type(node.right.value) is int and node.right.value == 1
        if right_is_one and isinstance(node.op, (ast.Add, ast.Sub)):
            self.add("off by one", node, left)
        if isinstance(node.op, ast.FloorDiv):
            self.add("rounding up", node, f"(({left}) + ({right}) - 1) // ({right})")
        if isinstance(node.op, (ast.Mult, ast.Add)):
            sign = "*" if isinstance(node.op, ast.Mult) else "+"
            self.add("wider", node, f"vk.i64({left}) {sign} vk.i64({right})")
        self.generic_visit(node)


def _name(node: ast.Call) -> str:
    """Return the name of the function or method that a call calls, without the object; "" if there is none."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _is_type_name(name: str) -> bool:
    """True for the name of a type conversion: a type such as f32, a type variable's letter, or `dtype` (as x.dtype)."""
    return name == "dtype" or len(name) == 1 or (name[:1] in "iufb" and name[1:2].isdigit())


def _numbers(node: ast.AST) -> Iterator[Any]:
    """Yield the AST nodes of constant integers from 2 to 2^20 in a function definition, including its decorators."""
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and type(part.value) is int and 1 < part.value < 1 << 20:
            yield part


def _indices(node: ast.AST) -> Iterator[str]:
    """Yield the names of variables that hold indices: those assigned from ids or shapes, and loop variables."""
    for part in ast.walk(node):
        pairs: list[tuple[Any, Any]] = []
        if isinstance(part, ast.Assign) and len(part.targets) == 1:
            target, value = part.targets[0], part.value
            both_tuples = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
            pairs = list(zip(target.elts, value.elts, strict=False)) if both_tuples else [(target, value)]  # type: ignore[attr-defined]
        elif isinstance(part, ast.For):
            pairs = [(part.target, part.iter)]
        for target, value in pairs:
            if _gives_indices(value):
                yield from (n.id for n in ast.walk(target) if isinstance(n, ast.Name))


def _gives_indices(node: ast.AST) -> bool:
    """True if an expression contains a call that returns an index, or a shape."""
    return any(
        (isinstance(part, ast.Call) and _name(part) in _INDEX_FUNCTIONS)
        or (isinstance(part, ast.Attribute) and part.attr == "shape")
        for part in ast.walk(node)
    )
