"""Tests of the IR's text form: printed text parses back to the same IR; errors have a line and column."""

from __future__ import annotations

import math
import struct
from typing import Any, cast

import pytest
from hypothesis import given, strategies as st

from vkjit import dtypes
from vkjit.errors import CompileError, Loc, ReportSite
from vkjit.ir import BOOL, F32, INDEX, Array, Builder, Function, Module, Region, Scalar, Type, Vector, print_module
from vkjit.ir.attributes import FunctionAttrs
from vkjit.ir.ops import op_name
from vkjit.ir.parser import parse_module
from vkjit.ir.printer import attribute_text


def kernel_of(region: Region, **attrs: Any) -> Module:
    return Module(Function("k", region, [], cast("FunctionAttrs", {"local_size": (1, 1, 1), **attrs})))


def read_back(module: Module) -> Module:
    """Print a module, parse the text, assert that it prints to the same text, and return the parsed module."""
    text = print_module(module, locations=True)
    again = parse_module(text)
    assert print_module(again, locations=True) == text
    return again


TEXT = """\
site 0 "bounds", "index {0} of \\"x\\"" loc("a\\\\b.py", 7, 4, 9)
func @half(%x: f32) -> (f32) attrs {inline = true} {
  %0 = const 0.5 : f32
  %1 = mul %x, %0 : f32
  return %1
}
kernel @k(%a: f32, %x: array<f32, 2, inout, contiguous, restrict>) attrs {local_size = (64, 1, 1), one = (1,)} {
  %s = shared : shared<f32, 16x17>
  %l = local : local<vec<f32, 4>, 8, linear>
  %i = global_id {dim = 0} : index
  %0 = cast %i : i32
  %1 = bitcast %a : u32
  barrier
  %acc = for %i, %i, %i, %a : f32 (%k: index, %acc_1: f32) {
    %2 = call %acc_1 {callee = "half"} : f32
    %3 = isnan %2 : bool
    report %3, %k {site = 0}
    if %3 {
      break %2
    } else {
      continue %acc_1
    }
    unreachable
  }
  %4, %5 = if %3 : f32, vec<f32, 2> {
    yield %a, %6
  } else {
    yield %a, %6
  }
  %6 = poison : vec<f32, 2>
  return
}
"""


def test_text_is_stable() -> None:
    assert print_module(parse_module(TEXT)) == TEXT


def test_every_attribute_value_survives() -> None:
    region = Region()
    builder = Builder(region, Loc("dir/k.py", 3, 4, 17))
    values = (
        True,
        False,
        None,
        3,
        -3,
        1.5,
        -0.0,
        math.inf,
        -math.inf,
        1e300,
        5e-324,
        'a"\\b\nc\rd',
        (),
        (1,),
        (1, (2.0, "x")),
    )
    for value in values:
        builder.op("barrier", note=value)
    for note in (dtypes.bf16, Array(F32, 2, access="in"), Vector(dtypes.i8, 3)):
        builder.op("barrier", note=note)
    builder.op("return")
    module = kernel_of(region)
    again = read_back(module)
    for before, after in zip(module.kernel.body.ops, again.kernel.body.ops, strict=True):
        assert after.attrs == before.attrs
        assert [type(v) for v in after.attrs.values()] == [type(v) for v in before.attrs.values()]
        assert after.loc == before.loc
    assert math.copysign(1, again.kernel.body.ops[6].attrs["note"]) == -1


@given(st.integers(0, 2**64 - 1))
def test_floats_keep_their_bits(bits: int) -> None:
    (value,) = struct.unpack("<d", struct.pack("<Q", bits))
    region = Region()
    builder = Builder(region)
    builder.const(value, dtypes.f64)
    builder.op("return")
    again = parse_module(print_module(kernel_of(region))).kernel.body.ops[0].attrs["value"]
    assert struct.pack("<d", again) == struct.pack("<d", value)


TYPES: list[Type] = [
    *(Scalar(t) for t in (*dtypes.ALL, dtypes.index)),
    Vector(dtypes.f16, 4),
    Array(F32, 1, access="out", linear=True),
    Array(Vector(dtypes.f32, 4), 3, access="in", contiguous=True, restrict=True),
    Array(F32, 0, access="in"),
]


@pytest.mark.parametrize("type", TYPES, ids=str)
def test_types_survive(type: Type) -> None:
    region = Region([type], ["a"])
    Builder(region).op("return")
    assert read_back(kernel_of(region)).kernel.params[0].type == type


@pytest.mark.parametrize("shape", [(), (1,), (3, 4), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("space", ["shared", "local"])
def test_allocated_types_survive(space: str, shape: tuple[int, ...]) -> None:
    region = Region()
    type = Array(F32, len(shape), space=space, shape=shape)
    Builder(region).op(op_name(space), type=type)
    Builder(region).op("return")
    assert read_back(kernel_of(region)).kernel.body.ops[0].result.type == type


def test_names_are_unique_and_follow_hints() -> None:
    region = Region([F32, F32, F32, F32], ["x", "x", "x_1", "odd name!"])
    builder = Builder(region)
    total = builder.emit("add", region.args[0], region.args[1])
    builder.emit("add", total, region.args[2])
    builder.op("return")
    text = print_module(kernel_of(region))
    assert "(%x: f32, %x_1: f32, %x_1_1: f32, %odd_name_: f32)" in text
    assert "%1 = add %0, %x_1_1 : f32" in text
    read_back(kernel_of(region))


def test_sites_and_locations_survive() -> None:
    region = Region()
    builder = Builder(region, Loc("k.py", 12, 8, 20))
    builder.op("report", builder.const(True, BOOL), site=0)
    builder.op("return")
    module = kernel_of(region)
    module.add_site(ReportSite("assert", Loc("k.py", 12, 8, 20), 'x > "0"\n{0}'))
    again = read_back(module)
    assert again.sites == module.sites
    assert again.kernel.body.ops[1].loc == Loc("k.py", 12, 8, 20)


def test_what_text_cannot_hold_is_shown() -> None:
    assert attribute_text({1}) == "?{1}"


@pytest.mark.parametrize(
    ("line", "column", "message"),
    [
        ("%x = add %y : f32", 14, "%y isn't defined"),
        ("%a = const 1 : f33", 20, "no element type is named f33"),
        ("%a = const 1 : f32, f32", 10, "1 results but 2 types"),
        ("%a = const 1 :", 19, "expected one of"),
        ("store $", 11, "'$'"),
    ],
)
def test_faults_have_line_and_column(line: str, column: int, message: str) -> None:
    text = f"kernel @k() attrs {{}} {{\n    {line}\n  return\n}}\n"
    with pytest.raises(CompileError) as caught:
        parse_module(text, "some.ir")
    assert message in caught.value.reason
    assert caught.value.loc.file == "some.ir"
    assert (caught.value.loc.line, caught.value.loc.col) == (2, column - 1)


def test_faults_of_modules() -> None:
    kernel = "kernel @k() {\n  return\n}\n"
    for text, message in (
        (kernel + kernel, "one kernel"),
        ("func @f() {\n  return\n}\n", "no kernel"),
        ("func @f() {\n  return\n}\n" * 2 + kernel, "defined twice"),
        ("kernel @k(%a: f32, %a: f32) {\n  return\n}\n", "%a is defined twice"),
        ("kernel @k() {\n  return\n", "the end of the text"),
        ("", "expected one of"),
    ):
        with pytest.raises(CompileError, match=message):
            parse_module(text)


def test_index_is_a_type() -> None:
    assert str(INDEX) == "index"
