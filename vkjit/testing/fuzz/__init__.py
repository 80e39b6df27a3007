"""A fuzzer of the compiler: generated kernels, compared over the interpreter, passes and devices.

`generate` makes a program from a seed, `Checker` runs it in all ways, `shrink` makes a failing one small,
`program_text` and `parse_program` keep it as text. `python -m vkjit.testing.fuzz` runs many; docs/fuzzing.md.
"""

from __future__ import annotations

from .check import Checker, Finding, Options
from .generate import generate
from .program import Program, parse_program, program_text
from .shrink import shrink

__all__ = ["Checker", "Finding", "Options", "Program", "generate", "parse_program", "program_text", "shrink"]
