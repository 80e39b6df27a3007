"""Detection of equivalent mutants, which behave like the original kernel, so that no test can detect them.

Two kernels are equivalent if they compile to the same IR, for all element types and constants tried. The texts of the
IR are compared before optimization and after it; it is sufficient that the kernels agree in one of the two. Some
conditions are removed before optimization: those that only select which invocation stores a value that all invocations
have (see `redundant_choices`). Additional barriers in the mutant are ignored, since they allow no new behavior.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from vkjit.backends.interp import INTERPRETER_CAPS
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

    `texts` has a pair for each combination of types and constants that `drawing` allows, up to a maximum: the text of
    the kernel's IR before optimization, and the text after it.
    """

    def __init__(self, kernel: Kernel, drawing: Drawing) -> None:
        self.kernel = kernel
        self.drawing = drawing
        self.texts = tuple(self._texts(kernel))

    def _texts(self, kernel: Kernel) -> Iterator[tuple[str, str]]:
        """Yield the texts of a kernel's IR, (before optimization, after it), for each combination.

        For a combination that doesn't compile, the pair is the name of the error and "".
        """
        ranks = {n: len(d.dims) for n, d in self.drawing.dimensions.of_array.items()}
        for types, constants in itertools.islice(self._combinations(), _MAX_COMBINATIONS):
            try:
                module = module_of(kernel, types, ranks, constants)
                unoptimized = print_module(module)
                yield unoptimized, print_module(pipeline.run(without_redundant_choices(module), _CAPS))
            except VkjitError as error:
                yield f"{type(error).__name__}", ""

    def _combinations(self) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
        """Yield combinations of types (two per type variable) and values of Const parameters, each by name."""
        const_params = [p for p in self.drawing.spec.params if p.kind == "const"]
        choices = [self.drawing.choices_of_const(p) for p in const_params]
        type_choices = [[(n, t) for t in types[:2]] for n, types in self.drawing.types.items()]
        for types in itertools.product(*type_choices):
            for values in itertools.product(*choices):
                yield dict(types), {p.name: v for p, v in zip(const_params, values, strict=True)}

    def same_as(self, other: Kernel) -> bool:
        """True if the other kernel compiles to the same IR for every combination, apart from additional barriers.

        False if no combination compiles.
        """
        other_texts = tuple(self._texts(other))
        any_compiles = any("%" in text for text, _ in other_texts)  # IR contains "%", the name of an error doesn't
        return any_compiles and all(
            _agree(texts, others) for texts, others in zip(self.texts, other_texts, strict=True)
        )


def _agree(texts: tuple[str, str], other_texts: tuple[str, str]) -> bool:
    """True if two kernels agree for one combination, whose texts these are (see `Program._texts`).

    They do if the IR is the same, before or after optimization, or if neither kernel compiles, with the same error.
    """
    unoptimized, optimized = texts
    other_unoptimized, other_optimized = other_texts
    if more_barriers(unoptimized, other_unoptimized):  # the same IR, or the same name of an error
        return True
    return bool(optimized) and more_barriers(optimized, other_optimized)


def more_barriers(one: str, two: str) -> bool:
    """True if the IR text `two` is the text `one` with any number of barriers inserted, or the same text.

    All invocations reach an inserted barrier, since a barrier in divergent control flow doesn't compile. So an inserted
    barrier only rules out some orders of execution.
    """
    lines = iter(two.splitlines())
    for expected in one.splitlines():
        for line in lines:  # advance to the expected line, over barriers only
            if line == expected:
                break
            if line.strip() != "barrier":
                return False
        else:
            return False
    return all(line.strip() == "barrier" for line in lines)


def same_program(one: Kernel, two: Kernel, drawing: Drawing) -> bool:
    """True if the kernel `two` compiles to the same IR as the kernel `one`, apart from additional barriers in `two`.

    `drawing` has the types and constants to try.
    """
    return Program(one, drawing).same_as(two)
