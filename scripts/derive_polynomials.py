"""Derive the polynomials of vkjit's mathematical functions and write vkjit/passes/math/_gen_polynomials.py.

Each polynomial minimizes the maximum weighted error over an interval (Remez exchange algorithm, with 60 digits).
Coefficients are rounded to the format. Where it reduces the error, they are rounded one at a time, and the remaining
ones are fitted again after each. Needs mpmath and NumPy; run it from the repository root:

    python scripts/derive_polynomials.py            write the file
    python scripts/derive_polynomials.py --check    fail if the file is out of date
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import mpmath
import numpy as np
from mpmath import mp, mpf

mp.dps = 60
GRID = 400
TINY = mpf("1e-9")
TARGET = Path(__file__).parents[1] / "vkjit" / "passes" / "math" / "_gen_polynomials.py"

Function = Callable[[mpf], mpf]


@dataclass(frozen=True)
class Problem:
    """An approximation problem: `value` on [low, high] with a weighted error; `degrees` for f32 and f64."""

    name: str
    value: Function
    weight: Function
    low: mpf
    high: mpf
    degrees: tuple[int, int]
    note: str


def best(value: list[mpf], weight: list[mpf], points: list[mpf], powers: range) -> list[mpf]:
    """Return the coefficients of the minimax fit on a grid of points; raises ArithmeticError if it fails."""
    count = len(powers) + 1
    last = len(points) - 1
    chosen = sorted({round(last * (1 - np.cos(np.pi * k / (count - 1))) / 2) for k in range(count)})
    for _ in range(40):
        rows = mp.matrix(count, count)
        right = mp.matrix(count, 1)
        for row, index in enumerate(chosen):
            for column, power in enumerate(powers):
                rows[row, column] = weight[index] * points[index] ** power
            rows[row, count - 1] = (-1) ** row
            right[row] = weight[index] * value[index]
        solved = mp.lu_solve(rows, right)
        coefficients = [solved[k] for k in range(len(powers))]
        moved = extremes(weighted_errors(value, weight, points, powers, coefficients), count)
        if moved == chosen:
            break
        chosen = moved
    return coefficients


def weighted_errors(
    value: list[mpf], weight: list[mpf], points: list[mpf], powers: range, coefficients: list[mpf]
) -> list[mpf]:
    """Return the weighted error of the polynomial at each point."""
    return [
        w * (v - x**powers.start * mpmath.polyval(coefficients[::-1], x))
        for x, v, w in zip(points, value, weight, strict=True)
    ]


def extremes(errors: list[mpf], count: int) -> list[int]:
    """Return the indices of `count` alternating error extrema."""
    runs: list[int] = []
    for index, error in enumerate(errors):
        if runs and (errors[runs[-1]] > 0) == (error > 0):
            if abs(error) > abs(errors[runs[-1]]):
                runs[-1] = index
        else:
            runs.append(index)
    while len(runs) > count:
        runs.pop(0 if abs(errors[runs[0]]) < abs(errors[runs[-1]]) else -1)
    if len(runs) < count:
        raise ArithmeticError("the error does not alternate often enough: lower the degree")
    return runs


def fitted(problem: Problem, degree: int, rounded: Callable[[mpf], float]) -> tuple[list[float], float]:
    """Return rounded coefficients and log2 of the maximum error: the better of joint and successive rounding."""
    middle, half = (problem.low + problem.high) / 2, (problem.high - problem.low) / 2
    points = [middle - half * mp.cos(mp.pi * (k + mpf(1) / 2) / GRID) for k in range(GRID)]
    value = [problem.value(x) for x in points]
    weight = [problem.weight(x) for x in points]
    whole = range(degree + 1)
    plain = [rounded(c) for c in best(value, weight, points, whole)]

    def error(coefficients: list[float]) -> mpf:
        return max(map(abs, weighted_errors(value, weight, points, whole, [mpf(c) for c in coefficients])))

    candidates = [plain, refitted(value, weight, points, degree, rounded)]
    chosen = min(candidates, key=error)
    return chosen, float(mp.log(error(chosen), 2))


def refitted(
    value: list[mpf], weight: list[mpf], points: list[mpf], degree: int, rounded: Callable[[mpf], float]
) -> list[float]:
    """Round coefficients one at a time, lowest power first, fitting the remaining ones again after each."""
    left, coefficients, solved = value, list[float](), list[mpf]()
    for power in range(degree + 1):
        try:
            solved = best(left, weight, points, range(power, degree + 1))
        except ArithmeticError:  # earlier roundings dominate the error: keep the previous fit
            solved = solved[1:]
        coefficients.append(rounded(solved[0]))
        left = [v - mpf(coefficients[-1]) * x**power for x, v in zip(points, left, strict=True)]
    return coefficients


def even(series: Function) -> Function:
    """Turn an even function of x into a function of z = x*x."""
    return lambda z: series(mp.sqrt(z))


def atanh_tail(z: mpf) -> mpf:
    """(log((1 + s)/(1 - s)) - 2 s) / s with z = s*s."""
    s = mp.sqrt(z)
    return (mp.log((1 + s) / (1 - s)) - 2 * s) / s


def log2_tail(z: mpf) -> mpf:
    """Return the terms of log2((1 + s)/(1 - s)) / s after c0 + c1 z."""
    s = mp.sqrt(z)
    whole = mp.log((1 + s) / (1 - s)) / s / mp.log(2)
    return (whole - 2 / mp.log(2) - z * 2 / (3 * mp.log(2))) / (z * z)


def scaled_erfc(centre: mpf) -> Function:
    """Return (1 + 2 x) exp(x*x) erfc(x) as a function of t = (x - centre)/(x + centre)."""

    def function(t: mpf) -> mpf:
        x = centre * (1 + t) / (1 - t)
        return (1 + 2 * x) * mp.exp(x * x) * mp.erfc(x)

    return function


def odd(name: str, function: Function, high: mpf, degrees: tuple[int, int]) -> Problem:
    """Return the problem for (f(x) - x) / x**3 of an odd function f, in terms of x*x, with the error relative to f."""
    return Problem(name, even(lambda x: (function(x) - x) / x**3), even(lambda x: x**3 / function(x)), TINY, high,
                   degrees, f"({name.lower()}(x) - x) / x**3 in x*x")  # fmt: skip


def erfc(name: str, centre: str, high: str, degrees: tuple[int, int]) -> Problem:
    """Return the problem for the scaled complementary error function around a center."""
    scaled = scaled_erfc(mpf(centre))
    return Problem(name, scaled, lambda t: 1 / scaled(t), TINY - 1, mpf(high), degrees,
                   f"(1 + 2x) exp(x*x) erfc(x) in (x - {centre})/(x + {centre})")  # fmt: skip


def problems() -> list[Problem]:
    """Return all problems; a degree of -1 skips a format."""
    half_ln2 = mp.log(2) / 2 * mpf("1.0005")
    octant = (mp.pi / 4 * mpf("1.0005")) ** 2
    third = ((mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)) ** 2 * mpf("1.0005")
    return [
        Problem("EXP", lambda r: (mp.expm1(r) - r) / r**2, lambda r: abs(r**2 / mp.expm1(r)), -half_ln2, half_ln2,
                (5, 11), "(exp(r) - 1 - r) / r**2"),
        Problem("LOG", lambda z: atanh_tail(z) / z, lambda z: z / (2 + atanh_tail(z)), TINY, third, (3, 6),
                "(log((1+s)/(1-s)) - 2s) / s**3 in s*s"),
        Problem("LOG2", log2_tail, lambda z: z * z, TINY, third, (2, 9),
                "log2((1+s)/(1-s))/s in s*s, from the third term on"),
        odd("SIN", mp.sin, octant, (2, 5)),
        Problem("COS", even(lambda x: (mp.cos(x) - 1 + x**2 / 2) / x**4), even(lambda x: x**4 / mp.cos(x)), TINY,
                octant, (2, 5), "(cos(x) - 1 + x*x/2) / x**4 in x*x"),
        odd("ASIN", mp.asin, mpf("0.2503"), (4, 12)),
        odd("ATAN", mp.atan, mp.tan(mp.pi / 8) ** 2 * mpf("1.001"), (4, 10)),
        odd("SINH", mp.sinh, mpf("1.001"), (3, 6)),
        Problem("ERF", even(lambda x: mp.erf(x) / x - 1), even(lambda x: x / mp.erf(x)), TINY, mpf("1.001"),
                (6, 13), "erf(x)/x - 1 in x*x"),
        erfc("ERFC", "2", "0.672", (10, -1)),
        erfc("ERFC", "3.75", "0.76", (-1, 23)),
    ]  # fmt: skip


CONSTANTS = {
    "LN2": (lambda: mp.log(2), "exponent"),
    "LOG2_E": (lambda: 1 / mp.log(2), "half"),
    "LOG10_E": (lambda: 1 / mp.log(10), "half"),
    "LOG10_2": (lambda: mp.log(2) / mp.log(10), "exponent"),
    "LN2_WHOLE": (lambda: mp.log(2), "whole"),
    "HALF_PI": (lambda: mp.pi / 2, "whole"),
    "HALF_PI_SPLIT": (lambda: mp.pi / 2, "half"),
    "PI": (lambda: mp.pi, "whole"),
    "QUARTER_PI": (lambda: mp.pi / 4, "whole"),
    "LOG2_FIRST": (lambda: 2 / mp.log(2), "half"),
    "LOG2_SECOND": (lambda: 2 / (3 * mp.log(2)), "half"),
}
"""Values by name, and the kind of their upper part.

The kind is all digits of the format, half of them, or short enough that the product with an exponent is exact.
"""


def split(value: mpf, kind: str, bits: int) -> tuple[float, float]:
    """Split a value into an upper and a lower part; the lower one is rounded to the format."""
    digits, exponent = (24, 8) if bits == 32 else (53, 11)
    kept = {"whole": digits, "half": digits - (digits + 1) // 2, "exponent": digits - exponent - 1}[kind]
    scale = mpf(2) ** (kept - 1 - mp.floor(mp.log(value, 2)))
    upper = (mp.nint if kind == "whole" else mp.floor)(value * scale) / scale
    number = np.float32 if bits == 32 else np.float64
    return float(upper), float(number(mp.nstr(value - upper, 40)))


def constants() -> list[str]:
    """Return the lines for split constants, and for 2/pi in 32-bit words after two words of zeros."""
    lines = ["# upper and lower parts of constants"]
    for name, (value, kind) in CONSTANTS.items():
        lines += [f"{name}_F{bits} = {split(value(), kind, bits)!r}" for bits in (32, 64)]
    with mp.workdps(500):
        whole = int(mp.floor(2 / mp.pi * mpf(2) ** 1280))
    words = [0, 0] + [(whole >> (1248 - 32 * k)) & 0xFFFFFFFF for k in range(40)]
    lines += ["", "# the bits of 2/pi, words of 32 bits", "TWO_OVER_PI = ("]
    lines += ["    " + " ".join(f"0x{word:08X}," for word in words[k : k + 7]) for k in range(0, len(words), 7)]
    return [*lines, ")"]


def text() -> str:
    """Return the text of the generated file."""
    lines = [
        '"""Minimax polynomials, lowest coefficient first. Written by scripts/derive_polynomials.py: don\'t edit."""',
        "",
    ]
    for problem in problems():
        lines.append(f"# {problem.note}, on [{mp.nstr(problem.low, 6)}, {mp.nstr(problem.high, 6)}]")
        for kind, degree in zip((np.float32, np.float64), problem.degrees, strict=True):
            if degree >= 0:
                found, error = fitted(problem, degree, lambda c, kind=kind: float(kind(mp.nstr(c, 40))))
                lines.append(f"{problem.name}_F{np.finfo(kind).bits} = (  # error 2**{error:.1f}")
                lines += [f"    {number!r}," for number in found]
                lines.append(")")
        lines.append("")
    return "\n".join([*lines, *constants(), ""])


def main(arguments: list[str]) -> int:
    """Write or check the file; return the exit status."""
    written = text()
    if arguments == ["--check"]:
        return 0 if TARGET.read_text() == written else 1
    TARGET.write_text(written)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
