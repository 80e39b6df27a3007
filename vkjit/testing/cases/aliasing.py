"""Aliased arguments of property tests: one array passed for two array parameters.

The user allows it for pairs of parameters by `aliases=` of `vk.testing.check`; cases for these pairs share one array.
"""

from __future__ import annotations

from collections.abc import Sequence

from vkjit.errors import ArgumentError
from vkjit.frontend import KernelSpec
from vkjit.lang.structs import StructType

from .case import Case

__all__ = ["alias_pairs", "with_aliased"]


def alias_pairs(spec: KernelSpec, given: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Validate the user's `aliases=` and return the pairs, ordered so that the kernel reads the first array.

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
        one, two = pair
        if arrays[one].mode == "out":
            one, two = two, one
        if arrays[one].mode == "out":
            raise ArgumentError(f"aliases: {pair!r} of {spec.name}: an Out can be an In or InOut, not another Out")
        pairs.append((one, two))
    return tuple(pairs)


def with_aliased(case: Case, pair: tuple[str, str]) -> Case | None:
    """Return the case with one array for both parameters of the pair, which has the values and layout of the first one.

    Returns None if the two arrays differ in type or shape or the first one has axes of stride 0.
    """
    one, two = (case.arrays()[name] for name in pair)
    if one.dtype is not two.dtype or one.shape != two.shape or one.layout.repeated:
        return None
    values = None if two.values is None else one.values
    shared = case.with_argument(pair[1], type(two)(two.dtype, two.shape, values, one.layout))
    return shared.with_alias(pair)
