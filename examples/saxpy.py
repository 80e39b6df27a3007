"""The smallest kernel: y = a * x + y, one invocation per element."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

import vkjit as vk

T = TypeVar("T", bound=vk.Element)


@vk.kernel(over="y")
def saxpy(a: T, x: vk.In[T, "N"], y: vk.InOut[T, "N"]):
    i = vk.global_id(0)
    y[i] = a * x[i] + y[i]


def main(n: int = 1_000_003) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, n), dtype=np.float32)
    expected = 2.0 * x + y
    saxpy(2.0, x, y)
    # one rounding (fused) or two: the error is at most one ULP of the largest term
    np.testing.assert_allclose(y, expected, rtol=2e-7, atol=1e-6)
    print(f"saxpy over {n} elements: right")


if __name__ == "__main__":
    main()
