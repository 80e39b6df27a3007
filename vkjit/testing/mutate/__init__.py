"""Mutation testing of kernels: measures how many kernels that are broken on purpose the tests detect.

`mutations` returns small edits of a kernel's source. `mutant` returns the kernel with one edit applied.
`mutation_score` runs tests on all mutants and reports those that no test detects (the survivors).
"""

from __future__ import annotations

from ..edits.edit import Edit
from ..edits.mutant import mutant
from ..edits.mutations import mutations
from .score import MutationResult, Verdict, mutation_score

__all__ = ["Edit", "MutationResult", "Verdict", "mutant", "mutation_score", "mutations"]
