"""A property test of a kernel: inputs generated from its signature, results compared with a line of NumPy.

For a kernel with a bug, the same test finds the smallest failing input.
"""

from __future__ import annotations

import inspect
from typing import TypeVar

import numpy as np

import vkjit as vk

T = TypeVar("T", bound=vk.Element)


@vk.kernel(over="y")
def saxpy(a: T, x: vk.In[T, "N"], y: vk.InOut[T, "N"]):
    i = vk.global_id(0)
    y[i] = a * x[i] + y[i]


@vk.kernel(over="y")
def shifted_saxpy(a: T, x: vk.In[T, "N"], y: vk.InOut[T, "N"]):
    i = vk.global_id(0)
    y[i] = a * x[vk.max(i - 1, 0)] + y[i]  # bug: reads the x of the previous element


# pytest collects these; the decorated function is the reference
@vk.testing.check(saxpy, max_examples=40, dtypes=[vk.f32, vk.i32, vk.f16])
def test_saxpy(a, x, y):
    return a * x + y


@vk.testing.check(shifted_saxpy, max_examples=40, dtypes=[vk.f32])
def test_shifted_saxpy(a, x, y):
    return a * x + y


def line_of(kernel: vk.Kernel, text: str) -> int:
    """Return the number of the kernel's line that contains `text`."""
    lines, first = inspect.getsourcelines(kernel.spec.fn)
    return first + next(i for i, line in enumerate(lines) if text in line)


def main() -> None:
    test_saxpy()
    print("saxpy agrees with NumPy on every input tried")
    try:
        test_shifted_saxpy()
    except vk.testing.CheckFailure as failure:
        # two elements are the smallest failing size: the second one reads the x of the first one
        assert failure.dims == {"N": 2} and failure.index == (1,), failure
        assert sorted(np.abs(failure.arguments["x"])) == [0, 1], failure
        assert line_of(shifted_saxpy, "y[i] = ") in {loc.line for loc in failure.lines}, failure
        print(str(failure).split("as a program")[0])
    else:
        raise AssertionError("the mistake was not found")


if __name__ == "__main__":
    main()
