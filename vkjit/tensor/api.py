"""The public names of the tensor layer, which `vkjit.__init__` resolves on first use.

Importing this module installs the methods of `Tensor` and the gradient rules. Names shared with the kernel language,
such as `vk.exp`, are not listed: `vkjit` exports the language's stubs, which forward calls on the host to the tensor
functions.
"""

from __future__ import annotations

from .. import lang
from . import (
    argument_errors,
    derivatives as _derivatives,  # noqa: F401  # fills the table of gradients
    dlpack as _dlpack,
    methods,
    nn as _nn,
    ops as _ops,
    outputs,
)
from .dlpack import *  # noqa: F403  # each module lists its public names
from .nn.activation import *  # noqa: F403
from .nn.attention import *  # noqa: F403
from .nn.conv import *  # noqa: F403
from .nn.embedding import *  # noqa: F403
from .nn.norm import *  # noqa: F403
from .nn.pool import *  # noqa: F403
from .nn.softmax import *  # noqa: F403
from .ops.arithmetic import *  # noqa: F403
from .ops.axis import are_deterministic_algorithms_enabled, use_deterministic_algorithms
from .ops.compaction import *  # noqa: F403
from .ops.copies import *  # noqa: F403
from .ops.creation import *  # noqa: F403
from .ops.cumulative import *  # noqa: F403
from .ops.elementwise import *  # noqa: F403
from .ops.flat_indexing import *  # noqa: F403
from .ops.gather import *  # noqa: F403
from .ops.indexing import *  # noqa: F403
from .ops.matmul import *  # noqa: F403
from .ops.products import *  # noqa: F403
from .ops.random import *  # noqa: F403
from .ops.reductions import *  # noqa: F403
from .ops.repetition import *  # noqa: F403
from .ops.scatter import *  # noqa: F403
from .ops.shapes import *  # noqa: F403
from .ops.sorting import *  # noqa: F403
from .ops.special import *  # noqa: F403
from .ops.statistics import *  # noqa: F403
from .ops.triangles import *  # noqa: F403
from .ops.views import *  # noqa: F403
from .tensor import Tensor

_MODULES = (
    _dlpack,
    _nn.activation,
    _nn.attention,
    _nn.conv,
    _nn.embedding,
    _nn.norm,
    _nn.pool,
    _nn.softmax,
    _ops.arithmetic,
    _ops.compaction,
    _ops.copies,
    _ops.creation,
    _ops.cumulative,
    _ops.elementwise,
    _ops.flat_indexing,
    _ops.gather,
    _ops.indexing,
    _ops.matmul,
    _ops.products,
    _ops.random,
    _ops.reductions,
    _ops.repetition,
    _ops.scatter,
    _ops.shapes,
    _ops.sorting,
    _ops.special,
    _ops.statistics,
    _ops.triangles,
    _ops.views,
)
# names that the modules share with each other, but that aren't public
_INTERNAL = frozenset(
    {"as_dtype", "check_model", "get_item", "set_item", "upload", "copy_", "fill_", "zero_", "next_seed", "mT"}
)

__all__ = [  # noqa: PLE0604  # sorted() gives strings
    "Tensor",
    "are_deterministic_algorithms_enabled",
    "use_deterministic_algorithms",
    *sorted(
        name for module in _MODULES for name in module.__all__ if name not in _INTERNAL and name not in lang.__all__
    ),
]

for _name in sorted(outputs.NAMES & globals().keys()):
    globals()[_name] = outputs.with_out(_name, globals()[_name])
argument_errors.explain_all(globals(), __all__)

methods.install()
