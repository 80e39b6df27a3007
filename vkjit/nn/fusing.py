"""Batch norms folded into the layer before them, for inference; parameters as one vector.

Enters: a convolution or linear layer and the batch norm that follows it, both in inference mode. Leaves: one layer that computes
the same up to rounding: its weights times weight / sqrt(var + eps) of each channel, its bias moved along.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from ..autograd.mode import no_grad
from ..errors import ArgumentError, ShapeError
from ..tensor.copies import cat
from ..tensor.tensor import Tensor
from .module import Module
from .parameter import Parameter

__all__ = ["fuse_conv_bn_eval", "fuse_linear_bn_eval", "parameters_to_vector", "vector_to_parameters"]


def _fused(layer: Any, norm: Any, axis: int) -> Any:
    """The layer with the norm in it; `axis` of its weight counts the channels that the norm sees."""
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
        wanted = layer.weight.requires_grad
        fused.weight = Parameter((layer.weight * scale.reshape(shape)).to(layer.weight.dtype), wanted)
        fused.bias = Parameter(bias.to(layer.weight.dtype), wanted)
    return fused


def fuse_conv_bn_eval(conv: Any, bn: Module, transpose: bool = False) -> Any:
    """A new convolution that does what `conv` and then the batch norm do. transpose: it is a transposed one.

    Raises ArgumentError in training mode, and for norms without running statistics.
    """
    return _fused(conv, bn, 1 if transpose else 0)


def fuse_linear_bn_eval(linear: Any, bn: Module) -> Any:
    """A new linear layer that does what `linear` and then the batch norm do; errors as of `fuse_conv_bn_eval`."""
    return _fused(linear, bn, 0)


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All elements of some tensors as one axis, in order."""
    found = [p.reshape(-1) for p in parameters]
    if not found:
        raise ArgumentError("parameters_to_vector() needs at least one tensor, found none")
    made: Tensor = cat(found)
    return made


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Writes the elements of a vector into tensors, in order. Raises ShapeError where their numbers differ."""
    targets = list(parameters)
    count = sum(p.numel() for p in targets)
    if tuple(vec.shape) != (count,):
        raise ShapeError(f"the parameters have {count} elements, the vector has shape {vec.shape}")
    start = 0
    with no_grad():
        for target in targets:
            target.copy_(vec[start : start + target.numel()].reshape(target.shape))
            start += target.numel()
