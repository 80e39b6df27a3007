"""The functions that elementwise kernels apply: device functions of one to three values, generic over their type.

Enters: values in the type that the kernel computes in. Leaves: one value. Names follow the tensor operations; `*_grad` gives
the gradient of an activation from the incoming gradient and the activation's input or result.
"""

from __future__ import annotations

import vkjit as vk

ROOT_HALF = 0.7071067811865476  # sqrt(1/2)
NORMAL = 0.3989422804014327  # 1 / sqrt(2 pi)
ROOT_TWO_OVER_PI = 0.7978845608028654
CUBIC = 0.044715


@vk.func
def identity(x):
    return x


@vk.func
def neg(x):
    return -x


@vk.func
def square(x):
    return x * x


@vk.func
def cube(x):
    return x * x * x


@vk.func
def reciprocal(x):
    return 1 / x


@vk.func
def logical_not(x):
    return x == 0


@vk.func
def bitwise_not(x):
    return ~x


@vk.func
def logit(x):
    return vk.log(x / (1 - x))


# -- arithmetic of two


@vk.func
def add(x, y):
    return x + y


@vk.func
def sub(x, y):
    return x - y


@vk.func
def mul(x, y):
    return x * y


@vk.func
def div(x, y):
    return x / y


@vk.func
def floordiv(x, y):
    return x // y


@vk.func
def remainder(x, y):
    return x % y


@vk.func
def truncdiv(x, y):
    return vk.truncdiv(x, y)


@vk.func
def fmod(x, y):
    return vk.truncrem(x, y)


@vk.func
def power(x, y):
    return vk.pow(x, y)


@vk.func
def xlogy(x, y):
    return vk.where(x == 0, 0, x * vk.log(y))


# -- comparison


@vk.func
def eq(x, y):
    return x == y


@vk.func
def ne(x, y):
    return x != y


@vk.func
def lt(x, y):
    return x < y


@vk.func
def le(x, y):
    return x <= y


@vk.func
def gt(x, y):
    return x > y


@vk.func
def ge(x, y):
    return x >= y


# -- bits


@vk.func
def bitwise_and(x, y):
    return x & y


@vk.func
def bitwise_or(x, y):
    return x | y


@vk.func
def bitwise_xor(x, y):
    return x ^ y


@vk.func
def lshift(x, y):
    return x << y


@vk.func
def rshift(x, y):
    return x >> y


# -- of three


@vk.func
def select(condition, x, y):
    return vk.where(condition, x, y)


@vk.func
def lerp(x, y, w):
    return x + w * (y - x)


@vk.func
def mul_add(x, y, z):
    return x + y * z


@vk.func
def mul_sub(x, y, z):
    return x - y * z


@vk.func
def clamp(x, low, high):
    return vk.min(vk.max(x, low), high)


@vk.func
def clamp_min(x, low):
    return vk.max(x, low)


@vk.func
def clamp_max(x, high):
    return vk.min(x, high)


# -- activations


@vk.func
def relu(x):
    return vk.where(x < 0, 0, x)


@vk.func
def gelu_erf(x):
    return x * 0.5 * (1 + vk.erf(x * ROOT_HALF))


@vk.func
def gelu_tanh(x):
    return 0.5 * x * (1 + vk.tanh(ROOT_TWO_OVER_PI * (x + CUBIC * x * x * x)))


@vk.func
def silu(x):
    return x * vk.sigmoid(x)


@vk.func
def softplus(x, beta, threshold):
    z = x * beta
    return vk.where(z > threshold, x, vk.log1p(vk.exp(vk.min(z, threshold))) / beta)


@vk.func
def elu(x, alpha):
    return vk.where(x > 0, x, alpha * vk.expm1(vk.min(x, 0)))


@vk.func
def leaky_relu(x, slope):
    return vk.where(x > 0, x, x * slope)


# -- gradients of activations: g is the incoming gradient


@vk.func
def relu_grad(g, y):
    return vk.where(y > 0, g, 0)


@vk.func
def leaky_relu_grad(g, x, slope):
    return vk.where(x > 0, g, g * slope)


@vk.func
def sigmoid_grad(g, y):
    return g * y * (1 - y)


@vk.func
def tanh_grad(g, y):
    return g * (1 - y * y)


@vk.func
def silu_grad(g, x):
    s = vk.sigmoid(x)
    return g * s * (1 + x * (1 - s))


@vk.func
def gelu_erf_grad(g, x):
    density = NORMAL * vk.exp(-0.5 * x * x)
    return g * (0.5 * (1 + vk.erf(x * ROOT_HALF)) + x * density)


@vk.func
def gelu_tanh_grad(g, x):
    t = vk.tanh(ROOT_TWO_OVER_PI * (x + CUBIC * x * x * x))
    slope = ROOT_TWO_OVER_PI * (1 + 3 * CUBIC * x * x)
    return g * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * slope)
