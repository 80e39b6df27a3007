"""The methods of `Tensor` for type checkers; written by `python -m tools.tensor_stubs`. Do not edit."""

import builtins
from collections.abc import Iterator, Sequence
from typing import Any

from .tensor import Tensor

class TensorMethods:
    """Methods that `methods.install` adds to `Tensor`."""

    def __dlpack__(self, *, stream: Any = None, max_version: builtins.tuple[builtins.int, builtins.int] | None = None, dl_device: builtins.tuple[builtins.int, builtins.int] | None = None, copy: builtins.bool | None = None) -> Any:
        """Return a DLPack capsule, for `numpy.from_dlpack`, `torch.from_dlpack` and similar functions."""

    def __dlpack_device__(self) -> builtins.tuple[builtins.int, builtins.int]:
        """Return the DLPack device: (1, 0), the CPU, if the memory is host-visible, else (7, index), Vulkan."""

    def _follow_if_possible(self) -> None:
        """Call `follow` if `can_follow` says that it will succeed, else do nothing."""

    def _manage(self, data: Any) -> None:
        """Turn a newly created tensor object into a managed tensor (see `managed`) with a copy of `data`."""

    def abs(self) -> Tensor:
        """Return the absolute value, elementwise; unsigned integers are copied."""

    def abs_(self) -> Tensor:
        """In-place version of `abs`."""

    def acos(self) -> Tensor:
        """Return the arc cosine in radians, elementwise; integers give f32."""

    def acos_(self) -> Tensor:
        """In-place version of `acos`."""

    def acosh(self) -> Tensor:
        """Return the inverse hyperbolic cosine, elementwise; integers give f32."""

    def acosh_(self) -> Tensor:
        """In-place version of `acosh`."""

    def add(self, b: Any, *, alpha: builtins.float = 1) -> Tensor:
        """Return a + alpha * b."""

    def add_(self, other: Any, *, alpha: builtins.float = 1) -> Tensor:
        """In-place version of `add`."""

    def addbmm(self, a: Tensor, b: Tensor, *, beta: builtins.float = 1, alpha: builtins.float = 1) -> Tensor:
        """Return beta * c + alpha * (the sum of the matrix products a[i] @ b[i]), for a (B, M, K) and b (B, K, N)."""

    def addbmm_(self, a: Tensor, b: Tensor, *, beta: builtins.float = 1, alpha: builtins.float = 1) -> Tensor:
        """In-place version of `addbmm`."""

    def addcdiv(self, tensor1: Any, tensor2: Any, *, value: builtins.float = 1) -> Tensor:
        """Return x + value * tensor1 / tensor2. Raises DTypeError for integers."""

    def addcdiv_(self, tensor1: Any, tensor2: Any, *, value: builtins.float = 1) -> Tensor:
        """In-place version of `addcdiv`."""

    def addcmul(self, tensor1: Any, tensor2: Any, *, value: builtins.float = 1) -> Tensor:
        """Return x + value * tensor1 * tensor2."""

    def addcmul_(self, tensor1: Any, tensor2: Any, *, value: builtins.float = 1) -> Tensor:
        """In-place version of `addcmul`."""

    def addmm(self, a: Tensor, b: Tensor, *, beta: builtins.float = 1, alpha: builtins.float = 1) -> Tensor:
        """Return beta * c + alpha * (a @ b); c broadcasts. With beta=0, c isn't read."""

    def addmm_(self, a: Tensor, b: Tensor, *, beta: builtins.float = 1, alpha: builtins.float = 1) -> Tensor:
        """In-place version of `addmm`."""

    def addmv(self, a: Tensor, x: Tensor, *, beta: builtins.float = 1, alpha: builtins.float = 1) -> Tensor:
        """Return beta * c + alpha * (a @ x) for a matrix a and a vector x."""

    def addmv_(self, a: Tensor, x: Tensor, *, beta: builtins.float = 1, alpha: builtins.float = 1) -> Tensor:
        """In-place version of `addmv`."""

    def addr(self, a: Tensor, b: Tensor, *, beta: builtins.float = 1, alpha: builtins.float = 1) -> Tensor:
        """Return beta * c + alpha * outer(a, b) for vectors a and b."""

    def addr_(self, a: Tensor, b: Tensor, *, beta: builtins.float = 1, alpha: builtins.float = 1) -> Tensor:
        """In-place version of `addr`."""

    def all(self, dim: builtins.int | Sequence[builtins.int] | None = None, keepdim: builtins.bool = False) -> Tensor:
        """Return a bool tensor that is True where all elements along the axes are nonzero."""

    def allclose(self, b: Tensor, rtol: builtins.float = 1e-05, atol: builtins.float = 1e-08, equal_nan: builtins.bool = False) -> builtins.bool:
        """Return True if all elements of a and b are close (see `isclose`); waits for the device."""

    def amax(self, dim: builtins.int | Sequence[builtins.int] | None = None, keepdim: builtins.bool = False) -> Tensor:
        """Return the maximum over axes; NaN propagates."""

    def amin(self, dim: builtins.int | Sequence[builtins.int] | None = None, keepdim: builtins.bool = False) -> Tensor:
        """Return the minimum over axes; NaN propagates."""

    def aminmax(self, *, dim: builtins.int | None = None, keepdim: builtins.bool = False) -> builtins.tuple[Tensor, Tensor]:
        """Return the minimum and the maximum, of all elements or along an axis."""

    def any(self, dim: builtins.int | Sequence[builtins.int] | None = None, keepdim: builtins.bool = False) -> Tensor:
        """Return a bool tensor that is True where any element along the axes is nonzero."""

    def argmax(self, dim: builtins.int | None = None, keepdim: builtins.bool = False) -> Tensor:
        """Return the index (i64) of the maximum, along an axis or in the flattened tensor."""

    def argmin(self, dim: builtins.int | None = None, keepdim: builtins.bool = False) -> Tensor:
        """Return the index (i64) of the minimum, along an axis or in the flattened tensor."""

    def argsort(self, dim: builtins.int = -1, descending: builtins.bool = False, stable: builtins.bool = True) -> Tensor:
        """Return the indices that sort x along an axis."""

    def argwhere(self) -> Tensor:
        """Return the indices of nonzero elements, one row each; waits for the device."""

    def asin(self) -> Tensor:
        """Return the arc sine in radians, elementwise; integers give f32."""

    def asin_(self) -> Tensor:
        """In-place version of `asin`."""

    def asinh(self) -> Tensor:
        """Return the inverse hyperbolic sine, elementwise; integers give f32."""

    def asinh_(self) -> Tensor:
        """In-place version of `asinh`."""

    def atan(self) -> Tensor:
        """Return the arc tangent in radians, elementwise; integers give f32."""

    def atan2(self, b: Any) -> Tensor:
        """Return the angle of the point (b, a) in radians, elementwise."""

    def atan2_(self, b: Any) -> Tensor:
        """In-place version of `atan2`."""

    def atan_(self) -> Tensor:
        """In-place version of `atan`."""

    def atanh(self) -> Tensor:
        """Return the inverse hyperbolic tangent, elementwise; integers give f32."""

    def atanh_(self) -> Tensor:
        """In-place version of `atanh`."""

    def baddbmm(self, a: Tensor, b: Tensor, *, beta: builtins.float = 1, alpha: builtins.float = 1) -> Tensor:
        """Return beta * c + alpha * (a @ b); c broadcasts. With beta=0, c isn't read."""

    def baddbmm_(self, a: Tensor, b: Tensor, *, beta: builtins.float = 1, alpha: builtins.float = 1) -> Tensor:
        """In-place version of `baddbmm`."""

    def bfloat16(self) -> Tensor:
        """Convert to vk.bf16."""

    def bincount(self, weights: Tensor | None = None, minlength: builtins.int = 0) -> Tensor:
        """Return how often each non-negative integer occurs in a vector."""

    def bitwise_and(self, b: Any) -> Tensor:
        """Return a & b, bitwise; a scalar may be any pattern of the type's bits, as in u8 & ~3."""

    def bitwise_and_(self, b: Any) -> Tensor:
        """In-place version of `bitwise_and`."""

    def bitwise_left_shift(self, b: Any) -> Tensor:
        """Return a << b, bitwise; a negative b, or b >= the bit width, shifts out all bits, as in PyTorch."""

    def bitwise_left_shift_(self, b: Any) -> Tensor:
        """In-place version of `bitwise_left_shift`."""

    def bitwise_not(self) -> Tensor:
        """Return the bitwise complement of integers, or the logical negation of bool, elementwise."""

    def bitwise_not_(self) -> Tensor:
        """In-place version of `bitwise_not`."""

    def bitwise_or(self, b: Any) -> Tensor:
        """Return a | b, bitwise; a scalar may be any pattern of the type's bits, as in u8 & ~3."""

    def bitwise_or_(self, b: Any) -> Tensor:
        """In-place version of `bitwise_or`."""

    def bitwise_right_shift(self, b: Any) -> Tensor:
        """Return a >> b, bitwise; a negative b, or b >= the bit width, shifts out all bits, as in PyTorch."""

    def bitwise_right_shift_(self, b: Any) -> Tensor:
        """In-place version of `bitwise_right_shift`."""

    def bitwise_xor(self, b: Any) -> Tensor:
        """Return a ^ b, bitwise; a scalar may be any pattern of the type's bits, as in u8 & ~3."""

    def bitwise_xor_(self, b: Any) -> Tensor:
        """In-place version of `bitwise_xor`."""

    def bmm(self, b: Tensor) -> Tensor:
        """Return the batched product of two tensors of matrices, (B, M, K) and (B, K, N), without broadcasting."""

    def bool(self) -> Tensor:
        """Convert to vk.boolean."""

    def broadcast_to(self, shape: Sequence[builtins.int]) -> Tensor:
        """Return x broadcast to the given shape, as a view."""

    def byte(self) -> Tensor:
        """Convert to vk.u8."""

    def ceil(self) -> Tensor:
        """Return the least integral value not below x, elementwise, in x's type."""

    def ceil_(self) -> Tensor:
        """In-place version of `ceil`."""

    def char(self) -> Tensor:
        """Convert to vk.i8."""

    def chunk(self, chunks: builtins.int, dim: builtins.int = 0) -> builtins.tuple[Tensor, ...]:
        """Split an axis into at most `chunks` equal parts (the last may be smaller)."""

    def clamp(self, min: Any = None, max: Any = None) -> Tensor:
        """Return x limited to the range [min, max]; None means no bound. NaN stays NaN."""

    def clamp_(self, min: Any = None, max: Any = None) -> Tensor:
        """In-place version of `clamp`."""

    def clamp_max(self, max: Any) -> Tensor:
        """Return x limited to at most `max`."""

    def clamp_max_(self, max: Any) -> Tensor:
        """In-place version of `clamp_max`."""

    def clamp_min(self, min: Any) -> Tensor:
        """Return x limited to at least `min`."""

    def clamp_min_(self, min: Any) -> Tensor:
        """In-place version of `clamp_min`."""

    def clip(self, min: Any = None, max: Any = None) -> Tensor:
        """Return x limited to the range [min, max]; None means no bound. NaN stays NaN."""

    def clip_(self, min: Any = None, max: Any = None) -> Tensor:
        """In-place version of `clip`."""

    def clone(self) -> Tensor:
        """Return a contiguous copy."""

    def contiguous(self) -> Tensor:
        """Return x itself if it is contiguous, else a contiguous copy."""

    def copy_(self, source: Any) -> Tensor:
        """Copy `source` into `target`, converted to target's type. It is a scalar, or a tensor that is broadcast."""

    def copysign(self, b: Any) -> Tensor:
        """Return the magnitude of a with the sign of b, elementwise."""

    def copysign_(self, b: Any) -> Tensor:
        """In-place version of `copysign`."""

    def cos(self) -> Tensor:
        """Return the cosine of x in radians, elementwise; integers give f32."""

    def cos_(self) -> Tensor:
        """In-place version of `cos`."""

    def cosh(self) -> Tensor:
        """Return the hyperbolic cosine, elementwise; integers give f32."""

    def cosh_(self) -> Tensor:
        """In-place version of `cosh`."""

    def count_nonzero(self, dim: builtins.int | Sequence[builtins.int] | None = None) -> Tensor:
        """Return the number of nonzero elements over axes (i64)."""

    def cross(self, b: Any, dim: builtins.int | None = None) -> Tensor:
        """Return the cross product along an axis of size 3 (dim=None: the first such axis); a and b broadcast."""

    def cummax(self, dim: builtins.int) -> Any:
        """Return (values, indices) of the cumulative maximum along an axis."""

    def cummin(self, dim: builtins.int) -> Any:
        """Return (values, indices) of the cumulative minimum along an axis."""

    def cumprod(self, dim: builtins.int, *, dtype: Any = None) -> Tensor:
        """Return the cumulative product along an axis; integers and bool are multiplied in i64 unless dtype is given."""

    def cumprod_(self, dim: builtins.int, *, dtype: Any = None) -> Tensor:
        """In-place version of `cumprod`."""

    def cumsum(self, dim: builtins.int, *, dtype: Any = None) -> Tensor:
        """Return the cumulative sum along an axis; integers and bool are summed in i64 unless dtype is given."""

    def cumsum_(self, dim: builtins.int, *, dtype: Any = None) -> Tensor:
        """In-place version of `cumsum`."""

    def deg2rad(self) -> Tensor:
        """Convert degrees to radians."""

    def deg2rad_(self) -> Tensor:
        """In-place version of `deg2rad`."""

    def diag(self, diagonal: builtins.int = 0) -> Tensor:
        """Return a matrix with a vector on its diagonal, or a copy of a matrix's diagonal."""

    def diag_embed(self, offset: builtins.int = 0, dim1: builtins.int = -2, dim2: builtins.int = -1) -> Tensor:
        """Return matrices with the elements of x's last axis on a diagonal and zeros elsewhere."""

    def diagflat(self, offset: builtins.int = 0) -> Tensor:
        """Return a matrix with x's flattened elements on a diagonal."""

    def diagonal(self, offset: builtins.int = 0, dim1: builtins.int = 0, dim2: builtins.int = 1) -> Tensor:
        """Return the diagonal of the matrices along two axes, as the last axis."""

    def diagonal_scatter(self, src: Tensor, offset: builtins.int = 0, dim1: builtins.int = 0, dim2: builtins.int = 1) -> Tensor:
        """Return a copy of x with a diagonal replaced by src."""

    def diff(self, n: builtins.int = 1, dim: builtins.int = -1, prepend: Tensor | None = None, append: Tensor | None = None) -> Tensor:
        """Return the differences of adjacent elements along an axis, taken n times; for bool, True where they differ."""

    def dist(self, b: Any, p: builtins.float = 2) -> Tensor:
        """Return the p-norm of a - b."""

    def div(self, b: Any, *, rounding_mode: builtins.str | None = None) -> Tensor:
        """Return a / b."""

    def div_(self, other: Any, *, rounding_mode: builtins.str | None = None) -> Tensor:
        """In-place version of `div`."""

    def dot(self, b: Tensor) -> Tensor:
        """Return the dot product of two vectors of the same size."""

    def double(self) -> Tensor:
        """Convert to vk.f64."""

    def dsplit(self, indices_or_sections: Any) -> builtins.tuple[Tensor, ...]:
        """Split along axis 2, into equal parts or at indices."""

    def elu(self, *, alpha: builtins.float = 1.0) -> Tensor:
        """Return x where it is positive, else alpha * (exp(x) - 1)."""

    def eq(self, b: Any) -> Tensor:
        """Return a == b, elementwise, as bool; a scalar outside the type's range is compared by its value."""

    def eq_(self, b: Any) -> Tensor:
        """In-place version of `eq`."""

    def equal(self, b: Tensor) -> builtins.bool:
        """Return True if a and b have the same shape and equal elements; waits for the device."""

    def erf(self) -> Tensor:
        """Return the error function, elementwise; integers give f32."""

    def erf_(self) -> Tensor:
        """In-place version of `erf`."""

    def erfc(self) -> Tensor:
        """Return 1 - erf(x), accurate for large x, elementwise; integers give f32."""

    def erfc_(self) -> Tensor:
        """In-place version of `erfc`."""

    def erfinv(self) -> Tensor:
        """Return the inverse error function, NaN outside [-1, 1], elementwise; integers give f32."""

    def erfinv_(self) -> Tensor:
        """In-place version of `erfinv`."""

    def exp(self) -> Tensor:
        """Return e ** x, elementwise; integers give f32."""

    def exp2(self) -> Tensor:
        """Return 2 ** x, elementwise; integers give f32."""

    def exp2_(self) -> Tensor:
        """In-place version of `exp2`."""

    def exp_(self) -> Tensor:
        """In-place version of `exp`."""

    def expand(self, *shape: Any) -> Tensor:
        """Expand axes of size 1 and add leading axes, without copying; -1 keeps a size."""

    def expand_as(self, other: Tensor) -> Tensor:
        """Return x broadcast to other's shape, as a view."""

    def expm1(self) -> Tensor:
        """Return exp(x) - 1, accurate near 0, elementwise; integers give f32."""

    def expm1_(self) -> Tensor:
        """In-place version of `expm1`."""

    def fill_(self, value: Any) -> Tensor:
        """Set all elements to a scalar or to the value of a 0-d tensor."""

    def flatten(self, start_dim: builtins.int = 0, end_dim: builtins.int = -1) -> Tensor:
        """Merge the axes from start_dim to end_dim (inclusive) into one."""

    def flip(self, *axes: Any, dims: Any = None) -> Tensor:
        """Reverse the elements along axes; a copy, as in PyTorch (`x[::-1]` is a view with negative strides)."""

    def fliplr(self) -> Tensor:
        """Reverse axis 1."""

    def flipud(self) -> Tensor:
        """Reverse axis 0."""

    def float(self) -> Tensor:
        """Convert to vk.f32."""

    def float_power(self, exponent: Any) -> Tensor:
        """Return x ** exponent, computed in f64."""

    def float_power_(self, exponent: Any) -> Tensor:
        """In-place version of `float_power`."""

    def floor(self) -> Tensor:
        """Return the greatest integral value not above x, elementwise, in x's type."""

    def floor_(self) -> Tensor:
        """In-place version of `floor`."""

    def floor_divide(self, b: Any) -> Tensor:
        """Return the quotient rounded down (0 for integers divided by 0), elementwise."""

    def floor_divide_(self, other: Any) -> Tensor:
        """In-place version of `floor_divide`."""

    def fmax(self, b: Any) -> Tensor:
        """Return the elementwise maximum; where one operand is NaN, the other one."""

    def fmin(self, b: Any) -> Tensor:
        """Return the elementwise minimum; where one operand is NaN, the other one."""

    def fmod(self, b: Any) -> Tensor:
        """Return the remainder with the sign of a (C's fmod), elementwise."""

    def fmod_(self, b: Any) -> Tensor:
        """In-place version of `fmod`."""

    def follow(self) -> None:
        """If the view is stale, record it as a part of its root's current value."""

    def frac(self) -> Tensor:
        """Return x - trunc(x), elementwise."""

    def frac_(self) -> Tensor:
        """In-place version of `frac`."""

    def gather(self, dim: builtins.int, index: Tensor, *, sparse_grad: builtins.bool = False) -> Tensor:
        """Gather elements along an axis: y[.., n, ..] = x[.., index[.., n, ..], ..]. The result has index's shape."""

    def gcd(self, b: Any) -> Tensor:
        """Return the greatest common divisor of integers, elementwise; it is never negative."""

    def gcd_(self, b: Any) -> Tensor:
        """In-place version of `gcd`."""

    def ge(self, b: Any) -> Tensor:
        """Return a >= b, elementwise, as bool; a scalar outside the type's range is compared by its value."""

    def ge_(self, b: Any) -> Tensor:
        """In-place version of `ge`."""

    def gelu(self, *, approximate: builtins.str = 'none') -> Tensor:
        """Return x times the standard normal CDF at x; `approximate="tanh"` selects the tanh approximation."""

    def gt(self, b: Any) -> Tensor:
        """Return a > b, elementwise, as bool; a scalar outside the type's range is compared by its value."""

    def gt_(self, b: Any) -> Tensor:
        """In-place version of `gt`."""

    def half(self) -> Tensor:
        """Convert to vk.f16."""

    def heaviside(self, b: Any) -> Tensor:
        """Return 0 where a is below 0, b where it is 0, else 1, elementwise."""

    def heaviside_(self, b: Any) -> Tensor:
        """In-place version of `heaviside`."""

    def histc(self, bins: builtins.int = 100, min: builtins.float = 0, max: builtins.float = 0) -> Tensor:
        """Return the number of elements, in x's dtype, in each of `bins` equal parts of the range [min, max]."""

    def hsplit(self, indices_or_sections: Any) -> builtins.tuple[Tensor, ...]:
        """Split along axis 1 (axis 0 for vectors), into equal parts or at indices."""

    def hypot(self, b: Any) -> Tensor:
        """Return sqrt(a * a + b * b), without overflow, elementwise."""

    def hypot_(self, b: Any) -> Tensor:
        """In-place version of `hypot`."""

    def index_add(self, dim: builtins.int, index: Tensor, source: Tensor, *, alpha: builtins.float = 1) -> Tensor:
        """Return a copy of x with alpha * slice n of source added to slice index[n]; `index` is a vector."""

    def index_add_(self, dim: builtins.int, index: Tensor, source: Tensor, *, alpha: builtins.float = 1) -> Tensor:
        """In-place version of `index_add`."""

    def index_copy(self, dim: builtins.int, index: Tensor, source: Tensor) -> Tensor:
        """Return a copy of x with slice index[n] replaced by slice n of source; `index` is a vector."""

    def index_copy_(self, dim: builtins.int, index: Tensor, source: Tensor) -> Tensor:
        """In-place version of `index_copy`."""

    def index_fill(self, dim: builtins.int, index: Tensor, value: Any) -> Tensor:
        """Return a copy of x with slice index[n] filled with `value`, a scalar or a 0-d tensor."""

    def index_fill_(self, dim: builtins.int, index: Tensor, value: Any) -> Tensor:
        """In-place version of `index_fill`."""

    def index_put(self, indices: Any, values: Any, accumulate: builtins.bool = False) -> Tensor:
        """Return a copy of x with `values` written at x[indices], or added to these elements if `accumulate`."""

    def index_put_(self, indices: Any, values: Any, accumulate: builtins.bool = False) -> Tensor:
        """In-place version of `index_put`."""

    def index_reduce(self, dim: builtins.int, index: Tensor, source: Tensor, reduce: builtins.str, *, include_self: builtins.bool = True) -> Tensor:
        """Return a copy of x with slice n of source combined into slice index[n]; `index` is a vector."""

    def index_reduce_(self, dim: builtins.int, index: Tensor, source: Tensor, reduce: builtins.str, *, include_self: builtins.bool = True) -> Tensor:
        """In-place version of `index_reduce`."""

    def index_select(self, dim: builtins.int, index: Tensor) -> Tensor:
        """Return the slices of x along an axis that a vector of indices selects."""

    def inner(self, b: Tensor) -> Tensor:
        """Return the products of a and b summed over their last axes."""

    def int(self) -> Tensor:
        """Convert to vk.i32."""

    def isclose(self, b: Tensor, rtol: builtins.float = 1e-05, atol: builtins.float = 1e-08, equal_nan: builtins.bool = False) -> Tensor:
        """Return a bool tensor that is True where abs(a - b) <= atol + rtol * abs(b), elementwise."""

    def isfinite(self) -> Tensor:
        """Return a bool tensor that is True where x is neither NaN nor infinite, elementwise."""

    def isinf(self) -> Tensor:
        """Return a bool tensor that is True where x is infinite, elementwise."""

    def isnan(self) -> Tensor:
        """Return a bool tensor that is True where x is NaN, elementwise."""

    def isneginf(self) -> Tensor:
        """Return a bool tensor that is True where x is -inf, elementwise."""

    def isposinf(self) -> Tensor:
        """Return a bool tensor that is True where x is inf, elementwise."""

    def isreal(self) -> Tensor:
        """Return True everywhere: there are no complex types."""

    def kron(self, b: Any) -> Tensor:
        """Return the Kronecker product: a with each element replaced by that element times b."""

    def kthvalue(self, k: builtins.int, dim: builtins.int = -1, keepdim: builtins.bool = False) -> Any:
        """Return the k-th smallest value (counting from 1) along an axis, and its index."""

    def lcm(self, b: Any) -> Tensor:
        """Return the least common multiple of integers, elementwise; 0 if either is 0."""

    def lcm_(self, b: Any) -> Tensor:
        """In-place version of `lcm`."""

    def ldexp(self, other: Any) -> Tensor:
        """Return x * 2 ** other as floats, elementwise, also where 2 ** other is out of range."""

    def ldexp_(self, other: Any) -> Tensor:
        """In-place version of `ldexp`."""

    def le(self, b: Any) -> Tensor:
        """Return a <= b, elementwise, as bool; a scalar outside the type's range is compared by its value."""

    def le_(self, b: Any) -> Tensor:
        """In-place version of `le`."""

    def leaky_relu(self, *, negative_slope: builtins.float = 0.01) -> Tensor:
        """Return x where it is positive, else negative_slope * x."""

    def lerp(self, end: Tensor, weight: Any) -> Tensor:
        """Return start + weight * (end - start)."""

    def lerp_(self, end: Tensor, weight: Any) -> Tensor:
        """In-place version of `lerp`."""

    def log(self) -> Tensor:
        """Return the natural logarithm, elementwise; integers give f32."""

    def log10(self) -> Tensor:
        """Return the logarithm to base 10, elementwise; integers give f32."""

    def log10_(self) -> Tensor:
        """In-place version of `log10`."""

    def log1p(self) -> Tensor:
        """Return log(1 + x), accurate near 0, elementwise; integers give f32."""

    def log1p_(self) -> Tensor:
        """In-place version of `log1p`."""

    def log2(self) -> Tensor:
        """Return the logarithm to base 2, elementwise; integers give f32."""

    def log2_(self) -> Tensor:
        """In-place version of `log2`."""

    def log_(self) -> Tensor:
        """In-place version of `log`."""

    def log_softmax(self, dim: builtins.int = -1, *, dtype: Any = None) -> Tensor:
        """Return log(softmax(x)) along an axis, without overflow. If `dtype` is given, x is converted to it first."""

    def logaddexp(self, b: Any) -> Tensor:
        """Return log(exp(a) + exp(b)), without overflow, elementwise."""

    def logaddexp2(self, b: Any) -> Tensor:
        """Return log2(2 ** a + 2 ** b), without overflow, elementwise."""

    def logcumsumexp(self, dim: builtins.int) -> Tensor:
        """Return the logarithm of the cumulative sum of exp(x) along an axis, without overflow."""

    def logical_and(self, b: Any) -> Tensor:
        """Return a and b, elementwise, as bool; nonzero numbers count as true."""

    def logical_and_(self, b: Any) -> Tensor:
        """In-place version of `logical_and`."""

    def logical_not(self) -> Tensor:
        """Return a bool tensor that is True where x is 0 or False, elementwise."""

    def logical_not_(self) -> Tensor:
        """In-place version of `logical_not`."""

    def logical_or(self, b: Any) -> Tensor:
        """Return a or b, elementwise, as bool; nonzero numbers count as true."""

    def logical_or_(self, b: Any) -> Tensor:
        """In-place version of `logical_or`."""

    def logical_xor(self, b: Any) -> Tensor:
        """Return a xor b, elementwise, as bool; nonzero numbers count as true."""

    def logical_xor_(self, b: Any) -> Tensor:
        """In-place version of `logical_xor`."""

    def logit(self, eps: builtins.float | None = None) -> Tensor:
        """Return log(x / (1 - x)), elementwise; with `eps`, x is clamped to [eps, 1 - eps] first."""

    def logit_(self, eps: builtins.float | None = None) -> Tensor:
        """In-place version of `logit`."""

    def logsumexp(self, dim: builtins.int | Sequence[builtins.int] | None = None, keepdim: builtins.bool = False) -> Tensor:
        """Return log(sum(exp(x))) over axes, without overflow."""

    def long(self) -> Tensor:
        """Convert to vk.i64."""

    def lt(self, b: Any) -> Tensor:
        """Return a < b, elementwise, as bool; a scalar outside the type's range is compared by its value."""

    def lt_(self, b: Any) -> Tensor:
        """In-place version of `lt`."""

    def masked_fill(self, mask: Tensor, value: Any) -> Tensor:
        """Return x with elements where the mask is true replaced by `value`, a scalar or a 0-d tensor."""

    def masked_fill_(self, mask: Tensor, value: Any) -> Tensor:
        """In-place version of `masked_fill`."""

    def masked_scatter(self, mask: Tensor, source: Tensor) -> Tensor:
        """Return a copy of x with the elements where the mask is True replaced by source's elements, in C order."""

    def masked_scatter_(self, mask: Tensor, source: Tensor) -> Tensor:
        """In-place version of `masked_scatter`."""

    def masked_select(self, mask: Tensor) -> Tensor:
        """Return the elements where the mask (broadcast against x) is true, as a vector; the host waits for their count."""

    def matmul(self, b: Tensor) -> Tensor:
        """Return the matrix product over the last two axes, with leading axes broadcast."""

    def max(self, dim: Any = None, keepdim: builtins.bool = False) -> Any:
        """Return the maximum of all elements; with an axis, (values, indices) along it."""

    def maximum(self, b: Any) -> Tensor:
        """Return the maximum (NaN if either is NaN), elementwise."""

    def mean(self, dim: builtins.int | Sequence[builtins.int] | None = None, keepdim: builtins.bool = False, *, dtype: Any = None) -> Tensor:
        """Return the mean of floats over axes; NaN if there are no elements."""

    def median(self, dim: builtins.int | None = None, keepdim: builtins.bool = False) -> Any:
        """Return the median of all elements, or (values, indices) along an axis; NaN if an element is NaN."""

    def min(self, dim: Any = None, keepdim: builtins.bool = False) -> Any:
        """Return the minimum of all elements; with an axis, (values, indices) along it."""

    def minimum(self, b: Any) -> Tensor:
        """Return the minimum (NaN if either is NaN), elementwise."""

    def mm(self, b: Tensor) -> Tensor:
        """Return the product of two matrices, (M, K) and (K, N)."""

    def moveaxis(self, source: builtins.int | Sequence[builtins.int], destination: builtins.int | Sequence[builtins.int]) -> Tensor:
        """Move axis source[i] to position destination[i] for all i; the other axes keep their order."""

    def movedim(self, source: builtins.int | Sequence[builtins.int], destination: builtins.int | Sequence[builtins.int]) -> Tensor:
        """Move axis source[i] to position destination[i] for all i; the other axes keep their order."""

    def msort(self) -> Tensor:
        """Return x sorted along axis 0."""

    def mul(self, b: Any) -> Tensor:
        """Return a * b; for bool, the logical and."""

    def mul_(self, other: Any) -> Tensor:
        """In-place version of `mul`."""

    def mv(self, b: Tensor) -> Tensor:
        """Return the product of a matrix and a vector, (M, K) and (K,)."""

    def nan_to_num(self, nan: builtins.float | None = None, posinf: builtins.float | None = None, neginf: builtins.float | None = None) -> Tensor:
        """Return x with NaN replaced by `nan`, inf by `posinf`, and -inf by `neginf`."""

    def nan_to_num_(self, nan: builtins.float | None = None, posinf: builtins.float | None = None, neginf: builtins.float | None = None) -> Tensor:
        """In-place version of `nan_to_num`."""

    def nanmean(self, dim: builtins.int | Sequence[builtins.int] | None = None, keepdim: builtins.bool = False, *, dtype: Any = None) -> Tensor:
        """Return the mean over axes, ignoring NaN."""

    def nanmedian(self, dim: builtins.int | None = None, keepdim: builtins.bool = False) -> Any:
        """Return the `median`, ignoring NaN."""

    def nanquantile(self, q: Any, dim: builtins.int | None = None, keepdim: builtins.bool = False, *, interpolation: builtins.str = 'linear') -> Tensor:
        """Return the `quantile`, ignoring NaN."""

    def nansum(self, dim: builtins.int | Sequence[builtins.int] | None = None, keepdim: builtins.bool = False, *, dtype: Any = None) -> Tensor:
        """Return the sum over axes, ignoring NaN."""

    def narrow(self, dim: builtins.int, start: Any, length: builtins.int) -> Tensor:
        """Return `length` elements from `start` along an axis."""

    def ne(self, b: Any) -> Tensor:
        """Return a != b, elementwise, as bool; a scalar outside the type's range is compared by its value."""

    def ne_(self, b: Any) -> Tensor:
        """In-place version of `ne`."""

    def neg(self) -> Tensor:
        """Return -x, elementwise, in x's type."""

    def neg_(self) -> Tensor:
        """In-place version of `neg`."""

    def new_empty(self, *args: Any, **options: Any) -> Tensor:
        """`empty` with this tensor's type and device as defaults."""

    def new_full(self, *args: Any, **options: Any) -> Tensor:
        """`full` with this tensor's type and device as defaults."""

    def new_ones(self, *args: Any, **options: Any) -> Tensor:
        """`ones` with this tensor's type and device as defaults."""

    def new_tensor(self, *args: Any, **options: Any) -> Tensor:
        """`tensor` with this tensor's type and device as defaults."""

    def new_zeros(self, *args: Any, **options: Any) -> Tensor:
        """`zeros` with this tensor's type and device as defaults."""

    def nonzero(self, *, as_tuple: builtins.bool = False) -> Any:
        """Return the indices of nonzero elements (i64); the host waits for their count."""

    def norm(self, p: builtins.float | builtins.str = 2.0, dim: builtins.int | Sequence[builtins.int] | None = None, keepdim: builtins.bool = False) -> Tensor:
        """Return the vector p-norm over axes; p may be inf, -inf, 0 (the number of nonzero elements), or "fro" (2)."""

    def normal_(self, mean: builtins.float = 0.0, std: builtins.float = 1.0, *, generator: Any = None) -> Tensor:
        """Fill with samples from the normal distribution, in place."""

    def outer(self, b: Tensor) -> Tensor:
        """Return the outer product of two vectors: (M,) and (N,) give (M, N)."""

    def permute(self, *axes: Any, dims: Any = None) -> Tensor:
        """Reorder the axes: `permute(x, 2, 0, 1)`."""

    def positive(self) -> Tensor:
        """Return a copy of x, elementwise, in x's type."""

    def pow(self, b: Any) -> Tensor:
        """Return a ** b."""

    def pow_(self, exponent: Any) -> Tensor:
        """In-place version of `pow`."""

    def prod(self, dim: builtins.int | Sequence[builtins.int] | None = None, keepdim: builtins.bool = False, *, dtype: Any = None) -> Tensor:
        """Return the product over axes; integers and bool are multiplied in i64 unless dtype is given."""

    def put(self, index: Tensor, source: Tensor, accumulate: builtins.bool = False) -> Tensor:
        """Return a copy of x with source's elements written at flat indices, or added to these elements if `accumulate`."""

    def put_(self, index: Tensor, source: Tensor, accumulate: builtins.bool = False) -> Tensor:
        """In-place version of `put`."""

    def quantile(self, q: Any, dim: builtins.int | None = None, keepdim: builtins.bool = False, *, interpolation: builtins.str = 'linear') -> Tensor:
        """Return the quantiles of all elements or along an axis, at the levels q between 0 and 1. NaN propagates."""

    def rad2deg(self) -> Tensor:
        """Convert radians to degrees."""

    def rad2deg_(self) -> Tensor:
        """In-place version of `rad2deg`."""

    def ravel(self) -> Tensor:
        """Return x with all axes merged into one: a view if the strides allow it, else a copy."""

    def reciprocal(self) -> Tensor:
        """Return 1 / x, elementwise; integers give f32."""

    def reciprocal_(self) -> Tensor:
        """In-place version of `reciprocal`."""

    def relu(self) -> Tensor:
        """Return max(x, 0), NaN for NaN, elementwise, in x's type."""

    def relu_(self) -> Tensor:
        """In-place version of `relu`."""

    def remainder(self, b: Any) -> Tensor:
        """Return the remainder with the sign of b (Python's %), elementwise."""

    def remainder_(self, other: Any) -> Tensor:
        """In-place version of `remainder`."""

    def repeat(self, *sizes: Any) -> Tensor:
        """Return a copy of x repeated along each axis: x.repeat(2, 3) or x.repeat((2, 3))."""

    def repeat_interleave(self, repeats: Any, dim: builtins.int | None = None, *, output_size: builtins.int | None = None) -> Tensor:
        """Repeat each slice along the axis `dim`, or each element of the flattened tensor if `dim` is None."""

    def reshape(self, *shape: Any) -> Tensor:
        """Return x in another shape: a view if the strides allow it, else a copy."""

    def reshape_as(self, other: Tensor) -> Tensor:
        """Return x in other's shape."""

    def roll(self, shifts: builtins.int | Sequence[builtins.int], dims: builtins.int | Sequence[builtins.int] | None = None) -> Tensor:
        """Shift elements cyclically along axes, axis dims[i] by shifts[i]; with dims=None, in the flattened tensor."""

    def rot90(self, k: builtins.int = 1, dims: Sequence[builtins.int] = (0, 1)) -> Tensor:
        """Rotate by k times 90 degrees in the plane of two axes, from the first towards the second."""

    def round(self, *, decimals: builtins.int = 0) -> Tensor:
        """Round to `decimals` decimal places (negative: to tens, hundreds...), halves to even, elementwise."""

    def round_(self, *, decimals: builtins.int = 0) -> Tensor:
        """In-place version of `round`."""

    def rsqrt(self) -> Tensor:
        """Return 1 / sqrt(x), elementwise; integers give f32."""

    def rsqrt_(self) -> Tensor:
        """In-place version of `rsqrt`."""

    def scatter(self, dim: builtins.int, index: Tensor, src: Any = None, *, value: Any = None, reduce: builtins.str | None = None) -> Tensor:
        """Return a copy of x with src[.., n, ..], or the scalar `value`, written at [.., index[.., n, ..], ..]."""

    def scatter_(self, dim: builtins.int, index: Tensor, src: Any = None, *, value: Any = None, reduce: builtins.str | None = None) -> Tensor:
        """In-place version of `scatter`."""

    def scatter_add(self, dim: builtins.int, index: Tensor, src: Tensor) -> Tensor:
        """Return a copy of x with src[.., n, ..] added at [.., index[.., n, ..], ..]."""

    def scatter_add_(self, dim: builtins.int, index: Tensor, src: Tensor) -> Tensor:
        """In-place version of `scatter_add`."""

    def scatter_reduce(self, dim: builtins.int, index: Tensor, src: Tensor, reduce: builtins.str, *, include_self: builtins.bool = True) -> Tensor:
        """Return a copy of x with each src[.., n, ..] combined into the element at [.., index[.., n, ..], ..]."""

    def scatter_reduce_(self, dim: builtins.int, index: Tensor, src: Tensor, reduce: builtins.str, *, include_self: builtins.bool = True) -> Tensor:
        """In-place version of `scatter_reduce`."""

    def select(self, dim: builtins.int, index: builtins.int) -> Tensor:
        """Return the slice at one index of an axis, without that axis."""

    def select_scatter(self, src: Tensor, dim: builtins.int, index: builtins.int) -> Tensor:
        """Return a copy of x with the slice at one index of an axis replaced by src."""

    def sgn(self) -> Tensor:
        """Alias of `sign`: there are no complex types."""

    def sgn_(self) -> Tensor:
        """In-place version of `sgn`."""

    def short(self) -> Tensor:
        """Convert to vk.i16."""

    def sigmoid(self) -> Tensor:
        """Return 1 / (1 + exp(-x)), without overflow, elementwise; integers give f32."""

    def sigmoid_(self) -> Tensor:
        """In-place version of `sigmoid`."""

    def sign(self) -> Tensor:
        """Return -1, 0 or 1 according to the sign, elementwise. NaN gives 0, as in PyTorch; bool is copied."""

    def sign_(self) -> Tensor:
        """In-place version of `sign`."""

    def signbit(self) -> Tensor:
        """Return a bool tensor that is True where the sign bit is set, including -0, elementwise."""

    def silu(self) -> Tensor:
        """Return x * sigmoid(x), elementwise; integers give f32."""

    def sin(self) -> Tensor:
        """Return the sine of x in radians, elementwise; integers give f32."""

    def sin_(self) -> Tensor:
        """In-place version of `sin`."""

    def sinc(self) -> Tensor:
        """Return sin(pi x) / (pi x), 1 at 0, elementwise; integers give f32."""

    def sinc_(self) -> Tensor:
        """In-place version of `sinc`."""

    def sinh(self) -> Tensor:
        """Return the hyperbolic sine, elementwise; integers give f32."""

    def sinh_(self) -> Tensor:
        """In-place version of `sinh`."""

    def slice_scatter(self, src: Tensor, dim: builtins.int = 0, start: builtins.int | None = None, end: builtins.int | None = None, step: builtins.int = 1) -> Tensor:
        """Return a copy of x with the elements start:end:step of an axis replaced by src."""

    def softmax(self, dim: builtins.int = -1, *, dtype: Any = None) -> Tensor:
        """Return exp(x) / sum(exp(x)) along an axis. If `dtype` is given, x is converted to it first."""

    def softplus(self, *, beta: builtins.float = 1.0, threshold: builtins.float = 20.0) -> Tensor:
        """Return log(1 + exp(beta * x)) / beta; x itself where beta * x exceeds `threshold`."""

    def sort(self, dim: builtins.int = -1, descending: builtins.bool = False, stable: builtins.bool = True) -> Any:
        """Sort along an axis and return (values, indices); equal elements keep their order."""

    def split(self, split_size_or_sections: builtins.int | Sequence[builtins.int], dim: builtins.int = 0) -> builtins.tuple[Tensor, ...]:
        """Split an axis into parts of one size (the last part may be smaller), or into parts of the sizes in a list."""

    def split_with_sizes(self, split_sizes: Sequence[builtins.int], dim: builtins.int = 0) -> builtins.tuple[Tensor, ...]:
        """Split an axis into parts of the given sizes."""

    def sqrt(self) -> Tensor:
        """Return the square root, elementwise; integers give f32."""

    def sqrt_(self) -> Tensor:
        """In-place version of `sqrt`."""

    def square(self) -> Tensor:
        """Return x * x, elementwise, in x's type; bool gives i64."""

    def square_(self) -> Tensor:
        """In-place version of `square`."""

    def squeeze(self, dim: builtins.int | Sequence[builtins.int] | None = None) -> Tensor:
        """Remove all axes of size 1, or only those in `dim`; axes in `dim` of another size are kept."""

    def squeeze_(self, dim: builtins.int | Sequence[builtins.int] | None = None) -> Tensor:
        """In-place version of `squeeze`: changes this tensor's shape and strides, not its memory."""

    def std(self, dim: builtins.int | Sequence[builtins.int] | None = None, *, correction: builtins.float | None = 1, unbiased: builtins.bool | None = None, keepdim: builtins.bool = False) -> Tensor:
        """Return the standard deviation over axes; see `var`."""

    def sub(self, b: Any, *, alpha: builtins.float = 1) -> Tensor:
        """Return a - alpha * b."""

    def sub_(self, other: Any, *, alpha: builtins.float = 1) -> Tensor:
        """In-place version of `sub`."""

    def sum(self, dim: builtins.int | Sequence[builtins.int] | None = None, keepdim: builtins.bool = False, *, dtype: Any = None) -> Tensor:
        """Return the sum over axes; integers and bool are summed in i64 unless dtype is given."""

    def sum_to_size(self, *size: Any) -> Tensor:
        """Return x summed to the given shape, which must broadcast to x's shape."""

    def swapaxes(self, dim0: builtins.int, dim1: builtins.int) -> Tensor:
        """Swap two axes."""

    def swapaxes_(self, dim0: builtins.int, dim1: builtins.int) -> Tensor:
        """In-place version of `swapaxes`: changes this tensor's shape and strides, not its memory."""

    def swapdims(self, dim0: builtins.int, dim1: builtins.int) -> Tensor:
        """Swap two axes."""

    def swapdims_(self, dim0: builtins.int, dim1: builtins.int) -> Tensor:
        """In-place version of `swapdims`: changes this tensor's shape and strides, not its memory."""

    def t(self) -> Tensor:
        """Transpose a matrix; vectors and 0-d tensors are returned as they are."""

    def t_(self) -> Tensor:
        """In-place version of `t`: changes this tensor's shape and strides, not its memory."""

    def take(self, index: Tensor) -> Tensor:
        """Return x's elements at flat indices, in the shape of `index`."""

    def take_along_dim(self, indices: Tensor, dim: builtins.int | None = None) -> Tensor:
        """Gather elements along an axis, like `gather`, but with x and `indices` broadcast along the other axes."""

    def tan(self) -> Tensor:
        """Return the tangent of x in radians, elementwise; integers give f32."""

    def tan_(self) -> Tensor:
        """In-place version of `tan`."""

    def tanh(self) -> Tensor:
        """Return the hyperbolic tangent, elementwise; integers give f32."""

    def tanh_(self) -> Tensor:
        """In-place version of `tanh`."""

    def tensor_split(self, indices_or_sections: Any, dim: builtins.int = 0) -> builtins.tuple[Tensor, ...]:
        """Split an axis into a number of parts, or at the given indices."""

    def tile(self, *counts: Any) -> Tensor:
        """Return x repeated as by `repeat`. If there are fewer counts than axes, they apply to the last axes."""

    def to(self, *targets: Any, dtype: Any = None, device: Any = None, copy: builtins.bool = False, non_blocking: builtins.bool = False) -> Tensor:
        """Convert to another type and device: `x.to(vk.f16)`, `x.to("cpu")`, `x.to(dtype=..., device=...)`."""

    def topk(self, k: builtins.int, dim: builtins.int = -1, largest: builtins.bool = True, sorted: builtins.bool = True) -> Any:
        """Return sorted (values, indices) of the k largest (or smallest) elements along an axis."""

    def trace(self) -> Tensor:
        """Return the sum of a matrix's diagonal."""

    def transpose(self, dim0: builtins.int, dim1: builtins.int) -> Tensor:
        """Swap two axes."""

    def transpose_(self, dim0: builtins.int, dim1: builtins.int) -> Tensor:
        """In-place version of `transpose`: changes this tensor's shape and strides, not its memory."""

    def tril(self, diagonal: builtins.int = 0) -> Tensor:
        """Return the lower triangle of matrices: the elements above a diagonal are set to 0."""

    def tril_(self, diagonal: builtins.int = 0) -> Tensor:
        """In-place version of `tril`."""

    def triu(self, diagonal: builtins.int = 0) -> Tensor:
        """Return the upper triangle of matrices: the elements below a diagonal are set to 0."""

    def triu_(self, diagonal: builtins.int = 0) -> Tensor:
        """In-place version of `triu`."""

    def true_divide(self, b: Any) -> Tensor:
        """Return a / b; integers give f32."""

    def true_divide_(self, b: Any) -> Tensor:
        """In-place version of `true_divide`."""

    def trunc(self) -> Tensor:
        """Return x truncated to an integral value, elementwise, in x's type."""

    def trunc_(self) -> Tensor:
        """In-place version of `trunc`."""

    def type_as(self, other: Any) -> Any:
        """`type_as`."""

    def unbind(self, dim: builtins.int = 0) -> builtins.tuple[Tensor, ...]:
        """Return the slices along an axis, without that axis."""

    def unflatten(self, dim: builtins.int, sizes: Sequence[builtins.int]) -> Tensor:
        """Split an axis into several; one size may be -1."""

    def unfold(self, dimension: builtins.int, size: builtins.int, step: builtins.int) -> Tensor:
        """Return a view of all windows of `size` elements along an axis, with starts `step` apart."""

    def uniform_(self, low: builtins.float = 0.0, high: builtins.float = 1.0, *, generator: Any = None) -> Tensor:
        """Fill with samples from the uniform distribution over [low, high), in place."""

    def unique(self, sorted: builtins.bool = True, return_inverse: builtins.bool = False, return_counts: builtins.bool = False, dim: builtins.int | None = None) -> Any:
        """Return the sorted unique elements, or with `dim` the unique slices; waits for the device."""

    def unique_consecutive(self, return_inverse: builtins.bool = False, return_counts: builtins.bool = False, dim: builtins.int | None = None) -> Any:
        """Return the first element of each run of equal elements; with `dim`, the first of equal adjacent slices."""

    def unsqueeze(self, dim: builtins.int) -> Tensor:
        """Insert an axis of size 1, which becomes axis `dim` of the result."""

    def unsqueeze_(self, dim: builtins.int) -> Tensor:
        """In-place version of `unsqueeze`: changes this tensor's shape and strides, not its memory."""

    def var(self, dim: builtins.int | Sequence[builtins.int] | None = None, *, correction: builtins.float | None = 1, unbiased: builtins.bool | None = None, keepdim: builtins.bool = False) -> Tensor:
        """Return the variance over axes: the sum of squared deviations from the mean, divided by count - correction."""

    def vdot(self, b: Tensor) -> Tensor:
        """Return the dot product of two vectors."""

    def view(self, *shape: Any) -> Tensor:
        """Return a view in another shape. Raises ShapeError if the strides don't allow it (see `reshape`)."""

    def view_as(self, other: Tensor) -> Tensor:
        """Return a view in other's shape."""

    def vsplit(self, indices_or_sections: Any) -> builtins.tuple[Tensor, ...]:
        """Split along axis 0, into equal parts or at indices."""

    def where(self, condition: Any, other: Any) -> Any:
        """`where`."""

    def xlogy(self, b: Any) -> Tensor:
        """Return a * log(b), 0 where a is 0 unless b is NaN, elementwise."""

    def xlogy_(self, b: Any) -> Tensor:
        """In-place version of `xlogy`."""

    def zero_(self) -> Tensor:
        """Set all elements to 0."""

    @property
    def T(self) -> Tensor:
        """`T`: see the function."""

    @property
    def mT(self) -> Tensor:
        """`mT`: see the function."""

    def __add__(self, other: Any, /) -> Tensor:
        """Operator form of the method."""

    def __sub__(self, other: Any, /) -> Tensor:
        """Operator form of the method."""

    def __mul__(self, other: Any, /) -> Tensor:
        """Operator form of the method."""

    def __truediv__(self, other: Any, /) -> Tensor:
        """Operator form of the method."""

    def __floordiv__(self, other: Any, /) -> Tensor:
        """Operator form of the method."""

    def __mod__(self, other: Any, /) -> Tensor:
        """Operator form of the method."""

    def __pow__(self, other: Any, /) -> Tensor:
        """Operator form of the method."""

    def __matmul__(self, other: Any, /) -> Tensor:
        """Operator form of the method."""

    def __and__(self, other: Any, /) -> Tensor:
        """Operator form of the method."""

    def __or__(self, other: Any, /) -> Tensor:
        """Operator form of the method."""

    def __xor__(self, other: Any, /) -> Tensor:
        """Operator form of the method."""

    def __lshift__(self, other: Any, /) -> Tensor:
        """Operator form of the method."""

    def __rshift__(self, other: Any, /) -> Tensor:
        """Operator form of the method."""

    def __iadd__(self, other: Any, /) -> Tensor:
        """Operator form of the method."""

    def __isub__(self, other: Any, /) -> Tensor:
        """Operator form of the method."""

    def __imul__(self, other: Any, /) -> Tensor:
        """Operator form of the method."""

    def __itruediv__(self, other: Any, /) -> Tensor:
        """Operator form of the method."""

    def __ifloordiv__(self, other: Any, /) -> Tensor:
        """Operator form of the method."""

    def __imod__(self, other: Any, /) -> Tensor:
        """Operator form of the method."""

    def __ipow__(self, other: Any, /) -> Tensor:
        """Operator form of the method."""

    def __radd__(self, other: Any, /) -> Tensor:
        """Operator form of the method."""

    def __rsub__(self, other: Any, /) -> Tensor:
        """Operator form of the method."""

    def __rmul__(self, other: Any, /) -> Tensor:
        """Operator form of the method."""

    def __rtruediv__(self, other: Any, /) -> Tensor:
        """Operator form of the method."""

    def __rfloordiv__(self, other: Any, /) -> Tensor:
        """Operator form of the method."""

    def __rmod__(self, other: Any, /) -> Tensor:
        """Operator form of the method."""

    def __rpow__(self, other: Any, /) -> Tensor:
        """Operator form of the method."""

    def __rmatmul__(self, other: Any, /) -> Tensor:
        """Operator form of the method."""

    def __rand__(self, other: Any, /) -> Tensor:
        """Operator form of the method."""

    def __ror__(self, other: Any, /) -> Tensor:
        """Operator form of the method."""

    def __rxor__(self, other: Any, /) -> Tensor:
        """Operator form of the method."""

    def __rlshift__(self, other: Any, /) -> Tensor:
        """Operator form of the method."""

    def __rrshift__(self, other: Any, /) -> Tensor:
        """Operator form of the method."""

    def __lt__(self, other: Any, /) -> Tensor:
        """Operator form of the method."""

    def __le__(self, other: Any, /) -> Tensor:
        """Operator form of the method."""

    def __gt__(self, other: Any, /) -> Tensor:
        """Operator form of the method."""

    def __ge__(self, other: Any, /) -> Tensor:
        """Operator form of the method."""

    def __neg__(self) -> Tensor:
        """Operator form of the method."""

    def __pos__(self) -> Tensor:
        """Operator form of the method."""

    def __abs__(self) -> Tensor:
        """Operator form of the method."""

    def __invert__(self) -> Tensor:
        """Operator form of the method."""

    def __eq__(self, other: Any, /) -> Tensor:  # type: ignore[override]
        """Elementwise."""

    def __ne__(self, other: Any, /) -> Tensor:  # type: ignore[override]
        """Elementwise."""

    def __getitem__(self, index: Any, /) -> Tensor:
        """`x[index]`."""

    def __setitem__(self, index: Any, value: Any, /) -> None:
        """`x[index] = value`."""

    def __iter__(self) -> Iterator[Tensor]:
        """Slices along the first axis."""
