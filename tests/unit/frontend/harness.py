"""Helpers of the front-end tests: run device functions and kernels through front end, verifier and interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from vkjit import dtypes
from vkjit.backends.interp import run_module
from vkjit.frontend import ArrayArg, ConstArg, DeviceFunction, ScalarArg, Signature, describe, lower_kernel
from vkjit.ir.core import Module
from vkjit.ir.printer import print_module
from vkjit.ir.verify import verify

Argument = ArrayArg | ConstArg | ScalarArg


def argument_of(value: Any, kind: str) -> Argument:
    """Return the signature of one argument."""
    if kind == "const":
        return ConstArg(value)
    if isinstance(value, np.ndarray):
        return ArrayArg(dtypes.from_numpy(value.dtype), value.ndim, restrict=True)
    if isinstance(value, np.generic):
        return ScalarArg(dtypes.from_numpy(value.dtype))
    return ScalarArg(
        dtypes.boolean if isinstance(value, bool) else dtypes.i32 if isinstance(value, int) else dtypes.f32
    )


def lower(
    fn: Callable[..., Any], *args: Any, over: str | None = None, local: tuple[int, int, int] = (1, 1, 1)
) -> Module:
    """Lower a kernel for these arguments and return the verified module."""
    spec = describe(fn, over=over)
    signature = Signature(tuple(argument_of(a, p.kind) for a, p in zip(args, spec.params, strict=True)), local)
    module = lower_kernel(spec, signature)
    verify(module)
    return module


def run(
    fn: Callable[..., Any],
    *args: Any,
    groups: Any = None,
    over: str | None = None,
    local: tuple[int, int, int] = (1, 1, 1),
    **options: Any,
) -> list[str]:
    """Run a kernel on the interpreter, changing arrays in place, and return what it printed."""
    module = lower(fn, *args, over=over, local=local)
    if over is not None:
        array = args[describe(fn).position(over)]
        sizes = [*reversed(array.shape[-2:]), int(np.prod(array.shape[:-2]))][: max(1, min(3, array.ndim))]
        groups = tuple(-(-size // n) for size, n in zip(sizes, local, strict=False)) or 1
    values = [a for a, p in zip(args, describe(fn).params, strict=True) if p.kind != "const"]
    return run_module(module, 1 if groups is None else groups, values, **options)


def text(fn: Callable[..., Any], *args: Any, **options: Any) -> str:
    """Return the kernel's IR as text."""
    return print_module(lower(fn, *args, **options))


def apply(fn: Callable[..., Any], dtype: Any, *columns: Sequence[Any] | np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Apply a device function of one to three scalars to each row of the columns."""
    device = DeviceFunction(fn)
    arrays = [np.asarray(c) for c in columns]
    result = np.zeros(arrays[0].shape, dtype)
    kernel = {1: _kernel1, 2: _kernel2, 3: _kernel3}[len(arrays)]
    run(kernel(device), *arrays, result, over="y", local=(64, 1, 1))
    return result


def _kernel1(function: Any) -> Callable[..., Any]:
    def kernel(a, y):
        i = dtypes.index()[0]
        y[i] = function(a[i])

    return kernel


def _kernel2(function: Any) -> Callable[..., Any]:
    def kernel(a, b, y):
        i = dtypes.index()[0]
        y[i] = function(a[i], b[i])

    return kernel


def _kernel3(function: Any) -> Callable[..., Any]:
    def kernel(a, b, c, y):
        i = dtypes.index()[0]
        y[i] = function(a[i], b[i], c[i])

    return kernel
