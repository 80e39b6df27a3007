# mypy: disable-error-code="arg-type, comparison-overlap, attr-defined, call-arg, misc"
# mypy: disable-error-code="no-any-return, no-untyped-call, no-untyped-def, operator, index"
"""Frozen dataclasses, named tuples, enums, classes and dictionaries as constants of kernels behave as in Python."""

from __future__ import annotations

import enum
import functools
import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest

import vkjit as vk
from tests.device.language.rejections import rejected


@dataclass(frozen=True)
class Base:
    k: float = 1.0
    M: ClassVar[int] = 7

    def plus(self, v):
        return v + self.k


@dataclass(frozen=True)
class Config(Base):
    a: int = 2
    b: float = 3.0
    _private = 0.5

    def total(self):
        return self.a + self.b

    def scaled(self, v, by=2):
        return self.total() * v * by * self._private

    @property
    def half(self):
        return self.a / 2

    @functools.cached_property
    def cached(self):
        return self.a * 100

    @classmethod
    def of_class(cls, v):
        return v * cls.M

    @staticmethod
    def static(v):
        return v + 10

    def __call__(self, v):
        return v * self.a


class Window(NamedTuple):
    low: float = 4.0
    high: float = 0.5

    def total(self):
        return self.low * self.high

    @property
    def twice(self):
        return 2 * self.low


class Level(enum.Enum):
    LOW = 1
    HIGH = 2

    def weight(self):
        return self.value * 10

    @property
    def after(self):
        return self.value + 1


class Number(enum.IntEnum):
    ONE = 1
    TWO = 2

    def more(self):
        return self + 1


class Flags(enum.Flag):
    X = 1
    Y = 2
    Z = 4


class IntFlags(enum.IntFlag):
    X = 1
    Y = 2


class Text(str, enum.Enum):
    A = "a"
    B = "b"


class Settings:
    COUNT = 3

    class Inner:
        RATIO = 2.0


CONFIG, WINDOW, LEVEL = Config(), Window(), Level.HIGH
TABLE = {"a": 1.5, 2: 4, Level.LOW: 9, (1, 2): 5}
NESTED = {"x": {"y": 3}}
NUMBERS = {1: 10, 2: 20}


def dataclass_members(v, i):
    return (
        v + CONFIG.total() + CONFIG.half + CONFIG.cached + CONFIG.scaled(v, by=3) + CONFIG.plus(v) + CONFIG(v) + CONFIG.M
        + CONFIG.of_class(v) + CONFIG.static(v) + Config.of_class(v) + Config.static(1) + Config.total(CONFIG)
    )  # fmt: skip


def named_tuple_members(v, i):
    p = Window(v, high=2.0)
    if v > 2:
        p = Window(v * 2, 3.0)
    q = p._replace(low=5)
    return WINDOW.total() + WINDOW.twice + WINDOW[0] + len(WINDOW) + p.total() + q.low + q.high + p.twice


def enum_members(v, i):
    result = LEVEL.weight() + Level.LOW.after + Level["HIGH"].value + Level(1).value + len(Level) + Number.TWO.more()
    for member in Level:
        result += member.value
    if Level.LOW != LEVEL and LEVEL is Level.HIGH and Level.LOW.name == "LOW" and Number.ONE < Number.TWO:
        result += 100 * v
    if Text.A == "a" and Text.B.value == "b" and Text.A != Text.B:
        result += 1000
    return result + Number.ONE * 3 + Number.TWO.value


def flags(v, i):
    both, one = Flags.X | Flags.Y, Flags.Z
    result = v + both.value + (IntFlags.X | IntFlags.Y) + (IntFlags.X | IntFlags.Y).value + (Number.ONE | 4)
    if Flags.X in both and Flags.Z not in both:
        result += 10
    if not (one & Flags.Y) and both & Flags.Y:
        result += 100
    if one ^ Flags.X == Flags.X | Flags.Z and ~both & Flags.Z:
        result += 1000
    return result + (~IntFlags.X & IntFlags.Y)


def dictionaries(v, i):
    result = (
        v + TABLE["a"] + TABLE[2] + TABLE[Level.LOW] + TABLE[1, 2] + TABLE.get("q", 7) + NESTED["x"]["y"] + len(TABLE)
    )
    for key in NUMBERS:
        result += NUMBERS[key] * key
    for key, value in NUMBERS.items():
        result += value - key
    for value in NUMBERS.values():
        result += value
    table = NUMBERS
    return result + sum(table.keys()) + (1 if 2 in table and 5 not in NUMBERS else 0)


def class_attributes(v, i):
    return v * math.pi + Settings.COUNT + Settings.Inner.RATIO + Config.M


def check(function: Any) -> None:
    @vk.kernel(over="y")
    def kernel(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
        i = vk.global_id(0)
        y[i] = function(x[i], i)

    x = np.array([-2.5, 0.0, 0.75, 3.0], np.float32)
    expected = [float(function(float(v), i)) for i, v in enumerate(x)]
    np.testing.assert_allclose(kernel(x), expected, rtol=2e-6, atol=2e-6)


FUNCTIONS = [dataclass_members, named_tuple_members, enum_members, flags, dictionaries, class_attributes]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_what_python_gives(device: Any, function: Any) -> None:
    check(function)


@vk.kernel(over="y")
def with_constants(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"], c: vk.Const[Any], level: vk.Const[Level] = Level.LOW):
    i = vk.global_id(0)
    y[i] = c.total() * x[i] + level.weight()


def test_members_of_const_parameters(device: Any) -> None:
    x = np.ones(1, np.float32)
    assert with_constants(x, c=Config())[0] == 15
    assert with_constants(x, c=Config(a=4))[0] == 17
    assert with_constants(x, c=Window(3.0, 2.0), level=Level.HIGH)[0] == 26


def test_changes_are_seen(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def function(v, i):
        return CONFIG.of_class(v) + CONFIG.total() + TABLE["a"] + NESTED["x"]["y"] + Level.LOW.weight() + WINDOW.total()

    @vk.kernel(over="y")
    def kernel(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"], c: vk.Const[Any] = CONFIG):
        i = vk.global_id(0)
        y[i] = function(x[i], i) + c.total()

    x = vk.ones(3)

    def values() -> list[float]:
        found = [kernel(x).tolist() for _ in range(6)]  # later calls take the fast paths
        assert all(f == found[0] for f in found)
        return found[0]

    def expected() -> list[float]:
        return [float(function(1.0, 0) + CONFIG.total())] * 3

    assert values() == expected()
    plans = len(kernel._plans)
    assert values() == expected()
    assert len(kernel._plans) == plans  # nothing is compiled again
    monkeypatch.setattr(Base, "M", 9)
    assert values() == expected()
    monkeypatch.setattr(Config, "M", 11)  # hides that of the base
    assert values() == expected()
    monkeypatch.setattr(Config, "total", lambda self: self.a * 2)
    assert values() == expected()
    monkeypatch.setitem(TABLE, "a", 2.5)
    assert values() == expected()
    monkeypatch.setitem(NESTED["x"], "y", 6)
    assert values() == expected()
    monkeypatch.setattr(Level, "weight", lambda self: self.value)
    assert values() == expected()
    monkeypatch.setattr(Window, "total", lambda self: self.low)
    assert values() == expected()


class Mutable:
    def __init__(self) -> None:
        self.count = 1


MUTABLE, ARRAYS = Mutable(), {"array": np.ones(3), "n": 2}


def stored(v, i):
    NUMBERS["q"] = 1
    return v


def test_rejected_constants() -> None:
    rejected(lambda v, i: MUTABLE.count, "MUTABLE is a Mutable")
    rejected(lambda v, i: ARRAYS["n"], "ARRAYS['array'] is an array of NumPy")
    rejected(lambda v, i: NUMBERS[i], "a dictionary's key must be known at compile time, found vk.index")
    rejected(lambda v, i: NUMBERS[7], "the dictionary NUMBERS has no key 7", "its keys are 1, 2")
    rejected(lambda v, i: NUMBERS.pop(1), "a dictionary of 2 has no pop in a kernel")
    rejected(stored, "a dictionary of 2 can't be stored into")
    rejected(lambda v, i: CONFIG.missing, "has no field missing", "its fields are k, a, b")
    rejected(lambda v, i: Level.LOW.missing, "Level.LOW has no missing")
    rejected(lambda v, i: Level["MID"].value, "Level has no member")
    rejected(lambda v, i: Level(7).value, "Level takes a value known at compile time, found the literal 7")
    rejected(lambda v, i: WINDOW._replace(middle=1).low, "_replace takes fields by name")
    rejected(lambda v, i: Window(1, 2, 3).low, "Window(): too many positional arguments")
