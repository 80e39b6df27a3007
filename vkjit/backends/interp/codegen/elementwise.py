"""Operations that compute each invocation from its own operands: constants, arithmetic, conversions, vectors, ids.

Meanings come from the op table; this file adds what NumPy lacks: rounding to bf16, and components of vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.errors import KernelError, KernelZeroDivisionError, Loc
from vkjit.ir import semantics
from vkjit.ir.core import Op
from vkjit.ir.ops import OPS, OpName

from .compile import BATCH, Frame, FunctionCompiler, Step, plain
from .values import Lanes, Mask, element_type, literal, poison

__all__ = ["meaning_of"]


def meaning_of(name: OpName, dtype: DType) -> Callable[..., Lanes]:
    """The NumPy function of an operation whose result is of `dtype`."""
    meaning = _FASTER.get(name) or OPS[name].meaning
    assert meaning is not None
    if dtype is not dtypes.bf16 or name in ("select", "neg", "abs"):
        return meaning
    exact: Callable[..., Lanes] = meaning
    return lambda *operands: semantics.to_bf16(exact(*operands))


def _float_min(x: Lanes, y: Lanes) -> Lanes:
    lower = np.minimum(x, y)
    if lower.dtype.kind != "f":
        return lower
    zero = lower == 0
    # only zeros can be ordered wrongly: of two zeros, the negative one
    return np.where(zero & (x == y), -(-x + -y), lower) if zero.any() else lower


def _float_max(x: Lanes, y: Lanes) -> Lanes:
    upper = np.maximum(x, y)
    if upper.dtype.kind != "f":
        return upper
    zero = upper == 0
    return np.where(zero & (x == y), x + y, upper) if zero.any() else upper


_FASTER: dict[OpName, Callable[..., Lanes]] = {"min": _float_min, "max": _float_max}
"""The same meanings with less work; a test compares them with the table's."""


def _apply(function: Callable[..., Lanes], sources: list[int], target: int) -> Step:
    if len(sources) == 1:
        (a,) = sources

        def unary(frame: Frame, _mask: Mask) -> None:
            frame[target] = function(frame[a])

        return unary
    if len(sources) == 2:
        a, b = sources

        def binary(frame: Frame, _mask: Mask) -> None:
            frame[target] = function(frame[a], frame[b])

        return binary

    def general(frame: Frame, _mask: Mask) -> None:
        frame[target] = function(*(frame[slot] for slot in sources))

    return general


_DIVISIONS: frozenset[OpName] = frozenset({"floordiv", "floormod", "truncdiv", "truncrem"})


def _elementwise(compiler: FunctionCompiler, op: Op) -> Step:
    function, dtype = meaning_of(op.name, element_type(op.result.type)), element_type(op.result.type)
    sources, target = compiler.slots(op.operands), compiler.define(op.result)
    step = _apply(function, sources, target)
    if op.name in _DIVISIONS and dtype.is_integer and compiler.program.module.kernel.attrs.get("debug"):
        return _reporting_zeros(step, sources, op.loc)
    return step


def _reporting_zeros(step: Step, sources: list[int], loc: Loc) -> Step:
    """The division, and before it the error about a divisor that is 0."""
    dividend, divisor = sources

    def checked(frame: Frame, mask: Mask) -> None:
        zero = frame[divisor] == 0
        if zero.any():
            batch = frame[BATCH]
            bad = zero.reshape(-1, *zero.shape[-2:]).any(axis=0)
            found = batch.active(mask, bad)
            if found:
                row, column = found[0]
                value = batch.full(frame[dividend])[..., row, column].ravel()[0]
                message = f"integer division by zero: {value} divided by 0"
                raise batch.error(KernelZeroDivisionError, message, loc, bad if mask is None else bad & mask)
        step(frame, mask)

    return checked


plain(*(name for name, row in OPS.items() if row.meaning is not None))(_elementwise)


@plain("const")
def _const(compiler: FunctionCompiler, op: Op) -> None:
    compiler.constant(op.result, literal(op.attrs["value"], op.attrs["type"]))


@plain("poison")
def _poison(compiler: FunctionCompiler, op: Op) -> None:
    compiler.constant(op.result, poison(op.attrs["type"]))


@plain("cast")
def _cast(compiler: FunctionCompiler, op: Op) -> Step:
    source, target = element_type(op.operands[0].type), element_type(op.attrs["type"])
    if source is target or (source.numpy == target.numpy and not target.is_float):
        return _apply(lambda x: x, compiler.slots(op.operands), compiler.define(op.result))
    return _apply(lambda x: semantics.cast(x, source, target), compiler.slots(op.operands), compiler.define(op.result))


@plain("bitcast")
def _bitcast(compiler: FunctionCompiler, op: Op) -> Step:
    source, target = element_type(op.operands[0].type), element_type(op.attrs["type"])

    def reinterpret(value: Lanes) -> Lanes:
        raw = (value.view(np.uint32) >> np.uint32(16)).astype(np.uint16) if source is dtypes.bf16 else value
        raw = raw.view(target.storage)
        return (raw.astype(np.uint32) << np.uint32(16)).view(np.float32) if target is dtypes.bf16 else raw

    return _apply(reinterpret, compiler.slots(op.operands), compiler.define(op.result))


@plain("extract_word")
def _extract_word(compiler: FunctionCompiler, op: Op) -> Step:
    shift = np.uint64(32 * op.attrs["lane"])
    return _apply(
        lambda x: (x.view(np.uint64) >> shift).astype(np.uint32),
        compiler.slots(op.operands),
        compiler.define(op.result),
    )


@plain("join_words")
def _join_words(compiler: FunctionCompiler, op: Op) -> Step:
    target = element_type(op.attrs["type"]).numpy

    def join(low: Lanes, high: Lanes) -> Lanes:
        value: Lanes = (high.astype(np.uint64) << np.uint64(32) | low).view(target)
        return value

    return _apply(join, compiler.slots(op.operands), compiler.define(op.result))


@plain("vec_make")
def _vec_make(compiler: FunctionCompiler, op: Op) -> Step:
    def make(*parts: Lanes) -> Lanes:
        return np.stack(np.broadcast_arrays(*parts))

    sources, target = compiler.slots(op.operands), compiler.define(op.result)

    def step(frame: Frame, _mask: Mask) -> None:
        frame[target] = make(*(frame[slot] for slot in sources))

    return step


@plain("vec_extract")
def _vec_extract(compiler: FunctionCompiler, op: Op) -> Step:
    lane = op.attrs["lane"]
    return _apply(lambda x: x[lane], compiler.slots(op.operands), compiler.define(op.result))


@plain("vec_insert")
def _vec_insert(compiler: FunctionCompiler, op: Op) -> Step:
    lane = op.attrs["lane"]

    def insert(vector: Lanes, part: Lanes) -> Lanes:
        shape = np.broadcast_shapes(vector.shape[1:], part.shape)
        made = np.array(np.broadcast_to(vector, (len(vector), *shape)))
        made[lane] = part
        return made

    return _apply(insert, compiler.slots(op.operands), compiler.define(op.result))


@plain("global_id", "local_id", "group_id", "num_groups", "local_size")
@plain("lane_id", "subgroup_id", "subgroup_size", "num_subgroups")
def _id(compiler: FunctionCompiler, op: Op) -> Step:
    name, dim, target = op.name, op.attrs.get("dim", 0), compiler.define(op.result)

    def step(frame: Frame, _mask: Mask) -> None:
        frame[target] = frame[BATCH].id(name, dim)

    return step


@plain("assume_uniform")
def _assume_uniform(compiler: FunctionCompiler, op: Op) -> Step:
    (source,), target, loc = compiler.slots(op.operands), compiler.define(op.result), op.loc

    def keep(frame: Frame, _mask: Mask) -> None:
        frame[target] = frame[source]

    def check(frame: Frame, mask: Mask) -> None:
        value = frame[target] = frame[source]
        if value.shape[-1] == 1:
            return
        batch = frame[BATCH]
        wide = np.reshape(batch.full(value), (-1, batch.count, batch.size))
        active = np.ones((1, 1), dtype=np.bool_) if mask is None else mask
        first = np.argmax(np.broadcast_to(active, (batch.count, batch.size)), axis=1)
        leader = wide[:, np.arange(batch.count), first][:, :, None]
        differs = np.any((wide != leader) & ~((wide != wide) & (leader != leader)), axis=0) & active
        if differs.any():
            raise batch.error(KernelError, "assume_uniform: the value differs within the workgroup", loc, differs)

    debug: Any = compiler.program.module.kernel.attrs.get("debug")
    return check if debug else keep
