"""Utilities under PyTorch's name `nn.utils`."""

from ...tensor.argument_errors import explain_all as _explain_all
from .clip_grad import clip_grad_norm_, clip_grad_value_
from .fusion import fuse_conv_bn_eval, fuse_linear_bn_eval, parameters_to_vector, vector_to_parameters

__all__ = [
    "clip_grad_norm_", "clip_grad_value_", "fuse_conv_bn_eval", "fuse_linear_bn_eval", "parameters_to_vector",
    "vector_to_parameters",
]  # fmt: skip

_explain_all(globals(), __all__)
