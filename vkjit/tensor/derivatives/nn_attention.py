"""Gradient rule of attention (see `vkjit.tensor.derivatives`).

It launches kernels that recompute the scores. If the gradient is itself recorded (create_graph=True), it is composed of
differentiable tensor operations instead.
"""

from __future__ import annotations

from typing import Any

from vkjit import dtypes

from ..autograd.mode import is_grad_enabled
from ..autograd.rules import rule
from ..autograd.tape import Node
from ..nn.attention import attention_gradients, composed_weights
from ..ops.repetition import repeat_interleave


@rule("attention", inputs=True, outputs=True)
def _attention(node: Node, gradient: Any, *_: Any) -> tuple[Any, ...]:
    """Return the gradients of queries, keys and values; the mask has none."""
    q, k, v, mask = (node.input(i) for i in range(4))
    scale, causal = node.params["scale"], node.params["causal"]
    if not is_grad_enabled():
        results = (node.output(0), node.output(1))
        return *attention_gradients(gradient, (q, k, v, mask), results, node.needs, scale, causal), None
    dtype, group_size = q.dtype, q.shape[1] // k.shape[1]  # query heads per key head
    if dtype.itemsize == 2:  # compute in f32, round once at the end
        q, k, v, gradient = (t.to(dtypes.f32) for t in (q, k, v, gradient))
    keys, values = (repeat_interleave(t, group_size, 1) if group_size > 1 else t for t in (k, v))
    weights = composed_weights(q, keys, mask, scale, causal)
    # first the gradient of the softmax weights, then that of q @ k.mT
    score_gradients = gradient @ values.mT
    score_gradients = weights * (score_gradients - (score_gradients * weights).sum(-1, True)) * scale
    grouped = (k.shape[0], k.shape[1], group_size, *k.shape[2:])

    def of_group(x: Any) -> Any:
        """Sum x, which has a gradient per query head, over the query heads that share a key head."""
        return x.reshape(grouped).sum(2) if group_size > 1 else x

    gradients = (score_gradients @ keys, of_group(score_gradients.mT @ q), of_group(weights.mT @ gradient))
    return *(t.to(dtype) for t in gradients), None
