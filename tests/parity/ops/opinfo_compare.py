"""Compare one OpInfo sample between PyTorch and vkjit: shape, type, values, gradients.

A difference raises `Mismatch` with the reason.

A float matches if it is within PyTorch's default tolerances of PyTorch's result in the same type, or of its result in
f64. If PyTorch's own result is farther from f64 than that, up to twice its largest error in that result is allowed.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import vkjit as vk

from .opinfo_bridge import Unsupported, function_of, keywords, leaves, to_torch, to_vkjit

__all__ = ["SHAPE_ONLY", "TIES", "Mismatch", "compare", "run_sample", "with_ties"]

TOLERANCES = {
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float32: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7),
}
"""(relative, absolute): the defaults of `torch.testing.assert_close`."""

SHAPE_ONLY = frozenset(
    "bernoulli empty empty_like new_empty normal rand_like randint randint_like randn randn_like uniform "
    "nn.functional.dropout nn.functional.dropout2d nn.functional.dropout3d".split()
)
"""Operations with random or undefined values: only shape and type are compared."""


TIES = frozenset("argsort msort sort topk kthvalue median nanmedian".split())
"""Operations that may select any of several equal elements."""


class Mismatch(Exception):
    """Raised if results differ."""


def _copied(value: Any, dtype: torch.dtype | None, memo: dict[int, Any]) -> Any:
    """Return a copy of the arguments with new leaves; `dtype` converts floats."""
    if isinstance(value, torch.Tensor):
        if id(value) not in memo:
            fresh = value.detach()
            if dtype is not None and value.is_floating_point():
                fresh = fresh.to(dtype)
            fresh = fresh.clone() if fresh.numel() else fresh.clone()
            memo[id(value)] = fresh.requires_grad_(value.requires_grad)
        return memo[id(value)]
    if isinstance(value, torch.Size):
        return value
    if isinstance(value, (list, tuple)):
        items = [_copied(v, dtype, memo) for v in value]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, dict):
        return {k: _copied(v, dtype, memo) for k, v in value.items()}
    if dtype is not None and isinstance(value, torch.dtype) and value.is_floating_point:
        return dtype
    return value


def _close(found: torch.Tensor, expected: torch.Tensor, exact: torch.Tensor | None, what: str) -> None:
    """Raise Mismatch if values differ by more than the module docstring allows."""
    if found.shape != expected.shape:
        raise Mismatch(f"{what} shape {tuple(found.shape)}, expected {tuple(expected.shape)}")
    if found.dtype != expected.dtype:
        raise Mismatch(f"{what} type {found.dtype}, expected {expected.dtype}")
    if not found.numel():
        return
    if not expected.is_floating_point():
        if not torch.equal(found, expected):
            raise Mismatch(f"{what} values differ")
        return
    relative, absolute = TOLERANCES[expected.dtype]
    ours, theirs = found.double(), expected.double()
    good = _near(ours, theirs, relative, absolute)
    if exact is not None and exact.shape == theirs.shape:
        true = exact.double()
        rounded = true.to(expected.dtype).double()
        distance = (theirs - true).abs()
        error = distance[torch.isfinite(distance)].max() if bool(torch.isfinite(distance).any()) else 0.0
        good |= _near(ours, rounded, relative, absolute) | ((ours - true).abs() <= 2 * error)
    if not bool(good.all()):
        place = tuple(int(i) for i in torch.nonzero(~good)[0]) if good.ndim else ()
        raise Mismatch(f"{what} values differ: {ours[place].item():.9g}, expected {theirs[place].item():.9g}")


def _near(ours: torch.Tensor, theirs: torch.Tensor, relative: float, absolute: float) -> torch.Tensor:
    return torch.isclose(ours, theirs, rtol=relative, atol=absolute, equal_nan=True)


def compare(found: Any, expected: Any, exact: Any, what: str, *, values: bool) -> None:
    if isinstance(expected, torch.Tensor):
        if isinstance(found, (bool, int, float)):
            raise Mismatch(f"{what} a number, expected a tensor")
        if not isinstance(found, torch.Tensor):
            raise Mismatch(f"{what} {type(found).__name__}, expected a tensor")
        if values:
            _close(found, expected, exact if isinstance(exact, torch.Tensor) else None, what)
        elif found.shape != expected.shape or found.dtype != expected.dtype:
            raise Mismatch(
                f"{what} {found.dtype} {tuple(found.shape)}, expected {expected.dtype} {tuple(expected.shape)}"
            )
        return
    if isinstance(expected, (list, tuple)):
        if not isinstance(found, (list, tuple)) or len(found) != len(expected):
            raise Mismatch(
                f"{what} {len(found) if isinstance(found, (list, tuple)) else 'no'} results, not {len(expected)}"
            )
        truths = exact if isinstance(exact, (list, tuple)) and len(exact) == len(expected) else [None] * len(expected)
        for number, (f, e, t) in enumerate(zip(found, expected, truths, strict=True)):
            compare(f, e, t, f"{what} {number}", values=values)
        return
    if isinstance(expected, float) and isinstance(found, float):
        if not math.isclose(found, expected, rel_tol=1e-5) and not (math.isnan(found) and math.isnan(expected)):
            raise Mismatch(f"{what} {found}, expected {expected}")
        return
    if found != expected:
        raise Mismatch(f"{what} {found!r}, expected {expected!r}")


def _gradients(outputs: Any, inputs: list[torch.Tensor], weights: list[torch.Tensor]) -> list[Any] | None:
    """Return PyTorch's gradients; None if nothing is differentiable."""
    wanted = [t for t in leaves(outputs, torch.Tensor) if t.requires_grad]
    if not wanted or not inputs:
        return None
    cotangents = [w.to(t.dtype) for t, w in zip(wanted, weights, strict=False)]
    return list(torch.autograd.grad(wanted, inputs, cotangents, allow_unused=True))


def _weights(outputs: Any) -> list[torch.Tensor]:
    rng = np.random.default_rng(7)
    found = [t for t in leaves(outputs, torch.Tensor) if t.requires_grad]
    return [torch.from_numpy(np.asarray(rng.standard_normal(tuple(t.shape)))).to(t.dtype) for t in found]


def _compare_gradients(
    mine: Any, theirs: Any, truth: Any, ours_in: list[Any], theirs_in: list[Any], truth_in: list[Any]
) -> None:
    if not theirs_in:
        return
    weights = _weights(theirs)
    expected = _gradients(theirs, theirs_in, weights)
    if expected is None:
        return
    exact = _gradients(truth, truth_in, weights) if truth is not None else None
    needed = [t.requires_grad for t in leaves(theirs, torch.Tensor)]
    outputs = leaves(mine, vk.Tensor)
    if len(outputs) != len(needed):
        raise Mismatch("results that require a gradient differ in number")
    wanted = [t for t, need in zip(outputs, needed, strict=True) if need]
    if any(not t.requires_grad for t in wanted):
        raise Mismatch("a result doesn't require a gradient")
    cotangents = [
        vk.tensor(w.double().numpy(), dtype=t.dtype, device=t.device) for w, t in zip(weights, wanted, strict=True)
    ]
    found = vk.grad(wanted, ours_in, cotangents, allow_unused=True)
    for number, (f, e) in enumerate(zip(found, expected, strict=True)):
        if e is None or f is None:
            if (f is not None and bool(np.any(f._fetch()))) or (e is not None and bool(e.any())):
                raise Mismatch(
                    f"gradient {number}: {'none' if f is None else 'one'}, expected {'none' if e is None else 'one'}"
                )
            continue
        _close(to_torch(f), e, None if exact is None else exact[number], f"gradient {number}:")


def with_ties(name: str, found: Any, expected: Any, sample: Any) -> Any:
    """Return the result with PyTorch's indices where vkjit's select elements of equal values."""
    if isinstance(found, torch.Tensor) and (found.dtype is not torch.int64 or isinstance(sample.input, (list, tuple))):
        return found
    if isinstance(found, list):
        if len(found) != 2 or not isinstance(expected, (list, tuple)):
            return found
        return [found[0], with_ties(name, found[1], expected[1], sample)]
    numbers = [a for a in sample.args if type(a) is int][name in ("kthvalue", "topk") :]
    dim = sample.kwargs.get("dim", numbers[-1] if numbers else -1)
    source = sample.input.detach()
    if found.shape != expected.shape or not isinstance(dim, int) or not found.numel() or not source.ndim:
        return found
    if found.ndim < source.ndim:
        here, there = found.unsqueeze(dim), expected.unsqueeze(dim)
    else:
        here, there = found, expected
    if bool((here < 0).any()) or bool((here >= source.shape[dim]).any()):
        return found
    mine, theirs = source.gather(dim, here), source.gather(dim, there)
    return expected if torch.equal(mine.nan_to_num(7.0), theirs.nan_to_num(7.0)) else found


def run_sample(op: Any, sample: Any, device: Any, *, gradients: bool) -> str | None:
    """Compare one sample; return the reason if it is skipped. Raises Mismatch, or any error from vkjit."""
    function = function_of(op.name)
    if function is None:
        raise Mismatch("vkjit has no operation of that name")
    memo: dict[int, Any] = {}
    try:
        arguments = to_vkjit((sample.input, *sample.args), device, memo)
        named = keywords(sample.kwargs, device, memo)
    except Unsupported as error:
        return f"the sample has {error}"
    packed = ((sample.input, *sample.args), sample.kwargs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain_memo: dict[int, Any] = {}
        try:
            expected = _call(op.op, _copied(packed, None, plain_memo))
        except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError) as error:
            return f"PyTorch raises {type(error).__name__}"
        exact_memo: dict[int, Any] = {}
        try:
            exact = _call(op.op, _copied(packed, torch.float64, exact_memo))
        except Exception:  # noqa: BLE001  no result in f64: compare with PyTorch's own type only
            exact = None
    if any(t.is_complex() or t.layout is not torch.strided for t in leaves(expected, torch.Tensor)):
        return "the result is complex or sparse"
    with vk.use_device(device):
        mine = function(*arguments, **named)
    random = op.name in SHAPE_ONLY or sample.kwargs.get("dropout_p", 0) > 0
    found = to_torch(mine)
    if op.name in TIES:
        found = with_ties(op.name, found, expected, sample)
    compare(found, expected, exact, "result:", values=not random)
    tied = op.name in TIES and sample.input.unique().numel() < sample.input.numel()
    if gradients and not random and not tied:
        sources = [t for t in leaves(packed, torch.Tensor) if t.requires_grad and t.dtype.is_floating_point]
        unique = list({id(t): t for t in sources}.values())
        _compare_gradients(
            mine, expected, exact,
            [memo[id(t)] for t in unique], [plain_memo[id(t)] for t in unique],
            [exact_memo[id(t)] for t in unique] if exact is not None else [],
        )  # fmt: skip
    return None


def _call(function: Callable[..., Any], packed: Any) -> Any:
    args, kwargs = packed
    return function(*args, **kwargs)
