"""Tests of what cache keys depend on: constants, captured values, structs, device functions, edited files."""

from __future__ import annotations

import enum
import importlib
import math
import sys
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

import vkjit as vk
from vkjit.compiler.fingerprint import fingerprint, value_digest
from vkjit.frontend import ConstArg, Signature, constant_key

T = TypeVar("T", bound=vk.Element)
U = TypeVar("U", bound=vk.Element)


def _point(kind: Any) -> Any:
    @vk.struct
    class Point:
        x: kind
        y: vk.f32

    return Point


def _shifted(amount: float) -> Any:
    @vk.struct
    class Point:
        x: vk.f32

        def moved(self):
            return self.x + amount

    return Point


def _function(kind: Any) -> Any:
    @vk.func
    def convert(x: kind):
        return x

    return convert


class First(enum.IntEnum):
    A = 1


class Second(enum.IntEnum):
    A = 1


class Hidden(enum.Enum):
    A = 1
    B = 2

    def __repr__(self) -> str:
        return "<hidden>"


class Bits(enum.IntFlag):
    A = 1
    B = 2


class Word(str, enum.Enum):
    A = "a"


class Shown(int):
    def __repr__(self) -> str:
        return "<number>"


class ShownText(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return "<text>"


def _enumeration(module: str, value: int = 1) -> Any:
    return enum.IntEnum("Same", {"A": value}, module=module)


DIFFERENT = {
    "ufuncs": (np.sin, np.cos),
    "dtypes": (vk.f32, vk.i32),
    "fields": (_point(vk.f32), _point(vk.i32)),
    "methods": (_shifted(1.0), _shifted(2.0)),
    "annotations": (_function(vk.f32), _function(vk.f16)),
    "vectors": (vk.vec(vk.f32, 2), vk.vec(vk.f32, 3)),
    "numpy dtypes": (np.dtype("f4"), np.dtype("i4")),
    "records": (np.dtype([("a", "f4")]), np.dtype([("a", "i4")])),
    "choices": (vk.tune(1, 2), vk.tune(2, 1)),
    "type variables": (T, U),
    "functions of math": (math.sin, math.cos),
    "stubs": (vk.sin, vk.cos),
    "signs of zero": (0.0, -0.0),
    "NaN": (math.nan, 0.0),
    "bool and int": (True, 1),
    "int and float": (1, 1.0),
    "widths": (np.float32(1), np.float64(1)),
    "last digits": (np.float32(0.1), np.nextafter(np.float32(0.1), np.float32(1))),
    "tuples": ((1, 2.0), (1, 2)),
    "nesting": (((1,), 2), (1, (2,))),
    "numbers and text": (1, "1"),
    "enumerations": (First.A, Second.A),
    "enumerations of one name": (_enumeration("a").A, _enumeration("b").A),
    "members of one repr": (Hidden.A, Hidden.B),
    "a member and its number": (First.A, 1),
    "flags": (Bits.A, Bits.A | Bits.B),
    "a member and its text": (Word.A, "a"),
    "numbers of one repr": (Shown(1), Shown(2)),
    "texts of one repr": (ShownText("1"), ShownText("2")),
    "values of members": (_enumeration("a", 1).A, _enumeration("a", 2).A),
    "members in tuples": ((0, (First.A,)), (0, (Second.A,))),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_constants_that_differ_have_digests_that_differ(name: str) -> None:
    first, second = DIFFERENT[name]
    assert value_digest(first) != value_digest(second)
    assert value_digest(first) == value_digest(first)
    if isinstance(first, int | float | str | tuple | enum.Enum):
        assert constant_key(first) != constant_key(second)


@pytest.mark.parametrize(("first", "second"), [(0.0, -0.0), (1, True), (1, 1.0), ((2,), (2.0,)), (math.nan, 0.0)])
def test_signatures_tell_constants_apart(first: Any, second: Any) -> None:
    assert Signature((ConstArg(first),)) != Signature((ConstArg(second),))
    assert constant_key(first) != constant_key(second)
    assert Signature((ConstArg(first),)) == Signature((ConstArg(first),))
    assert hash(ConstArg(first)) == hash(ConstArg(first))


@vk.kernel(over="y")
def scaled(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"], factor: vk.Const[float]):
    y[vk.global_id(0)] = x[vk.global_id(0)] * factor


FACTOR: Any = 0.0
PAIR: Any = (0.0,)


@vk.kernel(over="y")
def scaled_by_global(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    y[vk.global_id(0)] = x[vk.global_id(0)] * FACTOR + x[vk.global_id(0)] * PAIR[0]


def test_a_constant_of_minus_zero_is_not_zero() -> None:
    x = np.ones(3, np.float32)
    with vk.use_device("interpreter"):
        assert not np.signbit(scaled(x, factor=0.0)).any()
        assert np.signbit(scaled(x, factor=-0.0)).all()


def test_repeated_launches_tell_minus_zero_from_zero() -> None:
    with vk.use_device("interpreter"):
        x = vk.tensor(np.ones(3, np.float32))
        for _ in range(3):
            assert not np.signbit(scaled(x, factor=0.0).numpy()).any()
            assert np.signbit(scaled(x, factor=-0.0).numpy()).all()


def test_a_captured_zero_that_changes_its_sign_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.ones(3, np.float32)
    with vk.use_device("interpreter"):
        assert not np.signbit(scaled_by_global(x)).any()
        monkeypatch.setitem(globals(), "FACTOR", -0.0)
        monkeypatch.setitem(globals(), "PAIR", (-0.0,))
        assert np.signbit(scaled_by_global(x)).all()


HELPER = """
from __future__ import annotations
import vkjit as vk

Number = vk.{kind}

@vk.struct
class Pair:
    a: vk.{kind}
    b: vk.f32

@vk.func
def helper(x: Number):
    return x + {amount}
"""

MAIN = """
import vkjit as vk
import {helper} as other

@vk.kernel(over="y")
def main(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    y[vk.global_id(0)] = vk.f32(other.helper(x[vk.global_id(0)]))

@vk.kernel(over="y")
def pairs(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    p = other.Pair(1, 2)
    y[vk.global_id(0)] = vk.f32(p.a) + p.b + x[vk.global_id(0)]
"""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Yield (main, write): a module with kernels, and a function that rewrites its helper module and reloads it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    helper, name = f"helper_{tmp_path.name}", f"main_{tmp_path.name}"
    helper, name = helper.replace("-", "_"), name.replace("-", "_")
    (tmp_path / f"{helper}.py").write_text(HELPER.format(kind="f32", amount="1.0"))
    (tmp_path / f"{name}.py").write_text(MAIN.format(helper=helper))
    main = importlib.import_module(name)

    def write(**values: str) -> None:
        (tmp_path / f"{helper}.py").write_text(HELPER.format(**values))
        importlib.reload(sys.modules[helper])

    yield main, write
    del sys.modules[helper], sys.modules[name]


def test_an_edited_and_reloaded_device_function_is_compiled_anew(modules: Any) -> None:
    main, write = modules
    x = np.zeros(2, np.float32)
    with vk.use_device("interpreter"):
        assert main.main(x).tolist() == [1.0, 1.0]
        write(kind="f32", amount="20.5")
        assert main.main(x).tolist() == [20.5, 20.5]


@pytest.mark.parametrize("kernel", ["main", "pairs"])
def test_types_behind_names_of_another_module_count(modules: Any, kernel: str) -> None:
    main, write = modules
    before = fingerprint(getattr(main, kernel).spec.fn)
    write(kind="f16", amount="1.0")
    assert fingerprint(getattr(main, kernel).spec.fn) != before
    write(kind="f32", amount="1.0")
    assert fingerprint(getattr(main, kernel).spec.fn) == before
