"""Random numbers: the counter-based generator Philox-4x32-10, expanded to operations on u32 and u64.

Its key is the seed; its 128-bit counter consists of the user's 64-bit counter, 32 bits of the stream number, and zeros.
Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

import math

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.ir.core import Value
from vkjit.ir.types import Scalar
from vkjit.lang import random

from ..context import Call, Context
from ..intrinsics import lowers
from ..kernel_values import KernelValue, Lazy, describe_value, is_literal, is_scalar
from ..values.conversions import as_exactly, numeric
from .casts import cast_value

__all__: list[str] = []

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
"""The constants by which two words of the counter are multiplied in each round."""
_WEYL = (0x9E3779B9, 0xBB67AE85)
"""The constants added to the two words of the key in each round."""
ROUNDS = 10
"""The number of Philox rounds."""


def _words(ctx: Context, call: Call, value: KernelValue, what: str) -> tuple[Value, Value]:
    """Return the low and high u32 words of an integer of up to 64 bits; `what` names it in messages."""
    if isinstance(value, Lazy):
        raise ctx.error(call.node, f"{what} must be an integer, found {describe_value(value)}")
    numeric(ctx, call.node, value, f"an integer as {what}")
    b, u32 = ctx.builder, Scalar(dtypes.u32)
    if is_literal(value):
        if isinstance(value, bool | float):
            raise ctx.error(call.node, f"{what} must be an integer, found {value!r}")
        return b.const(value & 0xFFFFFFFF, u32), b.const((value >> 32) & 0xFFFFFFFF, u32)
    if not is_scalar(value) or not value.type.dtype.is_integer:  # type: ignore[attr-defined]
        raise ctx.error(call.node, f"{what} must be an integer, found {describe_value(value)}")
    wide = b.cast(value, dtypes.u64)
    return b.cast(wide, dtypes.u32), b.cast(_high_word(ctx, wide), dtypes.u32)


def _high_word(ctx: Context, wide: Value) -> Value:
    """Emit the upper 32 bits of a u64, as a u64."""
    return ctx.builder.emit("shr", wide, ctx.builder.const(32, dtypes.u64))


def _product(ctx: Context, value: Value, multiplier: int) -> tuple[Value, Value]:
    """Return the high and low u32 words of the 64-bit product of a u32 value and a constant."""
    b = ctx.builder
    wide = b.emit("mul", b.cast(value, dtypes.u64), b.const(multiplier, dtypes.u64))
    return b.cast(_high_word(ctx, wide), dtypes.u32), b.cast(wide, dtypes.u32)


def philox(ctx: Context, call: Call, seed: KernelValue, counter: KernelValue, stream: KernelValue) -> list[Value]:
    """Emit the four random u32 words for a seed, a counter and a stream number."""
    b = ctx.builder
    key = list(_words(ctx, call, seed, "the seed"))
    low, high = _words(ctx, call, counter, "the counter")
    state = [low, high, _words(ctx, call, stream, "the stream")[0], b.const(0, dtypes.u32)]
    for step in range(ROUNDS):
        if step:
            key = [b.emit("add", k, b.const(w, dtypes.u32)) for k, w in zip(key, _WEYL, strict=True)]
        high0, low0 = _product(ctx, state[0], _MULTIPLIERS[0])
        high1, low1 = _product(ctx, state[2], _MULTIPLIERS[1])
        first = b.emit("xor", b.emit("xor", high1, state[1]), key[0])
        third = b.emit("xor", b.emit("xor", high0, state[3]), key[1])
        state = [first, low1, third, low0]
    return state


def _unit_float(ctx: Context, word: Value) -> Value:
    """Emit a uniform f32 in [0, 1) from the upper 24 bits of a word."""
    b = ctx.builder
    bits = b.emit("shr", word, b.const(8, dtypes.u32))
    return b.emit("mul", b.cast(bits, dtypes.f32), b.const(2.0**-24, dtypes.f32))


@lowers(random.philox)
def _philox(ctx: Context, call: Call, seed: KernelValue, counter: KernelValue, stream: KernelValue) -> KernelValue:
    return tuple(philox(ctx, call, seed, counter, stream))


@lowers(random.rand)
def _rand(ctx: Context, call: Call, seed: KernelValue, counter: KernelValue, stream: KernelValue) -> KernelValue:
    return _unit_float(ctx, philox(ctx, call, seed, counter, stream)[0])


@lowers(random.randn)
def _randn(ctx: Context, call: Call, seed: KernelValue, counter: KernelValue, stream: KernelValue) -> KernelValue:
    """Lower `vk.randn` by the Box-Muller transform: sqrt(-2 ln u) cos(2 pi v), with u in (0, 1] and v in [0, 1)."""
    b = ctx.builder
    first, second, *_ = philox(ctx, call, seed, counter, stream)
    u = b.emit("sub", b.const(1.0, dtypes.f32), _unit_float(ctx, first))
    radius = b.emit("sqrt", b.emit("mul", b.const(-2.0, dtypes.f32), b.emit("log", u)))
    angle = b.emit("mul", b.const(_nearest_f32(2 * math.pi), dtypes.f32), _unit_float(ctx, second))
    return b.emit("mul", radius, b.emit("cos", angle))


def _nearest_f32(value: float) -> float:
    """Round a number to f32."""
    return float(dtypes.f32.numpy.type(value))


@lowers(random.randint)
def _randint(
    ctx: Context,
    call: Call,
    seed: KernelValue,
    counter: KernelValue,
    low: KernelValue,
    high: KernelValue,
    stream: KernelValue,
) -> KernelValue:
    """Lower `vk.randint`: low + the upper 32 bits of word * (high - low), for a random 32-bit word."""
    b = ctx.builder
    dtype: DType = dtypes.i32
    start = as_exactly(ctx, call.node, low, dtype, "low")
    stop = as_exactly(ctx, call.node, high, dtype, "high")
    span = b.cast(b.cast(b.emit("sub", stop, start), dtypes.u32), dtypes.u64)
    word = b.cast(philox(ctx, call, seed, counter, stream)[0], dtypes.u64)
    offset = _high_word(ctx, b.emit("mul", word, span))
    return b.emit("add", start, cast_value(ctx, call.node, offset, dtype))
