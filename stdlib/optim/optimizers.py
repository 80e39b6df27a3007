"""Optimizer steps: kernels that update parameters and state in place, for one tensor or several per launch.

`vkjit.optim` calls `step` and `step_tensors`. A step applies a rule of `rules` with its hyperparameters to every
element. Arithmetic is in f32 (f64 for f64); results are stored in each array's own type. A state is an array that the
optimizer keeps per parameter, such as the momentum; a rule has up to three kinds of state.

For a step of several tensors, the states of one kind lie in one array, and a table gives the offset of each tensor. On
CPUs each tensor has its own launch: a launch costs less there than looking up the tensor of every element.

Constants that the kernels share: RULE is a device function of `rules`, FLAGS its compile-time booleans, STATES the
number of states it uses, and NEGATE negates the gradient (gradient ascent). Unused states are placeholders that aren't
read. T, G and S are the types of parameters, gradients and states; A is the type in which rules compute.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

import vkjit as vk
from vkjit.runtime.device import DeviceArray

from ..partial_sums import accumulator_type, flattened, is_dense, scratch
from ..registry import device_class

__all__ = ["MAX_TENSORS", "TensorBatch", "placeholder_arrays", "step", "step_tensors"]

T = TypeVar("T", bound=vk.Element)
G = TypeVar("G", bound=vk.Element)
S = TypeVar("S", bound=vk.Element)
A = TypeVar("A", bound=vk.Element)

MAX_CPU_ELEMENTS = 1 << 16
"""Maximum total elements of tensors that software devices update in one launch."""
MAX_HYPERPARAMETERS = 8
"""Maximum number of hyperparameters of a rule."""
MAX_STATES = 3
"""Maximum number of states of a rule."""
MAX_TENSORS = 8
"""Maximum number of tensors per launch."""
LOCAL = 256
"""Invocations of a workgroup."""


# debug=False: no bounds checks, even in debug mode and on CPUs, since indices are in range or checked by the kernels
@vk.kernel(over="p", debug=False)
def step_one(
    p: vk.InOut[T, "*N"],
    g: vk.In[G, "*N"],
    a: vk.InOut[S, "*N"],
    b: vk.InOut[S, "*N"],
    c: vk.InOut[S, "*N"],
    n0: A,
    n1: A,
    n2: A,
    n3: A,
    n4: A,
    n5: A,
    n6: A,
    n7: A,
    RULE: vk.Const[Any],
    FLAGS: vk.Const[Any],
    STATES: vk.Const[int],
    NEGATE: vk.Const[bool],
):
    """Update the parameter p and the first STATES of its states a, b, c from the gradient g, in the type A.

    n0 to n7 are the rule's hyperparameters, padded with zeros.
    """
    i = vk.index()
    slope = A(g[i])
    if NEGATE:
        slope = -slope
    x, y, z = A(0), A(0), A(0)
    if STATES > 0:
        x = A(a[i])
    if STATES > 1:
        y = A(b[i])
    if STATES > 2:
        z = A(c[i])
    value, x, y, z = RULE(A(p[i]), slope, x, y, z, (n0, n1, n2, n3, n4, n5, n6, n7), FLAGS)
    if STATES > 0:
        a[i] = S(x)
    if STATES > 1:
        b[i] = S(y)
    if STATES > 2:
        c[i] = S(z)
    p[i] = T(value)


@vk.kernel(groups=lambda count: vk.cdiv(count, LOCAL), local=LOCAL, debug=False)
def step_many(
    p0: vk.InOut[T, "N0"],
    p1: vk.InOut[T, "N1"],
    p2: vk.InOut[T, "N2"],
    p3: vk.InOut[T, "N3"],
    p4: vk.InOut[T, "N4"],
    p5: vk.InOut[T, "N5"],
    p6: vk.InOut[T, "N6"],
    p7: vk.InOut[T, "N7"],
    g0: vk.In[G, "N0"],
    g1: vk.In[G, "N1"],
    g2: vk.In[G, "N2"],
    g3: vk.In[G, "N3"],
    g4: vk.In[G, "N4"],
    g5: vk.In[G, "N5"],
    g6: vk.In[G, "N6"],
    g7: vk.In[G, "N7"],
    a: vk.InOut[S, "MA"],
    b: vk.InOut[S, "MB"],
    c: vk.InOut[S, "MC"],
    table: vk.In[vk.i32, "2 8"],
    count: vk.i32,
    n0: A,
    n1: A,
    n2: A,
    n3: A,
    n4: A,
    n5: A,
    n6: A,
    n7: A,
    RULE: vk.Const[Any],
    FLAGS: vk.Const[Any],
    STATES: vk.Const[int],
    NEGATE: vk.Const[bool],
    TENSORS: vk.Const[int],
):
    """Update the first TENSORS of the parameters p0 to p7 from their gradients g0 to g7, as `step_one` does for one.

    The tensors have `count` elements in total; one invocation updates an element. The elements of tensor k are numbered
    from table[0, k] on, and its states start at offset table[1, k] of a, b and c.
    """
    i = vk.global_id(0)
    ps, gs = (p0, p1, p2, p3, p4, p5, p6, p7), (g0, g1, g2, g3, g4, g5, g6, g7)
    if i < count:
        tensor = 0  # the tensor of element i: the last one whose elements begin at or before i
        for k in vk.unroll(1, TENSORS):
            if i >= table[0, k]:
                tensor = k
        index = i - table[0, tensor]
        state_index = index + table[1, tensor]
        value, slope = A(0), A(0)
        for k in vk.unroll(TENSORS):
            if tensor == k:
                value, slope = A(ps[k][index]), A(gs[k][index])
        if NEGATE:
            slope = -slope
        x, y, z = A(0), A(0), A(0)
        if STATES > 0:
            x = A(a[state_index])
        if STATES > 1:
            y = A(b[state_index])
        if STATES > 2:
            z = A(c[state_index])
        value, x, y, z = RULE(value, slope, x, y, z, (n0, n1, n2, n3, n4, n5, n6, n7), FLAGS)
        if STATES > 0:
            a[state_index] = S(x)
        if STATES > 1:
            b[state_index] = S(y)
        if STATES > 2:
            c[state_index] = S(z)
        for k in vk.unroll(TENSORS):
            if tensor == k:
                p = ps[k]
                p[index] = T(value)


# -- launching


def _hyperparameters(p: DeviceArray, values: Sequence[float]) -> list[Any]:
    """Convert hyperparameters to scalars of the accumulator type of `p`, padded with zeros to MAX_HYPERPARAMETERS.

    The scalars' NumPy types determine the kernel's type variable A.
    """
    if accumulator_type(p.dtype) is vk.f32:
        return [*map(np.float32, values), *_ZEROS[len(values) :]]
    return [np.asarray(v, np.float64) for v in (*values, *_ZEROS[len(values) :])]


_ZEROS = (np.float32(0),) * MAX_HYPERPARAMETERS


def step(
    rule: Any,
    p: DeviceArray,
    g: DeviceArray,
    states: Sequence[DeviceArray],
    hyperparameters: Sequence[float],
    flags: tuple[bool, ...] = (),
    *,
    negate: bool = False,
) -> None:
    """Update the parameter p and its states from the gradient g, in one launch.

    All arrays have the same shape, with any strides. `rule` is a function of `rules`; its docstring describes its
    `hyperparameters` and `flags`. `negate` ascends the gradient.
    """
    if 0 in p.shape:
        return
    arrays = [p, g, *states]
    if all(is_dense(x) for x in arrays):
        arrays = [flattened(x) for x in arrays]
    # placeholders: the first state or, without states, the parameter
    unused = [arrays[2] if states else arrays[0]] * (MAX_STATES - len(states))
    step_one(*arrays, *unused, *_hyperparameters(p, hyperparameters), rule, flags, len(states), negate)


@dataclass(frozen=True, slots=True)
class TensorBatch:
    """The parameters that one launch updates: up to MAX_TENSORS dense tensors of one type, each flattened to one axis.

    `states` has one array per kind of state, with the states of all parameters. `table` is an i32 array of shape (2,
    MAX_TENSORS): row 0 has the number of elements of all previous parameters, row 1 the offset of a parameter's states
    in the arrays of `states`. `count` is the total number of elements.
    """

    parameters: tuple[DeviceArray, ...]
    states: tuple[DeviceArray, ...]
    table: DeviceArray
    count: int
    placeholders: tuple[tuple[DeviceArray, ...], ...]
    """Arrays for the unused arguments of the kernel, made by `placeholder_arrays`."""


def prefers_multi_tensor(device: Any, elements: int) -> bool:
    """True if the device updates tensors of so many elements in total faster in one launch than in one launch each."""
    return device_class(device) == "gpu" or elements <= MAX_CPU_ELEMENTS


def step_tensors(
    rule: Any,
    tensors: TensorBatch,
    gradients: Sequence[DeviceArray],
    hyperparameters: Sequence[float],
    flags: tuple[bool, ...] = (),
    *,
    negate: bool = False,
) -> None:
    """Update several tensors in one launch, as `step` does for one.

    `gradients` has one array per parameter of the batch: dense, of one type, flattened to one axis.
    """
    if tensors.count == 0:
        return
    parameters, states, unused = tensors.parameters, tensors.states, tensors.placeholders
    step_many(
        *parameters, *unused[0], *gradients, *unused[1], *states, *unused[2], tensors.table, tensors.count,
        *_hyperparameters(parameters[0], hyperparameters), rule, flags, len(states), negate, len(parameters),
    )  # fmt: skip


def placeholder_arrays(
    parameters: Sequence[DeviceArray], gradient: vk.DType, states: Sequence[DeviceArray]
) -> tuple[tuple[DeviceArray, ...], ...]:
    """Return one-element arrays for the parameters, gradients and states that a launch doesn't use, as three tuples.

    `gradient` is the type of the gradients. Each array has its own memory, so that a launch needn't check whether its
    outputs overlap.
    """
    device, parameter_type = parameters[0].device, parameters[0].dtype
    unused = MAX_TENSORS - len(parameters)
    specs = (
        (parameter_type, unused),
        (gradient, unused),
        (states[0].dtype if states else parameter_type, MAX_STATES - len(states)),
    )
    return tuple(tuple(scratch((1,), dtype, device) for _ in range(count)) for dtype, count in specs)
