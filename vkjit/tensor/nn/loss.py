"""Loss functions.

Formulas in docstrings are per element. "Reduced" means that the losses are then reduced to a 0-d mean or sum, or, with
reduction="none", returned as they are: one per element, or one per row for losses against class indices. Cross entropy
against class indices fuses log-softmax with the selection of the target's entry, forward and backward.

Some operations have a parameter `saved`: callers pass an empty dictionary, in which the operation stores intermediate
results for its gradient rule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vkjit.dtypes import DType
from vkjit.errors import ArgumentError, DTypeError, ShapeError
from vkjit.runtime.device import DeviceArray
from vkjit.stdlib.loss import loss as kernels, mean
from vkjit.stdlib.partial_sums import accumulator_type

from ..dispatch import operation
from ..memory import allocate
from ..op_cache import cached
from ..ops.broadcast import broadcast_shapes
from ..ops.elementwise import logsigmoid
from ..ops.elementwise_launch import arithmetic_type, common_device, run_map
from ..ops.views import reshape
from ..promotion import result_type
from ..tensor import Tensor
from .common import allocate_like, apply_reduction, check_float, check_parameter, dense, dense_view
from .softmax import log_softmax

__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cross_entropy", "huber_loss", "kl_div", "l1_loss", "mse_loss",
    "nll_loss", "smooth_l1_loss",
]  # fmt: skip


# -- elementwise losses


def _loss_type(x: Tensor, target: Tensor) -> DType:
    """Return the dtype of the losses of x and target: their promoted type."""
    return result_type(x, target)


def _elementwise_loss(name: str, function: Any) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the operation `name`, an elementwise loss of (x, target) computed by the device function `function`.

    Its gradient rule is registered under the same name.
    """

    @operation(name)
    def forward(x: Tensor, target: Tensor) -> Tensor:
        dtype = _loss_type(x, target)
        return run_map(function, (x, target), dtype, arithmetic_type(dtype))

    return forward


squared_difference = _elementwise_loss("squared_difference", kernels.squared_difference)
absolute_difference = _elementwise_loss("absolute_difference", kernels.absolute_difference)
binary_entropy = _elementwise_loss("binary_entropy", kernels.binary_cross_entropy)
binary_entropy_logits = _elementwise_loss("binary_entropy_logits", kernels.binary_cross_entropy_logits)
divergence = _elementwise_loss("divergence", kernels.kl_divergence)
log_divergence = _elementwise_loss("log_divergence", kernels.kl_divergence_log_target)


@operation("smooth_l1")
def smooth_l1(x: Tensor, target: Tensor, *, beta: float) -> Tensor:
    """Return 0.5 * d**2 / beta if d < beta, else d - 0.5 * beta, with d = abs(x - target). beta is above 0."""
    dtype = _loss_type(x, target)
    compute = arithmetic_type(dtype)
    return run_map(kernels.smooth_l1, (x, target, beta), dtype, compute, first=compute)


@operation("huber")
def huber(x: Tensor, target: Tensor, *, delta: float) -> Tensor:
    """Return 0.5 * d**2 if d <= delta, else delta * (d - 0.5 * delta), with d = abs(x - target)."""
    dtype = _loss_type(x, target)
    compute = arithmetic_type(dtype)
    return run_map(kernels.huber, (x, target, delta), dtype, compute, first=compute)


def _checked(x: Any, target: Any, name: str, *, same: bool = False) -> tuple[Tensor, Tensor]:
    """Return x and target after checking that they are float tensors on one device and that their shapes broadcast.

    If `same`, the shapes must be equal. `name` (the function) is for error messages.
    """
    check_float(x, name)
    check_float(target, name, "the target")
    common_device((x, target))
    if same and x.shape != target.shape:
        raise ShapeError(f"{name}(): the input has shape {x.shape}, the target {target.shape}: expected the same")
    broadcast_shapes(x.shape, target.shape)
    return x, target


@cached("mse_loss()")
def mse_loss(x: Tensor, target: Tensor, reduction: str = "mean", weight: Tensor | None = None) -> Tensor:
    """Return the squared error (x - target)**2, reduced.

    weight: one factor per element; the mean then divides by the sum of the weights.
    """
    x, target = _checked(x, target, "mse_loss")
    return _reduced_with_weight(squared_difference(x, target), weight, reduction, "mse_loss")


def l1_loss(x: Tensor, target: Tensor, reduction: str = "mean", weight: Tensor | None = None) -> Tensor:
    """Return the absolute error abs(x - target), reduced.

    weight: one factor per element; the mean then divides by the sum of the weights.
    """
    x, target = _checked(x, target, "l1_loss")
    return _reduced_with_weight(absolute_difference(x, target), weight, reduction, "l1_loss")


def _reduced_with_weight(losses: Any, weight: Any, reduction: str, name: str) -> Tensor:
    """Multiply losses by optional weights, and reduce them.

    The mean divides by the sum of the weights, as in PyTorch's mse_loss and l1_loss.
    """
    if weight is None:
        return apply_reduction(losses, reduction, name)
    losses = losses * weight
    if reduction == "mean":
        return losses.sum() / (weight.expand(losses.shape)).sum()  # type: ignore[no-any-return]
    return apply_reduction(losses, reduction, name)


def smooth_l1_loss(x: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """Return 0.5 * d**2 / beta if d < beta, else d - 0.5 * beta, with d = abs(x - target); reduced.

    beta=0 is the same as `l1_loss`.
    """
    x, target = _checked(x, target, "smooth_l1_loss")
    if beta < 0:
        raise ArgumentError(f"smooth_l1_loss(): beta={beta}, expected at least 0")
    losses = absolute_difference(x, target) if beta == 0 else smooth_l1(x, target, beta=float(beta))
    return apply_reduction(losses, reduction, "smooth_l1_loss")


def huber_loss(x: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    """Return 0.5 * d**2 if d <= delta, else delta * (d - 0.5 * delta), with d = abs(x - target); reduced."""
    x, target = _checked(x, target, "huber_loss")
    if delta <= 0:
        raise ArgumentError(f"huber_loss(): delta={delta}, expected more than 0")
    return apply_reduction(huber(x, target, delta=float(delta)), reduction, "huber_loss")


def binary_cross_entropy(x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean") -> Tensor:
    """Return -(target * log(x) + (1 - target) * log(1 - x)) for probabilities x; reduced.

    Logarithms below -100 count as -100, and `weight` multiplies the losses. Elements of x that are outside [0, 1] or
    NaN raise an error at the next read from the device. Targets aren't checked.
    """
    x, target = _checked(x, target, "binary_cross_entropy", same=True)
    losses: Any = binary_entropy(x, target)
    return apply_reduction(losses if weight is None else losses * weight, reduction, "binary_cross_entropy")


def binary_cross_entropy_with_logits(
    x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean", pos_weight: Tensor | None = None
) -> Tensor:
    """Return binary_cross_entropy(sigmoid(x), target), computed without overflow.

    weight: factors of the losses; pos_weight: factors of the term target * log(sigmoid(x)). Both broadcast to x's
    shape.
    """
    name = "binary_cross_entropy_with_logits"
    x, target = _checked(x, target, name, same=True)
    if pos_weight is None:
        losses: Any = binary_entropy_logits(x, target)
    else:
        t: Any = target
        # the loss is -pos_weight * t * log(sigmoid(x)) - (1 - t) * log(1 - sigmoid(x)), and
        # log(1 - sigmoid(x)) = logsigmoid(x) - x
        target_factor = (pos_weight - 1) * t + 1
        losses = (1 - t) * x - target_factor * logsigmoid(x)
    return apply_reduction(losses if weight is None else losses * weight, reduction, name)


def kl_div(x: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """Return target * (log(target) - x) for log-probabilities x, reduced; "batchmean" divides the sum by x.shape[0].

    log_target: the target holds log-probabilities.
    """
    x, target = _checked(x, target, "kl_div")
    losses: Any = log_divergence(x, target) if log_target else divergence(x, target)
    if reduction == "batchmean":
        return losses.sum() / (x.shape[0] if x.ndim else 1)  # type: ignore[no-any-return]
    return apply_reduction(losses, reduction, "kl_div")


# -- losses against class indices: a row has the scores of the C classes for one target element


def _checked_sizes(x: Any, target: Any, name: str) -> tuple[tuple[int, int, int], tuple[int, ...]]:
    """Return the sizes of scores (N, C, ...) merged into three axes (N, C, inner), and the shape of the losses.

    N is 1 for scores (C,). The losses, one per row, have the shape of the scores without the axis C. Raises ShapeError
    if the target has another shape than the losses.
    """
    shape: tuple[int, ...] = x.shape if x.ndim > 1 else (1, *x.shape)
    expected = (shape[0], *shape[2:]) if x.ndim > 1 else ()
    if x.ndim == 0 or target.shape != expected:
        raise ShapeError(
            f"{name}(): scores of shape {x.shape} need targets of shape {expected}, found {target.shape}; class indices have no "
            f"axis of classes"
        )
    inner = 1
    for size in shape[2:]:
        inner *= size
    return (shape[0], shape[1], inner), expected


@operation("cross_entropy")
def _cross_entropy(
    x: Tensor, target: Tensor, weight: Tensor | None, *, ignored: int, smoothing: float, saved: dict[str, Any]
) -> tuple[Tensor, Tensor]:
    """Return the loss of each row, and `scale`, the weight of each row's target class (1 if `weight` is None).

    Both are 0 for rows whose target is `ignored`. smoothing: label smoothing in [0, 1]. Stores the statistics of the
    softmax, maxima and sums, in `saved`.
    """
    sizes, shape = _checked_sizes(x, target, "cross_entropy")  # (N, C, inner), and the shape of the losses
    loss, scale = allocate_like(shape, x.dtype, x), allocate_like(shape, accumulator_type(x.dtype), x)
    row_shape = (sizes[0], sizes[2])
    if 0 not in sizes:
        saved["statistics"] = kernels.cross_entropy(
            dense_view(dense(x), *sizes), dense_view(dense(target), *row_shape), None if weight is None else dense(weight),
            dense_view(loss._array, *row_shape), dense_view(scale._array, *row_shape), ignore_index=ignored, smoothing=smoothing,
        )  # fmt: skip
    return loss, scale


def cross_entropy_gradient(
    g: Any, x: Tensor, target: Tensor, weight: Any, statistics: Any, *, ignored: int, smoothing: float
) -> Tensor:
    """Return the gradient of the scores x, given the gradient g of the row losses. Autograd doesn't record the call.

    weight: the class weights or None; statistics: those that `_cross_entropy` saved.
    """
    sizes, _ = _checked_sizes(x, target, "cross_entropy")
    y = allocate_like(x.shape, x.dtype, x)
    if 0 in sizes:
        return y
    row_shape = (sizes[0], sizes[2])
    weight_sum = None if weight is None else weight.sum(dtype=accumulator_type(x.dtype)).reshape(1)._array
    kernels.cross_entropy_gradient(
        _as_matrix(g, row_shape), dense_view(dense(x), *sizes), dense_view(dense(target), *row_shape),
        None if weight is None else dense(weight), weight_sum,
        statistics, dense_view(y._array, *sizes), ignore_index=ignored, smoothing=smoothing,
    )  # fmt: skip
    return y


def _as_matrix(g: Any, shape: tuple[int, int]) -> DeviceArray:
    """Return the gradients g of the row losses as a matrix of the given shape, without making them contiguous."""
    array: DeviceArray = g.reshape(shape)._array
    return array


@operation("nll")
def _nll(x: Tensor, target: Tensor, weight: Tensor | None, *, ignored: int) -> tuple[Tensor, Tensor]:
    """Return the loss of each row, and `scale`, the weight of each row's target class (1 if `weight` is None).

    Both are 0 for rows whose target is `ignored`.
    """
    sizes, shape = _checked_sizes(x, target, "nll_loss")
    loss, scale = allocate_like(shape, x.dtype, x), allocate_like(shape, accumulator_type(x.dtype), x)
    row_shape = (sizes[0], sizes[2])
    if 0 not in sizes:
        kernels.nll(
            dense_view(dense(x), *sizes), dense_view(dense(target), *row_shape), None if weight is None else dense(weight),
            dense_view(loss._array, *row_shape), dense_view(scale._array, *row_shape), ignore_index=ignored,
        )  # fmt: skip
    return loss, scale


@operation("nll_gradient")
def nll_gradient(g: Tensor, target: Tensor, scale: Tensor, *, shape: tuple[int, ...]) -> Tensor:
    """Return the gradient of the log-probabilities of `nll_loss`, given the gradient g of the row losses.

    shape: that of the log-probabilities; scale: the second result of `_nll`.
    """
    y = allocate_like(shape, g.dtype, g)
    batched_shape = shape if len(shape) > 1 else (1, *shape)  # (N, C, ...), where (C,) is a batch of one
    inner = 1
    for size in batched_shape[2:]:
        inner *= size
    row_shape = (batched_shape[0], inner)
    kernels.nll_gradient(
        _as_matrix(g, row_shape),
        dense_view(dense(target), *row_shape),
        dense_view(dense(scale), *row_shape),
        dense_view(y._array, batched_shape[0], batched_shape[1], inner),
    )
    return y


def _check_classes(x: Any, target: Any, weight: Any, name: str) -> None:
    """Check scores, target and class weights of a loss against class indices."""
    check_float(x, name)
    if not isinstance(target, Tensor):
        raise ArgumentError(f"{name}(): the target is a {type(target).__name__}, expected a tensor of class indices")
    classes = (
        x.shape[1 if x.ndim > 1 else 0] if x.ndim else 0
    )  # of scores (N, C, ...) or (C,); others are refused later
    check_parameter(weight, x, (classes,), name, "the weight")
    common_device([t for t in (x, target, weight) if t is not None])


@operation("mean_of_rows")
def _mean_of_rows(loss: Tensor, scale: Tensor, *, saved: dict[str, Any]) -> Tensor:
    """Return the mean sum(loss) / sum(scale) of row losses with weights `scale`. Stores 1 / sum(scale) in `saved`."""
    y, inverse = allocate_like((), loss.dtype, loss), allocate_like((), scale.dtype, loss)
    rows = loss.numel()
    mean.mean_of_rows(
        dense_view(dense(loss), rows),
        dense_view(dense(scale), rows),
        dense_view(y._array, 1),
        dense_view(inverse._array, 1),
    )
    saved["inverse"] = inverse
    return y


@operation("cross_entropy_mean")
def _cross_entropy_mean(x: Tensor, target: Tensor, weight: Tensor | None, *, ignored: int) -> tuple[Tensor, Tensor]:
    """Return the mean cross entropy of scores x (N, C), and statistics for the gradient, computed in one launch.

    `mean.supports_fused` limits N * C.
    """
    array, device = x._array, x._array.buffer.device
    y = allocate((), array.dtype, device)
    statistics = allocate((2 * array.shape[0] + 1,), accumulator_type(array.dtype), device)
    factors = None if weight is None else weight._array
    mean.cross_entropy_mean(array, target._array, factors, statistics, dense_view(y, 1), ignored)
    return Tensor(y), Tensor(statistics)


def cross_entropy_mean_gradient(
    g: Tensor, x: Tensor, target: Tensor, weight: Tensor | None, statistics: Tensor, ignored: int
) -> Tensor:
    """Return the gradient of the scores x, given the gradient g of the mean. Autograd doesn't record the call."""
    y = allocate(x.shape, x.dtype, x.device)
    factors = None if weight is None else weight._array
    mean.cross_entropy_mean_gradient(
        dense_view(g._array, 1), x._array, target._array, factors, statistics._array, y, ignored
    )
    return Tensor(y)


def _reduced_rows(loss: Any, scale: Any, reduction: str, name: str) -> Tensor:
    """Reduce row losses. The mean divides by the sum of `scale`, the weights of the rows' target classes."""
    if reduction == "mean":
        if mean.supports_mean(loss.numel(), loss.device):
            return _mean_of_rows(loss, scale, saved={})
        return loss.sum() / scale.detach().sum().to(loss.dtype)  # type: ignore[no-any-return]
    return apply_reduction(loss, reduction, name)


@cached("nll_loss()")
def nll_loss(
    x: Tensor, target: Tensor, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean"
) -> Tensor:
    """Return -weight[t] * x[t] for the target class t of each row of log-probabilities x (N, C, ...) or (C,); reduced.

    target: class indices (N, ...); weight: one per class. Rows whose target is ignore_index have zero loss and weight.
    The mean divides by the sum of the weights of the rows' targets. Out-of-range targets raise an error at the next
    read from the device.
    """
    _check_classes(x, target, weight, "nll_loss")
    if not target.dtype.is_integer:
        raise DTypeError(f"nll_loss(): the target holds {target.dtype!r}, expected integers (class indices)")
    return _reduced_rows(*_nll(x, target, weight, ignored=ignore_index), reduction, "nll_loss")


@cached("cross_entropy()")
def cross_entropy(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Return the cross entropy of unnormalized scores x (N, C, ...) or (C,), with softmax over C; reduced.

    target: class indices (N, ...), or class probabilities, floats in x's shape. weight: one per class. Rows whose
    target is ignore_index have zero loss and weight. The mean divides by the sum of the weights of the rows' targets,
    or, for class probabilities, by the number of rows. label_smoothing: the share of the uniform distribution that is
    mixed into the target.
    """
    _check_classes(x, target, weight, "cross_entropy")
    if not 0 <= label_smoothing <= 1:
        raise ArgumentError(f"cross_entropy(): label_smoothing={label_smoothing}, expected 0 to 1")
    if target.dtype.is_float:
        return _soft_cross_entropy(x, target, weight, reduction, label_smoothing)
    if not target.dtype.is_integer:
        raise DTypeError(f"cross_entropy(): the target holds {target.dtype!r}, expected class indices or probabilities")
    if reduction == "mean" and x.ndim == 2 and label_smoothing == 0:
        _checked_sizes(
            x, target, "cross_entropy"
        )  # only for its check: the fused kernel takes x and target as they are
        if mean.supports_fused(x.shape[0], x.shape[1], x.device):
            return _cross_entropy_mean(x, target, weight, ignored=ignore_index)[0]
    loss, scale = _cross_entropy(x, target, weight, ignored=ignore_index, smoothing=float(label_smoothing), saved={})
    return _reduced_rows(loss, scale, reduction, "cross_entropy")


def _soft_cross_entropy(x: Any, target: Any, weight: Any, reduction: str, smoothing: float) -> Tensor:
    """Return the cross entropy of scores x with class probabilities as the target. weight: one per class, or None."""
    if target.shape != x.shape:
        raise ShapeError(
            f"cross_entropy(): probabilities of shape {target.shape} for scores of {x.shape}: expected the same"
        )
    axis = 1 if x.ndim > 1 else 0  # of the classes
    if smoothing:
        target = target * (1 - smoothing) + smoothing / max(x.shape[axis], 1)
    losses = log_softmax(x, axis) * target
    if weight is not None:
        losses = losses * reshape(weight, [-1 if i == axis else 1 for i in range(x.ndim)])
    if reduction == "none":
        return -losses.sum(axis)  # type: ignore[no-any-return]
    total = -losses.sum()
    if reduction == "sum":
        return total  # type: ignore[no-any-return]
    if reduction != "mean":
        return apply_reduction(total, reduction, "cross_entropy")  # raises
    # the mean over the rows; for empty scores, 0 / 0 = NaN as in PyTorch
    return total / (x.numel() // x.shape[axis] if x.numel() else 0)  # type: ignore[no-any-return]
