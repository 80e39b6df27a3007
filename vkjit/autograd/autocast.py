"""Mixed precision: inside `autocast` products are computed with 16-bit floats, what needs precision in f32.

Enters: operands of operations, by name. Leaves: the same operands, f32 tensors among them converted for products, 16-bit ones
for sums of exponentials, losses and norms. Conversions are recorded, so gradients arrive in the type of each tensor.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from .. import dtypes
from ..dtypes import DType
from ..errors import DTypeError
from .mode import state

__all__ = ["PRECISE", "PRODUCTS", "autocast", "converted"]

F = TypeVar("F", bound=Callable[..., Any])

PRODUCTS = frozenset({"attention", "convolution", "linear", "matmul"})
"""Operations that are computed with 16-bit floats: their sums are kept in f32 all the same."""

PRECISE = frozenset({
    "batch_norm", "cross_entropy", "cross_entropy_mean", "ctc", "cumsum", "exp", "expm1", "group_norm", "layer_norm", "log",
    "log10", "log1p", "log2", "log_softmax", "logsumexp", "mean", "nll", "norm2", "pow", "prod", "reciprocal", "rsqrt",
    "softmax", "squared_difference", "sum", "var",
})  # fmt: skip
"""Operations that are computed in f32."""


class autocast:  # noqa: N801  # PyTorch's name
    """Context manager and decorator: `with vk.autocast(vk.bf16): loss = ...`; call backward() outside of it.

    dtype: vk.f16 or vk.bf16 (default). With f16 scale the loss by `vk.optim.GradScaler`, whose range it lacks. Parameters stay f32.
    device_type: the type, or the name of a kind of device as PyTorch takes it, which changes nothing: it holds on every device.
    """

    def __init__(
        self, device_type: DType | str | None = None, dtype: DType | None = None, enabled: bool = True
    ) -> None:
        if dtype is None:
            dtype = dtypes.bf16 if device_type is None or isinstance(device_type, str) else device_type
        elif device_type is not None and not isinstance(device_type, str):
            raise DTypeError(f"autocast takes one type, found {device_type!r} and dtype={dtype!r}")
        if dtype not in (dtypes.f16, dtypes.bf16):
            raise DTypeError(f"autocast computes products in f16 or bf16, found {dtype!r}")
        self._dtype = dtype if enabled else None
        self._saved: list[DType | None] = []

    def __enter__(self) -> None:
        self._saved.append(state.autocast)
        state.autocast = self._dtype

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        state.autocast = self._saved.pop()

    def __call__(self, function: F) -> F:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with autocast(self._dtype, enabled=self._dtype is not None):
                return function(*args, **kwargs)

        return wrapped  # type: ignore[return-value]  # the wrapped function keeps the signature


def converted(name: str, operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """The operands of an operation as the type of this thread's autocast wants them."""
    dtype = state.autocast
    source: Any
    target: Any
    if name in PRODUCTS:
        source, target = dtypes.f32, dtype
    elif name in PRECISE:
        source, target = dtype, dtypes.f32
    else:
        return _joined(operands, dtype)
    return tuple(v.to(target) if getattr(v, "dtype", None) is source and hasattr(v, "meta") else v for v in operands)


def _joined(operands: tuple[Any, ...], dtype: DType | None) -> tuple[Any, ...]:
    """Other operations take one type: operands of both are widened."""
    kinds = {v.dtype for v in operands if hasattr(v, "meta")}
    if dtype not in kinds or dtypes.f32 not in kinds:
        return operands
    return tuple(v.to(dtypes.f32) if hasattr(v, "meta") and v.dtype is dtype else v for v in operands)
