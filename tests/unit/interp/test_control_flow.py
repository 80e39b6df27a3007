"""Tests of divergent control flow, against plain Python loops over the invocations."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.interp.kernels import kernel, run
from vkjit.backends.interp.codegen.control_flow import trip_count
from vkjit.errors import InternalError, KernelError
from vkjit.ir import semantics

ARRAYS = "%x: array<i32, 1, in>, %y: array<i32, 1, out>"
START = """%i = global_id {dim = 0} : index
%v = load %x, %i : i32
%c0 = const 0 : i32
%c1 = const 1 : i32
%c3 = const 3 : i32
"""


def outcome(body: str, x: np.ndarray, lanes: int = 1 << 16, before: str = "") -> list[int]:
    """Return y as written by a kernel with workgroups of 64 for the input x; elements not written are -1."""
    y = np.full(len(x), -1, np.int32)
    run(kernel(ARRAYS, START + body, before=before), len(x) // 64, x, y, lanes_per_batch=lanes)
    return [int(value) for value in y]


X = np.random.default_rng(3).integers(-6, 9, 256).astype(np.int32)


def test_if_merges_results() -> None:
    found = outcome(
        """%c = lt %v, %c0 : bool
        %r, %s = if %c : i32, i32 {
          %a = neg %v : i32
          yield %a, %c1
        } else {
          %b = mul %v, %c3 : i32
          yield %b, %c3
        }
        %t = add %r, %s : i32
        store %y, %i, %t
        return""",
        X,
    )
    assert found == [-v + 1 if v < 0 else v * 3 + 3 for v in X.tolist()]


@pytest.mark.parametrize("value", [-4, 4])
def test_if_that_all_take_the_same_way(value: int) -> None:
    body = """%c = lt %v, %c0 : bool
        %r = if %c : i32 {
          yield %c1
        } else {
          yield %c3
        }
        store %y, %i, %r
        return"""
    assert outcome(body, np.full(64, value, np.int32)) == [1 if value < 0 else 3] * 64


def test_early_return_in_nested_ifs() -> None:
    found = outcome(
        """%c = lt %v, %c0 : bool
        if %c {
          %d = eq %v, %m3 : bool
          if %d {
            return
          } else {
            yield
          }
          store %y, %i, %c1
          yield
        } else {
          %e = gt %v, %c3 : bool
          if %e {
            store %y, %i, %c3
            return
          } else {
            yield
          }
          yield
        }
        %w = add %v, %v : i32
        store %y, %i, %w
        return""".replace("%c = lt", "%m3 = const -3 : i32\n%c = lt", 1),
        X,
    )
    assert found == [-1 if v == -3 else 3 if v > 3 else 2 * v for v in X.tolist()]


def test_both_ways_exit() -> None:
    found = outcome(
        """%c = lt %v, %c0 : bool
        if %c {
          store %y, %i, %c1
          return
        } else {
          store %y, %i, %c3
          return
        }
        unreachable""",
        X,
    )
    assert found == [1 if v < 0 else 3 for v in X.tolist()]


def test_break_continue_return_in_a_divergent_loop() -> None:
    """for k in range(v): if k == 2: continue; if k == 5: break; if total == 100: return; total += k"""
    body = """%five = const 5 : i32
        %two = const 2 : i32
        %seven = const 7 : i32
        %total = for %c0, %v, %c1, %c0 : i32 (%k: i32, %sum: i32) {
          %p = eq %k, %two : bool
          if %p {
            continue %sum
          } else {
            yield
          }
          %q = eq %k, %five : bool
          if %q {
            %far = add %sum, %seven : i32
            break %far
          } else {
            yield
          }
          %r = eq %v, %c3 : bool
          if %r {
            return
          } else {
            yield
          }
          %next = add %sum, %k : i32
          continue %next
        }
        store %y, %i, %total
        return"""

    def reference(v: int) -> int:
        total = 0
        for k in range(v):
            if k == 2:
                continue
            if k == 5:
                return total + 7
            if v == 3:
                return -1
            total += k
        return total

    for lanes in (64, 128, 1 << 16):
        assert outcome(body, X, lanes) == [reference(v) for v in X.tolist()]


def test_loop_until_break_with_nested_loop() -> None:
    """Collatz steps, each with a nested counted loop that breaks."""
    body = """%two = const 2 : i32
        %ab = abs %v : i32
        %start = add %ab, %c1 : i32
        %steps, %inner = loop %start, %c0, %c0 : i32, i32 (%n: i32, %count: i32, %seen: i32) {
          %done = le %n, %c1 : bool
          if %done {
            break %count, %seen
          } else {
            yield
          }
          %half = for %c0, %n, %c1, %seen : i32 (%k: i32, %s: i32) {
            %stop = ge %k, %c3 : bool
            if %stop {
              break %s
            } else {
              yield
            }
            %s2 = add %s, %c1 : i32
            continue %s2
          }
          %odd = and %n, %c1 : i32
          %isodd = eq %odd, %c1 : bool
          %m = if %isodd : i32 {
            %t3 = mul %n, %c3 : i32
            %t4 = add %t3, %c1 : i32
            yield %t4
          } else {
            %h = floordiv %n, %two : i32
            yield %h
          }
          %count2 = add %count, %c1 : i32
          continue %m, %count2, %half
        }
        %thousand = const 1000 : i32
        %sc = mul %steps, %thousand : i32
        %out = add %sc, %inner : i32
        store %y, %i, %out
        return"""

    def reference(v: int) -> int:
        n, count, seen = abs(v) + 1, 0, 0
        while n > 1:
            seen += min(n, 3)
            n = 3 * n + 1 if n % 2 else n // 2
            count += 1
        return count * 1000 + seen

    for lanes in (64, 1 << 16):
        assert outcome(body, X, lanes) == [reference(v) for v in X.tolist()]


def test_functions_return_early_and_from_loops() -> None:
    before = """func @find(%v: i32, %w: i32) -> (i32, bool) {
      %c0 = const 0 : i32
      %c1 = const 1 : i32
      %no = const false : bool
      %yes = const true : bool
      %neg = lt %v, %c0 : bool
      if %neg {
        return %v, %no
      } else {
        yield
      }
      for %c0, %w, %c1 (%k: i32) {
        %sq = mul %k, %k : i32
        %hit = ge %sq, %v : bool
        if %hit {
          return %k, %yes
        } else {
          yield
        }
        continue
      }
      return %w, %no
    }"""
    body = """%r, %f = call %v, %c3 {callee = "find"} : i32, bool
        %q, %g = call %c3, %v {callee = "find"} : i32, bool
        %both = xor %f, %g : bool
        %b = cast %both : i32
        %t = mul %r, %c3 : i32
        %u = add %t, %q : i32
        %ten = const 100 : i32
        %w = mul %u, %ten : i32
        %z = add %w, %b : i32
        store %y, %i, %z
        return"""

    def find(v: int, w: int) -> tuple[int, bool]:
        if v < 0:
            return v, False
        for k in range(w):
            if k * k >= v:
                return k, True
        return w, False

    wanted = []
    for v in X.tolist():
        (r, f), (q, g) = find(v, 3), find(3, v)
        wanted.append((r * 3 + q) * 100 + int(f != g))
    assert outcome(body, X, before=before) == wanted


@pytest.mark.parametrize(("dtype", "bits"), [("i8", 8), ("u8", 8), ("i64", 64), ("u64", 64), ("i32", 32)])
def test_trip_counts_at_the_ends_of_the_type(dtype: str, bits: int) -> None:
    kind = np.dtype(dtype.replace("i", "int").replace("u", "uint") if dtype[0] == "i" else f"uint{bits}")
    info = np.iinfo(kind)
    bounds = [info.min, info.min + 1, 0, 1, info.max - 1, info.max]
    steps = [s for s in (1, 2, 3, info.max, -1, -2, info.min, 0) if info.min <= s <= info.max]
    for low in bounds:
        for high in bounds:
            for step in steps:
                wanted = len(range(low, high, step)) if step and abs(high - low) < 2**63 else None
                if step == 0:
                    wanted = 0
                if wanted is None:
                    distance = high - low if step > 0 else low - high
                    wanted = max(0, -(-distance // abs(step)))
                with semantics.silence_warnings():
                    found = trip_count(*(np.full((1, 1), v, kind) for v in (low, high, step)))
                assert found.dtype == np.uint64
                assert int(found[0, 0]) == wanted, (low, high, step)


def test_loop_runs_to_the_last_value_of_its_type() -> None:
    module = kernel(
        "%y: array<i32, 1, out>",
        """%i = global_id {dim = 0} : index
        %lo = const 250 : u8
        %hi = const 255 : u8
        %two = const 2 : u8
        %zero = const 0 : i32
        %t = for %lo, %hi, %two, %zero : i32 (%k: u8, %s: i32) {
          %w = cast %k : i32
          %n = add %s, %w : i32
          continue %n
        }
        store %y, %i, %t
        return""",
    )
    y = np.zeros(64, np.int32)
    run(module, 1, y)
    assert set(y.tolist()) == {250 + 252 + 254}


def test_step_of_zero_makes_no_round() -> None:
    body = """%t = for %c0, %v, %c0, %c1 : i32 (%k: i32, %s: i32) {
          %n = add %s, %c1 : i32
          continue %n
        }
        store %y, %i, %t
        return"""
    assert outcome(body, X) == [1] * len(X)


def test_divergent_barrier_is_an_error_and_names_the_invocation() -> None:
    module = kernel(
        ARRAYS,
        START
        + """%c = gt %v, %c0 : bool
        if %c {
          barrier loc("user.py", 12, 0, 5)
          yield
        } else {
          yield
        }
        return""",
    )
    x = np.ones(192, np.int32)
    run(module, 3, x, x.copy())
    x[64:128] = 0
    run(module, 3, x, x.copy())  # all invocations of a workgroup may skip the barrier
    x[100] = 1
    with pytest.raises(KernelError, match="divergent barrier") as caught:
        run(module, 3, x, x.copy())
    assert caught.value.loc.line == 12
    assert caught.value.invocation == (64, 0, 0)


def test_barrier_needs_only_those_that_have_not_returned() -> None:
    body = """%c = gt %v, %c0 : bool
        if %c {
          return
        } else {
          yield
        }
        barrier
        store %y, %i, %c3
        return"""
    assert outcome(body, X) == [-1 if v > 0 else 3 for v in X.tolist()]


def test_reaching_unreachable_is_an_internal_error() -> None:
    body = """%c = gt %v, %c0 : bool
        %e = le %v, %c0 : bool
        loop () {
          if %c {
            return
          } else {
            yield
          }
          if %e {
            return
          } else {
            yield
          }
          continue
        }
        unreachable"""
    module = kernel(ARRAYS, START + body.replace("loop () {", "loop {"))
    run(module, 4, X, X.copy())
    first = next(op for op in module.kernel.body.walk() if op.name == "return")
    first.name = "unreachable"
    with pytest.raises(InternalError, match="reached `unreachable`"):
        run(module, 4, X, X.copy())
