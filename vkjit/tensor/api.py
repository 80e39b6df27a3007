"""The public names of the tensor layer, which `vkjit.__init__` resolves on first use.

Importing this module installs the methods of `Tensor` and the gradient rules. Names shared with the kernel language
(`vk.exp`) are not listed: called on the host, the language's stub forwards to the tensor function.
"""

from __future__ import annotations

from .. import lang
from ..autograd import rules as _rules  # noqa: F401  # fills the table of gradients
from . import (
    arithmetic,
    arithmetic_more,
    copies,
    creation,
    dlpack,
    elementwise,
    indexing,
    linalg,
    methods,
    nn_activation,
    nn_attention,
    nn_conv,
    nn_embedding,
    nn_norm,
    nn_pool,
    nn_softmax,
    outputs,
    products,
    random,
    reductions,
    running,
    scans,
    scattering,
    shapes,
    sorting,
    statistics,
    views,
)
from .arithmetic import *  # noqa: F403  # each module lists its public names
from .arithmetic_more import *  # noqa: F403
from .copies import *  # noqa: F403
from .creation import *  # noqa: F403
from .dlpack import *  # noqa: F403
from .elementwise import *  # noqa: F403
from .indexing import *  # noqa: F403
from .linalg import *  # noqa: F403
from .nn_activation import *  # noqa: F403
from .nn_attention import *  # noqa: F403
from .nn_conv import *  # noqa: F403
from .nn_embedding import *  # noqa: F403
from .nn_norm import *  # noqa: F403
from .nn_pool import *  # noqa: F403
from .nn_softmax import *  # noqa: F403
from .products import *  # noqa: F403
from .random import *  # noqa: F403
from .reductions import *  # noqa: F403
from .running import *  # noqa: F403
from .scans import *  # noqa: F403
from .scattering import *  # noqa: F403
from .shapes import *  # noqa: F403
from .sorting import *  # noqa: F403
from .statistics import *  # noqa: F403
from .tensor import Tensor
from .views import *  # noqa: F403

_MODULES = (
    arithmetic, arithmetic_more, copies, creation, dlpack, elementwise, indexing, linalg, nn_activation, nn_attention,
    nn_conv, nn_embedding, nn_norm, nn_pool, nn_softmax, products, random, reductions, running, scans, scattering, shapes,
    sorting, statistics, views,
)  # fmt: skip
_INTERNAL = frozenset({"as_dtype", "get_item", "set_item", "upload", "copy_", "fill_", "zero_", "next_seed", "mT"})

__all__ = [  # noqa: PLE0604  # sorted() gives strings
    "Tensor",
    *sorted(
        name for module in _MODULES for name in module.__all__ if name not in _INTERNAL and name not in lang.__all__
    ),
]

for _name in sorted(outputs.NAMES & globals().keys()):
    globals()[_name] = outputs.with_out(_name, globals()[_name])

methods.install()
