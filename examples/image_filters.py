"""Image filters: separable blur through shared memory, Sobel edges, bilinear resize."""

from __future__ import annotations

from typing import Any

import numpy as np

import vkjit as vk

RADIUS, LINE = 4, 128


@vk.kernel(groups=lambda image: (vk.cdiv(image.shape[1], LINE), image.shape[0]), local=LINE)
def blur_rows(image: vk.In[vk.f32, "H W"], weights: vk.In[vk.f32, "9"], out: vk.Out[vk.f32, "H W"]):
    """Blur along the rows; pixels beyond the border repeat the outermost pixel."""
    line = vk.shared(vk.f32, LINE + 2 * RADIUS)
    lane, row = vk.local_id(0), vk.group_id(1)
    start = vk.group_id(0) * LINE - RADIUS
    for k in range(lane, LINE + 2 * RADIUS, LINE):
        line[k] = image[row, vk.clamp(start + k, 0, image.shape[1] - 1)]
    vk.barrier()
    acc = vk.f32(0)
    for k in vk.unroll(2 * RADIUS + 1):
        acc += weights[k] * line[lane + k]
    out.put(row, start + RADIUS + lane, acc)


@vk.kernel(over="out")
def sobel(image: vk.In[vk.f32, "H W"], out: vk.Out[vk.f32, "H W"]):
    """Compute the gradient magnitude (Sobel); pixels outside of the image are 0."""
    y, x = vk.index()
    gx, gy = vk.f32(0), vk.f32(0)
    for d in vk.unroll(-1, 2):
        weight = 2 - abs(d)
        gx += weight * (image.get(y + d, x + 1, pad=0) - image.get(y + d, x - 1, pad=0))
        gy += weight * (image.get(y + 1, x + d, pad=0) - image.get(y - 1, x + d, pad=0))
    out[y, x] = vk.sqrt(gx * gx + gy * gy)


@vk.kernel(over="out")
def resize(image: vk.In[vk.f32, "H W"], out: vk.InOut[vk.f32, "P Q"]):
    """Resize by bilinear interpolation with aligned pixel centers."""
    y, x = vk.index()
    sy = (vk.f32(y) + 0.5) * vk.f32(image.shape[0]) / vk.f32(out.shape[0]) - 0.5
    sx = (vk.f32(x) + 0.5) * vk.f32(image.shape[1]) / vk.f32(out.shape[1]) - 0.5
    y0, x0 = vk.i32(vk.floor(sy)), vk.i32(vk.floor(sx))
    fy, fx = sy - vk.f32(y0), sx - vk.f32(x0)
    bottom, right = image.shape[0] - 1, image.shape[1] - 1
    ya, yb = vk.clamp(y0, 0, bottom), vk.clamp(y0 + 1, 0, bottom)
    xa, xb = vk.clamp(x0, 0, right), vk.clamp(x0 + 1, 0, right)
    top = image[ya, xa] * (1.0 - fx) + image[ya, xb] * fx
    low = image[yb, xa] * (1.0 - fx) + image[yb, xb] * fx
    out[y, x] = top * (1.0 - fy) + low * fy


def gaussian(radius: int = RADIUS, sigma: float = 2.0) -> Any:
    """Return normalized weights."""
    weights = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2)
    return (weights / weights.sum()).astype(np.float32)


def blur(image: Any) -> Any:
    """Blur in both directions; the second pass runs on the transposed view without an explicit copy."""
    weights = gaussian()
    return blur_rows(np.ascontiguousarray(blur_rows(image, weights).T), weights).T


def main(height: int = 150, width: int = 201) -> None:
    y, x = np.mgrid[0:height, 0:width]
    image = (0.5 + 0.5 * np.sin(x / 9) * np.cos(y / 7)).astype(np.float32)

    padded = np.pad(image.astype(np.float64), RADIUS, mode="edge")
    weights = gaussian().astype(np.float64)
    rows: Any = sum(w * padded[:, k : k + width] for k, w in enumerate(weights))
    expected = sum(w * rows[k : k + height] for k, w in enumerate(weights))
    np.testing.assert_allclose(blur(image), expected, rtol=0, atol=40 * 2.0**-24)

    p = np.pad(image.astype(np.float64), 1)
    gx = sum(w * (p[i : i + height, 2:] - p[i : i + height, :-2]) for i, w in enumerate((1, 2, 1)))
    gy = sum(w * (p[2:, i : i + width] - p[:-2, i : i + width]) for i, w in enumerate((1, 2, 1)))
    np.testing.assert_allclose(sobel(image), np.hypot(gx, gy), rtol=0, atol=64 * 2.0**-24)

    same = np.empty_like(image)
    resize(image, same)
    np.testing.assert_allclose(same, image, rtol=0, atol=2e-4)  # f32 coordinates have errors of 2^-24 * 200
    half = np.empty((height // 2, width // 2), np.float32)
    resize(image, half)
    assert half.min() >= image.min() - 1e-6 and half.max() <= image.max() + 1e-6
    print(f"blur, edges and resize of {height}x{width}: right")


if __name__ == "__main__":
    main()
