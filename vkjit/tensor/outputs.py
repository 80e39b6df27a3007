"""The `out=` keyword: store a function's result in existing tensors, as in PyTorch.

`out` is a tensor, or a tuple of tensors for functions with several results. The result is computed first and then
copied, so `out` may share memory with any operand. An `out` without elements takes the result's shape and new memory;
any other must have the result's shape. The sets of names below say which dtype `out` may have.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from ..errors import ArgumentError, DTypeError, ShapeError
from ..stdlib.elementwise import functions
from .autograd.mode import state
from .autograd.tape import GradMeta
from .dispatch import OPERATIONS, handle_out
from .ops import elementwise_launch
from .promotion import category
from .tensor import Tensor
from .view_tracking import shares_recorded_memory

__all__ = ["NAMES", "with_out", "write"]

_CONVERTED = (
    "acos acosh add addcdiv addcmul asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_or "
    "bitwise_right_shift bitwise_xor cat clamp clamp_max clamp_min clip column_stack concat concatenate copysign cos "
    "cosh deg2rad div dstack entr eq erf erfc erfinv exp exp2 expit expm1 floor_divide fmax fmin fmod gcd ge gt "
    "hstack hypot lcm ldexp le log log10 log1p log2 logaddexp logaddexp2 logical_and logical_not logical_or "
    "logical_xor logit lt maximum minimum mul ndtr ne pow rad2deg reciprocal remainder rsqrt sigmoid sin sinc sinh "
    "sqrt square stack std sub tan tanh true_divide var vstack xlog1py xlogy"
)
CONVERTED = frozenset(_CONVERTED.split())
"""Functions whose result is converted to the dtype of `out`.

That dtype must be of the result's category (bool < integer < float, see `promotion.category`) or a higher one.
"""

_TYPED = "cumprod cumsum mean nanmean nansum prod sum"
TYPED = frozenset(_TYPED.split())
"""Functions that compute in the dtype of `out`."""

_CREATING = "arange empty eye full linspace logspace ones rand randint randn randperm zeros"
CREATING = frozenset(_CREATING.split())
"""Functions that create a tensor with the dtype of `out`."""

_EXACT = (
    "abs addbmm addmm addmv addr all amax amin aminmax any argmax argmin baddbmm bernoulli bitwise_not bmm bucketize "
    "ceil cross cummax cummin diag diff dot float_power floor frac gather heaviside histc index_add index_copy "
    "index_reduce index_select inner isin isneginf isposinf kron kthvalue lerp log_softmax logcumsumexp logsumexp "
    "masked_select matmul matrix_norm matrix_power max median min mm msort multi_dot mv nan_to_num nanmedian "
    "nanquantile neg nonzero norm normal outer quantile round scatter scatter_add scatter_reduce searchsorted sgn "
    "sign signbit softmax sort take take_along_dim tensordot topk tril triu trunc vdot vecdot vector_norm where"
)
EXACT = frozenset(_EXACT.split())
"""Functions whose `out` must have the result's dtype."""

NAMES = CONVERTED | TYPED | CREATING | EXACT
"""All functions that accept `out`."""


def with_out(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the public function `name` with the keyword `out` added.

    A function that takes no `out`, or is an operation (`dispatch.operation` handles the keyword), is returned
    unchanged.
    """
    if name not in NAMES or OPERATIONS.get(name) is function:
        return function

    @functools.wraps(function)
    def run(*args: Any, out: Any = None, **params: Any) -> Any:
        return function(*args, **params) if out is None else write(name, function, args, params, out)

    signature = inspect.signature(function)
    option = inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=None)
    parameters = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    run.__signature__ = signature.replace(parameters=[*parameters, option])  # type: ignore[attr-defined]
    return run


def _run_into(name: str, run: Callable[..., Any], operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """Run an operation called with `out=`; `dispatch` calls this function."""
    if name not in NAMES:
        raise ArgumentError(f"{name}() takes no out=: assign its result")
    other_params = {key: value for key, value in params.items() if key != "out"}
    out = params["out"]
    return run(*operands, **other_params) if out is None else write(name, run, operands, other_params, out)


handle_out(_run_into)


def write(name: str, call: Callable[..., Any], args: tuple[Any, ...], params: dict[str, Any], out: Any) -> Any:
    """Store the result of call(*args, **params) in `out` and return `out`.

    Raises ArgumentError if gradients would be recorded, devices differ, or elements of `out` overlap in memory;
    ShapeError and DTypeError if the result doesn't fit.
    """
    targets = tuple(out) if isinstance(out, (tuple, list)) else (out,)
    if not targets or not all(isinstance(t, Tensor) for t in targets):
        types = ", ".join(type(t).__name__ for t in targets) or "an empty sequence"
        raise ArgumentError(f"{name}(out=...) takes a tensor, or a tuple of them for several results, found {types}")
    given = [*_tensors(args), *_tensors(tuple(params.values()))]
    if state.enabled and (
        any(t.requires_grad for t in (*given, *targets)) or any(map(shares_recorded_memory, targets))
    ):
        raise ArgumentError(
            f"{name}(out=...) isn't recorded, and a tensor here requires a gradient: leave out= away, or write it inside "
            "`with vk.no_grad():`"
        )
    result = call(*args, **_params_for_out(name, args, params, targets[0]))
    results = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    if len(results) != len(targets):
        raise ArgumentError(f"{name}() has {len(results)} results, out= has {len(targets)} tensors: give one for each")
    for produced, target in zip(results, targets, strict=True):
        _check(name, produced, target)
    if len({id(t.memory_key) for t in targets}) < len(targets):
        raise ArgumentError(f"{name}(out=...): the tensors of out share memory, so one result would go over another")
    for produced, target in zip(results, targets, strict=True):
        _store(produced, target, given)
    if not isinstance(result, (tuple, list)):
        return targets[0]
    return type(result)(*targets) if hasattr(result, "_fields") else targets


def _tensors(values: Any) -> Iterator[Tensor]:
    """Yield the tensors in (nested) sequences."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from _tensors(value)


def _params_for_out(name: str, args: tuple[Any, ...], params: dict[str, Any], target: Tensor) -> dict[str, Any]:
    """Return `params` for a function called with `out`, which is `target`.

    The dtype of `out` is added for functions that compute in it, the dtype and the device for functions that create a
    tensor.
    """
    if name in CREATING:
        return {"dtype": target.dtype, "device": target.device, **params}
    if name not in TYPED or params.get("dtype") is not None or not isinstance(args[0] if args else None, Tensor):
        return params
    if category(args[0].dtype) > category(target.dtype):
        raise DTypeError(f"{name}(out=...): results of {args[0].dtype!r} can't be held by a tensor of {target.dtype!r}")
    return {**params, "dtype": target.dtype}


def _check(name: str, produced: Tensor, target: Tensor) -> None:
    """Raise ArgumentError, DTypeError or ShapeError if a result can't be stored in `target`."""
    if produced.device is not target.device:
        raise ArgumentError(
            f"{name}(out=...): the result is on {produced.device.name}, out on {target.device.name}: expected one device"
        )
    converts = name in CONVERTED and category(produced.dtype) <= category(target.dtype)
    if produced.dtype is not target.dtype and not converts:
        allowed = "a type that can hold it" if name in CONVERTED else "the same type"
        raise DTypeError(
            f"{name}(out=...): the result is of {produced.dtype!r}, out of {target.dtype!r}: expected {allowed}"
        )
    if produced.shape != target.shape and target.numel():
        raise ShapeError(
            f"{name}(out=...): the result has shape {produced.shape}, out {target.shape}: expected the same shape, or a tensor "
            "without elements, which takes any"
        )
    if produced.shape == target.shape:
        elementwise_launch.refuse_overlap(target)


def _store(produced: Tensor, target: Tensor, given: list[Tensor]) -> None:
    """Store a result in `target`: copy the values, or if the shapes differ, give `target` the result's memory.

    The shapes differ only if `target` has no elements (see `_check`). A result that shares memory with one of the
    tensors `given`, the operands, is copied to new memory first, since `target` must not become a view of an operand.
    """
    if produced.shape == target.shape:
        elementwise_launch.write_map(functions.identity, (produced,), target, target.dtype)
        target.bump_version()
        return
    stored = produced.to(target.dtype)
    if not stored.is_contiguous() or any(stored.shares_memory_with(t) for t in given):
        stored = stored.clone()
    # Turn the object `target` into a tensor that owns the memory of `stored`: replace all attributes that
    # `Tensor.__init__` sets. Only whether it requires a gradient is kept.
    target._array = stored._array
    target._version = stored._version
    target._history = stored._history
    target._is_view = False
    target._root = None
    target.meta = GradMeta(stored.shape, stored.dtype, stored.device, requires_grad=target.meta.requires_grad)
