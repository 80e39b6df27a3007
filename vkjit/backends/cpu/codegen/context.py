"""State of the code generation of one kernel: LLVM values of the IR's values, the execution mask, ids and arguments.

A kernel in primitive form becomes one LLVM function, in which the lanes of a vector are consecutive invocations of a
workgroup. The other modules provide one handler per IR operation.

1. A value of shape UNIFORM or `Step` (see `stride_analysis`) is represented by the scalar of lane 0, a VARYING value by
   a vector with one element per lane. A value of a short vector type has one such representation per component.
2. The mask contains the lanes that execute the operations being emitted. It may only be empty around operations that
   then have no effect, such as masked stores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.errors import InternalError
from vkjit.ir.core import Function, Module, Op, Region, Value
from vkjit.ir.ops import OpName
from vkjit.ir.rewrite import LOOPS
from vkjit.ir.types import Array, Scalar, Type, Vector
from vkjit.runtime.artifact import ArgField

from .llvm_text import Text, constant, scalar_type
from .stride_analysis import Shape, Shapes

__all__ = ["Generator", "Geometry", "Handler", "dtype_of", "lanes_of"]


def dtype_of(kind: Type) -> DType:
    """Return the dtype of a scalar or short vector type."""
    if not isinstance(kind, (Scalar, Vector)):
        raise InternalError(f"expected a scalar or vector, found {kind}")
    return kind.dtype


def lanes_of(kind: Type) -> int:
    """Return the number of components of a type: 1 for scalars."""
    return kind.size if isinstance(kind, Vector) else 1


@dataclass(frozen=True, slots=True)
class Geometry:
    """Partition of a workgroup of size `local` into `count` vectors of `width` consecutive invocations each."""

    local: tuple[int, int, int]
    width: int

    @property
    def total(self) -> int:
        return math.prod(self.local)

    @property
    def count(self) -> int:
        return -(-self.total // self.width)

    @property
    def partial(self) -> bool:
        """True if the last vector has lanes without an invocation."""
        return self.total % self.width != 0

    @property
    def block(self) -> int:
        """Number of vectors whose reductions are computed together (see `subgroups.reduced_columns`): `count`, but at
        most `width`. 0 if that isn't a power of two that divides `count`, or if the last vector is partial."""
        size = min(self.count, self.width)
        return 0 if self.partial or size & (size - 1) or self.count % size else size

    @property
    def steps(self) -> tuple[Shape, Shape, Shape]:
        """Shapes of `local_id` along x, y and z."""
        from .stride_analysis import UNIFORM, VARYING, Step

        x, y, z = self.local
        below = 1
        shapes: list[Shape] = []
        for size in (x, y, z):
            if size == 1:
                shapes.append(UNIFORM)
            elif below == 1 and (size % self.width == 0 or size == self.total):
                shapes.append(Step(1))
            elif below % self.width == 0:
                shapes.append(UNIFORM)
            else:
                shapes.append(VARYING)
            below *= size
        return shapes[0], shapes[1], shapes[2]


Handler = Callable[["Generator", Op], None]


class Generator:
    """Code generator of one kernel.

    `parts` maps a value to its components in the representation of its shape. `postponed` holds functions that emit a
    varying value at its first use, `scopes` the vectors that are valid in the current blocks. `mask` is a vector of i1,
    or None if all lanes are active. `ids` and `arguments` hold the loaded ids and fields of the argument block, `bases`
    the pointers to arrays, `helpers` the text of LLVM functions that the kernel calls.
    """

    def __init__(
        self,
        module: Module,
        geometry: Geometry,
        shapes: Shapes,
        fields: tuple[ArgField, ...],
        handlers: dict[OpName, Handler],
        features: frozenset[str],
        family: str = "",
        streamed: set[Op] | None = None,
    ) -> None:
        self.module = module
        self.kernel: Function = module.kernel
        self.geometry = geometry
        self.width = geometry.width
        self.shapes = shapes
        self.fields = {(f.role, f.arg, f.axis): f for f in fields}
        self.handlers = handlers
        self.features = features
        self.family = family
        self.streamed = streamed or set()
        self.invocations = ""
        self.fenced = False
        self.text = Text()
        self.parts: dict[Value, list[str]] = {}
        self.postponed: dict[Value, Callable[[], list[str]]] = {}
        self.mask: str | None = None
        self.bases: dict[Value, str] = {}
        self.arguments: dict[tuple[str, int, int], str] = {}
        self.ids: dict[tuple[str, int], str] = {}
        self.vector_number = "0"
        self.fuel = ""
        self.has_barrier_regions = False
        self.scopes: list[dict[Value, list[str]]] = [{}]
        self.loops: list[object] = []
        self.helpers: dict[str, str] = {}
        self.alias_scopes: dict[Value, int] = {}
        self.used = {v for op in self.kernel.body.walk() for v in op.operands}
        numbers = tuple(self.kernel.attrs.get("arg_index", range(len(self.kernel.params))))
        self.repeated = _repeated_divisions(self.kernel.body)
        self.numbers: dict[Value, int] = dict(zip(self.kernel.params, numbers, strict=True))

    # -- types

    def type(self, kind: Type | DType, varying: bool) -> str:
        """Return the LLVM type of one component of a value: a vector if it is varying."""
        dtype = kind if isinstance(kind, DType) else dtype_of(kind)
        name = scalar_type(dtype)
        return f"<{self.width} x {name}>" if varying else name

    @property
    def mask_type(self) -> str:
        return f"<{self.width} x i1>"

    def is_varying(self, value: Value) -> bool:
        return self.shapes.of_value(value) is None

    # -- values

    def postpone(self, value: Value, write: Callable[[], list[str]]) -> None:
        """Defer a varying value: `write` emits it at its first use as a vector, which many such values never have."""
        self.postponed[value] = write
        self.parts.pop(value, None)
        for scope in self.scopes:
            scope.pop(value, None)

    def define(self, value: Value, parts: list[str]) -> None:
        """Set the components of a value: scalars of lane 0, or vectors if its shape is VARYING."""
        self.parts[value] = parts
        for scope in self.scopes:
            scope.pop(value, None)

    def scalars(self, value: Value) -> list[str]:
        """Return the components of a value in lane 0; InternalError if the value is varying."""
        if self.is_varying(value):
            raise InternalError(f"{value!r} has no scalar form")
        return self.parts[value]

    def scalar(self, value: Value) -> str:
        (part,) = self.scalars(value)
        return part

    def vectors(self, value: Value) -> list[str]:
        """Return the components of a value of any shape as vectors, emitting those that don't exist yet."""
        shape = self.shapes.of_value(value)
        if shape is None and value in self.parts:
            return self.parts[value]
        for scope in reversed(self.scopes):
            cached = scope.get(value)
            if cached is not None:
                return cached
        if shape is None:
            made = self.postponed[value]()
        else:
            dtype = dtype_of(value.type)
            made = [self.spread(part, dtype, shape.size) for part in self.parts[value]]
        self.scopes[-1][value] = made
        return made

    def vector(self, value: Value) -> str:
        (part,) = self.vectors(value)
        return part

    def converted(self, value: Value, varying: bool) -> list[str]:
        return self.vectors(value) if varying else self.scalars(value)

    def splat(self, part: str, kind: str) -> str:
        """Return a vector with the scalar `part` of type `kind` in all lanes."""
        if not part.startswith("%"):
            return f"splat ({kind} {part})"
        whole = f"<{self.width} x {kind}>"
        first = self.text.op(f"insertelement {whole} poison, {kind} {part}, i64 0")
        return self.text.op(f"shufflevector {whole} {first}, {whole} poison, <{self.width} x i32> zeroinitializer")

    def spread(self, part: str, dtype: DType, step: int) -> str:
        """Return the vector of `part + lane * step`."""
        kind = scalar_type(dtype)
        splat = self.splat(part, kind)
        if step == 0:
            return splat
        steps = self.lane_numbers(kind, step)
        if part == "0":
            return steps
        return self.text.op(f"add <{self.width} x {kind}> {splat}, {steps}")

    def lane_numbers(self, kind: str, step: int = 1) -> str:
        """Return the constant vector <0, step, 2 * step, ...> of integers of type `kind`."""
        bits = int(kind[1:])
        numbers = (lane * step for lane in range(self.width))
        return "<" + ", ".join(f"{kind} {_wrapped(n, bits)}" for n in numbers) + ">"

    def number(self, value: bool | int | float, dtype: DType, varying: bool) -> str:
        """Return a constant as an operand: a splat if `varying`."""
        text = constant(value, dtype)
        return f"splat ({scalar_type(dtype)} {text})" if varying else text

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Limit the lifetime of vectors emitted inside: their blocks may not dominate the code that follows."""
        self.scopes.append({})
        try:
            yield
        finally:
            self.scopes.pop()

    # -- masks

    def mask_or_all(self) -> str:
        return "splat (i1 true)" if self.mask is None else self.mask

    def both(self, mask: str | None, condition: str) -> str:
        """Return the lanes of `mask` in which `condition` (a vector of i1) is true.

        It is a `select`, not an `and`, so that a condition that is poison in inactive lanes doesn't propagate.
        """
        if mask is None:
            return condition
        kind = self.mask_type
        return self.text.op(f"select {kind} {mask}, {kind} {condition}, {kind} zeroinitializer")

    def negated(self, condition: str, varying: bool) -> str:
        kind = self.mask_type if varying else "i1"
        return self.text.op(f"xor {kind} {condition}, {'splat (i1 true)' if varying else 'true'}")

    def bits(self, mask: str) -> str:
        """Return a mask as an integer of `width` bits."""
        return self.text.op(f"bitcast {self.mask_type} {mask} to i{self.width}")

    def any(self, mask: str | None) -> str:
        """Return an i1: true if the mask isn't empty."""
        if mask is None:
            return "true"
        return self.text.op(f"icmp ne i{self.width} {self.bits(mask)}, 0")

    def all(self, mask: str) -> str:
        """Return an i1: true if the mask contains all lanes."""
        return self.text.op(f"icmp eq i{self.width} {self.bits(mask)}, -1")

    def first_lane(self, mask: str | None) -> str:
        """Return the number (i32) of the first lane of a nonempty mask."""
        if mask is None:
            return "0"
        kind = f"i{self.width}"
        lane = self.text.call(kind, f"llvm.cttz.{kind}", f"{kind} {self.bits(mask)}", "i1 true")
        return self.resized(lane, kind, "i32")

    def resized(self, value: str, kind: str, target: str) -> str:
        """Return an unsigned integer of type `kind`, truncated or zero-extended to type `target`."""
        bits, target_bits = int(kind[1:]), int(target[1:])
        if bits == target_bits:
            return value
        return self.text.op(f"{'zext' if target_bits > bits else 'trunc'} {kind} {value} to {target}")

    def select(self, mask: str, kind: str, yes: str, no: str) -> str:
        """Emit a lanewise select between two vectors of type `kind`."""
        return self.text.op(f"select {self.mask_type} {mask}, {kind} {yes}, {kind} {no}")

    # -- operations

    def emit(self, op: Op) -> None:
        handler = self.handlers.get(op.name)
        if handler is None:
            raise InternalError(f"the CPU target doesn't know {op.name} (at {op.loc})")
        handler(self, op)

    def root(self, array: Value) -> Value:
        """Return the parameter or allocation that an array value views."""
        while (op := array.op) is not None and op.name == "linear":
            array = op.operands[0]
        return array

    def field_value(self, role: str, arg: int, axis: int = 0) -> str:
        """Return a field of the argument block, which was loaded in the entry block; extents and strides are i64."""
        return self.arguments[role, arg, axis]

    def is_exact(self, op: Op) -> bool:
        """True if a float operation must be neither fused nor reordered."""
        return bool(self.kernel.attrs.get("strict") or op.attrs.get("exact"))

    def array(self, value: Value) -> Array:
        if not isinstance(value.type, Array):
            raise InternalError(f"expected an array, found {value.type}")
        return value.type

    def index_type(self) -> str:
        return scalar_type(dtypes.index)


def _repeated_divisions(body: Region) -> set[Op]:
    """Return the `div` operations in loops with a loop-invariant divisor."""
    divisions: set[Op] = set()

    def visit(region: Region, defined: set[Value] | None) -> None:
        for op in region.ops:
            if op.name == "div" and defined is not None and op.operands[1] not in defined:
                divisions.add(op)
            for inner in op.regions:
                own = set(inner.args) if op.name in LOOPS else defined
                visit(inner, own)
            if defined is not None:
                defined.update(op.results)

    if any(op.name == "div" for op in body.walk()):
        visit(body, None)
    return divisions


def _wrapped(number: int, bits: int) -> int:
    """Return the integer modulo 2**bits, as a signed integer."""
    number &= (1 << bits) - 1
    return number - (1 << bits) if number >> (bits - 1) else number
