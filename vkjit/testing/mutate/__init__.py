"""Kernels broken on purpose: whether property tests notice.

`mutations` lists the changes to a kernel's text, `mutant` makes the kernel with one of them, `mutation_score` runs a
property on all of them and says which survive.
"""

from __future__ import annotations

from .edits import Edit
from .mutant import mutant
from .operators import mutations
from .score import MutationResult, Verdict, mutation_score

__all__ = ["Edit", "MutationResult", "Verdict", "mutant", "mutation_score", "mutations"]
