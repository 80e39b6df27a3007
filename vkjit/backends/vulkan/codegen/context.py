"""State shared by the functions that lower one kernel: the SPIR-V writer, the current block, the ids of IR values.

Values that may be needed anywhere in the kernel (built-ins, arguments, base pointers) are emitted on first use in the
entry block, which stays open until the end, so that they dominate all uses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vkjit import dtypes
from vkjit.backends.codegen.argument_layout import Layout, argument_numbers
from vkjit.backends.codegen.usage import Usage
from vkjit.dtypes import DType
from vkjit.errors import UNKNOWN, InternalError, Loc
from vkjit.ir.core import Function, Module, Op, Value
from vkjit.ir.semantics import to_bf16
from vkjit.ir.types import Matrix, Scalar, Type, Vector
from vkjit.runtime.device import DeviceCaps
from vkjit.spirv import Module as Writer, OpenBlock

__all__ = ["Context", "dtype_of", "kind_of", "lanes_of"]


def dtype_of(type_: Type) -> DType:
    """Return the dtype of a scalar or vector type."""
    if isinstance(type_, (Scalar, Vector)):
        return type_.dtype
    raise InternalError(f"expected a scalar or a vector, found {type_}")


def kind_of(type_: Type) -> str:
    """Return the kind of the type's dtype: "bool", "int", "uint", "float" or "index"."""
    return dtype_of(type_).kind


def lanes_of(type_: Type) -> int:
    """Return the number of elements of a vector; 1 for a scalar."""
    return type_.size if isinstance(type_, Vector) else 1


class Context:
    """State of the lowering of one kernel.

    - `entry` is the entry block, `block` the block to which new instructions are appended.
    - `values` maps IR values to SPIR-V ids.
    - `narrow` maps `index` and i64 values to the id of their low 32 bits and a flag: True if these bits, sign-extended,
      can replace the value as an offset into a global array.
    - `positions` maps parameters to their index in the kernel's parameter list; `args` has their number in the launch
      arguments, by that index.
    - `views` caches how arrays are accessed (see `memory`).
    - `int64` is False for devices without 64-bit integers; `ulong`, the type of 64-bit integers, is `pair` there.
    - `features` are required device features that don't follow from the module's SPIR-V capabilities.
    """

    __slots__ = (
        "_cached", "_loc", "_types", "args", "block", "caps", "entry", "features", "function", "int64", "kernel",
        "layout", "module", "narrow", "positions", "strict", "subgroup_size", "uint", "ulong", "usage", "values", "views",
        "writer",
    )  # fmt: skip

    def __init__(self, module: Module, caps: DeviceCaps, usage: Usage, layout: Layout, *, debug: bool = True) -> None:
        kernel = module.kernel
        self.module = module
        self.kernel: Function = kernel
        self.caps = caps
        self.usage = usage
        self.layout = layout
        self.writer = Writer(debug=debug)
        self.function = self.writer.function(self.writer.type_void(), name=kernel.name)
        self.entry: OpenBlock = self.function.block()
        self.block: OpenBlock = self.function.block()
        self.values: dict[Value, int] = {}
        self.narrow: dict[Value, tuple[int, bool]] = {}
        self.args = argument_numbers(kernel)
        self.positions = {param: position for position, param in enumerate(kernel.params)}
        self.strict = bool(kernel.attrs.get("strict"))
        self.features: set[str] = set()
        self.subgroup_size: int = kernel.attrs.get("subgroup_size") or caps.subgroup_size
        self.uint = self.writer.type_int(32)
        self.int64 = "int64" in caps.features
        self.writer.forward_pointers = not self.int64
        self.ulong = self.writer.type_int(64) if self.int64 else self.pair
        self._types: dict[Type, int] = {}
        self.views: dict[tuple[Value, bool], Any] = {}
        self._cached: dict[Any, int] = {}
        self._loc: Loc | None = None

    # Types and constants

    def type(self, type_: Type) -> int:
        """Return the SPIR-V type of values of an IR type."""
        type_id = self._types.get(type_)
        if type_id is None:
            if isinstance(type_, Matrix):
                type_id = self._matrix_type(type_)
            else:
                type_id = self.shaped(self.scalar_type(dtype_of(type_)), lanes_of(type_))
            self._types[type_] = type_id
        return type_id

    def _matrix_type(self, type_: Matrix) -> int:
        """Return a cooperative matrix type of subgroup scope. Unlike scalars, its components can be of a bf16 type."""
        is_bf16 = type_.dtype is dtypes.bf16
        component = self.writer.type_bfloat16() if is_bf16 else self.scalar_type(type_.dtype)
        use = {"a": "MatrixAKHR", "b": "MatrixBKHR", "acc": "MatrixAccumulatorKHR"}[type_.use]
        return self.writer.type_cooperative_matrix(component, "Subgroup", type_.rows, type_.columns, use)

    def scalar_type(self, dtype: DType) -> int:
        """Return the SPIR-V type of scalar values: one integer type per width, OpTypeBool for bool, f32 for bf16."""
        if dtype.kind == "bool":
            return self.writer.type_bool()
        if dtype.is_float:
            return self.writer.type_float(32 if dtype is dtypes.bf16 else dtype.bits)
        return self.ulong if dtype.bits == 64 else self.writer.type_int(dtype.bits)

    @property
    def pair(self) -> int:
        """The SPIR-V type of a vector of two 32-bit integers."""
        return self.writer.type_vector(self.uint, 2)

    def shaped(self, scalar: int, lanes: int) -> int:
        """Return the vector type with `lanes` components of a SPIR-V scalar type; the scalar type if `lanes` is 1.

        The vector type of pairs of words is a structure.
        """
        if lanes > 1 and self.writer.info(scalar).kind == "vector":
            return self.writer.type_struct((scalar,) * lanes)
        return scalar if lanes == 1 else self.writer.type_vector(scalar, lanes)

    def constant(self, type_: Type, value: Any) -> int:
        """Return a constant of an IR type, with the same value in each lane."""
        dtype = dtype_of(type_)
        if dtype is dtypes.bf16:
            value = float(to_bf16(value))
        return self.number(self.scalar_type(dtype), value, lanes_of(type_))

    def splat(self, constant: int, lanes: int) -> int:
        """Return the vector constant with a scalar constant in each lane; the scalar constant if `lanes` is 1."""
        if lanes == 1:
            return constant
        vector = self.shaped(self.writer.type_of(constant), lanes)
        return self.writer.constant_composite(vector, (constant,) * lanes)

    def number(self, scalar: int, value: Any, lanes: int = 1) -> int:
        """Return a constant of a SPIR-V scalar type, or of a vector of it, with the same value in each lane."""
        is_pair = self.writer.info(scalar).kind == "vector"
        return self.splat(self.long(int(value)) if is_pair else self.writer.constant(scalar, value), lanes)

    def long(self, value: int) -> int:
        """Return a 64-bit integer constant."""
        if self.int64:
            return self.writer.constant(self.ulong, value)
        return self.writer.constant_composite(self.ulong, (self.word(value), self.word(value >> 32)))

    def word(self, value: int) -> int:
        """Return a 32-bit integer constant."""
        return self.writer.constant(self.uint, value)

    # Values

    def get(self, value: Value) -> int:
        """Return the id of a lowered value or a scalar parameter."""
        value_id = self.values.get(value)
        if value_id is None:
            raise InternalError(f"kernel {self.kernel.name}: {value!r} is used before it is defined")
        return value_id

    def once(self, key: Any, make: Callable[[OpenBlock], int]) -> int:
        """Return the id cached under `key`; on the first call, emit the value in the entry block by `make`."""
        cached = self._cached.get(key)
        if cached is None:
            cached = self._cached[key] = make(self.entry)
        return cached

    # Blocks and source locations

    def at(self, loc: Loc) -> None:
        """Set the source location of the instructions that follow."""
        if loc is self._loc:
            return
        self._loc = loc
        if loc is UNKNOWN or loc.line <= 0:
            self.block.no_line()
        else:
            self.block.line(loc.file, loc.line, loc.col)

    def open(self, label: int) -> None:
        """Begin the block with this label and make it the current one."""
        self.block = self.function.block(label)
        loc, self._loc = self._loc, None
        if loc is not None:
            self.at(loc)

    def exact(self, op: Op) -> bool:
        """True if the operation's result must be rounded, and must not be contracted with other operations."""
        return self.strict or bool(op.attrs.get("exact"))
