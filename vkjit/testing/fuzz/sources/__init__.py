"""Programs in Python: generated modules of kernels, which test the front end, launches and captures.

Programs in IR (see `vkjit.testing.fuzz.generate`) don't pass the front end. A program in Python is the text of a module
with a function `run()`, which launches kernels on the current device and returns a list of arrays, and mostly a
function `expected()`, which computes the same arrays in Python or NumPy. `generate_source` makes the text from a seed,
`check_source` runs it.
"""

from __future__ import annotations

from .check import check_source
from .generate import HEAD, SOURCES, generate_source

__all__ = ["HEAD", "SOURCES", "check_source", "generate_source"]
