"""Aliased arguments of property tests: one array passed for two array parameters.

The user allows it for pairs of parameters by `aliases=` of `vk.testing.check`; cases for these pairs share one array.
"""

from __future__ import annotations

from collections.abc import Sequence

from vkjit.errors import ArgumentError
from vkjit.frontend import KernelSpec
from vkjit.lang.structs import StructType

from .case import ArrayInput, Case

__all__ = ["alias_pairs", "with_aliased"]


def alias_pairs(spec: KernelSpec, given: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Validate the user's `aliases=` and return its pairs, each reordered if needed so that the kernel reads the first.

    Raises ArgumentError for names that aren't two different array parameters, for arrays of structs, and for two
    arrays that the kernel only writes (`vk.Out`).
    """
    arrays = {p.name: p for p in spec.params if p.kind == "array" and not isinstance(p.element, StructType)}
    pairs = []
    for pair in given:
        if len(pair) != 2 or pair[0] == pair[1] or not set(pair) <= set(arrays):
            raise ArgumentError(
                f"aliases: {pair!r} of {spec.name}: expected two different arrays among {', '.join(arrays) or '(none)'}; "
                "arrays of structs aren't passed twice"
            )
        first, second = pair
        if arrays[first].mode == "out":
            first, second = second, first
        if arrays[first].mode == "out":  # both are
            raise ArgumentError(f"aliases: {pair!r} of {spec.name}: an Out can be an In or InOut, not another Out")
        pairs.append((first, second))
    return tuple(pairs)


def with_aliased(case: Case, pair: tuple[str, str]) -> Case | None:
    """Return the case with one array for both parameters of the pair, which has the values and layout of the first one.

    Returns None if the two arrays differ in type or shape or the first one has axes of stride 0.
    """
    first, second = (case.arrays()[name] for name in pair)
    if first.dtype is not second.dtype or first.shape != second.shape or first.layout.repeated:
        return None
    values = None if second.values is None else first.values  # an Out has no values
    shared = case.with_argument(pair[1], ArrayInput(second.dtype, second.shape, values, first.layout))
    return shared.with_alias(pair)
