"""European option prices (Black-Scholes): a device function, math functions, two allocated and returned outputs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import vkjit as vk


@vk.func
def normal_cdf(x: vk.f32) -> Any:
    return 0.5 * vk.erfc(-x * 0.7071067811865476)


@vk.kernel(over="spot")
def black_scholes(
    spot: vk.In[vk.f32, "N"],
    strike: vk.In[vk.f32, "N"],
    years: vk.In[vk.f32, "N"],
    rate: vk.f32,
    volatility: vk.f32,
    call: vk.Out[vk.f32, "N"],
    put: vk.Out[vk.f32, "N"],
):
    i = vk.global_id(0)
    deviation = volatility * vk.sqrt(years[i])
    d1 = (vk.log(spot[i] / strike[i]) + (rate + 0.5 * volatility * volatility) * years[i]) / deviation
    d2 = d1 - deviation
    discounted = strike[i] * vk.exp(-rate * years[i])
    call[i] = spot[i] * normal_cdf(d1) - discounted * normal_cdf(d2)
    put[i] = discounted * normal_cdf(-d2) - spot[i] * normal_cdf(-d1)


def main(n: int = 20_000, rate: float = 0.02, volatility: float = 0.3) -> None:
    rng = np.random.default_rng(6)
    spot, strike = rng.uniform(5, 30, (2, n)).astype(np.float32)
    years = rng.uniform(0.25, 10, n).astype(np.float32)
    call, put = black_scholes(spot, strike, years, rate, volatility)
    s, k, t = (v.astype(np.float64) for v in (spot, strike, years))
    deviation = volatility * np.sqrt(t)
    d1 = (np.log(s / k) + (rate + 0.5 * volatility**2) * t) / deviation
    cdf = np.vectorize(lambda x: 0.5 * math.erfc(-x / math.sqrt(2)))
    discounted = k * np.exp(-rate * t)
    expected = s * cdf(d1) - discounted * cdf(d1 - deviation)
    # a few dozen roundings of terms as large as the spot price and the strike
    bound = 64 * 2.0**-24 * (s + k)
    assert np.all(np.abs(call - expected) <= bound)
    # put-call parity ties the second output to the first
    assert np.all(np.abs(call - put - (s - discounted)) <= 2 * bound)
    print(f"{n} options: largest error {np.abs(call - expected).max():.2e}")


if __name__ == "__main__":
    main()
