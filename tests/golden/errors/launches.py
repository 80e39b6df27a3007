# ruff: noqa: I001
"""Launches that don't fit: counts, names, shapes, element types, devices, memory, grids."""

from typing import TypeVar

import numpy as np
import vkjit as vk
from vkjit.backends.interp.runtime.device import InterpreterDevice
from vkjit.runtime.device import DeviceArray

T = TypeVar("T", bound=vk.Element)


@vk.kernel(over="y")
def _scale(a: T, x: vk.In[T, "N"], y: vk.InOut[T, "N"]):
    i = vk.global_id(0)
    y[i] = a * x[i]


@vk.kernel(over="y")
def _single(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = x[i]


@vk.kernel
def _groups(x: vk.InOut[vk.f32, "N"]):
    x.put(vk.global_id(0), 1)


@vk.kernel(local=(16, 16))
def _product(a: vk.In[T, "M K"], b: vk.In[T, "K N"], c: vk.Out[T, "M N"], TS: vk.Const[int] = 16):
    c.put(vk.global_id(1), vk.global_id(0), a[0, 0] * b[0, 0])


@vk.kernel(over="x")
def _typed(x: vk.InOut[vk.i32, "N"], n: vk.i32, flag: vk.boolean, limit: vk.u8):
    x[vk.global_id(0)] = n


@vk.kernel(over="x")
def _loose(x):
    x[vk.global_id(0)] = 1


@vk.kernel(over="y")
def _halves(x: vk.In[vk.f32, "2*N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = x[2 * i]


@vk.kernel(over="y")
def _unsolvable(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "M"]):
    y[vk.global_id(0)] = x[0]


@vk.kernel(over="x")
def _checked(x: vk.InOut[vk.i32, "N"]):
    i = vk.global_id(0)
    x[i + 1] = 1


@vk.kernel(over="x", debug=True)
def _divides(x: vk.InOut[vk.i32, "N"]):
    i = vk.global_id(0)
    x[i] = 1 // x[i]


@vk.kernel(over="x")
def _asserts(x: vk.InOut[vk.f32, "N"]):
    i = vk.global_id(0)
    assert x[i] >= 0, f"element {i} is {x[i]}"


@vk.kernel(groups=lambda x, height: height, local=32)
def _asks(x: vk.InOut[vk.f32, "N"]):
    x.put(vk.global_id(0), 1)


@vk.kernel(groups=lambda x: len(x.shape) / 2, local=32)
def _fractional(x: vk.InOut[vk.f32, "N"]):
    x.put(vk.global_id(0), 1)


@vk.kernel(groups=1, local=100_000)
def _large(x: vk.InOut[vk.f32, "N"]):
    x.put(vk.global_id(0), 1)


def _ones(*shape, dtype=np.float32):
    return np.ones(shape, dtype)


def too_few_arguments():
    _scale(2.0)


def too_many_arguments():
    _scale(2.0, _ones(3), _ones(3), _ones(3))


def unknown_keyword():
    _scale(2.0, _ones(3), z=_ones(3))


def shapes_disagree():
    _scale(2.0, _ones(3), _ones(4))


def inner_dimensions_disagree():
    _product[1, 1](_ones(2, 3), _ones(4, 5))


def rank_disagrees():
    _scale(2.0, _ones(3), _ones(3, 1))


def not_an_even_length():
    _halves(_ones(5))


def out_of_unknown_shape():
    _unsolvable(_ones(5))


def element_types_disagree():
    _scale(2.0, _ones(3), _ones(3, dtype=np.float64))


# numba and taichi 8132: NumPy's default types, float64 and int64
def float64_by_default():
    _single(np.ones(3))


def int64_by_default():
    _typed(np.array([1, 2, 3]), 1, True, 2)


def complex_elements():
    _scale(2.0, _ones(3, dtype=np.complex64), _ones(3, dtype=np.complex64))


def object_elements():
    _loose(np.array([None, 1]))


# numba 7041: arrays of text
def text_elements():
    _loose(np.array(["which", "there"]))


def foreign_byte_order():
    _single(_ones(3, dtype=">f4"))


def list_for_an_array():
    _single([1.0, 2.0])


def number_for_an_array():
    _single(1.0)


# taichi 4163: text for a number
def text_for_a_number():
    _typed(_ones(3, dtype=np.int32), "3", True, 2)


def float_for_an_integer():
    _typed(_ones(3, dtype=np.int32), 1.5, True, 2)


def integer_for_a_bool():
    _typed(_ones(3, dtype=np.int32), 1, 1, 2)


def integer_out_of_range():
    _typed(_ones(3, dtype=np.int32), 1, True, 300)


def scalar_that_does_not_fit_its_type():
    _scale(2.5, _ones(3, dtype=np.int32), _ones(3, dtype=np.int32))


def array_for_a_scalar():
    _typed(_ones(3, dtype=np.int32), _ones(3, dtype=np.int32), True, 2)


def none_for_an_array():
    _single(None)


# taichi 7076: an object, as `self` would be
def object_for_an_array():
    _single(object())


def read_only_output():
    y = _ones(3)
    y.flags.writeable = False
    _scale(2.0, _ones(3), y)


def output_with_overlapping_elements():
    _scale(2.0, _ones(3), np.lib.stride_tricks.as_strided(_ones(1), (3,), (0,)))


# numba 4468: a kernel called without the number of workgroups
def no_grid():
    _groups(_ones(3))


# numba's kernel[blocks, threads] for a kernel that has over=
def grid_of_an_over_kernel():
    _scale[4, 256](2.0, _ones(3), _ones(3))


# the same, for a kernel that knows one axis only: it would run 256 times
def blocks_and_threads():
    _groups[4, 256](_ones(1024))


def workgroups_along_an_axis_that_nobody_reads():
    _product[1, 2, 3](_ones(2, 2), _ones(2, 2))


def grid_of_four_dimensions():
    _groups[1, 1, 1, 1](_ones(3))


def fractional_grid():
    _groups[3 / 2](_ones(3))


def negative_grid():
    _groups[-1](_ones(3))


def fractional_groups():
    _fractional(_ones(3))


def groups_ask_for_an_unknown_name():
    _asks(_ones(3))


def workgroup_too_large():
    _large(_ones(3))


def index_out_of_bounds():
    _checked(_ones(3, dtype=np.int32))


def division_by_zero():
    _divides(np.zeros(3, np.int32))


def arguments_on_two_devices():
    arrays = []
    for device in (InterpreterDevice(0), InterpreterDevice(1)):
        arrays.append(DeviceArray(device.allocate(12), 0, vk.f32, (3,), (1,)))
    _scale(2.0, *arrays)


def assertion():
    _asserts(np.array([1, -2], np.float32))


def both_grids():
    vk.kernel(over="x", groups=1)(_loose.spec.fn)


def strict_and_fast():
    vk.kernel(over="x", strict=True, fast_math=True)(_loose.spec.fn)


def over_an_unknown_name():
    vk.kernel(over="z")(_single.spec.fn)


def over_a_scalar():
    vk.kernel(over="n")(_typed.spec.fn)


def kernel_of_a_number():
    vk.kernel(3)


def dims_that_do_not_parse():
    @vk.kernel
    def kernel(x: vk.In[vk.f32, "M-"]):
        pass


def two_packs_of_dims():
    @vk.kernel
    def kernel(x: vk.In[vk.f32, "*A *B"]):
        pass


def element_type_that_is_text():
    @vk.kernel
    def kernel(x: vk.In["f32", "N"]):
        pass


def dims_that_are_no_text():
    vk.In[vk.f32, 3]


# taichi 7076: a kernel as a method
class _Simulation:
    @vk.kernel(over="x")
    def step(self, x: vk.InOut[vk.f32, "N"]):
        x[vk.global_id(0)] = 1


def method():
    _Simulation().step(_ones(3))


def masked_array():
    _single(np.ma.masked_array(_ones(3), mask=[True, False, True]))


def packed_parameters():
    @vk.kernel
    def kernel(*arrays):
        pass


def async_kernel():
    @vk.kernel(over="x")
    async def kernel(x: vk.InOut[vk.f32, "N"]):
        x[vk.index()] = 1


def generator_kernel():
    @vk.kernel(over="x")
    def kernel(x: vk.InOut[vk.f32, "N"]):
        yield x[vk.index()]


def generator_as_device_function():
    @vk.func
    def several(x: vk.f32):
        yield x

    @vk.kernel(over="x")
    def kernel(x: vk.InOut[vk.f32, "N"]):
        x[vk.index()] = several(x[vk.index()])

    kernel(_ones(3))


def constant_by_value():
    @vk.kernel(over="x")
    def kernel(x: vk.InOut[vk.f32, "N"], size: vk.Const[3]):
        x[vk.index()] = size
