"""Whether a changed kernel means the same as the original, as far as the optimiser can tell.

Enters: two kernels, element types, ranks and constants to compile them for. Leaves: whether the optimised programs are
the same text in all of these. Which invocation stores what all of them hold is no difference (`choices`); a program that
only has more barriers does nothing that the original couldn't (`more_barriers`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ...errors import VkjitError
from ...interp.device import INTERPRETER_CAPS
from ...ir.printer import print_module
from ...jit import Kernel
from ...passes import pipeline
from ..drawing import Drawing
from ..probing import module_of
from .choices import without_idle_choices

__all__ = ["Program", "more_barriers", "same_program"]

_CAPS = replace(INTERPRETER_CAPS, kind="discrete")
_MOST = 8
"""Combinations of types and constants that are compared."""


class Program:
    """The optimised texts of a kernel, for a drawing's types and constants."""

    def __init__(self, kernel: Kernel, drawing: Drawing) -> None:
        self.kernel = kernel
        self.drawing = drawing
        self.texts = tuple(self._texts(kernel))

    def _texts(self, kernel: Kernel) -> Iterator[tuple[str, str]]:
        """As it was written, and optimised."""
        ranks = {n: len(d.dims) for n, d in self.drawing.dimensions.of_array.items()}
        for types, constants in itertools.islice(self._combinations(), _MOST):
            try:
                module = module_of(kernel, types, ranks, constants)
                written = print_module(module)
                yield written, print_module(pipeline.run(without_idle_choices(module), _CAPS))
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
        """Whether the other kernel compiles to the same."""
        made = tuple(self._texts(other))
        return any("%" in text for text, _ in made) and all(
            any(more_barriers(a, b) and (a or one[0] == two[0]) for a, b in zip(one, two, strict=True))
            for one, two in zip(self.texts, made, strict=True)
        )


def more_barriers(one: str, two: str) -> bool:
    """Whether the text of a program becomes that of another one by barriers put into it. Where all invocations come to them
    (others don't compile), all that they do is to rule out orders of what invocations do.
    """
    lines = iter(two.splitlines())
    for wanted in one.splitlines():
        for line in lines:
            if line == wanted:
                break
            if line.strip() != "barrier":
                return False
        else:
            return False
    return all(line.strip() == "barrier" for line in lines)


def same_program(one: Kernel, two: Kernel, drawing: Drawing) -> bool:
    """Whether two kernels compile to the same."""
    return Program(one, drawing).same_as(two)
