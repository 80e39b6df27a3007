"""Anomaly mode: find the operation that produced the first NaN, and the user's line that called it.

Inside `detect_anomaly()`, a `VkjitError` is raised at the first gradient that holds NaN and, with `forward=True`, at
the first result that holds NaN although no operand does. Every check waits for the device, so use it for debugging
only. Outside the mode there is no overhead: the tape creates ordinary nodes.
"""

from __future__ import annotations

import functools
import linecache
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from ..errors import VkjitError
from ..runtime.handles import new_lock
from ..runtime.open_blocks import Block, ReentrantBlock
from ..tensor.autograd import tape
from ..tensor.autograd.mode import changed_modes, modes, no_grad, state

__all__ = ["detect_anomaly", "is_anomaly_enabled", "set_detect_anomaly"]


_PACKAGE = Path(__file__).resolve().parents[1]
_LIBRARY_DIRECTORIES = tuple(
    str(folder) + "/" for folder in {_PACKAGE, _PACKAGE / "stdlib", (_PACKAGE / "stdlib").resolve()}
)
"""Directories of the library's own files, whose frames are skipped in reports. `stdlib` may be a symbolic link."""

_MAX_CALLERS = 3
"""Number of callers reported in addition to the innermost user frame."""

_threads_in_mode = 0
"""Number of threads in anomaly mode, guarded by `_lock`."""
_lock = new_lock()


@dataclass(frozen=True, slots=True)
class Anomaly:
    """Settings of anomaly mode in one thread.

    check_nan: gradients are checked for NaN; forward: results of operations are checked for NaN.
    """

    check_nan: bool
    forward: bool

    def vjp(self, node: tape.Node, gradients: Sequence[Any]) -> Sequence[Any]:
        """Return the gradients of a node's operands, given those of its results.

        In anomaly mode, the tape calls this instead of `Node.vjp`. Raises VkjitError if a gradient holds NaN (with
        check_nan). Adds the line of the forward call to errors of the gradient rule.
        """
        try:
            results: Sequence[Any] = _unchecked(node.vjp, gradients)  # gradients are checked here, not by `watched`
        except VkjitError as error:
            raise VkjitError(
                f"{error}\nThis is the gradient of {_title(node.name, node.params)}; {_origin(node)}"
            ) from error
        if not self.check_nan:
            return results
        for position, (result, need) in enumerate(zip(results, node.needs, strict=True)):
            if need and _unchecked(_holds_nan, result):
                shape = result.shape
                # usually this node made the NaN, because NaN in a gradient from another node raises an error there
                nan_before = any(_unchecked(_holds_nan, g) for g in gradients)
                note = (
                    " (the incoming gradient holds NaN already: backward() was started with it)" if nan_before else ""
                )
                raise VkjitError(
                    f"the gradient of operand {position} (shape {shape}) of {_title(node.name, node.params)} holds NaN{note}; "
                    f"{_origin(node)}"
                )
        return results


# -- source locations


def _frames() -> tuple[tuple[str, int, str], ...]:
    """Return frames of the current call stack outside the library as (file, line, function), the innermost first.

    These are the user's line that called an operation, and up to _MAX_CALLERS of its callers.
    """
    frames: list[tuple[str, int, str]] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and len(frames) <= _MAX_CALLERS:
        file = frame.f_code.co_filename
        if not file.startswith(_LIBRARY_DIRECTORIES):
            frames.append((file, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return tuple(frames)


def _format_frames(frames: Sequence[tuple[str, int, str]]) -> str:
    """Format the frames returned by `_frames` as text: one line per frame, with the source line if it can be read."""
    if not frames:
        return "  no line outside the library"
    lines = []
    for number, (file, line, function) in enumerate(frames):
        prefix = "called from " if number else ""  # the first frame is the call itself
        source = linecache.getline(file, line).strip()
        suffix = f": {source}" if source else ""
        lines.append(f"  {prefix}{file}:{line} in {function}{suffix}")
    return "\n".join(lines)


class TracedNode(tape.Node):
    """A tape node that also stores the user's stack frames if the thread that records it is in anomaly mode."""

    __slots__ = ("frames",)

    def __init__(self, name: str, *rest: Any) -> None:
        super().__init__(name, *rest)
        self.frames = _frames() if state.anomaly is not None else None


def _title(name: str, params: dict[str, Any]) -> str:
    """Return the name of an operation for messages, with the user's function for custom `Function`s and checkpoints."""
    function = params.get("function")
    return f"{name} ({function.__name__})" if name in ("function", "checkpoint") and function is not None else name


def _origin(node: tape.Node) -> str:
    """Return a text for messages with the line of the forward pass that called the operation of a node."""
    frames = getattr(node, "frames", None)
    if frames is None:
        return "it was recorded outside of detect_anomaly(): run the forward pass inside it, too, to see the line"
    return f"it was recorded at\n{_format_frames(frames)}"


# -- NaN


def _holds_nan(value: Any) -> bool:
    """True if a value is a float tensor with a NaN element. Waits for the device."""
    from ..tensor.ops.elementwise import isnan
    from ..tensor.ops.reductions import any as any_of
    from ..tensor.tensor import Tensor

    if not isinstance(value, Tensor) or not value.dtype.is_float or not value.numel():
        return False
    with no_grad():
        return bool(any_of(isnan(value.detach())).item())


def _unchecked(call: Callable[..., Any], *args: Any, **params: Any) -> Any:
    """Return call(*args, **params), with this thread's interceptor (`watched`) switched off during the call.

    Operations that the call runs are then not checked for NaN.
    """
    with changed_modes(interceptor=None):
        return call(*args, **params)


def watched(name: str, call: Callable[..., Any], args: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """Run an operation and check its results. Raises VkjitError if a result holds NaN although no operand does.

    With `forward=True`, this is the thread's `state.interceptor`, which runs every operation.
    """
    nan_operands = _unchecked(lambda: [_holds_nan(a) for a in args])
    result = _unchecked(call, *args, **params)
    if any(nan_operands):
        return result
    for position, value in enumerate(result if isinstance(result, tuple) else (result,)):
        if _unchecked(_holds_nan, value):
            raise VkjitError(
                f"result {position} (shape {value.shape}) of {_title(name, params)} holds NaN, and no operand does; it was "
                f"called at\n{_format_frames(_frames())}"
            )
    return result


# -- the mode


class set_detect_anomaly(Block[None]):  # noqa: N801  # PyTorch's name
    """Switch anomaly mode on or off in this thread.

    Used as a context manager, it restores the previous mode at the end of the block. Like PyTorch's, the constructor
    switches the mode: Ctrl-C between it and the beginning of the block leaves the mode switched. `detect_anomaly`
    switches it in the block alone.

    `check_nan=False` skips the search for NaN, so that anomaly mode only adds the line of the forward call to errors
    raised in backward. `forward=True` checks the results of operations as well as gradients.
    """

    def __init__(self, mode: bool, check_nan: bool = True, *, forward: bool = False) -> None:
        self._mode, before = mode, state.anomaly
        super().__init__(functools.partial(_until_left, before))
        _switch(Anomaly(check_nan, forward) if mode else None)


class detect_anomaly(ReentrantBlock[None]):  # noqa: N801  # PyTorch's name
    """Context manager and decorator: `with vk.autograd.detect_anomaly(): loss = model(x); loss.backward()`.

    The first gradient that holds NaN raises VkjitError. The error names the operation and the line that called it in
    the forward pass. `check_nan` and `forward` mean the same as in `set_detect_anomaly`.
    """

    def __init__(self, check_nan: bool = True, *, forward: bool = False) -> None:
        super().__init__(functools.partial(_while_on, Anomaly(check_nan, forward)))


def _while_on(anomaly: Anomaly) -> Iterator[None]:
    """Generator for blocks in anomaly mode."""
    return _until_left(state.anomaly, anomaly)


def _until_left(
    former: Anomaly | None, anomaly: Anomaly | None = None, *, _finalizing: Callable[[], bool] = sys.is_finalizing
) -> Iterator[None]:
    """Generator for blocks that switch anomaly mode at their end, and, if `anomaly` is given, at their beginning."""
    inside: Anomaly | None = None
    try:
        if anomaly is not None:
            _switch(anomaly)
        inside = state.anomaly
        yield
    finally:
        try:
            if not _finalizing():  # else modules have lost their globals
                _switch(former, inside)
        except BaseException:  # an interrupt
            _switch(former, inside)
            raise


def is_anomaly_enabled() -> bool:
    """Return True if this thread is in anomaly mode."""
    return state.anomaly is not None


def _switch(anomaly: Anomaly | None, dropped: Anomaly | None = None) -> None:
    """Put this thread into anomaly mode with the given settings; None takes it out of the mode.

    `dropped` are the settings that a block had whose thread ended in it; they count in a context without modes only.

    While any thread is in anomaly mode, the tape creates `TracedNode`s instead of ordinary nodes, in all threads.
    """
    global _threads_in_mode
    interceptor = watched if anomaly is not None and anomaly.forward else None
    with _lock:
        before = modes.get(None)
        left = dropped if before is None else before.anomaly
        new = (before or modes.get()).changed(anomaly=anomaly, interceptor=interceptor)
        # no interrupt can come in between: +1 if the thread enters the mode, -1 if it leaves it, 0 if settings change
        _threads_in_mode += (anomaly is not None) - (left is not None)
        tape.NodeClass = TracedNode if _threads_in_mode else tape.Node
        modes.set(new)
