"""Lazy slices and collectives."""

import vkjit as vk


def store_between(x: vk.InOut[vk.f32, "R C"]):
    wg = vk.workgroup()
    row = x[0, :]
    x[0, 0] = 1
    x[1, 0] = wg.sum(row)


def leaves_a_branch(x: vk.InOut[vk.f32, "R C"]):
    wg = vk.workgroup()
    if x[0, 0] > 0:
        row = x[0, :]
    else:
        row = x[1, :]
    x[0, 0] = wg.sum(row)


def carried_round_a_loop(x: vk.In[vk.f32, "R C"], y: vk.Out[vk.f32, "R"]):
    wg = vk.workgroup()
    row = x[0, :]
    for i in range(3):
        y[i] = wg.sum(row)
        row = row + x[i, :]


def stored_without_a_workgroup(x: vk.InOut[vk.f32, "R C"]):
    x[0, :] = x[1, :] * 2


def as_a_number(x: vk.InOut[vk.f32, "R C"]):
    x[0, 0] = x[1, :]


def with_steps(x: vk.InOut[vk.f32, "R C"]):
    wg = vk.workgroup()
    x[0, 0] = wg.sum(x[0, ::2])


def too_few_dimensions(x: vk.InOut[vk.f32, "R C"]):
    row = x[:]


def different_dimensions(x: vk.InOut[vk.f32, "R C"]):
    both = x[0, :] + x[:, :]


def types_do_not_fit(x: vk.InOut[vk.i32, "R C"], y: vk.In[vk.u32, "R C"]):
    both = x[0, :] + y[0, :]


def stores_to_an_input(x: vk.In[vk.f32, "R C"]):
    wg = vk.workgroup()
    wg.store(x[0, :], 1)


def stores_to_an_element(x: vk.InOut[vk.f32, "R C"]):
    wg = vk.workgroup()
    wg.store(x[0, 0], 1)


def unknown_method(x: vk.InOut[vk.f32, "R C"]):
    x[0, 0] = vk.workgroup().average(x[0, :])


def unknown_scan(x: vk.InOut[vk.f32, "R C"]):
    x[0, 0] = vk.workgroup().scan(x[0, 0], "average")


def bits_of_floats(x: vk.InOut[vk.f32, "R C"]):
    x[0, 0] = vk.subgroup().scan(x[0, 0], "xor")


def store_later_in_the_loop(x: vk.InOut[vk.f32, "R C"]):
    wg = vk.workgroup()
    row = x[0, :]
    for i in range(3):
        total = wg.sum(row)
        x[i, 0] = total


def slice_in_a_tuple(x: vk.InOut[vk.f32, "N"]):
    x[0] = 1 if x[:] in (1, 2) else 0


def slice_among_items(x: vk.InOut[vk.f32, "N"]):
    x[0] = 1 if x[0] not in (x[:], 2) else 0


def slice_compared_in_a_tuple(x: vk.InOut[vk.f32, "N"]):
    x[0] = 1 if (x[:], 1) == (x[:], 1) else 0


def vector_in_a_tuple(x: vk.InOut[vk.f32, "N"]):
    x[0] = 1 if vk.vec(vk.f32, 2)(x[0], 1) in (1, 2) else 0


def ranges_compared(x: vk.InOut[vk.f32, "N"]):
    x[0] = 1 if range(vk.i32(x[0])) == range(vk.i32(x[0])) else 0
