"""Optimizers, learning-rate schedulers, gradient clipping, weight averaging and mixed precision, with PyTorch's names
and formulas.
"""

from ..nn.utils.clip_grad import clip_grad_norm_, clip_grad_value_
from ..tensor.argument_errors import explain_all as _explain_all
from . import lr_scheduler
from .adagrad import Adadelta, Adagrad
from .adam import Adam, Adamax, AdamW, NAdam, RAdam
from .averages import EMA
from .grad_scaler import GradScaler
from .lamb import LAMB
from .lion import Lion
from .lookahead import Lookahead
from .optimizer import Optimizer
from .rmsprop import RMSprop
from .sgd import SGD

__all__ = [
    "EMA", "LAMB", "SGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "GradScaler", "Lion", "Lookahead", "NAdam", "Optimizer",
    "RAdam", "RMSprop", "clip_grad_norm_", "clip_grad_value_", "lr_scheduler",
]  # fmt: skip

_explain_all(globals(), __all__)
