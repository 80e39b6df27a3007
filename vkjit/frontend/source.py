"""Finds the source of a function and its syntax tree, with exact places.

Enters: a Python function. Leaves: a `FunctionSource`: the tree of its definition and a way from nodes to `Loc`. Line
numbers are those of the file, wherever the function is nested or decorated. Notebook cells work because they are in
`linecache`. Trees may be shared by functions of a file and are never changed.
"""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
from collections.abc import Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType

from ..errors import CompileError, Loc

__all__ = ["FunctionSource", "edited", "refuse_other_kinds", "source_of"]


@dataclass(frozen=True, slots=True)
class FunctionSource:
    """The definition of one function: its tree, its file and the file's lines."""

    node: ast.FunctionDef
    file: str
    lines: tuple[str, ...]

    def loc(self, node: ast.AST) -> Loc:
        """The span of a node; one that runs over several lines ends with its first line."""
        line = getattr(node, "lineno", self.node.lineno)
        text = self.lines[line - 1].rstrip("\n") if 0 < line <= len(self.lines) else ""
        start = _characters(text, getattr(node, "col_offset", 0))
        end_line = getattr(node, "end_lineno", None)
        end = _characters(text, getattr(node, "end_col_offset", 0)) if end_line == line else len(text)
        return Loc(self.file, line, start, max(end, start))

    def name_loc(self) -> Loc:
        """The span of the function's name in its `def` line."""
        line = self.node.lineno
        text = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        start = text.find(self.node.name, self.node.col_offset)
        return Loc(self.file, line, max(start, 0), max(start, 0) + len(self.node.name))

    def text(self) -> str:
        """The text of the definition, decorators included."""
        return "".join(self.lines[_first_line(self.node) - 1 : self.node.end_lineno])


def _characters(text: str, offset: int) -> int:
    """The position in characters of a position in UTF-8 bytes."""
    return offset if text.isascii() else len(text.encode()[:offset].decode(errors="ignore"))


def _first_line(node: ast.FunctionDef) -> int:
    return min([node.lineno, *(d.lineno for d in node.decorator_list)])


@functools.lru_cache(maxsize=256)
def _functions(file: str, text: str) -> dict[tuple[int, str], ast.FunctionDef]:
    """All function definitions of a file by first line and name."""
    try:
        tree = ast.parse(text, file)
    except SyntaxError as error:
        place = Loc(file, error.lineno or 1)
        reason = "the file doesn't parse: it has changed since the function was defined"
        raise CompileError(reason, place, hint="import the module anew") from error
    return {(_first_line(n), n.name): n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}


def source_of(function: FunctionType) -> FunctionSource:
    """The source of a function; CompileError where there is none or where it isn't a plain `def`."""
    code = function.__code__
    known = _SOURCES.get(id(code))
    if known is not None:
        return known[1]
    found = _find(function, code)
    _SOURCES[id(code)] = (code, found)
    return found


_SOURCES: dict[int, tuple[CodeType, FunctionSource]] = {}
"""By identity: equal code objects may come from different files. The code is held, so that its identity stays its
own.
"""


def edited(function: FunctionType, lines: Sequence[str]) -> FunctionType:
    """The same function as if its file held these lines; the definition has to begin and be named as before.

    Nothing is run: the copy is there to be compiled. CompileError where the definition doesn't parse any more.
    """
    code = function.__code__.replace()
    node = _definition(code, list(lines))
    if node is None:
        raise CompileError(
            f"{code.co_name} doesn't parse with its new text", Loc(code.co_filename, code.co_firstlineno)
        )
    _SOURCES[id(code)] = (code, FunctionSource(node, code.co_filename, tuple(lines)))
    made = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    made.__annotations__ = function.__annotations__
    made.__qualname__, made.__module__ = function.__qualname__, function.__module__
    return made


def _find(function: FunctionType, code: CodeType) -> FunctionSource:
    place = Loc(code.co_filename, code.co_firstlineno)
    if code.co_name == "<lambda>":
        raise CompileError("a lambda can't be a kernel or device function", place, hint="write a function with `def`")
    refuse_other_kinds(function)
    linecache.checkcache(code.co_filename)  # the module may have been edited and imported anew
    lines = linecache.getlines(code.co_filename, function.__globals__)
    if not lines:
        raise _no_source(code, place)
    node = _definition(code, lines)
    if node is None:
        node = _functions(code.co_filename, "".join(lines)).get((code.co_firstlineno, code.co_name))
    if node is None or _parameter_names(node) != code.co_varnames[: len(_parameter_names(node))]:
        raise CompileError(
            f"{code.co_name} isn't found at line {code.co_firstlineno} of {code.co_filename}: "
            "the file has changed since the function was defined, or the function is no plain `def`",
            place,
            hint="import the module anew, and define kernels with `def`",
        )
    return FunctionSource(node, code.co_filename, tuple(lines))


def refuse_other_kinds(function: FunctionType) -> None:
    """CompileError for async functions and generators."""
    flags, code = function.__code__.co_flags, function.__code__
    kind = "a generator" if flags & inspect.CO_GENERATOR else ""
    if flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        kind = "an async function"
    if kind:
        hint = "write a plain `def` without async, await and yield; results go into Out arrays"
        raise CompileError(f"{function.__name__} is {kind}", Loc(code.co_filename, code.co_firstlineno), hint=hint)


def _definition(code: CodeType, lines: list[str]) -> ast.FunctionDef | None:
    """The tree of the definition at the code's place, without parsing the rest of the file; None where it isn't plain.

    It ends before the first line that is indented no deeper than it and is neither blank nor a comment. Inside brackets
    and strings such a line may still belong to it: what stands before it doesn't parse then.
    """
    first = code.co_firstlineno
    last = max((line for _, _, line in code.co_lines() if line), default=first)
    if last > len(lines):
        return None
    indent = len(lines[first - 1]) - len(lines[first - 1].lstrip())
    while last < len(lines) and lines[last - 1].lstrip().startswith("@"):
        last += 1  # code of a docstring alone has no line but its first
    while last < len(lines) and _continues(lines[last], indent):
        last += 1
    # the lines keep their numbers and columns
    before = "\n" * (first - 1) if indent == 0 else "\n" * (first - 2) + "if 1:\n"
    try:
        tree = ast.parse(before + "".join(lines[first - 1 : last]), code.co_filename)
    except SyntaxError:
        return None
    body = tree.body[0].body if len(tree.body) == 1 and isinstance(tree.body[0], ast.If) else tree.body
    for found in body if len(body) == 1 else ():
        if isinstance(found, ast.FunctionDef) and found.name == code.co_name and _first_line(found) == first:
            return found
    return None


def _continues(line: str, indent: int) -> bool:
    text = line.lstrip()
    return not text or text.startswith("#") or len(line) - len(text) > indent


def _parameter_names(node: ast.FunctionDef) -> tuple[str, ...]:
    a = node.args
    return tuple(p.arg for p in (*a.posonlyargs, *a.args, *a.kwonlyargs))


def _no_source(code: CodeType, place: Loc) -> CompileError:
    reason = f"the source of {code.co_name} can't be read (it was defined in {code.co_filename})"
    if code.co_filename in ("<stdin>", "<string>"):
        reason = f"the source of {code.co_name} isn't kept by Python: it was typed at the prompt or came through stdin"
    return CompileError(reason, place, hint="put the kernel into a file and import it, or use a notebook or IPython")
