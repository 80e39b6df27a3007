"""Detection of equivalent mutants, which behave like the original kernel, so that no test can detect them.

Two kernels are equivalent if they compile to the same IR, for all element types and constants tried. The text of the IR
is compared before and after optimization; one of the two must be the same. Conditions that select which invocations
store the same values are removed before optimization (see `redundant_choices`). Additional barriers in the mutant are
ignored, since they allow no new behavior.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from vkjit.backends.interp.runtime.device import INTERPRETER_CAPS
from vkjit.errors import VkjitError
from vkjit.ir.printer import print_module
from vkjit.launch.kernel import Kernel
from vkjit.passes import pipeline

from ..generate.strategies import Drawing
from ..generate.usable_types import module_of
from .redundant_choices import without_redundant_choices

__all__ = ["Program", "more_barriers", "same_program"]

_CAPS = replace(INTERPRETER_CAPS, kind="discrete")
"""The capabilities for which kernels are optimized: lowered as for GPUs, with the features of the interpreter."""
_MAX_COMBINATIONS = 8
"""Maximum number of combinations of types and constants that are compared."""


class Program:
    """A kernel to compare mutants with.

    `texts` holds the text of its IR before and after optimization, for each combination of types and constants that
    `drawing` allows, up to a maximum.
    """

    def __init__(self, kernel: Kernel, drawing: Drawing) -> None:
        self.kernel = kernel
        self.drawing = drawing
        self.texts = tuple(self._texts(kernel))

    def _texts(self, kernel: Kernel) -> Iterator[tuple[str, str]]:
        """Yield the texts of a kernel's IR, (before optimization, after it), for each combination.

        For a combination that doesn't compile, yields the name of the error.
        """
        ranks = {n: len(d.dims) for n, d in self.drawing.dimensions.of_array.items()}
        for types, constants in itertools.islice(self._combinations(), _MAX_COMBINATIONS):
            try:
                module = module_of(kernel, types, ranks, constants)
                written = print_module(module)
                yield written, print_module(pipeline.run(without_redundant_choices(module), _CAPS))
            except VkjitError as error:
                yield f"{type(error).__name__}", ""

    def _combinations(self) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
        """Yield combinations of types (two per type variable) and values of Const parameters, each by name."""
        names = [p for p in self.drawing.spec.params if p.kind == "const"]
        choices = [self.drawing.choices_of_const(p) for p in names]
        kinds = [[(n, t) for t in types[:2]] for n, types in self.drawing.types.items()]
        for types in itertools.product(*kinds):
            for values in itertools.product(*choices):
                yield dict(types), {p.name: v for p, v in zip(names, values, strict=True)}

    def same_as(self, other: Kernel) -> bool:
        """True if the other kernel compiles to the same IR for every combination, apart from additional barriers.

        False if no combination compiles.
        """
        mutated = tuple(self._texts(other))
        return any("%" in text for text, _ in mutated) and all(  # IR contains "%", the name of an error doesn't
            any(more_barriers(a, b) and (a or one[0] == two[0]) for a, b in zip(one, two, strict=True))
            for one, two in zip(self.texts, mutated, strict=True)
        )


def more_barriers(one: str, two: str) -> bool:
    """True if the second IR text is the first with any number of barriers inserted.

    All invocations reach an inserted barrier, since a divergent one doesn't compile. So it only rules out some orders
    of execution.
    """
    lines = iter(two.splitlines())
    for expected in one.splitlines():
        for line in lines:
            if line == expected:
                break
            if line.strip() != "barrier":
                return False
        else:
            return False
    return all(line.strip() == "barrier" for line in lines)


def same_program(one: Kernel, two: Kernel, drawing: Drawing) -> bool:
    """True if the second kernel compiles to the same IR as the first, apart from additional barriers.

    `drawing` has the types and constants to try.
    """
    return Program(one, drawing).same_as(two)
