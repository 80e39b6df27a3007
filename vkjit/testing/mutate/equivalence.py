"""Detect equivalent mutants by comparing optimized programs.

Two kernels are equivalent if, for all element types, ranks and constants tried, they compile to the same text.
Redundant choices of invocations are removed first (see `redundant_choices`). Additional barriers are ignored, since they allow no
new behavior (`more_barriers`).
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
_MAX_COMBINATIONS = 8
"""Maximum number of combinations of types and constants."""


class Program:
    """The IR texts of a kernel, before and after optimization, for the types and constants that a `Drawing` may draw."""

    def __init__(self, kernel: Kernel, drawing: Drawing) -> None:
        self.kernel = kernel
        self.drawing = drawing
        self.texts = tuple(self._texts(kernel))

    def _texts(self, kernel: Kernel) -> Iterator[tuple[str, str]]:
        """Yield (text before optimization, text after it) for each combination of types and constants."""
        ranks = {n: len(d.dims) for n, d in self.drawing.dimensions.of_array.items()}
        for types, constants in itertools.islice(self._combinations(), _MAX_COMBINATIONS):
            try:
                module = module_of(kernel, types, ranks, constants)
                written = print_module(module)
                yield written, print_module(pipeline.run(without_redundant_choices(module), _CAPS))
            except VkjitError as error:
                yield f"{type(error).__name__}", ""

    def _combinations(self) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
        names = [p for p in self.drawing.spec.params if p.kind == "const"]
        choices = [self.drawing.choices_of_const(p) for p in names]
        kinds = [[(n, t) for t in types[:2]] for n, types in self.drawing.types.items()]
        for types in itertools.product(*kinds):
            for values in itertools.product(*choices):
                yield dict(types), {p.name: v for p, v in zip(names, values, strict=True)}

    def same_as(self, other: Kernel) -> bool:
        """True if the other kernel compiles to the same programs, apart from additional barriers."""
        mutated = tuple(self._texts(other))
        return any("%" in text for text, _ in mutated) and all(
            any(more_barriers(a, b) and (a or one[0] == two[0]) for a, b in zip(one, two, strict=True))
            for one, two in zip(self.texts, mutated, strict=True)
        )


def more_barriers(one: str, two: str) -> bool:
    """True if the second program is the first with barriers inserted.

    Barriers are always reached by all invocations (others don't compile), so they only exclude orders of execution.
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
    """True if the second kernel compiles to the same programs as the first, apart from additional barriers."""
    return Program(one, drawing).same_as(two)
