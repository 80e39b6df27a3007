"""Parameters out of range or of the wrong type: refused where PyTorch refuses them, and its values where it doesn't."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch isn't installed: nothing to compare with")

import vkjit as vk  # noqa: E402  # after importorskip

TYPES = {
    "u8": torch.uint8,
    "i8": torch.int8,
    "i32": torch.int32,
    "i64": torch.int64,
    "f16": torch.float16,
    "b": torch.bool,
}
NUMBERS = [
    0,
    1,
    -1,
    255,
    300,
    -300,
    1.5,
    70000.0,
    2**31,
    2**53 + 1,
    2**63 - 1,
    2**63,
    1e30,
    math.inf,
    -math.inf,
    math.nan,
]


class Library:
    """What a case needs of one of the two libraries: its module, functional, types by vkjit's names, and `t`."""

    def __init__(self, module: Any, types: dict[str, Any]) -> None:
        self.L, self.F, self.types = module, module.nn.functional, types

    def __getattr__(self, name: str) -> Any:
        return self.types[name]

    def t(self, values: Any, dtype: Any = None) -> Any:
        return self.L.tensor(values, dtype=dtype)


OURS = Library(vk, {"f32": vk.f32, "f64": vk.f64, "b": vk.boolean} | {n: getattr(vk, n) for n in TYPES if n != "b"})
THEIRS = Library(torch, {"f32": torch.float32, "f64": torch.float64} | TYPES)


def outcome(call: Any, library: Library) -> Any:
    """Return the type and values of the result; None if the call is refused, by us with an error of our own."""
    try:
        result = call(library)
    except vk.VkjitError:
        return None
    except Exception:
        if library is OURS:
            raise
        return None
    return result.dtype.itemsize, result.tolist()


FILLS = {
    "full": lambda M, x, v: M.L.full((2,), v, dtype=x.dtype),
    "full_like": lambda M, x, v: M.L.full_like(x, v),
    "new_full": lambda M, x, v: x.new_full((2,), v),
    "scalar_tensor": lambda M, x, v: M.L.scalar_tensor(v, dtype=x.dtype),
    "fill_": lambda M, x, v: x.fill_(v),
    "index_fill": lambda M, x, v: x.index_fill(0, M.t([0]), v),
    "scatter": lambda M, x, v: x.scatter(0, M.t([0]), v),
    "pad": lambda M, x, v: M.F.pad(x, (1, 1), value=v),
    "masked_fill": lambda M, x, v: x.masked_fill(M.t([True, False]), v),
    "masked_fill_": lambda M, x, v: x.masked_fill_(M.t([True, False]), v),
}  # fmt: skip


@pytest.mark.parametrize("name", FILLS)
@pytest.mark.parametrize("dtype", TYPES)
def test_fills(device: Any, name: str, dtype: str) -> None:
    for value in NUMBERS:
        if name.startswith("masked_fill") and isinstance(value, float) and dtype not in ("f16", "b"):
            continue  # refused for all floats: masked_fill promotes
        if (name == "pad" and isinstance(value, int) and (value < 0 or value > 2**53)) or (
            dtype == "u8" and value == -300
        ):
            continue  # PyTorch's own functions differ, and `pad` takes its value as f64
        if name == "scalar_tensor" and dtype == "f16" and value > 65504:
            continue  # PyTorch gives an infinity there, unlike `full`
        call = lambda M: FILLS[name](M, M.t([1, 2], getattr(M, dtype)), value)  # noqa: B023
        assert str(outcome(call, OURS)) == str(outcome(call, THEIRS)), (name, dtype, value)  # NaN differs from itself


REFUSED: dict[str, Any] = {
    "randint u8": lambda M: M.L.randint(0, 1000, (3,), dtype=M.u8),
    "randint u8 by one": lambda M: M.L.randint(0, 257, (3,), dtype=M.u8),
    "randint negative u8": lambda M: M.L.randint(-5, 5, (3,), dtype=M.u8),
    "randint bool": lambda M: M.L.randint(0, 3, (3,), dtype=M.b),
    "randint f16": lambda M: M.L.randint(0, 10**6, (3,), dtype=M.f16),
    "randint huge": lambda M: M.L.randint(0, 2**70, (3,)),
    "randint i32": lambda M: M.L.randint(0, 2**31 + 1, (3,), dtype=M.i32),
    "randint float": lambda M: M.L.randint(0, 4.5, (3,)),
    "randint bool bound": lambda M: M.L.randint(True, (3,)),
    "randint_like": lambda M: M.L.randint_like(M.t([1], M.u8), 0, 300),
    "randperm u8": lambda M: M.L.randperm(300, dtype=M.u8),
    "randperm": lambda M: M.L.randperm(-1),
    "seed": lambda M: M.L.manual_seed(2**64),
    "bernoulli p": lambda M: M.L.bernoulli(M.t([0.5]), 2.0),
    "bernoulli nan": lambda M: M.L.bernoulli(M.t([0.5]), math.nan),
    "bernoulli": lambda M: M.L.bernoulli(M.t([0.5, 2.0])).tolist(),
    "bernoulli negative": lambda M: M.L.bernoulli(M.t([-0.5])).tolist(),
    "bernoulli_": lambda M: M.t([0.5]).bernoulli_(M.t([math.nan])).tolist(),
    "normal": lambda M: M.L.normal(0.0, -1.0, (3,)),
    "normal nan": lambda M: M.L.normal(0.0, math.nan, (3,)),
    "normal tensor": lambda M: M.L.normal(0.0, M.t([1.0, -1.0])),
    "normal mean tensor": lambda M: M.L.normal(M.t([0.0]), -1.0),
    "normal_": lambda M: M.t([0.0]).normal_(0, -1),
    "normal_ of ints": lambda M: M.t([0]).normal_(),
    "uniform_ of ints": lambda M: M.t([0]).uniform_(),
    "uniform_": lambda M: M.t([0.0]).uniform_(2, 1),
    "uniform_ inf": lambda M: M.t([0.0]).uniform_(0, math.inf),
    "uniform_ f16": lambda M: M.t([0.0], M.f16).uniform_(0, 1e6),
    "alpha_dropout": lambda M: M.F.alpha_dropout(M.t([1.0]), 1.5),
    "repeats negative": lambda M: M.L.repeat_interleave(M.t([1.0, 2.0]), M.t([1, -2])),
    "repeats hidden negative": lambda M: M.L.repeat_interleave(M.t([1.0, 2.0, 3.0]), M.t([1, -2, 5])),
    "repeats float": lambda M: M.L.repeat_interleave(M.t([1.0, 2.0]), M.t([1.5, 2])),
    "repeats float number": lambda M: M.L.repeat_interleave(M.t([1.0, 2.0]), M.t(2.5)),
    "repeats number": lambda M: M.L.repeat_interleave(M.t([1.0, 2.0]), -2),
    "repeats size": lambda M: M.L.repeat_interleave(M.t([1.0, 2.0]), M.t([1, 2]), output_size=2),
    "tril_indices": lambda M: M.L.tril_indices(-1, 2),
    "triu_indices": lambda M: M.L.triu_indices(2, -1),
    "tril_indices float": lambda M: M.L.tril_indices(2.5, 2),
    "tril_indices offset": lambda M: M.L.tril_indices(3, 3, 1.5),
    "eye": lambda M: M.L.eye(-1),
    "eye columns": lambda M: M.L.eye(2, -1),
    "linspace": lambda M: M.L.linspace(0, 1, 2.5),
    "linspace u8": lambda M: M.L.linspace(0, 300, 3, dtype=M.u8),
    "arange": lambda M: M.L.arange(2**63, 2**63 + 2),
    "tensor u8": lambda M: M.t([300.0], M.u8),
    "tensor inf": lambda M: M.t(math.inf, M.i32),
    "tensor nan": lambda M: M.t([math.nan], M.i64),
    "tensor ints": lambda M: M.t([2**63, -1]),
    "quantile": lambda M: M.L.quantile(M.t([1.0, 2.0, 3.0]), -1.0),
    "quantile nan": lambda M: M.L.quantile(M.t([1.0, 2.0, 3.0]), math.nan),
    "quantile tensor": lambda M: M.L.quantile(M.t([1.0, 2.0, 3.0]), M.t([0.5, -0.1])).tolist(),
    "quantile tensor above": lambda M: M.L.quantile(M.t([1.0, 2.0, 3.0]), M.t([0.5, 1.5])).tolist(),
    "quantile matrix": lambda M: M.L.quantile(M.t([1.0, 2.0, 3.0]), M.t([[0.5]])),
    "quantile types": lambda M: M.L.quantile(M.t([1.0, 2.0, 3.0]), M.t([0.5], M.f64)),
    "nanquantile": lambda M: M.L.nanquantile(M.t([1.0, 2.0, 3.0]), -1.0),
    "kthvalue": lambda M: M.t([1.0, 2.0]).kthvalue(1.5),
    "bincount": lambda M: M.L.bincount(M.t([1]), minlength=-1),
    "diff": lambda M: M.t([1.0, 2.0]).diff(n=-1),
    "rot90": lambda M: M.t([[1.0, 2.0]]).rot90(1.5),
    "round": lambda M: M.t([1.0]).round(decimals=1.5),
    "arange up": lambda M: M.L.arange(5, 0, 1),
    "arange down": lambda M: M.L.arange(0.0, 5.0, -1),
    "arange of too many": lambda M: M.L.arange(0, 3, 5e-324),
    "einsum of a number": lambda M: M.L.einsum(5, M.t([1.0])),
    "einsum of far axes": lambda M: M.L.einsum(M.t([1.0]), [52]),
    "einsum without axes": lambda M: M.L.einsum(M.t([1.0]), M.t([1.0])),
    "ones_like": lambda M: M.L.ones_like(None),
    "adaptive size": lambda M: M.F.adaptive_avg_pool1d(M.t([[[1.0, 2.0]]]), -1),
    "tensordot": lambda M: M.L.tensordot(M.t([1.0]), M.t([1.0]), -1),
    "pad float": lambda M: M.F.pad(M.t([1.0, 2.0]), (1.5, 1)),
    "pad bool": lambda M: M.F.pad(M.t([1.0, 2.0]), (True, 1)),
    "index_select": lambda M: M.t([1.0, 2.0]).index_select(0, M.t([0.0])),
    "masked_fill": lambda M: M.t([1.0, 2.0]).masked_fill(M.t([True, False]), M.t([1.0])),
    "interpolate": lambda M: M.F.interpolate(M.t([[[1.0, 2.0]]]), scale_factor=math.nan),
    "cartesian_prod": lambda M: M.L.cartesian_prod(M.t([[1.0]])),
    "combinations": lambda M: M.L.combinations(M.t([1.0, 2.0]), -1),
    "triplet margin": lambda M: M.F.triplet_margin_loss(M.t([[1.0]]), M.t([[2.0]]), M.t([[3.0]]), margin=-1.0),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(device: Any, name: str) -> None:
    if name == "repeats size" and device.caps.kind in ("discrete", "integrated", "virtual"):
        pytest.skip("a GPU's counts aren't downloaded for a check, in PyTorch neither")
    for _ in range(3):  # warm calls, too
        with pytest.raises(vk.VkjitError):
            REFUSED[name](OURS)
    with pytest.raises(Exception):  # noqa: B017, PT011
        REFUSED[name](THEIRS)


ACCEPTED: dict[str, Any] = {
    "round far": lambda M: M.t([1.25, 0.0]).round(decimals=-400).isnan(),
    "round fine": lambda M: M.t([1.25, -math.inf]).round(decimals=2**40).isnan(),
    "arange of nothing": lambda M: M.L.arange(5, 5, -1),
    "einsum by numbers": lambda M: M.L.einsum(M.t([[1.0, 2.0]]), [0, 30], M.t([[3.0], [4.0]]), [30, 2], [2, 0]),
    "einsum by numbers in order": lambda M: M.L.einsum(M.t([[1.0], [2.0]]), [30, 1], M.t([[3.0]]), [1, 2]),
    "einsum of dots": lambda M: M.L.einsum(M.t([[1.0, 2.0]]), [..., 1], [1, ...]),
    "adaptive average": lambda M: M.F.adaptive_avg_pool1d(M.t([[[1.0, 2.0]]]), 0),
    "adaptive averages": lambda M: M.F.adaptive_avg_pool2d(M.t([[[1.0, 2.0]]]), (3, 0)),
    "adaptive maximum": lambda M: M.F.adaptive_max_pool2d(M.t([[[1.0, 2.0]]]), (0, None)),
    "tensor mixed": lambda M: M.t([2**53 + 1, 0.0, -1.9], M.i64),
    "tensor largest": lambda M: M.t([2**63 - 1, -(2**63)]),
    "full": lambda M: M.L.full((2,), 2**53 + 1),
    "fill_": lambda M: M.t([1, 2]).fill_(2**63 - 1),
    "where": lambda M: M.L.where(M.t([True]), 2**53 + 1, M.t([0])),
    "clamp": lambda M: M.t([2**53 + 1, 5]).clamp(max=2**53 + 1),
    "sort": lambda M: M.t([2**53 + 1, 2**53]).sort()[0],
    "searchsorted": lambda M: M.L.searchsorted(M.t([2**53, 2**53 + 1, 2**53 + 2]), M.t([2**53 + 1])),
    "equal": lambda M: M.t([2**53]) == 2**53 + 1,
    "sum": lambda M: M.t([2**53 + 1, 1]).sum(),
    "floor_divide": lambda M: M.t([2**53 + 1]).floor_divide(3),
    "repeats": lambda M: M.L.repeat_interleave(M.t([1.0, 2.0, 3.0]), M.t([1, 0, 2])),
    "repeats size": lambda M: M.L.repeat_interleave(M.t([1.0, 2.0, 3.0]), M.t([1, 0, 2]), output_size=3),
    "repeats of nothing": lambda M: M.L.repeat_interleave(M.t([1.0])[:0], M.t([1])[:0]),
    "randint all of u8": lambda M: M.L.randint(0, 256, (3,), dtype=M.u8) * 0,
    "randint all of i32": lambda M: M.L.randint(-(2**31), 2**31, (3,), dtype=M.i32) * 0,
    "normal of one value": lambda M: M.L.normal(3.0, 0.0, (3,)),
    "bernoulli of 0 and 1": lambda M: M.L.bernoulli(M.t([0.0, 1.0])),
    "quantile levels": lambda M: M.L.quantile(M.t([1.0, 2.0, 3.0]), M.t([0.0, 0.5, 1.0])),
    "one quantile": lambda M: M.L.quantile(M.t([1.0, 2.0, 3.0]), 1),
    "tril_indices": lambda M: M.L.tril_indices(0, 2),
    "pad": lambda M: M.F.pad(M.t([1, 2]), (2, -1), value=7),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(device: Any, name: str) -> None:
    for _ in range(3):
        assert outcome(ACCEPTED[name], OURS) == outcome(ACCEPTED[name], THEIRS)


def test_levels_and_chances_in_a_capture(device: Any) -> None:
    x, chances = vk.tensor([1.0, 2.0, 3.0]), vk.tensor([0.0, 1.0])
    with vk.capture(x=x) as graph:
        vk.quantile(x, 0.5)
        vk.normal(x, chances.sum())
    graph.replay(x=x)
    with pytest.raises(vk.VkjitError), vk.capture(x=x):
        vk.quantile(x, -1.0)
    np.testing.assert_array_equal(x.numpy(), [1, 2, 3])
