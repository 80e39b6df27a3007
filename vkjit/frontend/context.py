"""The state of lowering one function, and the registries through which expressions and statements find their lowering.

Enters: nodes of a syntax tree. Leaves: IR, through `builder`. `Session` is what all functions of one kernel share;
`Context` belongs to one function instance.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FunctionType
from typing import TYPE_CHECKING, Any

from ..dtypes import DType
from ..errors import CompileError, InternalError, Loc
from ..ir.builder import Builder
from ..ir.core import Function, Module, Op, Region, Value
from ..ir.types import Array
from .scope import Scope
from .signature import Signature
from .source import FunctionSource
from .syntax import unsupported
from .values import Binding, Conflict, KernelValue, Unbound, describe_value

if TYPE_CHECKING:
    from .carried import Knowledge
    from .loops import LoopFrame

__all__ = [
    "Call",
    "Context",
    "Origin",
    "Origins",
    "Place",
    "Return",
    "Session",
    "evaluate_items",
    "expression",
    "place",
    "statement",
]

Place = ast.AST | Loc
"""Where an error is to point."""

ExpressionLowering = Callable[["Context", Any], KernelValue]
StatementLowering = Callable[["Context", Any], bool]
_EXPRESSIONS: dict[type[ast.AST], ExpressionLowering] = {}
_PLACES: dict[type[ast.AST], ExpressionLowering] = {}
_STATEMENTS: dict[type[ast.AST], StatementLowering] = {}


def expression(kind: type[ast.AST]) -> Callable[[ExpressionLowering], ExpressionLowering]:
    """Registers the lowering of a kind of expression: (context, node) -> value."""

    def register(function: ExpressionLowering) -> ExpressionLowering:
        if kind in _EXPRESSIONS:
            raise InternalError(f"{kind.__name__} has a lowering already")
        _EXPRESSIONS[kind] = function
        return function

    return register


def place(kind: type[ast.AST]) -> Callable[[ExpressionLowering], ExpressionLowering]:
    """Registers the lowering of a kind of expression that may denote an element which isn't read yet."""

    def register(function: ExpressionLowering) -> ExpressionLowering:
        if kind in _PLACES:
            raise InternalError(f"{kind.__name__} has a lowering to places already")
        _PLACES[kind] = function
        return function

    return register


def statement(kind: type[ast.AST]) -> Callable[[StatementLowering], StatementLowering]:
    """Registers the lowering of a kind of statement: (context, node) -> whether control never comes out at its end."""

    def register(function: StatementLowering) -> StatementLowering:
        if kind in _STATEMENTS:
            raise InternalError(f"{kind.__name__} has a lowering already")
        _STATEMENTS[kind] = function
        return function

    return register


@dataclass(slots=True)
class Call:
    """A call in the source, its arguments lowered."""

    node: ast.Call
    args: list[KernelValue]
    keywords: dict[str, KernelValue]


@dataclass(slots=True, eq=False)
class Origin:
    """A variable that a loop carries and that began as a literal: the strong types that it has met in operations."""

    met: list[DType] = field(default_factory=list)


Origins = tuple[Origin, ...]


@dataclass(slots=True)
class Return:
    """A `return` whose operands wait until the result types of the function are known."""

    region: Region
    op: Op
    value: KernelValue
    loc: Loc


@dataclass(slots=True)
class Session:
    """What all functions of one kernel share: `instances` of device functions, those being lowered (`active`),
    stores.
    """

    module: Module
    signature: Signature
    over: str | None = None
    instances: dict[Any, Any] = field(default_factory=dict)
    active: list[FunctionType] = field(default_factory=list)
    writes: list[tuple[Value, Loc]] = field(default_factory=list)

    def unique_name(self, name: str) -> str:
        """A name that no function of the module has."""
        taken, number = self.module.functions, 1
        unique = name
        while unique in taken or unique == self.module.kernel.name:
            number += 1
            unique = f"{name}.{number}"
        return unique


class Context:
    """One function instance while it is lowered. `env` binds the local names; `loops` holds the open loops."""

    def __init__(
        self,
        session: Session,
        function: FunctionType,
        source: FunctionSource,
        scope: Scope,
        target: Function,
        typevars: dict[str, DType],
    ) -> None:
        self.session = session
        self.function = function
        self.source = source
        self.scope = scope
        self.target = target
        self.typevars = typevars
        self.builder = Builder(target.body, source.name_loc())
        self.env: dict[str, Binding | Unbound | Conflict] = {}
        self.loops: list[LoopFrame] = []
        self.loop_memory: dict[ast.AST, Knowledge] = {}
        self.returns: list[Return] = []
        self.allocations: dict[tuple[ast.AST, Array, str], Op] = {}
        self.weak: dict[Value, Origins] = {}
        self.is_kernel = False
        self.index: tuple[Value, ...] | None = None

    # -- places and errors
    def loc(self, node: Place) -> Loc:
        return node if isinstance(node, Loc) else self.source.loc(node)

    def error(self, node: Place, reason: str, hint: str = "", notes: tuple[Any, ...] = ()) -> CompileError:
        """The error to raise about a node."""
        return CompileError(reason, self.loc(node), hint=hint, notes=notes)

    # -- lowering
    def evaluate(self, node: ast.expr) -> KernelValue:
        """Lowers an expression; operations get its place."""
        lower = _EXPRESSIONS.get(type(node))
        if lower is None:
            raise unsupported(self.source, node)
        saved, self.builder.loc = self.builder.loc, self.loc(node)
        value = lower(self, node)
        self.builder.loc = saved
        return value

    def place(self, node: ast.expr) -> KernelValue:
        """As `evaluate`, but elements of arrays of structs and vectors stay unread."""
        lower = _PLACES.get(type(node))
        if lower is None:
            return self.evaluate(node)
        saved, self.builder.loc = self.builder.loc, self.loc(node)
        value = lower(self, node)
        self.builder.loc = saved
        return value

    def block(self, statements: list[ast.stmt]) -> bool:
        """Lowers statements; True if control never comes out at the end. What follows an exit is never reached."""
        return any(self.execute(node) for node in statements)

    def execute(self, node: ast.stmt) -> bool:
        """Lowers one statement; True if control never comes out at its end."""
        lower = _STATEMENTS.get(type(node))
        if lower is None:
            raise unsupported(self.source, node)
        self.builder.loc = self.loc(node)
        return lower(self, node)

    # -- weak run-time values
    def origins(self, *values: KernelValue) -> Origins | None:
        """Where a result comes from if all its operands are weak; None if one is strong."""
        found: dict[Origin, None] = {}
        for value in values:
            if isinstance(value, Value):
                if value not in self.weak:
                    return None
                found.update(dict.fromkeys(self.weak[value]))
        return tuple(found)

    def mark_weak(self, result: Value, origins: Origins | None) -> None:
        """Remembers that a result is weak; literals alone (no origin) give strong results."""
        if origins:
            self.weak[result] = origins

    # -- names
    def bind(self, name: str, value: KernelValue, loc: Loc | None = None) -> None:
        self.env[name] = Binding(value, loc or self.builder.loc)
        if self.session.signature.sanitize and isinstance(value, Value) and isinstance(value.type, Array):
            value.name = value.name or name  # the sanitizer speaks of arrays by name

    def entry(self, node: ast.AST, type_: Array, label: str = "") -> Value:
        """The shared or local array of a program point (and `label`), made at the function's entry."""
        key = (node, type_, label)
        if key not in self.allocations:
            self.allocations[key] = Op(type_.space, [], [type_], {"type": type_}, None, self.loc(node))
        return self.allocations[key].result

    def mark(self) -> tuple[int, int]:
        """How much has been noted so far, for `forget`."""
        return len(self.returns), len(self.session.writes)

    def forget(self, mark: tuple[int, int]) -> None:
        """Takes back what was noted since, as what was lowered since is thrown away."""
        del self.returns[mark[0] :]
        del self.session.writes[mark[1] :]

    def finish_entry(self) -> None:
        """Puts the arrays of the function before its other operations."""
        self.target.body.ops[:0] = self.allocations.values()


def evaluate_items(ctx: Context, nodes: list[ast.expr]) -> list[KernelValue]:
    """The values of items in a row; `*t` stands for the items of a tuple."""
    values: list[KernelValue] = []
    for node in nodes:
        if not isinstance(node, ast.Starred):
            values.append(ctx.evaluate(node))
            continue
        found = ctx.evaluate(node.value)
        if not isinstance(found, tuple):
            raise ctx.error(node, f"* takes a tuple in a kernel, found {describe_value(found)}", "write each item")
        values += found
    return values
