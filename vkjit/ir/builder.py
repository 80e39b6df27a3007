"""IR builder: create operations and infer their result types from the op table (see `ops`).

The front end and the passes create operations with a `Builder`, which appends them to its current region. The builder
raises InternalError for unknown operations and for result types that it can't infer; all other checks are left to
`verify`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..dtypes import DType
from ..errors import UNKNOWN, InternalError, Loc
from . import types
from .attributes import Attrs
from .core import Op, Region, Value
from .ops import OPS, OpInfo, OpName
from .types import Array, Scalar, Type, Vector

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Builder", "result_types"]

_FIXED: dict[str, Type] = {"index": types.INDEX, "u32": types.U32, "i32": types.I32}
"""The words of the op table that stand for one type."""


def result_types(row: OpInfo, operands: Sequence[Value], attrs: Attrs) -> list[Type]:
    """Return the result types of an operation; `row` is its row of the op table.

    Raises InternalError for structured operations, whose result types aren't in the table.
    """
    word = row.result  # see the docstring of `ops` for the words
    if not word:
        return []
    if word == "type":
        return [attrs["type"]]
    if word in _FIXED:
        return [_FIXED[word]]
    if word == "element":
        array = operands[0].type
        if not isinstance(array, Array):
            raise InternalError(f"{row.name} needs an array first, found {array}")
        return [array.element]
    if word == "bool":
        source = operands[0].type
        return [Vector(types.BOOL.dtype, source.size) if isinstance(source, Vector) else types.BOOL]
    if word in row.operands:  # "T" or "S": the type of the first operand with the same letter
        return [operands[row.operands.index(word)].type]
    raise InternalError(f"the result types of {row.name} have to be given")


class Builder:
    """Appends operations with the source location `loc` to `region`. Both can be assigned."""

    def __init__(self, region: Region, loc: Loc = UNKNOWN) -> None:
        self.region = region
        self.loc = loc

    def op(
        self,
        name: OpName,
        *operands: Value,
        types: list[Type] | None = None,
        regions: list[Region] | None = None,
        **attrs: Unpack[Attrs],
    ) -> Op:
        """Create and append an operation. `types` are the result types, for structured operations only."""
        row = OPS.get(name)
        if row is None:
            raise InternalError(f"no operation is named {name}")
        results = types if types is not None else result_types(row, operands, attrs)
        created = Op(name, list(operands), results, attrs, regions, self.loc)
        self.region.ops.append(created)
        return created

    def emit(self, name: OpName, *operands: Value, **attrs: Unpack[Attrs]) -> Value:
        """Create and append an operation with one result, and return the result."""
        return self.op(name, *operands, **attrs).result

    def const(self, value: bool | int | float, type: Type | DType) -> Value:
        """Return a constant of a scalar type, or a splat of a vector type."""
        return self.emit("const", type=type if isinstance(type, Type) else Scalar(type), value=value)

    def index(self, value: int) -> Value:
        """Return a constant of type `index`."""
        return self.const(value, types.INDEX)

    def cast(self, value: Value, type: Type | DType) -> Value:
        """Return the value converted to a type, or the value itself if it has that type."""
        target = type if isinstance(type, Type) else Scalar(type)
        return value if value.type == target else self.emit("cast", value, type=target)

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """Append an `if` without results. Operations appended in the `with` block go into its first region."""
        taken, other = Region(), Region()
        with self.at(taken):
            yield
            self.op("yield")
        with self.at(other):
            self.op("yield")
        self.op("if", condition, types=[], regions=[taken, other])

    @contextmanager
    def at(self, region: Region) -> Iterator[Region]:
        """Make `region` the current region in the `with` block."""
        saved, self.region = self.region, region
        try:
            yield region
        finally:
            self.region = saved
