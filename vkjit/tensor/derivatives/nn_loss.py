"""Gradient rules of losses (see `vkjit.tensor.derivatives`).

Most losses here are not yet reduced: they have one value per element or row. x is the prediction (for cross entropy,
the scores of the classes), t the target; `ignored` is the target that marks rows without a loss. Cross entropy and CTC
keep intermediate results of the forward kernel in `params["saved"]` for their gradient kernels. If the gradient of
cross entropy is itself recorded (create_graph=True), it is composed of differentiable tensor operations instead.
"""

from __future__ import annotations

from typing import Any

from vkjit.errors import ArgumentError

from ..autograd.mode import is_grad_enabled
from ..autograd.rules import rule
from ..autograd.tape import Node
from ..nn.ctc_loss import ctc_gradient
from ..nn.loss import cross_entropy_gradient, cross_entropy_mean_gradient, nll_gradient
from ..nn.softmax import log_softmax
from ..ops import arithmetic
from .common import reduced_to_operand


def _difference_gradients(node: Node, slope: Any) -> tuple[Any, ...]:
    """Return the gradients of x and target for a loss that is a function of x - target.

    `slope` is the gradient of that difference, before it is summed over broadcast axes.
    """
    return reduced_to_operand(node, 0, slope), (reduced_to_operand(node, 1, -slope) if node.needs[1] else None)


@rule("squared_difference", inputs=True)
def _squared_difference(node: Node, gradient: Any) -> tuple[Any, ...]:
    return _difference_gradients(node, gradient * ((node.input(0) - node.input(1)) * 2))


@rule("absolute_difference", inputs=True)
def _absolute_difference(node: Node, gradient: Any) -> tuple[Any, ...]:
    return _difference_gradients(node, gradient * (node.input(0) - node.input(1)).sign())


@rule("smooth_l1", inputs=True)
def _smooth_l1(node: Node, gradient: Any) -> tuple[Any, ...]:
    beta = node.params["beta"]
    return _difference_gradients(node, gradient * ((node.input(0) - node.input(1)) / beta).clamp(-1.0, 1.0))


@rule("huber", inputs=True)
def _huber(node: Node, gradient: Any) -> tuple[Any, ...]:
    delta = node.params["delta"]
    return _difference_gradients(node, gradient * (node.input(0) - node.input(1)).clamp(-delta, delta))


@rule("binary_entropy", inputs=True)
def _binary_entropy(node: Node, gradient: Any) -> tuple[Any, ...]:
    x, t = node.input(0), node.input(1)
    of_target = None
    # the bounds -100 and 1e-12 are PyTorch's
    if node.needs[1]:
        of_target = gradient * ((1 - x).log().clamp(min=-100.0) - x.log().clamp(min=-100.0))
    return gradient * (x - t) / (x * (1 - x)).clamp(min=1e-12), of_target


@rule("binary_entropy_logits", inputs=True)
def _binary_entropy_logits(node: Node, gradient: Any) -> tuple[Any, ...]:
    x, t = node.input(0), node.input(1)
    return gradient * (x.sigmoid() - t), (-gradient * x if node.needs[1] else None)


@rule("divergence", inputs=True)
def _divergence(node: Node, gradient: Any) -> tuple[Any, ...]:
    x, t = node.input(0), node.input(1)
    of_target = None
    if node.needs[1]:
        # log(t) + 1 - x, but 0 where t is 0; the inner `where` avoids log(0) in the branch that isn't used
        slope = arithmetic.where(t == 0, 0.0, arithmetic.where(t == 0, 1.0, t).log() + 1 - x)
        of_target = reduced_to_operand(node, 1, gradient * slope)
    return reduced_to_operand(node, 0, -gradient * t), of_target


@rule("log_divergence", inputs=True)
def _log_divergence(node: Node, gradient: Any) -> tuple[Any, ...]:
    x, t = node.input(0), node.input(1)
    scaled = gradient * t.exp()
    of_x = reduced_to_operand(node, 0, -scaled)
    return of_x, (reduced_to_operand(node, 1, scaled * (t - x + 1)) if node.needs[1] else None)


@rule("cross_entropy", inputs=True, outputs=(1,))
def _cross_entropy(node: Node, gradient: Any, _: Any) -> tuple[Any, ...]:
    x, target, weight = (node.input(i) for i in range(3))
    ignored, smoothing = node.params["ignored"], node.params["smoothing"]
    if not is_grad_enabled():
        statistics = node.params["saved"].get("statistics")
        of_input = cross_entropy_gradient(gradient, x, target, weight, statistics, ignored=ignored, smoothing=smoothing)
        return of_input, None, None
    # With w_t the target's weight (`scale`), s the smoothing and C classes, the gradient of class c is
    # softmax_c * ((1 - s) * w_t + s / C * sum(weight)) - (c == target) * (1 - s) * w_t - s / C * weight_c.
    # It is multiplied by the gradient of the row's loss. The last two terms are `target_class_term` and `class_terms`.
    axis = 1 if x.ndim > 1 else 0
    probabilities = log_softmax(x, axis).exp()
    scale = node.output(1).detach()  # 0 in ignored rows
    masked_gradient = gradient * (scale != 0).to(gradient.dtype)
    target_class_term = nll_gradient(gradient * (1 - smoothing), target, scale, shape=x.shape)
    target_term = masked_gradient * scale.to(gradient.dtype) * (1 - smoothing)
    classes = x.shape[axis]
    smoothing_term = masked_gradient.unsqueeze(axis) * (smoothing / classes)
    shape = [-1 if i == axis else 1 for i in range(x.ndim)]
    class_terms = smoothing_term if weight is None else smoothing_term * weight.reshape(shape)
    smoothing_total = smoothing_term * classes if weight is None else smoothing_term * weight.sum()
    return probabilities * (target_term.unsqueeze(axis) + smoothing_total) + target_class_term - class_terms, None, None


@rule("cross_entropy_mean", inputs=True, outputs=(1,))
def _cross_entropy_mean(node: Node, gradient: Any, _: Any) -> tuple[Any, ...]:
    x, target, weight = (node.input(i) for i in range(3))
    ignored = node.params["ignored"]
    if not is_grad_enabled():
        return cross_entropy_mean_gradient(gradient, x, target, weight, node.output(1), ignored), None, None
    is_counted = target != ignored
    # class 0 stands for ignored targets, which may not be valid classes; their weight (`scale`) is 0
    classes = arithmetic.where(is_counted, target, 0)
    scale = is_counted.to(x.dtype) if weight is None else is_counted.to(x.dtype) * weight.detach()[classes]
    row_gradient = (gradient / scale.sum()).expand(scale.shape)
    target_class_term = nll_gradient(row_gradient, classes, scale, shape=x.shape)
    return log_softmax(x, 1).exp() * (row_gradient * scale).unsqueeze(1) + target_class_term, None, None


@rule("nll", inputs=True, outputs=(1,))
def _nll(node: Node, gradient: Any, _: Any) -> tuple[Any, ...]:
    edge = node.edges[0]
    assert edge is not None
    return nll_gradient(gradient, node.input(1), node.output(1).detach(), shape=edge.shape), None, None


@rule("nll_gradient", inputs=True)
def _nll_gradient(node: Node, gradient: Any) -> tuple[Any, ...]:
    from ..nn.loss import _nll as forward

    scale = node.input(2)
    target = arithmetic.where(scale != 0, node.input(1), 0)  # targets of ignored rows aren't valid classes
    picked, _ = forward(gradient, target, None, ignored=-(2**63))  # no target has this value
    return picked * scale.to(picked.dtype), None, None


@rule("ctc", inputs=True, outputs=(0,))
def _ctc(node: Node, gradient: Any) -> tuple[Any, ...]:
    if is_grad_enabled():
        raise ArgumentError("ctc_loss() has no second derivative: leave create_graph out")
    p, *sequences = (node.input(i) for i in range(4))  # log-probabilities; labels, times, label lengths
    loss, alpha = node.output(0), node.params["saved"]["alpha"]
    return ctc_gradient(p, tuple(sequences), alpha, loss.detach(), gradient, node.params["blank"]), None, None, None


@rule("mean_of_rows")
def _mean_of_rows(node: Node, gradient: Any) -> tuple[Any, ...]:
    edge = node.edges[0]
    assert edge is not None
    # the mean multiplies the sum of the rows' losses by `inverse`
    share = gradient * node.params["saved"]["inverse"].to(gradient.dtype)
    return share.expand(edge.shape), None
