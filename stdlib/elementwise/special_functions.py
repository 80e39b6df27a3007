"""Device functions for elementwise kernels, beside those of `functions`: special functions, logaddexp, greatest common
divisor.

Arguments and results have the type that the kernel computes in.
"""

from __future__ import annotations

import math

import vkjit as vk

INFINITY = math.inf
HALF_ROOT_PI = 0.886226925452758  # sqrt(pi) / 2
ROOT_HALF = 0.7071067811865476
LOG_TWO = 0.6931471805599453
PI = 3.141592653589793


@vk.func
def erfinv(x):
    """Inverse of erf: M. Giles' two polynomials in w = -log(1 - x * x), then two Newton steps on erf or erfc."""
    size = vk.abs(x)
    inside = size < 1
    z = vk.where(inside, size, 0)
    w = -vk.log1p(-z * z)
    a = w - 2.5
    near = 3.43273939e-07 + 2.81022636e-08 * a
    near = -3.5233877e-06 + near * a
    near = -4.39150654e-06 + near * a
    near = 0.00021858087 + near * a
    near = -0.00125372503 + near * a
    near = -0.00417768164 + near * a
    near = 0.246640727 + near * a
    near = 1.50140941 + near * a
    b = vk.sqrt(vk.max(w, 5)) - 3
    far = 0.000100950558 - 0.000200214257 * b
    far = 0.00134934322 + far * b
    far = -0.00367342844 + far * b
    far = 0.00573950773 + far * b
    far = -0.0076224613 + far * b
    far = 0.00943887047 + far * b
    far = 1.00167406 + far * b
    far = 2.83297682 + far * b
    y = vk.where(w < 5, near, far) * z
    for _ in vk.unroll(2):
        off = vk.where(z < 0.5, vk.erf(y) - z, (1 - z) - vk.erfc(y))
        y = y - off * HALF_ROOT_PI * vk.exp(y * y)
    ends = vk.where(size == 1, INFINITY, vk.sqrt(-1 - vk.abs(x)))
    return vk.copysign(vk.where(inside, y, ends), x)


@vk.func
def sinc(x):
    """sin(pi x) / (pi x); 1 at 0."""
    z = x * PI
    return vk.where(x == 0, 1, vk.sin(z) / vk.where(x == 0, 1, z))


@vk.func
def entr(x):
    """-x log(x); 0 at 0, -inf below 0."""
    return vk.where(x > 0, -x * vk.log(vk.where(x > 0, x, 1)), vk.where(x == 0, 0, vk.where(x < 0, -INFINITY, x)))


@vk.func
def ndtr(x):
    """Cumulative distribution function of the standard normal distribution."""
    z = x * ROOT_HALF
    return vk.where(z < -1, 0.5 * vk.erfc(-z), vk.where(z > 1, 1 - 0.5 * vk.erfc(z), 0.5 + 0.5 * vk.erf(z)))


@vk.func
def xlog1py(x, y):
    """x * log(1 + y); 0 where x is 0, unless y is NaN."""
    return vk.where((x == 0) & (y == y), 0, x * vk.log1p(y))


@vk.func
def logaddexp(x, y):
    """log(exp(x) + exp(y)) without overflow."""
    top, low = vk.max(x, y), vk.min(x, y)
    same = (top == low) & ((top == INFINITY) | (top == -INFINITY))
    return vk.where(same, top, top + vk.log1p(vk.exp(low - top)))


@vk.func
def logaddexp2(x, y):
    """log2(2 ** x + 2 ** y) without overflow."""
    top, low = vk.max(x, y), vk.min(x, y)
    same = (top == low) & ((top == INFINITY) | (top == -INFINITY))
    return vk.where(same, top, top + vk.log1p(vk.exp2(low - top)) / LOG_TWO)


@vk.func
def gcd(x, y):
    """Greatest common divisor by Euclid's algorithm; at least 0."""
    a, b = vk.abs(x), vk.abs(y)
    while b != 0:
        rest = a % b
        a = b
        b = rest
    return vk.abs(a)


@vk.func
def heaviside(x, y):
    """0 below 0 and for NaN, y at 0, 1 above."""
    return vk.where(x == 0, y, vk.where(x > 0, 1, 0))


@vk.func
def sign_bit(x):
    """True if the sign bit of a float is set, including that of -0."""
    return vk.copysign(1.0, x) < 0


@vk.func
def is_inf_above(x):
    """x == inf."""
    return x == INFINITY


@vk.func
def is_inf_below(x):
    """x == -inf."""
    return x == -INFINITY


@vk.func
def nextafter_f32(x, y):
    """Return the next f32 after x towards y."""
    bits = vk.bitcast(vk.i32, x)
    up = vk.where(x < y, x > 0, x < 0)
    moved = vk.bitcast(vk.f32, bits + vk.where(up, 1, -1))
    tiny = vk.copysign(vk.bitcast(vk.f32, vk.i32(1)), y)
    return vk.where((x != x) | (y != y), x + y, vk.where(x == y, y, vk.where(x == 0, tiny, moved)))


@vk.func
def nextafter_f64(x, y):
    """Return the next f64 after x towards y."""
    bits = vk.bitcast(vk.i64, x)
    up = vk.where(x < y, x > 0, x < 0)
    moved = vk.bitcast(vk.f64, bits + vk.where(up, vk.i64(1), vk.i64(-1)))
    tiny = vk.copysign(vk.bitcast(vk.f64, vk.i64(1)), y)
    return vk.where((x != x) | (y != y), x + y, vk.where(x == y, y, vk.where(x == 0, tiny, moved)))
