"""Tests of value numbering, sums of indices, and bounds checks in the preheader shared by adjacent accesses."""

from __future__ import annotations

import pytest

from vkjit.ir.core import Function
from vkjit.ir.parser import parse_module
from vkjit.passes.analysis.value_numbering import ValueNumbers
from vkjit.passes.transforms.bounds_checks import Bounds

HEAD = "kernel @k(%i: index, %n: index, %x: array<f32, 1, in>, %y: array<f32, 1, inout>) attrs "


def parsed(body: str) -> Function:
    return parse_module(f"{HEAD}{{local_size = (8, 1, 1)}} {{\n{body}\n  return\n}}\n").kernel


def test_sums_tell_a_constant_from_the_rest() -> None:
    kernel = parsed(
        "  %one = const 1 : index\n  %four = const 4 : index\n"
        "  %a = mul %i, %four : index\n  %b = mul %i, %four : index\n"
        "  %c = add %a, %n : index\n  %d = add %n, %four : index\n  %e = add %d, %b : index\n"
        "  %f = sub %c, %one : index\n  %g = sub %n, %b : index\n  %h = sub %f, %n : index"
    )
    values = {op.result.name: op.result for op in kernel.body.ops if op.results}
    alike = ValueNumbers()
    terms = {name: alike.sum(value) for name, value in values.items()}
    assert alike.number(values["a"]) == alike.number(values["b"]) != alike.number(values["c"])
    assert terms["c"][0] == terms["e"][0] == terms["f"][0] != terms["g"][0]
    assert (terms["c"][1], terms["e"][1], terms["f"][1]) == (0, 4, -1)
    assert terms["h"] == (terms["a"][0], -1) and terms["one"] == (frozenset(), 1)


def test_what_reads_memory_is_never_alike() -> None:
    kernel = parsed("  %a = load %x, %i : f32\n  %b = load %x, %i : f32")
    first, second = (op.result for op in kernel.body.ops[:2])
    alike = ValueNumbers()
    assert alike.number(first) != alike.number(second)


@pytest.mark.parametrize(("sanitized", "comparisons"), [(False, 6), (True, 4)])
def test_neighbours_share_the_checks_of_the_outermost(sanitized: bool, comparisons: int) -> None:
    attrs = 'bounds = true, local_size = (8, 1, 1), param_names = ("i", "n", "x", "y")'
    attrs += ', sanitize = ("bounds",)' if sanitized else ""
    text = (
        f"{HEAD}{{{attrs}}} {{\n"
        "  %zero = const 0 : index\n  %one = const 1 : index\n  %two = const 2 : index\n  %nothing = const 0.0 : f32\n"
        "  %sum = for %zero, %n, %one, %nothing : f32 (%k: index, %c: f32) {\n"
        "    %o = add %i, %k : index\n    %p = add %o, %one : index\n    %q = add %o, %two : index\n"
        "    %u = load %x, %p : f32\n    %v = load %x, %o : f32\n    %w = load %x, %q : f32\n"
        "    %s = add %u, %v : f32\n    %t = add %s, %w : f32\n    continue %t\n  }\n"
        "  return\n}\n"
    )
    module = Bounds().run(parse_module(text))
    assert sum(op.name == "lt" for op in module.kernel.body.ops) == comparisons
