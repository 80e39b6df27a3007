"""The Mandelbrot set: a while loop with a different trip count in every invocation."""

from __future__ import annotations

import sys

import numpy as np

import vkjit as vk


@vk.kernel(over="counts")
def mandelbrot(x0: vk.f32, y0: vk.f32, step: vk.f32, limit: vk.i32, counts: vk.InOut[vk.i32, "H W"]):
    row, column = vk.index()
    cx = x0 + step * vk.f32(column)
    cy = y0 + step * vk.f32(row)
    zx, zy = cx, cy
    n = 0
    while n < limit and zx * zx + zy * zy <= 4.0:
        zx, zy = zx * zx - zy * zy + cx, 2.0 * zx * zy + cy
        n += 1
    counts[row, column] = n


def reference(x0: float, y0: float, step: float, limit: int, shape: tuple[int, int]) -> np.ndarray:
    """Compute the same counts with NumPy, for all points at once."""
    rows, columns = np.meshgrid(np.arange(shape[0]), np.arange(shape[1]), indexing="ij")
    c = (np.float32(x0) + np.float32(step) * columns.astype(np.float32)) + 1j * (
        np.float32(y0) + np.float32(step) * rows.astype(np.float32)
    )
    z, counts = c.copy(), np.zeros(shape, np.int32)
    for _ in range(limit):
        inside = z.real**2 + z.imag**2 <= 4.0
        if not inside.any():
            break
        counts[inside] += 1
        z[inside] = z[inside] ** 2 + c[inside]
    return counts


def main(size: int = 200, limit: int = 60) -> None:
    counts = np.zeros((size, size), np.int32)
    step = 3.0 / size
    mandelbrot(-2.25, -1.5, step, limit, counts)
    expected = reference(-2.25, -1.5, step, limit, counts.shape)
    # points on the boundary of the set may differ due to rounding: f32 here, f64 in the reference
    different = float(np.mean(counts != expected))
    assert different < 0.02, f"{different:.1%} of the points differ"
    shades = " .:-=+*#%@"
    for row in counts[:: max(1, size // 24)]:
        line = row[:: max(1, size // 72)]
        print("".join(shades[int(v) * (len(shades) - 1) // limit] for v in line))
    print(f"mandelbrot {size}x{size}: {different:.2%} of the points differ from NumPy in double precision")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
