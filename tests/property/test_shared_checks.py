"""Property tests of shared and hoisted bounds checks: they change neither results nor reports.

The oracle is the pass without sharing, which checks each access in place.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.selection import examples
from vkjit.backends.interp import run_module
from vkjit.errors import BoundsError
from vkjit.ir import verify
from vkjit.ir.parser import parse_module
from vkjit.passes.registry import run_passes
from vkjit.passes.transforms.bounds_checks import Bounds

HEAD = (
    "kernel @k(%a: index, %b: index, %high: index, %x: array<f32, 1, in>, %j: array<i32, 1, in>, "
    "%y: array<f32, 1, inout>, %z: array<f32, 1, inout>) attrs {{bounds = true, "
    'dims = ("", "", "", "N", "M", "P", "P"), local_size = (1, 1, 1)}} {{\n'
)
LOOP = (
    HEAD
    + """  %zero = const 0 : index
  %start = const {start} : index
  %step = const {step} : index
  %some = const 2 : index
  %less = const -3 : index
  %none = const 0.0 : f32
  %row = mul %a, %some : index
  %sum = for %start, %high, %step, %none : f32 (%k: index, %c: f32) {{
    %twice = mul %k, %some : index
    %often = mul %b, %k : index
    %back = mul %k, %less : index
    %o = {first} : index
    %v = load %x, %o : f32
    %q = load %j, {second} : i32
    %at = cast %q : index
    %w = load %x, %at : f32
    %again = load %x, %o : f32
    %s = add %v, %w : f32
    %t = add %c, %s : f32
    %u = add %t, %again : f32
    store %y, %k, %u
    %full = lt %none, %u : bool
    if %full {{
      {leave}
    }} else {{
      yield
    }}
    store %z, %k, %c
    continue %u
  }}
  %last = load %y, %b : f32
  %more = add %last, %sum : f32
  store %z, %b, %more
  return
}}
"""
)
FIRST = (
    "add %row, %k", "add %k, %a", "sub %a, %k", "sub %k, %a", "add %a, %b", "add %twice, %a", "sub %a, %twice",
    "add %a, %often", "add %back, %a",
)  # fmt: skip
SECOND = ("%k", "%zero", "%a", "%o")


def outcome(text: str, share: bool, scalars: list[int]) -> tuple[str, list[bytes]]:
    module = run_passes(Bounds(share=share).run(parse_module(text)), ["fold", "cse"])
    verify(module)
    x, j = np.arange(1, 9, dtype=np.float32) / 8, np.array([3, 0, 7, 1, 9, 2], np.int32)
    arrays: list[np.ndarray[Any, Any]] = [x - 0.6, j, np.zeros(6, np.float32), np.ones(6, np.float32)]
    message = ""
    try:
        run_module(module, 1, [*scalars, *arrays])
    except BoundsError as error:
        message = str(error)
    return message, [array.tobytes() for array in arrays]


@settings(max_examples=examples(150), deadline=None)
@given(
    start=st.integers(0, 3),
    step=st.integers(1, 3),
    first=st.sampled_from(FIRST),
    second=st.sampled_from(SECOND),
    leave=st.sampled_from(["break %v", "continue %v", "yield"]),
    scalars=st.tuples(st.integers(-2, 9), st.integers(-2, 7), st.integers(-3, 9)),
)
def test_sharing_changes_nothing(
    start: int, step: int, first: str, second: str, leave: str, scalars: tuple[int, ...]
) -> None:
    text = LOOP.format(start=start, step=step, first=first, second=second, leave=leave)
    assert outcome(text, True, list(scalars)) == outcome(text, False, list(scalars))


def test_the_copy_without_checks_is_there() -> None:
    text = LOOP.format(start=0, step=1, first=FIRST[0], second="%k", leave="yield")
    found = [Bounds(share=share).run(parse_module(text)) for share in (False, True)]
    assert [sum(op.name == "for" for op in module.kernel.body.walk()) for module in found] == [1, 2]


@pytest.mark.parametrize("leave", ["break %v", "continue %v"])
def test_loops_that_may_be_left_have_no_copy(leave: str) -> None:
    text = LOOP.format(start=0, step=1, first=FIRST[0], second="%k", leave=leave)
    assert sum(op.name == "for" for op in Bounds().run(parse_module(text)).kernel.body.walk()) == 1


@pytest.mark.parametrize("first", ["add %k, %a", "sub %k, %a", "sub %a, %k"])
@pytest.mark.parametrize("a", [-1, 1, -(2**63), 2**63 - 1])
def test_ends_that_wrap_round_are_out_of_range(first: str, a: int) -> None:
    text = LOOP.format(start=0, step=1, first=first, second="%zero", leave="yield")
    scalars = [a, 0, 6]
    found = outcome(text, True, scalars)
    assert found == outcome(text, False, scalars)
    assert found[0] or abs(a) == 1


@pytest.mark.parametrize("first", ["add %a, %often", "add %twice, %often"])
@pytest.mark.parametrize("b", [1 << 62, 1 << 63, (1 << 63) + 1, (1 << 61) + 1, 1 << 60])
def test_multiples_that_wrap_round_are_not_taken_for_lines(first: str, b: int) -> None:
    """Products that wrap, such as 0, 2**62, 2**63, 0, are in range at the first and last iteration only."""
    text = LOOP.format(start=0, step=1, first=first, second="%zero", leave="yield")
    for high in (5, 6, 9):
        scalars = [0, (b + (1 << 63)) % (1 << 64) - (1 << 63), high]
        assert outcome(text, True, scalars) == outcome(text, False, scalars)


def test_multiples_of_the_counter_get_a_copy() -> None:
    for first in ("add %twice, %a", "add %a, %often", "add %back, %a"):
        text = LOOP.format(start=0, step=1, first=first, second="%k", leave="yield")
        module = Bounds().run(parse_module(text))
        loops = [op for op in module.kernel.body.walk() if op.name == "for"]
        assert len(loops) == 2
        guarded = [sum(op.name == "report" for op in loop.regions[0].walk()) for loop in loops]
        assert guarded[0] < guarded[1]
