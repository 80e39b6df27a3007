"""Collect the parameters, ids, shared arrays and atomics that a kernel uses, in one walk over its operations.

The argument block, the read and write sets and the flags of memory accesses are derived from the result. An array value
is a parameter, the result of a `shared` or `local` operation, or a `linear` view of one of these.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from vkjit.errors import InternalError
from vkjit.ir.core import Function, Module, Op, Region, Value
from vkjit.ir.ops import OpName
from vkjit.ir.types import Array

__all__ = ["ATOMICS", "Usage", "root_of", "usage_of"]

ATOMICS: frozenset[OpName] = frozenset({"atomic", "atomic_cas", "atomic_load", "atomic_store"})
_READS: frozenset[OpName] = frozenset({"load", "mat_load", "atomic", "atomic_cas", "atomic_load"})
_WRITES: frozenset[OpName] = frozenset({"store", "mat_store", "atomic", "atomic_cas", "atomic_store"})
_SYNC: frozenset[OpName] = frozenset({"barrier", "fence"})
_IDS: frozenset[OpName] = frozenset({"global_id", "group_id", "num_groups"})


@dataclass(slots=True)
class Usage:
    """The parameters and operations that a kernel uses. Parameters are given by their index in the parameter list.

    `reads` and `writes` are the arrays that are read and written. `extents` and `strides` contain (parameter, axis),
    `ids` (operation, axis). `atomics` has the atomic operations by the root of their array. `synchronises` is True if
    invocations may communicate through memory. `shared`, `reports` and `prints` are the operations of that kind.
    """

    reads: set[int] = field(default_factory=set)
    writes: set[int] = field(default_factory=set)
    extents: set[tuple[int, int]] = field(default_factory=set)
    strides: set[tuple[int, int]] = field(default_factory=set)
    scalars: set[int] = field(default_factory=set)
    ids: set[tuple[str, int]] = field(default_factory=set)
    atomics: dict[Value, list[Op]] = field(default_factory=dict)
    synchronises: bool = False
    shared: list[Op] = field(default_factory=list)
    reports: list[Op] = field(default_factory=list)
    prints: list[Op] = field(default_factory=list)

    @property
    def addresses(self) -> set[int]:
        """Arrays whose elements are accessed."""
        return self.reads | self.writes


def root_of(array: Value) -> Value:
    """Return the parameter or allocation that an array value views."""
    while (op := array.op) is not None and op.name == "linear":
        array = op.operands[0]
    return array


def usage_of(module: Module, *, used_only: bool = True) -> Usage:
    """Return the usage of a module's kernel.

    Without `used_only`, all parameters count as used, as a module with calls requires.
    """
    kernel = module.kernel
    usage = Usage()
    positions = {param: position for position, param in enumerate(kernel.params)}
    for function in module.all_functions():
        _walk(usage, function.body, positions)
    if not used_only:
        _add_all_parameters(usage, kernel)
    return usage


def _walk(usage: Usage, region: Region, positions: dict[Value, int]) -> None:
    for op in region.ops:
        _add_op(usage, op, positions)
        for inner in op.regions:
            _walk(usage, inner, positions)


def _add_all_parameters(usage: Usage, kernel: Function) -> None:
    for position, param in enumerate(kernel.params):
        array = param.type
        if not isinstance(array, Array):
            usage.scalars.add(position)
            continue
        axes = {(position, axis) for axis in range(array.rank)}
        usage.extents |= axes
        usage.strides |= axes
        if array.access != "out":
            usage.reads.add(position)
        if array.access != "in":
            usage.writes.add(position)


def _add_op(usage: Usage, op: Op, positions: dict[Value, int]) -> None:
    name = op.name
    if name in _READS or name in _WRITES:
        _add_access(usage, op, positions)
    elif name in _SYNC:
        usage.synchronises = True
    elif name == "report":
        usage.reports.append(op)
        usage.ids |= {("global_id", axis) for axis in range(3)}
    elif name == "print":
        usage.prints.append(op)
        usage.ids |= {("global_id", axis) for axis in range(3)}
    elif name == "shared":
        usage.shared.append(op)
    elif name in _IDS:
        usage.ids.add((name, op.attrs["dim"]))
    elif name in ("extent", "stride"):
        position = positions.get(root_of(op.operands[0]))
        if position is not None:
            (usage.extents if name == "extent" else usage.strides).add((position, op.attrs["axis"]))
        return
    for operand in op.operands:
        if operand in positions and not isinstance(operand.type, Array):
            usage.scalars.add(positions[operand])


def _add_access(usage: Usage, op: Op, positions: dict[Value, int]) -> None:
    array = op.operands[0]
    root = root_of(array)
    if op.name in ATOMICS:
        usage.synchronises = True
        usage.atomics.setdefault(root, []).append(op)
    position = positions.get(root)
    if position is None:
        return
    if op.name in _READS:
        usage.reads.add(position)
    if op.name in _WRITES:
        usage.writes.add(position)
    kind = array.type
    if not isinstance(kind, Array):
        raise InternalError(f"{op.name} at {op.loc} needs an array, found {kind}")
    if kind.linear:
        return
    if kind.contiguous:
        usage.extents |= {(position, axis) for axis in range(1, kind.rank)}
    else:
        usage.strides |= {(position, axis) for axis in range(kind.rank)}
