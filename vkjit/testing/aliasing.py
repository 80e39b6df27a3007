"""One array passed for two parameters.

Enters: a case and two names. Leaves: the case with the second array held in the memory of the first one, or None where
they don't fit: other type or shape, or two Outs.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import ArgumentError
from ..frontend import KernelSpec
from ..lang.structs import StructType
from .case import Case

__all__ = ["joined", "pairs_of"]


def pairs_of(spec: KernelSpec, given: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The pairs that `aliases=` names, the one that is read first. ArgumentError for names that aren't arrays."""
    arrays = {p.name: p for p in spec.params if p.kind == "array" and not isinstance(p.element, StructType)}
    made = []
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
        made.append((one, two))
    return tuple(made)


def joined(case: Case, pair: tuple[str, str]) -> Case | None:
    """The case with one array for both parameters; it holds the values of the first one."""
    one, two = (case.arrays()[name] for name in pair)
    if one.dtype is not two.dtype or one.shape != two.shape or one.layout.repeated:
        return None
    values = None if two.values is None else one.values
    made = case.with_argument(pair[1], type(two)(two.dtype, two.shape, values, one.layout))
    return made.with_alias(pair)
