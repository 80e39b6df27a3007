"""A random program generator for differential testing of the compiler, in the manner of Csmith.

A program is a generated kernel in IR, with its grid and its arguments. `generate` makes one from a seed. `Checker` runs
a program on the interpreter before and after passes and on devices, and compares the results. `shrink` reduces a
failing program. `program_text` and `parse_program` convert programs to and from text. `python -m vkjit.testing.fuzz`
checks many programs; see docs/fuzzing.md.
"""

from __future__ import annotations

from .check import Checker, Finding, Options
from .generate import generate
from .program import Program, parse_program, program_text
from .shrink import shrink

__all__ = ["Checker", "Finding", "Options", "Program", "generate", "parse_program", "program_text", "shrink"]
