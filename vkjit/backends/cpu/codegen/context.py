"""The state of one kernel's translation: values, masks, what is known of the grid.

Enters: a kernel in primitive form, its layout, the vectors' width. Leaves: through the handlers of the other modules,
the text of one LLVM function. Holds: a value of shape UNIFORM or `Step` is represented by lane 0's scalar, a VARYING
one by a vector; short vectors have one representation per component. `mask` is the lanes that run what is being
written: None for all, else an LLVM vector of i1; never empty where something with an effect is written.
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
    """The dtype of a scalar or vector type."""
    if not isinstance(kind, (Scalar, Vector)):
        raise InternalError(f"expected a scalar or vector, found {kind}")
    return kind.dtype


def lanes_of(kind: Type) -> int:
    """Components of a type: 1 for scalars."""
    return kind.size if isinstance(kind, Vector) else 1


@dataclass(frozen=True, slots=True)
class Geometry:
    """How a workgroup is cut into vectors of `width` consecutive invocations, `count` of them."""

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
        """Whether the last vector has lanes without an invocation."""
        return self.total % self.width != 0

    @property
    def block(self) -> int:
        """How many vectors fill the lanes of one with a value each, or are all that there are; 0 where some are partial or
        one is left over."""
        size = min(self.count, self.width)
        return 0 if self.partial or size & (size - 1) or self.count % size else size

    @property
    def steps(self) -> tuple[Shape, Shape, Shape]:
        """The shapes of the local ids."""
        from .stride_analysis import UNIFORM, VARYING, Step

        x, y, z = self.local
        below = 1
        found: list[Shape] = []
        for size in (x, y, z):
            if size == 1:
                found.append(UNIFORM)
            elif below == 1 and (size % self.width == 0 or size == self.total):
                found.append(Step(1))
            elif below % self.width == 0:
                found.append(UNIFORM)
            else:
                found.append(VARYING)
            below *= size
        return found[0], found[1], found[2]


Handler = Callable[["Generator", Op], None]


class Generator:
    """One kernel. Handlers by operation name write operations."""

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
        """LLVM's type of one component."""
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
        """A varying value that is written where it is first asked for: often it isn't."""
        self.postponed[value] = write
        self.parts.pop(value, None)
        for scope in self.scopes:
            scope.pop(value, None)

    def define(self, value: Value, parts: list[str]) -> None:
        """Sets the representation of a value, in the form that its shape asks for."""
        self.parts[value] = parts
        for scope in self.scopes:
            scope.pop(value, None)

    def scalars(self, value: Value) -> list[str]:
        """Lane 0's components of a value that isn't varying."""
        if self.is_varying(value):
            raise InternalError(f"{value!r} has no scalar form")
        return self.parts[value]

    def scalar(self, value: Value) -> str:
        (part,) = self.scalars(value)
        return part

    def vectors(self, value: Value) -> list[str]:
        """The components of any value as vectors."""
        shape = self.shapes.of_value(value)
        if shape is None and value in self.parts:
            return self.parts[value]
        for scope in reversed(self.scopes):
            found = scope.get(value)
            if found is not None:
                return found
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
        """A scalar in all lanes."""
        if not part.startswith("%"):
            return f"splat ({kind} {part})"
        whole = f"<{self.width} x {kind}>"
        first = self.text.op(f"insertelement {whole} poison, {kind} {part}, i64 0")
        return self.text.op(f"shufflevector {whole} {first}, {whole} poison, <{self.width} x i32> zeroinitializer")

    def spread(self, part: str, dtype: DType, step: int) -> str:
        """A scalar in all lanes, plus lane times `step`."""
        kind = scalar_type(dtype)
        splat = self.splat(part, kind)
        if step == 0:
            return splat
        steps = self.lane_numbers(kind, step)
        if part == "0":
            return steps
        return self.text.op(f"add <{self.width} x {kind}> {splat}, {steps}")

    def lane_numbers(self, kind: str, step: int = 1) -> str:
        """The constant <0, step, 2 * step...>."""
        bits = int(kind[1:])
        numbers = (lane * step for lane in range(self.width))
        return "<" + ", ".join(f"{kind} {_wrapped(n, bits)}" for n in numbers) + ">"

    def number(self, value: bool | int | float, dtype: DType, varying: bool) -> str:
        """A constant as an operand."""
        text = constant(value, dtype)
        return f"splat ({scalar_type(dtype)} {text})" if varying else text

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is spread inside isn't known outside: its block may not run."""
        self.scopes.append({})
        try:
            yield
        finally:
            self.scopes.pop()

    # -- masks

    def mask_or_all(self) -> str:
        return "splat (i1 true)" if self.mask is None else self.mask

    def both(self, mask: str | None, condition: str) -> str:
        """Lanes of `mask` where the condition (a vector) holds; stops what is undefined in lanes that don't run."""
        if mask is None:
            return condition
        kind = self.mask_type
        return self.text.op(f"select {kind} {mask}, {kind} {condition}, {kind} zeroinitializer")

    def negated(self, condition: str, varying: bool) -> str:
        kind = self.mask_type if varying else "i1"
        return self.text.op(f"xor {kind} {condition}, {'splat (i1 true)' if varying else 'true'}")

    def bits(self, mask: str) -> str:
        """A mask as an integer of `width` bits."""
        return self.text.op(f"bitcast {self.mask_type} {mask} to i{self.width}")

    def any(self, mask: str | None) -> str:
        """True when the mask isn't empty."""
        if mask is None:
            return "true"
        return self.text.op(f"icmp ne i{self.width} {self.bits(mask)}, 0")

    def all(self, mask: str) -> str:
        """True when the mask holds all lanes."""
        return self.text.op(f"icmp eq i{self.width} {self.bits(mask)}, -1")

    def first_lane(self, mask: str | None) -> str:
        """The number (i32) of the first lane of a mask that isn't empty."""
        if mask is None:
            return "0"
        kind = f"i{self.width}"
        lane = self.text.call(kind, f"llvm.cttz.{kind}", f"{kind} {self.bits(mask)}", "i1 true")
        return self.resized(lane, kind, "i32")

    def resized(self, value: str, kind: str, target: str) -> str:
        """An unsigned integer of another width."""
        have, want = int(kind[1:]), int(target[1:])
        if have == want:
            return value
        return self.text.op(f"{'zext' if want > have else 'trunc'} {kind} {value} to {target}")

    def select(self, mask: str, kind: str, yes: str, no: str) -> str:
        """Lanewise choice between two vectors."""
        return self.text.op(f"select {self.mask_type} {mask}, {kind} {yes}, {kind} {no}")

    # -- operations

    def emit(self, op: Op) -> None:
        handler = self.handlers.get(op.name)
        if handler is None:
            raise InternalError(f"the CPU target doesn't know {op.name} (at {op.loc})")
        handler(self, op)

    def root(self, array: Value) -> Value:
        """The parameter or allocation that an array value views."""
        while (op := array.op) is not None and op.name == "linear":
            array = op.operands[0]
        return array

    def field_value(self, role: str, arg: int, axis: int = 0) -> str:
        """An argument, loaded in the entry block, in its own width."""
        return self.arguments[role, arg, axis]

    def is_exact(self, op: Op) -> bool:
        """Whether a float operation must be neither fused nor reordered."""
        return bool(self.kernel.attrs.get("strict") or op.attrs.get("exact"))

    def array(self, value: Value) -> Array:
        if not isinstance(value.type, Array):
            raise InternalError(f"expected an array, found {value.type}")
        return value.type

    def index_type(self) -> str:
        return scalar_type(dtypes.index)


def _repeated_divisions(body: Region) -> set[Op]:
    """The divisions in loops by what is computed in front of the loop."""
    found: set[Op] = set()

    def visit(region: Region, inside: set[Value] | None) -> None:
        for op in region.ops:
            if op.name == "div" and inside is not None and op.operands[1] not in inside:
                found.add(op)
            for inner in op.regions:
                own = set(inner.args) if op.name in LOOPS else inside
                visit(inner, own)
            if inside is not None:
                inside.update(op.results)

    if any(op.name == "div" for op in body.walk()):
        visit(body, None)
    return found


def _wrapped(number: int, bits: int) -> int:
    """The integer modulo 2**bits, as a signed one."""
    number &= (1 << bits) - 1
    return number - (1 << bits) if number >> (bits - 1) else number
