"""Mutation testing of kernels: do property tests detect kernels that are broken on purpose?

`mutations` lists the edits of a kernel's source, `mutant` applies one of them, and `mutation_score` runs properties on
all mutants and reports the survivors.
"""

from __future__ import annotations

from ..edits.edit import Edit
from ..edits.mutant import mutant
from ..edits.mutations import mutations
from .score import MutationResult, Verdict, mutation_score

__all__ = ["Edit", "MutationResult", "Verdict", "mutant", "mutation_score", "mutations"]
