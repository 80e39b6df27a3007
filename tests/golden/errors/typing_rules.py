"""Types that don't go together."""

import vkjit as vk


def signed_with_unsigned(x: vk.InOut[vk.i32, "N"], n: vk.In[vk.u32, "N"]):
    x[0] = x[0] + n[0]


def literal_too_large(x: vk.InOut[vk.u8, "N"]):
    x[0] = x[0] + 256


def literal_needs_a_type(x: vk.InOut[vk.i64, "N"]):
    y = 5_000_000_000
    z = y if x[0] > 0 else 1


def negative_literal_for_unsigned(x: vk.InOut[vk.u32, "N"]):
    x[0] = -1


def float_into_integers(x: vk.InOut[vk.i32, "N"], f: vk.In[vk.f32, "N"]):
    x[0] = f[0]


def wide_integer_into_narrow(x: vk.InOut[vk.i32, "N"], n: vk.In[vk.i64, "N"]):
    x[0] = n[0]


def number_into_bool(x: vk.InOut[vk.boolean, "N"], n: vk.In[vk.i64, "N"]):
    x[0] = n[0]


def writes_an_input(x: vk.InOut[vk.i32, "N"], n: vk.In[vk.i32, "N"]):
    n[0] = 1


def float_index(x: vk.InOut[vk.f32, "N"]):
    x[x[0]] = 1


def too_few_indices(x: vk.InOut[vk.f32, "M N"]):
    x[0] = 1


def constant_index_outside(x: vk.InOut[vk.f32, "N"]):
    s = vk.local(vk.f32, 4)
    x[0] = s[4]


def bits_of_floats(x: vk.InOut[vk.f32, "N"]):
    x[0] = x[0] & 1


def shift_too_far(x: vk.InOut[vk.i32, "N"]):
    x[0] = x[0] << 32


def conditional_disagrees(x: vk.InOut[vk.f32, "N"], n: vk.In[vk.i32, "N"]):
    x[0] = x[0] if n[0] else n[0]


def integer_to_negative_power(x: vk.InOut[vk.i32, "N"]):
    x[0] = x[0] ** -2


def array_as_a_number(x: vk.InOut[vk.f32, "N"]):
    x[0] = x + 1


def array_as_a_condition(x: vk.InOut[vk.f32, "N"]):
    if x:
        x[0] = 1


def is_on_numbers(x: vk.InOut[vk.f32, "N"]):
    if x[0] is x[1]:
        x[0] = 1


def division_by_zero_of_literals(x: vk.InOut[vk.f32, "N"]):
    x[0] = 1 // 0


def counter_meets_unsigned_and_signed(x: vk.InOut[vk.i32, "N"], n: vk.In[vk.u32, "N"]):
    k = 0
    while k < n[0]:
        x[0] = x[1] + k
        k += 1


def static_assertion(x: vk.InOut[vk.f32, "N"], TS: vk.Const[int] = 12):
    assert TS % 16 == 0, f"TS is {TS}, a multiple of 16 is needed"


def integer_beyond_f64(x: vk.InOut[vk.f64, "N"]):
    x[0] = x[0] + 10**400


def integer_beyond_f64_converted(x: vk.InOut[vk.f64, "N"]):
    x[0] = vk.f64(10**5000)


def integer_beyond_f64_in_a_function(x: vk.InOut[vk.f64, "N"]):
    x[0] = vk.exp(10**400)


def integer_beyond_f64_as_an_exponent(x: vk.InOut[vk.f64, "N"]):
    x[0] = x[0] ** 10**400


def integer_beyond_f64_of_no_sign(x: vk.InOut[vk.f64, "N"]):
    x[0] = vk.sign(10**400)


def integer_beyond_all_types(x: vk.InOut[vk.i32, "N"]):
    x[0] = x[0] + 10**5000


def index_beyond_all_types(x: vk.InOut[vk.i32, "N"]):
    x[10**400] = 1


@vk.struct
class Pair:
    a: vk.f32
    b: vk.f32


def pad_of_another_structure(x: vk.InOut[vk.f32, "N"]):
    p = vk.shared(Pair, 4)
    x[0] = p.get(4, pad=(1, 2)).a


def vector_pad_of_another_type(x: vk.InOut[vk.f32, "N"]):
    p = vk.shared(vk.vec(vk.f32, 2), 4)
    x[0] = p.get(4, pad=(1, 2)).x


def unknown_keyword_of_a_struct_array(x: vk.InOut[vk.f32, "N"]):
    p = vk.shared(Pair, 4)
    x[0] = p.get(4, default=1).a
