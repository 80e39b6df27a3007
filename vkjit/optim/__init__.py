"""Optimisers, schedules of the learning rate, and limits on gradients, with PyTorch's names and formulas."""

from . import lr_scheduler
from .adam import Adam, AdamW
from .clipping import clip_grad_norm_, clip_grad_value_
from .optimizer import Optimizer
from .rmsprop import RMSprop
from .sgd import SGD

__all__ = ["SGD", "Adam", "AdamW", "Optimizer", "RMSprop", "clip_grad_norm_", "clip_grad_value_", "lr_scheduler"]
