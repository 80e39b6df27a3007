"""Random numbers by the counter-based generator Philox: uniform, normal, integers and Bernoulli.

Results are equal on every device; normal ones up to the rounding of log, sin and cos. Kernels take a seed, the first
counter and the distribution's parameters, and write y, four elements per invocation, each four from one counter.
"""

from __future__ import annotations

from typing import TypeVar

import vkjit as vk

__all__ = ["bernoulli", "integers", "normal", "uniform", "uniform_f64"]

T = TypeVar("T", bound=vk.Element)
P = TypeVar("P", bound=vk.Element)

LOCAL = 64
TO_UNIT = 2.0**-24
TO_UNIT_53 = 2.0**-53
TWO_PI = 6.283185307179586


@vk.kernel(groups=lambda y: vk.cdiv(y.shape[0], 4 * LOCAL), local=LOCAL, debug=False)
def uniform(y: vk.Out[T, "N"], seed: vk.u64, counter: vk.u64, low: vk.f32, span: vk.f32, BITS: vk.Const[int]):
    """y = low + span * u, with u a multiple of 2 ** -BITS in [0, 1)."""
    e = vk.global_id(0)
    drawn = vk.philox(seed, counter + vk.u64(e))
    for i in vk.unroll(4):
        if 4 * e + i < y.shape[0]:
            y[4 * e + i] = T(low + span * (vk.f32(drawn[i] >> (32 - BITS)) * 2.0**-BITS))


@vk.kernel(groups=lambda y: vk.cdiv(y.shape[0], 4 * LOCAL), local=LOCAL, debug=False)
def uniform_f64(y: vk.Out[vk.f64, "N"], seed: vk.u64, counter: vk.u64, low: vk.f64, span: vk.f64):
    """y = low + span * u, with u a multiple of 2 ** -53 in [0, 1)."""
    e = vk.global_id(0)
    first = vk.philox(seed, counter + vk.u64(e))
    second = vk.philox(seed, counter + vk.u64(e), 1)
    for i in vk.unroll(4):
        if 4 * e + i < y.shape[0]:
            word = (vk.u64(first[i]) << 21) ^ vk.u64(second[i] >> 11)
            y[4 * e + i] = low + span * (vk.f64(word) * TO_UNIT_53)


@vk.kernel(groups=lambda y: vk.cdiv(y.shape[0], 4 * LOCAL), local=LOCAL, debug=False)
def normal(y: vk.Out[T, "N"], seed: vk.u64, counter: vk.u64, mean: vk.f32, deviation: vk.f32):
    """y = mean + deviation * z, with z of mean 0 and variance 1, by the Box-Muller transform."""
    e = vk.global_id(0)
    drawn = vk.philox(seed, counter + vk.u64(e))
    for pair in vk.unroll(2):
        radius = vk.sqrt(-2 * vk.log((vk.f32(drawn[2 * pair] >> 8) + 1) * TO_UNIT))
        angle = vk.f32(drawn[2 * pair + 1] >> 8) * TO_UNIT * TWO_PI
        at = 4 * e + 2 * pair
        if at < y.shape[0]:
            y[at] = T(mean + deviation * radius * vk.cos(angle))
        if at + 1 < y.shape[0]:
            y[at + 1] = T(mean + deviation * radius * vk.sin(angle))


@vk.kernel(groups=lambda y: vk.cdiv(y.shape[0], 4 * LOCAL), local=LOCAL, debug=False)
def integers(y: vk.Out[T, "N"], seed: vk.u64, counter: vk.u64, low: vk.i64, span: vk.u64):
    """y = low + w % span, with w a 64-bit random integer; a span of 0 stands for 2 ** 64. The bias is at most span / 2
    ** 64.
    """
    e = vk.global_id(0)
    first = vk.philox(seed, counter + vk.u64(e))
    second = vk.philox(seed, counter + vk.u64(e), 1)
    for i in vk.unroll(4):
        if 4 * e + i < y.shape[0]:
            word = (vk.u64(first[i]) << 32) | vk.u64(second[i])
            y[4 * e + i] = T(low + vk.i64(vk.where(span == 0, word, word % vk.max(span, 1))))


@vk.kernel(groups=lambda y: vk.cdiv(y.shape[0], 4 * LOCAL), local=LOCAL, debug=False)
def bernoulli(probability: vk.In[P, "N"], y: vk.Out[T, "N"], seed: vk.u64, counter: vk.u64):
    """Bernoulli samples: y = 1 with probability `probability` of the same index, else 0."""
    e = vk.global_id(0)
    drawn = vk.philox(seed, counter + vk.u64(e))
    for i in vk.unroll(4):
        if 4 * e + i < y.shape[0]:
            y[4 * e + i] = T(vk.f32(drawn[i] >> 8) * TO_UNIT < vk.f32(probability[4 * e + i]))
