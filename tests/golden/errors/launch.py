"""What belongs to workgroups, and memory."""

import vkjit as vk

OVER = "x"


def barrier(x: vk.InOut[vk.f32, "N"]):
    vk.barrier()


def shared_memory(x: vk.InOut[vk.f32, "N"]):
    s = vk.shared(vk.f32, 4)


def group_id(x: vk.InOut[vk.f32, "N"]):
    x[0] = vk.group_id(0)


def dimension_beyond_the_rank(x: vk.InOut[vk.f32, "N"]):
    x[0] = vk.global_id(1)


def shape_from_an_extent(x: vk.InOut[vk.f32, "N"]):
    s = vk.local(vk.f32, len(x))


def empty_shape(x: vk.InOut[vk.f32, "N"]):
    s = vk.local(vk.f32, (4, 0))


def no_dtype(x: vk.InOut[vk.f32, "N"]):
    s = vk.local(4, vk.f32)


def unknown_order(x: vk.InOut[vk.i32, "N"]):
    vk.atomic.add(x, 0, 1, order="strong")


def atomic_on_a_local_array(x: vk.InOut[vk.i32, "N"]):
    s = vk.local(vk.i32, 4)
    vk.atomic.add(s, 0, 1)


def atomic_of_another_type(x: vk.InOut[vk.i32, "N"], f: vk.In[vk.f32, "N"]):
    vk.atomic.add(x, 0, f[0])


def unknown_keyword(x: vk.InOut[vk.f32, "N"]):
    x[0] = x.get(0, default=1)


def missing_argument(x: vk.InOut[vk.i32, "N"]):
    vk.atomic.add(x, 0)
