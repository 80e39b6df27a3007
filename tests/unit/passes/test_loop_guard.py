"""Tests of LoopGuard and of the iteration bounds that the host evaluates."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tests.unit.interp.kernels import kernel, run
from vkjit.errors import LoopLimitError
from vkjit.ir.core import Module
from vkjit.ir.verify import verify
from vkjit.passes.analysis.trip_bound import UNBOUNDED, TripBound
from vkjit.passes.transforms.loop_guard import LoopGuard, bound_from_json, bound_to_json, bounded_trip_product

ARRAYS = "%n: array<i32, 1, in>, %y: array<i32, 1, out>"


def for_loop(trips: str, body: str = "", extra: str = "") -> str:
    return f"""  %i = global_id {{dim = 0}} : index
  %m = load %n, %i : i32
  %zero = const 0 : i32
  %one = const 1 : i32
{extra}
  %total = for %zero, {trips}, %one, %zero : i32 (%k: i32, %t: i32) {{
{body}
    %u = add %t, %one : i32
    continue %u
  }}
  store %y, %i, %total
  return"""


WHILE = """  %i = global_id {dim = 0} : index
  %m = load %n, %i : i32
  %zero = const 0 : i32
  %one = const 1 : i32
  %total = loop %zero : i32 (%t: i32) {
    %go = lt %t, %m : bool
    if %go {
      yield
    } else {
      break %t
    }
    %u = add %t, %one : i32
    continue %u
  }
  store %y, %i, %total
  return"""


def guarded(body: str, cap: int = 1000, **options: Any) -> Module:
    module = LoopGuard(cap, **options).run(kernel(ARRAYS, body))
    verify(module, "normal")
    return module


def reports(module: Module) -> int:
    return sum(op.name == "report" for op in module.kernel.body.walk())


def test_constant_loops_below_the_cap_are_left_alone() -> None:
    extra = "  %trips = const {} : i32"
    assert reports(guarded(for_loop("%trips", extra=extra.format(900)))) == 0
    assert reports(guarded(for_loop("%trips", extra=extra.format(999)))) == 1
    assert reports(LoopGuard(None).run(kernel(ARRAYS, WHILE))) == 0


@pytest.mark.parametrize("options", [{}, {"subgroup_arithmetic": False, "width": 4}])
@pytest.mark.parametrize("body", [WHILE, for_loop("%m")], ids=["while", "for"])
def test_reports_before_the_cap(body: str, options: dict[str, Any]) -> None:
    module = guarded(body, **options)
    most = 900 if not options else 200
    n = (np.arange(64) % (most + 1)).astype(np.int32)
    n[5] = most
    out = np.zeros(64, np.int32)
    run(module, 1, n, out, subgroup_size=8)
    np.testing.assert_array_equal(out, n)
    n[5] = 1000
    with pytest.raises(LoopLimitError, match="1,000 iterations"):
        run(module, 1, n, np.zeros(64, np.int32), subgroup_size=8)


def test_a_plain_for_costs_nothing_per_round() -> None:
    module = guarded(for_loop("%m"))
    (loop,) = [op for op in module.kernel.body.walk() if op.name == "for"]
    assert [op.name for op in loop.regions[0].ops] == ["add", "continue"]


def test_a_while_costs_one_sum_per_round() -> None:
    before = [len(op.regions[0].ops) for op in kernel(ARRAYS, WHILE).kernel.body.walk() if op.name == "loop"]
    after = [
        sum(inner.name != "const" for inner in op.regions[0].ops)
        for op in guarded(WHILE).kernel.body.walk()
        if op.name == "loop"
    ]
    assert after == [before[0] + 1]


def test_constant_loops_inside_count_with_their_rounds() -> None:
    inner = """    %ten = const 10 : i32
    for %zero, %ten, %one (%q: i32) {
      continue
    }"""
    module = guarded(for_loop("%m", inner))  # an iteration costs 1 + 10 + 1
    n = np.full(64, 70, np.int32)
    out = np.zeros(64, np.int32)
    run(module, 1, n, out, subgroup_size=8)
    np.testing.assert_array_equal(out, n)
    with pytest.raises(LoopLimitError):
        run(module, 1, n + 20, out, subgroup_size=8)


def test_sides_of_a_divergent_branch_add_up() -> None:
    side = """    %a{0} = for %zero, %m, %one, %zero : i32 (%k{0}: i32, %t{0}: i32) {{
      %u{0} = add %t{0}, %one : i32
      continue %u{0}
    }}
    yield %a{0}"""
    body = f"""  %i = global_id {{dim = 0}} : index
  %m = load %n, %i : i32
  %zero = const 0 : i32
  %one = const 1 : i32
  %bit = const 1 : index
  %low = and %i, %bit : index
  %odd = eq %low, %bit : bool
  %total = if %odd : i32 {{
{side.format(0)}
  }} else {{
{side.format(1)}
  }}
  for %zero, %m, %one (%k: i32) {{
    continue
  }}
  store %y, %i, %total
  return"""
    module = guarded(body)
    out = np.zeros(64, np.int32)
    run(module, 1, np.full(64, 300, np.int32), out, subgroup_size=8)
    np.testing.assert_array_equal(out, 300)
    with pytest.raises(LoopLimitError):
        run(module, 1, np.full(64, 400, np.int32), out, subgroup_size=8)


# -- bounds evaluated on the host


def bound_of(arguments: str, body: str) -> TripBound | None:
    return bounded_trip_product(kernel(arguments, body))


NEST = """  %zero = const 0 : index
  %two = const 2 : index
  %one = const 1 : index
  %rows = extent %x {axis = 0} : index
  %width = cast %w : index
  for %zero, %rows, %two (%r: index) {
    for %r, %width, %one (%c: index) {
      continue
    }
    continue
  }
  return"""


def test_bound_of_a_nest() -> None:
    bound = bound_of("%x: array<f32, 2, in>, %w: i32", NEST)
    assert bound is not None
    assert bound.evaluate({0: (10, 7)}, {1: 20}) == 5 * (1 + 20 + 1) + 2
    assert bound.evaluate({0: (0, 7)}, {1: 20}) == 2
    assert bound.evaluate({0: (10, 7)}, {1: -5}) == 5 * 2 + 2
    assert bound_from_json(json.loads(json.dumps(bound_to_json(bound)))) == bound
    assert bound_to_json(None) is None
    assert bound_from_json(None) is None


def test_bound_of_a_grid_stride_loop() -> None:
    bound = bound_of(
        "%x: array<f32, 1, inout>",
        """  %first = global_id {dim = 0} : index
  %size = extent %x {axis = 0} : index
  %groups = num_groups {dim = 0} : index
  %local = local_size {dim = 0} : index
  %step = mul %groups, %local : index
  for %first, %size, %step (%k: index) {
    continue
  }
  return""",
    )
    assert bound is not None
    assert bound.evaluate({0: (6400,)}, {}, (10, 1, 1)) == 10 * 1 + 1


def test_no_bound_where_memory_decides() -> None:
    assert bound_of(ARRAYS, for_loop("%m")) is None
    assert bound_of(ARRAYS, WHILE) is None


def test_no_bound_holds_past_the_end_of_a_type() -> None:
    body = """  %zero = const 0 : i32
  %one = const 1 : i32
  %double = mul %w, %w : i32
  for %zero, %double, %one (%k: i32) {
    continue
  }
  return"""
    bound = bound_of("%w: i32", body)
    assert bound is not None
    assert bound.evaluate({}, {0: 100}) == 10001
    assert bound.evaluate({}, {0: 100000}) == UNBOUNDED


def test_malformed_bounds_are_refused() -> None:
    for data in (["power", [], []], ["constant", [], []], ["add", [], [["constant", [1], []]]]):
        with pytest.raises(ValueError, match="trip bound"):
            bound_from_json(data)
