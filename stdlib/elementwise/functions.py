"""Device functions that the kernels of `maps` and `vec4` apply to each element, of one to three operands.

They work for any compute type. Each has the name of its tensor operation. The `*_grad` functions compute the gradient
of an activation's input from the incoming gradient g and either the activation's input x or its result y.
"""

from __future__ import annotations

import vkjit as vk

SQRT_HALF = 0.7071067811865476  # sqrt(1/2)
INV_SQRT_TWO_PI = 0.3989422804014327  # 1 / sqrt(2 pi)
SQRT_TWO_OVER_PI = 0.7978845608028654  # sqrt(2 / pi)
GELU_CUBIC = 0.044715  # the coefficient of x**3 in the tanh approximation of GELU


@vk.func
def identity(x):
    """x itself."""
    return x


@vk.func
def neg(x):
    """-x."""
    return -x


@vk.func
def square(x):
    """x * x."""
    return x * x


@vk.func
def cube(x):
    """x * x * x."""
    return x * x * x


@vk.func
def reciprocal(x):
    """1 / x."""
    return 1 / x


@vk.func
def logical_not(x):
    """x == 0."""
    return x == 0


@vk.func
def bitwise_not(x):
    """~x."""
    return ~x


@vk.func
def logit(x):
    """log(x / (1 - x))."""
    return vk.log(x / (1 - x))


# -- binary arithmetic


@vk.func
def add(x, y):
    """x + y."""
    return x + y


@vk.func
def sub(x, y):
    """x - y."""
    return x - y


@vk.func
def mul(x, y):
    """x * y."""
    return x * y


@vk.func
def div(x, y):
    """x / y."""
    return x / y


@vk.func
def floordiv(x, y):
    """x // y."""
    return x // y


@vk.func
def remainder(x, y):
    """x % y."""
    return x % y


@vk.func
def truncdiv(x, y):
    """x / y rounded toward zero."""
    return vk.truncdiv(x, y)


@vk.func
def sign_of(x):
    """The sign of x: -1, 0 or 1; 0 for NaN."""
    return vk.where(x != x, 0, vk.sign(x))


@vk.func
def fmod(x, y):
    """The remainder of x / y with the sign of x."""
    return vk.truncrem(x, y)


@vk.func
def power(x, y):
    """x ** y."""
    return vk.pow(x, y)


@vk.func
def xlogy(x, y):
    """x * log(y); 0 where x is 0, unless y is NaN."""
    return vk.where((x == 0) & (y == y), 0, x * vk.log(y))


# -- comparison


@vk.func
def eq(x, y):
    """x == y."""
    return x == y


@vk.func
def ne(x, y):
    """x != y."""
    return x != y


@vk.func
def lt(x, y):
    """x < y."""
    return x < y


@vk.func
def le(x, y):
    """x <= y."""
    return x <= y


@vk.func
def gt(x, y):
    """x > y."""
    return x > y


@vk.func
def ge(x, y):
    """x >= y."""
    return x >= y


# -- bits; unlike SPIR-V's shifts, these have a defined result for every count y


@vk.func
def bitwise_and(x, y):
    """x & y."""
    return x & y


@vk.func
def bitwise_or(x, y):
    """x | y."""
    return x | y


@vk.func
def bitwise_xor(x, y):
    """x ^ y."""
    return x ^ y


@vk.func
def lshift8(x, y):
    """x << y for 8-bit integers; 0 unless 0 <= y < 8."""
    return vk.where((y >= 0) & (y < 8), x << y, 0)


@vk.func
def rshift8(x, y):
    """x >> y for 8-bit integers; x >> 7 unless 0 <= y < 8."""
    return x >> vk.where((y >= 0) & (y < 8), y, 7)


@vk.func
def lshift16(x, y):
    """x << y for 16-bit integers; 0 unless 0 <= y < 16."""
    return vk.where((y >= 0) & (y < 16), x << y, 0)


@vk.func
def rshift16(x, y):
    """x >> y for 16-bit integers; x >> 15 unless 0 <= y < 16."""
    return x >> vk.where((y >= 0) & (y < 16), y, 15)


@vk.func
def lshift32(x, y):
    """x << y for 32-bit integers; 0 unless 0 <= y < 32."""
    return vk.where((y >= 0) & (y < 32), x << y, 0)


@vk.func
def rshift32(x, y):
    """x >> y for 32-bit integers; x >> 31 unless 0 <= y < 32."""
    return x >> vk.where((y >= 0) & (y < 32), y, 31)


@vk.func
def lshift64(x, y):
    """x << y for 64-bit integers; 0 unless 0 <= y < 64."""
    return vk.where((y >= 0) & (y < 64), x << y, 0)


@vk.func
def rshift64(x, y):
    """x >> y for 64-bit integers; x >> 63 unless 0 <= y < 64."""
    return x >> vk.where((y >= 0) & (y < 64), y, 63)


# -- ternary


@vk.func
def select(condition, x, y):
    """x where the condition is true, else y."""
    return vk.where(condition, x, y)


@vk.func
def lerp(x, y, w):
    """x + w * (y - x). For |w| >= 0.5 it is computed as y - (1 - w) * (y - x), which is exactly y for w = 1."""
    return vk.where(vk.abs(w) < 0.5, x + w * (y - x), y - (1 - w) * (y - x))


@vk.func
def mul_add(x, y, z):
    """x + y * z."""
    return x + y * z


@vk.func
def mul_sub(x, y, z):
    """x - y * z."""
    return x - y * z


@vk.func
def clamp(x, low, high):
    """x clamped to [low, high]; NaN propagates."""
    return vk.min(vk.max(x, low), high)


@vk.func
def clamp_min(x, low):
    """max(x, low)."""
    return vk.max(x, low)


@vk.func
def clamp_max(x, high):
    """min(x, high)."""
    return vk.min(x, high)


# -- activations


@vk.func
def relu(x):
    """max(x, 0); NaN propagates."""
    return vk.where(x < 0, 0, x)


@vk.func
def gelu_erf(x):
    """GELU: x times the cumulative distribution function of the standard normal distribution at x."""
    return x * 0.5 * (1 + vk.erf(x * SQRT_HALF))


@vk.func
def gelu_tanh(x):
    """The tanh approximation of GELU."""
    return 0.5 * x * (1 + vk.tanh(SQRT_TWO_OVER_PI * (x + GELU_CUBIC * x * x * x)))


@vk.func
def silu(x):
    """x * sigmoid(x)."""
    return x * vk.sigmoid(x)


@vk.func
def softplus(x, beta, threshold):
    """log(1 + exp(beta x)) / beta; x itself where beta x > threshold."""
    # `min` keeps exp from overflowing where its result isn't selected
    z = x * beta
    return vk.where(z > threshold, x, vk.log1p(vk.exp(vk.min(z, threshold))) / beta)


@vk.func
def mish(x):
    """x * tanh(softplus(x))."""
    return x * vk.tanh(softplus(x, 1, 20))


@vk.func
def elu(x, alpha):
    """x where it is positive, else alpha (exp(x) - 1)."""
    # `min` keeps expm1 from overflowing where its result isn't selected
    return vk.where(x > 0, x, alpha * vk.expm1(vk.min(x, 0)))


@vk.func
def leaky_relu(x, slope):
    """x where it is positive, else slope x."""
    return vk.where(x > 0, x, x * slope)


# -- gradients of activations: g is the incoming gradient


@vk.func
def relu_grad(g, y):
    """The gradient of `relu`, from its result y; g where y is NaN."""
    return vk.where(y <= 0, 0, g)


@vk.func
def leaky_relu_grad(g, x, slope):
    """The gradient of `leaky_relu`, from its input x."""
    return vk.where(x > 0, g, g * slope)


@vk.func
def sigmoid_grad(g, y):
    """The gradient of sigmoid, from its result y."""
    return g * y * (1 - y)


@vk.func
def tanh_grad(g, y):
    """The gradient of tanh, from its result y."""
    return g * (1 - y * y)


@vk.func
def silu_grad(g, x):
    """The gradient of `silu`, from its input x."""
    s = vk.sigmoid(x)
    return g * s * (1 + x * (1 - s))


@vk.func
def gelu_erf_grad(g, x):
    """The gradient of `gelu_erf`, from its input x."""
    density = INV_SQRT_TWO_PI * vk.exp(-0.5 * x * x)
    return g * (0.5 * (1 + vk.erf(x * SQRT_HALF)) + x * density)


@vk.func
def gelu_tanh_grad(g, x):
    """The gradient of `gelu_tanh`, from its input x."""
    t = vk.tanh(SQRT_TWO_OVER_PI * (x + GELU_CUBIC * x * x * x))
    slope = SQRT_TWO_OVER_PI * (1 + 3 * GELU_CUBIC * x * x)
    return g * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * slope)
