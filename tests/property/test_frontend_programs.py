# mypy: disable-error-code="no-any-return"
"""Property tests of the front end: Python and the compiled kernel agree on generated functions of integers.

Functions are generated as text: assignments, if, for, while, break, continue, return, conditional expressions, else of
loops. Each function first binds all names, so that no path reads an unbound one.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings, strategies as st

from tests.selection import examples
from tests.unit.frontend.harness import apply

NAMES = ("a", "b", "c", "d")
A, B = (c.ravel().astype(np.int32) for c in np.meshgrid(np.arange(-2, 4), np.arange(-2, 4)))


@st.composite
def expressions(draw: Any, depth: int = 2) -> str:
    if depth == 0:
        return draw(st.sampled_from([*NAMES, "1", "2", "-3"]))
    sub = expressions(depth - 1)
    kind = draw(st.sampled_from(["leaf", "binary", "binary", "conditional", "logic", "call"]))
    if kind == "binary":
        return f"({draw(sub)} {draw(st.sampled_from(['+', '-', '*', '&', '^', '// 3 +', '% 5 -']))} {draw(sub)})"
    if kind == "conditional":
        return f"({draw(sub)} if {draw(conditions(depth - 1))} else {draw(sub)})"
    if kind == "logic":
        return f"({draw(sub)} {draw(st.sampled_from(['and', 'or']))} {draw(sub)})"
    if kind == "call":
        return f"{draw(st.sampled_from(['min', 'max']))}({draw(sub)}, {draw(sub)})"
    return draw(sub)


@st.composite
def conditions(draw: Any, depth: int = 1) -> str:
    left, right = draw(expressions(depth)), draw(expressions(0))
    test = f"{left} {draw(st.sampled_from(['<', '==', '!=', '>=']))} {right}"
    if depth and draw(st.booleans()):
        return f"{test} {draw(st.sampled_from(['and', 'or', '< b and']))} {draw(conditions(depth - 1))}"
    return draw(st.sampled_from([test, f"not ({test})"]))


@st.composite
def statements(draw: Any, depth: int, *, in_loop: bool) -> list[str]:
    """Draw the lines of a block."""
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        lines += draw(one_statement(depth, in_loop=in_loop))
    return lines


def indented(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]


@st.composite
def one_statement(draw: Any, depth: int, *, in_loop: bool) -> list[str]:
    kinds = ["assign", "assign", "augmented", "swap"]
    if depth:
        kinds += ["if", "if", "for", "while", "return_if"]
    if in_loop:
        kinds += ["break_if", "continue_if"]
    kind = draw(st.sampled_from(kinds))
    name = draw(st.sampled_from(NAMES))
    if kind == "assign":
        return [f"{name} = clip({draw(expressions())})"]
    if kind == "augmented":
        return [f"{name} += {draw(expressions(1))}", f"{name} = clip({name})"]
    if kind == "swap":
        return [f"{name}, d = d, {name}"]
    if kind in ("break_if", "continue_if"):
        return [f"if {draw(conditions())}:", f"    {kind.removesuffix('_if')}"]
    if kind == "return_if":
        return [f"if {draw(conditions())}:", f"    return {name} + {draw(st.integers(0, 9))}"]
    body = indented(draw(statements(depth - 1, in_loop=in_loop or kind in ("for", "while"))))
    if kind == "if":
        other = indented(draw(statements(depth - 1, in_loop=in_loop)))
        return [f"if {draw(conditions())}:", *body, *(["else:", *other] if draw(st.booleans()) else [])]
    ending = ["else:", *indented(draw(statements(0, in_loop=in_loop)))] if draw(st.booleans()) else []
    if kind == "for":
        bounds = draw(st.sampled_from(["3", "a, 4", "4, b, -2", "clip(c) % 5"]))
        return [f"for {draw(st.sampled_from(['i', name]))} in range({bounds}):", *body, *ending]
    counter = f"n{depth}"  # nested loops need different counters
    return [f"{counter} = 0", f"while {counter} < 4 and ({draw(conditions())}):", f"    {counter} += 1", *body, *ending]


@st.composite
def functions(draw: Any) -> str:
    start = ["c = 0", f"d = {draw(st.sampled_from(['1', 'a', 'b + 1', 'a * b']))}"]
    body = [*start, *draw(statements(3, in_loop=False)), "return a + 3 * b + 5 * c + 7 * d"]
    return "\n".join(["def generated(a, b):", *indented(body)]) + "\n"


def clip(x: int) -> int:
    """Keep numbers small, as overflow wraps in kernels but not in Python."""
    return min(max(x, -50), 50)


def made(source: str) -> Callable[..., Any]:
    from vkjit.frontend import DeviceFunction

    file = f"<generated {hash(source)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    scope: dict[str, Any] = {"clip": DeviceFunction(clip)}
    exec(compile(source, file, "exec"), scope)  # noqa: S102  (kernels from text)
    return scope["generated"]


@settings(
    max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(functions())
def test_generated_functions(source: str) -> None:
    function = made(source)
    scope: dict[str, Any] = {"clip": clip}
    exec(compile(source, "<python>", "exec"), scope)  # noqa: S102  (kernels from text)
    expected = [scope["generated"](int(a), int(b)) for a, b in zip(A, B, strict=True)]
    np.testing.assert_array_equal(apply(function, np.int32, A, B), expected)
