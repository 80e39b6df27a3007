"""Tests of the verifier: violations that text can't express, complete lists of errors, and linear time of passes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tools.opt import main
from vkjit.errors import InternalError, Loc
from vkjit.ir import BOOL, F32, INDEX, Array, Builder, Function, Module, Op, Region, verify
from vkjit.ir.printer import print_function
from vkjit.ir.rewrite import breaks_of, clone_module, completes, use_counts, used_values, walk_with_parents
from vkjit.ir.verify import violations
from vkjit.passes.registry import run_passes

GOLDEN = Path(__file__).resolve().parents[2] / "golden"


def kernel(region: Region) -> Module:
    return Module(Function("k", region, [], {"local_size": (1, 1, 1)}))


def test_valid() -> None:
    region = Region()
    Builder(region).op("return")
    verify(kernel(region))


def test_ownership() -> None:
    region = Region([F32], ["a"])
    builder = Builder(region, Loc("k.py", 3))
    twice = builder.op("add", region.args[0], region.args[0])
    region.ops.append(twice)
    stolen = builder.op("mul", region.args[0], region.args[0])
    stolen.results[0].owner = twice
    shared = Region()
    Builder(shared).op("yield")
    builder.op("if", builder.const(True, BOOL), types=[], regions=[shared, shared])
    region.args[0].index = 1
    builder.op("return")
    found = "\n".join(violations(kernel(region)))
    assert "k.py:3: the operation stands in two places (3)" in found
    assert "result 0 isn't owned by the operation (3)" in found
    assert "one region stands in two places (3)" in found
    assert "argument 0 isn't owned by its region (3)" in found


def test_values_of_other_functions() -> None:
    other = Region([F32], ["x"])
    foreign = Builder(other).emit("neg", other.args[0])
    Builder(other).op("return")
    region = Region()
    Builder(region).emit("neg", foreign)
    Builder(region).op("return")
    module = kernel(region)
    module.functions["f"] = Function("g", other)
    (name, use) = violations(module)
    assert "the module knows it by another name" in name
    assert "operand 0 belongs to no operation of this function (4)" in use
    assert "%1 = neg %?" in use or "%0 = neg %?" in use


def test_all_violations_are_raised_together() -> None:
    region = Region()
    builder = Builder(region)
    builder.region.ops += [Op(name, [], []) for name in ("nonsense", "rubbish")]  # type: ignore[arg-type]
    builder.op("return")
    with pytest.raises(InternalError, match=r"2 violations:(.|\n)*nonsense(.|\n)*rubbish"):
        verify(kernel(region))
    with pytest.raises(InternalError, match="no form"):
        violations(kernel(region), "low")


def nested() -> Region:
    region = Region([BOOL, INDEX], ["c", "n"])
    c, n = region.args
    builder = Builder(region)
    body, then, other = Region([INDEX]), Region(), Region()
    Builder(then).op("break")
    Builder(other).op("continue")
    inner = Builder(body).op("if", c, types=[], regions=[then, other])
    Builder(body).op("unreachable")
    loop = builder.op("loop", types=[], regions=[body])
    body.args.clear()
    builder.emit("add", n, n)
    builder.op("return")
    assert breaks_of(loop) == [then.ops[0]]
    assert completes(loop)
    assert not completes(inner)
    return region


def test_helpers() -> None:
    region = nested()
    verify(kernel(region))
    c, n = region.args
    assert use_counts(region) == {c: 1, n: 2}
    assert used_values(region) == {c, n}
    around = {op.name: [parent.name for parent in parents] for op, parents in walk_with_parents(region)}
    assert around["break"] == ["loop", "if"]
    assert around["add"] == []
    module = kernel(region)
    copy = clone_module(module)
    verify(copy)
    assert print_function(copy.kernel) == print_function(module.kernel)
    assert not {id(op) for op in copy.kernel.body.walk()} & {id(op) for op in module.kernel.body.walk()}


def large(statements: int) -> Module:
    """Build a kernel of `if`s, loops and loads with about a dozen operations for each of `statements`."""
    region = Region([Array(F32, 1), INDEX], ["x", "n"])
    x, n = region.args
    builder = Builder(region)
    one = builder.index(1)
    value = builder.emit("load", x, n)
    for number in range(statements):
        place = builder.emit("add", n, builder.index(number % 50))
        body, then, other = Region([INDEX, F32]), Region(), Region()
        with builder.at(then):
            builder.op("store", x, place, value)
            builder.op("yield", value)
        with builder.at(other):
            builder.op("yield", builder.emit("mul", value, value))
        c = builder.emit("lt", place, n)
        value = builder.op("if", c, types=[F32], regions=[then, other]).result
        with builder.at(body):
            place = builder.emit("mul", place, n)
            builder.op("continue", builder.emit("add", body.args[1], builder.emit("load", x, place)))
        value = builder.op("for", one, n, one, value, types=[F32], regions=[body]).result
    builder.op("store", x, n, value)
    builder.op("return")
    return kernel(region)


@pytest.mark.parametrize(
    "chain", ["fold", "simplify_branches", "cse", "dce", "licm", "lower_exits", "lower_access", "check_uniformity"]
)
def test_passes_scale(chain: str) -> None:
    """A program eight times as large takes about eight times as long; the bound of 24 allows for a busy machine."""

    def seconds(statements: int) -> float:
        best = float("inf")
        for _ in range(3):
            module = large(statements)
            start = time.process_time()
            run_passes(module, [chain])
            verify(module)
            best = min(best, time.process_time() - start)
        return best

    assert seconds(800) < 24 * seconds(100) + 0.05


def test_tool(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = GOLDEN / "passes" / "lower_exits_guard.ir"
    source, _, wanted = path.read_text(encoding="utf-8").partition("// expect\n")
    given = tmp_path / "in.ir"
    given.write_text(source, encoding="utf-8")
    assert main([str(given), "--passes", "lower_exits", "--form", "normal"]) == 0
    assert capsys.readouterr().out == wanted
    assert main([str(given), "--form", "normal"]) == 1
    assert "return stands inside control flow" in capsys.readouterr().err
    assert main([str(given), "--passes", "magic"]) == 1
    assert "no pass is named 'magic'" in capsys.readouterr().err
    given.write_text("kernel @k(", encoding="utf-8")
    assert main([str(given)]) == 1
    assert "column 11" in capsys.readouterr().err
