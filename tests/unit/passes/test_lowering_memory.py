"""Tests of LowerAtomics, LowerBf16 and Bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.unit.interp.kernels import carried, kernel, run, storage_of
from vkjit import dtypes
from vkjit.errors import BoundsError, KernelZeroDivisionError
from vkjit.ir import semantics
from vkjit.ir.core import Module
from vkjit.ir.parser import parse_module
from vkjit.ir.verify import verify
from vkjit.passes.lowering.lower_access import LowerAccess
from vkjit.passes.lowering.lower_atomics import LowerAtomics
from vkjit.passes.lowering.lower_bf16 import LowerBf16
from vkjit.passes.transforms.bounds_checks import Bounds

# -- atomics


def atomic(op: str, type: str, space: str = "global") -> Module:
    where = "%x" if space == "global" else "%s"
    shared = "" if space == "global" else f"%s = shared : shared<{type}, 4>\n"
    return kernel(
        f"%x: array<{type}, 1, inout>, %v: array<{type}, 1, in>, %old: array<{type}, 1, out>",
        f"""  {shared}
  %i = global_id {{dim = 0}} : index
  %c3 = const 3 : index
  %slot = and %i, %c3 : index
  %value = load %v, %i : {type}
  %before = atomic {where}, %slot, %value {{op = "{op}", order = "relaxed", scope = "device"}} : {type}
  store %old, %i, %before
  return""",
    )


@pytest.mark.parametrize("type", ["f32", "f64"])
@pytest.mark.parametrize("op", ["add", "sub", "min", "max"])
def test_compare_and_swap_gives_the_same(op: str, type: str) -> None:
    dtype = dtypes.by_name[type]
    values = np.random.default_rng(1).integers(-99, 99, 64).astype(dtype.numpy)
    values[7] = -0.0
    module = LowerAtomics(frozenset()).run(LowerAccess().run(atomic(op, type)))
    verify(module, "normal")
    assert any(o.name == "atomic_cas" for o in module.kernel.body.walk())
    assert not any(o.name == "atomic" for o in module.kernel.body.walk())
    results: list[npt.NDArray[Any]] = []
    for one in (atomic(op, type), module):
        x, old = np.zeros(4, dtype.numpy), np.zeros(64, dtype.numpy)
        run(one, 1, x, values, old)
        results.append(x)
    np.testing.assert_array_equal(results[1], results[0])


def test_native_atomics_stay() -> None:
    def kept(op: str, type: str, space: str, *features: str) -> bool:
        module = LowerAtomics(frozenset(features)).run(LowerAccess().run(atomic(op, type, space)))
        return any(o.name == "atomic" for o in module.kernel.body.walk())

    assert kept("add", "f32", "global", "float32_atomic_add")
    assert not kept("add", "f32", "shared", "float32_atomic_add")
    assert kept("add", "f32", "shared", "float32_shared_atomic_add")
    assert not kept("max", "f32", "global", "float32_atomic_add")
    assert kept("exchange", "f32", "global")
    assert kept("max", "i32", "global")
    assert kept("add", "f16", "global")


# -- bf16


@pytest.mark.parametrize("op", ["add", "mul", "div", "min", "floormod"])
def test_bf16_is_rounded_after_each_operation(op: str) -> None:
    module = kernel(
        "%x: array<bf16, 1, in>, %y: array<bf16, 1, in>, %z: array<bf16, 1, out>",
        f"""  %i = global_id {{dim = 0}} : index
  %a = load %x, %i : bf16
  %b = load %y, %i : bf16
  %r = {op} %a, %b : bf16
  %s = {op} %r, %b : bf16
  store %z, %i, %s
  return""",
    )
    random = np.random.default_rng(2)
    x, y = (semantics.to_bf16(random.normal(size=64).astype(np.float32)) for _ in range(2))
    outs: list[npt.NDArray[Any]] = []
    for one in (module, LowerBf16().run(parse_module(_text(module)))):
        verify(one)
        out = np.zeros(64, np.uint16)
        run(one, 1, storage_of(x, dtypes.bf16), storage_of(y, dtypes.bf16), out)
        outs.append(carried(out, dtypes.bf16))
    np.testing.assert_array_equal(outs[1], outs[0])
    lowered = LowerBf16().run(module)
    inner = [o for o in lowered.kernel.body.walk() if o.name == op]
    assert len(inner) == 2
    assert all(str(o.result.type) == "f32" for o in inner)


def _text(module: Module) -> str:
    from vkjit.ir.printer import print_module

    return print_module(module)


def test_bf16_comparisons_and_choices_stay() -> None:
    module = kernel(
        "%x: array<bf16, 1, inout>",
        """  %i = global_id {dim = 0} : index
  %a = load %x, %i : bf16
  %n = neg %a : bf16
  %c = lt %a, %n : bool
  %m = select %c, %n, %a : bf16
  store %x, %i, %m
  return""",
    )
    before = _text(module)
    assert _text(LowerBf16().run(module)) == before


# -- bounds


def bounded(body: str, arguments: str, flags: str = "bounds = true", dims: str = "") -> Module:
    extra = f", dims = ({dims})" if dims else ""
    text = f"kernel @k({arguments}) attrs {{local_size = (8, 1, 1), {flags}{extra}}} {{\n{body}\n}}\n"
    module = parse_module(text)
    verify(module)
    return module


GATHER = """  %i = global_id {dim = 0} : index
  %j = load %at, %i : i64
  %k = cast %j : index
  %v = load %x, %k : f32
  store %y, %i, %v
  return"""
GATHER_ARGUMENTS = "%at: array<i64, 1, in>, %x: array<f32, 1, in>, %y: array<f32, 1, out>"


def test_an_index_outside_is_reported_and_reads_zero() -> None:
    module = Bounds().run(bounded(GATHER, GATHER_ARGUMENTS))
    verify(module)
    at, x = np.array([0, 1, 2, 3, 4, 5, 6, 9]), np.arange(8, dtype=np.float32)
    with pytest.raises(BoundsError, match=r"index 9 is outside x, shape \(8,\)") as caught:
        run(module, 1, at, x, np.zeros(8, np.float32))
    assert caught.value.invocation == (7, 0, 0)
    good = np.zeros(8, np.float32)
    run(module, 1, at % 8, x, good)
    np.testing.assert_array_equal(good, x[at % 8])


@pytest.mark.parametrize("index", [-1, 8, 2**40])
def test_writes_outside_are_dropped(index: int) -> None:
    body = """  %i = global_id {dim = 0} : index
  %j = load %at, %i : i64
  %k = cast %j : index
  %one = const 1.0 : f32
  store %y, %k, %one
  return"""
    module = Bounds().run(bounded(body, "%at: array<i64, 1, in>, %y: array<f32, 1, out>"))
    at, y = np.arange(8), np.zeros(8, np.float32)
    at[3] = index
    with pytest.raises(BoundsError, match=f"index {index} is outside y"):
        run(module, 1, at, y)
    np.testing.assert_array_equal(y, [1, 1, 1, 0, 1, 1, 1, 1])


def checks(module: Module) -> int:
    return sum(op.name == "report" for op in Bounds().run(module).kernel.body.walk())


OVER = """  %i = global_id {{dim = 0}} : index
  %n = extent %y {{axis = 0}} : index
  %inside = lt %i, %n : bool
  if %inside {{
    %v = load {source}, %i : f32
    store %y, %i, %v
    yield
  }} else {{
    yield
  }}
  return"""
TWO = "%x: array<f32, 1, in>, %y: array<f32, 1, inout>"


def test_what_the_guard_of_an_array_proves_is_not_checked() -> None:
    assert checks(bounded(OVER.format(source="%y"), TWO)) == 0
    assert checks(bounded(OVER.format(source="%x"), TWO)) == 1
    assert checks(bounded(OVER.format(source="%x"), TWO, dims='"N", "N"')) == 0
    assert checks(bounded(OVER.format(source="%x"), TWO, dims='"N", "M"')) == 1
    assert checks(bounded(OVER.format(source="%x"), TWO, dims='"_", "_"')) == 1


def test_loop_counters_and_constants() -> None:
    body = """  %s = shared : shared<f32, 8x8>
  %l = local_id {dim = 0} : index
  %n = extent %x {axis = 0} : index
  %zero = const 0 : index
  %one = const 1 : index
  %five = const 5 : index
  for %zero, %n, %one (%k: index) {
    %v = load %x, %k : f32
    store %s, %l, %five, %v
    continue
  }
  return"""
    assert checks(bounded(body, "%x: array<f32, 1, in>")) == 0
    assert checks(bounded(body.replace("const 5", "const 8"), "%x: array<f32, 1, in>")) == 1
    assert checks(bounded(body.replace("const 0", "const -1"), "%x: array<f32, 1, in>")) == 1


def test_without_the_flag_nothing_is_checked() -> None:
    assert checks(bounded(GATHER, GATHER_ARGUMENTS, flags="strict = true")) == 0


DIVIDE = """  %i = global_id {dim = 0} : index
  %a = load %x, %i : i32
  %c = const 100 : i32
  %q = floordiv %c, %a : i32
  store %x, %i, %q
  return"""


def test_division_by_zero_is_reported_in_debug() -> None:
    module = Bounds().run(bounded(DIVIDE, "%x: array<i32, 1, inout>", flags="debug = true"))
    verify(module)
    with pytest.raises(KernelZeroDivisionError, match="100 divided by 0"):
        run(module, 1, np.array([1, 2, 3, 0, 5, 6, 7, 8], np.int32))
    x = np.array([1, 2, 3, 4, 5, -6, 7, 8], np.int32)
    expected = 100 // x
    run(module, 1, x)
    np.testing.assert_array_equal(x, expected)
