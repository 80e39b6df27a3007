"""Assignment targets: names, memory elements, struct fields, vector lanes.

A `Target` is created by `target_of`, which evaluates its indices once. The target can then be loaded and stored, so
that `x[f(i)] += 1` calls f once.

Each kind of target is a class. A store to an element of an array writes memory, and so does a store to a part of a
struct array's element, such as `p[i].x` (see `values.struct_arrays`). Structs and vectors in registers are immutable: a
store to a field or to lanes makes a new struct or vector, and stores it to the owner. The owner of `s.x` is the target
`s`.
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
from ..values.conversions import as_exactly, dtype_of_value, index_hint, numeric
from ..values.items import item_at, with_item
from ..values.mappings import is_mapping_value
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
    """Abstract base class of assignment targets; `node` is the target's syntax node."""

    ctx: Context
    node: ast.expr

    @abstractmethod
    def current(self) -> KernelValue:
        """Return the current value. An element of a struct array is returned unloaded, as an `Element`.

        `target_of` calls this for the owner of a field or lane, which needn't be loaded as a whole.
        """

    @abstractmethod
    def store(self, value: KernelValue, value_node: ast.AST | None) -> None:
        """Store a value. `value_node` is its syntax node, for errors; if it is None, errors point to the target."""

    def load(self) -> KernelValue:
        """Return the current value; an element of a struct array is loaded."""
        return load_element(self.ctx, self.current())


@dataclass(frozen=True, slots=True)
class _Name(Target):
    """A local name: `x`."""

    name: str

    def current(self) -> KernelValue:
        return self.ctx.evaluate(ast.copy_location(ast.Name(self.name, ast.Load()), self.node))

    def store(self, value: KernelValue, value_node: ast.AST | None) -> None:
        if self.name in self.ctx.captured:
            reason = f"{self.name} belongs to the function around this one, which can't change it"
            raise self.ctx.error(self.node, reason, f"return the new value, and write {self.name} = f(...) outside")
        self.ctx.bind(self.name, value, self.ctx.loc(self.node))


@dataclass(frozen=True, slots=True)
class _ArrayElement(Target):
    """The element at the indices `at` of an IR array, whose elements are scalars or vectors: `x[i]`.

    Scalar parts of a struct array's elements are such elements, too: `p[i].x` is element i of the array `p.x`.
    """

    array: Value
    at: tuple[Value, ...]

    def current(self) -> KernelValue:
        return load(self.ctx, self.array, list(self.at))

    def store(self, value: KernelValue, value_node: ast.AST | None) -> None:
        store(self.ctx, self.node, self.array, list(self.at), value, value_node)


@dataclass(frozen=True, slots=True)
class _StructArrayElement(Target):
    """An element of a struct array: `p[i]`, or a field of it that is itself a struct, vector or array."""

    element: Element

    def current(self) -> KernelValue:
        return self.element

    def store(self, value: KernelValue, value_node: ast.AST | None) -> None:
        store_element(self.ctx, self.node, self.element, value, value_node)


@dataclass(frozen=True, slots=True)
class _Field(Target):
    """The field `name` of a struct in registers; `owner` is the target that holds the struct."""

    owner: Target
    struct: Aggregate
    name: str

    def current(self) -> KernelValue:
        kind = self.struct.kind
        assert isinstance(kind, StructType)
        return self.struct.items[kind.fields.index(self.name)]

    def store(self, value: KernelValue, value_node: ast.AST | None) -> None:
        # The new struct has no syntax node of its own, hence None.
        self.owner.store(with_field(self.ctx, value_node or self.node, self.struct, self.name, value), None)


@dataclass(frozen=True, slots=True)
class _FieldItem(Target):
    """An item of an array field of a struct in registers, which is a tuple of tuples: `s.m[0, 1]`, `s.m[0]`.

    A store makes a new tuple, and stores it to the field. The index may be known at run time; then each item is chosen.
    """

    owner: Target
    items: tuple[KernelValue, ...]
    index: KernelValue

    def current(self) -> KernelValue:
        return item_at(self.ctx, self.node, self.items, self.index)

    def store(self, value: KernelValue, value_node: ast.AST | None) -> None:
        self.owner.store(with_item(self.ctx, self.node, self.items, self.index, value), None)


@dataclass(frozen=True, slots=True)
class _VectorLanes(Target):
    """Lanes of a vector: `v.x`, `v.xy`, `v[0]`. A store replaces the whole vector in its target `owner`.

    The vector is in registers, or it is one element of an IR array of vectors (`vk.shared` and `vk.local` arrays).
    """

    owner: Target
    vector: Value
    lanes: tuple[int, ...]

    def current(self) -> KernelValue:
        return _vector_of(self.ctx, [lane(self.ctx, self.vector, number) for number in self.lanes])

    def store(self, value: KernelValue, value_node: ast.AST | None) -> None:
        dtype, updated = dtype_of_value(self.vector), self.vector
        for number, item in zip(self.lanes, _lane_values(self.ctx, self.node, value, len(self.lanes)), strict=True):
            fitted = as_exactly(self.ctx, value_node or self.node, item, dtype, "a lane")
            updated = self.ctx.builder.emit("vec_insert", updated, fitted, lane=number)
        self.owner.store(updated, None)  # the new vector has no syntax node of its own


@dataclass(frozen=True, slots=True)
class _SeparateLanes(Target):
    """Several lanes (`p[i].xy`) of a vector in a struct array. Each lane is a scalar in memory and is stored alone.

    `array` is the array of scalars, whose last axis is the lane; `at` are the vector's indices along the other axes.
    """

    array: Value
    at: tuple[Value, ...]
    lanes: tuple[int, ...]

    def _indices_of_lane(self, number: int) -> list[Value]:
        return [*self.at, self.ctx.builder.index(number)]

    def current(self) -> KernelValue:
        return _vector_of(
            self.ctx, [load(self.ctx, self.array, self._indices_of_lane(number)) for number in self.lanes]
        )

    def store(self, value: KernelValue, value_node: ast.AST | None) -> None:
        for number, item in zip(self.lanes, _lane_values(self.ctx, self.node, value, len(self.lanes)), strict=True):
            store(self.ctx, self.node, self.array, self._indices_of_lane(number), item, value_node)


def _vector_of(ctx: Context, lanes: list[Value]) -> Value:
    """Return the lanes as a vector, or a single lane as a scalar."""
    if len(lanes) == 1:
        return lanes[0]
    return ctx.builder.emit("vec_make", *lanes, type=Vector(dtype_of_value(lanes[0]), len(lanes)))


def _lane_values(ctx: Context, node: ast.expr, value: KernelValue, count: int) -> list[KernelValue]:
    """Return the values to store to `count` lanes: a vector's lanes, a tuple's items, or one scalar for all lanes."""
    if isinstance(value, tuple) and len(value) == count:
        return list(value)
    numeric(ctx, node, value)
    if is_literal(value) or (isinstance(value, Value) and isinstance(value.type, Scalar)):
        return [value] * count
    assert isinstance(value, Value)
    assert isinstance(value.type, Vector)
    if value.type.size != count:
        raise ctx.error(node, f"{count} lane{'s' if count != 1 else ''} can't hold {describe_value(value)}")
    return [lane(ctx, value, number) for number in range(count)]


def target_of(ctx: Context, node: ast.expr) -> Target:
    """Return the assignment target that a syntax node denotes. Raises CompileError if it can't be assigned to."""
    if isinstance(node, ast.Name):
        return _Name(ctx, node, node.id)
    if not isinstance(node, ast.Attribute | ast.Subscript):
        raise ctx.error(node, f"{ast.unparse(node)} can't be assigned to", "bind a name or store into an array")
    if not isinstance(node.value, ast.Name | ast.Attribute | ast.Subscript):
        raise ctx.error(node, f"{ast.unparse(node)} can't be assigned to", "bind the value to a name first")
    owner = target_of(ctx, node.value)
    base = owner.current()
    ctx.builder.loc = ctx.loc(node)  # the evaluation of the owner may have changed it
    if isinstance(base, Element):
        return _part_target(ctx, node, base)
    return (
        _subscript_target(ctx, node, owner, base)
        if isinstance(node, ast.Subscript)
        else _attribute_target(ctx, node, owner, base)
    )


def _part_target(ctx: Context, node: ast.Attribute | ast.Subscript, element: Element) -> Target:
    """Return the target for a part of a struct array's element: `p[i].x`, `p[i].xy`, `p[i].m[0]`."""
    location = locate_part(ctx, node, element)
    if isinstance(location, Element):
        return _StructArrayElement(ctx, node, location)
    if location is not None:  # a single scalar
        return _ArrayElement(ctx, node, location.array, location.at)
    element_type = kind_of(element.array).element
    if isinstance(element_type, VectorType) and isinstance(node, ast.Attribute):
        lanes = _lanes_to_assign(ctx, node, describe_value(element_type), element_type.size)
        return _SeparateLanes(ctx, node, first_array(element.array), element.at, lanes)
    raise _unknown_part_error(ctx, node, element_type)


def _unknown_part_error(ctx: Context, node: ast.Attribute | ast.Subscript, owner_type: object) -> Exception:
    """Return the error for a field or item that a value of type `owner_type` doesn't have."""
    if isinstance(owner_type, StructType) and isinstance(node, ast.Attribute):
        return ctx.error(
            node, f"{owner_type.name} has no {node.attr}", f"its fields are {', '.join(owner_type.fields)}"
        )
    return ctx.error(node, f"{ast.unparse(node)} can't be assigned to")


def _lanes_to_assign(ctx: Context, node: ast.Attribute, what: str, size: int) -> tuple[int, ...]:
    """Return the indices of the lanes that a swizzle such as `.xy` names. Raises CompileError if one is named twice.

    `what` describes the vector in messages, `size` is its number of lanes.
    """
    lanes = tuple(lanes_named(ctx, node, what, node.attr, size))
    if len(set(lanes)) != len(lanes):
        raise ctx.error(node, f".{node.attr} names a lane twice: it can't be assigned to")
    return lanes


def _subscript_target(ctx: Context, node: ast.Subscript, owner: Target, base: KernelValue) -> Target:
    """Return the target `owner[...]`; `base` is the owner's current value."""
    if is_array(base):
        if has_slice(node):
            hint = "write wg.store(y[r, :], value), with wg = vk.workgroup()"
            raise ctx.error(node, "a slice is stored by a workgroup", hint)
        return _ArrayElement(ctx, node, base, tuple(indices(ctx, node, base, subscript_values(ctx, node))))
    if isinstance(base, Aggregate) and is_struct_array(base):
        return _StructArrayElement(ctx, node, element_at(ctx, node, base))
    if isinstance(base, Value) and isinstance(base.type, Vector):
        _reject_shared_lane(ctx, node, owner)
        return _VectorLanes(ctx, node, owner, base, (static_index(ctx, node.slice, base.type.size),))
    if isinstance(base, tuple) and isinstance(owner, _Field | _FieldItem) and not has_slice(node):
        for index in subscript_values(ctx, node):
            items = owner.current()
            if not isinstance(items, tuple):
                raise ctx.error(node, f"{describe_value(items)} can't be indexed", index_hint(items))
            owner = _FieldItem(ctx, node, owner, items, index)
        return owner
    hint = "tuples don't change" if isinstance(base, tuple) else ""
    hint = "dictionaries don't change in a kernel" if is_mapping_value(base) else hint
    raise ctx.error(node, f"{describe_value(base)} can't be stored into", hint)


def _attribute_target(ctx: Context, node: ast.Attribute, owner: Target, base: KernelValue) -> Target:
    """Return the target `owner.name`; `base` is the owner's current value."""
    if isinstance(base, Aggregate) and isinstance(base.kind, StructType):
        if node.attr not in base.kind.fields:
            raise _unknown_part_error(ctx, node, base.kind)
        return _Field(ctx, node, owner, base, node.attr)
    if isinstance(base, Value) and isinstance(base.type, Vector):
        _reject_shared_lane(ctx, node, owner)
        return _VectorLanes(ctx, node, owner, base, _lanes_to_assign(ctx, node, describe_value(base), base.type.size))
    raise ctx.error(node, f"{ast.unparse(node)} can't be assigned to", "bind a name or store into an array")


def _reject_shared_lane(ctx: Context, node: ast.expr, owner: Target) -> None:
    """Raise CompileError if the owner of the lanes is an element of a shared array of vectors.

    The store would rewrite the whole vector, and so overwrite lanes that other invocations store at the same time.
    """
    if isinstance(owner, _ArrayElement) and array_type(owner.array).space == "shared":
        raise ctx.error(
            node, "a lane of a vector in shared memory can't be written alone", "store the whole vector: s[i] = v"
        )
