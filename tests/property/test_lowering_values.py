"""Property tests of lowered arithmetic against NumPy, on generated operands."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

from tests.selection import examples
from tests.unit.passes.lowering import FLOATS, INTEGERS, LOCAL, Values, first_difference, lowered, operation, run
from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.ir import semantics
from vkjit.ir.core import Module
from vkjit.ir.ops import OPS, op_name

DIVISIONS = ("floordiv", "floormod", "truncdiv", "truncrem")
_LOWERED: dict[Any, Module] = {}


def module(name: str, sources: tuple[DType, ...], result: DType) -> Module:
    """Return the lowered module, cached by operation and types."""
    key = (name, sources, result)
    if key not in _LOWERED:
        _LOWERED[key] = lowered(operation(name, sources, result))
    return _LOWERED[key]


def operands(dtype: DType, count: int) -> st.SearchStrategy[tuple[Values, ...]]:
    return st.tuples(*[hnp.arrays(dtype.numpy, LOCAL)] * count)


def of_types(types: tuple[DType, ...], count: int) -> st.SearchStrategy[tuple[DType, tuple[Values, ...]]]:
    return st.sampled_from(types).flatmap(lambda dtype: st.tuples(st.just(dtype), operands(dtype, count)))


def agrees(name: str, dtype: DType, values: tuple[Values, ...]) -> None:
    meaning = OPS[op_name(name)].meaning
    assert meaning is not None
    with semantics.silence_warnings():
        expected = np.asarray(meaning(*values))
    found = run(module(name, (dtype,) * len(values), dtype), dtype, *values)
    assert first_difference(found, expected, *values) == ""


@settings(max_examples=examples(100), deadline=None)
@given(st.sampled_from(DIVISIONS), of_types(INTEGERS, 2))
def test_integer_division(name: str, case: tuple[DType, tuple[Values, ...]]) -> None:
    agrees(name, *case)


@settings(max_examples=examples(100), deadline=None)
@given(st.sampled_from((*DIVISIONS, "min", "max", "copysign")), of_types(FLOATS, 2))
def test_floats(name: str, case: tuple[DType, tuple[Values, ...]]) -> None:
    agrees(name, *case)


@settings(max_examples=examples(100), deadline=None)
@given(st.sampled_from(("shl", "shr", "pow")), of_types(INTEGERS, 2))
def test_shifts_and_powers(name: str, case: tuple[DType, tuple[Values, ...]]) -> None:
    agrees(name, *case)


@settings(max_examples=examples(100), deadline=None)
@given(of_types((*INTEGERS, *FLOATS), 1), st.sampled_from((*INTEGERS, *FLOATS, dtypes.boolean)))
def test_conversions(case: tuple[DType, tuple[Values, ...]], target: DType) -> None:
    source, (values,) = case
    with semantics.silence_warnings():
        expected = semantics.cast(values, source, target)
    found = run(module("cast", (source,), target), target, values)
    assert first_difference(found, expected, values) == ""


@settings(max_examples=examples(60), deadline=None)
@given(hnp.arrays(np.float64, LOCAL), st.integers(0, 1100))
def test_remainders_of_far_apart_numbers(x: Values, exponent: int) -> None:
    """The remainder is exact for quotients of any size."""
    with semantics.silence_warnings():
        y = np.ldexp(x[::-1], -exponent)
        expected = np.fmod(x, y)
    found = run(module("truncrem", (dtypes.f64, dtypes.f64), dtypes.f64), dtypes.f64, x, y)
    assert first_difference(found, expected, x, y) == ""
