"""The Python array API standard (2024.12) for `vk.Tensor`: `xp = x.__array_namespace__()`.

The functions are thin wrappers of `vkjit.tensor.ops`. Where PyTorch differs from the standard (sums of unsigned
integers, argument names, order of results), this namespace follows the standard, while `vkjit` itself follows PyTorch.
The standard's extensions `linalg` and `fft` and complex types aren't provided.
"""

from __future__ import annotations

import math

from ..dtypes import (
    boolean as bool,
    f32 as float32,
    f64 as float64,
    i8 as int8,
    i16 as int16,
    i32 as int32,
    i64 as int64,
    u8 as uint8,
    u16 as uint16,
    u32 as uint32,
    u64 as uint64,
)
from ..tensor import api as _api  # noqa: F401  # installs the methods of tensors
from .creation import (
    arange,
    asarray,
    empty,
    empty_like,
    eye,
    from_dlpack,
    full,
    full_like,
    linspace,
    meshgrid,
    ones,
    ones_like,
    tril,
    triu,
    zeros,
    zeros_like,
)
from .elementwise import *  # noqa: F403  # each module lists the standard's names
from .manipulation import *  # noqa: F403
from .reducing import *  # noqa: F403
from .types import __array_namespace_info__, astype, can_cast, finfo, iinfo, isdtype, result_type

__array_api_version__ = "2024.12"

e, pi, inf, nan, newaxis = math.e, math.pi, math.inf, math.nan, None

__all__ = [
    "__array_api_version__", "__array_namespace_info__", "arange", "asarray", "astype", "bool", "can_cast", "e", "empty",
    "empty_like", "eye", "finfo", "float32", "float64", "from_dlpack", "full", "full_like", "iinfo", "inf", "int8", "int16",
    "int32", "int64", "isdtype", "linspace", "meshgrid", "nan", "newaxis", "ones", "ones_like", "pi", "result_type", "tril",
    "triu", "uint8", "uint16", "uint32", "uint64", "zeros", "zeros_like",
]  # fmt: skip
