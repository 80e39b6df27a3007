# ruff: noqa: I001
"""Memory of which it is plain that nothing was written to it before it is read."""

import vkjit as vk


def never_written(y: vk.Out[vk.f32, "N"]):
    s = vk.local(vk.f32, 4)
    y[0] = s[1]


def shared_never_written(y: vk.Out[vk.f32, "N"]):
    s = vk.shared(vk.f32, 64)
    vk.barrier()
    y[0] = s[vk.local_id(0)]


def written_later(y: vk.Out[vk.f32, "N"]):
    s = vk.local(vk.f32, 4)
    total = s[0]
    for i in range(4):
        s[i] = i
    y[0] = total


def accumulates_into_nothing(y: vk.InOut[vk.f32, "N"]):
    s = vk.local(vk.f32, 4)
    s[0] += y[0]
    y[0] = s[0]


def in_one_branch(y: vk.InOut[vk.f32, "N"]):
    s = vk.local(vk.f32, 4)
    if y[0] > 0:
        y[1] = s[0]
    s[0] = 1
