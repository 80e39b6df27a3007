"""Print the milliseconds of numba's first call of a parallel kernel minus those of the second."""

from __future__ import annotations

import sys
import time

import numpy as np

try:
    from numba import njit, prange
except ImportError:
    print("numba isn't installed")
    sys.exit(3)


@njit(parallel=True)
def warm_up(x, y):
    for i in prange(y.shape[0]):
        y[i] = x[i]


@njit(parallel=True)
def saxpy(a, x, y):
    for i in prange(y.shape[0]):
        y[i] = a * x[i] + y[i]


def main() -> None:
    x, y = np.ones(64, np.float32), np.zeros(64, np.float32)
    warm_up(x, y)
    times = []
    for _ in range(2):
        start = time.perf_counter()
        saxpy(np.float32(2), x, y)
        times.append(time.perf_counter() - start)
    print((times[0] - times[1]) * 1e3)


if __name__ == "__main__":
    main()
