"""Mutation testing of kernels: measures if property tests detect kernels that are broken on purpose.

`mutations` returns small edits of a kernel's source, and `mutant` the kernel with one of them applied. `mutation_score`
runs tests on all mutants and reports those that no test detects (the survivors).
"""

from __future__ import annotations

from ..edits.edit import Edit
from ..edits.mutant import mutant
from ..edits.mutations import mutations
from .score import MutationResult, Verdict, mutation_score

__all__ = ["Edit", "MutationResult", "Verdict", "mutant", "mutation_score", "mutations"]
