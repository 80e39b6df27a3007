"""Gradients of attention: kernels that recompute the scores, or tensor operations if the gradient itself is recorded."""

from __future__ import annotations

from typing import Any

from vkjit import dtypes

from ..autograd.mode import is_grad_enabled
from ..autograd.tape import Node, rule
from ..nn.attention import attention_gradients, composed_weights
from ..ops.repetition import repeat_interleave


@rule("attention", inputs=True, outputs=True)
def _attention(node: Node, gradient: Any, *_: Any) -> tuple[Any, ...]:
    q, k, v, mask = (node.input(i) for i in range(4))
    scale, causal = node.params["scale"], node.params["causal"]
    if not is_grad_enabled():
        results = (node.output(0), node.output(1))
        return *attention_gradients(gradient, (q, k, v, mask), results, node.needs, scale, causal), None
    kind, share = q.dtype, q.shape[1] // k.shape[1]
    if kind.itemsize == 2:  # compute in f32, round once at the end
        q, k, v, gradient = (t.to(dtypes.f32) for t in (q, k, v, gradient))
    keys, values = (repeat_interleave(t, share, 1) if share > 1 else t for t in (k, v))
    weights = composed_weights(q, keys, mask, scale, causal)
    slopes = gradient @ values.mT
    slopes = weights * (slopes - (slopes * weights).sum(-1, True)) * scale
    grouped = (k.shape[0], k.shape[1], share, *k.shape[2:])

    def of_group(x: Any) -> Any:
        return x.reshape(grouped).sum(2) if share > 1 else x

    gradients = (slopes @ keys, of_group(slopes.mT @ q), of_group(weights.mT @ gradient))
    return *(t.to(kind) for t in gradients), None
