"""Mistakes with memory, found without a reference: an index out of bounds, an element that nobody writes, a race.

Where there is no reference, a kernel is compared with itself: on other devices, with other workgroup sizes and orders.
"""

from __future__ import annotations

import inspect

import vkjit as vk

LANES = 32


@vk.kernel(over="y")
def differences(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    """The mistake: the last element has no successor."""
    i = vk.global_id(0)
    y[i] = x[i + 1] - x[i]


@vk.kernel(groups=lambda y: y.shape[0] // LANES, local=LANES)
def scale(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    """The mistake: sizes that are no multiple of LANES need one workgroup more."""
    i = vk.global_id(0)
    y.put(i, 2.0 * x.get(i, pad=0))


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], LANES), local=LANES)
def last_positive(x: vk.In[vk.i32, "N"], place: vk.InOut[vk.i32, "1"]):
    """The mistake: all invocations write the same element, and the one that comes last stays."""
    i = vk.global_id(0)
    if i < x.shape[0] and x[i] > 0:
        place[0] = vk.i32(i)


def find(kernel: vk.Kernel, kind: str, text: str) -> vk.testing.CheckFailure:
    """The failure of a kernel that is known to have one, at the line that holds `text`."""
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
