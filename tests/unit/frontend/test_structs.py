# mypy: disable-error-code="arg-type, assignment, attr-defined, call-arg, no-untyped-call, valid-type"
"""Tests of structs: values with named fields."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import pytest

import vkjit as vk
from tests.unit.frontend.harness import lower, run
from vkjit.errors import ArgumentError, CompileError
from vkjit.frontend import DeviceFunction

T = TypeVar("T", bound=vk.Element)


@vk.struct
class Point:
    x: vk.f32
    y: vk.f32 = 0.5

    def dot(self, other):
        return self.x * other.x + self.y * other.y

    def moved(self, dx, dy=0):
        return Point(self.x + dx, self.y + dy)


@vk.struct
class Ray:
    origin: Point
    direction: vk.vec(vk.f32, 3)
    tag: T


@DeviceFunction
def nearest(a: Point, b: Point):
    if a.dot(a) < b.dot(b):
        return a, 1
    return b, 2


def fields(x: vk.InOut[vk.f32, "N"]):
    p = Point(x[0])
    q = p
    q.x = x[1]
    q.y += 1
    x[2] = p.x + 10 * p.y
    x[3] = q.x + 10 * q.y
    x[4] = p.moved(1, dy=2).dot(q)
    near, which = nearest(p, q)
    x[5] = near.x + 10 * which


def test_fields_methods_and_copies() -> None:
    x = np.array([1, 2, 0, 0, 0, 0], np.float32)
    run(fields, x)
    assert x[2:].tolist() == [1 + 5, 2 + 15, 2 * 2 + 2.5 * 1.5, 11]


def flow(x: vk.InOut[vk.f32, "N"]):
    p = Point(0, 0)
    for i in range(len(x)):
        if x[i] > 2:
            p.x += x[i]
        else:
            p = Point(p.x, p.y + 1)
        if p.x > 8:
            break
    best = p if p.y > 1 else Point(-1, -1)
    x[0] = best.x
    x[1] = best.y


@pytest.mark.parametrize(("values", "expected"), [([1, 2, 3, 4], [7, 2]), ([1, 9, 3, 4], [-1, -1])])
def test_structs_pass_through_branches_and_loops(values: list[int], expected: list[int]) -> None:
    x = np.array(values, np.float32)
    run(flow, x)
    assert x[:2].tolist() == expected


def nested(x: vk.InOut[vk.f32, "N"]):
    r = Ray(Point(1, 2), vk.vec(vk.f32, 3)(1, 2, 3), tag=7)
    s = r
    s.origin.y = 9
    s.direction = s.direction * 2
    x[0] = r.origin.y + r.direction.z + r.tag
    x[1] = s.origin.y + s.direction.z + s.tag


def test_nested_structs() -> None:
    x = np.zeros(2, np.float32)
    run(nested, x)
    assert x.tolist() == [2 + 3 + 7, 9 + 6 + 7]


def compared(x: vk.InOut[vk.f32, "N"]):
    p = Point(x[0], x[1])
    x[2] = p == Point(x[1], x[0])
    x[3] = p != Point(x[1], 2)
    x[4] = (x[0], (x[1], "a")) == (x[1], (x[1], "a"))
    x[5] = (x[0], x[1]) in ((3, x[0]), (x[1], 1))
    x[6] = (x[0], x[1]) not in ((3, x[0]), (x[1], 1))
    x[7] = x.shape == (len(x),)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 1], [1, 1, 1, 1, 0, 1]),
        ([2, 2], [1, 0, 1, 0, 1, 1]),
        ([3, 2], [0, 1, 0, 0, 1, 1]),
        ([3, 3], [1, 1, 1, 1, 0, 1]),
    ],
)
def test_structs_and_tuples_are_compared_part_by_part(values: list[int], expected: list[int]) -> None:
    x = np.array([*values, *[9] * 6], np.float32)
    run(compared, x)
    assert x[2:].tolist() == expected


def wrong_type(x: vk.InOut[vk.i32, "N"]):
    p = Point(x[0])


def unknown_field(x: vk.InOut[vk.f32, "N"]):
    p = Point(x[0])
    p.z = 1


def missing_field(x: vk.InOut[vk.f32, "N"]):
    p = Point()


def other_struct(x: vk.InOut[vk.f32, "N"]):
    nearest(Point(1), Ray(Point(1), vk.vec(vk.f32, 3)(1), 1))


def disagree(x: vk.InOut[vk.f32, "N"]):
    p = Point(1) if x[0] > 0 else 1


@pytest.mark.parametrize(
    ("kernel", "dtype", "part"),
    [
        (wrong_type, np.int32, "Point.x is vk.f32, found vk.i32"),
        (unknown_field, np.float32, "Point has no z"),
        (missing_field, np.float32, "missing a required argument: 'x'"),
        (other_struct, np.float32, "b of nearest is Point, found a Ray"),
        (disagree, np.float32, "a Point and the literal 1"),
    ],
)
def test_errors(kernel, dtype: type, part: str) -> None:
    with pytest.raises(CompileError, match=part):
        lower(kernel, np.zeros(1, dtype))


def test_outside_kernels() -> None:
    assert Point(1).dtype == vk.struct_dtype(Point)
    assert Point(1, y=2).tolist() == (1, 2)
    assert Point(1).x == 1
    assert Point(1).y == 0.5
    with pytest.raises(ArgumentError, match="no annotated fields"):
        vk.struct(type("Empty", (), {}))
