"""Tests of the uniformity analysis: which values are equal across invocations, and where barriers are legal.

Kernels are IR; line N of the "source" is the N-th line of the body below, so that tests can check locations in errors.
"""

from __future__ import annotations

import pytest

from vkjit.errors import CompileError, Loc
from vkjit.ir import Module, verify
from vkjit.ir.parser import parse_module
from vkjit.passes.analysis.uniformity import Uniformity, check_uniformity

HEAD = (
    "kernel @k(%n: i32, %a: array<i32, 1, in, restrict>, %b: array<i32, 1, in>, %y: array<i32, 1, inout>) "
    "attrs {local_size = (64, 1, 1)} {\n"
)


def kernel(body: str, before: str = "") -> Module:
    lines = body.strip("\n").splitlines()
    module = parse_module(before + HEAD + "\n".join(lines) + "\n  return\n}\n")
    _number(module)
    verify(module)
    return module


def _number(module: Module) -> None:
    """Assign the lines 1, 2, ... to the kernel's operations in program order."""
    for line, op in enumerate(module.kernel.body.walk(), 1):
        op.loc = Loc("k.py", line)


def scopes(body: str, *names: str) -> list[str | None]:
    module = kernel(body)
    analysis = Uniformity.of(module)
    named = {r.name: r for op in module.kernel.body.walk() for r in op.results}
    for op in module.kernel.body.walk():
        named |= {a.name: a for region in op.regions for a in region.args}
    return [analysis.scope(named[name]) for name in names]


def error(body: str, before: str = "") -> CompileError:
    with pytest.raises(CompileError) as caught:
        check_uniformity(kernel(body, before))
    return caught.value


def test_sources() -> None:
    body = """
  %g = group_id {dim = 0} : index
  %l = local_id {dim = 0} : index
  %l1 = local_id {dim = 1} : index
  %s = subgroup_id : index
  %e = extent %y {axis = 0} : index
  %sum = add %g, %s : index
  %dif = add %sum, %l : index
  %p = assume_uniform %dif : index
  %ra = load %a, %g : i32
  %rb = load %b, %g : i32
  %rl = load %a, %l : i32
  store %y, %g, %rb
"""
    names = ("g", "l", "l1", "s", "e", "sum", "dif", "p", "ra", "rl")
    wanted = ["workgroup", None, "workgroup", "subgroup", "workgroup", "subgroup", None, "workgroup", "workgroup", None]
    assert scopes(body, *names) == wanted
    assert scopes(body, "rb") == [None], "y may overlap b"
    assert scopes(body.replace("store %y, %g, %rb", ""), "rb") == ["workgroup"], "nothing is written"


def test_results_of_branches() -> None:
    body = """
  %l = local_id {dim = 0} : index
  %g = group_id {dim = 0} : index
  %d = lt %l, %g : bool
  %u = eq %g, %g : bool
  %r1 = if %d : index {
    yield %g
  } else {
    yield %g
  }
  %r2 = if %d : index {
    yield %g
  } else {
    %o = const 1 : index
    yield %o
  }
  %r3 = if %u : index {
    yield %g
  } else {
    %o2 = const 1 : index
    yield %o2
  }
"""
    assert scopes(body, "r1", "r2", "r3") == ["workgroup", None, "workgroup"]


def test_carried_values() -> None:
    body = """
  %l = local_id {dim = 0} : index
  %g = group_id {dim = 0} : index
  %one = const 1 : index
  %ra, %rb, %rc = for %one, %g, %one, %one, %one, %one : index, index, index LOOP {
    %x2 = add %x, %i : index
    continue %x2, %z, %l
  }
  %q = for %one, %l, %one, %one : index (%j: index, %w: index) {
    %w2 = add %w, %one : index
    continue %w2
  }
""".replace("LOOP", "(%i: index, %x: index, %y1: index, %z: index)")
    assert scopes(body, "i", "x", "y1", "z", "ra", "rb", "rc") == [
        "workgroup", "workgroup", None, None, "workgroup", None, None,
    ]  # fmt: skip
    assert scopes(body, "j", "w", "q") == ["workgroup", "workgroup", None], "uniform inside, not after"


def test_divergent_continue_spreads_to_carried_values() -> None:
    body = """
  %l = local_id {dim = 0} : index
  %g = group_id {dim = 0} : index
  %one = const 1 : index
  %c = lt %l, %one : bool
  %r = for %one, %g, %one, %one : index (%i: index, %x: index) {
    if %c {
      continue %x
    } else {
      yield
    }
    %x2 = add %x, %one : index
    continue %x2
  }
"""
    assert scopes(body, "x", "i") == [None, "workgroup"]


UNIFORM = """
  %l = local_id {dim = 0} : index
  %g = group_id {dim = 0} : index
  %one = const 1 : index
  %u = lt %g, %one : bool
  %d = lt %l, %one : bool
"""


@pytest.mark.parametrize(
    "body",
    [
        "barrier",
        "if %u {\n barrier\n yield\n } else {\n yield\n }",
        "for %one, %g, %one (%i: index) {\n barrier\n if %d {\n continue\n } else {\n yield\n }\n continue\n }",
        "if %d {\n yield\n } else {\n yield\n }\n barrier",
        "if %u {\n return\n } else {\n yield\n }\n barrier",
        "for %one, %l, %one (%i: index) {\n continue\n }\n barrier",
        "loop {\n if %d {\n break\n } else {\n yield\n }\n continue\n }\n barrier",
    ],
)
def test_allowed(body: str) -> None:
    check_uniformity(kernel(UNIFORM + body))


@pytest.mark.parametrize(
    ("body", "at", "notes"),
    [
        ("if %d {\n barrier\n yield\n } else {\n yield\n }", 7, [6, 5, 1]),
        ("if %d {\n return\n } else {\n yield\n }\n barrier", 9, [7, 6, 5, 1]),
        ("for %one, %l, %one (%i: index) {\n barrier\n continue\n }", 7, [6, 1]),
        ("loop {\n barrier\n if %d {\n break\n } else {\n yield\n }\n continue\n }", 7, [9, 8, 5, 1]),
        (
            "for %one, %g, %one (%i: index) {\n if %d {\n continue\n } else {\n yield\n }\n barrier\n continue\n }",
            10,
            [8, 7, 5, 1],
        ),
        (
            "for %one, %g, %one (%i: index) {\n if %d {\n return\n } else {\n yield\n }\n continue\n }\n barrier",
            11,
            [8, 7, 5, 1],
        ),
    ],
)
def test_refused(body: str, at: int, notes: list[int]) -> None:
    found = error(UNIFORM + body)
    assert found.loc.line == at
    assert [note.loc.line for note in found.notes] == notes
    assert "local_id(0) differs" in found.notes[-1].text
    assert ("x.put" in found.hint) == any("leave here" in note.text for note in found.notes)


def test_subgroup_operations_need_less() -> None:
    condition = "  %s = subgroup_id : index\n  %f = lt %s, %one : bool\n"
    by_subgroup = condition + "  if %f {\n    OP\n    yield\n  } else {\n    yield\n  }\n"
    check_uniformity(kernel(UNIFORM + by_subgroup.replace("OP", '%t = sg_reduce %n {op = "add"} : i32')))
    assert "workgroup" in error(UNIFORM + by_subgroup.replace("OP", "barrier")).reason
    assert (
        "subgroup"
        in error(UNIFORM + by_subgroup.replace("%s, %one", "%l, %one").replace("OP", "%t = sg_any %d : bool")).reason
    )


def test_the_lane_of_a_broadcast_is_uniform() -> None:
    check_uniformity(kernel(UNIFORM + "%t = sg_broadcast %n, %one : i32"))
    assert "lane" in error(UNIFORM + "%t = sg_broadcast %n, %l : i32").reason


FUNCTION = """\
func @f(%i: index) -> (index) attrs {} {
  %z = const 0 : index
  %c = eq %i, %z : bool
  if %c {
    barrier
    yield
  } else {
    yield
  }
  return %i
}
"""


def test_calls_depend_on_what_they_get() -> None:
    check_uniformity(kernel(UNIFORM + '%r = call %g {callee = "f"} : index', FUNCTION))
    found = error(UNIFORM + '%q = call %g {callee = "f"} : index\n%r = call %l {callee = "f"} : index', FUNCTION)
    assert found.notes[-1].text == "called from here by k"
    assert found.notes[-1].loc.line == 7
    found = error(UNIFORM + 'if %d {\n%r = call %g {callee = "f"} : index\nyield\n} else {\nyield\n}', FUNCTION)
    assert any("condition differs" in note.text for note in found.notes)


def test_kernels_over_an_array_say_so() -> None:
    module = kernel(UNIFORM + "if %d {\n barrier\n yield\n } else {\n yield\n }")
    module.kernel.attrs["over"] = "y"
    with pytest.raises(CompileError) as caught:
        check_uniformity(module)
    assert "groups=" in caught.value.hint
