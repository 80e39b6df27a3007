"""A random program generator for differential testing of the compiler, in the manner of Csmith.

`generate` makes a program from a seed, `Checker` compares its results on the interpreter, after passes and on devices,
`shrink` reduces a failing program, and `program_text` and `parse_program` convert programs to and from text. `python -m
vkjit.testing.fuzz` runs many programs; see docs/fuzzing.md.
"""

from __future__ import annotations

from .check import Checker, Finding, Options
from .generate import generate
from .program import Program, parse_program, program_text
from .shrink import shrink

__all__ = ["Checker", "Finding", "Options", "Program", "generate", "parse_program", "program_text", "shrink"]
