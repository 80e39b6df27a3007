# mypy: disable-error-code="arg-type, assignment, name-defined, no-untyped-call, type-arg, valid-type"
"""Tests of kernel signatures: annotations, dimension strings, source locations, fingerprints."""

from __future__ import annotations

import importlib
import inspect
import linecache
import math
from enum import Enum, IntEnum
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest

import vkjit as vk
from tests.unit.frontend.harness import lower, run
from vkjit.compiler.fingerprint import Captures, fingerprint
from vkjit.errors import ArgumentError, CompileError, VkjitError
from vkjit.frontend import REQUIRED, DeviceFunction, describe, parse_dims, tune_choice
from vkjit.frontend.source import source_of
from vkjit.runtime import dispatch_cache

T = TypeVar("T", bound=vk.Element)


# -- annotations
def annotated(
    a: T,
    x: vk.In[T, "M 2*K"],
    y: vk.Out[np.float16, "*batch"],
    n: int,
    plain,
    TS: vk.Const[int] = vk.tune(64, 128),  # noqa: B008
    *,
    flag: vk.boolean = True,
):
    pass


def test_parameters() -> None:
    spec = describe(annotated, over="y")
    kinds = [(p.name, p.kind, p.mode, p.dtype) for p in spec.params]
    assert kinds == [
        ("a", "scalar", None, T),
        ("x", "array", "in", T),
        ("y", "array", "out", vk.f16),
        ("n", "scalar", None, vk.i32),
        ("plain", "any", None, None),
        ("TS", "const", None, None),
        ("flag", "scalar", None, vk.boolean),
    ]
    assert str(spec.params[1].dims) == "M 2*K"
    assert spec.params[0].default is REQUIRED
    assert tune_choice(spec.params[5].default) == 64
    assert tune_choice(3) == 3


def scoped() -> object:
    Local = vk.f64

    def kernel(x: vk.In[Local, "N"]):
        return Local

    return describe(kernel).params[0].dtype


def test_annotations_see_the_closure() -> None:
    assert scoped() is vk.f64


def test_annotations_see_the_scope_that_defines_the_kernel() -> None:
    Inner = TypeVar("Inner", bound=vk.Element)
    Size = vk.f16

    def kernel(x: vk.In[Inner, "N"], y: vk.Out[Size, "N"]):
        pass

    assert [p.dtype for p in describe(kernel).params] == [Inner, vk.f16]

    @DeviceFunction
    def function(x: Inner):
        return x

    assert function.annotations == {"x": Inner}


@pytest.mark.parametrize(
    ("annotation", "part"),
    [
        ("vk.In[Missing, 'N']", "Missing isn't found"),
        ("vk.In['f32', 'N']", "'f32' is no element type"),
        ("vk.In[vk.f32, 'N N+']", "can't be read"),
        ("vk.In[vk.f32, '*a *b']", "at most one"),
        ("vk.Nothing", "doesn't exist"),
        ("list", "no type that it can"),
        ("print('x')", "isn't understood"),
        ("1 +", "doesn't parse"),
    ],
)
def test_annotations_that_are_wrong(annotation: str, part: str) -> None:
    def kernel(x):
        pass

    kernel.__annotations__["x"] = annotation
    with pytest.raises(CompileError, match=part.replace("+", r"\+")):
        describe(kernel)


def test_over_has_to_name_an_array() -> None:
    with pytest.raises(CompileError, match="names no array"):
        describe(annotated, over="n")


def test_stubs_outside_kernels() -> None:
    for stub in (vk.global_id, vk.barrier, vk.workgroup, vk.atomic.add):
        with pytest.raises(VkjitError, match="inside kernels only"):
            stub(*[0] * len([p for p in inspect.signature(stub).parameters.values() if p.default is p.empty]))
    with pytest.raises(VkjitError, match="inside a kernel"):
        DeviceFunction(annotated)()
    assert vk.cdiv(10, 3) == 4


# -- dimensions
@pytest.mark.parametrize(
    ("text", "shape", "env", "bound"),
    [
        ("M K", (3, 4), {}, {"M": 3, "K": 4}),
        ("M M", (3, 3), {}, {"M": 3}),
        ("2*N", (6,), {}, {"N": 3}),
        ("N+1 N", (4, 3), {}, {"N": 3}),
        ("N N+1", (3, 4), {}, {"N": 3}),
        ("2*(N+1)-M", (7,), {"M": 1}, {"M": 1, "N": 3}),
        ("_ 3", (9, 3), {}, {}),
        ("*batch C", (2, 3, 4), {}, {"batch": (2, 3), "C": 4}),
        ("A *rest B", (2, 3), {}, {"A": 2, "rest": (), "B": 3}),
        ("... C", (5, 6, 7), {}, {"C": 7}),
        ("N//2", (3,), {}, {}),
        ("A*B", (6,), {}, {}),
        ("", (), {}, {}),
    ],
)
def test_dimensions_bind_names(text: str, shape: tuple[int, ...], env: dict, bound: dict) -> None:
    env = dict(env)
    assert parse_dims(text).match(shape, env) is None
    assert env == bound


@pytest.mark.parametrize(
    ("text", "shape", "env", "problem"),
    [
        ("M K", (3,), {}, "2 dimensions expected, found 1"),
        ("*b M K", (3,), {}, "at least 2 dimensions expected"),
        ("N", (3,), {"N": 4}, "N is 4, found 3"),
        ("N N", (3, 4), {}, "N is 3, found 4"),
        ("2*N", (5,), {}, "no N makes 2*N equal to 5"),
        ("N-5", (-7,), {}, "no N makes"),
        ("3", (4,), {}, "3 is 3, found 4"),
        ("*b", (4,), {"b": (5,)}, "*b is (5,), found (4,)"),
        ("N//M", (4,), {"N": 4, "M": 0}, "divides by zero"),
        ("N", (4,), {"N": (1, 2)}, "names several"),
        ("N+M", (4,), {"N": 1, "M": 2}, "N+M is 3 where N = 1, M = 2, found 4"),
    ],
)
def test_dimensions_that_disagree(text: str, shape: tuple[int, ...], env: dict, problem: str) -> None:
    assert problem in str(parse_dims(text).match(shape, dict(env)))


def test_dimensions_give_shapes() -> None:
    assert parse_dims("*b 2*N (N+1)//2").evaluate({"b": (7, 8), "N": 3}) == (7, 8, 6, 2)
    assert parse_dims("2*N").evaluate({}) is None
    assert parse_dims("*b").evaluate({}) is None
    assert parse_dims("_").evaluate({}) is None
    assert parse_dims("*b M N M").names == ("b", "M", "N")
    assert parse_dims("( N + 1 ) M").match((4, 5), {}) is None
    with pytest.raises(ArgumentError, match=r"\^"):
        parse_dims("N %")
    for text in ("N+" * 101 + "1", "(" * 5000 + "N" + ")" * 5000, "N*1" + " " * 1000 + "M"):
        with pytest.raises(ArgumentError, match="too long: expected at most 1000, with 100 operators"):
            parse_dims(text)
    assert parse_dims("N+" * 99 + "1").evaluate({"N": 2}) == (199,)


# -- source locations
def decorate(fn):
    return fn


class Holder:
    @decorate
    @decorate
    def method(x: vk.InOut[vk.f32, "N"]):  # noqa: N805
        größe = "ü" + undefined_name  # noqa: F821


def test_places_in_decorated_nested_functions_with_wide_letters() -> None:
    with pytest.raises(CompileError) as caught:
        lower(Holder.method, np.zeros(1, np.float32))
    line = inspect.getsourcelines(Holder.method)[1] + 3
    assert (caught.value.loc.file, caught.value.loc.line) == (__file__, line)
    text = linecache.getline(__file__, line)
    assert text[caught.value.loc.col : caught.value.loc.end] == "undefined_name"


def cell(source: str, name: str) -> dict:
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    scope: dict = {"vk": vk}
    exec(compile(source, name, "exec"), scope)  # noqa: S102  (kernels from text)
    return scope


def test_cells_and_redefined_cells() -> None:
    first = cell("def f(x):\n    x[0] = 1\n", "<cell 1>")["f"]
    second = cell("def f(x):\n    x[0] = 2\n", "<cell 2>")["f"]
    x = np.zeros(1, np.float32)
    run(first, x)
    assert x[0] == 1
    run(second, x)
    assert x[0] == 2


def test_sources_that_are_missing() -> None:
    scope: dict = {}
    exec(compile("def f(x):\n    x[0] = 1\n", "<stdin>", "exec"), scope)  # noqa: S102  (kernels from text)
    with pytest.raises(CompileError, match="typed at the prompt"):
        source_of(scope["f"])
    with pytest.raises(CompileError, match="a lambda can't be a kernel"):
        vk.kernel(lambda x: x)
    exec(compile("def g(x):\n    x[0] = 1\n", "<nowhere>", "exec"), scope)  # noqa: S102  (kernels from text)
    with pytest.raises(CompileError, match="can't be read"):
        source_of(scope["g"])


def test_a_file_that_changed() -> None:
    scope = cell("def f(x):\n    x[0] = 1\n", "<cell changed>")
    linecache.cache["<cell changed>"] = (0, None, ["\n", "\n", "def f(x):\n", "    pass\n"], "<cell changed>")
    with pytest.raises(CompileError, match="changed since"):
        source_of(scope["f"])


EDITED = """\
import vkjit as vk

@vk.struct
class Pair:
    a: vk.f32

    def twice(self):
        return self.a * 2

@vk.func
def twice(v):
    return v * 2

@vk.kernel(over="x")
def plain(x: vk.InOut[vk.f32, "N"]):
    x[vk.global_id(0)] *= 2

@vk.kernel(over="x")
def calling(x: vk.InOut[vk.f32, "N"]):
    x[vk.global_id(0)] = twice(x[vk.global_id(0)])

@vk.kernel(over="x")
def with_method(x: vk.InOut[vk.f32, "N"]):
    x[vk.global_id(0)] = Pair(x[vk.global_id(0)]).twice()

def make():
    @vk.kernel(over="x")
    def inner(x: vk.InOut[vk.f32, "N"]):
        x[vk.global_id(0)] *= 2
    return inner

def unrelated():
    return "other"
"""


@pytest.mark.parametrize(
    ("old", "new", "refused"),
    [
        ("*= 2", "*= 3", "plain inner"),
        ("v * 2", "v * 3", "calling"),
        ("self.a * 2", "self.a * 3", "with_method"),
        ("import vkjit as vk\n", "import vkjit as vk\n\n", "plain calling with_method inner"),
        ('"other"', '"another"', ""),
        ("", "", ""),
        (EDITED, "def (", "plain calling with_method inner"),
    ],
)
@pytest.mark.parametrize("replaced", [False, True])
def test_a_module_that_is_edited_before_the_first_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, refused: str, replaced: bool
) -> None:
    file = tmp_path / f"edited{len(old)}_{len(new)}_{int(replaced)}.py"
    file.write_text(EDITED)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module(file.stem)
    target = tmp_path / "new" if replaced else file
    target.write_text(EDITED.replace(old, new) if old else EDITED)
    target.replace(file)
    for name in ("plain", "calling", "with_method", "inner"):
        kernel = module.make() if name == "inner" else getattr(module, name)
        if name not in refused.split():
            vk.check(kernel)
            continue
        for _ in range(2):
            with pytest.raises(CompileError, match="isn't what was imported"):
                vk.check(kernel)
            dispatch_cache.forget(vk.device("interpreter"))  # the text of kernels is read again where it can be


# -- captures
class Mode(Enum):
    FAST = "fast"
    EXACT = "exact"


class Level(IntEnum):
    LOW = 3


FACTOR = 2
OFFSETS = (1, (2, 3))
MODE = Mode.FAST
EPSILON = np.float64(1e-3)


@DeviceFunction
def scaled(v):
    return v * FACTOR


def capturing(y: vk.InOut[vk.f64, "N"]):
    y[0] = scaled(y[0]) + OFFSETS[1][0] + Level.LOW + EPSILON
    y[1] = 1 if MODE is Mode.FAST else 2
    y[2] = math.pi + (Mode.EXACT.value == "exact")


def test_captured_values() -> None:
    y = np.array([5, 0, 0], np.float64)
    run(capturing, y)
    np.testing.assert_allclose(y, [10 + 2 + 3 + 1e-3, 1, np.float32(math.pi) + 1], rtol=1e-7)


def test_rebinding_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    captures = Captures(capturing)
    before = captures.digest
    assert not captures.changed()
    monkeypatch.setattr(f"{__name__}.OFFSETS", (1, (2, 3)))
    assert not captures.changed()
    assert fingerprint(capturing) == before
    monkeypatch.setattr(f"{__name__}.FACTOR", 3)
    assert captures.changed()
    assert fingerprint(capturing) != before


def test_rebinding_reaches_through_functions_and_attributes(monkeypatch: pytest.MonkeyPatch) -> None:
    captures = Captures(capturing)
    assert not captures.changed()
    monkeypatch.setattr(f"{__name__}.scaled", DeviceFunction(annotated))
    assert captures.changed()


def test_digests_depend_on_types_and_text() -> None:
    made = [
        cell(f"C = {value}\ndef f(x):\n    x[0] = C{extra}\n", f"<digest {i}>")["f"]
        for i, (value, extra) in enumerate([("1", ""), ("1.0", ""), ("True", ""), ("'1'", ""), ("1", " + 0")])
    ]
    assert len({fingerprint(f) for f in made}) == len(made)


def test_a_closure_is_read_again() -> None:
    def outer():
        size = 3

        def kernel(x: vk.InOut[vk.f32, "N"]):
            x[0] = size

        def change(value):
            nonlocal size
            size = value

        return kernel, change

    kernel, change = outer()
    captures = Captures(kernel)
    assert not captures.changed()
    change(4)
    assert captures.changed()
    x = np.zeros(1, np.float32)
    run(kernel, x)
    assert x[0] == 4
