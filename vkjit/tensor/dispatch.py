"""How an operation on tensors runs: forward function, then the tape.

Enters: an operation's operands (tensors and numbers) and keyword parameters. Leaves: its results, recorded where a gradient
may be wanted. `@operation` turns a forward function, written on the values alone, into the public one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from ..autograd import tape
from ..errors import InternalError

__all__ = ["OPERATIONS", "operation"]

F = TypeVar("F", bound=Callable[..., Any])

OPERATIONS: dict[str, Callable[..., Any]] = {}
"""Operation name to its public function."""


def operation(name: str) -> Callable[[F], F]:
    """Registers a forward function. Its positional arguments are the operands, its keyword arguments parameters.

    The forward function sees tensors as values: what it computes is not recorded step by step. It returns a new tensor or a
    tuple of them.
    """

    def register(forward: F) -> F:
        if name in OPERATIONS:
            raise InternalError(f"operation {name} is registered already")

        @functools.wraps(forward)
        def run(*operands: Any, **params: Any) -> Any:
            with tape.set_grad_enabled(False):
                result = forward(*operands, **params)
            outputs = result if isinstance(result, tuple) else (result,)
            tape.record(name, operands, params, outputs)
            return result

        OPERATIONS[name] = run
        return run  # type: ignore[return-value]  # wraps keeps the signature

    return register
