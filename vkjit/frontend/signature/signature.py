"""`Signature`: the argument types and launch properties that a kernel is compiled for.

Signatures are hashable; equal signatures share one compiled kernel. The launcher builds them from the arguments.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from vkjit.dtypes import DType
from vkjit.errors import ArgumentError

from .free_names import is_frozen_type, size_fault

__all__ = ["Argument", "ArrayArg", "ConstArg", "ScalarArg", "Signature", "constant_key", "is_own_key"]


def constant_key(value: Any) -> Any:
    """Return a hashable key of a constant; keys are equal only for constants that mean the same to a kernel.

    The keys of 1, 1.0 and True differ, as do those of 0.0 and -0.0. Raises ArgumentError for constants that are too
    large.
    """
    kind: Any = type(value)
    if kind is int or kind is str:
        return value
    if not is_own_key(kind) and (fault := size_fault(value)):
        raise ArgumentError(f"a constant of type {kind.__name__} {fault}: pass a smaller one, or an array")
    return _key(value)


def _key(value: Any) -> Any:
    """Return the key of a constant or of a part of one; see `constant_key`."""
    kind: Any = type(value)
    if kind is int or kind is str:
        return value
    if is_own_key(kind):
        return (kind, value)
    if isinstance(value, tuple):
        return (kind, *map(_key, value))
    if isinstance(value, float | np.floating):
        return (kind, float(value).hex())
    # An instance of a frozen dataclass: its fields may hold floats, too.
    return (kind, *(_key(getattr(value, field.name)) for field in dataclasses.fields(value)))


@functools.lru_cache(maxsize=4096)
def is_own_key(kind: Any) -> bool:
    """True if equal values of this type always mean the same to a kernel, so that `constant_key` can use the value."""
    return not issubclass(kind, tuple | float | np.floating) and not is_frozen_type(kind)


@dataclass(frozen=True, slots=True)
class ArrayArg:
    """An array argument.

    `contiguous` promises C order. `restrict` promises that no other argument overlaps it (unless neither is written).
    """

    dtype: DType
    rank: int
    contiguous: bool = False
    restrict: bool = False


@dataclass(frozen=True, slots=True)
class ScalarArg:
    """A run-time scalar; the launcher has converted the value to the type."""

    dtype: DType


@dataclass(frozen=True, slots=True, eq=False)
class ConstArg:
    """A compile-time value, compared by `constant_key`."""

    value: object

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConstArg) and bool(constant_key(self.value) == constant_key(other.value))

    def __hash__(self) -> int:
        return hash(constant_key(self.value))


Argument = ArrayArg | ScalarArg | ConstArg


@dataclass(frozen=True, slots=True)
class Signature:
    """The arguments in the order of the kernel's parameters, and the launch properties fixed at compile time.

    - `local_size`: the size of a workgroup along x, y and z.
    - `narrow`: every array spans fewer than 2**31 elements.
    - `aligned`: every array, and each of its rows, begins at a multiple of 16 bytes (`SpecClass.aligned` of
      `vkjit.runtime.array`).
    - `backward`: some array has a negative stride.
    - `cut`: the grid may be split over several dispatches.
    - `strict`, `fast_math`: the options of `@vk.kernel` for floating-point arithmetic.
    - `debug`: integer divisions by zero and violated assumptions are reported, and shared memory starts as NaN.
    - `bounds`: indices outside an array are reported.
    - `typevars`: bindings of the kernel's type variables; those bound by array and scalar arguments may be left out.
    - `sanitize`: the checks that the sanitizer instruments.
    - `overlaps`: for the sanitizer, the pairs of arguments that share memory, each with True if they are the same view.
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
