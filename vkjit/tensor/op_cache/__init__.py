"""Record/replay cache of eager operations, keyed by operand layouts.

A cached function is a public tensor function whose host work (checks, shapes, types, choice of kernels, argument blocks,
views, nodes of the autograd tape) depends only on what is in its call key: the layouts of its tensors and whether they
require gradients, its scalars and parameters, and settings. The first two calls of a key run normally, the third is
recorded (`recorder`), and later ones replay the recording (`replay`): they allocate, launch, make the views, and put the
nodes on the tape. Gradient rules of these nodes are recorded and replayed in turn (`nodes`).

Not cached: calls that read from the device, upload to it or wait for it, calls that draw random numbers, calls under the
profiler or the sanitizer, and calls that autograd records as writes in place. `VKJIT_REPEAT=0` disables the cache.
"""

from .dispatch import cached, replay_write, with_replay
from .key import cacheable

__all__ = ["cacheable", "cached", "replay_write", "with_replay"]
