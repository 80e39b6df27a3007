"""State of lowering one function, and the registries of lowerings for expressions and statements.

`Session` is shared by all functions of one kernel; `Context` belongs to one function instance. Lowerings emit IR
through `Context.builder`.
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
from ..ir.ops import op_name
from ..ir.types import Array
from .kernel_values import Binding, Conflict, KernelValue, Unbound, describe_value
from .scope import Scope
from .signature.signature import Signature
from .source import FunctionSource
from .syntax import unsupported

if TYPE_CHECKING:
    from .statements.loop_carried import LoopFacts
    from .statements.loop_frames import LoopFrame

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
"""The location of an error: a syntax node or a `Loc`."""

ExpressionLowering = Callable[["Context", Any], KernelValue]
StatementLowering = Callable[["Context", Any], bool]
_EXPRESSIONS: dict[type[ast.AST], ExpressionLowering] = {}
_PLACES: dict[type[ast.AST], ExpressionLowering] = {}
_STATEMENTS: dict[type[ast.AST], StatementLowering] = {}


def expression(kind: type[ast.AST]) -> Callable[[ExpressionLowering], ExpressionLowering]:
    """Register the lowering `(context, node) -> value` of an expression node type."""

    def register(function: ExpressionLowering) -> ExpressionLowering:
        if kind in _EXPRESSIONS:
            raise InternalError(f"{kind.__name__} has a lowering already")
        _EXPRESSIONS[kind] = function
        return function

    return register


def place(kind: type[ast.AST]) -> Callable[[ExpressionLowering], ExpressionLowering]:
    """Register the lowering of an expression node type that may denote an array element without loading it."""

    def register(function: ExpressionLowering) -> ExpressionLowering:
        if kind in _PLACES:
            raise InternalError(f"{kind.__name__} has a lowering to places already")
        _PLACES[kind] = function
        return function

    return register


def statement(kind: type[ast.AST]) -> Callable[[StatementLowering], StatementLowering]:
    """Register the lowering of a statement node type: `(context, node) -> True` if control never reaches its end."""

    def register(function: StatementLowering) -> StatementLowering:
        if kind in _STATEMENTS:
            raise InternalError(f"{kind.__name__} has a lowering already")
        _STATEMENTS[kind] = function
        return function

    return register


@dataclass(slots=True)
class Call:
    """A call in the source, with its arguments lowered."""

    node: ast.Call
    args: list[KernelValue]
    keywords: dict[str, KernelValue]


@dataclass(slots=True, eq=False)
class Origin:
    """A loop-carried variable initialized from a literal; `strong_types` lists the strong types that it was combined with."""

    strong_types: list[DType] = field(default_factory=list)


Origins = tuple[Origin, ...]


@dataclass(slots=True)
class Return:
    """A `return` whose operands are filled in when the function's result types are known."""

    region: Region
    op: Op
    value: KernelValue
    loc: Loc


@dataclass(slots=True)
class Session:
    """State shared by all functions of one kernel.

    `instances` caches lowered device functions, `active` lists the functions being lowered (to detect recursion), and
    `writes` logs the array stores emitted so far.
    """

    module: Module
    signature: Signature
    over: str | None = None
    instances: dict[Any, Any] = field(default_factory=dict)
    active: list[FunctionType] = field(default_factory=list)
    writes: list[tuple[Value, Loc]] = field(default_factory=list)

    def unique_name(self, name: str) -> str:
        """Return a name that no function of the module has."""
        taken, number = self.module.functions, 1
        unique = name
        while unique in taken or unique == self.module.kernel.name:
            number += 1
            unique = f"{name}.{number}"
        return unique


class Context:
    """State of one function instance during lowering; `env` binds local names, `loops` is the stack of open loops."""

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
        self.loop_memory: dict[ast.AST, LoopFacts] = {}
        self.returns: list[Return] = []
        self.allocations: dict[tuple[ast.AST, Array, str], Op] = {}
        self.weak: dict[Value, Origins] = {}
        self.is_kernel = False
        self.index: tuple[Value, ...] | None = None

    # -- locations and errors
    def loc(self, node: Place) -> Loc:
        return node if isinstance(node, Loc) else self.source.loc(node)

    def error(self, node: Place, reason: str, hint: str = "", notes: tuple[Any, ...] = ()) -> CompileError:
        """Return the CompileError for a node."""
        return CompileError(reason, self.loc(node), hint=hint, notes=notes)

    # -- lowering
    def evaluate(self, node: ast.expr) -> KernelValue:
        """Lower an expression; its operations get its source location."""
        lower = _EXPRESSIONS.get(type(node))
        if lower is None:
            raise unsupported(self.source, node)
        saved, self.builder.loc = self.builder.loc, self.loc(node)
        value = lower(self, node)
        self.builder.loc = saved
        return value

    def place(self, node: ast.expr) -> KernelValue:
        """Lower an expression like `evaluate`, but don't load elements of struct and vector arrays."""
        lower = _PLACES.get(type(node))
        if lower is None:
            return self.evaluate(node)
        saved, self.builder.loc = self.builder.loc, self.loc(node)
        value = lower(self, node)
        self.builder.loc = saved
        return value

    def block(self, statements: list[ast.stmt]) -> bool:
        """Lower statements until one exits; True if control never reaches the end."""
        return any(self.execute(node) for node in statements)

    def execute(self, node: ast.stmt) -> bool:
        """Lower one statement; True if control never reaches its end."""
        lower = _STATEMENTS.get(type(node))
        if lower is None:
            raise unsupported(self.source, node)
        self.builder.loc = self.loc(node)
        return lower(self, node)

    # -- weak run-time values
    def origins(self, *values: KernelValue) -> Origins | None:
        """Return the origins of a result if all its operands are weak, or None if one is strong."""
        merged: dict[Origin, None] = {}
        for value in values:
            if isinstance(value, Value):
                if value not in self.weak:
                    return None
                merged.update(dict.fromkeys(self.weak[value]))
        return tuple(merged)

    def mark_weak(self, result: Value, origins: Origins | None) -> None:
        """Mark a result as weak. Does nothing if `origins` is None or empty: results of literals alone are strong."""
        if origins:
            self.weak[result] = origins

    # -- names
    def bind(self, name: str, value: KernelValue, loc: Loc | None = None) -> None:
        self.env[name] = Binding(value, loc or self.builder.loc)
        if self.session.signature.sanitize and isinstance(value, Value) and isinstance(value.type, Array):
            value.name = value.name or name  # for the sanitizer's reports

    def entry_array(self, node: ast.AST, type_: Array, label: str = "") -> Value:
        """Return the shared or local array of a program point (and `label`), allocated at the function's entry."""
        key = (node, type_, label)
        if key not in self.allocations:
            self.allocations[key] = Op(op_name(type_.space), [], [type_], {"type": type_}, None, self.loc(node))
        return self.allocations[key].result

    def checkpoint(self) -> tuple[int, int]:
        """Return a checkpoint of the recorded returns and stores, for `rollback`."""
        return len(self.returns), len(self.session.writes)

    def rollback(self, mark: tuple[int, int]) -> None:
        """Discard the returns and stores recorded since a checkpoint, because the code lowered since is discarded."""
        del self.returns[mark[0] :]
        del self.session.writes[mark[1] :]

    def finish_entry(self) -> None:
        """Insert the function's array allocations before its other operations."""
        self.target.body.ops[:0] = self.allocations.values()


def evaluate_items(ctx: Context, nodes: list[ast.expr]) -> list[KernelValue]:
    """Lower a sequence of expressions; `*t` expands to the items of a tuple."""
    values: list[KernelValue] = []
    for node in nodes:
        if not isinstance(node, ast.Starred):
            values.append(ctx.evaluate(node))
            continue
        items = ctx.evaluate(node.value)
        if not isinstance(items, tuple):
            raise ctx.error(node, f"* takes a tuple in a kernel, found {describe_value(items)}", "write each item")
        values += items
    return values
