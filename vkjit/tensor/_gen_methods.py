"""The methods of `Tensor` for type checkers; written by `python -m vkjit.tensor.generate`. Do not edit."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .tensor import Tensor

__all__ = ["TensorMethods"]


class TensorMethods:
    """What `methods.install` puts on `Tensor`."""

    __slots__ = ()

    def abs(self) -> Tensor:
        """The absolute value, elementwise; unsigned integers are copied."""
        raise NotImplementedError

    def abs_(self) -> Tensor:
        """`abs` in place."""
        raise NotImplementedError

    def acos(self) -> Tensor:
        """The arc cosine in radians, elementwise; integers give f32."""
        raise NotImplementedError

    def acos_(self) -> Tensor:
        """`acos` in place."""
        raise NotImplementedError

    def acosh(self) -> Tensor:
        """The inverse hyperbolic cosine, elementwise; integers give f32."""
        raise NotImplementedError

    def acosh_(self) -> Tensor:
        """`acosh` in place."""
        raise NotImplementedError

    def add(self, b: Any, *, alpha: builtins.float = 1) -> Tensor:
        """a + alpha b."""
        raise NotImplementedError

    def add_(self, other: Any, *, alpha: builtins.float = 1) -> Tensor:
        """`add` in place."""
        raise NotImplementedError

    def addbmm(self, a: Tensor, b: Tensor, *, beta: builtins.float = 1, alpha: builtins.float = 1) -> Tensor:
        """beta c + alpha times the sum of the batch's matrix products."""
        raise NotImplementedError

    def addbmm_(self, a: Tensor, b: Tensor, *, beta: builtins.float = 1, alpha: builtins.float = 1) -> Tensor:
        """`addbmm` in place."""
        raise NotImplementedError

    def addcdiv(self, tensor1: Any, tensor2: Any, *, value: builtins.float = 1) -> Tensor:
        """x + value * tensor1 / tensor2, of floats."""
        raise NotImplementedError

    def addcdiv_(self, tensor1: Any, tensor2: Any, *, value: builtins.float = 1) -> Tensor:
        """`addcdiv` in place."""
        raise NotImplementedError

    def addcmul(self, tensor1: Any, tensor2: Any, *, value: builtins.float = 1) -> Tensor:
        """x + value * tensor1 * tensor2."""
        raise NotImplementedError

    def addcmul_(self, tensor1: Any, tensor2: Any, *, value: builtins.float = 1) -> Tensor:
        """`addcmul` in place."""
        raise NotImplementedError

    def addmm(self, a: Tensor, b: Tensor, *, beta: builtins.float = 1, alpha: builtins.float = 1) -> Tensor:
        """beta c + alpha (a @ b); c broadcasts. With beta=0 c isn't read."""
        raise NotImplementedError

    def addmm_(self, a: Tensor, b: Tensor, *, beta: builtins.float = 1, alpha: builtins.float = 1) -> Tensor:
        """`addmm` in place."""
        raise NotImplementedError

    def addmv(self, a: Tensor, x: Tensor, *, beta: builtins.float = 1, alpha: builtins.float = 1) -> Tensor:
        """beta c + alpha (a @ x) of a matrix and a vector."""
        raise NotImplementedError

    def addmv_(self, a: Tensor, x: Tensor, *, beta: builtins.float = 1, alpha: builtins.float = 1) -> Tensor:
        """`addmv` in place."""
        raise NotImplementedError

    def addr(self, a: Tensor, b: Tensor, *, beta: builtins.float = 1, alpha: builtins.float = 1) -> Tensor:
        """beta c + alpha (a outer b) of two vectors."""
        raise NotImplementedError

    def addr_(self, a: Tensor, b: Tensor, *, beta: builtins.float = 1, alpha: builtins.float = 1) -> Tensor:
        """`addr` in place."""
        raise NotImplementedError

    def all(self, dim: builtins.int | Sequence[builtins.int] | None = None, keepdim: builtins.bool = False) -> Tensor:
        """Whether no element is 0, over axes."""
        raise NotImplementedError

    def allclose(self, b: Tensor, rtol: builtins.float = 1e-05, atol: builtins.float = 1e-08, equal_nan: builtins.bool = False) -> builtins.bool:
        """Whether all elements are close (see `isclose`); waits for the values."""
        raise NotImplementedError

    def amax(self, dim: builtins.int | Sequence[builtins.int] | None = None, keepdim: builtins.bool = False) -> Tensor:
        """The maximum over axes; NaN passes on."""
        raise NotImplementedError

    def amin(self, dim: builtins.int | Sequence[builtins.int] | None = None, keepdim: builtins.bool = False) -> Tensor:
        """The minimum over axes; NaN passes on."""
        raise NotImplementedError

    def aminmax(self, *, dim: builtins.int | None = None, keepdim: builtins.bool = False) -> builtins.tuple[Tensor, Tensor]:
        """The minimum and the maximum, of all elements or along an axis."""
        raise NotImplementedError

    def any(self, dim: builtins.int | Sequence[builtins.int] | None = None, keepdim: builtins.bool = False) -> Tensor:
        """Whether any element isn't 0, over axes."""
        raise NotImplementedError

    def argmax(self, dim: builtins.int | None = None, keepdim: builtins.bool = False) -> Tensor:
        """Where the maximum lies (i64), along an axis or in the flattened tensor; the first of equal ones, NaN counts as greatest."""
        raise NotImplementedError

    def argmin(self, dim: builtins.int | None = None, keepdim: builtins.bool = False) -> Tensor:
        """Where the minimum lies (i64), along an axis or in the flattened tensor; the first of equal ones, NaN counts as least."""
        raise NotImplementedError

    def argsort(self, dim: builtins.int = -1, descending: builtins.bool = False, stable: builtins.bool = True) -> Tensor:
        """Where the values lie, in their order along an axis."""
        raise NotImplementedError

    def argwhere(self) -> Tensor:
        """Positions of the elements that aren't 0, one row each; waits for the values."""
        raise NotImplementedError

    def asin(self) -> Tensor:
        """The arc sine in radians, elementwise; integers give f32."""
        raise NotImplementedError

    def asin_(self) -> Tensor:
        """`asin` in place."""
        raise NotImplementedError

    def asinh(self) -> Tensor:
        """The inverse hyperbolic sine, elementwise; integers give f32."""
        raise NotImplementedError

    def asinh_(self) -> Tensor:
        """`asinh` in place."""
        raise NotImplementedError

    def atan(self) -> Tensor:
        """The arc tangent in radians, elementwise; integers give f32."""
        raise NotImplementedError

    def atan2(self, b: Any) -> Tensor:
        """The angle of the point (b, a) in radians, elementwise."""
        raise NotImplementedError

    def atan2_(self, b: Any) -> Tensor:
        """`atan2` in place."""
        raise NotImplementedError

    def atan_(self) -> Tensor:
        """`atan` in place."""
        raise NotImplementedError

    def atanh(self) -> Tensor:
        """The inverse hyperbolic tangent, elementwise; integers give f32."""
        raise NotImplementedError

    def atanh_(self) -> Tensor:
        """`atanh` in place."""
        raise NotImplementedError

    def baddbmm(self, a: Tensor, b: Tensor, *, beta: builtins.float = 1, alpha: builtins.float = 1) -> Tensor:
        """beta c + alpha (a @ b); c broadcasts. With beta=0 c isn't read."""
        raise NotImplementedError

    def baddbmm_(self, a: Tensor, b: Tensor, *, beta: builtins.float = 1, alpha: builtins.float = 1) -> Tensor:
        """`baddbmm` in place."""
        raise NotImplementedError

    def bfloat16(self) -> Tensor:
        """The tensor as vk.bf16."""
        raise NotImplementedError

    def bincount(self, weights: Tensor | None = None, minlength: builtins.int = 0) -> Tensor:
        """How often each number from 0 occurs, or the sum of its weights; waits for the largest."""
        raise NotImplementedError

    def bitwise_and(self, b: Any) -> Tensor:
        """a & b, bit by bit."""
        raise NotImplementedError

    def bitwise_and_(self, b: Any) -> Tensor:
        """`bitwise_and` in place."""
        raise NotImplementedError

    def bitwise_left_shift_(self, b: Any) -> Tensor:
        """`bitwise_left_shift` in place."""
        raise NotImplementedError

    def bitwise_not(self) -> Tensor:
        """The complement of integers, elementwise; `not` for bool."""
        raise NotImplementedError

    def bitwise_not_(self) -> Tensor:
        """`bitwise_not` in place."""
        raise NotImplementedError

    def bitwise_or(self, b: Any) -> Tensor:
        """a | b, bit by bit."""
        raise NotImplementedError

    def bitwise_or_(self, b: Any) -> Tensor:
        """`bitwise_or` in place."""
        raise NotImplementedError

    def bitwise_right_shift_(self, b: Any) -> Tensor:
        """`bitwise_right_shift` in place."""
        raise NotImplementedError

    def bitwise_xor(self, b: Any) -> Tensor:
        """a ^ b, bit by bit."""
        raise NotImplementedError

    def bitwise_xor_(self, b: Any) -> Tensor:
        """`bitwise_xor` in place."""
        raise NotImplementedError

    def bmm(self, b: Tensor) -> Tensor:
        """The products of two batches of matrices of one size; nothing is broadcast."""
        raise NotImplementedError

    def bool(self) -> Tensor:
        """The tensor as vk.boolean."""
        raise NotImplementedError

    def broadcast_to(self, shape: Sequence[builtins.int]) -> Tensor:
        """x stretched to the shape."""
        raise NotImplementedError

    def byte(self) -> Tensor:
        """The tensor as vk.u8."""
        raise NotImplementedError

    def ceil(self) -> Tensor:
        """The least integral value that isn't below x, elementwise; the type stays."""
        raise NotImplementedError

    def ceil_(self) -> Tensor:
        """`ceil` in place."""
        raise NotImplementedError

    def char(self) -> Tensor:
        """The tensor as vk.i8."""
        raise NotImplementedError

    def chunk(self, chunks: builtins.int, dim: builtins.int = 0) -> builtins.tuple[Tensor, ...]:
        """At most `chunks` parts of equal size along an axis (the last may be smaller); of an axis without elements so many."""
        raise NotImplementedError

    def clamp(self, min: Any = None, max: Any = None) -> Tensor:
        """x limited to min from below and max from above (None: no limit); NaN stays."""
        raise NotImplementedError

    def clamp_(self, min: Any = None, max: Any = None) -> Tensor:
        """`clamp` in place."""
        raise NotImplementedError

    def clamp_max(self, max: Any) -> Tensor:
        """x limited from above."""
        raise NotImplementedError

    def clamp_max_(self, max: Any) -> Tensor:
        """`clamp_max` in place."""
        raise NotImplementedError

    def clamp_min(self, min: Any) -> Tensor:
        """x limited from below."""
        raise NotImplementedError

    def clamp_min_(self, min: Any) -> Tensor:
        """`clamp_min` in place."""
        raise NotImplementedError

    def clip(self, min: Any = None, max: Any = None) -> Tensor:
        """x limited to min from below and max from above (None: no limit); NaN stays."""
        raise NotImplementedError

    def clip_(self, min: Any = None, max: Any = None) -> Tensor:
        """`clip` in place."""
        raise NotImplementedError

    def clone(self) -> Tensor:
        """A copy in C order."""
        raise NotImplementedError

    def contiguous(self) -> Tensor:
        """x itself where it is in C order, else a copy."""
        raise NotImplementedError

    def copy_(self, source: Any) -> Tensor:
        """Writes source (a tensor that broadcasts, or a number) into target, converted to its type."""
        raise NotImplementedError

    def copysign(self, b: Any) -> Tensor:
        """The magnitude of a with the sign of b, elementwise."""
        raise NotImplementedError

    def copysign_(self, b: Any) -> Tensor:
        """`copysign` in place."""
        raise NotImplementedError

    def cos(self) -> Tensor:
        """The cosine of x in radians, elementwise; integers give f32."""
        raise NotImplementedError

    def cos_(self) -> Tensor:
        """`cos` in place."""
        raise NotImplementedError

    def cosh(self) -> Tensor:
        """The hyperbolic cosine, elementwise; integers give f32."""
        raise NotImplementedError

    def cosh_(self) -> Tensor:
        """`cosh` in place."""
        raise NotImplementedError

    def count_nonzero(self, dim: builtins.int | Sequence[builtins.int] | None = None) -> Tensor:
        """How many elements aren't 0, over axes (i64)."""
        raise NotImplementedError

    def cross(self, b: Any, dim: builtins.int | None = None) -> Tensor:
        """The cross product of vectors of 3 along an axis (None: the first one of size 3), the others broadcast."""
        raise NotImplementedError

    def cummax(self, dim: builtins.int) -> Any:
        """Running maxima along an axis, and where they lie (of equal ones the last); NaN stays from where it stands."""
        raise NotImplementedError

    def cummin(self, dim: builtins.int) -> Any:
        """Running minima along an axis, and where they lie (of equal ones the last); NaN stays from where it stands."""
        raise NotImplementedError

    def cumprod(self, dim: builtins.int, *, dtype: Any = None) -> Tensor:
        """Running products along an axis; integers and bool in i64 unless dtype= says otherwise."""
        raise NotImplementedError

    def cumprod_(self, dim: builtins.int, *, dtype: Any = None) -> Tensor:
        """`cumprod` in place."""
        raise NotImplementedError

    def cumsum(self, dim: builtins.int, *, dtype: Any = None) -> Tensor:
        """Running sums along an axis; integers and bool in i64 unless dtype= says otherwise."""
        raise NotImplementedError

    def cumsum_(self, dim: builtins.int, *, dtype: Any = None) -> Tensor:
        """`cumsum` in place."""
        raise NotImplementedError

    def deg2rad(self) -> Tensor:
        """Degrees as radians."""
        raise NotImplementedError

    def deg2rad_(self) -> Tensor:
        """`deg2rad` in place."""
        raise NotImplementedError

    def diag(self, diagonal: builtins.int = 0) -> Tensor:
        """Of a vector the matrix with it on a diagonal, of a matrix the diagonal, copied."""
        raise NotImplementedError

    def diag_embed(self, offset: builtins.int = 0, dim1: builtins.int = -2, dim2: builtins.int = -1) -> Tensor:
        """Matrices of zeros, along two new axes, with x's last axis on a diagonal."""
        raise NotImplementedError

    def diagflat(self, offset: builtins.int = 0) -> Tensor:
        """The matrix with x's elements on a diagonal."""
        raise NotImplementedError

    def diagonal(self, offset: builtins.int = 0, dim1: builtins.int = 0, dim2: builtins.int = 1) -> Tensor:
        """The diagonal of the matrices along two axes, as the last axis; `offset` > 0 above the main one, < 0 below."""
        raise NotImplementedError

    def diagonal_scatter(self, src: Tensor, offset: builtins.int = 0, dim1: builtins.int = 0, dim2: builtins.int = 1) -> Tensor:
        """A copy of x with a diagonal replaced."""
        raise NotImplementedError

    def diff(self, n: builtins.int = 1, dim: builtins.int = -1, prepend: Tensor | None = None, append: Tensor | None = None) -> Tensor:
        """Differences of neighbours along an axis, taken n times; of bool whether they differ."""
        raise NotImplementedError

    def dist(self, b: Any, p: builtins.float = 2) -> Tensor:
        """The p-norm of a - b."""
        raise NotImplementedError

    def div(self, b: Any, *, rounding_mode: builtins.str | None = None) -> Tensor:
        """a / b: true division, or rounded: "floor" down, "trunc" towards zero. Integers divided by 0 give 0 when rounded."""
        raise NotImplementedError

    def div_(self, other: Any, *, rounding_mode: builtins.str | None = None) -> Tensor:
        """`div` in place."""
        raise NotImplementedError

    def dot(self, b: Tensor) -> Tensor:
        """The sum of the products of two vectors."""
        raise NotImplementedError

    def double(self) -> Tensor:
        """The tensor as vk.f64."""
        raise NotImplementedError

    def dsplit(self, indices_or_sections: Any) -> builtins.tuple[Tensor, ...]:
        """Equal parts, or parts cut at positions, along axis 2."""
        raise NotImplementedError

    def elu(self, *, alpha: builtins.float = 1.0) -> Tensor:
        """x where it is positive, else alpha (exp(x) - 1)."""
        raise NotImplementedError

    def eq(self, b: Any) -> Tensor:
        """a == b, elementwise, as bool; a number past the type's ends is compared as it is."""
        raise NotImplementedError

    def eq_(self, b: Any) -> Tensor:
        """`eq` in place."""
        raise NotImplementedError

    def equal(self, b: Tensor) -> builtins.bool:
        """Whether shapes and all elements are equal; waits for the values."""
        raise NotImplementedError

    def erf(self) -> Tensor:
        """The error function, elementwise; integers give f32."""
        raise NotImplementedError

    def erf_(self) -> Tensor:
        """`erf` in place."""
        raise NotImplementedError

    def erfc(self) -> Tensor:
        """1 - erf(x), exact for large x, elementwise; integers give f32."""
        raise NotImplementedError

    def erfc_(self) -> Tensor:
        """`erfc` in place."""
        raise NotImplementedError

    def erfinv(self) -> Tensor:
        """The inverse of erf; NaN outside [-1, 1], elementwise; integers give f32."""
        raise NotImplementedError

    def erfinv_(self) -> Tensor:
        """`erfinv` in place."""
        raise NotImplementedError

    def exp(self) -> Tensor:
        """e ** x, elementwise; integers give f32."""
        raise NotImplementedError

    def exp2(self) -> Tensor:
        """2 ** x, elementwise; integers give f32."""
        raise NotImplementedError

    def exp2_(self) -> Tensor:
        """`exp2` in place."""
        raise NotImplementedError

    def exp_(self) -> Tensor:
        """`exp` in place."""
        raise NotImplementedError

    def expand(self, *shape: Any) -> Tensor:
        """Axes of size 1 stretched, and new axes in front, without copying; -1 keeps a size."""
        raise NotImplementedError

    def expand_as(self, other: Tensor) -> Tensor:
        """x stretched to other's shape."""
        raise NotImplementedError

    def expm1(self) -> Tensor:
        """exp(x) - 1, exact near 0, elementwise; integers give f32."""
        raise NotImplementedError

    def expm1_(self) -> Tensor:
        """`expm1` in place."""
        raise NotImplementedError

    def fill_(self, value: Any) -> Tensor:
        """Writes one number (or the value of a 0-d tensor) everywhere."""
        raise NotImplementedError

    def flatten(self, start_dim: builtins.int = 0, end_dim: builtins.int = -1) -> Tensor:
        """The axes from start_dim to end_dim (both included) merged into one."""
        raise NotImplementedError

    def flip(self, *axes: Any, dims: Any = None) -> Tensor:
        """The order of elements reversed along the axes: a copy, as in PyTorch (`x[::-1]` is a view with negative strides)."""
        raise NotImplementedError

    def fliplr(self) -> Tensor:
        """Axis 1 reversed."""
        raise NotImplementedError

    def flipud(self) -> Tensor:
        """Axis 0 reversed."""
        raise NotImplementedError

    def float(self) -> Tensor:
        """The tensor as vk.f32."""
        raise NotImplementedError

    def float_power(self, exponent: Any) -> Tensor:
        """x ** exponent in f64."""
        raise NotImplementedError

    def float_power_(self, exponent: Any) -> Tensor:
        """`float_power` in place."""
        raise NotImplementedError

    def floor(self) -> Tensor:
        """The greatest integral value that isn't above x, elementwise; the type stays."""
        raise NotImplementedError

    def floor_(self) -> Tensor:
        """`floor` in place."""
        raise NotImplementedError

    def floor_divide(self, b: Any) -> Tensor:
        """The quotient rounded down; integers divided by 0 give 0, elementwise."""
        raise NotImplementedError

    def floor_divide_(self, other: Any) -> Tensor:
        """`floor_divide` in place."""
        raise NotImplementedError

    def fmax(self, b: Any) -> Tensor:
        """The greater one, elementwise; of NaN and a number the number."""
        raise NotImplementedError

    def fmin(self, b: Any) -> Tensor:
        """The smaller one, elementwise; of NaN and a number the number."""
        raise NotImplementedError

    def fmod(self, b: Any) -> Tensor:
        """The remainder with the sign of a (C's fmod), elementwise."""
        raise NotImplementedError

    def fmod_(self, b: Any) -> Tensor:
        """`fmod` in place."""
        raise NotImplementedError

    def frac(self) -> Tensor:
        """x - trunc(x), elementwise."""
        raise NotImplementedError

    def frac_(self) -> Tensor:
        """`frac` in place."""
        raise NotImplementedError

    def gather(self, dim: builtins.int, index: Tensor, *, sparse_grad: builtins.bool = False) -> Tensor:
        """y[.., n, ..] = x[.., index[.., n, ..], ..] along an axis; the result has index's shape."""
        raise NotImplementedError

    def gcd(self, b: Any) -> Tensor:
        """The greatest common divisor of integers, elementwise; at least 0."""
        raise NotImplementedError

    def gcd_(self, b: Any) -> Tensor:
        """`gcd` in place."""
        raise NotImplementedError

    def ge(self, b: Any) -> Tensor:
        """a >= b, elementwise, as bool; a number past the type's ends is compared as it is."""
        raise NotImplementedError

    def ge_(self, b: Any) -> Tensor:
        """`ge` in place."""
        raise NotImplementedError

    def gelu(self, *, approximate: builtins.str = 'none') -> Tensor:
        """x times the normal distribution's cumulative function at x; `approximate="tanh"` for the tanh form."""
        raise NotImplementedError

    def gt(self, b: Any) -> Tensor:
        """a > b, elementwise, as bool; a number past the type's ends is compared as it is."""
        raise NotImplementedError

    def gt_(self, b: Any) -> Tensor:
        """`gt` in place."""
        raise NotImplementedError

    def half(self) -> Tensor:
        """The tensor as vk.f16."""
        raise NotImplementedError

    def heaviside(self, b: Any) -> Tensor:
        """0 where a is below 0, b where it is 0, else 1, elementwise."""
        raise NotImplementedError

    def heaviside_(self, b: Any) -> Tensor:
        """`heaviside` in place."""
        raise NotImplementedError

    def histc(self, bins: builtins.int = 100, min: builtins.float = 0, max: builtins.float = 0) -> Tensor:
        """How many elements lie in each of `bins` equal parts of [min, max] (both 0: of the elements' range), in x's type."""
        raise NotImplementedError

    def hsplit(self, indices_or_sections: Any) -> builtins.tuple[Tensor, ...]:
        """Equal parts, or parts cut at positions, along axis 1 (vectors: axis 0)."""
        raise NotImplementedError

    def hypot(self, b: Any) -> Tensor:
        """sqrt(a*a + b*b) without overflow, elementwise."""
        raise NotImplementedError

    def hypot_(self, b: Any) -> Tensor:
        """`hypot` in place."""
        raise NotImplementedError

    def index_add(self, dim: builtins.int, index: Tensor, source: Tensor, *, alpha: builtins.float = 1) -> Tensor:
        """x with alpha times the slices of source added to those that a vector of positions names."""
        raise NotImplementedError

    def index_add_(self, dim: builtins.int, index: Tensor, source: Tensor, *, alpha: builtins.float = 1) -> Tensor:
        """`index_add` in place."""
        raise NotImplementedError

    def index_copy(self, dim: builtins.int, index: Tensor, source: Tensor) -> Tensor:
        """x with the slices that a vector of positions names replaced by those of source."""
        raise NotImplementedError

    def index_copy_(self, dim: builtins.int, index: Tensor, source: Tensor) -> Tensor:
        """`index_copy` in place."""
        raise NotImplementedError

    def index_fill(self, dim: builtins.int, index: Tensor, value: Any) -> Tensor:
        """x with the slices that a vector of positions names filled with a number or a 0-d tensor."""
        raise NotImplementedError

    def index_fill_(self, dim: builtins.int, index: Tensor, value: Any) -> Tensor:
        """`index_fill` in place."""
        raise NotImplementedError

    def index_put(self, indices: Any, values: Any, accumulate: builtins.bool = False) -> Tensor:
        """x with `values` written (or added) at x[indices], a tuple of position tensors and masks."""
        raise NotImplementedError

    def index_put_(self, indices: Any, values: Any, accumulate: builtins.bool = False) -> Tensor:
        """`index_put` in place."""
        raise NotImplementedError

    def index_reduce(self, dim: builtins.int, index: Tensor, source: Tensor, reduce: builtins.str, *, include_self: builtins.bool = True) -> Tensor:
        """x with the slices of source combined ("prod", "mean", "amax", "amin") into those that a vector of positions names."""
        raise NotImplementedError

    def index_reduce_(self, dim: builtins.int, index: Tensor, source: Tensor, reduce: builtins.str, *, include_self: builtins.bool = True) -> Tensor:
        """`index_reduce` in place."""
        raise NotImplementedError

    def index_select(self, dim: builtins.int, index: Tensor) -> Tensor:
        """The slices of x along an axis that a vector of positions names."""
        raise NotImplementedError

    def inner(self, b: Tensor) -> Tensor:
        """Products summed over the last axes of both."""
        raise NotImplementedError

    def int(self) -> Tensor:
        """The tensor as vk.i32."""
        raise NotImplementedError

    def isclose(self, b: Tensor, rtol: builtins.float = 1e-05, atol: builtins.float = 1e-08, equal_nan: builtins.bool = False) -> Tensor:
        """Whether abs(a - b) <= atol + rtol * abs(b), elementwise; infinities are close to themselves."""
        raise NotImplementedError

    def isfinite(self) -> Tensor:
        """Whether x is neither NaN nor an infinity, elementwise, as bool."""
        raise NotImplementedError

    def isinf(self) -> Tensor:
        """Whether x is an infinity, elementwise, as bool."""
        raise NotImplementedError

    def isnan(self) -> Tensor:
        """Whether x is NaN, elementwise, as bool."""
        raise NotImplementedError

    def isneginf(self) -> Tensor:
        """Whether x is -inf, elementwise, as bool."""
        raise NotImplementedError

    def isposinf(self) -> Tensor:
        """Whether x is inf, elementwise, as bool."""
        raise NotImplementedError

    def isreal(self) -> Tensor:
        """True everywhere: there are no complex numbers here."""
        raise NotImplementedError

    def kron(self, b: Any) -> Tensor:
        """The Kronecker product: each element of a times all of b."""
        raise NotImplementedError

    def kthvalue(self, k: builtins.int, dim: builtins.int = -1, keepdim: builtins.bool = False) -> Any:
        """The k-th smallest value (from 1) along an axis, and where it lies."""
        raise NotImplementedError

    def lcm(self, b: Any) -> Tensor:
        """The least common multiple of integers, elementwise; 0 where one is 0."""
        raise NotImplementedError

    def lcm_(self, b: Any) -> Tensor:
        """`lcm` in place."""
        raise NotImplementedError

    def ldexp(self, other: Any) -> Tensor:
        """x * 2 ** other, as floats."""
        raise NotImplementedError

    def ldexp_(self, other: Any) -> Tensor:
        """`ldexp` in place."""
        raise NotImplementedError

    def le(self, b: Any) -> Tensor:
        """a <= b, elementwise, as bool; a number past the type's ends is compared as it is."""
        raise NotImplementedError

    def le_(self, b: Any) -> Tensor:
        """`le` in place."""
        raise NotImplementedError

    def leaky_relu(self, *, negative_slope: builtins.float = 0.01) -> Tensor:
        """x where it is positive, else negative_slope x."""
        raise NotImplementedError

    def lerp(self, end: Tensor, weight: Any) -> Tensor:
        """start + weight (end - start)."""
        raise NotImplementedError

    def lerp_(self, end: Tensor, weight: Any) -> Tensor:
        """`lerp` in place."""
        raise NotImplementedError

    def log(self) -> Tensor:
        """The natural logarithm, elementwise; integers give f32."""
        raise NotImplementedError

    def log10(self) -> Tensor:
        """The logarithm to base 10, elementwise; integers give f32."""
        raise NotImplementedError

    def log10_(self) -> Tensor:
        """`log10` in place."""
        raise NotImplementedError

    def log1p(self) -> Tensor:
        """log(1 + x), exact near 0, elementwise; integers give f32."""
        raise NotImplementedError

    def log1p_(self) -> Tensor:
        """`log1p` in place."""
        raise NotImplementedError

    def log2(self) -> Tensor:
        """The logarithm to base 2, elementwise; integers give f32."""
        raise NotImplementedError

    def log2_(self) -> Tensor:
        """`log2` in place."""
        raise NotImplementedError

    def log_(self) -> Tensor:
        """`log` in place."""
        raise NotImplementedError

    def log_softmax(self, dim: builtins.int = -1, *, dtype: Any = None) -> Tensor:
        """The logarithm of softmax(x), without overflow; `dtype` converts x first."""
        raise NotImplementedError

    def logaddexp(self, b: Any) -> Tensor:
        """log(exp(a) + exp(b)) without overflow, elementwise."""
        raise NotImplementedError

    def logaddexp2(self, b: Any) -> Tensor:
        """log2(2 ** a + 2 ** b) without overflow, elementwise."""
        raise NotImplementedError

    def logcumsumexp(self, dim: builtins.int) -> Tensor:
        """log of the running sums of exp(x) along an axis, without overflow."""
        raise NotImplementedError

    def logical_and(self, b: Any) -> Tensor:
        """a and b, elementwise, as bool; numbers count as true unless they are 0."""
        raise NotImplementedError

    def logical_and_(self, b: Any) -> Tensor:
        """`logical_and` in place."""
        raise NotImplementedError

    def logical_not(self) -> Tensor:
        """Whether x is 0 or False, elementwise, as bool."""
        raise NotImplementedError

    def logical_not_(self) -> Tensor:
        """`logical_not` in place."""
        raise NotImplementedError

    def logical_or(self, b: Any) -> Tensor:
        """a or b, elementwise, as bool; numbers count as true unless they are 0."""
        raise NotImplementedError

    def logical_or_(self, b: Any) -> Tensor:
        """`logical_or` in place."""
        raise NotImplementedError

    def logical_xor(self, b: Any) -> Tensor:
        """Either a or b, elementwise, as bool; numbers count as true unless they are 0."""
        raise NotImplementedError

    def logical_xor_(self, b: Any) -> Tensor:
        """`logical_xor` in place."""
        raise NotImplementedError

    def logit(self, eps: builtins.float | None = None) -> Tensor:
        """log(x / (1 - x)), elementwise; with eps x is limited to [eps, 1 - eps] first."""
        raise NotImplementedError

    def logit_(self, eps: builtins.float | None = None) -> Tensor:
        """`logit` in place."""
        raise NotImplementedError

    def logsumexp(self, dim: builtins.int | Sequence[builtins.int] | None = None, keepdim: builtins.bool = False) -> Tensor:
        """log(sum(exp(x))) over axes, without overflow."""
        raise NotImplementedError

    def long(self) -> Tensor:
        """The tensor as vk.i64."""
        raise NotImplementedError

    def lt(self, b: Any) -> Tensor:
        """a < b, elementwise, as bool; a number past the type's ends is compared as it is."""
        raise NotImplementedError

    def lt_(self, b: Any) -> Tensor:
        """`lt` in place."""
        raise NotImplementedError

    def masked_fill(self, mask: Tensor, value: Any) -> Tensor:
        """x with `value` (a number or a 0-d tensor) where the mask is true."""
        raise NotImplementedError

    def masked_fill_(self, mask: Tensor, value: Any) -> Tensor:
        """`masked_fill` in place."""
        raise NotImplementedError

    def masked_scatter(self, mask: Tensor, source: Tensor) -> Tensor:
        """x with source's elements, in order, where the mask (broadcast) is true; waits for their number."""
        raise NotImplementedError

    def masked_scatter_(self, mask: Tensor, source: Tensor) -> Tensor:
        """`masked_scatter` in place."""
        raise NotImplementedError

    def masked_select(self, mask: Tensor) -> Tensor:
        """The elements where the mask (broadcast) is true, as a vector; waits for their number."""
        raise NotImplementedError

    def matmul(self, b: Tensor) -> Tensor:
        """The matrix product of the last two axes, the axes before them broadcast; a vector counts as a row on the left and as a column on the right, and that axis is left out of the result."""
        raise NotImplementedError

    def max(self, dim: Any = None, keepdim: builtins.bool = False) -> Any:
        """The maximum of all elements; with an axis, (values, indices) along it; of two tensors the elementwise `maximum`."""
        raise NotImplementedError

    def maximum(self, b: Any) -> Tensor:
        """The greater one; NaN passes on, elementwise."""
        raise NotImplementedError

    def mean(self, dim: builtins.int | Sequence[builtins.int] | None = None, keepdim: builtins.bool = False, *, dtype: Any = None) -> Tensor:
        """The mean over axes, of floats; NaN over no elements."""
        raise NotImplementedError

    def median(self, dim: builtins.int | None = None, keepdim: builtins.bool = False) -> Any:
        """The lower median of all elements, or along an axis with where it lies; NaN where there is one."""
        raise NotImplementedError

    def min(self, dim: Any = None, keepdim: builtins.bool = False) -> Any:
        """The minimum of all elements; with an axis, (values, indices) along it; of two tensors the elementwise `minimum`."""
        raise NotImplementedError

    def minimum(self, b: Any) -> Tensor:
        """The smaller one; NaN passes on, elementwise."""
        raise NotImplementedError

    def mm(self, b: Tensor) -> Tensor:
        """The product of two matrices."""
        raise NotImplementedError

    def moveaxis(self, source: builtins.int | Sequence[builtins.int], destination: builtins.int | Sequence[builtins.int]) -> Tensor:
        """Axes moved to other places, the others keep their order."""
        raise NotImplementedError

    def movedim(self, source: builtins.int | Sequence[builtins.int], destination: builtins.int | Sequence[builtins.int]) -> Tensor:
        """Axes moved to other places, the others keep their order."""
        raise NotImplementedError

    def msort(self) -> Tensor:
        """The values in order along axis 0."""
        raise NotImplementedError

    def mul(self, b: Any) -> Tensor:
        """a * b; `and` for bool."""
        raise NotImplementedError

    def mul_(self, other: Any) -> Tensor:
        """`mul` in place."""
        raise NotImplementedError

    def mv(self, b: Tensor) -> Tensor:
        """The product of a matrix and a vector."""
        raise NotImplementedError

    def nan_to_num(self, nan: builtins.float | None = None, posinf: builtins.float | None = None, neginf: builtins.float | None = None) -> Tensor:
        """x with NaN replaced by a number (0), inf by the largest one of the type, -inf by the least, where not given."""
        raise NotImplementedError

    def nan_to_num_(self, nan: builtins.float | None = None, posinf: builtins.float | None = None, neginf: builtins.float | None = None) -> Tensor:
        """`nan_to_num` in place."""
        raise NotImplementedError

    def nanmean(self, dim: builtins.int | Sequence[builtins.int] | None = None, keepdim: builtins.bool = False, *, dtype: Any = None) -> Tensor:
        """The mean over axes, NaN left out."""
        raise NotImplementedError

    def nanmedian(self, dim: builtins.int | None = None, keepdim: builtins.bool = False) -> Any:
        """As `median`, without the NaN."""
        raise NotImplementedError

    def nanquantile(self, q: Any, dim: builtins.int | None = None, keepdim: builtins.bool = False, *, interpolation: builtins.str = 'linear') -> Tensor:
        """As `quantile`, without the NaN."""
        raise NotImplementedError

    def nansum(self, dim: builtins.int | Sequence[builtins.int] | None = None, keepdim: builtins.bool = False, *, dtype: Any = None) -> Tensor:
        """The sum over axes, NaN left out."""
        raise NotImplementedError

    def narrow(self, dim: builtins.int, start: Any, length: builtins.int) -> Tensor:
        """`length` elements from `start` along an axis."""
        raise NotImplementedError

    def ne(self, b: Any) -> Tensor:
        """a != b, elementwise, as bool; a number past the type's ends is compared as it is."""
        raise NotImplementedError

    def ne_(self, b: Any) -> Tensor:
        """`ne` in place."""
        raise NotImplementedError

    def neg(self) -> Tensor:
        """-x, elementwise; the type stays."""
        raise NotImplementedError

    def neg_(self) -> Tensor:
        """`neg` in place."""
        raise NotImplementedError

    def new_empty(self, *args: Any, **options: Any) -> Tensor:
        """`empty` of this tensor's type, on its device."""
        raise NotImplementedError

    def new_full(self, *args: Any, **options: Any) -> Tensor:
        """`full` of this tensor's type, on its device."""
        raise NotImplementedError

    def new_ones(self, *args: Any, **options: Any) -> Tensor:
        """`ones` of this tensor's type, on its device."""
        raise NotImplementedError

    def new_tensor(self, *args: Any, **options: Any) -> Tensor:
        """`tensor` of this tensor's type, on its device."""
        raise NotImplementedError

    def new_zeros(self, *args: Any, **options: Any) -> Tensor:
        """`zeros` of this tensor's type, on its device."""
        raise NotImplementedError

    def nonzero(self, *, as_tuple: builtins.bool = False) -> Any:
        """Positions of the elements that aren't 0, one row each (as_tuple: one vector per axis); waits for their number."""
        raise NotImplementedError

    def norm(self, p: builtins.float | builtins.str = 2.0, dim: builtins.int | Sequence[builtins.int] | None = None, keepdim: builtins.bool = False) -> Tensor:
        """The vector norm over axes: p-th root of the sum of p-th powers; p may be inf, -inf, 0; "fro" is 2."""
        raise NotImplementedError

    def normal_(self, mean: builtins.float = 0.0, std: builtins.float = 1.0, *, generator: Any = None) -> Tensor:
        """Normal numbers in place."""
        raise NotImplementedError

    def outer(self, b: Tensor) -> Tensor:
        """All products of an element of one vector and an element of another: (M,) and (N,) give (M, N)."""
        raise NotImplementedError

    def permute(self, *axes: Any, dims: Any = None) -> Tensor:
        """The axes in another order: `permute(x, 2, 0, 1)`."""
        raise NotImplementedError

    def pow(self, b: Any) -> Tensor:
        """a ** b. Exponents 2, 3, 0.5, -1 and the like are multiplications and roots; integers take exponents of at least 0."""
        raise NotImplementedError

    def pow_(self, exponent: Any) -> Tensor:
        """`pow` in place."""
        raise NotImplementedError

    def prod(self, dim: builtins.int | Sequence[builtins.int] | None = None, keepdim: builtins.bool = False, *, dtype: Any = None) -> Tensor:
        """The product over axes; integers and bool in i64 unless dtype= says otherwise."""
        raise NotImplementedError

    def put(self, index: Tensor, source: Tensor, accumulate: builtins.bool = False) -> Tensor:
        """x with source's elements written (or added) at positions in its C order."""
        raise NotImplementedError

    def put_(self, index: Tensor, source: Tensor, accumulate: builtins.bool = False) -> Tensor:
        """`put` in place."""
        raise NotImplementedError

    def quantile(self, q: Any, dim: builtins.int | None = None, keepdim: builtins.bool = False, *, interpolation: builtins.str = 'linear') -> Tensor:
        """The q-quantiles (0 to 1) of all elements or along an axis; several q give an axis in front. NaN where there is one."""
        raise NotImplementedError

    def rad2deg(self) -> Tensor:
        """Radians as degrees."""
        raise NotImplementedError

    def rad2deg_(self) -> Tensor:
        """`rad2deg` in place."""
        raise NotImplementedError

    def ravel(self) -> Tensor:
        """All elements along one axis."""
        raise NotImplementedError

    def reciprocal(self) -> Tensor:
        """1 / x, elementwise; integers give f32."""
        raise NotImplementedError

    def reciprocal_(self) -> Tensor:
        """`reciprocal` in place."""
        raise NotImplementedError

    def relu(self) -> Tensor:
        """max(x, 0); NaN stays, elementwise; the type stays."""
        raise NotImplementedError

    def relu_(self) -> Tensor:
        """`relu` in place."""
        raise NotImplementedError

    def remainder(self, b: Any) -> Tensor:
        """The remainder with the sign of b (Python's %), elementwise."""
        raise NotImplementedError

    def remainder_(self, other: Any) -> Tensor:
        """`remainder` in place."""
        raise NotImplementedError

    def repeat(self, *sizes: Any) -> Tensor:
        """x side by side `size` times along each axis; more sizes than axes add axes in front."""
        raise NotImplementedError

    def repeat_interleave(self, repeats: Any, dim: builtins.int | None = None, *, output_size: builtins.int | None = None) -> Tensor:
        """Each element (along an axis; None: of the flattened tensor) repeated, so many times or as often as a vector says; waits for the vector's sum unless output_size gives it."""
        raise NotImplementedError

    def reshape(self, *shape: Any) -> Tensor:
        """The elements in C order in another shape, one size may be -1: a view where strides allow it, else a copy."""
        raise NotImplementedError

    def reshape_as(self, other: Tensor) -> Tensor:
        """x in other's shape."""
        raise NotImplementedError

    def roll(self, shifts: builtins.int | Sequence[builtins.int], dims: builtins.int | Sequence[builtins.int] | None = None) -> Tensor:
        """Elements moved along axes; those that leave at the end come in at the beginning."""
        raise NotImplementedError

    def rot90(self, k: builtins.int = 1, dims: Sequence[builtins.int] = (0, 1)) -> Tensor:
        """Turned k times by 90 degrees in the plane of two axes, from the first towards the second."""
        raise NotImplementedError

    def round(self, *, decimals: builtins.int = 0) -> Tensor:
        """The nearest value with so many decimals (negative: tens, hundreds...), halves to even, elementwise."""
        raise NotImplementedError

    def round_(self, *, decimals: builtins.int = 0) -> Tensor:
        """`round` in place."""
        raise NotImplementedError

    def rsqrt(self) -> Tensor:
        """1 / sqrt(x), elementwise; integers give f32."""
        raise NotImplementedError

    def rsqrt_(self) -> Tensor:
        """`rsqrt` in place."""
        raise NotImplementedError

    def scatter(self, dim: builtins.int, index: Tensor, src: Any = None, *, value: Any = None, reduce: builtins.str | None = None) -> Tensor:
        """x with src[.., n, ..] (or a number) written at [.., index[.., n, ..], ..]; of several the last one stays. With reduce="add" or "multiply" combined with what is there."""
        raise NotImplementedError

    def scatter_(self, dim: builtins.int, index: Tensor, src: Any = None, *, value: Any = None, reduce: builtins.str | None = None) -> Tensor:
        """`scatter` in place."""
        raise NotImplementedError

    def scatter_add(self, dim: builtins.int, index: Tensor, src: Tensor) -> Tensor:
        """x with src[.., n, ..] added at [.., index[.., n, ..], ..]; the order of additions is fixed, unless a GPU adds long lists by atomics (see `use_deterministic_algorithms`)."""
        raise NotImplementedError

    def scatter_add_(self, dim: builtins.int, index: Tensor, src: Tensor) -> Tensor:
        """`scatter_add` in place."""
        raise NotImplementedError

    def scatter_reduce(self, dim: builtins.int, index: Tensor, src: Tensor, reduce: builtins.str, *, include_self: builtins.bool = True) -> Tensor:
        """x with src[.., n, ..] combined into [.., index[.., n, ..], ..] by "sum", "prod", "mean", "amax" or "amin"; include_self=False leaves x's own values out where something is written."""
        raise NotImplementedError

    def scatter_reduce_(self, dim: builtins.int, index: Tensor, src: Tensor, reduce: builtins.str, *, include_self: builtins.bool = True) -> Tensor:
        """`scatter_reduce` in place."""
        raise NotImplementedError

    def select(self, dim: builtins.int, index: builtins.int) -> Tensor:
        """The slice at one index of an axis, without that axis."""
        raise NotImplementedError

    def select_scatter(self, src: Tensor, dim: builtins.int, index: builtins.int) -> Tensor:
        """A copy of x with the slice at one index of an axis replaced."""
        raise NotImplementedError

    def sgn(self) -> Tensor:
        """As `sign`."""
        raise NotImplementedError

    def sgn_(self) -> Tensor:
        """`sgn` in place."""
        raise NotImplementedError

    def short(self) -> Tensor:
        """The tensor as vk.i16."""
        raise NotImplementedError

    def sigmoid(self) -> Tensor:
        """1 / (1 + exp(-x)), without overflow, elementwise; integers give f32."""
        raise NotImplementedError

    def sigmoid_(self) -> Tensor:
        """`sigmoid` in place."""
        raise NotImplementedError

    def sign(self) -> Tensor:
        """-1, 0 or 1 by sign, elementwise; 0 of NaN, as in PyTorch; bool stays."""
        raise NotImplementedError

    def sign_(self) -> Tensor:
        """`sign` in place."""
        raise NotImplementedError

    def signbit(self) -> Tensor:
        """Whether the sign is set, also that of -0, elementwise, as bool."""
        raise NotImplementedError

    def silu(self) -> Tensor:
        """x * sigmoid(x), elementwise; integers give f32."""
        raise NotImplementedError

    def sin(self) -> Tensor:
        """The sine of x in radians, elementwise; integers give f32."""
        raise NotImplementedError

    def sin_(self) -> Tensor:
        """`sin` in place."""
        raise NotImplementedError

    def sinc(self) -> Tensor:
        """sin(pi x) / (pi x), 1 at 0, elementwise; integers give f32."""
        raise NotImplementedError

    def sinc_(self) -> Tensor:
        """`sinc` in place."""
        raise NotImplementedError

    def sinh(self) -> Tensor:
        """The hyperbolic sine, elementwise; integers give f32."""
        raise NotImplementedError

    def sinh_(self) -> Tensor:
        """`sinh` in place."""
        raise NotImplementedError

    def slice_scatter(self, src: Tensor, dim: builtins.int = 0, start: builtins.int | None = None, end: builtins.int | None = None, step: builtins.int = 1) -> Tensor:
        """A copy of x with the elements start:end:step of an axis replaced."""
        raise NotImplementedError

    def softmax(self, dim: builtins.int = -1, *, dtype: Any = None) -> Tensor:
        """exp(x) divided by its sum along an axis; `dtype` converts x first."""
        raise NotImplementedError

    def softplus(self, *, beta: builtins.float = 1.0, threshold: builtins.float = 20.0) -> Tensor:
        """log(1 + exp(beta x)) / beta; x itself where beta x is above the threshold."""
        raise NotImplementedError

    def sort(self, dim: builtins.int = -1, descending: builtins.bool = False, stable: builtins.bool = True) -> Any:
        """The values along an axis in order, and where each lay; equal ones keep their order."""
        raise NotImplementedError

    def split(self, split_size_or_sections: builtins.int | Sequence[builtins.int], dim: builtins.int = 0) -> builtins.tuple[Tensor, ...]:
        """Parts along an axis: of one size (the last may be smaller), or of the sizes listed."""
        raise NotImplementedError

    def split_with_sizes(self, split_sizes: Sequence[builtins.int], dim: builtins.int = 0) -> builtins.tuple[Tensor, ...]:
        """Parts of the sizes listed along an axis."""
        raise NotImplementedError

    def sqrt(self) -> Tensor:
        """The square root, elementwise; integers give f32."""
        raise NotImplementedError

    def sqrt_(self) -> Tensor:
        """`sqrt` in place."""
        raise NotImplementedError

    def square(self) -> Tensor:
        """x * x, elementwise; the type stays, bool gives i64."""
        raise NotImplementedError

    def square_(self) -> Tensor:
        """`square` in place."""
        raise NotImplementedError

    def squeeze(self, dim: builtins.int | Sequence[builtins.int] | None = None) -> Tensor:
        """Without axes of size 1: all of them, or those named that have size 1."""
        raise NotImplementedError

    def squeeze_(self, dim: builtins.int | Sequence[builtins.int] | None = None) -> Tensor:
        """`squeeze` in place: the tensor itself gets the other shape, its memory stays."""
        raise NotImplementedError

    def std(self, dim: builtins.int | Sequence[builtins.int] | None = None, *, correction: builtins.float | None = 1, unbiased: builtins.bool | None = None, keepdim: builtins.bool = False) -> Tensor:
        """The standard deviation over axes, as `var`."""
        raise NotImplementedError

    def sub(self, b: Any, *, alpha: builtins.float = 1) -> Tensor:
        """a - alpha b."""
        raise NotImplementedError

    def sub_(self, other: Any, *, alpha: builtins.float = 1) -> Tensor:
        """`sub` in place."""
        raise NotImplementedError

    def sum(self, dim: builtins.int | Sequence[builtins.int] | None = None, keepdim: builtins.bool = False, *, dtype: Any = None) -> Tensor:
        """The sum over axes; integers and bool in i64 unless dtype= says otherwise."""
        raise NotImplementedError

    def sum_to_size(self, *size: Any) -> Tensor:
        """x summed over the axes along which a tensor of that shape would be stretched to x's."""
        raise NotImplementedError

    def swapaxes(self, dim0: builtins.int, dim1: builtins.int) -> Tensor:
        """Two axes exchanged."""
        raise NotImplementedError

    def swapaxes_(self, dim0: builtins.int, dim1: builtins.int) -> Tensor:
        """`swapaxes` in place: the tensor itself gets the other shape, its memory stays."""
        raise NotImplementedError

    def swapdims(self, dim0: builtins.int, dim1: builtins.int) -> Tensor:
        """Two axes exchanged."""
        raise NotImplementedError

    def swapdims_(self, dim0: builtins.int, dim1: builtins.int) -> Tensor:
        """`swapdims` in place: the tensor itself gets the other shape, its memory stays."""
        raise NotImplementedError

    def t(self) -> Tensor:
        """The transpose of a matrix; a vector stays."""
        raise NotImplementedError

    def t_(self) -> Tensor:
        """`t` in place: the tensor itself gets the other shape, its memory stays."""
        raise NotImplementedError

    def take(self, index: Tensor) -> Tensor:
        """x's elements at positions in its C order; the result has index's shape."""
        raise NotImplementedError

    def take_along_dim(self, indices: Tensor, dim: builtins.int | None = None) -> Tensor:
        """As `gather`, with x and indices broadcast along the other axes; without an axis both are flattened."""
        raise NotImplementedError

    def tan(self) -> Tensor:
        """The tangent of x in radians, elementwise; integers give f32."""
        raise NotImplementedError

    def tan_(self) -> Tensor:
        """`tan` in place."""
        raise NotImplementedError

    def tanh(self) -> Tensor:
        """The hyperbolic tangent, elementwise; integers give f32."""
        raise NotImplementedError

    def tanh_(self) -> Tensor:
        """`tanh` in place."""
        raise NotImplementedError

    def tensor_split(self, indices_or_sections: Any, dim: builtins.int = 0) -> builtins.tuple[Tensor, ...]:
        """Parts along an axis: so many of nearly equal size (the first ones larger by 1), or cut before the positions listed."""
        raise NotImplementedError

    def tile(self, *counts: Any) -> Tensor:
        """As `repeat`; missing counts in front are 1."""
        raise NotImplementedError

    def to(self, *targets: Any, dtype: Any = None, device: Any = None, copy: builtins.bool = False, non_blocking: builtins.bool = False) -> Tensor:
        """x in another type and on another device: `x.to(vk.f16)`, `x.to("cpu")`, `x.to(dtype=..., device=...)`."""
        raise NotImplementedError

    def topk(self, k: builtins.int, dim: builtins.int = -1, largest: builtins.bool = True, sorted: builtins.bool = True) -> Any:
        """The k largest (or smallest) values along an axis in order, and where they lie; of equal ones the first."""
        raise NotImplementedError

    def trace(self) -> Tensor:
        """The sum of a matrix' diagonal."""
        raise NotImplementedError

    def transpose(self, dim0: builtins.int, dim1: builtins.int) -> Tensor:
        """Two axes exchanged."""
        raise NotImplementedError

    def transpose_(self, dim0: builtins.int, dim1: builtins.int) -> Tensor:
        """`transpose` in place: the tensor itself gets the other shape, its memory stays."""
        raise NotImplementedError

    def tril(self, diagonal: builtins.int = 0) -> Tensor:
        """The matrices' part on and below a diagonal, 0 above it."""
        raise NotImplementedError

    def tril_(self, diagonal: builtins.int = 0) -> Tensor:
        """`tril` in place."""
        raise NotImplementedError

    def triu(self, diagonal: builtins.int = 0) -> Tensor:
        """The matrices' part on and above a diagonal, 0 below it."""
        raise NotImplementedError

    def triu_(self, diagonal: builtins.int = 0) -> Tensor:
        """`triu` in place."""
        raise NotImplementedError

    def true_divide(self, b: Any) -> Tensor:
        """a / b; integers give f32."""
        raise NotImplementedError

    def true_divide_(self, b: Any) -> Tensor:
        """`true_divide` in place."""
        raise NotImplementedError

    def trunc(self) -> Tensor:
        """x without its fraction, elementwise; the type stays."""
        raise NotImplementedError

    def trunc_(self) -> Tensor:
        """`trunc` in place."""
        raise NotImplementedError

    def type_as(self, other: Any) -> Any:
        """`type_as`."""
        raise NotImplementedError

    def unbind(self, dim: builtins.int = 0) -> builtins.tuple[Tensor, ...]:
        """The slices along an axis, without it."""
        raise NotImplementedError

    def unflatten(self, dim: builtins.int, sizes: Sequence[builtins.int]) -> Tensor:
        """One axis split into several; one size may be -1."""
        raise NotImplementedError

    def unfold(self, dimension: builtins.int, size: builtins.int, step: builtins.int) -> Tensor:
        """All windows of `size` along an axis, `step` apart, as a new last axis (a view)."""
        raise NotImplementedError

    def uniform_(self, low: builtins.float = 0.0, high: builtins.float = 1.0, *, generator: Any = None) -> Tensor:
        """Uniform numbers in [low, high) in place."""
        raise NotImplementedError

    def unique(self, sorted: builtins.bool = True, return_inverse: builtins.bool = False, return_counts: builtins.bool = False, dim: builtins.int | None = None) -> Any:
        """The distinct elements in order, or with `dim` the distinct slices; optionally the number of each element's one, and how often each occurs. Waits for their number (`dim`: for the values)."""
        raise NotImplementedError

    def unique_consecutive(self, return_inverse: builtins.bool = False, return_counts: builtins.bool = False, dim: builtins.int | None = None) -> Any:
        """The elements (with `dim`: slices) that differ from the one before; optionally the number of each element's one, and how long each run is. Waits for their number."""
        raise NotImplementedError

    def unsqueeze(self, dim: builtins.int) -> Tensor:
        """A new axis of size 1 before axis `dim`."""
        raise NotImplementedError

    def unsqueeze_(self, dim: builtins.int) -> Tensor:
        """`unsqueeze` in place: the tensor itself gets the other shape, its memory stays."""
        raise NotImplementedError

    def var(self, dim: builtins.int | Sequence[builtins.int] | None = None, *, correction: builtins.float | None = 1, unbiased: builtins.bool | None = None, keepdim: builtins.bool = False) -> Tensor:
        """The variance over axes: squares of distances from the mean, summed and divided by count - correction."""
        raise NotImplementedError

    def vdot(self, b: Tensor) -> Tensor:
        """The sum of the products of two vectors."""
        raise NotImplementedError

    def view(self, *shape: Any) -> Tensor:
        """As `reshape`, but never a copy: ShapeError where strides don't allow a view."""
        raise NotImplementedError

    def view_as(self, other: Tensor) -> Tensor:
        """A view of other's shape."""
        raise NotImplementedError

    def vsplit(self, indices_or_sections: Any) -> builtins.tuple[Tensor, ...]:
        """Equal parts, or parts cut at positions, along axis 0."""
        raise NotImplementedError

    def where(self, condition: Any, other: Any) -> Any:
        """`where`."""
        raise NotImplementedError

    def xlogy(self, b: Any) -> Tensor:
        """a * log(b), 0 where a is 0, elementwise."""
        raise NotImplementedError

    def xlogy_(self, b: Any) -> Tensor:
        """`xlogy` in place."""
        raise NotImplementedError

    def zero_(self) -> Tensor:
        """Writes zeros."""
        raise NotImplementedError

    @property
    def T(self) -> Tensor:
        """`T`: see the function."""
        raise NotImplementedError

    @property
    def mT(self) -> Tensor:
        """`mT`: see the function."""
        raise NotImplementedError

    def __add__(self, other: Any, /) -> Tensor:
        """The operator."""
        raise NotImplementedError

    def __sub__(self, other: Any, /) -> Tensor:
        """The operator."""
        raise NotImplementedError

    def __mul__(self, other: Any, /) -> Tensor:
        """The operator."""
        raise NotImplementedError

    def __truediv__(self, other: Any, /) -> Tensor:
        """The operator."""
        raise NotImplementedError

    def __floordiv__(self, other: Any, /) -> Tensor:
        """The operator."""
        raise NotImplementedError

    def __mod__(self, other: Any, /) -> Tensor:
        """The operator."""
        raise NotImplementedError

    def __pow__(self, other: Any, /) -> Tensor:
        """The operator."""
        raise NotImplementedError

    def __matmul__(self, other: Any, /) -> Tensor:
        """The operator."""
        raise NotImplementedError

    def __and__(self, other: Any, /) -> Tensor:
        """The operator."""
        raise NotImplementedError

    def __or__(self, other: Any, /) -> Tensor:
        """The operator."""
        raise NotImplementedError

    def __xor__(self, other: Any, /) -> Tensor:
        """The operator."""
        raise NotImplementedError

    def __lshift__(self, other: Any, /) -> Tensor:
        """The operator."""
        raise NotImplementedError

    def __rshift__(self, other: Any, /) -> Tensor:
        """The operator."""
        raise NotImplementedError

    def __iadd__(self, other: Any, /) -> Tensor:
        """The operator."""
        raise NotImplementedError

    def __isub__(self, other: Any, /) -> Tensor:
        """The operator."""
        raise NotImplementedError

    def __imul__(self, other: Any, /) -> Tensor:
        """The operator."""
        raise NotImplementedError

    def __itruediv__(self, other: Any, /) -> Tensor:
        """The operator."""
        raise NotImplementedError

    def __ifloordiv__(self, other: Any, /) -> Tensor:
        """The operator."""
        raise NotImplementedError

    def __imod__(self, other: Any, /) -> Tensor:
        """The operator."""
        raise NotImplementedError

    def __ipow__(self, other: Any, /) -> Tensor:
        """The operator."""
        raise NotImplementedError

    def __radd__(self, other: Any, /) -> Tensor:
        """The operator."""
        raise NotImplementedError

    def __rsub__(self, other: Any, /) -> Tensor:
        """The operator."""
        raise NotImplementedError

    def __rmul__(self, other: Any, /) -> Tensor:
        """The operator."""
        raise NotImplementedError

    def __rtruediv__(self, other: Any, /) -> Tensor:
        """The operator."""
        raise NotImplementedError

    def __rfloordiv__(self, other: Any, /) -> Tensor:
        """The operator."""
        raise NotImplementedError

    def __rmod__(self, other: Any, /) -> Tensor:
        """The operator."""
        raise NotImplementedError

    def __rpow__(self, other: Any, /) -> Tensor:
        """The operator."""
        raise NotImplementedError

    def __rmatmul__(self, other: Any, /) -> Tensor:
        """The operator."""
        raise NotImplementedError

    def __rand__(self, other: Any, /) -> Tensor:
        """The operator."""
        raise NotImplementedError

    def __ror__(self, other: Any, /) -> Tensor:
        """The operator."""
        raise NotImplementedError

    def __rxor__(self, other: Any, /) -> Tensor:
        """The operator."""
        raise NotImplementedError

    def __rlshift__(self, other: Any, /) -> Tensor:
        """The operator."""
        raise NotImplementedError

    def __rrshift__(self, other: Any, /) -> Tensor:
        """The operator."""
        raise NotImplementedError

    def __lt__(self, other: Any, /) -> Tensor:
        """The operator."""
        raise NotImplementedError

    def __le__(self, other: Any, /) -> Tensor:
        """The operator."""
        raise NotImplementedError

    def __gt__(self, other: Any, /) -> Tensor:
        """The operator."""
        raise NotImplementedError

    def __ge__(self, other: Any, /) -> Tensor:
        """The operator."""
        raise NotImplementedError

    def __neg__(self) -> Tensor:
        """The operator."""
        raise NotImplementedError

    def __pos__(self) -> Tensor:
        """The operator."""
        raise NotImplementedError

    def __abs__(self) -> Tensor:
        """The operator."""
        raise NotImplementedError

    def __invert__(self) -> Tensor:
        """The operator."""
        raise NotImplementedError

    def __eq__(self, other: Any, /) -> Tensor:  # type: ignore[override]
        """Elementwise."""
        raise NotImplementedError

    def __ne__(self, other: Any, /) -> Tensor:  # type: ignore[override]
        """Elementwise."""
        raise NotImplementedError

    def __getitem__(self, index: Any, /) -> Tensor:
        """`x[index]`."""
        raise NotImplementedError

    def __setitem__(self, index: Any, value: Any, /) -> None:
        """`x[index] = value`."""

    def __iter__(self) -> Iterator[Tensor]:
        """Slices along the first axis."""
        raise NotImplementedError
