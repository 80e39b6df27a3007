"""Check of autograd's gradients by comparison with finite differences.

The outputs of the function are reduced to a scalar f: the sum of all elements, each multiplied by a fixed random
weight. The derivative of f at x along a direction d is approximated by

    (f(x + h d) - f(x - h d)) / 2h

and compared with the inner product of the gradient and d. The step h balances the truncation error, proportional to
h^2, and the rounding error, proportional to eps / h. About 10 digits are correct with f64, about 4 with f32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import dtypes
from ..autograd import enable_grad, grad, no_grad
from ..backends.selection import device as open_device, use_device
from ..dtypes import DType
from ..errors import ArgumentError
from ..frontend.signature.annotations import dtype_of
from ..tensor import api as _api  # noqa: F401  # installs tensor methods and gradient rules
from ..tensor.ops.creation import tensor

__all__ = ["GradientError", "check_grads"]

Array = npt.NDArray[Any]


class GradientError(AssertionError):
    """Raised if a gradient differs from the finite difference.

    `input` is the number of the input. `index` is the index of the element in the input; None for a random direction.
    `gradient` is the derivative by autograd and `difference` the finite difference. `allowed` is the allowed absolute
    error. `connected` is False if the function's result doesn't depend on any input in the autograd graph.
    """

    def __init__(
        self,
        input: int,
        index: tuple[int, ...] | None,
        gradient: float,
        difference: float,
        allowed: float,
        *,
        connected: bool = True,
    ) -> None:
        self.input, self.index = input, index
        self.gradient, self.difference, self.allowed = gradient, difference, allowed
        place = "along a random direction" if index is None else f"at {index}"
        super().__init__(
            f"gradient of input {input} {place} is {gradient!r}, differences of the function give {difference!r}; they "
            f"may be {allowed:.3g} apart"
            + ("" if connected else "; the result isn't connected to any input: was it detached, or made with no_grad?")
        )


def check_grads(
    function: Callable[..., Any],
    inputs: Sequence[Any],
    *,
    wrt: Sequence[int] | None = None,
    full: bool = False,
    directions: int = 3,
    dtype: Any = None,
    device: Any = None,
    step: float | None = None,
    tolerance: tuple[float, float] | None = None,
    seed: int = 0,
    order: int = 1,
) -> None:
    """Check the gradients of a function of tensors. Raises GradientError if one is wrong.

    function: takes tensors, returns a tensor or a tuple of them.
    inputs: arrays or tensors; floating point ones become leaves that require gradients, others are passed unchanged.
    wrt: indices of the inputs to check (default: all floating point ones).
    full: check the derivative by each element of the inputs. Otherwise, check the derivative along `directions` random
        directions per input.
    dtype: the type to compute in (default: f64 if the device supports it, else f32). device: an index, a name or a
        device (default: the default device).
    step: the step h, relative to the largest magnitude in the input. tolerance: (relative, absolute) error bounds;
        derived from the type by default.
    seed: the seed of the random directions and weights.
    order: 1, or 2 to check second derivatives, too: the gradient of the derivative along one random direction.
    """
    opened = open_device(device)
    compute_type = _type_for(opened, dtype)
    with use_device(opened):
        arrays = [_as_array(value) for value in inputs]
        if order not in (1, 2):
            raise ArgumentError(f"check_grads: order is {order!r}, expected 1 or 2")
        _Check(function, arrays, wrt, compute_type, step, tolerance, seed).run(full, directions)
        if order == 2:
            _Check(_slope(function, seed), arrays, wrt, compute_type, step, tolerance, seed).run(full, directions)


def _slope(function: Callable[..., Any], seed: int) -> Callable[..., Any]:
    """Return a function that computes the derivative of the sum of all outputs of `function`, along a random direction.

    The result can be differentiated again.
    """

    def slope(*arguments: Any) -> Any:
        leaves = [a for a in arguments if hasattr(a, "__vkjit_array__") and a.requires_grad]
        detached = not leaves
        if detached:  # finite differences run under no_grad, but the gradient inside needs recording
            leaves = [a for a in arguments if hasattr(a, "__vkjit_array__") and a.dtype.is_float]
            leaves = [a.detach().requires_grad_() for a in leaves]
            replacements = iter(leaves)
            arguments = tuple(
                next(replacements) if hasattr(a, "__vkjit_array__") and a.dtype.is_float else a for a in arguments
            )
        with enable_grad():
            result = function(*arguments)
            outputs = list(result) if isinstance(result, (tuple, list)) else [result]
            total: Any = outputs[0].sum()
            for output in outputs[1:]:
                total = total + output.sum()
            rng = np.random.default_rng(seed + 1)
            gradients = grad(total, leaves, create_graph=not detached, allow_unused=True)
            terms = [
                (g * tensor(rng.standard_normal(tuple(g.shape)).astype(g.dtype.numpy), dtype=g.dtype)).sum()
                for g in gradients
                if g is not None
            ]
            slope_of_all: Any = terms[0]
            for term in terms[1:]:
                slope_of_all = slope_of_all + term
        return slope_of_all

    return slope


def _as_array(value: Any) -> Any:
    """Return a tensor as a NumPy array; other values unchanged."""
    if hasattr(value, "__vkjit_array__"):
        return value.detach().numpy()
    return value


def _type_for(device: Any, asked: Any) -> DType:
    """Return the type to compute in: `asked`, or f64 or f32 if `asked` is None.

    Raises ArgumentError if `asked` isn't a float type.
    """
    if asked is not None:
        compute_type = dtype_of(asked)
        if compute_type is None or not compute_type.is_float:
            raise ArgumentError(f"check_grads: dtype is {asked!r}, expected a floating point type")
        return compute_type
    return dtypes.f64 if "f64" in device.caps.dtypes else dtypes.f32


class _Check:
    """A check of the gradients of one function at one point.

    The parameters are those of `check_grads`; `compute_type` is the type to compute in. `fixed` are all inputs as given,
    and `points` maps the numbers of floating point inputs to their values. `weights` are the weights of the outputs,
    drawn by `_gradients`. `connected` is False if the result doesn't require gradients.
    """

    def __init__(
        self, function: Callable[..., Any], inputs: list[Any], wrt: Sequence[int] | None, compute_type: DType,
        step: float | None, tolerance: tuple[float, float] | None, seed: int,
    ) -> None:  # fmt: skip
        self.function = function
        self.compute_type = compute_type
        self.random = np.random.default_rng(seed)
        self.fixed = inputs
        self.points = {i: np.asarray(v, compute_type.numpy) for i, v in enumerate(inputs) if _is_floating(v)}
        self.wrt = list(self.points) if wrt is None else list(wrt)
        invalid = [i for i in self.wrt if i not in self.points]
        if invalid or not self.wrt:
            raise ArgumentError(f"check_grads: input {invalid[0] if invalid else 0} is no floating point array")
        eps = float(np.finfo(compute_type.numpy).eps)
        self.step = eps ** (1 / 3) if step is None else step
        self.tolerance = tolerance
        self.eps = eps
        self.weights: list[Array] | None = None
        self.connected = True

    def run(self, full: bool, directions: int) -> None:
        """Compare the derivatives by each element, or along random directions. Raises GradientError.

        The parameters are those of `check_grads`.
        """
        gradients = self._gradients()
        for number in self.wrt:
            if full:
                for index in np.ndindex(self.points[number].shape):
                    direction = np.zeros_like(self.points[number])
                    direction[index] = 1
                    self._compare(number, index, direction, gradients[number])
                continue
            for _ in range(directions):
                drawn = self.random.standard_normal(self.points[number].shape).astype(self.compute_type.numpy)
                self._compare(number, None, drawn, gradients[number])

    def _gradients(self) -> dict[int, Array]:
        """Draw the weights. Return autograd's gradients of the weighted sum of all outputs, by number of the input."""
        leaves = {i: tensor(p, dtype=self.compute_type).requires_grad_() for i, p in self.points.items()}
        outputs = self._call({**leaves})
        self.weights = [self.random.uniform(0.5, 1.5, o.shape).astype(self.compute_type.numpy) for o in outputs]
        terms = [(o * tensor(w, dtype=self.compute_type)).sum() for o, w in zip(outputs, self.weights, strict=True)]
        total: Any = terms[0]
        for term in terms[1:]:
            total = total + term
        self.connected = bool(total.requires_grad)
        if self.connected:
            total.backward()
        gradients = {}
        for number in self.wrt:
            gradient = leaves[number].grad
            array = np.zeros_like(self.points[number]) if gradient is None else gradient.numpy()
            if array.shape != self.points[number].shape:
                raise ArgumentError(
                    f"the gradient of input {number} has shape {array.shape}, the input {self.points[number].shape}"
                )
            gradients[number] = array
        return gradients

    def _call(self, tensors: dict[int, Any]) -> list[Any]:
        """Call the function with some inputs replaced, and return its floating point outputs.

        `tensors` maps the numbers of inputs to the tensors that replace them.
        """
        arguments = [
            tensors[i] if i in tensors else tensor(v) if isinstance(v, np.ndarray) else v
            for i, v in enumerate(self.fixed)
        ]
        result = self.function(*arguments)
        outputs = list(result) if isinstance(result, (tuple, list)) else [result]
        usable = [o for o in outputs if hasattr(o, "__vkjit_array__") and o.dtype.is_float]
        if not usable:
            raise ArgumentError("check_grads: the function gives no floating point tensor")
        return usable

    def _value(self, number: int, point: Array) -> tuple[float, float]:
        """Return f, the weighted sum of the outputs, and the sum of the magnitudes of its terms.

        They are computed with the value `point` for input `number`. Both sums are accumulated in f64 on the host.
        """
        tensors = {i: tensor(point if i == number else p, dtype=self.compute_type) for i, p in self.points.items()}
        with no_grad():
            outputs = [o.numpy().astype(np.float64) for o in self._call(tensors)]
        assert self.weights is not None
        terms = [o * w for o, w in zip(outputs, self.weights, strict=True)]
        return float(sum(t.sum() for t in terms)), float(sum(np.abs(t).sum() for t in terms))

    def _compare(self, number: int, index: tuple[int, ...] | None, direction: Array, gradient: Array) -> None:
        """Compare the derivative of input `number` along a direction with the finite difference. Raises GradientError.

        `index` is the index of the element if `direction` is a single element, else None. Without a given tolerance,
        the allowed error includes the truncation error, which is estimated by a second finite difference with half the
        step.
        """
        point = self.points[number]
        point_magnitude = max(float(np.abs(point).max(initial=0.0)), 1.0)
        h = self.compute_type.numpy.type(self.step * point_magnitude)
        ahead, behind = point + h * direction, point - h * direction
        (up, magnitude), (down, _) = self._value(number, ahead), self._value(number, behind)
        difference = (up - down) / (2 * float(h))
        gradient_f64 = gradient.astype(np.float64)
        slope = float((gradient_f64 * direction).sum())
        # The truncation error is proportional to the square of the step, so half the step has a quarter of the error.
        # The error is therefore 4/3 of the change between both differences; twice the change is allowed.
        half_step = self.compute_type.numpy.type(h / 2)
        half_step_change = (
            self._value(number, point + half_step * direction)[0]
            - self._value(number, point - half_step * direction)[0]
        )
        half_step_difference = half_step_change / (2 * float(half_step))
        change = abs(half_step_difference - difference)
        scale = float(np.abs(gradient_f64 * direction).sum())
        relative, absolute = self.tolerance or self._derived(magnitude / float(half_step))
        truncation_error = 0.0 if self.tolerance else 2 * change
        allowed = relative * max(scale, abs(difference)) + absolute + truncation_error
        if not abs(slope - difference) <= allowed:  # negated, so that NaN is an error
            raise GradientError(number, index, slope, difference, allowed, connected=self.connected)

    def _derived(self, noise: float) -> tuple[float, float]:
        """Return the default tolerance, (relative, absolute).

        It allows for 64 rounding errors in the gradient, and for 16 in the values of f. `noise` is the magnitude of f
        divided by the step, since the finite difference divides the rounding errors of f by the step, too.
        """
        return 64 * self.eps, 16 * self.eps * noise


def _is_floating(value: Any) -> bool:
    """True for floating point arrays, NumPy numbers and lists."""
    return isinstance(value, (np.ndarray, np.floating, list)) and np.asarray(value).dtype.kind == "f"
