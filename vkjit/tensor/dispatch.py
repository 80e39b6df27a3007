"""Dispatch of tensor operations: run the forward function, then record the call on the autograd tape.

`@operation` turns a forward function, which only computes values, into the public function, which also records the call
if an operand requires a gradient. `run_in_place` does the same for a function that writes into its first operand.
Dispatch also applies autocast, hands calls to an interceptor if one is set (`mode.modes`), and replays repeated calls
from the op cache (`op_cache`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from ..errors import InternalError
from ..runtime.capture import open_captures
from .argument_errors import ERRORS, explain, explains
from .argument_views import own_result
from .autograd import mode, tape
from .autograd.autocast import convert_operands
from .autograd.mode import modes, recording
from .autograd.rules import RULES
from .op_cache import cached, replay_write
from .tensor import Tensor
from .view_tracking import check_writable, record_written, shares_recorded_memory

__all__ = ["OPERATIONS", "handle_out", "is_recording", "operation", "run_in_place"]

F = TypeVar("F", bound=Callable[..., Any])

OPERATIONS: dict[str, Callable[..., Any]] = {}
"""The public functions of all operations, by operation name."""


def is_recording(operands: tuple[Any, ...]) -> bool:
    """True if an operation on these operands is recorded.

    Updates the autograd history of stale views among them (`view_tracking`). Raises VkjitError for a view for which
    that is impossible.
    """
    if not recording.get():
        return False
    needed = False
    for value in operands:
        if isinstance(value, Tensor):
            if value._history != value._version.recorded:
                value.follow()
            needed = needed or value.meta.requires_grad
    return needed


def operation(name: str, *, replayable: bool = False) -> Callable[[F], F]:
    """Decorate a forward function to register it as operation `name`.

    Its positional arguments are the operands, its keyword arguments the parameters. It returns a new tensor or a tuple
    of them; the operations that it calls are not recorded. Set `replayable` if the launches of the function depend only
    on the layouts of its tensors, its scalars and its parameters: the op cache may then record and replay them (see
    `op_cache`).
    """

    def register(function: F) -> F:
        if name in OPERATIONS:
            raise InternalError(f"operation {name} is registered already")

        @functools.wraps(function)
        def run(*operands: Any, **params: Any) -> Any:
            if params and "out" in params:
                return _run_into(name, run, operands, params)
            mode = modes.get()
            if mode.intercepts:
                if mode.interceptor is not None:
                    return mode.interceptor(name, run, operands, params)
                operands = convert_operands(name, operands)
            try:
                if not recording.get() or not is_recording(operands):
                    return function(*operands, **params)
                try:
                    recording.set(False)
                    result = function(*operands, **params)
                finally:
                    recording.set(True)
            except ERRORS as error:
                explain(error, function, operands, params)
                raise
            tape.record_unchecked(name, operands, params, result if isinstance(result, tuple) else (result,))
            return result

        if replayable:
            run = cached(name)(run)
        OPERATIONS[name] = explains(run)
        return run  # type: ignore[return-value]  # wraps keeps the signature

    return register


_run_into: Callable[[str, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
"""Runs an operation that is called with `out=`; see `handle_out`."""


def handle_out(run_into: Callable[[str, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]) -> None:
    """Register the function that runs operations called with `out=`: run_into(name, operation, operands, params).

    The function is in `outputs`, which imports this module and so can't be imported here.
    """
    global _run_into
    _run_into = run_into


_REPEATED = frozenset({"add", "sub", "mul", "true_divide", "pow", "clamp", "clamp_low", "clamp_high", "lerp", "fill"})
"""In-place operations that the op cache may replay; see `replayable` of `operation`."""


def run_in_place(
    name: str, write: Callable[..., Any], target: Tensor, operands: tuple[Any, ...], params: dict[str, Any]
) -> Tensor:
    """Run `write(target, *operands, **params)`, which changes target's memory, and record it as operation `name`.

    Returns the target. Raises ArgumentError if autograd can't track the write: to a leaf that requires a gradient, to a
    view of one, or to a view made while recording was off.
    """
    interceptor = modes.get().interceptor
    if interceptor is not None:
        args = (target, *operands)
        interceptor(name, lambda t, *rest: run_in_place(name, write, t, rest, params), args, {})
        return target
    recorded, enabled = is_recording((target, *operands)), recording.get()
    if recorded or (enabled and target.root is not None and shares_recorded_memory(target)):
        check_writable(name, target)
    recorded_operands = _kept_operands(name, target, operands) if recorded else ()
    try:
        recording.set(False)
        if name in _REPEATED:
            replay_write(write, target, operands, params)
        else:
            write(target, *operands, **params)
    except ERRORS as error:
        explain(error, write, (target, *operands), params, f"{name}_")
        raise
    finally:
        recording.set(enabled)
    target.bump_version()
    if recorded and target.root is not None:
        record_written(name, recorded_operands, params, target, target.root)
    elif recorded:
        target.rebase()
        tape.record(name, recorded_operands, params, (target,))
    return own_result(target) if open_captures else target


def _kept_operands(name: str, target: Tensor, operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the target and the operands as the tape is to record them, before the write happens.

    Tensors that share target's memory are replaced: by clones if the gradient rule reads operand values, which the
    write changes, else by aliases, which keep the present autograd history.
    """
    row = RULES.get(name)
    copies = row is not None and row.keeps_inputs

    def keep(value: Any) -> Any:
        if not isinstance(value, Tensor) or not value.shares_memory_with(target):
            return value
        if not copies:
            return value.alias()
        with mode.no_grad():
            return value.clone().with_grad_meta(value.meta)

    return tuple(keep(value) for value in (target, *operands))
