"""What a kernel is compiled for: the kinds and element types of its arguments, and the launch's properties.

Enters: what a launcher knows of the arguments. Leaves: `Signature`, hashable; equal signatures share one compiled
kernel.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..dtypes import DType
from .names import is_frozen_type

__all__ = ["Argument", "ArrayArg", "ConstArg", "ScalarArg", "Signature", "exact", "stands_for_itself"]


def exact(value: Any) -> Any:
    """What is equal only for constants that mean the same to a kernel: 1, 1.0 and True differ, as do 0.0 and -0.0."""
    kind: Any = type(value)
    if kind is int or kind is str:
        return value
    if stands_for_itself(kind):
        return (kind, value)
    if isinstance(value, tuple):
        return (kind, *map(exact, value))
    if isinstance(value, float | np.floating):
        return (kind, float(value).hex())
    return (kind, *(exact(getattr(value, field.name)) for field in dataclasses.fields(value)))


@functools.lru_cache(maxsize=4096)
def stands_for_itself(kind: Any) -> bool:
    """Whether values of this one type that are equal mean the same to a kernel."""
    return not issubclass(kind, tuple | float | np.floating) and not is_frozen_type(kind)


@dataclass(frozen=True, slots=True)
class ArrayArg:
    """An array: `contiguous` promises C order, `restrict` that no other argument overlaps it (unless neither is
    written).
    """

    dtype: DType
    rank: int
    contiguous: bool = False
    restrict: bool = False


@dataclass(frozen=True, slots=True)
class ScalarArg:
    """A run-time scalar; the launcher has fitted the value into the type."""

    dtype: DType


@dataclass(frozen=True, slots=True, eq=False)
class ConstArg:
    """A compile-time value: hashable. Equal are those that mean the same, see `exact`."""

    value: object

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConstArg) and bool(exact(self.value) == exact(other.value))

    def __hash__(self) -> int:
        return hash(exact(self.value))


Argument = ArrayArg | ScalarArg | ConstArg


@dataclass(frozen=True, slots=True)
class Signature:
    """Arguments in the order of the kernel's parameters, and what the launch fixes at compile time.

    `narrow`: every array spans fewer than 2**31 elements. `aligned`: every array, and every row of it, begins at a
    multiple of 16 bytes (`Form.aligned` of `vkjit.runtime.array`). `backward`: an array has a negative stride.
    `cut`: the grid may be cut over several dispatches. `typevars` binds the names of the kernel's type variables;
    those that array and scalar arguments bind may be left out. `sanitize` names the checks that the sanitizer
    builds in; for it, `overlaps` lists the pairs of arguments that share memory,
    and whether they are one and the same view.
    """

    args: tuple[Argument, ...]
    local_size: tuple[int, int, int] = (1, 1, 1)
    narrow: bool = False
    aligned: bool = False
    backward: bool = False
    cut: bool = False
    strict: bool = False
    fast_math: bool = False
    debug: bool = False
    bounds: bool = False
    typevars: tuple[tuple[str, DType], ...] = ()
    sanitize: tuple[str, ...] = ()
    overlaps: tuple[tuple[int, int, bool], ...] = ()
