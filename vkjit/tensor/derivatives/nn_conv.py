"""Gradient rules of linear layers and convolutions (see `vkjit.tensor.derivatives`).

A convolution, its input gradient and its weight gradient are the three products of one trilinear form, so the gradient
of each is computed by the other two. If a gradient isn't itself recorded, it may be computed by fused kernels that are
not differentiable.
"""

from __future__ import annotations

from typing import Any

from ..autograd.mode import is_grad_enabled
from ..autograd.rules import rule
from ..autograd.tape import Node
from ..nn import linear
from ..nn.conv import convolution, convolution_input, convolution_weight, parameter_gradients
from ..ops.matmul import matmul
from ..ops.views import mT


@rule("convolution", inputs=(0, 1))
def _convolution(node: Node, gradient: Any) -> tuple[Any, ...]:
    x, w, geometry = node.input(0), node.input(1), node.params["geometry"]
    of_input = convolution_input(gradient, w, geometry=geometry) if node.needs[0] else None
    if node.needs[1] and node.needs[2] and not is_grad_enabled():
        weight_and_bias = parameter_gradients(x, gradient, geometry=geometry)  # None if that kernel can't be used
        if weight_and_bias is not None:
            return of_input, *weight_and_bias
    axes = [0, *range(2, gradient.ndim)]  # all except the channels
    return (
        of_input,
        convolution_weight(x, gradient, geometry=geometry) if node.needs[1] else None,
        gradient.sum(axes) if node.needs[2] else None,
    )


@rule("convolution_input", inputs=True)
def _convolution_input(node: Node, gradient: Any) -> tuple[Any, ...]:
    y, w, geometry = node.input(0), node.input(1), node.params["geometry"]
    return (
        convolution(gradient, w, None, geometry=geometry) if node.needs[0] else None,
        convolution_weight(gradient, y, geometry=geometry) if node.needs[1] else None,
    )


@rule("convolution_weight", inputs=True)
def _convolution_weight(node: Node, gradient: Any) -> tuple[Any, ...]:
    x, y, geometry = node.input(0), node.input(1), node.params["geometry"]
    return (
        convolution_input(y, gradient, geometry=geometry) if node.needs[0] else None,
        convolution(x, gradient, None, geometry=geometry) if node.needs[1] else None,
    )


@rule("linear", inputs=(0, 1))
def _linear(node: Node, gradient: Any) -> tuple[Any, ...]:
    x, weight = node.input(0), node.input(1)
    needs = node.needs
    if not is_grad_enabled():
        of_input = linear.input_gradient(gradient, weight) if needs[0] else None
        if needs[1]:
            return of_input, *linear.parameter_gradients(gradient, x, needs[2])
        return of_input, None, (linear.bias_gradient(gradient) if needs[2] else None)
    # -1 has no meaning for an empty tensor
    rows = gradient.reshape(-1, gradient.shape[-1]) if gradient.numel() else gradient.reshape(0, gradient.shape[-1])
    return (
        matmul(gradient, weight) if needs[0] else None,
        matmul(mT(rows), x.reshape(rows.shape[0], x.shape[-1])) if needs[1] else None,
        rows.sum(0) if needs[2] else None,
    )
