"""Reject kernels that provably read uninitialized shared or local memory.

Raises CompileError for

1. an array that is read but never written, and
2. an array of the kernel whose first access in program order is a load that no store can precede: it is outside of
   loops, or in the body of a single loop, where nothing skips it in the first iteration.

A load whose result is only used as the vector operand of `vec_insert` doesn't count as a read: an assignment to one
component of a vector element loads the element, inserts the component, and stores the element. Arrays that are passed
to device functions or reinterpreted aren't checked by this pass; the sanitizer checks them at run time. The module
stays unchanged.

`unwritten_reads` finds the Outs to which rule 2 applies, including atomics that read. A launch that allocates such an
Out raises CompileError.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from vkjit.errors import CompileError, Loc, Note
from vkjit.ir.core import Function, Module, Op, Region, Value
from vkjit.ir.ops import OPS, OpName
from vkjit.ir.rewrite import LOOPS
from vkjit.ir.types import Array

__all__ = ["CheckWritten", "unwritten_reads"]

_NO_ACCESS: frozenset[OpName] = frozenset({"extent", "stride"})
"""Operations on an array that don't access its elements."""
_ATOMICS: frozenset[OpName] = frozenset({"atomic", "atomic_cas", "atomic_load", "atomic_store"})
_READS: frozenset[OpName] = frozenset({"load", "tile_load", "mat_load", "atomic", "atomic_cas", "atomic_load"})
"""Operations that read an array of the kernel's parameters."""


@dataclass(frozen=True, slots=True)
class CheckWritten:
    """Raise CompileError for provable reads of uninitialized shared or local memory."""

    name: ClassVar[str] = "check_written"

    def run(self, module: Module) -> Module:
        for function in module.all_functions():
            _check(function, function is module.kernel)
        return module


def _check(function: Function, is_kernel: bool) -> None:
    """Check one function; rule 2 is applied to the kernel only."""
    allocations = [op for op in function.body.walk() if op.name in ("shared", "local")]
    if not allocations:
        return
    accesses = list(_in_order(function.body))
    read_values = {value for op, _ in accesses for value in _read_operands(op)}
    for allocation in allocations:
        array = allocation.result
        uses = [(op, skipped) for op, skipped in accesses if array in op.operands and op.name not in _NO_ACCESS]
        uses = [(op, skipped) for op, skipped in uses if op.name != "load" or op.result in read_values]
        names = {op.name for op, _ in uses}
        if not uses or "load" not in names or not names <= {"load", "store"} | _ATOMICS:
            continue
        first, skipped = uses[0]
        never_written = names == {"load"}  # rule 1
        read_first = is_kernel and first.name == "load" and not skipped  # rule 2
        if never_written or read_first:
            raise _error(allocation, next(op for op, _ in uses if op.name == "load"), never=never_written)


def _read_operands(op: Op) -> Sequence[Value]:
    """Return the operands that count as read: all, except for the vector operand of `vec_insert`."""
    return op.operands[1:] if op.name == "vec_insert" else op.operands


def _in_order(region: Region, looped: bool = False, skipped: bool = False) -> Iterator[tuple[Op, bool]]:
    """Yield all operations in program order.

    Each comes with True if it is inside a loop and may be skipped in the first iteration. `looped` is True inside
    loops.
    """
    for op in region.ops:
        yield op, skipped
        for inner in op.regions:
            yield from _in_order(inner, looped or op.name in LOOPS, skipped or looped)


def unwritten_reads(module: Module) -> dict[int, Loc]:
    """Return the reads of Outs that certainly precede every write: the read's location by number of the argument.

    Reads under a condition on scalar arguments don't count: the caller may know that there are none.
    """
    kernel = module.kernel
    accesses = list(_in_order(kernel.body))
    read_values = {value for op, _ in accesses for value in _read_operands(op)}
    choices = [op for op, _ in accesses if op.name == "if" and _is_chosen_by_caller(kernel, op.operands[0])]
    optional = {op for choice in choices for region in choice.regions for op in region.walk()}
    found: dict[int, Loc] = {}
    for number, param in zip(kernel.attrs.get("arg_index", range(len(kernel.params))), kernel.params, strict=True):
        if not isinstance(param.type, Array) or param.type.access != "out":
            continue
        uses = ((op, skipped) for op, skipped in accesses if param in op.operands and op.name not in _NO_ACCESS)
        first, skipped = next(
            ((op, s) for op, s in uses if op.name != "load" or op.result in read_values), (None, True)
        )
        if first is None or skipped or first in optional or first.name not in _READS:
            continue
        if first.attrs.get("op") != "exchange" or first.result in read_values:
            found[number] = first.loc
    return found


def _is_chosen_by_caller(kernel: Function, value: Value) -> bool:
    """True if a value is computed from nothing but scalar parameters, extents and constants."""
    op = value.op
    if op is None:
        return value.owner is kernel.body
    if op.name in ("const", "extent"):
        return True
    return OPS[op.name].elementwise and all(_is_chosen_by_caller(kernel, operand) for operand in op.operands)


def _error(allocation: Op, read: Op, *, never: bool) -> CompileError:
    """Return the error for the load `read` of an array; `never` is True if no store to the array exists."""
    place = "shared memory" if allocation.name == "shared" else "a local array"
    when = "nothing is ever written to it" if never else "nothing was written to it before"
    hint = "store into each element that is read, first: s[i] = 0"
    if allocation.name == "shared":
        hint += ", then vk.barrier()"
    note = Note(allocation.loc, "it is made here")
    return CompileError(f"{place} is read, and {when}", read.loc, hint=hint, notes=(note,))
