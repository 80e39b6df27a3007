"""Property tests that find memory bugs without a reference: an out-of-bounds index, an unwritten element, a race.

Without a reference, a kernel is compared with itself: on other devices, with other workgroup sizes and orders.
"""

from __future__ import annotations

import inspect

import vkjit as vk

LANES = 32


@vk.kernel(over="y")
def differences(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    """Bug: the last element has no successor."""
    i = vk.global_id(0)
    y[i] = x[i + 1] - x[i]


@vk.kernel(groups=lambda y: y.shape[0] // LANES, local=LANES)
def scale(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    """Bug: sizes that aren't multiples of LANES need one more workgroup."""
    i = vk.global_id(0)
    y.put(i, 2.0 * x.get(i, pad=0))


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], LANES), local=LANES)
def last_positive(x: vk.In[vk.i32, "N"], place: vk.InOut[vk.i32, "1"]):
    """Bug: all invocations write the same element, so the result depends on their order."""
    i = vk.global_id(0)
    if i < x.shape[0] and x[i] > 0:
        place[0] = vk.i32(i)


def find(kernel: vk.Kernel, kind: str, text: str) -> vk.testing.CheckFailure:
    """Return the failure of a buggy kernel; check that it is reported at the line that contains `text`."""
    try:
        vk.testing.check_kernel(kernel, max_examples=60)
    except vk.testing.CheckFailure as failure:
        lines, first = inspect.getsourcelines(kernel.spec.fn)
        expected = first + next(i for i, line in enumerate(lines) if text in line)
        assert failure.kind == kind, failure
        assert expected in {loc.line for loc in failure.lines}, failure
        print(str(failure).split("as a program")[0])
        return failure
    raise AssertionError(f"the mistake in {kernel.name} was not found")


def main() -> None:
    assert find(differences, "sanitizer", "x[i + 1]").dims == {"N": 1}
    assert find(scale, "unwritten", "y.put").dims == {"N": 1}
    found = find(last_positive, "sanitizer", "place[0] =")
    assert found.dims["N"] >= 2, found  # two invocations take part


if __name__ == "__main__":
    main()
