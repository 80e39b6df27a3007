"""Automatic differentiation: grad mode (`mode`), the tape (`tape`), a gradient rule per operation (`rules`),
user-defined operations (`function`), mixed precision (`autocast`), anomaly mode (`anomaly`) and activation
checkpointing (`checkpoint`).
"""

from .anomaly import detect_anomaly, is_anomaly_enabled, set_detect_anomaly
from .autocast import autocast
from .checkpoint import checkpoint
from .function import Function
from .mode import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled
from .tape import backward, grad

__all__ = [
    "Function", "autocast", "backward", "checkpoint", "detect_anomaly", "enable_grad", "grad", "inference_mode",
    "is_anomaly_enabled", "is_grad_enabled", "no_grad", "set_detect_anomaly", "set_grad_enabled",
]  # fmt: skip
