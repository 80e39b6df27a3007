"""The kernels of `cpu_kernels` in idiomatic numba: `njit(parallel=True)` with `prange`."""

from __future__ import annotations

import math

import numpy as np
from numba import njit, prange, set_num_threads


@njit(parallel=True, fastmath=True)
def mandelbrot(x0, y0, step, limit, counts):
    height, width = counts.shape
    for row in prange(height):
        for column in range(width):
            cx = x0 + step * np.float32(column)
            cy = y0 + step * np.float32(row)
            zx, zy = cx, cy
            n = 0
            while n < limit and zx * zx + zy * zy <= np.float32(4.0):
                zx, zy = zx * zx - zy * zy + cx, np.float32(2.0) * zx * zy + cy
                n += 1
            counts[row, column] = n


@njit(fastmath=True)
def normal_cdf(x):
    return np.float32(0.5) * np.float32(math.erfc(-x * np.float32(0.7071067811865476)))


@njit(parallel=True, fastmath=True)
def black_scholes(spot, strike, years, rate, volatility, call, put):
    half = np.float32(0.5)
    for i in prange(spot.shape[0]):
        deviation = volatility * math.sqrt(years[i])
        d1 = (math.log(spot[i] / strike[i]) + (rate + half * volatility * volatility) * years[i]) / deviation
        d2 = d1 - deviation
        discounted = strike[i] * math.exp(-rate * years[i])
        call[i] = spot[i] * normal_cdf(d1) - discounted * normal_cdf(d2)
        put[i] = discounted * normal_cdf(-d2) - spot[i] * normal_cdf(-d1)


@njit(parallel=True, fastmath=True)
def nbody(position, mass, softening, out):
    count = mass.shape[0]
    for i in prange(count):
        x, y, z = position[0, i], position[1, i], position[2, i]
        ax = ay = az = np.float32(0)
        for j in range(count):
            dx, dy, dz = position[0, j] - x, position[1, j] - y, position[2, j] - z
            inverse = np.float32(1) / math.sqrt(dx * dx + dy * dy + dz * dz + softening)
            force = mass[j] * inverse * inverse * inverse
            ax += force * dx
            ay += force * dy
            az += force * dz
        out[0, i] = ax
        out[1, i] = ay
        out[2, i] = az


@njit(parallel=True, fastmath=True)
def stencil(x, y):
    height, width = x.shape
    fifth = np.float32(0.2)
    for i in prange(1, height - 1):
        for j in range(1, width - 1):
            y[i, j] = fifth * (x[i, j] + x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1])


__all__ = ["black_scholes", "mandelbrot", "nbody", "set_num_threads", "stencil"]
