"""Parser for the text form of the IR (see `printer`), for tests and tools. The grammar is in `ir.lark`.

Printing the parsed module gives the same text again. The parser accepts operands that are defined later in the
function; `verify` checks that definitions are visible at their uses. Syntax errors raise CompileError with the line and
column.
"""

from __future__ import annotations

import struct
from functools import cache
from pathlib import Path
from typing import Any, cast

from .. import dtypes
from ..dtypes import DType
from ..errors import UNKNOWN, CompileError, Loc, ReportSite
from .attributes import Attrs, FunctionAttrs
from .core import Function, Module, Op, Region, Value
from .ops import OPS, OpName
from .types import Array, Matrix, Scalar, Tile, Type, Vector

__all__ = ["parse_module"]

_ESCAPES = {"n": "\n", "r": "\r"}
"""The characters that escapes stand for. Any other escaped character, such as a quote, stands for itself."""


@cache
def _grammar() -> Any:
    from lark import Lark

    text = Path(__file__).with_name("ir.lark").read_text(encoding="utf-8")
    return Lark(text, parser="lalr", start="module", maybe_placeholders=True, propagate_positions=True)


def parse_module(text: str, file: str = "<ir>") -> Module:
    """Parse a module. `file` names the text in errors. Raises CompileError."""
    from lark.exceptions import UnexpectedInput

    text = text if text.endswith("\n") else text + "\n"
    try:
        tree = _grammar().parse(text)
    except UnexpectedInput as error:
        raise _unexpected(error, text, file) from None
    return _Reader(file, text).module(tree)


def _unexpected(error: Any, text: str, file: str) -> CompileError:
    """Return the error for a syntax error found by lark."""
    # at the end of the text, lark's positions may be -1 or past the last line
    line = min(max(getattr(error, "line", 1), 1), text.count("\n") + 1)
    column = max(getattr(error, "column", 1), 1)
    # the error has a `token` and the `expected` ones, or a `char` that begins no token and the `allowed` tokens
    token = getattr(error, "token", None)
    shown = "the end of the text" if token is not None and token.type == "$END" else repr(str(token or error.char))
    names = getattr(error, "expected", None) or getattr(error, "allowed", None) or ()
    expected = ", ".join(sorted(str(name) for name in names if not str(name).startswith("__")))
    return _error(f"found {shown}, expected one of {expected}", text, file, line, column - 1)


def _error(reason: str, text: str, file: str, line: int, column: int) -> CompileError:
    """Return an error that shows the source line; `line` counts from 1, `column` from 0."""
    lines = text.splitlines() or [""]
    source = lines[min(line, len(lines)) - 1]
    return CompileError(f"column {column + 1}: {reason}\n    {source}\n    {' ' * column}^", Loc(file, line, column))


class _Reader:
    """Converts lark's syntax tree to IR. Each method takes a node of the tree (`tree`) or a token.

    `values` maps the names defined in the current function to their values. `pending` has the function's operations,
    each with the names of its operands, which are resolved at the function's end.
    """

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.text = text
        self.values: dict[str, Value] = {}
        self.pending: list[tuple[Op, list[Any]]] = []

    def fail(self, reason: str, node: Any) -> CompileError:
        """Return an error located at `node`, a token or a tree."""
        line = getattr(node, "line", None) or node.meta.line
        column = getattr(node, "column", None) or node.meta.column
        return _error(reason, self.text, self.file, line, column - 1)

    def module(self, tree: Any) -> Module:
        """Return the module of the root of the tree."""
        sites: list[ReportSite] = []
        functions: dict[str, Function] = {}
        kernel: Function | None = None
        for child in tree.children:
            if child.data == "site":
                sites.append(self.site(child))
                continue
            function = self.function(child)
            if str(child.children[0]) == "func":
                if function.name in functions:
                    raise self.fail(f"function @{function.name} is defined twice", child.children[1])
                functions[function.name] = function
            elif kernel is None:
                kernel = function
            else:
                raise self.fail("a module has one kernel", child.children[0])
        if kernel is None:
            raise _error("the module has no kernel", self.text, self.file, 1, 0)
        return Module(kernel, functions, sites)

    def site(self, tree: Any) -> ReportSite:
        _, kind, message, loc = tree.children
        return ReportSite(_unquote(kind), self.location(loc), _unquote(message))

    def location(self, tree: Any) -> Loc:
        if tree is None:
            return UNKNOWN
        file, line, column, end = tree.children
        return Loc(_unquote(file), int(line), int(column), int(end))

    # -- functions and operations

    def function(self, tree: Any) -> Function:
        """Return a kernel or a device function."""
        _, name, arguments, results, attrs, loc, body = tree.children
        self.values, self.pending = {}, []
        region = self.region(arguments, body)
        for op, operands in self.pending:
            op.operands = [self.operand(token) for token in operands]
        result_types = self.types(results.children[0]) if results else []
        function_attrs = cast("FunctionAttrs", self.attributes(attrs.children[0]) if attrs else {})
        return Function(str(name), region, result_types, function_attrs, self.location(loc))

    def operand(self, token: Any) -> Value:
        value = self.values.get(str(token))
        if value is None:
            raise self.fail(f"{token} isn't defined in this function", token)
        return value

    def define(self, token: Any, value: Value) -> None:
        """Record the value that a name stands for. It becomes the value's name hint, unless it is a number."""
        name = str(token)  # with the %
        if name in self.values:
            raise self.fail(f"{name} is defined twice in this function", token)
        value.name = "" if name[1:].isdigit() else name[1:]
        self.values[name] = value

    def region(self, arguments: Any, body: Any) -> Region:
        """Return a region with its arguments and operations."""
        pairs = [a.children for a in arguments.children] if arguments else []
        region = Region([self.type(t) for _, t in pairs])
        for (token, _), value in zip(pairs, region.args, strict=True):
            self.define(token, value)
        region.ops = [self.op(op) for op in body.children]
        return region

    def op(self, tree: Any) -> Op:
        """Return an operation with its regions. Its operands are resolved later (see `pending`)."""
        defs, name, inputs, attrs, types, loc, regions = tree.children
        op_attrs = cast("Attrs", self.attributes(attrs) if attrs else {})  # `verify` checks them
        operands: list[Any] = []
        for item in inputs.children if inputs else ():
            if item.data == "use":
                operands.append(item.children[0])
            else:  # a constant's value is written in place of operands
                op_attrs["value"] = self.attribute(item)
        result_types = self.types(types) if types else []
        names = defs.children if defs else []
        if len(names) != len(result_types):
            raise self.fail(f"{len(names)} results but {len(result_types)} types", name)
        op_name = cast("OpName", str(name))  # `verify` reports unknown names
        row = OPS.get(op_name)
        # the printer omits the attribute `type` if it equals the result's type
        if row is not None and "type" in row.attrs and "type" not in op_attrs and len(result_types) == 1:
            op_attrs["type"] = result_types[0]
        op = Op(op_name, [], result_types, op_attrs, None, self.location(loc))
        for token, value in zip(names, op.results, strict=True):
            self.define(token, value)
        self.pending.append((op, operands))
        op.regions = [self.region(*r.children) for r in regions.children] if regions else []
        return op

    # -- attributes and types

    def attributes(self, tree: Any) -> dict[str, Any]:
        pairs = [child.children for child in tree.children if child is not None]
        return {str(name): self.attribute(value) for name, value in pairs}

    def attribute(self, tree: Any) -> Any:
        """Return the value of an attribute."""
        kind = tree.data
        if kind in ("true", "false", "none"):
            return {"true": True, "false": False, "none": None}[kind]
        if kind == "tuple":
            return tuple(self.attribute(child) for child in tree.children)
        if kind in ("scalar", "vector", "array", "allocated", "matrix", "tile"):
            return self.type(tree)
        token = tree.children[0]
        if kind == "int":
            return int(token)
        if kind == "float":
            return float(token)
        if kind == "nan_bits":
            return struct.unpack("<d", struct.pack("<Q", int(token[4:], 16)))[0]  # without "nan:"
        return _unquote(token) if kind == "string" else self.dtype(token)

    def types(self, tree: Any) -> list[Type]:
        return [self.type(child) for child in tree.children]

    def type(self, tree: Any) -> Type:
        if tree.data == "scalar":
            return Scalar(self.dtype(tree.children[0]))
        if tree.data == "vector":
            return Vector(self.dtype(tree.children[0]), int(tree.children[1]))
        if tree.data == "matrix":
            dtype, extents, use = tree.children
            rows, columns = (int(e) for e in str(extents).split("x"))
            return Matrix(self.dtype(dtype), rows, columns, str(use))
        if tree.data == "tile":
            dtype, extents, scope = tree.children
            return Tile(self.dtype(dtype), tuple(map(int, str(extents).split("x"))), str(scope))
        if tree.data == "array":
            element, rank, access, *flags = tree.children
            return Array(self.element(element), int(rank), access=str(access), **self.flags(flags))
        space, element, extents, linear = tree.children  # a shared or local array
        shape = tuple(int(e) for e in str(extents.children[0]).split("x")) if extents else ()
        flags = self.flags([linear] if linear else [])
        return Array(self.element(element), len(shape), space=str(space), shape=shape, **flags)

    def element(self, tree: Any) -> Scalar | Vector:
        """Return the element type of an array."""
        parsed = self.type(tree)
        if not isinstance(parsed, (Scalar, Vector)):
            raise self.fail(f"{parsed} can't be the element of an array", tree)
        return parsed

    def flags(self, tokens: list[Any]) -> dict[str, Any]:
        """Return the flags of an array type, as keyword arguments of `Array`."""
        for token in tokens:
            if str(token) not in ("contiguous", "restrict", "linear"):
                raise self.fail(f"found {token}, expected contiguous, restrict or linear", token)
        return {str(token): True for token in tokens}

    def dtype(self, token: Any) -> DType:
        named = dtypes.by_name.get(str(token))
        if named is None:
            raise self.fail(f"no element type is named {token}", token)
        return named


def _unquote(token: Any) -> str:
    """Return the content of a string literal, without quotes and escapes."""
    unescaped: list[str] = []
    characters = iter(str(token)[1:-1])
    for character in characters:
        if character == "\\":
            escaped = next(characters)
            unescaped.append(_ESCAPES.get(escaped, escaped))
        else:
            unescaped.append(character)
    return "".join(unescaped)
