"""Automatic differentiation: recording (`mode`), the tape (`tape`), one gradient rule per operation (`rules`)."""

from .function import Function
from .mode import enable_grad, is_grad_enabled, no_grad, set_grad_enabled
from .tape import backward, grad

__all__ = ["Function", "backward", "enable_grad", "grad", "is_grad_enabled", "no_grad", "set_grad_enabled"]
