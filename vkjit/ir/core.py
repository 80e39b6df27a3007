"""Core classes of the IR: values, operations, regions, functions, modules.

The IR is in SSA form with nested single-block regions. An operation has operands and results, which are values, and
regions, which consist of operations and end in a terminator. The op table in `ops` lists all operations. Every
operation has a source location (`Loc`). `verify` checks the structure.

The structured operations:

    if %c            two regions, each ending in `yield` (of the results) or in an exit (break, return...)
    for lo hi step   one region with arguments (induction variable, loop-carried values...). `continue` passes the next
                     loop-carried values, `break` passes the results. If the range is exhausted, the loop-carried values
                     are the results
    loop             like `for`, but without a range and an induction variable: it ends only by `break` (or `return`)

`break` and `continue` may be nested in `if`s and belong to the innermost loop. A `return` may occur in any region until
the pass `lower_exits`; after it, only at the end of a function.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ..errors import UNKNOWN, Loc, ReportSite
from .attributes import Attrs, FunctionAttrs
from .ops import OpName
from .types import Type

__all__ = ["Function", "Module", "Op", "Region", "Value"]


class Value:
    """An SSA value: the result of an operation, an argument of a region, or a function's parameter.

    `owner` is the operation or region that defines the value, `index` the position among its results or arguments.
    `name` is a hint for the printer and may be "".
    """

    __slots__ = ("index", "name", "owner", "type")

    def __init__(self, type: Type, owner: Op | Region, index: int, name: str = "") -> None:
        self.type = type
        self.owner = owner
        self.index = index
        self.name = name

    @property
    def op(self) -> Op | None:
        """The operation that defines the value; None for arguments and parameters."""
        return self.owner if isinstance(self.owner, Op) else None

    def __repr__(self) -> str:
        return f"<Value %{self.name or '?'}: {self.type}>"


class Op:
    """An operation. `name` is that of a row of the op table."""

    __slots__ = ("attrs", "loc", "name", "operands", "regions", "results")

    def __init__(
        self,
        name: OpName,
        operands: list[Value],
        result_types: list[Type],
        attrs: Attrs | None = None,
        regions: list[Region] | None = None,
        loc: Loc = UNKNOWN,
    ) -> None:
        self.name = name
        self.operands = operands
        self.attrs: Attrs = attrs if attrs is not None else {}
        self.regions: list[Region] = regions if regions is not None else []
        self.results = [Value(t, self, i) for i, t in enumerate(result_types)]
        self.loc = loc

    @property
    def result(self) -> Value:
        """The only result."""
        (value,) = self.results
        return value

    def walk(self) -> Iterator[Op]:
        """Iterate over this operation and all nested ones, in program order."""
        yield self
        for region in self.regions:
            yield from region.walk()

    def __repr__(self) -> str:
        return f"<Op {self.name} at {self.loc}>"


class Region:
    """A list of operations (`ops`) that ends in a terminator. Bodies of loops and functions also have arguments."""

    __slots__ = ("args", "ops")

    def __init__(self, arg_types: list[Type] | None = None, names: list[str] | None = None) -> None:
        types = arg_types or []
        self.args = [Value(t, self, i, names[i] if names else "") for i, t in enumerate(types)]
        self.ops: list[Op] = []

    @property
    def terminator(self) -> Op:
        return self.ops[-1]

    def walk(self) -> Iterator[Op]:
        """Iterate over all operations in the region, nested ones included, in program order."""
        for op in self.ops:
            yield from op.walk()


@dataclass(slots=True)
class Function:
    """A kernel or a device function. Its parameters are the arguments of `body`.

    A kernel has no results. `FunctionAttrs` documents the attributes.
    """

    name: str
    body: Region
    result_types: list[Type] = field(default_factory=list)
    attrs: FunctionAttrs = field(default_factory=FunctionAttrs)
    loc: Loc = UNKNOWN

    @property
    def params(self) -> list[Value]:
        return self.body.args


@dataclass(slots=True)
class Module:
    """A kernel, the device functions that it calls (by name), and its report sites.

    A report site is a source location with an error message; operations such as `report` refer to it by its number, the
    index into `sites`.
    """

    kernel: Function
    functions: dict[str, Function] = field(default_factory=dict)
    sites: list[ReportSite] = field(default_factory=list)

    def all_functions(self) -> list[Function]:
        return [*self.functions.values(), self.kernel]

    def add_site(self, site: ReportSite) -> int:
        """Return the number of a report site. Append it to `sites` if it is new; equal sites share a number."""
        if site in self.sites:
            return self.sites.index(site)
        self.sites.append(site)
        return len(self.sites) - 1
