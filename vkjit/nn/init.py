"""In-place initialization of parameters, with PyTorch's names, formulas and default bounds.

Each function fills its tensor without recording gradients and returns it; tensors on the device "meta", which have no
values, are returned unchanged. Random numbers are generated on the host from the stream seeded by `vk.manual_seed`, so
that a seed gives the same parameters on every device.
"""

from __future__ import annotations

import functools
import inspect
import math
import warnings
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from .. import dtypes
from ..errors import ArgumentError, DTypeError, ShapeError
from ..runtime.meta import META_KIND
from ..tensor.argument_errors import explain_all as _explain_all
from ..tensor.autograd.mode import no_grad
from ..tensor.ops import creation, random
from ..tensor.tensor import Tensor

__all__ = [
    "calculate_gain", "constant_", "dirac_", "eye_", "fan_in_and_out", "kaiming_normal_", "kaiming_uniform_", "normal_", "ones_",
    "orthogonal_", "sparse_", "trunc_normal_", "uniform_", "xavier_normal_", "xavier_uniform_", "zeros_",
]  # fmt: skip

# gains by nonlinearity, for calculate_gain
_GAINS = {
    "linear": 1.0, "conv1d": 1.0, "conv2d": 1.0, "conv3d": 1.0, "sigmoid": 1.0, "tanh": 5.0 / 3, "relu": math.sqrt(2.0),
    "selu": 0.75,
}  # fmt: skip


P = ParamSpec("P")
R = TypeVar("R")
_TYPES: dict[str, Any] = {
    "Tensor": Tensor,
    "float": int | float | np.number | np.bool_ | Tensor,
    "int": int | np.integer,
    "str": str,
}
_TYPES["float | None"] = _TYPES["float"] | None


def _checked(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function raise ArgumentError for arguments of other types than those of its annotations."""
    declared = {p.name: p.annotation for p in inspect.signature(function).parameters.values()}

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        for name, value in (*zip(declared, args, strict=False), *kwargs.items()):
            kind = declared.get(name)
            too_large = isinstance(value, int) and value.bit_length() > 1023
            if kind in _TYPES and (too_large or not isinstance(value, _TYPES[kind])):
                found = f"an integer of {value.bit_length()} bits" if too_large else f"a {type(value).__name__}"  # type: ignore[attr-defined]
                raise ArgumentError(f"{function.__name__}: {name} is a {kind}, found {found}")
        return function(*args, **kwargs)

    return run


def _generator() -> np.random.Generator:
    """Return a new NumPy generator, seeded with the next seed of the stream that `vk.manual_seed` starts."""
    return np.random.Generator(np.random.Philox(random.next_seed()))


def _random_type(tensor: Tensor, name: str) -> Any:
    """Return the NumPy type in which random values for a tensor are generated. Raises DTypeError for non-float
    tensors.
    """
    if not tensor.dtype.is_float:
        raise DTypeError(f"{name} fills float tensors, this one holds {tensor.dtype!r}")
    return np.float64 if tensor.dtype is dtypes.f64 else np.float32


def _is_meta(tensor: Tensor) -> bool:
    """True if the tensor is on the device "meta" and has no values to fill."""
    return tensor.device.caps.kind == META_KIND


def _is_empty(tensor: Tensor) -> bool:
    """True, with PyTorch's warning, if the tensor has no elements, whose fans may be 0."""
    if not tensor.numel():
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=3)
    return not tensor.numel()


def _write(tensor: Tensor, values: npt.NDArray[Any]) -> Tensor:
    """Copy host values into a tensor."""
    with no_grad():
        tensor.copy_(creation.upload(values, tensor.dtype, tensor.device))
    return tensor


@_checked
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0) -> Tensor:
    """Fill with numbers distributed uniformly in [a, b)."""
    if _is_meta(tensor):
        return tensor
    np_type = _random_type(tensor, "uniform_")
    return _write(tensor, _generator().random(tensor.shape, dtype=np_type) * np_type(b - a) + np_type(a))


@_checked
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    """Fill with normally distributed numbers of the given mean and standard deviation."""
    if std < 0:
        raise ArgumentError(f"normal_ takes a standard deviation of at least 0, found {std}")
    if _is_meta(tensor):
        return tensor
    np_type = _random_type(tensor, "normal_")
    return _write(tensor, _generator().standard_normal(tensor.shape, dtype=np_type) * np_type(std) + np_type(mean))


@_checked
def trunc_normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0) -> Tensor:
    """Fill with normally distributed numbers truncated to [a, b]; a and b are values, not multiples of std.

    Numbers outside are drawn again.
    """
    if not a < b:
        raise ArgumentError(f"trunc_normal_ needs a < b, found {a} and {b}")
    if std == 0:
        raise ArgumentError("trunc_normal_ needs a std above 0, found 0")
    # of a number within [a, b]: Phi((b - mean) / std) - Phi((a - mean) / std)
    probability = 0.5 * (math.erf((b - mean) / (std * math.sqrt(2))) - math.erf((a - mean) / (std * math.sqrt(2))))
    if probability < 1e-3:  # redrawing would take too long
        raise ArgumentError(
            f"[{a}, {b}] holds {probability:.1e} of a normal distribution of mean {mean} and deviation {std}: widen it"
        )
    if _is_meta(tensor):
        return tensor
    generator, np_type = _generator(), _random_type(tensor, "trunc_normal_")
    values = generator.standard_normal(tensor.shape) * std + mean
    while (outside := (values < a) | (values > b)).any():
        values = np.where(outside, generator.standard_normal(tensor.shape) * std + mean, values)
    return _write(tensor, values.astype(np_type))


@_checked
def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fill with the value `val`."""
    if _is_meta(tensor):
        return tensor
    with no_grad():
        tensor.fill_(val)
    return tensor


@_checked
def zeros_(tensor: Tensor) -> Tensor:
    """Fill with zeros."""
    return constant_(tensor, 0)


@_checked
def ones_(tensor: Tensor) -> Tensor:
    """Fill with ones."""
    return constant_(tensor, 1)


@_checked
def eye_(tensor: Tensor) -> Tensor:
    """Fill a matrix with the identity: ones on the diagonal, zeros elsewhere."""
    if tensor.ndim != 2:
        raise ShapeError(f"eye_ fills a matrix, found shape {tensor.shape}")
    if _is_meta(tensor):
        return tensor
    return _write(tensor, np.eye(tensor.shape[0], tensor.shape[1]))


@_checked
def fan_in_and_out(tensor: Tensor) -> tuple[int, int]:
    """Return (fan_in, fan_out) of a weight of shape (out, in, *kernel)."""
    if tensor.ndim < 2:
        raise ShapeError(f"a weight needs at least 2 axes (out, in, ...) to have fans, found shape {tensor.shape}")
    kernel_elements = math.prod(tensor.shape[2:])
    return tensor.shape[1] * kernel_elements, tensor.shape[0] * kernel_elements


@_checked
def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Return the gain that preserves variance through a nonlinearity; `param` is the negative slope of leaky_relu."""
    if nonlinearity == "leaky_relu":
        return math.sqrt(2.0 / (1 + (0.01 if param is None else param) ** 2))
    if nonlinearity not in _GAINS:
        raise ArgumentError(f"no gain for {nonlinearity!r}; there are: leaky_relu, {', '.join(_GAINS)}")
    return _GAINS[nonlinearity]


@_checked
def xavier_uniform_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Fill with numbers distributed uniformly in [-bound, bound) (Glorot and Bengio, 2010).

    bound = gain * sqrt(6 / (fan_in + fan_out)).
    """
    fans = fan_in_and_out(tensor)
    if _is_empty(tensor):
        return tensor
    bound = gain * math.sqrt(6.0 / sum(fans))
    return uniform_(tensor, -bound, bound)


@_checked
def xavier_normal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Fill with normal numbers of standard deviation gain * sqrt(2 / (fan_in + fan_out)) (Glorot and Bengio, 2010)."""
    fans = fan_in_and_out(tensor)
    return tensor if _is_empty(tensor) else normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(fans)))


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    """Return gain / sqrt(fan), the standard deviation of Kaiming initialization; 0 for a weight without elements."""
    if mode not in ("fan_in", "fan_out"):
        raise ArgumentError(f'mode is "fan_in" or "fan_out", found {mode!r}')
    fan = fan_in_and_out(tensor)[mode == "fan_out"]  # True is index 1
    return calculate_gain(nonlinearity, a) / math.sqrt(fan) if fan else 0.0


@_checked
def kaiming_uniform_(tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> Tensor:
    """Fill with numbers distributed uniformly in [-bound, bound), bound = gain * sqrt(3 / fan) (He et al., 2015).

    mode: the fan to use, "fan_in" or "fan_out". The gain is calculate_gain(nonlinearity, a); `a` is the negative slope
    of leaky_relu.
    """
    bound = math.sqrt(3.0) * _kaiming_std(tensor, a, mode, nonlinearity)
    return tensor if _is_empty(tensor) else uniform_(tensor, -bound, bound)


@_checked
def kaiming_normal_(tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> Tensor:
    """Fill with normal numbers of standard deviation gain / sqrt(fan) (He et al., 2015).

    mode: the fan to use, "fan_in" or "fan_out". The gain is calculate_gain(nonlinearity, a); `a` is the negative slope
    of leaky_relu.
    """
    std = _kaiming_std(tensor, a, mode, nonlinearity)
    return tensor if _is_empty(tensor) else normal_(tensor, 0.0, std)


@_checked
def orthogonal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Fill a weight with a random matrix whose rows are orthogonal and have the norm `gain`.

    The weight counts as a matrix of (size of the first axis, product of the other sizes). If it has more rows than
    columns, the columns are orthogonal instead.
    """
    if tensor.ndim < 2:
        raise ShapeError(f"orthogonal_ needs at least 2 axes, found shape {tensor.shape}")
    if _is_meta(tensor):
        return tensor
    np_type = _random_type(tensor, "orthogonal_")
    rows, columns = tensor.shape[0], math.prod(tensor.shape[1:])
    values = _generator().standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(values)
    q = q * np.sign(np.diag(r))  # makes the distribution uniform (Haar)
    return _write(tensor, (gain * (q.T if rows < columns else q)).reshape(tensor.shape).astype(np_type))


@_checked
def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01) -> Tensor:
    """Fill a matrix with normal numbers of standard deviation `std`, and set the fraction `sparsity` of each column to
    zero.
    """
    if tensor.ndim != 2 or not 0 <= sparsity <= 1:
        raise ShapeError(f"sparse_ fills a matrix with a share of zeros from 0 to 1, found {tensor.shape}, {sparsity}")
    np_type = _random_type(tensor, "sparse_")
    if _is_meta(tensor):
        return tensor
    generator, (rows, columns) = _generator(), tensor.shape
    values = generator.standard_normal((rows, columns)) * std
    zeros = math.ceil(sparsity * rows)
    for column in range(columns):
        values[generator.permutation(rows)[:zeros], column] = 0.0
    return _write(tensor, values.astype(np_type))


@_checked
def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Fill a convolution's weight (out, in / groups, *kernel) so that it copies input channels to output channels.

    In each group, output channel i is a copy of input channel i. Output channels without such an input are zero.
    """
    if tensor.ndim not in (3, 4, 5) or groups < 1 or tensor.shape[0] % groups:
        raise ShapeError(
            f"dirac_ fills weights of 3 to 5 axes whose first is a multiple of groups, found {tensor.shape}, {groups}"
        )
    if _is_meta(tensor) or not tensor.numel():
        return tensor
    values = np.zeros(tensor.shape, np.float32)
    per_group = tensor.shape[0] // groups
    center = tuple(size // 2 for size in tensor.shape[2:])
    for group in range(groups):
        for channel in range(min(per_group, tensor.shape[1])):
            index = (group * per_group + channel, channel, *center)
            values[index] = 1.0
    return _write(tensor, values)


_explain_all(globals(), __all__)
