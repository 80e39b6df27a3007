"""Mixed precision: `autocast` runs matrix products in a 16-bit float type, precision-sensitive operations in f32.

`vkjit.tensor.dispatch` passes the operands of every operation through `convert_operands`, which selects the conversion
by the operation's name. Conversions are recorded on the autograd tape, so each tensor's gradient has the tensor's own
type. In this module, an object with the attribute `meta` is a tensor.
"""

from __future__ import annotations

import functools
from typing import Any

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.errors import DTypeError

from ...runtime.open_blocks import ReentrantBlock
from .mode import state, while_changed

__all__ = ["PRECISE", "PRODUCTS", "autocast", "convert_operands"]

PRODUCTS = frozenset({"attention", "convolution", "linear", "matmul"})
"""Names of operations that run in the 16-bit type; they accumulate in f32."""

PRECISE = frozenset({
    "batch_norm", "cross_entropy", "cross_entropy_mean", "ctc", "cumsum", "exp", "expm1", "group_norm", "layer_norm", "log",
    "log10", "log1p", "log2", "log_softmax", "logsumexp", "mean", "nll", "norm2", "pow", "prod", "reciprocal", "rsqrt",
    "softmax", "squared_difference", "sum", "var",
})  # fmt: skip
"""Names of operations that run in f32."""


class autocast(ReentrantBlock[None]):  # noqa: N801  # PyTorch's name
    """Context manager and decorator that enables mixed precision: `with vk.autocast(vk.bf16): loss = ...`.

    Call backward() after the block. `dtype` is vk.f16 or vk.bf16 (default). With f16, scale the loss with
    `vk.optim.GradScaler`, since f16 has a small exponent range. Parameters stay f32. The first argument may be the
    dtype, or the name of a device type as in PyTorch; the name is ignored, since autocast applies to all devices.
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
        super().__init__(functools.partial(while_changed, autocast=dtype if enabled else None))


def convert_operands(name: str, operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the operands of operation `name`, with tensors converted to the type that autocast requires here.

    Only tensors of f32 and of the 16-bit type are converted.
    """
    dtype = state.autocast
    source: Any
    target: Any
    if name in PRODUCTS:
        source, target = dtypes.f32, dtype
    elif name in PRECISE:
        source, target = dtype, dtypes.f32
    else:
        return _combined(operands, dtype)
    return tuple(v.to(target) if getattr(v, "dtype", None) is source and hasattr(v, "meta") else v for v in operands)


def _combined(operands: tuple[Any, ...], dtype: DType | None) -> tuple[Any, ...]:
    """Return the operands of an operation that is neither in `PRODUCTS` nor in `PRECISE`.

    If tensors of f32 and of `dtype`, the 16-bit type, are among them, the latter are converted to f32.
    """
    tensor_types = {v.dtype for v in operands if hasattr(v, "meta")}
    if dtype not in tensor_types or dtypes.f32 not in tensor_types:
        return operands
    return tuple(v.to(dtypes.f32) if hasattr(v, "meta") and v.dtype is dtype else v for v in operands)
