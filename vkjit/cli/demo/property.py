"""Part 3 of the demo: a property test finds a bug in a user's kernel.

The kernel blurs rows tile by tile and skips the last, partial tile. On a photograph whose width is a multiple of the
tile size it appears correct. The test finds the smallest failing image and the faulty line; the fixed kernel passes.
"""

from __future__ import annotations

import argparse
import inspect
import time
from typing import Any

import numpy as np
import numpy.typing as npt

import vkjit as vk
from vkjit.launch.kernel import Kernel

from .report import Report

__all__ = ["run"]

TILE = 64
"""The number of pixels per workgroup."""


@vk.kernel(groups=lambda image: (image.shape[1] // TILE, image.shape[0]), local=TILE)
def soften(image: vk.In[vk.f32, "H W"], out: vk.Out[vk.f32, "H W"]):
    """out = the mean of each pixel and its two horizontal neighbors.

    The bug is in `groups=`: if the width isn't a multiple of TILE, the last pixels of each row get no workgroup.
    """
    y, x = vk.group_id(1), vk.global_id(0)
    left, right = vk.max(x - 1, 0), vk.min(x + 1, image.shape[1] - 1)
    out.put(y, x, (image.get(y, left, pad=0) + image.get(y, x, pad=0) + image.get(y, right, pad=0)) / 3.0)


@vk.kernel(groups=lambda image: (vk.cdiv(image.shape[1], TILE), image.shape[0]), local=TILE)
def soften_fixed(image: vk.In[vk.f32, "H W"], out: vk.Out[vk.f32, "H W"]):
    """The same as `soften` without the bug: the last, partial tile of each row has a workgroup, too."""
    y, x = vk.group_id(1), vk.global_id(0)
    left, right = vk.max(x - 1, 0), vk.min(x + 1, image.shape[1] - 1)
    out.put(y, x, (image.get(y, left, pad=0) + image.get(y, x, pad=0) + image.get(y, right, pad=0)) / 3.0)


def reference(image: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Compute the blur in NumPy."""
    if image.size == 0:
        return image
    padded = np.pad(image, ((0, 0), (1, 1)), mode="edge")
    return np.asarray((padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:]) / 3.0)


def line_of(kernel: Kernel, text: str) -> int:
    """Return the number of the kernel's source line that contains `text`."""
    lines, first = inspect.getsourcelines(kernel.spec.fn)
    return first + next(i for i, line in enumerate(lines) if text in line)


def run(report: Report, arguments: argparse.Namespace) -> None:
    """Test both kernels, and write a program that reproduces the failure of the faulty one to the output folder."""
    report.title("A property test finds a mistake in a kernel")
    try:
        from vkjit.testing.generate.load_hypothesis import load_hypothesis

        load_hypothesis()
    except vk.VkjitError as error:
        report.line(f"  skipped: {error}")
        return
    image = np.random.default_rng(0).random((8, 4 * TILE), dtype=np.float32)
    looks_right = bool(np.abs(soften(image) - reference(image.astype(np.float64))).max() < 1e-6)
    report.line(f"  on an image of 8 x {4 * TILE} the kernel is {'right' if looks_right else 'wrong'}; on drawn ones:")
    _test_faulty_kernel(report, arguments)
    start = time.perf_counter()
    try:
        result = vk.testing.check_kernel(soften_fixed, reference)
    except vk.testing.CheckFailure as failure:
        report.check("mended kernel", False, str(failure))
    else:
        report.check("mended kernel", True, f"{result} ({time.perf_counter() - start:.1f} s in all)")


def _test_faulty_kernel(report: Report, arguments: argparse.Namespace) -> None:
    """Run the property test on the faulty kernel `soften`.

    Checks that the test fails, reports the smallest failing image, and names the faulty line.
    """
    start = time.perf_counter()
    try:
        vk.testing.check_kernel(soften, reference)
    except vk.testing.CheckFailure as failure:
        seconds = time.perf_counter() - start
        for line in str(failure).split("as a program")[0].rstrip().splitlines():
            report.line(f"    {line}")
        script = failure.write_script(arguments.out / "failure.py")
        report.line(f"  wrote {script}, which reproduces it")
        minimal = failure.dims == {"H": 1, "W": 1}
        # The report names the line whose mutation fixes the kernel: that of `groups=`. If there was no time to find a
        # fix, it names the line of the store that wasn't executed.
        expected = [line_of(soften, "groups="), line_of(soften, "out.put(")]
        at_line = bool(failure.lines) and failure.lines[0].line in expected
        report.check("mistake found", True, f"in {seconds:.1f} s")
        report.check("smallest input", minimal, ", ".join(f"{n} = {v}" for n, v in failure.dims.items()))
        report.check(
            "line",
            at_line,
            f"{failure.lines[0] if failure.lines else 'none'}, expected line {expected[0]} or {expected[1]}",
        )
    else:
        report.check("mistake found", False, "the test found no failure")
