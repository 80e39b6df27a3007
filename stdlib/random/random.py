"""Random numbers by the counter-based generator Philox: uniform, normal, integers and Bernoulli.

`vkjit.tensor.ops.random` launches these kernels. Philox maps a seed and a counter to random words. Invocation e of a
kernel uses the counter `counter` + e for the four elements of y from 4 e on, so results are reproducible, and equal on
every device, except that normal numbers depend on the rounding of log, sin and cos. T is the type of y, P that of
probabilities.
"""

from __future__ import annotations

from typing import TypeVar

import vkjit as vk

__all__ = ["bernoulli", "integers", "normal", "uniform", "uniform_f64"]

T = TypeVar("T", bound=vk.Element)
P = TypeVar("P", bound=vk.Element)

LOCAL = 64
"""Invocations of a workgroup."""
TO_UNIT = 2.0**-24
"""Scales 24 random bits, as many as an f32 represents exactly, to [0, 1)."""
TO_UNIT_53 = 2.0**-53
"""Scales 53 random bits, as many as an f64 represents exactly, to [0, 1)."""
TWO_PI = 6.283185307179586


# debug=False: no bounds checks, even in debug mode and on CPUs, since indices are in range or checked by the kernels
@vk.kernel(groups=lambda y: vk.cdiv(y.shape[0], 4 * LOCAL), local=LOCAL, debug=False)
def uniform(y: vk.Out[T, "N"], seed: vk.u64, counter: vk.u64, low: vk.f32, span: vk.f32, BITS: vk.Const[int]):
    """y = low + span * u, with u a random multiple of 2 ** -BITS in [0, 1).

    BITS is the number of random bits, few enough that rounding to the type of y can't yield 1.
    """
    e = vk.global_id(0)
    words = vk.philox(seed, counter + vk.u64(e))
    for i in vk.unroll(4):
        if 4 * e + i < y.shape[0]:
            y[4 * e + i] = T(low + span * (vk.f32(words[i] >> (32 - BITS)) * 2.0**-BITS))


@vk.kernel(groups=lambda y: vk.cdiv(y.shape[0], 4 * LOCAL), local=LOCAL, debug=False)
def uniform_f64(y: vk.Out[vk.f64, "N"], seed: vk.u64, counter: vk.u64, low: vk.f64, span: vk.f64):
    """y = low + span * u, with u a random multiple of 2 ** -53 in [0, 1)."""
    e = vk.global_id(0)
    # each of the four elements takes two words: one of each call
    first = vk.philox(seed, counter + vk.u64(e))
    second = vk.philox(seed, counter + vk.u64(e), 1)
    for i in vk.unroll(4):
        if 4 * e + i < y.shape[0]:
            word = (vk.u64(first[i]) << 21) ^ vk.u64(second[i] >> 11)  # 53 bits: 32 of one word and 21 of another
            y[4 * e + i] = low + span * (vk.f64(word) * TO_UNIT_53)


@vk.kernel(groups=lambda y: vk.cdiv(y.shape[0], 4 * LOCAL), local=LOCAL, debug=False)
def normal(y: vk.Out[T, "N"], seed: vk.u64, counter: vk.u64, mean: vk.f32, deviation: vk.f32):
    """y = mean + deviation * z, with z of mean 0 and variance 1, by the Box-Muller transform."""
    e = vk.global_id(0)
    words = vk.philox(seed, counter + vk.u64(e))
    for pair in vk.unroll(2):
        # 1 is added so that the logarithm's argument is in (0, 1]
        radius = vk.sqrt(-2 * vk.log((vk.f32(words[2 * pair] >> 8) + 1) * TO_UNIT))
        angle = vk.f32(words[2 * pair + 1] >> 8) * TO_UNIT * TWO_PI
        index = 4 * e + 2 * pair
        if index < y.shape[0]:
            y[index] = T(mean + deviation * radius * vk.cos(angle))
        if index + 1 < y.shape[0]:
            y[index + 1] = T(mean + deviation * radius * vk.sin(angle))


@vk.kernel(groups=lambda y: vk.cdiv(y.shape[0], 4 * LOCAL), local=LOCAL, debug=False)
def integers(y: vk.Out[T, "N"], seed: vk.u64, counter: vk.u64, low: vk.i64, span: vk.u64):
    """y = low + w % span, with w a random 64-bit integer. A span of 0 stands for 2 ** 64.

    The bias that the modulo causes is at most span / 2 ** 64.
    """
    e = vk.global_id(0)
    first = vk.philox(seed, counter + vk.u64(e))
    second = vk.philox(seed, counter + vk.u64(e), 1)
    for i in vk.unroll(4):
        if 4 * e + i < y.shape[0]:
            word = (vk.u64(first[i]) << 32) | vk.u64(second[i])
            # `max` avoids a remainder by 0 where it isn't selected
            y[4 * e + i] = T(low + vk.i64(vk.where(span == 0, word, word % vk.max(span, 1))))


@vk.kernel(groups=lambda y: vk.cdiv(y.shape[0], 4 * LOCAL), local=LOCAL, debug=True)
def bernoulli(probability: vk.In[P, "N"], y: vk.Out[T, "N"], seed: vk.u64, counter: vk.u64):
    """y[n] = 1 with probability probability[n], else 0."""
    e = vk.global_id(0)
    words = vk.philox(seed, counter + vk.u64(e))
    for i in vk.unroll(4):
        if 4 * e + i < y.shape[0]:
            p = vk.f32(probability[4 * e + i])
            assert 0 <= p <= 1, f"bernoulli: {p} is no probability, expected 0 to 1"
            y[4 * e + i] = T(vk.f32(words[i] >> 8) * TO_UNIT < p)
