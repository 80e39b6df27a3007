"""The functions that short calls begin with: from positional arguments to the entry of their key.

Enters: which argument is what, and entries by key. Leaves: a function of the arguments. Holds: nothing has happened where it says
False.

Loops and `map` over two or three arguments take longer than everything else here, so calls with up to four arrays have a
function each, written out.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from . import findings, staging
from .frontend import Captures, KernelSpec, exact
from .runtime.array import DeviceArray

__all__ = ["CallForm", "Entry", "Short", "call_form", "key_of", "picker", "short_way"]

Short: TypeAlias = Callable[[tuple[Any, ...]], bool]
"""Launches with these positional arguments; False where that is left to the long way."""

Entry: TypeAlias = Callable[[Sequence[Any], tuple[Any, ...]], bool]
"""Launches with these buffers and words: the words of the arrays, then the other arguments given."""


@dataclass(frozen=True, slots=True)
class CallForm:
    """Which argument of a call is what: places in the call, and numbers of the parameters."""

    spec: KernelSpec
    arrays: tuple[int, ...]
    params: tuple[int, ...]
    others: tuple[int, ...]
    other_params: tuple[int, ...]
    by_value: tuple[bool, ...]
    written: tuple[int, ...]


def call_form(spec: KernelSpec, slots: Sequence[tuple[int, bool, bool]]) -> CallForm:
    """For each argument its parameter's number, whether that is an array, and whether its value counts."""
    arrays = [place for place, (_, is_array, _) in enumerate(slots) if is_array]
    others = [place for place, (_, is_array, _) in enumerate(slots) if not is_array]
    return CallForm(
        spec,
        tuple(arrays),
        tuple(slots[place][0] for place in arrays),
        tuple(others),
        tuple(slots[place][0] for place in others),
        tuple(slots[place][2] for place in others),
        tuple(place for place in arrays if spec.params[slots[place][0]].mode != "in"),
    )


def key_of(form: CallForm, arrays: Sequence[DeviceArray], others: tuple[Any, ...]) -> tuple[Any, ...]:
    """What decides which code runs; the functions for one to four arrays make the same."""
    key: tuple[Any, ...] = (arrays[0].buffer.device, *(a.form for a in arrays))
    if len({id(a.buffer) for a in arrays}) < len(arrays):
        key += overlap(form, arrays)
    return key + _kinds(form)(others) if others else key


def overlap(form: CallForm, arrays: Sequence[DeviceArray]) -> tuple[bool, ...]:
    """Something to add to the key where a written array shares bytes with another."""
    written = [form.spec.params[number].mode != "in" for number in form.params]
    return (True,) if staging.overlaps(list(arrays), written) else ()


def _kinds(form: CallForm) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """What counts of arguments that are no arrays: types of numbers, values of constants."""
    if not any(form.by_value):
        return lambda others: tuple(map(type, others))
    ways = tuple(exact if by_value else type for by_value in form.by_value)
    return lambda others: tuple([way(value) for way, value in zip(ways, others)])  # noqa: B905


def picker(places: Sequence[int]) -> Callable[[Any], tuple[Any, ...]]:
    """Takes the items at these places of a sequence, as a tuple."""
    if len(places) > 1:
        return operator.itemgetter(*places)
    if not places:
        return lambda _: ()
    place = places[0]
    return lambda items: (items[place],)


def short_way(form: CallForm, entries: dict[Any, Entry], captures: Captures) -> Short:
    """The function for calls of this form. `entries` may grow later."""
    make = {1: _one_array, 2: _two_arrays, 3: _three_arrays, 4: _four_arrays}.get(len(form.arrays), _any_arrays)
    return make(form, entries.get, captures)


def _more(captures: Captures) -> Callable[[], bool] | None:
    """Whether what isn't found in globals is still the same; None where there is no such thing."""
    _, cells, checks = captures.quick()
    if not cells and not checks:
        return None

    def unchanged() -> bool:
        for cell, value in cells:
            if cell.cell_contents is not value:
                return False
        return all(holds() for holds in checks)

    return unchanged


def _one_array(form: CallForm, look_up: Callable[[Any], Entry | None], captures: Captures) -> Short:
    (i,) = form.arrays
    others, kinds, written = picker(form.others) if form.others else None, _kinds(form), form.written
    names, more, block, missing = captures.quick()[0], _more(captures), findings.BLOCK, object()

    def short(args: tuple[Any, ...]) -> bool:
        for namespace, name, value in names:
            if namespace.get(name, missing) is not value:
                return False
        if block.checks is not None:
            return False
        try:
            if more is not None and not more():
                return False
            a = args[i].__vkjit_array__
            w = a.buffer
            words = a.words
            key: tuple[Any, ...] = (w.device, a.form)
            if others is not None:
                rest = others(args)
                key += kinds(rest)
                words += rest
            entry = look_up(key)
        except (AttributeError, TypeError, ValueError):  # no array, a constant that can't be a key, an emptied name
            return False
        if entry is None or not entry((w,), words):
            return False
        for place in written:
            if args[place].__class__ is not DeviceArray:
                args[place].__vkjit_written__()
        return True

    return short


def _two_arrays(form: CallForm, look_up: Callable[[Any], Entry | None], captures: Captures) -> Short:
    i, j = form.arrays
    others, kinds, written = picker(form.others) if form.others else None, _kinds(form), form.written
    names, more, block, missing = captures.quick()[0], _more(captures), findings.BLOCK, object()

    def short(args: tuple[Any, ...]) -> bool:
        for namespace, name, value in names:
            if namespace.get(name, missing) is not value:
                return False
        if block.checks is not None:
            return False
        try:
            if more is not None and not more():
                return False
            a, b = args[i].__vkjit_array__, args[j].__vkjit_array__
            w, x = a.buffer, b.buffer
            words = a.words + b.words
            key: tuple[Any, ...] = (w.device, a.form, b.form)
            if w is x:
                key += overlap(form, (a, b))
            if others is not None:
                rest = others(args)
                key += kinds(rest)
                words += rest
            entry = look_up(key)
        except (AttributeError, TypeError, ValueError):  # no array, a constant that can't be a key, an emptied name
            return False
        if entry is None or not entry((w, x), words):
            return False
        for place in written:
            if args[place].__class__ is not DeviceArray:
                args[place].__vkjit_written__()
        return True

    return short


def _three_arrays(form: CallForm, look_up: Callable[[Any], Entry | None], captures: Captures) -> Short:
    i, j, k = form.arrays
    others, kinds, written = picker(form.others) if form.others else None, _kinds(form), form.written
    names, more, block, missing = captures.quick()[0], _more(captures), findings.BLOCK, object()

    def short(args: tuple[Any, ...]) -> bool:
        for namespace, name, value in names:
            if namespace.get(name, missing) is not value:
                return False
        if block.checks is not None:
            return False
        try:
            if more is not None and not more():
                return False
            a, b, c = args[i].__vkjit_array__, args[j].__vkjit_array__, args[k].__vkjit_array__
            w, x, y = a.buffer, b.buffer, c.buffer
            words = a.words + b.words + c.words
            key: tuple[Any, ...] = (w.device, a.form, b.form, c.form)
            if w is x or w is y or x is y:
                key += overlap(form, (a, b, c))
            if others is not None:
                rest = others(args)
                key += kinds(rest)
                words += rest
            entry = look_up(key)
        except (AttributeError, TypeError, ValueError):  # no array, a constant that can't be a key, an emptied name
            return False
        if entry is None or not entry((w, x, y), words):
            return False
        for place in written:
            if args[place].__class__ is not DeviceArray:
                args[place].__vkjit_written__()
        return True

    return short


def _four_arrays(form: CallForm, look_up: Callable[[Any], Entry | None], captures: Captures) -> Short:
    i, j, k, m = form.arrays
    others, kinds, written = picker(form.others) if form.others else None, _kinds(form), form.written
    names, more, block, missing = captures.quick()[0], _more(captures), findings.BLOCK, object()

    def short(args: tuple[Any, ...]) -> bool:
        for namespace, name, value in names:
            if namespace.get(name, missing) is not value:
                return False
        if block.checks is not None:
            return False
        try:
            if more is not None and not more():
                return False
            a, b, c, d = (
                args[i].__vkjit_array__,
                args[j].__vkjit_array__,
                args[k].__vkjit_array__,
                args[m].__vkjit_array__,
            )
            w, x, y, z = a.buffer, b.buffer, c.buffer, d.buffer
            words = a.words + b.words + c.words + d.words
            key: tuple[Any, ...] = (w.device, a.form, b.form, c.form, d.form)
            if w is x or w is y or w is z or x is y or x is z or y is z:
                key += overlap(form, (a, b, c, d))
            if others is not None:
                rest = others(args)
                key += kinds(rest)
                words += rest
            entry = look_up(key)
        except (AttributeError, TypeError, ValueError):  # no array, a constant that can't be a key, an emptied name
            return False
        if entry is None or not entry((w, x, y, z), words):
            return False
        for place in written:
            if args[place].__class__ is not DeviceArray:
                args[place].__vkjit_written__()
        return True

    return short


def _any_arrays(form: CallForm, look_up: Callable[[Any], Entry | None], captures: Captures) -> Short:
    others, written = picker(form.others), form.written
    names, more, block, missing = captures.quick()[0], _more(captures), findings.BLOCK, object()

    def short(args: tuple[Any, ...]) -> bool:
        for namespace, name, value in names:
            if namespace.get(name, missing) is not value:
                return False
        if block.checks is not None:
            return False
        try:
            if more is not None and not more():
                return False
            arrays = [args[place].__vkjit_array__ for place in form.arrays]
            rest = others(args)
            words = tuple([word for array in arrays for word in array.words]) + rest
            entry = look_up(key_of(form, arrays, rest))
        except (AttributeError, TypeError, ValueError):
            return False
        if entry is None or not entry([array.buffer for array in arrays], words):
            return False
        for place in written:
            if args[place].__class__ is not DeviceArray:
                args[place].__vkjit_written__()
        return True

    return short
