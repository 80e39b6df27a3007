"""Programs in Python that pass views of NumPy arrays and of tensors, with any strides and offsets, to one kernel."""

from __future__ import annotations

from random import Random

__all__ = ["views"]

_TYPES = ("i8", "u8", "i16", "u16", "i32", "u32", "i64", "f16", "f32", "boolean")
_VIEWS = (
    "b[:4, :6]", "b[1:5, 2:8]", "b[::-1][:4, :6]", "b[:4, ::-1][:, :6]", "b[:8:2, :6]", "b[:8:2, ::-1][:, 1:7]", "b.T[:4, :6]",
    "b.T[4:8, ::-1][:, :6]", "b[4:, 4:][:4, :6]", "b[::-2, ::-1][:4, 2:8]", "b[::3, ::2]", "b[8:, 6:].T[::-1].T",
)  # fmt: skip
"""Views of the shape (4, 6) of a base `b` of the shape (12, 12)."""


def views(random: Random) -> str:
    """A kernel with two inputs and two outputs of other types, launched with views."""
    first, second = random.choice(_TYPES), random.choice(_TYPES)
    factor = random.choice([1, 2, 3])
    calls = [(*(random.choice(_VIEWS) for _ in range(4)), random.random() < 0.5) for _ in range(random.randint(2, 5))]
    listed = "".join(
        f"    (lambda b: {x}, lambda b: {y}, lambda b: {o}, lambda b: {p}, {tensors}),\n"
        for x, y, o, p, tensors in calls
    )
    new_value = f"x[i, j] * {first}({factor}) + x[i, 5 - j]" if first != "boolean" else "x[i, j] ^ x[i, 5 - j]"
    numpy_value = f"x * x.dtype.type({factor}) + x[:, ::-1]" if first != "boolean" else "x ^ x[:, ::-1]"
    return f"""
@vk.kernel(over="o", strict=True)
def k(x: vk.In[vk.{first}, "R C"], y: vk.In[vk.{second}, "R C"], o: vk.Out[vk.{first}, "R C"], p: vk.InOut[vk.{second}, "R C"]):
    i, j = vk.global_id(1), vk.global_id(0)
    o[i, j] = {new_value.replace(f"{first}(", f"vk.{first}(")}
    if y[i, j] == p[i, j]:
        p[i, j] = y[i, 5 - j]


CALLS = [
{listed}]


def base(dtype, seed):
    return np.random.default_rng(seed).integers(0, 5, (12, 12)).astype(dtype.storage)


def outcome(call):
    found = []
    for number, (x, y, o, p, tensors) in enumerate(CALLS):
        bases = [base(vk.{first}, number), base(vk.{second}, number + 50), base(vk.{first}, 3), base(vk.{second}, 4)]
        found += call(bases, x, y, o, p, tensors)
    return found


def run():
    def call(bases, x, y, o, p, tensors):
        held = [vk.tensor(b) for b in bases] if tensors else bases
        k(x(held[0]), y(held[1]), o(held[2]), p(held[3]))
        return [h.numpy().copy() if tensors else h for h in held]

    return outcome(call)


def expected():
    def call(bases, x, y, o, p, tensors):
        x, y, o, p = x(bases[0]), y(bases[1]), o(bases[2]), p(bases[3])
        o[...] = {numpy_value}
        p[...] = np.where(y == p, y[:, ::-1], p)
        return bases

    return outcome(call)
"""
