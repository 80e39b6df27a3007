"""User-defined operations with a custom backward, often built on custom kernels.

A subclass of `Function` defines the static methods `forward(ctx, ...)` and `backward(ctx, *gradients)`; `apply` runs
forward and records one node on the tape.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import ArgumentError
from ..runtime.capture import KeptVersion
from ..tensor.autograd.mode import is_grad_enabled, no_grad
from ..tensor.autograd.rules import rule
from ..tensor.autograd.tape import UNTRACKED, Node, record

__all__ = ["Context", "Function"]


class Context:
    """State passed from forward to backward. Attributes may be set freely; tensors are kept with `save_for_backward`.

    `needs_input_grad` has one bool per argument of forward: True if the argument requires a gradient.
    """

    def __init__(self) -> None:
        self._materialize = True
        self._saved: tuple[tuple[Any, KeptVersion], ...] = ()
        """Each kept tensor with its version, a count of the writes to it."""
        self.needs_input_grad: tuple[bool, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep tensors for backward, which reads them as `saved_tensors`."""
        self._saved = tuple((t, t.kept_version() if hasattr(t, "kept_version") else 0) for t in tensors)

    def set_materialize_grads(self, value: bool) -> None:
        """Choose what backward receives for a result without a gradient: zeros (True, the default) or None (False)."""
        self._materialize = bool(value)

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """The tensors kept by `save_for_backward`. Raises ArgumentError if one was changed in place since then."""
        for tensor, version in self._saved:
            if hasattr(tensor, "is_unchanged") and not tensor.is_unchanged(version):
                raise ArgumentError(
                    f"a tensor of shape {tensor.shape} that forward kept for backward was changed in place since: "
                    ".clone() it first"
                )
        return tuple(tensor for tensor, _ in self._saved)


class Function:
    """An operation with a user-defined gradient.

    ```python
    class Cube(vk.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            return gradient * 3 * x * x

    y = Cube.apply(x)
    ```

    backward returns one gradient (or None) per argument of forward; more are accepted if they are None.
    """

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Compute the result in `forward(ctx, *args)`: a new tensor or a tuple of them. Nothing inside is recorded.

        The signature `(*args, **kwargs)` here lets type checkers accept overrides with any parameters.
        """
        raise ArgumentError("a Function defines forward(ctx, ...) as a static method")

    @staticmethod
    def backward(*args: Any, **kwargs: Any) -> Any:
        """Compute, in `backward(ctx, *gradients)`, the gradients of forward's arguments from those of its results.

        For a result without a gradient, `gradients` has zeros, or None after `ctx.set_materialize_grads(False)`. The
        signature is as in `forward`.
        """
        raise ArgumentError("a Function defines backward(ctx, *gradients) as a static method")

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Return the result of forward for these arguments, recorded on the tape as one operation."""
        ctx = Context()
        ctx.needs_input_grad = tuple(bool(getattr(a, "requires_grad", False)) for a in args)
        with no_grad():
            result = cls.forward(ctx, *args)
        outputs = result if isinstance(result, tuple) else (result,)
        if is_grad_enabled():
            for value in args:
                if hasattr(value, "follow"):  # a tensor
                    value.follow()  # brings a view up to date if its memory was written through another tensor
            fresh = tuple(_recordable(output, args) for output in outputs)
            # shape, type and device of each result, from which `_function` makes zeros if it has no gradient
            like = [(output.shape, output.dtype, output.device) for output in fresh]
            record("function", args, {"function": cls, "ctx": ctx, "like": like}, fresh)
            return fresh if isinstance(result, tuple) else fresh[0]
        return result


def _zeros(shape: tuple[int, ...], dtype: Any, device: Any) -> Any:
    """Return zeros as the gradient of a result without one."""
    from ..tensor.ops.creation import zeros

    return zeros(shape, dtype=dtype, device=device)


def _recordable(output: Any, args: Sequence[Any]) -> Any:
    """Return a result of forward as a tensor that can be attached to the new node without changing an argument.

    If the result is one of the arguments, return a detached alias of it. If the result is recorded and a view of an
    argument's memory, mark it `UNTRACKED`: only the user's backward knows how it depends on the argument, so autograd
    can't follow later in-place writes to that argument.
    """
    if any(output is a for a in args):
        return output.detach()
    shares = any(getattr(a, "memory_key", None) is output.memory_key for a in args)
    if shares and any(getattr(a, "requires_grad", False) for a in args):
        output._root = UNTRACKED
    return output


@rule("function")
def _function(node: Node, *gradients: Any) -> Sequence[Any]:
    """VJP of user-defined operations: call `backward` and check the number and shapes of the returned gradients."""
    function, ctx = node.params["function"], node.params["ctx"]
    if ctx._materialize:
        gradients = tuple(
            _zeros(*like) if g is None else g for g, like in zip(gradients, node.params["like"], strict=True)
        )
    from ..tensor.tensor import Tensor  # it imports this package's tape first

    returned = function.backward(ctx, *gradients)
    results = returned if isinstance(returned, tuple) else (returned,)
    while len(results) > len(node.edges) and results[-1] is None:  # of optional arguments that weren't given
        results = results[:-1]
    if len(results) != len(node.edges):
        raise ArgumentError(
            f"{function.__name__}.backward gave {len(results)} gradients, expected one for each of the "
            f"{len(node.edges)} arguments of forward (None where there is none)"
        )
    for position, (gradient, edge) in enumerate(zip(results, node.edges, strict=True)):
        if gradient is not None and not isinstance(gradient, Tensor):
            raise ArgumentError(
                f"{function.__name__}.backward gave {type(gradient).__name__} for argument {position}, expected a "
                "tensor, or None where there is no gradient"
            )
        if edge is not None and edge.requires_grad and gradient is not None and gradient.shape != edge.shape:
            raise ArgumentError(
                f"{function.__name__}.backward gave a gradient of shape {gradient.shape} for argument {position}, "
                f"whose shape is {edge.shape}"
            )
    return results
