"""The table of gradient rules: a vector-Jacobian product per operation. `vkjit.tensor.derivatives` fills it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from vkjit.errors import InternalError

__all__ = ["RULES", "Gradient", "Rule", "RuleRow", "rule"]

Gradient = Any
"""A tensor, or None for a gradient that is zero or not needed."""
Rule = Callable[..., Sequence[Gradient]]
"""A vector-Jacobian product (see `RULES`)."""


@dataclass(frozen=True, slots=True)
class RuleRow:
    """A gradient rule: the vector-Jacobian product (VJP), and which values it reads.

    `keeps_inputs` is True if the VJP reads the values of all operands, or a tuple with the positions of the operands
    that it reads; `keeps_outputs` likewise for the results. A node keeps only these values.
    """

    vjp: Rule
    keeps_inputs: bool | tuple[int, ...]
    keeps_outputs: bool | tuple[int, ...]

    def keeps_input(self, position: int) -> bool:
        """True if the VJP reads the value of the operand at `position`."""
        keeps = self.keeps_inputs
        return keeps if isinstance(keeps, bool) else position in keeps

    def keeps_output(self, position: int) -> bool:
        """True if the VJP reads the value of the result at `position`."""
        keeps = self.keeps_outputs
        return keeps if isinstance(keeps, bool) else position in keeps


RULES: dict[str, RuleRow] = {}
"""Gradient rules by operation name.

The VJP is called as `vjp(node, *gradients)` with the gradient of each result, and returns a gradient or None for each
operand.
"""


def rule(
    name: str, *, inputs: bool | tuple[int, ...] = False, outputs: bool | tuple[int, ...] = False
) -> Callable[[Rule], Rule]:
    """Decorate the VJP of operation `name` to register it in `RULES`.

    `inputs` is True if the VJP reads the values of all operands, or a tuple with the positions of the operands that it
    reads; `outputs` likewise for the results. Raises InternalError if the operation has a rule already.
    """

    def register(function: Rule) -> Rule:
        if name in RULES:
            raise InternalError(f"operation {name} has a gradient rule already")
        RULES[name] = RuleRow(function, inputs, outputs)
        return function

    return register
