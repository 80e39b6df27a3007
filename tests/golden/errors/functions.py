"""Device functions: the error shows the whole chain of callers."""

from typing import TypeVar

import vkjit as vk

T = TypeVar("T", bound=vk.Element)


@vk.func
def _inner(v):
    return v & 1


@vk.func
def _outer(v):
    w = v * 2
    return _inner(w)


@vk.func
def _recursive(n):
    return _recursive(n - 1)


@vk.func
def _same(a: T, b: T) -> T:
    return a + b


@vk.func
def _typed(a: vk.f32):
    return a


@vk.func
def _constant(n: vk.Const[int]):
    return n


@vk.func
def _mixed(n):
    if n > 1:
        return 1.5
    return n


@vk.func
def _not_always(n):
    if n > 1:
        return n


@vk.func
def _gives_an_array(n):
    return vk.local(vk.f32, 4)


def chain(x: vk.InOut[vk.f32, "N"]):
    x[0] = _outer(x[0])


def recursion(x: vk.InOut[vk.i32, "N"]):
    x[0] = _recursive(x[0])


def type_variable_disagrees(x: vk.InOut[vk.i32, "N"], f: vk.In[vk.f32, "N"]):
    x[0] = _same(x[0], f[0])


def another_type_than_annotated(x: vk.InOut[vk.i32, "N"]):
    x[0] = _typed(x[0])


def not_a_constant(x: vk.InOut[vk.i32, "N"]):
    x[0] = _constant(x[0])


def results_disagree(x: vk.InOut[vk.i32, "N"]):
    x[0] = _mixed(x[0])


def no_result_on_one_way(x: vk.InOut[vk.i32, "N"]):
    x[0] = _not_always(x[0])


def result_is_an_array(x: vk.InOut[vk.f32, "N"]):
    y = _gives_an_array(1)


def too_many_arguments(x: vk.InOut[vk.f32, "N"]):
    x[0] = _typed(x[0], 2)


def unknown_keyword(x: vk.InOut[vk.f32, "N"]):
    x[0] = _typed(a=x[0], b=2)
