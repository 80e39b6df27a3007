"""Cooperative matrices of a subgroup."""

import vkjit as vk


def in_a_branch_of_some(s: vk.f16):
    sg = vk.subgroup()
    tile = vk.shared(vk.f16, (16, 16))
    if vk.local_id(0) < 5:
        sg.store(tile[0:16, 0:16], sg.matrix((16, 16), vk.f16))


def chosen_by_some(s: vk.f16):
    sg = vk.subgroup()
    tile = vk.shared(vk.f16, (16, 16))
    first, second = sg.matrix((16, 16), vk.f16, s), sg.matrix((16, 16), vk.f16)
    sg.store(tile[0:16, 0:16], first if vk.local_id(0) < 5 else second)


def in_a_loop_of_some(s: vk.f16):
    sg = vk.subgroup()
    m = sg.matrix((16, 16), vk.f16, s)
    for _ in range(vk.local_id(0)):
        m = -m
    tile = vk.shared(vk.f16, (16, 16))
    sg.store(tile[0:16, 0:16], m)


def from_different_places(s: vk.f16):
    sg = vk.subgroup()
    tile = vk.shared(vk.f16, (64, 16))
    i = vk.local_id(0)
    m = sg.load(tile[i : i + 16, 0:16], "a")


def of_own_values(x: vk.In[vk.f32, "N"]):
    sg = vk.subgroup()
    m = sg.matrix((16, 16), vk.f32, x[vk.local_id(0)])


def wrong_use(s: vk.f16):
    sg = vk.subgroup()
    a = sg.matrix((16, 16), vk.f16, s, "a")
    sg.mma(a, a, sg.matrix((16, 16), vk.f32))


def wrong_shapes(s: vk.f16):
    sg = vk.subgroup()
    a, b = sg.matrix((16, 8), vk.f16, s, "a"), sg.matrix((16, 16), vk.f16, s, "b")
    sg.mma(a, b, sg.matrix((16, 16), vk.f32))


def no_matrix(s: vk.f16):
    sg = vk.subgroup()
    sg.mma(s, s, sg.matrix((16, 16), vk.f32))


def size_of_a_slice(s: vk.i32):
    sg = vk.subgroup()
    tile = vk.shared(vk.f16, (64, 16))
    sg.load(tile[0:s, 0:16], "a")


def run_time_shape(s: vk.i32):
    sg = vk.subgroup()
    sg.matrix((s, 16), vk.f32)


def not_contiguous(a: vk.In[vk.f16, "M K"]):
    sg = vk.subgroup()
    sg.load(a[0:16, 0:16], "a")


def other_elements(s: vk.f16):
    sg = vk.subgroup()
    tile = vk.shared(vk.f32, (16, 16))
    sg.store(tile[0:16, 0:16], sg.matrix((16, 16), vk.f16, s))


def other_size(s: vk.f16):
    sg = vk.subgroup()
    tile = vk.shared(vk.f16, (16, 16))
    sg.store(tile[0:16, 0:8], sg.matrix((16, 16), vk.f16, s))


def an_element(s: vk.f16):
    sg = vk.subgroup()
    m = sg.matrix((16, 16), vk.f16, s)
    m[0, 0]


def a_function(s: vk.f16):
    sg = vk.subgroup()
    vk.exp(sg.matrix((16, 16), vk.f16, s))


def a_quotient(s: vk.f16):
    sg = vk.subgroup()
    sg.matrix((16, 16), vk.f16, s) / s


def two_types(s: vk.f16):
    sg = vk.subgroup()
    sg.matrix((16, 16), vk.f16, s) + sg.matrix((16, 16), vk.f32)


def to_integers(s: vk.f16):
    sg = vk.subgroup()
    vk.i32(sg.matrix((16, 16), vk.f16, s))


def rows_apart(s: vk.f16):
    sg = vk.subgroup()
    tile = vk.shared(vk.f16, (16, 17))
    sg.store(tile[0:16, 0:16], sg.matrix((16, 16), vk.f16, s))
