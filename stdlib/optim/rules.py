"""Per-element update rules of the optimizers, called by the kernels of `optimizers`.

A rule takes one element of the parameter (`value`) and of its gradient (`slope`), three state values, the
hyperparameters as a tuple `n`, and FLAGS, a tuple of compile-time booleans. It returns the new value and the three new
states; a rule with fewer states passes the others (`b`, `c`) through. The formulas are PyTorch's.

Each docstring lists the entries of `n` and FLAGS in order; "rate" is the learning rate, "decay" the weight decay, and t
the number of the step, from 1. A flag's name says what is used if it is true.
"""

from __future__ import annotations

from typing import Any

import vkjit as vk

__all__ = [
    "adadelta", "adagrad", "adam", "adamax", "lamb", "lion", "nadam", "radam", "rmsprop", "sgd",
]  # fmt: skip


@vk.func
def sgd(value, slope, velocity, b, c, n, FLAGS: vk.Const[Any]):
    """SGD rule. n: rate, momentum, 1 - dampening, decay. FLAGS: momentum, first step, Nesterov."""
    step = slope + n[3] * value
    if FLAGS[0]:
        speed = step
        if not FLAGS[1]:
            speed = n[1] * velocity + n[2] * step
        velocity = speed
        if FLAGS[2]:
            step = step + n[1] * speed
        else:
            step = speed
    return value - n[0] * step, velocity, b, c


@vk.func
def apply_weight_decay(value, slope, decay_factor, decay, DECOUPLED: vk.Const[Any]):
    """Apply weight decay to the value itself if DECOUPLED, else to the gradient; return (value, slope).

    `decay` is the weight decay, and `decay_factor` is 1 - rate * decay.
    """
    if DECOUPLED:
        value = value * decay_factor
    else:
        slope = slope + decay * value
    return value, slope


@vk.func
def moments(slope, mean, square, one_minus_beta1, beta2, one_minus_beta2):
    """Return (mean, square), the running means of the gradient `slope` and of its square, after this step."""
    return mean + one_minus_beta1 * (slope - mean), beta2 * square + one_minus_beta2 * slope * slope


@vk.func
def adam(value, slope, mean, square, largest, n, FLAGS: vk.Const[Any]):
    """Adam rule.

    n: rate / (1 - beta1^t), 1 - beta1, beta2, 1 - beta2, epsilon, decay, 1 - rate * decay, sqrt(1 - beta2^t).

    FLAGS: decoupled decay, AMSGrad.
    """
    value, slope = apply_weight_decay(value, slope, n[6], n[5], FLAGS[0])
    mean, square = moments(slope, mean, square, n[1], n[2], n[3])
    v = square
    if FLAGS[1]:
        v = vk.max(largest, square)
        largest = v
    return value - n[0] * (mean / (vk.sqrt(v) / n[7] + n[4])), mean, square, largest


@vk.func
def adamax(value, slope, mean, largest, c, n, FLAGS: vk.Const[Any]):  # noqa: ARG001  # every rule takes it
    """Adamax rule. n: rate / (1 - beta1^t), 1 - beta1, beta2, epsilon, decay. FLAGS: none."""
    slope = slope + n[4] * value
    mean = mean + n[1] * (slope - mean)
    largest = vk.max(n[2] * largest, vk.abs(slope) + n[3])
    return value - n[0] * (mean / largest), mean, largest, c


@vk.func
def nadam(value, slope, mean, square, c, n, FLAGS: vk.Const[Any]):
    """NAdam rule.

    n: rate of the gradient term, 1 - beta1, beta2, 1 - beta2, epsilon, decay (decoupled: 1 - rate * decay), rate of the
    momentum term, sqrt(1 - beta2^t). FLAGS: decoupled decay.
    """
    # n[5] is the decay or, if decoupled, the decay factor; `apply_weight_decay` reads only that one of its arguments
    value, slope = apply_weight_decay(value, slope, n[5], n[5], FLAGS[0])
    mean, square = moments(slope, mean, square, n[1], n[2], n[3])
    root = vk.sqrt(square) / n[7] + n[4]
    return value - n[0] * (slope / root) - n[6] * (mean / root), mean, square, c


@vk.func
def radam(value, slope, mean, square, c, n, FLAGS: vk.Const[Any]):
    """RAdam rule.

    n: rate / (1 - beta1^t), 1 - beta1, beta2, 1 - beta2, epsilon, decay (decoupled: 1 - rate * decay), rectification
    factor, sqrt(1 - beta2^t). FLAGS: decoupled decay, rectified.
    """
    # n[5] is the decay or, if decoupled, the decay factor; `apply_weight_decay` reads only that one of its arguments
    value, slope = apply_weight_decay(value, slope, n[5], n[5], FLAGS[0])
    mean, square = moments(slope, mean, square, n[1], n[2], n[3])
    step = mean
    if FLAGS[1]:
        step = mean * (n[6] * (n[7] / (vk.sqrt(square) + n[4])))
    return value - n[0] * step, mean, square, c


@vk.func
def lamb(value, slope, mean, square, update, n, FLAGS: vk.Const[Any]):  # noqa: ARG001  # every rule takes it
    """LAMB rule. n: 1 / (1 - beta1^t), 1 - beta1, beta2, 1 - beta2, epsilon, decay, sqrt(1 - beta2^t). FLAGS: none.

    Leaves the value unchanged and stores the update in the third state. The optimizer then scales it by the trust
    ratio, which depends on the whole tensor.
    """
    mean, square = moments(slope, mean, square, n[1], n[2], n[3])
    update = n[0] * mean / (vk.sqrt(square) / n[6] + n[4]) + n[5] * value
    return value, mean, square, update


@vk.func
def rmsprop(value, slope, square, velocity, mean, n, FLAGS: vk.Const[Any]):
    """RMSprop rule. n: rate, alpha, 1 - alpha, epsilon, decay, momentum. FLAGS: momentum, centered."""
    slope = slope + n[4] * value
    square = n[1] * square + n[2] * slope * slope
    v = square
    if FLAGS[1]:
        mean = mean + n[2] * (slope - mean)
        v = square - mean * mean
    step = slope / (vk.sqrt(v) + n[3])
    if FLAGS[0]:
        velocity = n[5] * velocity + step
        step = velocity
    return value - n[0] * step, square, velocity, mean


@vk.func
def adagrad(value, slope, total, b, c, n, FLAGS: vk.Const[Any]):  # noqa: ARG001  # every rule takes it
    """Adagrad rule. n: rate with learning-rate decay applied, epsilon, decay. FLAGS: none."""
    slope = slope + n[2] * value
    total = total + slope * slope
    return value - n[0] * slope / (vk.sqrt(total) + n[1]), total, b, c


@vk.func
def adadelta(value, slope, squared_gradients, squared_updates, c, n, FLAGS: vk.Const[Any]):  # noqa: ARG001  # every rule takes it
    """Adadelta rule. n: rate, rho, 1 - rho, epsilon, decay. FLAGS: none."""
    slope = slope + n[4] * value
    squared_gradients = n[1] * squared_gradients + n[2] * slope * slope
    step = vk.sqrt(squared_updates + n[3]) / vk.sqrt(squared_gradients + n[3]) * slope
    squared_updates = n[1] * squared_updates + n[2] * step * step
    return value - n[0] * step, squared_gradients, squared_updates, c


@vk.func
def lion(value, slope, mean, b, c, n, FLAGS: vk.Const[Any]):  # noqa: ARG001  # every rule takes it
    """Lion rule. n: rate, beta1, 1 - beta1, beta2, 1 - beta2, 1 - rate * decay. FLAGS: none."""
    step = vk.sign(n[1] * mean + n[2] * slope)
    return value * n[5] - n[0] * step, n[3] * mean + n[4] * slope, b, c
