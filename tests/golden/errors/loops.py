"""Loops."""

import vkjit as vk


def step_zero(x: vk.InOut[vk.f32, "N"]):
    for i in range(0, 4, 0):
        x[i] = 1


def float_range(x: vk.InOut[vk.f32, "N"]):
    for i in range(x[0]):
        x[i] = 1


def over_an_array(x: vk.InOut[vk.f32, "N"]):
    for v in x:
        x[0] = v


def over_a_number(x: vk.InOut[vk.f32, "N"]):
    for v in 3:
        x[0] = v


def unroll_needs_constants(x: vk.InOut[vk.f32, "N"]):
    for i in vk.unroll(len(x)):
        x[i] = 1


def unroll_too_far(x: vk.InOut[vk.f32, "N"]):
    for i in vk.unroll(100000):
        x[i] = 1


