"""Programs that compare tuples and structs of run-time values by `==`, `!=`, `in` and `not in`.

Python judges them: in its text of a condition, a struct is a tuple that begins with the struct's name.
"""

from __future__ import annotations

from random import Random

__all__ = ["comparisons"]

_NAMES = ("a", "b", "c", "0", "1", "2")
Shape = tuple["Shape | str", ...]
"""The shape of an operand: its parts are shapes, or "" for a number of any type, or a type that a number is converted
to. A struct's begins with its name.
"""
_STRUCTS: tuple[Shape, ...] = (("P", "i32", "i64"), ("Q", ("P", "i32", "i64"), "f32"))


def comparisons(random: Random) -> str:
    """Return the text of a program (see `sources`)."""
    conditions = [_condition(random) for _ in range(6)]
    ours = "".join(f"    if {kernel}:\n        o[i, {n}] = 1\n" for n, (kernel, _) in enumerate(conditions))
    theirs = "".join(f"        out[i, {n}] = {python}\n" for n, (_, python) in enumerate(conditions))
    types = [random.choice(["i32", "i64", "f32", "u8"]) for _ in range(3)]
    storage = {"i32": "np.int32", "i64": "np.int64", "f32": "np.float32", "u8": "np.uint8"}
    columns = ", ".join(f"X[{n}].astype({storage[t]})" for n, t in enumerate(types))
    return f"""
@vk.struct
class P:
    u: i32
    v: i64


@vk.struct
class Q:
    p: P
    w: f32


@vk.kernel(over="x")
def k(x: vk.In[{types[0]}, "N"], y: vk.In[{types[1]}, "N"], z: vk.In[{types[2]}, "N"], o: vk.InOut[i32, "N 6"]):
    i = vk.global_id(0)
    a, b, c = x[i], y[i], z[i]
{ours}

X = np.random.default_rng({random.randrange(1000)}).integers(0, 3, (3, 64))


def run():
    out = np.zeros((64, 6), np.int32)
    k({columns}, out)
    return [out]


def expected():
    out = np.zeros((64, 6), np.int32)
    for i in range(64):
        a, b, c = (int(v) for v in X[:, i])
{theirs}    return [out]
"""


def _condition(random: Random) -> tuple[str, str]:
    """Return a condition as a kernel's text and as Python's."""
    shape = _shape(random, 2)
    draw = random.random()
    if draw < 0.1:
        pairs = [("x.shape", "(64,)"), ("o.shape", "(64, 6)"), ("x.shape + (6,)", "(64, 6)")]
        (a, python_a), (b, python_b) = random.choice(pairs), random.choice([*pairs, ("(64, 6)", "(64, 6)")])
        operator = random.choice(["==", "!="])
        return f"{a} {operator} {b}", f"{python_a} {operator} {python_b}"
    if draw < 0.4:
        items = [
            _operand(random, shape if random.random() < 0.8 else _other(shape)) for _ in range(random.randint(1, 3))
        ]
        operand, operator = _operand(random, shape), random.choice(["in", "not in"])
        kernel, python = (", ".join(item[n] for item in items) for n in (0, 1))
        return f"{operand[0]} {operator} ({kernel},)", f"{operand[1]} {operator} ({python},)"
    if draw < 0.55:
        parts = [_condition(random) for _ in range(2)]
        word = random.choice([" and ", " or ", " == "])
        kernel, python = (word.join(f"({part[n]})" for part in parts) for n in (0, 1))
        return f"not ({kernel})", f"not ({python})"
    count = 3 if random.random() < 0.2 else 2
    operands = [_operand(random, shape if random.random() < 0.85 else _other(shape)) for _ in range(count)]
    operator = f" {random.choice(['==', '==', '!='])} "
    return operator.join(o[0] for o in operands), operator.join(o[1] for o in operands)


def _shape(random: Random, depth: int) -> Shape:
    """Return a random shape of a tuple or struct."""
    if random.random() < 0.35:
        return random.choice(_STRUCTS)
    parts = random.randint(1, 3)
    return tuple(_shape(random, depth - 1) if depth and random.random() < 0.25 else "" for _ in range(parts))


def _other(shape: Shape) -> Shape:
    """Return a shape whose values are never equal to those of `shape`: the other struct or a longer tuple.

    A number can't be compared with a tuple, so the parts of tuples keep their shapes.
    """
    return _STRUCTS[1 - _STRUCTS.index(shape)] if shape in _STRUCTS else (*shape, "")


def _operand(random: Random, shape: Shape | str) -> tuple[str, str]:
    """Return an operand of this shape as a kernel's text and as Python's."""
    if isinstance(shape, str):
        name = random.choice(_NAMES)
        return f"{shape}({name})" if shape else name, name
    is_struct = shape[0] in ("P", "Q")
    parts = [_operand(random, part) for part in (shape[1:] if is_struct else shape)]
    kernel, python = (", ".join(part[n] for part in parts) for n in (0, 1))
    if is_struct:
        return f"{shape[0]}({kernel})", f"({shape[0]!r}, {python})"
    return f"({kernel},)", f"({python},)"
