"""Stores past the caches, for results that are larger than these.

Enters: a kernel; vectors to be stored side by side. Leaves: for what a large launch writes once, stores that don't read the
lines of memory before they write them, behind a question for the launch's size and the place's alignment. Holds: a function
ends with a fence where it may have stored so, since such stores are ordered by nothing else.
"""

from __future__ import annotations

from vkjit.ir.core import Function, Op, Region, Value
from vkjit.ir.ops import OPS, Effect
from vkjit.ir.types import Array

from .context import Generator
from .llvm_text import bytes_of

__all__ = ["NONTEMPORAL", "begin_nontemporal", "end_nontemporal", "store_past_caches", "streamed_stores"]

NONTEMPORAL = "!2 = !{i32 1}"
"""The metadata that such stores name."""
_LARGE = 32 << 20
"""Bytes that one store of a kernel has to write in a launch."""
_WHOLE = 32
"""Bytes of a vector from which few of them fill a line."""


def streamed_stores(kernel: Function) -> set[Op]:
    """The stores that run once per invocation, to arrays that the kernel doesn't read."""
    if any(op.name == "barrier" for op in kernel.body.walk()):
        return set()
    read: set[Value] = set()
    for op in kernel.body.walk():
        if OPS[op.name].effect in (Effect.READ, Effect.READ_WRITE) and op.operands:
            read.add(_root(op.operands[0]))
    return set(_stores(kernel.body, read))


def _stores(region: Region, read: set[Value]) -> list[Op]:
    found: list[Op] = []
    for op in region.ops:
        if op.name == "if":
            for inner in op.regions:
                found += _stores(inner, read)
        elif op.name == "store":
            array = op.operands[0].type
            if isinstance(array, Array) and array.space == "global" and _root(op.operands[0]) not in read:
                found.append(op)
    return found


def _root(array: Value) -> Value:
    while (op := array.op) is not None and op.name == "linear":
        array = op.operands[0]
    return array


def begin_nontemporal(g: Generator) -> None:
    """Computes, once per call, how many invocations the launch has."""
    if g.family != "x86_64" or not g.streamed:
        return
    text = g.text
    groups = text.op(f"mul i64 {text.op('mul i64 %x, %y')}, %z")
    g.invocations = text.op(f"mul i64 {groups}, {g.geometry.total}")


def store_past_caches(g: Generator, op: Op, whole: str, part: str, pointer: str, tags: str) -> bool:
    """Writes the store of a full vector in both ways; False where there is only the usual one."""
    size = bytes_of(whole)
    if not g.invocations or op not in g.streamed or size < _WHOLE:
        return False
    text = g.text
    least = _LARGE // (size // g.width)
    large = text.op(f"icmp uge i64 {g.invocations}, {least}")
    place = text.op(f"and i64 {text.op(f'ptrtoint ptr {pointer} to i64')}, {size - 1}")
    past, through, join = (text.new_label(hint) for hint in ("past", "through", "stored"))
    text.branch(text.op(f"and i1 {large}, {text.op(f'icmp eq i64 {place}, 0')}"), past, through)
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
    """The fence, at the function's end."""
    if g.fenced:
        g.text.run("llvm.x86.sse.sfence")
