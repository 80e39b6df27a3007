"""Special functions under PyTorch's names: `vk.special.ndtr(x)`."""

from __future__ import annotations

from .tensor import api as _api  # noqa: F401  # installs the methods of tensors
from .tensor.arithmetic import xlogy
from .tensor.arithmetic_more import entr, erfinv, ndtr, sinc, xlog1py
from .tensor.elementwise import erf, erfc, exp2, expm1, log1p, logit, round
from .tensor.elementwise import sigmoid as expit
from .tensor.nn_softmax import log_softmax, softmax
from .tensor.outputs import with_out as _with_out
from .tensor.reductions import logsumexp

__all__ = [
    "entr", "erf", "erfc", "erfinv", "exp2", "expit", "expm1", "log1p", "log_softmax", "logit", "logsumexp", "ndtr",
    "round", "sinc", "softmax", "xlog1py", "xlogy",
]  # fmt: skip

for _name in __all__:
    globals()[_name] = _with_out(_name, globals()[_name])
