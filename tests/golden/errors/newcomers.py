# ruff: noqa: I001, B007, F401, F821, NPY002, UP031, UP032
"""The mistakes that people bring from numba-cuda, Taichi and Triton, as their trackers and documentation show them.

The line above each kernel says where the mistake is met: a number is that of an issue or pull request on the project's
tracker. What the message has to do: say what was found, and what to write here instead.
"""

import math
import random
from math import ceil

import numpy as np
import vkjit as vk

SIZES = {"x": 1, "y": 2}
FOUND = []
COUNTER = np.zeros(1)
state = random.Random(1)


class _Simulation:
    dt = 0.5


SIMULATION = _Simulation()


@vk.kernel(over="x")
def _other_kernel(x: vk.InOut[vk.f32, "N"]):
    x[vk.global_id(0)] = 1


def helper(v):
    return v * v


# numba 8717: a kernel written like a function, with its result returned
def returns_its_result(x: vk.In[vk.f32, "N"]):
    return x[vk.global_id(0)] * 2


# numba 22, 1112: an array made inside the kernel
def makes_an_array(x: vk.InOut[vk.f32, "N"]):
    work = np.zeros(4, np.float32)
    x[0] = work[0]


# numba 6549, 7314: a local array as long as an argument says
def local_array_of_run_time_size(x: vk.InOut[vk.f32, "N"], n: vk.i32):
    work = vk.local(vk.f32, n)
    x[0] = work[0]


# numba's cuda.shared.array(shape, dtype): the shape first
def shape_before_dtype(x: vk.InOut[vk.f32, "N"]):
    tile = vk.shared((16, 16), vk.f32)
    x[0] = tile[0, 0]


# numba's page on what CUDA Python supports: whole arrays in an expression
def whole_arrays(x: vk.InOut[vk.f32, "N"], y: vk.In[vk.f32, "N"]):
    x[0] = 2 * x + y


# numba 9324: a slice updated in place
def slice_in_place(x: vk.InOut[vk.f32, "M N"]):
    x[:, 1] += 1.0


# taichi 6424: a reduction of NumPy applied to an argument
def numpy_sum(x: vk.InOut[vk.f32, "N"]):
    x[0] = np.sum(x)


# numba 4757: functions of whole arrays, such as bincount and argmax
def numpy_argmax(x: vk.InOut[vk.f32, "N"]):
    x[0] = np.argmax(x)


# numba 5860: a function used without its import
def forgotten_import(x: vk.InOut[vk.f32, "N"]):
    x[0] = floor(x[0])


# numba 7054: a name with a letter too few
def misspelt_name(x: vk.InOut[vk.f32, "N"]):
    movement = x[0]
    x[1] = movemen


# numba 4801: Python's random numbers
def random_module(x: vk.InOut[vk.f32, "N"]):
    x[0] = random.random()


# numba 981: NumPy's random numbers
def numpy_random(x: vk.InOut[vk.f32, "N"]):
    x[0] = np.random.rand()


# numba 8665, 7041: strings as data
def string_as_data(x: vk.InOut[vk.f32, "N"]):
    x[0] = "sd"


# numba 241: text formatted with %
def percent_format(x: vk.InOut[vk.f32, "N"]):
    print("x is %f" % x[0])


# taichi 2396: text formatted with str.format
def format_method(x: vk.InOut[vk.f32, "N"]):
    print("x is {}".format(x[0]))


# numba's page on what CUDA Python supports: exceptions
def exceptions(x: vk.InOut[vk.f32, "N"]):
    try:
        x[0] = 1 / x[1]
    except ZeroDivisionError:
        x[0] = 0


# numba 2655: a barrier that some threads don't reach
def barrier_in_a_branch(x: vk.InOut[vk.f32, "N"]):
    t = vk.local_id(0)
    if t < 14:
        x[t] = 1
        vk.barrier()


# numba 1626: threads that return before a barrier
def return_before_a_barrier(x: vk.InOut[vk.f32, "N"]):
    i = vk.global_id(0)
    if i >= len(x):
        return
    x[i] = 1
    vk.barrier()


# numba 1626, taichi's differences from Python: a variable that one branch alone binds
def bound_in_one_branch(x: vk.InOut[vk.f32, "N"]):
    if x[0] > 0:
        value = x[0]
    x[1] = value


# taichi 2271, 4003: a list that grows
def growing_list(x: vk.InOut[vk.f32, "N"]):
    if x[0] > 0:
        FOUND.append(x[0])


# taichi 4003: a list made inside
def list_made_inside(x: vk.InOut[vk.f32, "N"]):
    coords = []
    coords.append(x[0])


# taichi 4678: a variable that becomes another type in a branch
def type_changes_in_a_branch(x: vk.InOut[vk.f32, "N"], n: vk.In[vk.i32, "N"]):
    v = n[0]
    if x[0] > 0:
        v = x[0]
    x[1] = v


# triton 2151: an accumulator that becomes another type in the loop
def accumulator_changes_type(x: vk.InOut[vk.f32, "N"]):
    total = vk.i32(0)
    for i in range(3):
        total = total + x[i]
    x[0] = total


# taichi 310, 8332: a kernel called from a kernel
def kernel_in_a_kernel(x: vk.InOut[vk.f32, "N"]):
    _other_kernel(x)


# triton 566, 1429: a plain function called from a kernel, on a whole array
def plain_function(x: vk.InOut[vk.f32, "N"]):
    x[0] = helper(x)


# taichi 346: recursion
@vk.func
def _factorial(n):
    if n <= 1:
        return n
    return n * _factorial(n - 1)


def recursion(x: vk.InOut[vk.i32, "N"]):
    x[0] = _factorial(x[0])


# taichi 3675: membership in an array
def membership(x: vk.InOut[vk.i32, "N"], allowed: vk.In[vk.i32, "M"]):
    if x[0] in allowed:
        x[0] = 0


# taichi 524, its struct-for: a loop over the indices of an array
def loop_over_an_array(x: vk.InOut[vk.f32, "N"]):
    for i in x:
        x[i] = 1


# taichi 7076, its struct-for in two dimensions
def loop_over_index_pairs(x: vk.InOut[vk.f32, "M N"]):
    for i, j in x:
        x[i, j] = 1


# taichi's ti.ndrange
def ndrange(x: vk.InOut[vk.f32, "M N"]):
    for i, j in vk.ndrange(4, 4):
        x[i, j] = 1


# taichi 574, its ti.static
def static_range(x: vk.InOut[vk.f32, "N"]):
    for i in vk.static(range(4)):
        x[i] = 1


# taichi 7076: state kept in an object
def attribute_of_an_object(x: vk.InOut[vk.f32, "N"]):
    x[0] = x[0] * SIMULATION.dt


# numba's thread indices under their own names
def thread_index(x: vk.InOut[vk.f32, "N"]):
    i = vk.blockIdx.x * vk.blockDim.x + vk.threadIdx.x
    x[i] = 1


# numba 9324, its cuda.grid
def grid(x: vk.InOut[vk.f32, "N"]):
    i = vk.grid(1)
    x[i] = 1


# numba 2655, its cuda.syncthreads
def syncthreads(x: vk.InOut[vk.f32, "N"]):
    vk.syncthreads()


# triton 2604, its program ids
def program_id(x: vk.InOut[vk.f32, "N"]):
    x[vk.program_id(0)] = 1


# triton 2604, 2735: a range of offsets
def arange(x: vk.InOut[vk.f32, "N"], n: vk.i32):
    offsets = vk.arange(0, n)


# triton 1292, its masked loads
def masked_load(x: vk.InOut[vk.f32, "N"]):
    i = vk.global_id(0)
    x[i] = vk.load(x + i, mask=i < len(x), other=0)


# triton 974, its pointers
def pointer_arithmetic(x: vk.InOut[vk.f32, "N"]):
    p = x + vk.global_id(0)


# triton 3789: a dictionary as a table of constants
def dictionary_of_constants(x: vk.InOut[vk.f32, "N"]):
    x[0] = SIZES["z"]


# triton 3757: an array of the module
def array_of_the_module(x: vk.InOut[vk.f32, "N"]):
    x[0] = COUNTER[0]


# triton 1292, 6841: and/or between blocks
def and_between_slices(x: vk.InOut[vk.f32, "M N"]):
    wg = vk.workgroup()
    row = x[0, :]
    wg.store(x[0, :], vk.where(row > 0 and row < 1, row, 0))


# triton 6769: a block as a condition
def slice_as_a_condition(x: vk.InOut[vk.f32, "M N"]):
    row = x[0, :]
    if row > 0:
        x[0, 0] = 1


# triton 974: a part of a block
def part_of_a_tile(x: vk.InOut[vk.f32, "M N"]):
    wg = vk.workgroup()
    acc = wg.zeros((16, 16), vk.f32)
    x[0, 0] = wg.sum(acc[0:4, :])


# a habit of Python: a quotient as an index
def quotient_as_an_index(x: vk.InOut[vk.f32, "N"]):
    x[len(x) / 2] = 1


# a habit of NumPy and Python: an index of one number for two dimensions
def chained_index(x: vk.InOut[vk.f32, "M N"]):
    x[0][1] = 1


# a habit of NumPy and Python: methods of NumPy's arrays
def array_method(x: vk.InOut[vk.f32, "N"]):
    x[0] = x.sum()


# a habit of NumPy and Python: a conversion with astype
def astype(x: vk.InOut[vk.f32, "N"], n: vk.In[vk.i32, "N"]):
    x[0] = n[0].astype(np.float32)


# a habit of NumPy and Python: `is` for equality
def compares_with_is(x: vk.InOut[vk.f32, "N"]):
    if x[0] is x[1]:
        return


# a habit of NumPy and Python: time taken inside the kernel
def clock(x: vk.InOut[vk.f32, "N"]):
    import time

    start = time.time()


# a habit of NumPy and Python: an argument declared as an array of NumPy
def annotated_with_ndarray(x: np.ndarray):
    x[0] = 1


# taichi 1612: an annotation that is no type
def annotated_with_a_value(x: 3):
    x[0] = 1


# a habit of NumPy and Python: increments in C's way
def float_in_an_integer_array(x: vk.InOut[vk.i32, "N"]):
    x[0] += 0.5


# a habit of NumPy and Python: exponent and modulus of three arguments
def modular_power(x: vk.InOut[vk.i32, "N"]):
    x[0] = pow(x[0], 2, 7)


# a habit of NumPy and Python: the maximum of an array
def maximum_of_an_array(x: vk.InOut[vk.f32, "N"]):
    x[0] = max(x)


# a habit of NumPy and Python: enumerate and zip over arrays
def enumerates(x: vk.InOut[vk.f32, "N"]):
    for i, v in enumerate(x):
        x[i] = v + 1


# a habit of NumPy and Python: an operator of matrices
def matrix_product(a: vk.In[vk.f32, "N N"], b: vk.In[vk.f32, "N N"], c: vk.Out[vk.f32, "N N"]):
    c[0, 0] = a @ b


# a habit of NumPy and Python: a transposed argument
def transposed(a: vk.InOut[vk.f32, "N N"]):
    a[0, 0] = a.T[0, 1]


# a habit of NumPy and Python: isinstance and dispatch by type inside a kernel
def asks_for_the_type(x: vk.InOut[vk.f32, "N"]):
    if isinstance(x[0], float):
        x[0] = 1


# a habit of NumPy and Python: complex numbers
def complex_numbers(x: vk.InOut[vk.f32, "N"]):
    z = complex(x[0], x[1])
