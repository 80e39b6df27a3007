# ruff: noqa: I001, B007, F401
"""Python that kernels can't hold."""

import vkjit as vk


def list_comprehension(x: vk.InOut[vk.f32, "N"]):
    y = [x[i] for i in range(3)]


def list_literal(x: vk.InOut[vk.f32, "N"]):
    table = [1, 2, 3]


def dictionary(x: vk.InOut[vk.f32, "N"]):
    table = {1: 2}


def lambda_expression(x: vk.InOut[vk.f32, "N"]):
    x[0] = (lambda v: v + 1)(x[0], 2)


def try_statement(x: vk.InOut[vk.f32, "N"]):
    try:
        x[0] = 1
    except IndexError:
        pass


def with_statement(x: vk.InOut[vk.f32, "N"]):
    with x:
        pass


def raise_statement(x: vk.InOut[vk.f32, "N"]):
    raise ValueError


def walrus(x: vk.InOut[vk.f32, "N"]):
    if (n := x[0]) > 1:
        x[1] = n


def starred_call(x: vk.InOut[vk.f32, "N"]):
    x[0] = max(*x)


def keyword_call(x: vk.InOut[vk.f32, "N"]):
    x[0] = max(**x)


def nested_function(x: vk.InOut[vk.f32, "N"]):
    def helper(v: str):
        return 1


def f_string(x: vk.InOut[vk.f32, "N"]):
    text = f"{x[0]}"


def global_statement(x: vk.InOut[vk.f32, "N"]):
    global counter
    counter = 1


def import_statement(x: vk.InOut[vk.f32, "N"]):
    import math


def delete(x: vk.InOut[vk.f32, "N"]):
    y = 1
    del y


def match_statement(x: vk.InOut[vk.f32, "N"]):
    match 1:
        case 1:
            pass


def yield_expression(x: vk.InOut[vk.f32, "N"]):
    yield x[0]


def matrix_product(x: vk.InOut[vk.f32, "N"]):
    x[0] = x @ x


def returns_a_value(x: vk.InOut[vk.f32, "N"]):
    return x[0]


def slices(x: vk.InOut[vk.f32, "N"]):
    x[1:2] = 0


def attribute_target(x: vk.InOut[vk.f32, "N"]):
    x.value = 1


def starred_target(x: vk.InOut[vk.f32, "N"]):
    a, *b, c, d = (1, 2)


def wrong_unpacking(x: vk.InOut[vk.f32, "N"]):
    a, b = (1, 2, 3)


def complex_number(x: vk.InOut[vk.f32, "N"]):
    y = 1j
