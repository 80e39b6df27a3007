"""Functions with their first arguments, as values: `functools.partial`, methods of constants, constants that are called."""

from __future__ import annotations

import inspect

from ..kernel_values import Aggregate, KernelValue, PartialKind
from ..resolve import constant_fields
from ..signature.function import is_helper

__all__ = ["bound_method", "split_partial"]


def bound_method(function: object, owner: KernelValue) -> Aggregate:
    """Return a function with its first argument."""
    return Aggregate(PartialKind(1), (function, owner))


def split_partial(callee: KernelValue) -> tuple[KernelValue, list[KernelValue], dict[str, KernelValue]]:
    """Return the function that a value calls, and the arguments that it has already."""
    args: list[KernelValue] = []
    keywords: dict[str, KernelValue] = {}
    while True:
        if isinstance(callee, Aggregate) and isinstance(callee.kind, PartialKind):
            kind, (callee, *values) = callee.kind, callee.items
            args = [*values[: kind.positional], *args]
            keywords = dict(zip(kind.keywords, values[kind.positional :], strict=True)) | keywords
        elif constant_fields(callee) and is_helper(method := inspect.getattr_static(type(callee), "__call__")):
            callee, args = method, [callee, *args]
        else:
            return callee, args, keywords
