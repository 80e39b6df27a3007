"""Texts of kernels that a compiler may choke on: huge constants, unrolled loops, recursion, many returns, odd names."""

from __future__ import annotations

import random
from collections.abc import Callable

__all__ = ["hostile_kernel"]

_SIZES = (2, 7, 30, 100, 400, 1000, 4096, 10**5, 10**9, 10**30)


def _constant(rng: random.Random) -> str:
    number = rng.choice(
        ("10**10**10", "2**10**8", "1 << 10**12", "9" * 4000, "-(2**63)", "2**64", "1e308 * 10", "1e400")
    )
    other = rng.choice(
        ("7 ** 7 ** 7", "(1, 2) * 10**9", "'ab' * 10**9", "0 ** -1", "1 // 0", "1 % 0", "0xffffffffffff", "-1 << 3")
    )
    last = rng.choice(
        ("(-2) ** 0.5", "10 ** -400", "float('inf')", "int('9')", "1j", "(3 << 4000) >> 3990", "(2**4000) / 3")
    )
    op = rng.choice("+ - * // % ** << >> & | / < ==".split())
    text = rng.choice((number, other, last, f"({number}) {op} {rng.choice((other, last, '3'))}"))
    return f"    o[i] = {text}\n"


def _growth(rng: random.Random) -> str:
    step = rng.choice(
        ("c = c * c", "c = (c, c)", "c = c + c", "c = c ** 2", "c = c << 9", "c = vk.f32(o[i]) * c", "c += o[i]")
    )
    start = rng.choice(("3", "(1, 2)", "'a'", "2.5", "o[i]"))
    return (
        f"    c = {start}\n    for k in vk.unroll({rng.choice((10, 40, 100, 1000))}):\n        {step}\n    o[i] = 1\n"
    )


def _unrolled(rng: random.Random) -> str:
    body = rng.choice(
        (
            "o[i] += k0",
            "o[(i * k0) % 8] += o[(i + k0) % 8]",
            "if o[i] == k0: o[i] = k0 + 1",
            "o[i] = vk.i32(vk.sin(vk.f32(o[i])) * vk.cos(vk.f32(k0)) + vk.exp(vk.f32(k0)))",
            "pass",
            "o[i] //= k0 + 1",
            "if o[i] == k0: return",
            "if o[i] == k0: break",
            "while o[i] < k0: o[i] += 1",
        )
    )
    text = ""
    depth = rng.choice((1, 1, 2, 3, 12, 25))
    for level in range(depth):
        text += "    " * (level + 1) + f"for k{level} in vk.unroll({rng.choice(_SIZES[: 3 if depth > 3 else 9])}):\n"
    return text + "    " * (depth + 1) + body + "\n"


def _nested(rng: random.Random) -> str:
    count = rng.choice((10, 80, 95, 300, 3000))
    form = rng.randrange(7)
    if form == 0:
        return "    o[i] = " + " + ".join(["o[i]"] * count) + "\n"
    if form == 1:
        return "    o[i] = " + "-" * count + "o[i]\n"
    if form == 2:
        return "    o[i] = " + "o[" * min(count, 90) + "i" + "]" * min(count, 90) + "\n"
    if form == 3:
        tests = "".join(f"    elif o[i] == {k}:\n        o[i] = {k * 3}\n" for k in range(count))
        return "    if o[i] < 0:\n        o[i] = 0\n" + tests
    if form == 4:
        return "".join(f"    if o[i] == {k}:\n        o[i] = {k + 9}\n" for k in range(count))
    if form == 5:
        return (
            "".join("    " * (k + 1) + f"if o[i] > {k}:\n" for k in range(min(count, 90))) + "    " * 92 + "o[i] = 1\n"
        )
    return (
        "    o[i] = " + "(" * min(count, 150) + "1" + "".join(f" * o[i] + {k})" for k in range(min(count, 150))) + "\n"
    )


def _memory(rng: random.Random) -> str:
    size = rng.choice((*_SIZES, 0, -1, "(1000, 1000)", "(2,) * 40", "2.5", "i", "(10**9, 10**9)"))
    place = rng.choice(("local", "local", "shared"))
    dtype = rng.choice(("i32", "f64", "vec(vk.f32, 4)", "bool", "u8"))
    return f"    t = vk.{place}(vk.{dtype}, {size})\n    t[0] = t[0]\n    o[i] = i\n"


def _odd_names(rng: random.Random) -> str:
    name = rng.choice(
        ("a" * 5000, "ö", "Ñ" * 300, "__class__", "vk", "i32", "len", "range", "o", "main", "_", "self", "𝒙")
    )
    use = rng.choice(
        (
            "{} = 3\n    o[i] = {}",
            "for {} in range(3): o[i] += {}",
            "o[i] = {}.x",
            "o[i] = {}({})",
            "{} += 1",
            "{}: vk.i32 = 1",
        )
    )
    return "    " + use.replace("{}", name) + "\n"


def _statements(rng: random.Random) -> str:
    return "    " + rng.choice(
        (
            "o[i] = f'{i}'", "print('{' * 1000, i)", "assert o[i] < 0, 'x' * 100000", "print('a' * 70000)", "o[10**30] = 1",
            "o[i:10**30] = 1", "o[-(2**70)] = 1", "o[i, i, i] = 1", "o.shape[99] = 1", "o[i] = o.shape[10**20]", "del o",
            "o[i] = vk.i32(10**400)", "o[i] = vk.i32(float(10**30))", "o[i] = vk.f32(10**400)", "o[i] = round(2.5, 10**9)",
            "o[i] = max(*((1,) * 60000))", "o[i] = sum((1,) * 60000)", "x, *y = (1,) * 60000", "o[i] = (1,) * 5 < 3",
            "for k in range(0, 10**30, 10**29): o[i] += 1", "for k in range(0, 5, 0): pass", "o[i] = hostile(o)",
            "for k in (1,) * 60000: o[i] += k", "o[i] = vk.vec(vk.f32, 10**9)(1)[0]", "o[i] = vk.i32(o[i]) << 10**9",
            "o[i] = o[i] ** 10**9", "o[i] = o[i] ** (10**400)", "o[i] = vk.fma(10**400, 1, 1)", "o[i] = abs(-(10**4000))",
            "o[i] = math.factorial(10**7)", "o[i] = math.comb(10**6, 10**5)", "o[i] = math.pow(10, 10**9)",
            "o[i] = int(math.exp(10**6))", "o[i] = math.sqrt(-1)", "o[i] = math.gcd(10**4000, 6)", "o[i] = math.prod((2,) * 60000)",
            "o[i] = np.float32(1e300)", "o[i] = np.int8(1000)", "o[i] = divmod(1, 0)[0]", "o[i] = pow(3, 10**9, 7)",
            "o[i] = min(())", "o[i] = ((1, 2), 3)[5]", "o[i] = (1, 2)[10**30]", "o[i] = 'abc'[i]", "o[i] = len('a' * 60000)",
        )
    ) + "\n"  # fmt: skip


_BODIES: tuple[Callable[[random.Random], str], ...] = (
    _constant, _growth, _unrolled, _nested, _memory, _odd_names, _statements,
)  # fmt: skip


def _functions(rng: random.Random) -> tuple[str, str]:
    """Return (definitions of device functions, a kernel's body that calls them)."""
    count = rng.choice((2, 12, 30, 90, 500))
    form = rng.randrange(6)
    head = "@vk.func\ndef f0(x): return x + 1\n"
    call = f"    o[i] = f{count}(o[i])\n"
    if form == 0:
        return head + "".join(
            f"@vk.func\ndef f{k}(x): return f{k - 1}(x) + f{k - 1}(x + 1)\n" for k in range(1, count + 1)
        ), call
    if form == 1:
        return head + "".join(f"@vk.func\ndef f{k}(x): return f{k - 1}(x) * 3\n" for k in range(1, count + 1)), call
    if form == 2:
        return f"@vk.func\ndef f{count}(x): return f{count}(x - 1) if x > 0 else 0\n", call
    if form == 3:
        return f"@vk.func\ndef g(x): return f{count}(x)\n@vk.func\ndef f{count}(x): return g(x)\n", call
    returns = "".join(f"    if x == {k}: return x * {k}\n" for k in range(count))
    if form == 4:
        return f"@vk.func\ndef f{count}(x):\n{returns}    return x\n", call + f"    o[i] += f{count}(i)\n"
    loop = (
        f"    for k in vk.unroll({min(count, 90)}):\n        if x == k: return x * k\n        if x == 2 * k: return k\n"
    )
    return f"@vk.func\ndef f{count}(x):\n{loop}    return x\n", call


def hostile_kernel(rng: random.Random) -> str:
    """Return the text of a module with the kernel `hostile(o)`, for an array of i32."""
    definitions, body = ("", "")
    if rng.random() < 0.25:
        definitions, body = _functions(rng)
    else:
        body = "".join(rng.choice(_BODIES)(rng) for _ in range(rng.choice((1, 1, 1, 2))))
    name = rng.choice(
        ("N", "N", "N", "N", "_", "*N", "N" * 5000, "2**9**9*N", "99999999999999999999", "(" * 500, "N+" * 300 + "1")
    )
    options = rng.choice(
        ('over="o"', 'over="o"', 'over="o"', "groups=8, local=1", "groups=10**30", 'over="o", local=10**9')
    )
    return (
        f"import math\nimport numpy as np\nimport vkjit as vk\n\n{definitions}\n"
        f'@vk.kernel({options})\ndef hostile(o: vk.InOut[vk.i32, "{name}"]):\n    i = vk.i32(vk.global_id(0))\n{body}'
    )
