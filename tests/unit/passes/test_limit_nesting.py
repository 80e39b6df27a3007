"""Tests of the workaround for a driver that ignores the conditions of deeply nested branches."""

from __future__ import annotations

import contextlib

import pytest

from vkjit import dtypes
from vkjit.errors import CompileError
from vkjit.ir import Builder, Function, Module, Region, Value, verify
from vkjit.ir.parser import parse_module
from vkjit.ir.rewrite import clone_module
from vkjit.ir.types import INDEX, Array, Scalar
from vkjit.passes.lowering.lower_exits import LowerExits
from vkjit.passes.transforms.inline import Inline
from vkjit.passes.workarounds.limit_nesting import LimitNesting
from vkjit.testing.fuzz import Program, generate
from vkjit.testing.fuzz.compare import difference
from vkjit.testing.fuzz.execute import interpret
from vkjit.testing.fuzz.program import Layout, Memory

I32 = Scalar(dtypes.i32)


def depth(region: Region) -> int:
    return max((1 + depth(inner) for op in region.ops for inner in op.regions), default=0)


def deep(levels: int, *, in_loop: bool) -> Program:
    """Return a program with branches in branches, or in a loop, guards after guards that end in `continue`."""
    region = Region([Array(I32, 1)], ["y"])
    b = Builder(region)
    i = b.emit("global_id", dim=0)

    def level(number: int, value: Value) -> Value:
        if number == levels:
            return value
        regions = [Region(), Region()]
        with b.at(regions[0]):
            b.op("store", region.args[0], i, b.emit("add", b.emit("load", region.args[0], i), value))
            inner = level(number + 1, b.emit("add", value, b.const(number, I32)))
            b.op("store", region.args[0], i, b.emit("xor", b.emit("load", region.args[0], i), inner))
            b.op("yield", b.emit("sub", inner, value))
        with b.at(regions[1]):
            b.op("yield", value)
        return b.op("if", b.emit("gt", i, b.index(number)), types=[I32], regions=regions).result

    def guard(number: int, carried: Value) -> None:
        regions = [Region(), Region()]
        with b.at(regions[0]):
            b.op("continue", b.emit("mul", carried, b.const(number, I32)))
        with b.at(regions[1]):
            b.op("yield")
        b.op("if", b.emit("eq", i, b.index(number)), types=[], regions=regions)

    if in_loop:
        body = Region([INDEX, I32])
        with b.at(body):
            for number in range(levels):
                guard(number, body.args[1])
            b.op("continue", b.emit("add", body.args[1], b.cast(body.args[0], I32)))
        bounds = b.index(0), b.emit("num_groups", dim=0), b.index(1)
        result = b.op("for", *bounds, b.const(3, I32), types=[I32], regions=[body]).result
    else:
        result = level(0, b.const(3, I32))
    b.op("store", region.args[0], i, b.emit("add", b.emit("load", region.args[0], i), result))
    b.op("return")
    module = Module(Function("k", region, [], {"local_size": (64, 1, 1), "arg_index": (0,)}))
    return Program(module, (2, 1, 1), (Layout((128,), (1,), 0, 128),), 1)


def limited(program: Program, max_depth: int) -> Module:
    """Return the module after the pass, which gives the same results."""
    module = Inline().run(LowerExits().run(clone_module(program.module)))
    module = LimitNesting(max_depth=max_depth).run(module)
    verify(module, "normal")
    memory = Memory.of(program)
    assert difference(program, interpret(program, memory, clone_module(module)), interpret(program, memory)) == ""
    return module


@pytest.mark.parametrize("in_loop", [False, True])
@pytest.mark.parametrize(("levels", "max_depth"), [(100, 48), (100, 20), (30, 4), (12, 3), (9, 8)])
def test_deep_programs(levels: int, max_depth: int, in_loop: bool) -> None:
    program = deep(levels, in_loop=in_loop)
    assert depth(program.module.kernel.body) == (2 if in_loop else levels)
    assert depth(limited(program, max_depth).kernel.body) <= max_depth


def test_branches_that_leave_the_loop() -> None:
    """A branch whose end isn't reached, as the one in it leaves the loop on both sides, but which has a result."""
    text = """
    kernel @k(%y: array<i32, 1, inout>) attrs {arg_index = (0,), local_size = (8, 1, 1)} {
      %i = global_id {dim = 0} : index
      %v = cast %i : i32
      %zero = const 0 : index
      %four = const 4 : index
      %one = const 1 : index
      %two = const 2 : i32
      %r = for %zero, %four, %one, %v : i32 (%n: index, %c: i32) {
        %a = lt %n, %i : bool
        %s = if %a : i32 {
          %w = add %c, %two : i32
          %b = gt %w, %v : bool
          if %b {
            %d = ge %i, %four : bool
            if %d {
              store %y, %i, %w
              yield
            } else {
              yield
            }
            break %w
          } else {
            continue %two
          }
          unreachable
        } else {
          %x = mul %c, %two : i32
          yield %x
        }
        continue %s
      }
      %o = load %y, %i : i32
      %t = add %o, %r : i32
      store %y, %i, %t
      return
    }
    """
    program = Program(parse_module(text), (1, 1, 1), (Layout((8,), (1,), 0, 8),), 1)
    assert depth(program.module.kernel.body) == 4
    assert depth(limited(program, 3).kernel.body) == 3


def test_code_after_a_branch_with_one_exit() -> None:
    """The other side of a branch leaves the loop, but the deep side goes on with the code after the branch."""
    text = """
    kernel @k(%y: array<i32, 1, inout>) attrs {arg_index = (0,), local_size = (8, 1, 1)} {
      %i = global_id {dim = 0} : index
      %v = cast %i : i32
      %zero = const 0 : index
      %four = const 4 : index
      %one = const 1 : index
      %r = for %zero, %four, %one, %v : i32 (%n: index, %c: i32) {
        %a = le %n, %i : bool
        if %a {
          %b = ge %i, %one : bool
          if %b {
            %d = ge %i, %four : bool
            if %d {
              store %y, %i, %c
              yield
            } else {
              yield
            }
            yield
          } else {
            yield
          }
          yield
        } else {
          break %c
        }
        %o = load %y, %i : i32
        %x = add %o, %c : i32
        store %y, %i, %x
        continue %x
      }
      store %y, %i, %r
      return
    }
    """
    program = Program(parse_module(text), (1, 1, 1), (Layout((8,), (1,), 0, 8),), 1)
    assert depth(limited(program, 3).kernel.body) == 3


@pytest.mark.parametrize("max_depth", [2, 3])
def test_other_programs(max_depth: int) -> None:
    for seed in range(60):
        with contextlib.suppress(CompileError):  # loops that are nested deeper
            limited(generate(seed, 30), max_depth)


def test_shallow_programs_stay() -> None:
    program = deep(9, in_loop=False)
    module = LimitNesting().run(clone_module(program.module))
    assert depth(module.kernel.body) == 9
