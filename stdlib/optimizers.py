"""Steps of optimisers: one kernel per tensor that updates parameters and state in place.

Enters: arrays of one shape (parameters, gradients, state) and the hyperparameters as scalars. Leaves: nothing; parameters and
state are changed. Arithmetic is done in f32 (f64 for f64) and stored in each array's own type. Formulas are PyTorch's.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

import numpy as np

import vkjit as vk
from vkjit.runtime.interface import DeviceArray

from .partial import accumulator, dense, flat

__all__ = ["adagrad", "adam", "lion", "rmsprop", "sgd"]

T = TypeVar("T", bound=vk.Element)
G = TypeVar("G", bound=vk.Element)
S = TypeVar("S", bound=vk.Element)
A = TypeVar("A", bound=vk.Element)


@vk.kernel(over="p", debug=False)
def sgd_step(
    p: vk.InOut[T, "*N"],
    g: vk.In[G, "*N"],
    velocity: vk.InOut[S, "*N"],
    rate: A,
    momentum: A,
    undamped: A,
    decay: A,
    MOMENTUM: vk.Const[bool],
    FIRST: vk.Const[bool],
    NESTEROV: vk.Const[bool],
):
    i = vk.index()
    value = A(p[i])
    step = A(g[i]) + decay * value
    if MOMENTUM:
        speed = step
        if not FIRST:
            speed = momentum * A(velocity[i]) + undamped * step
        velocity[i] = S(speed)
        if NESTEROV:
            step = step + momentum * speed
        else:
            step = speed
    p[i] = T(value - rate * step)


@vk.kernel(over="p", debug=False)
def adam_step(
    p: vk.InOut[T, "*N"],
    g: vk.In[G, "*N"],
    mean: vk.InOut[S, "*N"],
    square: vk.InOut[S, "*N"],
    largest: vk.InOut[S, "*N"],
    rate: A,
    fresh1: A,
    beta2: A,
    fresh2: A,
    epsilon: A,
    decay: A,
    kept: A,
    root_correction: A,
    DECOUPLED: vk.Const[bool],
    LARGEST: vk.Const[bool],
):
    i = vk.index()
    value, slope = A(p[i]), A(g[i])
    if DECOUPLED:
        value = value * kept
    else:
        slope = slope + decay * value
    m = A(mean[i]) + fresh1 * (slope - A(mean[i]))
    v = beta2 * A(square[i]) + fresh2 * slope * slope
    mean[i], square[i] = S(m), S(v)
    if LARGEST:
        v = vk.max(A(largest[i]), v)
        largest[i] = S(v)
    p[i] = T(value - rate * (m / (vk.sqrt(v) / root_correction + epsilon)))


@vk.kernel(over="p", debug=False)
def rmsprop_step(
    p: vk.InOut[T, "*N"],
    g: vk.In[G, "*N"],
    square: vk.InOut[S, "*N"],
    velocity: vk.InOut[S, "*N"],
    mean: vk.InOut[S, "*N"],
    rate: A,
    alpha: A,
    fresh: A,
    epsilon: A,
    decay: A,
    momentum: A,
    MOMENTUM: vk.Const[bool],
    CENTERED: vk.Const[bool],
):
    i = vk.index()
    value = A(p[i])
    slope = A(g[i]) + decay * value
    v = alpha * A(square[i]) + fresh * slope * slope
    square[i] = S(v)
    if CENTERED:
        m = A(mean[i]) + fresh * (slope - A(mean[i]))
        mean[i] = S(m)
        v = v - m * m
    step = slope / (vk.sqrt(v) + epsilon)
    if MOMENTUM:
        step = momentum * A(velocity[i]) + step
        velocity[i] = S(step)
    p[i] = T(value - rate * step)


@vk.kernel(over="p", debug=False)
def adagrad_step(
    p: vk.InOut[T, "*N"],
    g: vk.In[G, "*N"],
    total: vk.InOut[S, "*N"],
    rate: A,
    epsilon: A,
    decay: A,
):
    i = vk.index()
    value = A(p[i])
    slope = A(g[i]) + decay * value
    v = A(total[i]) + slope * slope
    total[i] = S(v)
    p[i] = T(value - rate * slope / (vk.sqrt(v) + epsilon))


@vk.kernel(over="p", debug=False)
def lion_step(
    p: vk.InOut[T, "*N"],
    g: vk.In[G, "*N"],
    mean: vk.InOut[S, "*N"],
    rate: A,
    beta1: A,
    fresh1: A,
    beta2: A,
    fresh2: A,
    kept: A,
):
    i = vk.index()
    slope, m = A(g[i]), A(mean[i])
    value = A(p[i]) * kept
    p[i] = T(value - rate * vk.sign(beta1 * m + fresh1 * slope))
    mean[i] = S(beta2 * m + fresh2 * slope)


# -- launching


def _ready(*arrays: DeviceArray) -> list[DeviceArray]:
    """The arrays as one axis each where all are dense, else as they are."""
    return [flat(a) for a in arrays] if all(dense(a) for a in arrays) else list(arrays)


def _numbers(p: DeviceArray, *values: float) -> list[np.ndarray[Any, Any]]:
    """Hyperparameters as scalars of the type that steps of p are computed in."""
    return [np.asarray(v, accumulator(p.dtype).numpy) for v in values]


def sgd(
    p: DeviceArray,
    g: DeviceArray,
    velocity: DeviceArray | None = None,
    *,
    rate: float,
    momentum: float = 0.0,
    dampening: float = 0.0,
    decay: float = 0.0,
    nesterov: bool = False,
    first: bool = False,
) -> None:
    """Gradient descent; with `velocity` with momentum, whose `first` step takes the gradient itself as the velocity."""
    if 0 in p.shape:
        return
    p, g, state = _ready(p, g, p if velocity is None else velocity)
    flags = (velocity is not None, first, nesterov)
    sgd_step(p, g, state, *_numbers(p, rate, momentum, 1 - dampening, decay), *flags)


def adam(
    p: DeviceArray,
    g: DeviceArray,
    mean: DeviceArray,
    square: DeviceArray,
    largest: DeviceArray | None = None,
    *,
    step: int,
    rate: float,
    betas: tuple[float, float] = (0.9, 0.999),
    epsilon: float = 1e-8,
    decay: float = 0.0,
    decoupled: bool = False,
) -> None:
    """Adam at `step` (1, 2, ...); `decoupled`: AdamW; with `largest`: AMSGrad."""
    if 0 in p.shape:
        return
    p, g, mean, square, top = _ready(p, g, mean, square, mean if largest is None else largest)
    numbers = _numbers(
        p, rate / (1 - betas[0] ** step), 1 - betas[0], betas[1], 1 - betas[1], epsilon, decay, 1 - rate * decay,
        math.sqrt(1 - betas[1] ** step),
    )  # fmt: skip
    adam_step(p, g, mean, square, top, *numbers, decoupled, largest is not None)


def rmsprop(
    p: DeviceArray,
    g: DeviceArray,
    square: DeviceArray,
    velocity: DeviceArray | None = None,
    mean: DeviceArray | None = None,
    *,
    rate: float,
    alpha: float = 0.99,
    epsilon: float = 1e-8,
    decay: float = 0.0,
    momentum: float = 0.0,
) -> None:
    """RMSprop; with `velocity` with momentum, with `mean` centred."""
    if 0 in p.shape:
        return
    p, g, square, speed, center = _ready(
        p, g, square, square if velocity is None else velocity, square if mean is None else mean
    )
    numbers = _numbers(p, rate, alpha, 1 - alpha, epsilon, decay, momentum)
    rmsprop_step(p, g, square, speed, center, *numbers, velocity is not None, mean is not None)


def adagrad(
    p: DeviceArray, g: DeviceArray, total: DeviceArray, *, rate: float, epsilon: float = 1e-10, decay: float = 0.0
) -> None:
    """Adagrad; `rate` has the decay of the rate over the steps in it already."""
    if 0 not in p.shape:
        adagrad_step(*_ready(p, g, total), *_numbers(p, rate, epsilon, decay))


def lion(
    p: DeviceArray,
    g: DeviceArray,
    mean: DeviceArray,
    *,
    rate: float,
    betas: tuple[float, float] = (0.9, 0.99),
    decay: float = 0.0,
) -> None:
    """Lion."""
    if 0 not in p.shape:
        numbers = _numbers(p, rate, betas[0], 1 - betas[0], betas[1], 1 - betas[1], 1 - rate * decay)
        lion_step(*_ready(p, g, mean), *numbers)
