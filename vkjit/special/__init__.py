"""Special functions under PyTorch's names, such as `vk.special.ndtr(x)`. All are defined in `vkjit.tensor`."""

from __future__ import annotations

from ..tensor import api as _api  # noqa: F401  # installs the methods of tensors
from ..tensor.argument_errors import explain_all as _explain_all
from ..tensor.nn.softmax import log_softmax, softmax
from ..tensor.ops.arithmetic import xlogy
from ..tensor.ops.elementwise import erf, erfc, exp2, expm1, log1p, round, sigmoid as expit
from ..tensor.ops.reductions import logsumexp
from ..tensor.ops.special import entr, erfinv, logit, ndtr, sinc, xlog1py
from ..tensor.outputs import with_out as _with_out

__all__ = [
    "entr", "erf", "erfc", "erfinv", "exp2", "expit", "expm1", "log1p", "log_softmax", "logit", "logsumexp", "ndtr",
    "round", "sinc", "softmax", "xlog1py", "xlogy",
]  # fmt: skip

for _name in __all__:  # add the keyword `out` where PyTorch has it
    globals()[_name] = _with_out(_name, globals()[_name])
_explain_all(globals(), __all__)
