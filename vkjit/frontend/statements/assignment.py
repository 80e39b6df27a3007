"""Assignment targets: names, memory elements, struct fields, vector lanes.

A `Target` is created by `target_of`, which evaluates its indices once; it can then be loaded and stored, so that
`x[f(i)] += 1` calls f once. Values in registers are immutable: a store to a field or lane of a struct or vector in
registers stores a new struct or vector to the owner, the target that the field or lane belongs to. A store to a field
or lane in memory writes memory.
"""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from dataclasses import dataclass

from vkjit.ir.core import Value
from vkjit.ir.types import Scalar, Vector
from vkjit.lang.structs import StructType
from vkjit.lang.vectors import VectorType

from ..context import Context
from ..expressions.subscripts import static_index
from ..kernel_values import Aggregate, Element, KernelValue, describe_value, is_array, is_literal
from ..values.arrays import array_type, has_slice, indices, load, store, subscript_values
from ..values.conversions import as_exactly, dtype_of_value, numeric
from ..values.struct_arrays import (
    element_at,
    first_array,
    is_struct_array,
    kind_of,
    load_element,
    locate_part,
    store_element,
)
from ..values.structs import with_field
from ..values.vectors import lane, lanes_named

__all__ = ["Target", "target_of"]


@dataclass(frozen=True, slots=True)
class Target(ABC):
    """An assignment target; `node` is its syntax node."""

    ctx: Context
    node: ast.expr

    @abstractmethod
    def current(self) -> KernelValue:
        """Return the current value as the owner of a field or lane; elements of struct arrays stay unloaded."""

    @abstractmethod
    def store(self, value: KernelValue, origin: ast.AST | None) -> None:
        """Store a value; `origin` is the node of the value, for errors."""

    def load(self) -> KernelValue:
        """Return the current value."""
        return load_element(self.ctx, self.current())


@dataclass(frozen=True, slots=True)
class _Name(Target):
    """A local name: `x`."""

    name: str

    def current(self) -> KernelValue:
        return self.ctx.evaluate(ast.copy_location(ast.Name(self.name, ast.Load()), self.node))

    def store(self, value: KernelValue, origin: ast.AST | None) -> None:
        self.ctx.bind(self.name, value, self.ctx.loc(self.node))


@dataclass(frozen=True, slots=True)
class _Memory(Target):
    """One element of an array of scalars or vectors: `x[i]`, or a scalar field or lane of an array of structs."""

    array: Value
    at: tuple[Value, ...]

    def current(self) -> KernelValue:
        return load(self.ctx, self.array, list(self.at))

    def store(self, value: KernelValue, origin: ast.AST | None) -> None:
        store(self.ctx, self.node, self.array, list(self.at), value, origin)


@dataclass(frozen=True, slots=True)
class _Element(Target):
    """An element of an array of structs or vectors: `p[i]`, or a struct, vector or array in such an element."""

    element: Element

    def current(self) -> KernelValue:
        return self.element

    def store(self, value: KernelValue, origin: ast.AST | None) -> None:
        store_element(self.ctx, self.node, self.element, value, origin)


@dataclass(frozen=True, slots=True)
class _Field(Target):
    """A field of a struct in registers; `owner` is the target that holds the struct."""

    owner: Target
    struct: Aggregate
    name: str

    def current(self) -> KernelValue:
        kind = self.struct.kind
        assert isinstance(kind, StructType)
        return self.struct.items[kind.fields.index(self.name)]

    def store(self, value: KernelValue, origin: ast.AST | None) -> None:
        self.owner.store(with_field(self.ctx, origin or self.node, self.struct, self.name, value), None)


@dataclass(frozen=True, slots=True)
class _Lanes(Target):
    """Lanes of a vector in registers, or of one that memory holds as a single element; `owner` is its target."""

    owner: Target
    vector: Value
    lanes: tuple[int, ...]

    def current(self) -> KernelValue:
        return _gathered(self.ctx, [lane(self.ctx, self.vector, number) for number in self.lanes])

    def store(self, value: KernelValue, origin: ast.AST | None) -> None:
        dtype, updated = dtype_of_value(self.vector), self.vector
        for number, item in zip(self.lanes, _spread(self.ctx, self.node, value, len(self.lanes)), strict=True):
            fitted = as_exactly(self.ctx, origin or self.node, item, dtype, "a lane")
            updated = self.ctx.builder.emit("vec_insert", updated, fitted, lane=number)
        self.owner.store(updated, None)


@dataclass(frozen=True, slots=True)
class _MemoryLanes(Target):
    """Several lanes (`p[i].xy`) of an element of an array of vectors whose lanes are separate scalars in memory."""

    array: Value
    at: tuple[Value, ...]
    lanes: tuple[int, ...]

    def _place(self, number: int) -> list[Value]:
        return [*self.at, self.ctx.builder.index(number)]

    def current(self) -> KernelValue:
        return _gathered(self.ctx, [load(self.ctx, self.array, self._place(number)) for number in self.lanes])

    def store(self, value: KernelValue, origin: ast.AST | None) -> None:
        for number, item in zip(self.lanes, _spread(self.ctx, self.node, value, len(self.lanes)), strict=True):
            store(self.ctx, self.node, self.array, self._place(number), item, origin)


def _gathered(ctx: Context, lanes: list[Value]) -> Value:
    """Return the lanes as a vector, or a single lane as a scalar."""
    if len(lanes) == 1:
        return lanes[0]
    return ctx.builder.emit("vec_make", *lanes, type=Vector(dtype_of_value(lanes[0]), len(lanes)))


def _spread(ctx: Context, node: ast.expr, value: KernelValue, count: int) -> list[KernelValue]:
    """Return the values to store to `count` lanes: a vector's lanes, a tuple's items, or a repeated scalar."""
    if isinstance(value, tuple) and len(value) == count:
        return list(value)
    numeric(ctx, node, value)
    if is_literal(value) or (isinstance(value, Value) and isinstance(value.type, Scalar)):
        return [value] * count
    assert isinstance(value, Value)
    assert isinstance(value.type, Vector)
    if count == 1 or value.type.size != count:
        raise ctx.error(node, f"{count} lane{'s' if count != 1 else ''} can't hold {describe_value(value)}")
    return [lane(ctx, value, number) for number in range(count)]


def target_of(ctx: Context, node: ast.expr) -> Target:
    """Return the target that a node denotes. Raises CompileError if the node can't be assigned to."""
    if isinstance(node, ast.Name):
        return _Name(ctx, node, node.id)
    if not isinstance(node, ast.Attribute | ast.Subscript):
        raise ctx.error(node, f"{ast.unparse(node)} can't be assigned to", "bind a name or store into an array")
    if not isinstance(node.value, ast.Name | ast.Attribute | ast.Subscript):
        raise ctx.error(node, f"{ast.unparse(node)} can't be assigned to", "bind the value to a name first")
    owner = target_of(ctx, node.value)
    base = owner.current()
    ctx.builder.loc = ctx.loc(node)
    if isinstance(base, Element):
        return _part(ctx, node, base)
    return _subscript(ctx, node, owner, base) if isinstance(node, ast.Subscript) else _attribute(ctx, node, owner, base)


def _part(ctx: Context, node: ast.Attribute | ast.Subscript, element: Element) -> Target:
    """Return the target for a field, lane or item of an element of a struct array: `p[i].x`, `p[i].xy`, `p[i].m[0]`."""
    location = locate_part(ctx, node, element)
    if isinstance(location, Element):
        return _Element(ctx, node, location)
    if location is not None:
        return _Memory(ctx, node, location.array, location.at)
    kind = kind_of(element.array).element
    if isinstance(kind, VectorType) and isinstance(node, ast.Attribute):
        lanes = _distinct(ctx, node, describe_value(kind), kind.size)
        return _MemoryLanes(ctx, node, first_array(element.array), element.at, lanes)
    raise _unknown(ctx, node, kind)


def _unknown(ctx: Context, node: ast.Attribute | ast.Subscript, kind: object) -> Exception:
    """Return the error for a field or item that a value of type `kind` doesn't have."""
    if isinstance(kind, StructType) and isinstance(node, ast.Attribute):
        return ctx.error(node, f"{kind.name} has no {node.attr}", f"its fields are {', '.join(kind.fields)}")
    return ctx.error(node, f"{ast.unparse(node)} can't be assigned to")


def _distinct(ctx: Context, node: ast.Attribute, what: str, size: int) -> tuple[int, ...]:
    """Return the lanes that a swizzle such as `.xy` names. Raises CompileError if it names a lane twice.

    `what` describes the vector in messages, `size` is its number of lanes.
    """
    lanes = tuple(lanes_named(ctx, node, what, node.attr, size))
    if len(set(lanes)) != len(lanes):
        raise ctx.error(node, f".{node.attr} names a lane twice: it can't be assigned to")
    return lanes


def _subscript(ctx: Context, node: ast.Subscript, owner: Target, base: KernelValue) -> Target:
    """Return the target `owner[...]`; `current` is the owner's current value."""
    if is_array(base):
        if has_slice(node):
            hint = "write wg.store(y[r, :], value), with wg = vk.workgroup()"
            raise ctx.error(node, "a slice is stored by a workgroup", hint)
        return _Memory(ctx, node, base, tuple(indices(ctx, node, base, subscript_values(ctx, node))))
    if isinstance(base, Aggregate) and is_struct_array(base):
        return _Element(ctx, node, element_at(ctx, node, base))
    if isinstance(base, Value) and isinstance(base.type, Vector):
        _reject_shared_lane(ctx, node, owner)
        return _Lanes(ctx, node, owner, base, (static_index(ctx, node.slice, base.type.size),))
    hint = "tuples don't change" if isinstance(base, tuple) else ""
    raise ctx.error(node, f"{describe_value(base)} can't be stored into", hint)


def _attribute(ctx: Context, node: ast.Attribute, owner: Target, base: KernelValue) -> Target:
    """Return the target `owner.name`; `current` is the owner's current value."""
    if isinstance(base, Aggregate) and isinstance(base.kind, StructType):
        if node.attr not in base.kind.fields:
            raise _unknown(ctx, node, base.kind)
        return _Field(ctx, node, owner, base, node.attr)
    if isinstance(base, Value) and isinstance(base.type, Vector):
        _reject_shared_lane(ctx, node, owner)
        return _Lanes(ctx, node, owner, base, _distinct(ctx, node, describe_value(base), base.type.size))
    raise ctx.error(node, f"{ast.unparse(node)} can't be assigned to", "bind a name or store into an array")


def _reject_shared_lane(ctx: Context, node: ast.expr, owner: Target) -> None:
    """Raise CompileError for a store to one lane of a vector in shared memory.

    The store would rewrite the whole vector, and so overwrite lanes that other invocations store at the same time.
    """
    if isinstance(owner, _Memory) and array_type(owner.array).space == "shared":
        raise ctx.error(
            node, "a lane of a vector in shared memory can't be written alone", "store the whole vector: s[i] = v"
        )
