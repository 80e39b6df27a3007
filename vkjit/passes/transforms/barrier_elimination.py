"""Remove redundant barriers.

Takes a kernel in normal form (see `ir.verify`) without calls::

    store %s, %i, %a                  store %s, %i, %a
    barrier                           barrier
    %t = add %u, %v : f32      ->     %t = add %u, %v : f32
    barrier
    %w = load %s, %j : f32            %w = load %s, %j : f32

A barrier orders the accesses of different invocations. Only visible operations matter for that: accesses to shared
arrays, accesses to global arrays of an alias class that the kernel writes (see `alias`), atomics and fences.

1. A barrier is removed if there is no visible operation on any path to it from the previous barrier,
2. or on any path to it from the kernel's start,
3. or on any path from it to the kernel's end.
4. All barriers are removed if the workgroup has a single invocation.

Paths in a loop include the back edge from the end of one iteration to the start of the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vkjit.ir.core import Function, Module, Op, Region
from vkjit.ir.ops import OPS, Effect
from vkjit.ir.rewrite import LOOPS
from vkjit.ir.types import Array

from ..analysis.alias import AliasClass, alias_class

__all__ = ["RemoveBarriers"]


@dataclass(frozen=True, slots=True)
class RemoveBarriers:
    """Remove barriers that order no memory accesses."""

    name: ClassVar[str] = "remove_barriers"

    def run(self, module: Module) -> Module:
        kernel = module.kernel
        if not any(op.name == "barrier" for op in kernel.body.walk()):
            return module
        removal = _Removal(kernel)
        if kernel.attrs["local_size"] == (1, 1, 1):
            removal.remove_all(kernel.body)  # rule 4
            return module
        removal.forward(kernel.body, clean=True)
        removal.backward(kernel.body)
        return module


class _Removal:
    """The rewrite of one kernel.

    `written` are the alias classes that the kernel writes. `visible_ops` has the visible operations and all operations
    with regions that contain one.
    """

    def __init__(self, kernel: Function) -> None:
        self.written: set[AliasClass] = {
            alias_class(op.operands[0])
            for op in kernel.body.walk()
            if OPS[op.name].effect in (Effect.WRITE, Effect.READ_WRITE)
        }
        self.visible_ops: set[Op] = set()
        self.collect_visible(kernel.body)

    def collect_visible(self, region: Region) -> bool:
        """Fill `visible_ops` for a region. Return True if the region contains a visible operation."""
        visible_inside = False
        for op in region.ops:
            inside = [self.collect_visible(inner) for inner in op.regions]
            if any(inside) or self.visible(op):
                self.visible_ops.add(op)
                visible_inside = True
        return visible_inside

    def visible(self, op: Op) -> bool:
        """True if barriers may have to order the operation with operations of other invocations.

        That is the case for accesses to shared arrays and to global arrays that the kernel writes, atomics, fences and
        calls.
        """
        effect = OPS[op.name].effect
        if op.name in ("fence", "call") or effect == Effect.READ_WRITE:
            return True
        if effect not in (Effect.READ, Effect.WRITE):
            return False
        array = op.operands[0].type
        assert isinstance(array, Array)
        return array.space == "shared" or (array.space == "global" and alias_class(op.operands[0]) in self.written)

    def remove_all(self, region: Region) -> None:
        region.ops = [op for op in region.ops if op.name != "barrier"]
        for op in region.ops:
            for inner in op.regions:
                self.remove_all(inner)

    def forward(self, region: Region, *, clean: bool) -> bool:
        """Apply rules 1 and 2 to a region.

        `clean` is True if there is no visible operation on any path to the region's start from the previous barrier or
        the kernel's start. Return True if that holds for the region's end.
        """
        kept: list[Op] = []
        for op in region.ops:
            if op.name == "barrier":
                if clean:
                    continue
                clean = True
            elif op.name == "if":
                ends = [self.forward(inner, clean=clean) for inner in op.regions]
                clean = all(ends)
            elif op.name in LOOPS:
                # An iteration follows the code before the loop or another iteration; so does the code after the loop.
                clean = clean and op not in self.visible_ops
                clean = self.forward(op.regions[0], clean=clean) and clean
            elif op in self.visible_ops:
                clean = False
            kept.append(op)
        region.ops = kept
        return clean

    def backward(self, region: Region) -> None:
        """Apply rule 3 to a region that is followed only by the kernel's end."""
        for position in range(len(region.ops) - 1, -1, -1):
            op = region.ops[position]
            if op.name == "barrier":
                del region.ops[position]
            elif op.name == "if":
                for inner in op.regions:
                    self.backward(inner)
            if op in self.visible_ops or op.name in LOOPS:  # barriers before it, or in the loop, may be needed
                return
