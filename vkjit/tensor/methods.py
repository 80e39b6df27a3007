"""Install the public functions on `Tensor` as operators, methods and properties: `x.sum(0)`, `x + y`, `x[i]`, `x.mT`.

Some names are both functions of the kernel language and of tensors, such as `vk.exp` and `vk.max`. This module also
registers the tensor functions that these names stand for outside kernels.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from .. import dtypes, lang
from ..backends.selection import default_device
from ..lang import _stub
from . import dlpack, view_tracking
from .argument_errors import explain_errors
from .managed import make_managed
from .nn import softmax
from .ops import (
    arithmetic,
    compaction,
    copies,
    creation,
    cumulative,
    elementwise,
    flat_indexing,
    gather,
    indexing,
    inplace,
    inplace_copies,
    inplace_shapes,
    matmul,
    products,
    random,
    reductions,
    repetition,
    scatter,
    shapes,
    sorting,
    special,
    statistics,
    triangles,
    views,
)
from .outputs import with_out
from .tensor import Tensor

__all__ = ["install"]

# (module, names of its functions that become methods of the same name)
_METHODS: tuple[tuple[Any, str], ...] = (
    (
        elementwise,
        (
            "abs acos acosh asin asinh atan atanh bitwise_not ceil cos cosh elu erf erfc exp exp2 expm1 floor frac "
            "gelu isfinite isinf isnan leaky_relu log log10 log1p log2 logical_not neg positive reciprocal relu round "
            "rsqrt sigmoid sign silu sin sinh softplus sqrt square tan tanh trunc"
        ),
    ),
    (
        arithmetic,
        (
            "add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor clamp clip "
            "copysign div eq floor_divide fmax fmin fmod ge gt hypot isclose le lerp logical_and logical_or "
            "logical_xor lt masked_fill maximum minimum mul ne pow remainder sub true_divide xlogy"
        ),
    ),
    (
        views,
        (
            "broadcast_to chunk diagonal expand expand_as flatten flip moveaxis movedim narrow permute ravel reshape "
            "select split squeeze swapaxes swapdims t transpose unbind unflatten unsqueeze view view_as"
        ),
    ),
    (copies, "clone contiguous copy_ fill_ roll to zero_"),
    (repetition, "repeat repeat_interleave tile"),
    (
        reductions,
        ("all allclose amax amin any argmax argmin count_nonzero equal logsumexp max mean min norm prod std sum var"),
    ),
    (softmax, "softmax log_softmax"),
    (matmul, "addmm baddbmm bmm dot matmul mm mv outer trace"),
    (triangles, "tril triu"),
    (cumulative, "cummax cummin cumprod cumsum diff logcumsumexp"),
    (
        special,
        (
            "addcdiv addcmul clamp_max clamp_min deg2rad erfinv float_power gcd heaviside isneginf isposinf isreal lcm "
            "ldexp logaddexp logaddexp2 logit nan_to_num rad2deg sgn signbit sinc"
        ),
    ),
    (products, "addbmm addmv addr cross inner kron vdot"),
    (gather, "gather index_select take_along_dim"),
    (scatter, "index_add index_copy index_fill index_reduce scatter scatter_add scatter_reduce"),
    (flat_indexing, "index_put masked_scatter put take"),
    (compaction, "masked_select nonzero"),
    (
        shapes,
        (
            "argwhere diag diag_embed diagflat diagonal_scatter dsplit fliplr flipud hsplit reshape_as rot90 "
            "select_scatter slice_scatter split_with_sizes sum_to_size tensor_split unfold vsplit"
        ),
    ),
    (
        sorting,
        "argsort kthvalue median msort nanmedian nanquantile quantile sort topk",
    ),
    (
        statistics,
        "aminmax bincount dist histc nanmean nansum unique unique_consecutive",
    ),
)


def _flipped(function: Callable[..., Tensor]) -> Callable[[Tensor, Any], Tensor]:
    """Return the function with its operands exchanged, for `__radd__` and similar methods."""
    return lambda self, other: function(other, self)


def _operators() -> dict[str, Callable[..., Any]]:
    """Return the special methods for Python's operators, by method name."""
    a, e = arithmetic, elementwise
    forward: dict[str, Callable[..., Any]] = {
        "add": a.add,
        "sub": a.sub,
        "mul": a.mul,
        "truediv": a.true_divide,
        "floordiv": a.floor_divide,
        "mod": a.remainder,
        "pow": a.pow,
        "and": a.bitwise_and,
        "or": a.bitwise_or,
        "xor": a.bitwise_xor,
        "matmul": matmul.matmul,
        "lshift": a.bitwise_left_shift,
        "rshift": a.bitwise_right_shift,
    }
    operators: dict[str, Callable[..., Any]] = {
        "__neg__": e.neg,
        "__pos__": lambda self: self,
        "__abs__": e.abs,
        "__invert__": e.bitwise_not,
        "__eq__": a.eq,
        "__ne__": a.ne,
        "__lt__": a.lt,
        "__le__": a.le,
        "__gt__": a.gt,
        "__ge__": a.ge,
        "__getitem__": indexing.get_item,
        "__setitem__": indexing.set_item,
    }
    for name, function in forward.items():
        operators[f"__{name}__"] = function
        operators[f"__r{name}__"] = _flipped(function)
    for name in ("add", "sub", "mul", "pow", "floordiv", "mod", "truediv"):
        method = {"floordiv": "floor_divide_", "mod": "remainder_", "truediv": "div_"}.get(name, f"{name}_")
        operators[f"__i{name}__"] = inplace.METHODS[method]
    return operators


def _iterate(self: Tensor) -> Any:
    """Iterate over the slices along the first axis."""
    if self.ndim == 0:
        raise TypeError("a 0-d tensor can't be iterated over")
    return iter(views.unbind(self, 0))


def _converted(dtype: dtypes.DType) -> Callable[[Tensor], Tensor]:
    """Make the method that converts a tensor to `dtype`, such as `x.float()`."""

    def method(self: Tensor) -> Tensor:
        return copies.to(self, dtype)

    method.__doc__ = f"Convert to {dtype!r}."
    return method


# methods that convert to an element type
_CONVERSIONS = {
    "float": dtypes.f32,
    "double": dtypes.f64,
    "half": dtypes.f16,
    "bfloat16": dtypes.bf16,
    "int": dtypes.i32,
    "long": dtypes.i64,
    "short": dtypes.i16,
    "bool": dtypes.boolean,
    "byte": dtypes.u8,
    "char": dtypes.i8,
}


def _new(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Make a method such as `x.new_zeros(2, 3)`, which calls `function` with x's type and device as defaults."""

    def method(self: Tensor, *args: Any, **options: Any) -> Tensor:
        return function(*args, **{"dtype": self.dtype, "device": self.device, **options})

    method.__doc__ = f"`{function.__name__}` with this tensor's type and device as defaults."
    return method


def uniform_(self: Tensor, low: float = 0.0, high: float = 1.0, *, generator: Any = None) -> Tensor:
    """Fill with samples from the uniform distribution over [low, high), in place."""
    drawn = creation.empty(self.shape, dtype=random._float_type(self.dtype), device=self.device)
    start = random.start(drawn.numel(), drawn.device, generator)
    return copies.copy_(self, random.fill_uniform(drawn, low, high, start))


def normal_(self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> Tensor:
    """Fill with samples from the normal distribution, in place."""
    random.check_deviation(std, "normal_")
    drawn = creation.empty(self.shape, dtype=random._float_type(self.dtype), device=self.device)
    start = random.start(drawn.numel(), drawn.device, generator)
    return copies.copy_(self, random.fill_normal(drawn, mean, std, start))


def bernoulli_(self: Tensor, p: Any = 0.5, *, generator: Any = None) -> Tensor:
    """Fill with samples that are 1 with probability `p`, else 0, in place; `p` is a number or a tensor."""
    return copies.copy_(self, random.bernoulli(self.detach(), p, generator=generator))


def manage(self: Tensor, data: Any) -> None:
    """Turn a newly created tensor object into a managed tensor (see `managed`) with a copy of `data`.

    `data` is a number, nested lists, a NumPy array or a tensor.
    """
    make_managed(self, creation.tensor(data, device=default_device()).contiguous()._array)


NAMED: dict[str, Callable[..., Any]] = {
    **view_tracking.METHODS,
    **dlpack.METHODS,
    **inplace_shapes.METHODS,
    **inplace_copies.METHODS,
    **inplace.METHODS,
    "_manage": manage,
}
"""Methods whose name isn't that of a public function, by method name."""


def install() -> None:
    """Install the operators and methods on `Tensor`; called once, by `api`."""
    for module, names in _METHODS:
        for name in names.split():
            setattr(Tensor, name, explain_errors(getattr(module, name)))
    for name, function in {**_operators(), **NAMED}.items():
        setattr(Tensor, name, function if name in inplace.METHODS else explain_errors(function, name))
    for name, dtype in _CONVERSIONS.items():
        setattr(Tensor, name, _converted(dtype))
    for name in ("zeros", "ones", "empty", "full", "tensor"):
        setattr(Tensor, f"new_{name}", _new(getattr(creation, name)))
    for name in (
        "backward",
        "register_hook",
        "requires_grad_",
        "shares_memory_with",
        "stride",
        "to_device",
        "__array__",
    ):
        setattr(Tensor, name, explain_errors(getattr(Tensor, name), name))
    extra: dict[str, Any] = {
        "__iter__": _iterate,
        "__hash__": lambda self: id(self),
        "where": lambda self, condition, other: arithmetic.where(condition, self, other),
        "T": property(views.t),
        "mT": property(views.mT),
        "uniform_": uniform_,
        "normal_": normal_,
        "bernoulli_": bernoulli_,
        "bernoulli": random.bernoulli,
        "type_as": lambda self, other: copies.to(self, other.dtype),
    }
    for name, value in extra.items():
        setattr(Tensor, name, explain_errors(value, name) if inspect.isfunction(value) else value)
    register_shared_names()


def register_shared_names() -> None:
    """Register the tensor functions that run when a function of the kernel language is called on the host.

    A name such as `vk.exp` is bound to a stub in `vkjit.lang`, which forwards host calls to the registered function.
    """
    for module in (elementwise, arithmetic, reductions, random, views, copies, matmul, creation):
        for name in module.__all__:
            stub = getattr(lang, name, None)
            if stub is not None:
                _stub.register_host(stub, explain_errors(with_out(name, getattr(module, name))))
