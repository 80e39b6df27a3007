"""Property tests of workgroup kernels: a sum that skips its last tile, a maximum with the wrong initial value.

Both kernels are correct for the sizes and values that one would try by hand.
"""

from __future__ import annotations

import inspect

import vkjit as vk

LANES = 32


@vk.kernel(groups=lambda x: x.shape[0], local=LANES)
def row_sums(x: vk.In[vk.f32, "R C"], y: vk.Out[vk.f32, "R"]):
    """Sum rows, one workgroup per row. Bug: columns after the last full tile are skipped."""
    partial = vk.shared(vk.f32, LANES)
    lane, row = vk.local_id(0), vk.group_id(0)
    acc = vk.f32(0)
    for tile in range(x.shape[1] // LANES):
        acc += x[row, tile * LANES + lane]
    partial[lane] = acc
    vk.barrier()
    width = LANES // 2
    while width > 0:
        if lane < width:
            partial[lane] += partial[lane + width]
        vk.barrier()
        width //= 2
    if lane == 0:
        y[row] = partial[0]


@vk.kernel(groups=lambda x: x.shape[0], local=LANES)
def row_sums_fixed(x: vk.In[vk.f32, "R C"], y: vk.Out[vk.f32, "R"]):
    partial = vk.shared(vk.f32, LANES)
    lane, row = vk.local_id(0), vk.group_id(0)
    acc = vk.f32(0)
    for column in range(lane, x.shape[1], LANES):
        acc += x[row, column]
    partial[lane] = acc
    vk.barrier()
    width = LANES // 2
    while width > 0:
        if lane < width:
            partial[lane] += partial[lane + width]
        vk.barrier()
        width //= 2
    if lane == 0:
        y[row] = partial[0]


@vk.kernel(over="y")
def row_max(x: vk.In[vk.f32, "R C"], y: vk.Out[vk.f32, "R"]):
    row = vk.global_id(0)
    best = vk.f32(0)  # bug: wrong for rows with only negative numbers
    for column in range(x.shape[1]):
        best = vk.max(best, x[row, column])
    y[row] = best


def find(kernel: vk.Kernel, reference, **settings) -> vk.testing.CheckFailure:
    """Return the failure of a buggy kernel."""
    try:
        vk.testing.check_kernel(kernel, reference, max_examples=60, **settings)
    except vk.testing.CheckFailure as failure:
        print(str(failure).split("as a program")[0])
        return failure
    raise AssertionError(f"the mistake in {kernel.name} was not found")


def line_of(kernel: vk.Kernel, text: str) -> int:
    """Return the number of the kernel's line that contains `text`."""
    lines, first = inspect.getsourcelines(kernel.spec.fn)
    return first + next(i for i, line in enumerate(lines) if text in line)


def main() -> None:
    failure = find(row_sums, lambda x: x.sum(axis=1))
    assert failure.dims == {"R": 1, "C": 1}, failure
    assert line_of(row_sums, "y[row] =") in {loc.line for loc in failure.lines}, failure

    # an empty row has no maximum, so C starts at 1
    failure = find(row_max, lambda x: x.max(axis=1), dims={"C": (1, None)})
    assert failure.dims == {"R": 1, "C": 1} and failure.arguments["x"][0, 0] < 0, failure
    assert line_of(row_max, "y[row] =") in {loc.line for loc in failure.lines}, failure

    print(vk.testing.check_kernel(row_sums_fixed, lambda x: x.sum(axis=1), max_examples=40))


if __name__ == "__main__":
    main()
