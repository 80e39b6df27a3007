# ruff: noqa: I001, B007, F401
"""Names: read before they have a value, values that disagree, captures."""

import math

import numpy as np
import vkjit as vk

TABLE = [1, 2, 3]
WEIGHTS = np.ones(3)


def helper(v):
    return v + 1


def undefined(x: vk.InOut[vk.f32, "N"]):
    x[0] = unknwon


def misspelt(x: vk.InOut[vk.f32, "N"]):
    total = 1
    x[0] = totl


def before_assignment(x: vk.InOut[vk.f32, "N"]):
    x[0] = y
    y = 1


def only_in_one_branch(x: vk.InOut[vk.f32, "N"]):
    if x[0] > 0:
        y = 1
    x[0] = y


def only_in_other_branch(x: vk.InOut[vk.f32, "N"]):
    if x[0] > 0:
        pass
    elif x[1] > 0:
        y = 2
    else:
        y = 3
    x[0] = y


def loop_may_not_run(x: vk.InOut[vk.f32, "N"]):
    for i in range(len(x)):
        y = x[i]
    x[0] = y


def loop_variable_after_loop(x: vk.InOut[vk.f32, "N"]):
    for i in range(len(x)):
        pass
    x[i] = 1


def not_on_every_break(x: vk.InOut[vk.f32, "N"]):
    while True:
        if x[0] > 1:
            break
        y = 1
        if x[1] > 1:
            break
    x[0] = y


def next_round(x: vk.InOut[vk.f32, "N"]):
    for i in range(3):
        if i > 0:
            x[i] = previous
        previous = x[i]


def branches_disagree(x: vk.InOut[vk.f32, "N"], n: vk.In[vk.i32, "N"]):
    if x[0] > 0:
        y = x[0]
    else:
        y = n[0]
    x[0] = y


def loop_changes_type(x: vk.InOut[vk.f32, "N"], n: vk.In[vk.i32, "N"]):
    y = n[0]
    for i in range(3):
        x[i] = y
        y = x[i] + 1


def tuple_lengths_disagree(x: vk.InOut[vk.f32, "N"]):
    if x[0] > 0:
        y = (1, 2)
    else:
        y = (1, 2, 3)
    x[0] = y[0]


def arrays_disagree(x: vk.InOut[vk.f32, "N"], z: vk.InOut[vk.f32, "N"]):
    if x[0] > 0:
        y = x
    else:
        y = z
    y[0] = 1


def captures_a_list(x: vk.InOut[vk.f32, "N"]):
    x[0] = TABLE[0]


def captures_an_array(x: vk.InOut[vk.f32, "N"]):
    x[0] = WEIGHTS[0]


def plain_function(x: vk.InOut[vk.f32, "N"]):
    x[0] = helper(x[0], 2)


def unknown_function(x: vk.InOut[vk.f32, "N"]):
    x[0] = sorted(x)


def missing_attribute(x: vk.InOut[vk.f32, "N"]):
    x[0] = math.exponential(x[0])


def not_callable(x: vk.InOut[vk.f32, "N"]):
    x[0] = x(1)
