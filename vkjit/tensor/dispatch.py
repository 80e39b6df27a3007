"""How an operation on tensors runs: forward function, then the tape.

Enters: an operation's operands (tensors and numbers) and keyword parameters. Leaves: its results, recorded where a
gradient may be wanted. `@operation` turns a forward function, written on the values alone, into the public one;
`run_in_place` runs one that writes its result into its first operand.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from ..autograd import mode, tape
from ..autograd.autocast import converted
from ..autograd.mode import state
from ..errors import ArgumentError, InternalError
from .parts import check_written, record_written
from .repeats import at_once, repeats, written
from .repeats import repeated as again
from .tensor import Tensor

__all__ = ["OPERATIONS", "is_recording", "operation", "run_in_place"]

F = TypeVar("F", bound=Callable[..., Any])

OPERATIONS: dict[str, Callable[..., Any]] = {}
"""Operation name to its public function."""


def is_recording(operands: tuple[Any, ...]) -> bool:
    """Whether an operation on these goes on the tape. Raises VkjitError for a view whose place on it is out of date."""
    if not state.enabled:
        return False
    wanted = False
    for value in operands:
        if isinstance(value, Tensor):
            if value._history != value._version.recorded:
                value.follow()
            wanted = wanted or value.meta.requires_grad
    return wanted


def operation(name: str, *, repeated: bool = False) -> Callable[[F], F]:
    """Registers a forward function. Its positional arguments are the operands, its keyword arguments parameters.

    The forward function sees tensors as values: what it computes is not recorded step by step. It returns a new tensor
    or a tuple of them. `repeated`: what it does hangs on layouts, numbers and parameters alone, see `repeats`.
    """

    def register(function: F) -> F:
        if name in OPERATIONS:
            raise InternalError(f"operation {name} is registered already")
        forward = repeats(name, function) if repeated else function

        @functools.wraps(function)
        def run(*operands: Any, **params: Any) -> Any:
            if params and "out" in params:
                return _run_into(name, run, operands, params)
            if state.special:
                if state.watch is not None:
                    return state.watch(name, run, operands, params)
                operands = converted(name, operands)
            if not state.enabled or not is_recording(operands):
                return again(name, function, operands, params) if repeated else function(*operands, **params)
            state.enabled = False
            try:
                result = forward(*operands, **params)
            finally:
                state.enabled = True
            tape.put(name, operands, params, result if isinstance(result, tuple) else (result,))
            return result

        if repeated:
            run = at_once(name, run)
        OPERATIONS[name] = run
        return run  # type: ignore[return-value]  # wraps keeps the signature

    return register


def _run_into(name: str, run: Callable[..., Any], operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """The operation with its result written into the tensor `out`, where there is one."""
    from . import outputs

    if name not in outputs.NAMES:
        raise ArgumentError(f"{name}() takes no out=: assign its result")
    rest = {key: value for key, value in params.items() if key != "out"}
    out = params["out"]
    return run(*operands, **rest) if out is None else outputs.write(name, run, operands, rest, out)


_REPEATED = frozenset({"add", "sub", "mul", "true_divide", "pow", "clamp", "clamp_low", "clamp_high", "lerp", "fill"})
"""Operations in place that hang on layouts, numbers and parameters alone."""


def run_in_place(
    name: str, write: Callable[..., Any], target: Tensor, operands: tuple[Any, ...], params: dict[str, Any]
) -> Tensor:
    """Runs `write(target, *operands, **params)`, which changes target's memory, and records it as `name` of all of
    them.

    Raises ArgumentError where autograd forbids it: a leaf that requires a gradient, a view of one, a view made without
    recording.
    """
    if state.special and state.watch is not None:
        args = (target, *operands)
        state.watch(name, lambda t, *rest: run_in_place(name, write, t, rest, params), args, {})
        return target
    recording = is_recording((target, *operands))
    if recording:
        check_written(name, target)
    kept = _kept_operands(name, target, operands) if recording else ()
    enabled, state.enabled = state.enabled, False
    try:
        if name in _REPEATED:
            written(write, target, operands, params)
        else:
            write(target, *operands, **params)
    finally:
        state.enabled = enabled
    target.bump_version()
    if recording and target.root is not None:
        record_written(name, kept, params, target, target.root)
    elif recording:
        target.rebase()
        tape.record(name, kept, params, (target,))
    return target


def _kept_operands(name: str, target: Tensor, operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """The operands as the tape is to know them: in their places before the write, and, where the gradient rule reads
    their values, with copies of those that the write changes.
    """
    row = tape.RULES.get(name)
    copies = row is not None and row.keeps_inputs

    def keep(value: Any) -> Any:
        if not isinstance(value, Tensor) or not value.shares_memory_with(target):
            return value
        if not copies:
            return value.alias()
        with mode.set_grad_enabled(False):
            return value.clone().placed(value.meta)

    return tuple(keep(value) for value in (target, *operands))
