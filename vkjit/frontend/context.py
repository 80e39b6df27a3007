"""State of lowering one function, and the registries of lowerings for expressions and statements.

`Session` is shared by all functions of one kernel; `Context` belongs to one function instance: the kernel itself, or a
device function for one set of argument types. A lowering is a function that is registered for a kind of syntax node and
emits IR through `Context.builder`.
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
from .signature.free_names import size_fault
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
    "check_items",
    "evaluate_items",
    "expression",
    "statement",
    "unloaded_expression",
]

MAX_STEPS = 100_000
"""The maximum number of expressions and statements that are lowered for one kernel, each copy counted: some seconds."""
TOO_DEEP = "the code is nested too deeply for Python's recursion limit"
TOO_DEEP_HINT = "split it: assign parts to variables, or write a loop"

Place = ast.AST | Loc
"""The location of an error: a syntax node or a `Loc`."""

ExpressionLowering = Callable[["Context", Any], KernelValue]
StatementLowering = Callable[["Context", Any], bool]
# The registered lowerings, by the class of the syntax node.
_EXPRESSIONS: dict[type[ast.AST], ExpressionLowering] = {}
_UNLOADED_EXPRESSIONS: dict[type[ast.AST], ExpressionLowering] = {}
_STATEMENTS: dict[type[ast.AST], StatementLowering] = {}


def expression(kind: type[ast.AST]) -> Callable[[ExpressionLowering], ExpressionLowering]:
    """Register the lowering `(context, node) -> value` of an expression node type."""

    def register(function: ExpressionLowering) -> ExpressionLowering:
        if kind in _EXPRESSIONS:
            raise InternalError(f"{kind.__name__} has a lowering already")
        _EXPRESSIONS[kind] = function
        return function

    return register


def unloaded_expression(kind: type[ast.AST]) -> Callable[[ExpressionLowering], ExpressionLowering]:
    """Register a second lowering of an expression node type, used by `Context.evaluate_unloaded`.

    It returns an element of an array of structs or vectors as an `Element`, without loading it.
    """

    def register(function: ExpressionLowering) -> ExpressionLowering:
        if kind in _UNLOADED_EXPRESSIONS:
            raise InternalError(f"{kind.__name__} has an unloaded lowering already")
        _UNLOADED_EXPRESSIONS[kind] = function
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
    """A loop-carried variable that is initialized from a literal, as the origin of weak values computed from it.

    `strong_types` lists the types of the strong values that it, or a value computed from it, was combined with. See
    `values.conversions` for weak and strong values.
    """

    strong_types: list[DType] = field(default_factory=list)


Origins = tuple[Origin, ...]
"""The loop-carried variables that a weak value was computed from."""


@dataclass(slots=True)
class Return:
    """A `return` statement of a device function: its operation `op`, the region that `op` is in, and its value.

    The operands of `op` are filled in when the result types are known.
    """

    region: Region
    op: Op
    value: KernelValue
    loc: Loc


@dataclass(slots=True)
class Session:
    """State shared by all functions of one kernel.

    - `over`: the array parameter named by `over=`, whose elements the invocations are mapped to, or None.
    - `instances`: the cache of lowered device functions (see `calls.device_functions`).
    - `active`: the functions being lowered, each with the part of its instance's key that its arguments are, to detect
      recursion (see `calls.device_functions`).
    - `lambdas`: the definitions that lambdas stand for (see `source.as_definition`).
    - `writes`: the arrays stored to so far, in order, each with the location of the store.
    - `steps`: the number of expressions and statements lowered so far.
    """

    module: Module
    signature: Signature
    over: str | None = None
    instances: dict[Any, Any] = field(default_factory=dict)
    active: list[tuple[object, object]] = field(default_factory=list)
    lambdas: dict[ast.Lambda, ast.FunctionDef] = field(default_factory=dict)
    writes: list[tuple[Value, Loc]] = field(default_factory=list)
    steps: int = 0

    def unique_name(self, name: str) -> str:
        """Return `name`, or `name.2` and so on if the module has a function of that name."""
        taken, number = self.module.functions, 1
        unique = name
        while unique in taken or unique == self.module.kernel.name:
            number += 1
            unique = f"{name}.{number}"
        return unique


class Context:
    """State of one function instance during lowering.

    - `function`, `source`, `scope`: the Python function, its syntax tree, and the names in it.
    - `target`: the IR function that `builder` emits into.
    - `typevars`: the dtypes bound to type variables, by the variable's name.
    - `env`: the entries of the local names at the current point: their values, or why they have none.
    - `loops`: the stack of the loops whose bodies are being lowered.
    - `loop_facts`: type facts about each loop, kept between attempts to lower its body (see `statements.loop_frames`).
    - `returns`: the `return` statements lowered so far.
    - `allocations`: the shared and local arrays, by the syntax node they belong to, type and label.
    - `weak`: the run-time values that are weak, with their origins.
    - `captured`: the names that a nested function takes from the function around it; it can't change their values.
    - `is_kernel`: True for the kernel itself, False for a device function.
    - `is_always_called`: True if all invocations call the function, and for the kernel itself.
    - `outermost`: the region in which the function's body starts: that of `target`, or in an `over=` kernel one in it.
    - `index`: in an `over=` kernel, the index of the invocation's element, one item per axis; else None.
    """

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
        self.loop_facts: dict[ast.AST, LoopFacts] = {}
        self.returns: list[Return] = []
        self.allocations: dict[tuple[ast.AST, Array, str], Op] = {}
        self.weak: dict[Value, Origins] = {}
        self.captured: frozenset[str] = frozenset()
        self.is_kernel = False
        self.is_always_called = True
        self.outermost = target.body
        self.index: tuple[Value, ...] | None = None

    def is_certainly_reached(self) -> bool:
        """True if all invocations reach the current point: it is under no run-time condition, and after no return."""
        may_have_left = any(op.name == "return" for op in self.outermost.walk())
        return self.is_always_called and self.builder.region is self.outermost and not may_have_left

    # -- locations and errors
    def loc(self, node: Place) -> Loc:
        """Return the source location of a node."""
        return node if isinstance(node, Loc) else self.source.loc(node)

    def error(self, node: Place, reason: str, hint: str = "", notes: tuple[Any, ...] = ()) -> CompileError:
        """Return the CompileError for a node."""
        return CompileError(reason, self.loc(node), hint=hint, notes=notes)

    # -- lowering
    def evaluate(self, node: ast.expr) -> KernelValue:
        """Lower an expression and return its value. The emitted operations get the expression's source location."""
        lower = _EXPRESSIONS.get(type(node))
        if lower is None:
            raise unsupported(self.source, node)
        saved, self.builder.loc = self.builder.loc, self.loc(node)
        self._count(node)
        try:
            value = lower(self, node)
        except RecursionError:
            raise self._too_deep(node) from None
        self.builder.loc = saved
        return value

    def evaluate_unloaded(self, node: ast.expr) -> KernelValue:
        """Lower an expression like `evaluate`, but don't load elements of struct and vector arrays."""
        lower = _UNLOADED_EXPRESSIONS.get(type(node))
        if lower is None:
            return self.evaluate(node)
        saved, self.builder.loc = self.builder.loc, self.loc(node)
        self._count(node)
        try:
            value = lower(self, node)
        except RecursionError:
            raise self._too_deep(node) from None
        self.builder.loc = saved
        return value

    def block(self, statements: list[ast.stmt]) -> bool:
        """Lower statements in order; if control never reaches the end of one, stop there and return True."""
        for node in statements:  # noqa: SIM110  # any() would take another frame per level of the nesting
            if self.execute(node):
                return True
        return False

    def execute(self, node: ast.stmt) -> bool:
        """Lower one statement. Returns True if control never reaches its end."""
        lower = _STATEMENTS.get(type(node))
        if lower is None:
            raise unsupported(self.source, node)
        self.builder.loc = self.loc(node)
        self._count(node)
        try:
            return lower(self, node)
        except RecursionError:
            raise self._too_deep(node) from None

    def _count(self, node: ast.AST) -> None:
        """Count a lowered expression or statement. Raises CompileError if the kernel is too large to be compiled."""
        self.session.steps += 1
        if self.session.steps > MAX_STEPS:
            raise self.error(
                node,
                f"the kernel is too large: compiling it evaluates more than {MAX_STEPS} expressions and statements",
                "use range() instead of vk.unroll, and shorten tuples and chains of functions",
            )

    def _too_deep(self, node: ast.AST) -> CompileError:
        """Return the error for nesting that exceeds the stack. It fails itself until a caller has enough stack for it."""
        return self.error(node, TOO_DEEP, TOO_DEEP_HINT)

    # -- weak run-time values
    def origins(self, *values: KernelValue) -> Origins | None:
        """Return the origins of a result computed from `values` if all of them are weak, or None if one is strong."""
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
        """Bind a local name to a value at the location `loc`, by default that of the current statement."""
        self.env[name] = Binding(value, loc or self.builder.loc)
        if self.session.signature.sanitize and isinstance(value, Value) and isinstance(value.type, Array):
            value.name = value.name or name  # for the sanitizer's reports

    def entry_array(self, node: ast.AST, type_: Array, label: str = "") -> Value:
        """Return the shared or local array that belongs to a syntax node; the first call allocates it.

        The allocation is placed at the function's entry. A body that is lowered several times gets the same array each
        time. `label` distinguishes several arrays that belong to one syntax node.
        """
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


MAX_ITEMS = 65_536
"""The maximum number of items of a tuple, or of characters of a text, that is computed at compile time."""


def check_items(ctx: Context, node: Place, count: int) -> None:
    """Raise CompileError if a tuple or text of `count` items is too long."""
    if count > MAX_ITEMS:
        raise ctx.error(node, f"{count} items are too many (up to {MAX_ITEMS})", "write a loop, or take an array")


def checked_tuple(ctx: Context, node: Place, value: tuple[KernelValue, ...]) -> tuple[KernelValue, ...]:
    """Return a tuple that was made at compile time. Raises CompileError if it is nested too deeply or too large."""
    fault = size_fault(value, MAX_ITEMS)
    if fault:
        raise ctx.error(node, f"this tuple {fault}", "write a loop, or take an array")
    return value


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
