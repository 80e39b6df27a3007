"""Fusion of a layer with the batch norm after it, and conversion of parameters to and from a flat vector.

A convolution or linear layer and the batch norm after it, both in inference mode, become one layer with the same output
up to rounding. Its weights are those of the layer, scaled per output channel by the norm's weight / sqrt(running_var +
eps), and its bias is (bias - running_mean) times the same factor, plus the norm's bias.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from vkjit.errors import ArgumentError, ShapeError
from vkjit.tensor.autograd.mode import no_grad
from vkjit.tensor.ops.copies import cat
from vkjit.tensor.tensor import Tensor

from ..modules.module import Module
from ..parameter import Parameter

__all__ = ["fuse_conv_bn_eval", "fuse_linear_bn_eval", "parameters_to_vector", "vector_to_parameters"]


def _fused(layer: Any, norm: Any, axis: int) -> Any:
    """Return a copy of the layer with the norm folded in. `axis`: the axis of output channels in the layer's weight."""
    for module in (layer, norm):
        if not isinstance(module, Module):
            raise ArgumentError(f"a layer and a batch norm can be fused, found a {type(module).__name__}")
    if layer.training or norm.training:
        raise ArgumentError(
            "only layers in inference mode can be fused: in training a batch norm takes the batch's own statistics"
        )
    if norm.running_mean is None or norm.running_var is None:
        raise ArgumentError(
            f"{type(norm).__name__} keeps no statistics (track_running_stats=False): there is nothing to fold in"
        )
    if getattr(layer, "groups", 1) != 1 and axis:
        raise ArgumentError(
            "a transposed convolution with groups can't be fused: its weight's channels are those of one group"
        )
    channels = layer.weight.shape[axis]
    if norm.num_features != channels:
        raise ShapeError(f"the layer gives {channels} channels, {type(norm).__name__} takes {norm.num_features}")
    fused = copy.deepcopy(layer)
    with no_grad():
        scale = (norm.running_var + norm.eps).rsqrt()
        if norm.weight is not None:
            scale = scale * norm.weight
        shift = -norm.running_mean if layer.bias is None else layer.bias - norm.running_mean
        bias = shift * scale
        if norm.bias is not None:
            bias = bias + norm.bias
        shape = [channels if i == axis else 1 for i in range(layer.weight.ndim)]
        trainable = layer.weight.requires_grad
        fused.weight = Parameter((layer.weight * scale.reshape(shape)).to(layer.weight.dtype), trainable)
        fused.bias = Parameter(bias.to(layer.weight.dtype), trainable)
    return fused


def fuse_conv_bn_eval(conv: Any, bn: Module, transpose: bool = False) -> Any:
    """Return a convolution equivalent to `conv` followed by the batch norm `bn`.

    transpose: `conv` is a transposed convolution. Raises ArgumentError in training mode, for norms without running
    statistics, and for grouped transposed convolutions.
    """
    return _fused(conv, bn, 1 if transpose else 0)


def fuse_linear_bn_eval(linear: Any, bn: Module) -> Any:
    """Return a linear layer equivalent to `linear` followed by the batch norm `bn`.

    Raises ArgumentError in training mode and for norms without running statistics.
    """
    return _fused(linear, bn, 0)


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """Concatenate the flattened tensors into one vector."""
    flat = [p.reshape(-1) for p in ([parameters] if isinstance(parameters, Tensor) else parameters)]
    if not flat:
        raise ArgumentError("parameters_to_vector() needs at least one tensor, found none")
    vector: Tensor = cat(flat)
    return vector


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Copy the elements of a vector into tensors, in order. Raises ShapeError if the element counts differ."""
    targets = list(parameters)
    count = sum(p.numel() for p in targets)
    if tuple(vec.shape) != (count,):
        raise ShapeError(f"the parameters have {count} elements, the vector has shape {vec.shape}")
    start = 0
    with no_grad():
        for target in targets:
            target.copy_(vec[start : start + target.numel()].reshape(target.shape))
            start += target.numel()
