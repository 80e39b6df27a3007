"""Nontemporal stores, for results that exceed the caches.

In large launches, stores that run at most once per invocation, to arrays that the kernel doesn't read, bypass the caches
and so don't fetch the cache lines that they overwrite. A branch on the launch's size and on the address's alignment
selects them at run time. They are weakly ordered on x86, so a function that may have executed one ends with a fence.
"""

from __future__ import annotations

from vkjit.ir.core import Function, Op, Region, Value
from vkjit.ir.ops import OPS, Effect
from vkjit.ir.types import Array

from .context import Generator
from .llvm_text import bytes_of

__all__ = ["NONTEMPORAL", "begin_nontemporal", "end_nontemporal", "store_past_caches", "streamed_stores"]

NONTEMPORAL = "!2 = !{i32 1}"
"""Definition of the metadata node that `!nontemporal` refers to."""
_MIN_BYTES = 32 << 20
"""Minimum number of bytes that one store operation of the kernel writes in a launch, over all invocations."""
_MIN_VECTOR_BYTES = 32
"""Minimum size of a vector in bytes: one or two of them fill a cache line."""


def streamed_stores(kernel: Function) -> set[Op]:
    """Return the stores outside of loops to global arrays that the kernel doesn't read; none if it has barriers."""
    if any(op.name == "barrier" for op in kernel.body.walk()):
        return set()
    read: set[Value] = set()
    for op in kernel.body.walk():
        if OPS[op.name].effect in (Effect.READ, Effect.READ_WRITE) and op.operands:
            read.add(_root(op.operands[0]))
    return set(_stores(kernel.body, read))


def _stores(region: Region, read: set[Value]) -> list[Op]:
    stores: list[Op] = []
    for op in region.ops:
        if op.name == "if":
            for inner in op.regions:
                stores += _stores(inner, read)
        elif op.name == "store":
            array = op.operands[0].type
            if isinstance(array, Array) and array.space == "global" and _root(op.operands[0]) not in read:
                stores.append(op)
    return stores


def _root(array: Value) -> Value:
    while (op := array.op) is not None and op.name == "linear":
        array = op.operands[0]
    return array


def begin_nontemporal(g: Generator) -> None:
    """Emit the number of the launch's invocations, in the function's first block; on x86-64 only."""
    if g.family != "x86_64" or not g.streamed:
        return
    text = g.text
    groups = text.op(f"mul i64 {text.op('mul i64 %x, %y')}, %z")
    g.invocations = text.op(f"mul i64 {groups}, {g.geometry.total}")


def store_past_caches(g: Generator, op: Op, whole: str, part: str, pointer: str, tags: str) -> bool:
    """Emit a store of a full vector, nontemporal or ordinary by a run-time test.

    Emits nothing and returns False if the store can't be nontemporal.
    """
    size = bytes_of(whole)
    if not g.invocations or op not in g.streamed or size < _MIN_VECTOR_BYTES:
        return False
    text = g.text
    min_invocations = _MIN_BYTES // (size // g.width)
    large = text.op(f"icmp uge i64 {g.invocations}, {min_invocations}")
    misalignment = text.op(f"and i64 {text.op(f'ptrtoint ptr {pointer} to i64')}, {size - 1}")
    past, through, join = (text.new_label(hint) for hint in ("past", "through", "stored"))
    text.branch(text.op(f"and i1 {large}, {text.op(f'icmp eq i64 {misalignment}, 0')}"), past, through)
    text.label(past)
    text.do(f"store {whole} {part}, ptr {pointer}, align {size}, !nontemporal !2{tags}")
    text.jump(join)
    text.label(through)
    text.do(f"store {whole} {part}, ptr {pointer}, align {size // g.width}{tags}")
    text.jump(join)
    text.label(join)
    g.fenced = True
    return True


def end_nontemporal(g: Generator) -> None:
    """Emit the fence at the function's end."""
    if g.fenced:
        g.text.run("llvm.x86.sse.sfence")
