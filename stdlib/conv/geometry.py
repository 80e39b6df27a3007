"""The shape parameters of a convolution."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Geometry", "Triple"]

Triple = tuple[int, int, int]
"""Numbers for the three spatial axes: depth, height, width."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """The shape parameters of a convolution.

    `channels` and `filters` are per group. `size` and `out` are the input's and the output's extents along the three axes,
    and `pad` is the number of zeros before the first element.
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
        """Number of weights per filter and channel."""
        return math.prod(self.kernel)

    @property
    def pixels(self) -> int:
        """Number of output elements per filter, over the whole batch."""
        return self.batch * math.prod(self.out)
