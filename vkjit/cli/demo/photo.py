"""Part 1 of the demo: image kernels on a photograph, each checked against NumPy.

A separable blur in shared memory, Sobel edges, a histogram with atomics, and a bilinear resize.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import vkjit as vk
from vkjit.compiler import driver
from vkjit.errors import ArgumentError
from vkjit.files import replacing

from .report import Report

__all__ = ["load_photograph", "run"]

Image = npt.NDArray[np.float32]
RADIUS, LINE, BINS = 6, 128, 256
"""The radius of the blur, the number of pixels that a workgroup blurs, and the number of bins of the histogram."""
UNIT = 2.0**-24
"""The unit roundoff of f32: half a unit in the last place at 1."""


@vk.kernel(groups=lambda image: (vk.cdiv(image.shape[1], LINE), image.shape[0]), local=LINE)
def blur_rows(image: vk.In[vk.f32, "H W"], weights: vk.In[vk.f32, "K"], out: vk.Out[vk.f32, "H W"]):
    """Blur along the rows with 2 RADIUS + 1 weights; beyond the border, the outermost pixel is repeated.

    A workgroup blurs LINE pixels of one row, from a copy of these pixels and RADIUS neighbors on both sides in shared
    memory.
    """
    line = vk.shared(vk.f32, LINE + 2 * RADIUS)
    local_index, row = vk.local_id(0), vk.group_id(1)
    start = vk.group_id(0) * LINE - RADIUS  # the column of line[0]
    for k in range(local_index, LINE + 2 * RADIUS, LINE):
        line[k] = image[row, vk.clamp(start + k, 0, image.shape[1] - 1)]
    vk.barrier()
    acc = vk.f32(0)
    for k in range(2 * RADIUS + 1):
        acc += weights[k] * line[local_index + k]
    out.put(row, start + RADIUS + local_index, acc)


@vk.kernel(over="out")
def sobel(image: vk.In[vk.f32, "H W"], out: vk.Out[vk.f32, "H W"]):
    """out = the gradient magnitude by the Sobel operator; pixels outside of the image count as zero."""
    y, x = vk.index()
    gx, gy = vk.f32(0), vk.f32(0)
    for d in vk.unroll(-1, 2):
        weight = 2 - abs(d)
        gx += weight * (image.get(y + d, x + 1, pad=0) - image.get(y + d, x - 1, pad=0))
        gy += weight * (image.get(y + 1, x + d, pad=0) - image.get(y - 1, x + d, pad=0))
    out[y, x] = vk.sqrt(gx * gx + gy * gy)


@vk.kernel(groups=lambda values: max(1, min(64, vk.cdiv(values.shape[0], BINS))), local=BINS)
def histogram(values: vk.In[vk.u8, "N"], counts: vk.InOut[vk.i32, "256"]):
    """Add the histogram of gray levels to `counts`.

    Each workgroup (there are at most 64) counts in shared memory first, and then adds its counts with one atomic
    operation per bin.
    """
    group_counts = vk.shared(vk.i32, BINS)
    local_index = vk.local_id(0)
    group_counts[local_index] = 0
    vk.barrier()
    for i in vk.grid_stride(values.shape[0]):
        vk.atomic.add(group_counts, values[i], 1)
    vk.barrier()
    vk.atomic.add(counts, local_index, group_counts[local_index])


@vk.kernel(over="out")
def resize(image: vk.In[vk.f32, "H W"], out: vk.InOut[vk.f32, "P Q"]):
    """out = the image resized to the shape of `out`, by bilinear interpolation with half-pixel centers.

    Pixels outside of the image repeat those at the edge.
    """
    y, x = vk.index()
    # (sy, sx) is the location in the image, (fy, fx) its fraction beyond the pixel at (y0, x0).
    sy = (vk.f32(y) + 0.5) * (vk.f32(image.shape[0]) / vk.f32(out.shape[0])) - 0.5
    sx = (vk.f32(x) + 0.5) * (vk.f32(image.shape[1]) / vk.f32(out.shape[1])) - 0.5
    y0, x0 = vk.i32(vk.floor(sy)), vk.i32(vk.floor(sx))
    fy, fx = sy - vk.f32(y0), sx - vk.f32(x0)
    bottom, right = image.shape[0] - 1, image.shape[1] - 1
    ya, yb = vk.clamp(y0, 0, bottom), vk.clamp(y0 + 1, 0, bottom)
    xa, xb = vk.clamp(x0, 0, right), vk.clamp(x0 + 1, 0, right)
    # Interpolate along x in the two adjacent rows ya and yb, then along y.
    top = image[ya, xa] * (1.0 - fx) + image[ya, xb] * fx
    low = image[yb, xa] * (1.0 - fx) + image[yb, xb] * fx
    out[y, x] = top * (1.0 - fy) + low * fy


def load_photograph(path: Path | None) -> tuple[Image, str]:
    """Return the gray values (0 to 1) of the picture at `path`, and a description of its source.

    If `path` is None, the picture is a photograph that ships with scikit-learn.
    """
    try:
        from PIL import Image as PillowImage
    except ImportError:
        raise ArgumentError("the demo reads and writes pictures with pillow: pip install 'vkjit[demo]'") from None
    if path is not None:
        if not path.is_file():
            raise ArgumentError(f"{path} is no file: give the path of a picture")
        with PillowImage.open(path) as picture:
            return np.asarray(picture.convert("L"), dtype=np.float32) / np.float32(255), str(path)
    try:
        from sklearn.datasets import load_sample_image
    except ImportError:
        raise ArgumentError(
            "the demo's own photograph comes with scikit-learn: pip install 'vkjit[demo]', or give the path of a picture"
        ) from None
    color_image = load_sample_image("china.jpg").astype(np.float32) / np.float32(255)
    return np.asarray(color_image @ np.array([0.299, 0.587, 0.114], np.float32)), "china.jpg of scikit-learn"


def gaussian(sigma: float = 2.5) -> Image:
    """Return the 2 RADIUS + 1 weights of a Gaussian blur with standard deviation `sigma` in pixels; their sum is 1."""
    weights = np.exp(-0.5 * (np.arange(-RADIUS, RADIUS + 1) / sigma) ** 2)
    return np.asarray(weights / weights.sum(), dtype=np.float32)


def blur(image: Image) -> Image:
    """Blur the rows, then the columns as the rows of the transposed image."""
    weights = gaussian()
    rows = blur_rows(image, weights)
    return np.ascontiguousarray(blur_rows(np.ascontiguousarray(rows.T), weights).T)


def _reference_blur(image: Image) -> npt.NDArray[np.float64]:
    """Compute the blur with NumPy."""
    height, width = image.shape
    padded = np.pad(image.astype(np.float64), RADIUS, mode="edge")
    weights = gaussian().astype(np.float64)
    rows = np.sum([w * padded[:, k : k + width] for k, w in enumerate(weights)], axis=0)
    return np.asarray(np.sum([w * rows[k : k + height] for k, w in enumerate(weights)], axis=0))


def _reference_sobel(image: Image) -> npt.NDArray[np.float64]:
    """Compute the gradient magnitude with NumPy."""
    height, width = image.shape
    p = np.pad(image.astype(np.float64), 1)
    smooth = (1, 2, 1)
    gx = np.sum([w * (p[i : i + height, 2:] - p[i : i + height, :-2]) for i, w in enumerate(smooth)], axis=0)
    gy = np.sum([w * (p[2:, i : i + width] - p[:-2, i : i + width]) for i, w in enumerate(smooth)], axis=0)
    return np.asarray(np.hypot(gx, gy))


def _reference_resize(image: Image, shape: tuple[int, int]) -> npt.NDArray[np.float64]:
    """Compute the bilinear resize to `shape` with NumPy."""

    def axis(target: int, source: int) -> tuple[Any, Any, Any]:
        """Return the two source indices for each of `target` pixels along an axis, and the weight of the second one."""
        at = (np.arange(target) + 0.5) * (source / target) - 0.5
        low = np.floor(at).astype(int)
        return np.clip(low, 0, source - 1), np.clip(low + 1, 0, source - 1), at - low

    ya, yb, fy = axis(shape[0], image.shape[0])
    xa, xb, fx = axis(shape[1], image.shape[1])
    p = image.astype(np.float64)
    top = p[np.ix_(ya, xa)] * (1 - fx) + p[np.ix_(ya, xb)] * fx
    low = p[np.ix_(yb, xa)] * (1 - fx) + p[np.ix_(yb, xb)] * fx
    return np.asarray(top * (1 - fy)[:, None] + low * fy[:, None])


def _timed(job: Callable[[], Any]) -> tuple[Any, float, float]:
    """Return a job's result and the times of its first run (with compilation) and second run, in milliseconds."""
    start = time.perf_counter()
    job()
    first = time.perf_counter() - start
    start = time.perf_counter()
    result = job()
    return result, first * 1e3, (time.perf_counter() - start) * 1e3


def _save(path: Path, image: npt.NDArray[Any]) -> None:
    """Write an image with values from 0 to 1 to a file, in 256 gray levels."""
    from PIL import Image as PillowImage

    with replacing(path) as file:
        PillowImage.fromarray((np.clip(image, 0, 1) * 255 + 0.5).astype(np.uint8)).save(file, "PNG")


def _count(image: Image) -> npt.NDArray[np.int32]:
    """Return the histogram of the image, in 256 gray levels."""
    counts = np.zeros(BINS, np.int32)
    histogram((image * 255 + 0.5).astype(np.uint8).reshape(-1), counts)
    return counts


def _resized(image: Image) -> Image:
    """Return the image at two thirds of its size."""
    out = np.empty((image.shape[0] * 2 // 3, image.shape[1] * 2 // 3), np.float32)
    resize(image, out)
    return out


def run(report: Report, arguments: argparse.Namespace) -> None:
    """Run and check the four kernels; write PNG files."""
    image, source = load_photograph(arguments.image)
    report.title(f"Kernels on a photograph: {source}, {image.shape[0]} x {image.shape[1]} pixels")
    compiled_before = driver.TIMES.count
    rows = []
    results = {}
    jobs: dict[str, Callable[[], Any]] = {
        "blur": lambda: blur(image),
        "edges": lambda: sobel(image),
        "histogram": lambda: _count(image),
        "resize": lambda: _resized(image),
    }
    for name, job in jobs.items():
        results[name], first, second = _timed(job)
        rows.append((name, f"{first:.1f}", f"{second:.1f}"))
    report.table(("kernel", "first run, ms (compiles)", "second run, ms"), rows)
    report.line(
        f"  {driver.TIMES.count - compiled_before} kernels compiled, {driver.TIMES.cached} taken from the disk cache"
    )
    _check(report, image, results)
    for name in ("blur", "edges", "resize"):
        _save(arguments.out / f"{name}.png", results[name])
    report.line(f"  wrote blur.png, edges.png, resize.png to {arguments.out}")


def _check(report: Report, image: Image, results: dict[str, Any]) -> None:
    """Compare the results with NumPy in double precision.

    Each error bound is a number of f32 roundings times UNIT, the largest relative error of one rounding.
    """
    taps = 2 * RADIUS + 1
    # The values are at most 1. Each of the two passes multiplies and adds once per tap.
    error = float(np.abs(results["blur"] - _reference_blur(image)).max())
    report.check("blur", error <= 4 * taps * UNIT, f"largest difference from NumPy {error:.1e}")
    # A few roundings each of the gradient's components, which are at most 4, of their squares, and of the square root:
    # the bound is generous.
    error = float(np.abs(results["edges"] - _reference_sobel(image)).max())
    report.check("edges", error <= 128 * UNIT, f"largest difference from NumPy {error:.1e}")
    expected = np.bincount((image * 255 + 0.5).astype(np.uint8).reshape(-1), minlength=BINS)
    histograms_equal = bool(np.array_equal(results["histogram"], expected))
    report.check(
        "histogram",
        histograms_equal,
        f"{int(results['histogram'].sum())} pixels counted, equal to NumPy: {histograms_equal}",
    )
    resized = results["resize"]
    error = float(np.abs(resized - _reference_resize(image, resized.shape)).max())
    # An f32 coordinate of up to `width` has an error of width * 2^-24 pixels per rounding; adjacent pixels differ by at
    # most 1. Four roundings per coordinate, along both axes, and 16 of the interpolation.
    bound = (4 * sum(image.shape) + 16) * UNIT
    report.check("resize", error <= bound, f"largest difference from NumPy {error:.1e}")
