"""Generation of programs in Python from seeds. Each function of `_KINDS` makes one kind of program."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from .comparisons import comparisons
from .loops import loops
from .views import views

__all__ = ["HEAD", "SOURCES", "generate_source"]

SOURCES = 1 << 41
"""Seeds of at least this number give programs in Python."""
HEAD = "# program in Python: "
"""Start of the first line of a program."""

_IMPORTS = """
import numpy as np

import vkjit as vk
from vkjit import f32, i16, i32, i64, u8, u32, u64
"""


def generate_source(seed: int) -> str:
    """Return the text of the program of a seed."""
    random = Random(seed)
    kind = random.choice(_KINDS)
    return f"{HEAD}{seed}, {kind.__name__.strip('_')}\n{_IMPORTS}\n{kind(random)}"


def _collectives(random: Random) -> str:
    """Collectives of workgroups of any size, of values and of slices, also in loops."""
    x, y, z = random.choice(
        [(random.choice([1, 3, 5, 7, 17, 31, 33, 63, 65, 100, 127, 130]), 1, 1), (3, 11, 1), (5, 3, 3)]
    )
    size, columns, rows = x * y * z, random.choice([1, 7, 33, 150]), random.randint(1, 3)
    element = random.choice(["i32", "i64", "u32", "u8"])
    numpy_type = {"i32": "np.int32", "i64": "np.int64", "u32": "np.uint32", "u8": "np.uint8"}[element]
    last = random.choice([0, size - 1, size // 2])
    # the kernel's expression and NumPy's, of the values v of a workgroup and a row s of any length
    choices = [
        ("wg.sum(v)", "v.sum()"),
        ("wg.prod(i64(v) | 1)", "np.prod(v.astype(np.int64) | 1)"),
        ("wg.min(v)", "v.min()"),
        ("wg.max(v)", "v.max()"),
        ("wg.argmin(v)", "v.argmin()"),
        ("wg.argmax(v)", "v.argmax()"),
        (f"i64(wg.any(wg.rank() == {last}))", "1"),
        (f"i64(wg.all(wg.rank() != {last}))", "0"),
        ("i64(wg.any(v > 9))", "int((v > 9).any())"),
        ("i64(wg.all(v > 0))", "int((v > 0).all())"),
        (f"wg.broadcast(v, {last})", f"v[{last}]"),
        ("wg.scan(v)", "np.cumsum(v, dtype=v.dtype)"),
        ("wg.scan(v, 'max')", "np.maximum.accumulate(v)"),
        ("wg.scan(i64(v), exclusive=True)", "np.cumsum(v.astype(np.int64)) - v"),
        ("wg.size()", str(size)),
        ("wg.rank()", f"np.arange({size})"),
        ("wg.sum(x[r, :])", "s.sum()"),
        ("wg.max(x[r, :])", "s.max()"),
        ("wg.argmin(x[r, :])", "s.argmin()"),
        ("i64(wg.sum(wg.sum(i64(v)) + wg.rank()))", f"v.astype(np.int64).sum() * {size} + {size * (size - 1) // 2}"),
    ]
    chosen = [random.choice(choices) for _ in range(5)]
    repeated = random.random() < 0.3
    indent, loop = ("    ", f"    for q in range(x.shape[0] - {rows} + 2):\n") if repeated else ("", "")
    lines = "".join(f"{indent}    o[r, l, {n}] = i64({ours})\n" for n, (ours, _) in enumerate(chosen))
    sums = {"i32": "np.int32", "i64": "np.int64", "u32": "np.uint32", "u8": "np.uint8"}[element]
    reference = "".join(
        f"        out[r, :, {n}] = ({theirs.replace('.sum()', f'.sum(dtype={sums})') if 'astype' not in theirs else theirs})\n"
        for n, (_, theirs) in enumerate(chosen)
    )
    width = max(size, columns)
    return f"""
@vk.kernel(groups=lambda x: x.shape[0], local=({x}, {y}, {z}))
def k(x: vk.In[{element}, "R C"], w: vk.In[{element}, "R W"], o: vk.Out[i64, "R {size} 5"]):
    wg, r = vk.workgroup(), vk.group_id(0)
    l = wg.rank()
    v = w[r, l]
{loop}{lines}

X = np.random.default_rng({random.randrange(1000)}).integers(0, 11, ({rows}, {width})).astype({numpy_type})


def run():
    return [k(np.ascontiguousarray(X[:, :{columns}]), np.ascontiguousarray(X[:, :{size}]))]


def expected():
    out = np.zeros(({rows}, {size}, 5), np.int64)
    for r in range({rows}):
        s, v = X[r, :{columns}], X[r, :{size}]
{reference}    return [out]
"""


def _deep_returns(random: Random) -> str:
    """A function with about a hundred levels of `elif`, guards or unrolled returns, called once or twice."""
    levels, form = random.randint(60, 110), random.choice(["elif", "guards", "unrolled", "expression", "nested"])
    if form == "elif":
        first = "    if v == 0:\n        r = 5\n"
        rest = "".join(f"    elif v == {n}:\n        r = {3 * n % 17} + v\n" for n in range(1, levels))
        body = f"{first}{rest}    else:\n        r = -v\n    return r\n"
    elif form == "guards":
        body = (
            "".join(f"    if v == {n}:\n        return {3 * n % 17} + v\n" for n in range(levels)) + "    return -v\n"
        )
    elif form == "unrolled":
        body = f"    for j in unroll({levels}):\n        if v == j:\n            return 3 * j - 1\n    return -v\n"
    elif form == "expression":
        value = "-v"
        for n in range(levels):
            value = f"({3 * n % 17} if v == {n} else {value})"
        body = f"    return {value}\n"
    else:
        levels = min(levels, 90)
        lines = "".join(f"    {' ' * n}if v > {n}:\n    {' ' * n} r = r * 3 % 101 + {n}\n" for n in range(levels))
        ends = "".join(f"    {' ' * n} r = r + {n}\n" for n in range(levels - 1, -1, -7))
        body = f"    r = v\n{lines}{ends}    return r\n"
    call = random.choice(["f(x[i])", "f(x[i])", "f(f(x[i]) % 120)"])
    return f"""
def plain(v):
{body.replace("unroll(", "range(")}

@vk.func
def f(v):
{body.replace("unroll(", "vk.unroll(")}

@vk.kernel(over="o")
def k(x: vk.In[i32, "N"], o: vk.Out[i32, "N"]):
    i = vk.global_id(0)
    o[i] = {call}


X = np.arange(-3, 140).astype(np.int32)


def run():
    return [k(X)]


def expected():
    return [np.array([{call.replace("f(", "plain(").replace("x[i]", "int(v)")} for v in X], np.int32)]
"""


def _ranges(random: Random) -> str:
    """Loops with bounds near 2**31 or 2**63 that are arguments, counting up or down by steps of any size."""
    element, bits = random.choice([("i32", 31), ("i64", 63), ("i64", 31), ("u32", 32), ("u64", 64)])
    low = 0 if element[0] == "u" else -(1 << int(element[1:]) - 1)
    high = (1 << int(element[1:])) - 1 + low
    step = random.choice([1, 2, 3, 1 << 20, 1 << bits - 3])
    start = min(
        max((1 << bits) * random.choice([1, 1, -1]) - step * random.randint(0, 3) + random.randint(-2, 2), low), high
    )
    end = min(start + step * random.randint(0, 4) + random.randint(0, 2), high)
    if element[0] == "i" and random.random() < 0.4:
        start, end, step = end, max(start - 1, low), -step
    step_text = str(step) if element[0] == "u" or random.random() < 0.3 else "step"
    mask = (1 << int(element[1:])) - 1
    return f"""
@vk.kernel(over="o")
def k(start: {element}, end: {element}, step: {element}, o: vk.Out[{element}, "N 3"]):
    t, n, last = {element}(0), {element}(0), {element}(7)
    for j in range(start, end, {step_text}):
        t = (t * 3) ^ j
        n += 1
        last = j
    i = vk.global_id(1)
    o[i, 0], o[i, 1], o[i, 2] = t, n, last


def run():
    o = np.zeros((3, 3), vk.{element}.storage)
    k({start}, {end}, {step}, o)
    return [o]


def expected():
    t, n, last = 0, 0, 7
    for j in range({start}, {end}, {step}):
        t, n, last = (t * 3 ^ j) & {mask}, n + 1, j
    return [np.array([[t, n, last & {mask}]] * 3, np.uint{element[1:]}).view(vk.{element}.storage)]
"""


def _products(random: Random) -> str:
    """Products of ids past 2**63 in divisions, comparisons and guarded indices. The interpreter is the judge."""
    tests = []
    for number in range(5):
        factors = [
            random.choice(["i", "i", "i", "j", "vk.i64(i)", "x.shape[0]", "(i + j)"])
            for _ in range(random.randint(3, 7))
        ]
        product = " * ".join(factors)
        divisor = random.choice([3, 7, 1000, 1_000_003, 1 << 31, (1 << 62) + 1, -5])
        form = random.choice(
            ["({p}) // {d}", "({p}) % {d}", "vk.truncdiv({p}, {d})", "vk.truncrem({p}, {d})", "get", "guard", "less"]
        )
        if form == "get":
            lines = f"o[i, {number}] = x.get({product}, pad=-1)"
        elif form == "guard":
            lines = f"k{number} = {product}\n    if 0 <= k{number} < len(x):\n        o[i, {number}] = x[k{number}]"
        elif form == "less":
            lines = f"o[i, {number}] = i64(({product}) < {divisor}) + 2 * i64(({product}) >= i)"
        else:
            lines = f"o[i, {number}] = {form.format(p=product, d=divisor)}"
        tests.append(f"    o[i, {number}] = -7\n    {lines}\n")
    return f"""
@vk.kernel(over="o")
def k(x: vk.In[i64, "M"], o: vk.Out[i64, "N 5"]):
    i, j = vk.global_id(1), vk.global_id(1) + {random.choice([1, 1000, 100_000])}
    if vk.global_id(0) > 0:
        return
{"".join(tests)}

def run():
    o = np.zeros(({random.choice([3000, 20_000])}, 5), np.int64)
    k(np.arange({random.choice([10, 1000])}), o)
    return [o]
"""


def _captures(random: Random) -> str:
    """Random numbers in captures: replays draw what calls would draw after the same seed."""
    terms = [
        "vk.randn(8)", "vk.rand(8)", "vk.rand_like(x)", "F.dropout(x, 0.5)", "vk.bernoulli(x * 0 + 0.5)", "vk.randint(0, 9, (8,))",
        "x * 2",
    ]  # fmt: skip
    expression = " + ".join(["x", *(random.choice(terms) for _ in range(random.randint(1, 3)))])
    first, second = random.randrange(100), random.randrange(100)
    return f"""
from vkjit.nn import functional as F


def f(x):
    return {expression}


def inputs():
    return [vk.arange(8, dtype=vk.f32) * (n + 1) for n in range(3)]


def run():
    x = vk.zeros(8)
    vk.manual_seed({first})
    with vk.capture(x=x) as graph:
        y = f(x)
    vk.manual_seed({second})
    found = []
    for value in inputs():
        graph.replay(x=value)
        found.append(y.numpy().copy())
    return found


def expected():
    vk.manual_seed({second})
    return [f(value).numpy() for value in inputs()]
"""


_KINDS: tuple[Callable[[Random], str], ...] = (
    comparisons, comparisons, _collectives, _collectives, _deep_returns, _ranges, _products, _captures, loops, loops, loops, views,
)  # fmt: skip
"""The kinds of programs; repeated ones are chosen more often."""
