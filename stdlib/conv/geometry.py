"""The shape of a convolution: `Geometry`, which all host functions of the package take."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Geometry", "Triple"]

Triple = tuple[int, int, int]
"""One number for each of the three spatial axes: depth, height, width."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """The shape parameters of a convolution.

    `channels` and `filters` are the numbers of input and output channels per group. `size`, `kernel` and `out` are the
    extents of the input, a filter and the output along the three axes. `pad` is the number of zeros before the first
    element along each axis; how many follow after the last one is implied by `out`.
    """

    batch: int
    groups: int
    channels: int
    filters: int
    size: Triple
    kernel: Triple
    out: Triple
    stride: Triple
    pad: Triple
    dilation: Triple

    @property
    def taps(self) -> int:
        """Number of taps: the weights of a filter for one channel."""
        return math.prod(self.kernel)

    @property
    def pixels(self) -> int:
        """Number of output pixels: the results of one filter over the whole batch."""
        return self.batch * math.prod(self.out)
