"""Automatic differentiation: grad mode, backward passes and mixed precision from the engine (`vkjit.tensor.autograd`),
user-defined operations (`function`), anomaly mode (`anomaly`) and activation checkpointing (`checkpoint`).
"""

from ..tensor.argument_errors import explain_all as _explain_all
from ..tensor.autograd.autocast import autocast
from ..tensor.autograd.mode import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled
from ..tensor.autograd.tape import backward, grad
from .anomaly import detect_anomaly, is_anomaly_enabled, set_detect_anomaly
from .checkpoint import checkpoint
from .function import Function

__all__ = [
    "Function", "autocast", "backward", "checkpoint", "detect_anomaly", "enable_grad", "grad", "inference_mode",
    "is_anomaly_enabled", "is_grad_enabled", "no_grad", "set_detect_anomaly", "set_grad_enabled",
]  # fmt: skip

_explain_all(globals(), ("backward", "checkpoint", "grad"))
