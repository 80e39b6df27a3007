"""Parser for dimension strings such as "M K", "*batch 2*N", "_ N+1".

Strings with expressions are parsed by lark with the grammar in `shape.lark`. Strings of names, integers, `_`, `...` and
`*name` only are parsed without lark, which is slow to import.
"""

from __future__ import annotations

import functools
import operator
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vkjit.errors import ArgumentError

from .dims import Dim, Dims, constant, name

__all__ = ["parse_dims"]

_MAX_CHARACTERS = 1000
"""The largest number of characters of a dimension string with operators."""
_MAX_OPERATORS = 100
"""The largest number of operators and brackets in one."""

# A dimension without operators: name, *name, integer, `...` or `*_`.
_SIMPLE = re.compile(r"^(?:\*?[^\W\d]\w*|\d+|\.\.\.|\*_)$")


@functools.lru_cache(maxsize=1024)
def parse_dims(text: str) -> Dims:
    """Parse a dimension string. Raises ArgumentError with the position of a syntax error.

    Names are Python's identifiers, and are normalized as those are.
    """
    text = text if text.isascii() else unicodedata.normalize("NFKC", text)
    tokens = text.split()
    if all(_SIMPLE.match(w) for w in tokens):
        dims = tuple(_simple_dim(w) for w in tokens)
    else:
        dims = _parse_expressions(text)
    if sum(d.variadic for d in dims) > 1:
        raise ArgumentError(f'"{text}": at most one dimension may be a *name')
    return Dims(text, dims)


def _simple_dim(word: str) -> Dim:
    """Return the dimension that a word matched by `_SIMPLE` denotes."""
    if word in ("...", "*_") or word.startswith("*"):
        return Dim(word, (), None, True)
    if word == "_":
        return Dim(word)
    if word.isdigit():
        return constant(int(word))
    return name(word)


@functools.cache
def _parser() -> Any:
    """Return the lark parser of dimension strings."""
    import lark

    grammar = Path(__file__).with_name("shape.lark").read_text(encoding="utf-8")
    return lark.Lark(grammar, parser="earley", propagate_positions=True)


def _parse_expressions(text: str) -> tuple[Dim, ...]:
    """Parse a dimension string with expressions. Raises ArgumentError that shows the position of a syntax error."""
    import lark

    stripped = text.strip()
    if len(stripped) > _MAX_CHARACTERS or sum(stripped.count(sign) for sign in "+-*/(") > _MAX_OPERATORS:
        raise ArgumentError(
            f"dimensions of {len(stripped)} characters are too long: expected at most {_MAX_CHARACTERS}, with {_MAX_OPERATORS} "
            "operators and brackets"
        )
    try:
        tree = _parser().parse(stripped)
    except lark.exceptions.UnexpectedInput as error:
        column = getattr(error, "column", None)
        if not (isinstance(column, int) and column > 0):  # lark gives no column for an error at the end of the text
            column = len(stripped) + 1
        raise ArgumentError(
            f"dimensions can't be read:\n    {stripped}\n    {' ' * (column - 1)}^\n"
            'expected names, integers, +, -, *, // and brackets, separated by blanks, as in "*batch 2*N N+1 _"'
        ) from None
    return tuple(_dim(child, stripped) for child in tree.children)


def _dim(node: Any, text: str) -> Dim:
    """Return the dimension that a node of lark's parse tree denotes; `text` is the parsed string."""
    if node.data == "batch":
        return Dim(f"*{node.children[0]}", (), None, True)
    if node.data == "dots":
        return Dim("...", (), None, True)
    if node.data == "anything":
        return Dim("_")
    dim = _expression(node)
    return Dim(text[node.meta.start_pos : node.meta.end_pos], dim.names, dim.value)


_OPERATORS: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
}


def _expression(node: Any) -> Dim:
    """Return the dimension of an arithmetic expression; its `text` is set by `_dim`."""
    if node.data == "constant":
        return constant(int(node.children[0]))
    if node.data == "name":
        return name(str(node.children[0]))
    left, right = (_expression(child) for child in node.children)
    function, x, y = _OPERATORS[node.data], left.value, right.value
    names = tuple(dict.fromkeys((*left.names, *right.names)))
    # x and y are never None, which only `_` and variadic dimensions have as value; the test is for the type checker.
    return Dim("", names, lambda env: function(x(env), y(env)) if x is not None and y is not None else 0)
