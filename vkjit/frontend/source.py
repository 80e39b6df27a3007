"""Source and syntax tree of a function, with exact source locations.

Line numbers are those of the file, also for nested and decorated functions. Notebook cells work because their text is
in `linecache`. Several functions may share one tree of their file, so trees must not be modified.
"""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

from ..errors import CompileError, Loc

__all__ = [
    "LAMBDA",
    "FunctionSource",
    "as_definition",
    "give_source",
    "reject_async_and_generators",
    "source_of",
    "with_edited_source",
]

_PROCESS_BEGAN = time.time_ns() - time.process_time_ns() - 50_000_000
"""The time at which this process began, in ns, or earlier: times of files may lag by some milliseconds."""


@dataclass(frozen=True, slots=True)
class FunctionSource:
    """The definition of one function: its syntax tree, its file and the file's lines."""

    node: ast.FunctionDef
    file: str
    lines: tuple[str, ...]

    def loc(self, node: ast.AST) -> Loc:
        """Return the location of a node. If the node spans several lines, this is its part on the first line."""
        line = getattr(node, "lineno", self.node.lineno)
        text = self.lines[line - 1].rstrip("\n") if 0 < line <= len(self.lines) else ""
        start = _characters(text, getattr(node, "col_offset", 0))
        end_line = getattr(node, "end_lineno", None)
        end = _characters(text, getattr(node, "end_col_offset", 0)) if end_line == line else len(text)
        return Loc(self.file, line, start, max(end, start))

    def name_loc(self) -> Loc:
        """Return the location of the function's name in its `def` line."""
        line = self.node.lineno
        text = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        name = self.node.name.strip("<>")  # "lambda" of a lambda
        start = text.find(name, self.node.col_offset)
        return Loc(self.file, line, max(start, 0), max(start, 0) + len(name))

    def alone(self) -> FunctionSource:
        """Return the source without the text of the rest of the file."""
        first = _first_line(self.node)
        lines = ("\n",) * (first - 1) + self.lines[first - 1 : self.node.end_lineno]
        return FunctionSource(self.node, self.file, lines)

    def text(self) -> str:
        """Return the text of the definition, decorators included; of a lambda its lines and its column."""
        text = "".join(self.lines[_first_line(self.node) - 1 : self.node.end_lineno])
        return f"{text}{self.node.col_offset}" if self.node.name == LAMBDA else text


def _characters(text: str, offset: int) -> int:
    """Convert a column of a line, as counted by `ast` in UTF-8 bytes, to characters."""
    return offset if text.isascii() else len(text.encode()[:offset].decode(errors="ignore"))


def _first_line(node: ast.FunctionDef) -> int:
    """Return the line of the first decorator or of the `def`, as in the code object's `co_firstlineno`."""
    return min([node.lineno, *(d.lineno for d in node.decorator_list)])


LAMBDA = "<lambda>"
"""The name of lambdas, in Python's code objects and in the definitions that `as_definition` makes of them."""


def as_definition(node: ast.Lambda) -> ast.FunctionDef:
    """Return a lambda as a function definition that returns its expression."""
    body = ast.copy_location(ast.Return(node.body), node.body)
    return ast.copy_location(ast.FunctionDef(LAMBDA, node.args, [body], []), node)


def _find_lambda(code: CodeType, lines: Sequence[str]) -> ast.FunctionDef | None:
    """Return the definition of the lambda that a code object belongs to, or None if several may be it."""
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    found = [
        node
        for node in ast.walk(_parse(code.co_filename, "".join(lines)))
        if isinstance(node, ast.Lambda) and node.lineno == code.co_firstlineno and _parameter_names(node) == names
    ]
    if len(found) > 1 and hasattr(code, "co_positions"):
        places = [(line, at) for line, _, at, _ in code.co_positions() if line and at]
        found = [n for n in found if all((n.lineno, n.col_offset) <= p <= _end(n) for p in places)]
        found = found[-1:] if all(_end(n) <= _end(found[0]) for n in found) else found  # the innermost one
    return as_definition(found[0]) if len(found) == 1 else None


def _end(node: ast.Lambda) -> tuple[int, int]:
    return (node.end_lineno or 0, node.end_col_offset or 0)


@functools.lru_cache(maxsize=16)
def _parse(file: str, text: str) -> ast.Module:
    """Parse a file, given its text."""
    try:
        return ast.parse(text, file)
    except SyntaxError as error:
        error_loc = Loc(file, error.lineno or 1)
        reason = "the file doesn't parse: it has changed since the function was defined"
        raise CompileError(reason, error_loc, hint="import the module anew") from error


@functools.lru_cache(maxsize=256)
def _parse_file(file: str, text: str) -> dict[tuple[int, str], ast.FunctionDef]:
    """Parse a file, given its text, and return all its function definitions by first line and name."""
    tree = _parse(file, text)
    return {(_first_line(n), n.name): n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}


def source_of(function: FunctionType) -> FunctionSource:
    """Return the source of a function. Raises CompileError if there is none or the function isn't a plain `def`."""
    code = function.__code__
    cached = _SOURCES.get(id(code))
    if cached is not None:
        return cached[1]
    source = _read_source(function, code)
    _SOURCES[id(code)] = (code, source)
    return source


_SOURCES: dict[int, tuple[CodeType, FunctionSource]] = {}
"""Sources by `id` of the code object, because equal code objects may come from different files.

The entry keeps the code object alive, so that its id isn't reused.
"""


def with_edited_source(function: FunctionType, lines: Sequence[str]) -> FunctionType:
    """Return a copy of a function with the source it would have if its file consisted of `lines`.

    The definition must begin at the same line and keep its name. The copy is meant to be compiled as a kernel; if it is
    called as a Python function, the old code runs. Raises CompileError if the definition doesn't parse.
    """
    code = function.__code__.replace()  # a new code object, whose id isn't in `_SOURCES`
    node = _parse_definition(code, list(lines))
    if node is None:
        raise CompileError(
            f"{code.co_name} doesn't parse with its new text", Loc(code.co_filename, code.co_firstlineno)
        )
    _SOURCES[id(code)] = (code, FunctionSource(node, code.co_filename, tuple(lines)))
    copy = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__annotations__ = function.__annotations__
    copy.__qualname__, copy.__module__ = function.__qualname__, function.__module__
    return copy


def give_source(function: FunctionType, source: FunctionSource) -> None:
    """Set the source of a function that comes from another process, unless this process has imported the function."""
    found: Any = sys.modules.get(function.__module__)
    for name in function.__qualname__.split("."):
        found = getattr(found, name, None)
    if found is not function:
        _SOURCES[id(function.__code__)] = (function.__code__, source)


def _read_source(function: FunctionType, code: CodeType) -> FunctionSource:
    """Read the source of a function from its file; `code` is its code object.

    Raises CompileError as `source_of` does.
    """
    loc = Loc(code.co_filename, code.co_firstlineno)
    reject_async_and_generators(function)
    linecache.checkcache(code.co_filename)  # the module may have been edited and reloaded
    lines = linecache.getlines(code.co_filename, function.__globals__)
    if not lines:
        raise _no_source(code, loc)
    if _changed_in_this_process(code.co_filename) and not _defines("".join(lines), code):
        raise CompileError(
            f"the text of {code.co_name} isn't what was imported: the file has changed since the function was defined",
            loc,
            hint="import the module anew, or run the program again",
        )
    if code.co_name == LAMBDA:
        node = _find_lambda(code, lines)
        if node is None:
            reason = "several lambdas with the same parameters begin at this line: which one is meant isn't known"
            raise CompileError(reason, loc, hint="write each on a line of its own, or a function with `def`")
        return FunctionSource(node, code.co_filename, tuple(lines))
    node = _parse_definition(code, lines)
    if node is None:
        node = _parse_file(code.co_filename, "".join(lines)).get((code.co_firstlineno, code.co_name))
    if node is None or _parameter_names(node) != code.co_varnames[: len(_parameter_names(node))]:
        raise CompileError(
            f"{code.co_name} isn't found at line {code.co_firstlineno} of {code.co_filename}: "
            "the file has changed since the function was defined, or the function is no plain `def`",
            loc,
            hint="import the module anew, and define kernels with `def`",
        )
    return FunctionSource(node, code.co_filename, tuple(lines))


def reject_async_and_generators(function: FunctionType) -> None:
    """Raise CompileError for async functions and generators."""
    flags, code = function.__code__.co_flags, function.__code__
    kind = "a generator" if flags & inspect.CO_GENERATOR else ""
    if flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        kind = "an async function"
    if kind:
        hint = "write a plain `def` without async, await and yield; results go into Out arrays"
        raise CompileError(f"{function.__name__} is {kind}", Loc(code.co_filename, code.co_firstlineno), hint=hint)


def _changed_in_this_process(file: str) -> bool:
    """True if a file may have been changed or replaced since the process began."""
    try:
        found = os.stat(file)
    except (OSError, ValueError):  # no file, such as a cell of a notebook
        return False
    return max(found.st_mtime_ns, found.st_ctime_ns) > _PROCESS_BEGAN


def _defines(text: str, code: CodeType) -> bool:
    """True if the text of a file compiles to a module with this code.

    True as well for code with the assertions of pytest, which can't be compared.
    """
    if any(name.startswith("@py") for name in (*code.co_names, *code.co_varnames)):
        return True
    try:
        waiting = [compile(text, code.co_filename, "exec", dont_inherit=True)]
    except (SyntaxError, ValueError):
        return False
    while waiting:
        found = waiting.pop()
        if found == code:
            return True
        waiting += [constant for constant in found.co_consts if isinstance(constant, CodeType)]
    return False


def _parse_definition(code: CodeType, lines: list[str]) -> ast.FunctionDef | None:
    """Parse the definition at the code object's location, without the rest of the file.

    Returns None if it can't be parsed alone or isn't a plain `def`; then the slower `_parse_file` parses the whole
    file. The definition is assumed to end before the first line that is not indented more than its `def` and is neither
    blank nor a comment. If that line still belongs to the definition, because it is inside brackets or a string, the
    text before it doesn't parse.
    """
    first = code.co_firstlineno
    last = max((line for _, _, line in code.co_lines() if line), default=first)
    if last > len(lines):
        return None
    indent = len(lines[first - 1]) - len(lines[first - 1].lstrip())
    while last < len(lines) and lines[last - 1].lstrip().startswith("@"):
        last += 1  # if the body is a docstring only, the code's last line number is that of the first decorator
    while last < len(lines) and _continues(lines[last], indent):
        last += 1
    # Pad with empty lines, so that line numbers are those of the file. `if 1:` allows an indented definition.
    padding = "\n" * (first - 1) if indent == 0 else "\n" * (first - 2) + "if 1:\n"
    try:
        tree = ast.parse(padding + "".join(lines[first - 1 : last]), code.co_filename)
    except SyntaxError:
        return None
    body = tree.body[0].body if len(tree.body) == 1 and isinstance(tree.body[0], ast.If) else tree.body
    for definition in body if len(body) == 1 else ():
        if (
            isinstance(definition, ast.FunctionDef)
            and definition.name == code.co_name
            and _first_line(definition) == first
        ):
            return definition
    return None


def _continues(line: str, indent: int) -> bool:
    """True if the line may belong to a definition with this indentation: blank, a comment, or indented more."""
    text = line.lstrip()
    return not text or text.startswith("#") or len(line) - len(text) > indent


def _parameter_names(node: ast.FunctionDef | ast.Lambda) -> tuple[str, ...]:
    a = node.args
    return tuple(p.arg for p in (*a.posonlyargs, *a.args, *a.kwonlyargs))


def _no_source(code: CodeType, loc: Loc) -> CompileError:
    """Return the error for a function whose file can't be read."""
    reason = f"the source of {code.co_name} can't be read (it was defined in {code.co_filename})"
    if code.co_filename in ("<stdin>", "<string>"):
        reason = f"the source of {code.co_name} isn't kept by Python: it was typed at the prompt or came through stdin"
    return CompileError(reason, loc, hint="put the kernel into a file and import it, or use a notebook or IPython")
