"""More device functions for elementwise kernels: special functions, logaddexp, gcd, ldexp, nextafter.

The kernels of `maps` and `vec4` apply them to each element. Arguments and results have the kernel's compute type.
"""

from __future__ import annotations

import math

import vkjit as vk

INFINITY = math.inf
HALF_ROOT_PI = 0.886226925452758  # sqrt(pi) / 2
ROOT_HALF = 0.7071067811865476  # sqrt(1/2)
LOG_TWO = 0.6931471805599453  # the natural logarithm of 2
PI = 3.141592653589793


@vk.func
def erfinv(x):
    """Inverse of erf: M. Giles' two polynomials in w = -log(1 - x * x), then two Newton steps on erf or erfc.

    Newton uses erfc for |x| >= 0.5, since 1 - erf(y) would lose digits. The result is odd in x, infinite at -1 and 1,
    and NaN beyond.
    """
    magnitude = vk.abs(x)
    inside = magnitude < 1
    z = vk.where(inside, magnitude, 0)
    w = -vk.log1p(-z * z)
    # the polynomials for w < 5 (near) and w >= 5 (far), by Horner's rule
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
        error = vk.where(z < 0.5, vk.erf(y) - z, (1 - z) - vk.erfc(y))
        y = y - error * HALF_ROOT_PI * vk.exp(y * y)
    # the square root of a negative number is the NaN for |x| > 1
    outside = vk.where(magnitude == 1, INFINITY, vk.sqrt(-1 - vk.abs(x)))
    return vk.copysign(vk.where(inside, y, outside), x)


@vk.func
def sinc(x):
    """sin(pi x) / (pi x); 1 at 0."""
    # the inner `where` avoids 0 / 0 where the quotient isn't selected
    z = x * PI
    return vk.where(x == 0, 1, vk.sin(z) / vk.where(x == 0, 1, z))


@vk.func
def entr(x):
    """-x log(x); 0 at 0, -inf below 0, NaN for NaN."""
    # the inner `where` avoids logarithms of x <= 0 where they aren't selected; the last operand x is NaN there
    return vk.where(x > 0, -x * vk.log(vk.where(x > 0, x, 1)), vk.where(x == 0, 0, vk.where(x < 0, -INFINITY, x)))


@vk.func
def ndtr(x):
    """Cumulative distribution function of the standard normal distribution."""
    # away from 0, erfc keeps the digits of small results
    z = x * ROOT_HALF
    return vk.where(z < -1, 0.5 * vk.erfc(-z), vk.where(z > 1, 1 - 0.5 * vk.erfc(z), 0.5 + 0.5 * vk.erf(z)))


@vk.func
def xlog1py(x, y):
    """x * log(1 + y); 0 where x is 0, unless y is NaN."""
    return vk.where((x == 0) & (y == y), 0, x * vk.log1p(y))


@vk.func
def logaddexp(x, y):
    """log(exp(x) + exp(y)) without overflow."""
    # equal infinities are returned as they are, since their difference is NaN
    top, low = vk.max(x, y), vk.min(x, y)
    same = (top == low) & ((top == INFINITY) | (top == -INFINITY))
    return vk.where(same, top, top + vk.log1p(vk.exp(low - top)))


@vk.func
def logaddexp2(x, y):
    """log2(2 ** x + 2 ** y) without overflow."""
    # equal infinities are returned as they are, since their difference is NaN
    top, low = vk.max(x, y), vk.min(x, y)
    same = (top == low) & ((top == INFINITY) | (top == -INFINITY))
    return vk.where(same, top, top + vk.log1p(vk.exp2(low - top)) / LOG_TWO)


@vk.func
def gcd(x, y):
    """The greatest common divisor of two integers by Euclid's algorithm: never negative, and 0 if both are 0."""
    a, b = vk.abs(x), vk.abs(y)
    while b != 0:
        remainder = a % b
        a = b
        b = remainder
    return vk.abs(a)


@vk.func
def heaviside(x, y):
    """0 where x is negative or NaN, y where x is 0, 1 where x is positive."""
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
def power_of_two_f32(k):
    """2 ** k as f32, exactly, for an i32 k from -126 to 127."""
    return vk.bitcast(vk.f32, (k + 127) << 23)


@vk.func
def power_of_two_f64(k):
    """2 ** k as f64, exactly, for an i32 k from -1022 to 1023."""
    return vk.bitcast(vk.f64, (vk.i64(k) + 1023) << 52)


@vk.func
def scaled(x, y, POWER, LIMIT):
    """x * 2 ** y, rounded once if y is whole; LIMIT is the largest k for which both POWER(k) and POWER(-k) are normal."""
    # Three factors span the type's range, from the smallest subnormal to the largest number. The largest factor comes
    # last, so that only the last product is rounded.
    bounded = vk.min(vk.max(y, -3 * LIMIT), 3 * LIMIT)
    whole = vk.trunc(bounded)
    k = vk.i32(whole)
    last = vk.min(vk.max(k, -LIMIT), LIMIT)
    middle = vk.min(vk.max(k - last, -LIMIT), LIMIT)
    # 0 for a whole y; NaN and the infinities, whose products with x may be NaN, stay themselves
    rest = vk.where(vk.abs(y) == INFINITY, y, bounded - whole)
    start = vk.where(rest == 0, x, x * vk.exp2(rest))
    return start * POWER(k - last - middle) * POWER(middle) * POWER(last)


@vk.func
def ldexp_f32(x, y):
    """x * 2 ** y for f32."""
    return scaled(x, y, power_of_two_f32, 126)


@vk.func
def ldexp_f64(x, y):
    """x * 2 ** y for f64."""
    return scaled(x, y, power_of_two_f64, 1022)


@vk.func
def nextafter_f32(x, y):
    """The next f32 after x toward y: y if they are equal, NaN if one is NaN."""
    # the bits of floats of one sign are ordered like their magnitudes, so the next float has the next bits; 0 is
    # special, since the next float may have another sign: it is the smallest subnormal number, with bits 1
    bits = vk.bitcast(vk.i32, x)
    away_from_zero = vk.where(x < y, x > 0, x < 0)
    neighbor = vk.bitcast(vk.f32, bits + vk.where(away_from_zero, 1, -1))
    smallest = vk.copysign(vk.bitcast(vk.f32, vk.i32(1)), y)
    return vk.where((x != x) | (y != y), x + y, vk.where(x == y, y, vk.where(x == 0, smallest, neighbor)))


@vk.func
def nextafter_f64(x, y):
    """The next f64 after x toward y, computed as in `nextafter_f32`."""
    bits = vk.bitcast(vk.i64, x)
    away_from_zero = vk.where(x < y, x > 0, x < 0)
    neighbor = vk.bitcast(vk.f64, bits + vk.where(away_from_zero, vk.i64(1), vk.i64(-1)))
    smallest = vk.copysign(vk.bitcast(vk.f64, vk.i64(1)), y)
    return vk.where((x != x) | (y != y), x + y, vk.where(x == y, y, vk.where(x == 0, smallest, neighbor)))
