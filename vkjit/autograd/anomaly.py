"""Anomaly mode: find the operation that produced the first NaN, and the user's line that called it.

Inside `detect_anomaly()`, a `VkjitError` is raised at the first gradient that holds NaN and, with `forward=True`, at
the first result that holds NaN although no operand does. Every check waits for the device, so use it for debugging
only. Outside the mode there is no overhead: the tape creates ordinary nodes.
"""

from __future__ import annotations

import functools
import linecache
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, TypeVar

from ..errors import VkjitError
from ..runtime.handles import new_lock
from ..tensor.autograd import tape
from ..tensor.autograd.mode import set_grad_enabled, state

__all__ = ["detect_anomaly", "is_anomaly_enabled", "set_detect_anomaly"]

F = TypeVar("F", bound=Callable[..., Any])

_PACKAGE = Path(__file__).resolve().parents[1]
_LIBRARY_DIRECTORIES = tuple(
    str(folder) + "/" for folder in {_PACKAGE, _PACKAGE / "stdlib", (_PACKAGE / "stdlib").resolve()}
)
"""Directories of the library's own files, whose frames are skipped in reports."""

_MAX_CALLERS = 3
"""Number of callers reported in addition to the innermost user frame."""

_users = 0
_lock = new_lock()


@dataclass(frozen=True, slots=True)
class Anomaly:
    """The checks of anomaly mode in a thread: `check_nan` for gradients, `forward` for results."""

    check_nan: bool
    forward: bool

    def vjp(self, node: tape.Node, gradients: Sequence[Any]) -> Sequence[Any]:
        """Return the gradients of a node's operands. Raises VkjitError if one of them holds NaN."""
        try:
            results: Sequence[Any] = _unchecked(node.vjp, gradients)
        except VkjitError as error:
            raise VkjitError(
                f"{error}\nThis is the gradient of {_title(node.name, node.params)}; {_origin(node)}"
            ) from error
        if not self.check_nan:
            return results
        for position, (result, need) in enumerate(zip(results, node.needs, strict=True)):
            if need and _unchecked(_holds_nan, result):
                shape = result.shape
                nan_before = any(_unchecked(_holds_nan, g) for g in gradients)
                came = " (what came to it holds NaN already: backward() was started with it)" if nan_before else ""
                raise VkjitError(
                    f"the gradient of operand {position} (shape {shape}) of {_title(node.name, node.params)} holds NaN{came}; "
                    f"{_origin(node)}"
                )
        return results


# -- source locations


def _frames() -> tuple[tuple[str, int, str], ...]:
    """Return the innermost frames outside the library: file, line, function."""
    frames: list[tuple[str, int, str]] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and len(frames) <= _MAX_CALLERS:
        file = frame.f_code.co_filename
        if not file.startswith(_LIBRARY_DIRECTORIES):
            frames.append((file, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return tuple(frames)


def _format_frames(frames: Sequence[tuple[str, int, str]]) -> str:
    """Format frames as text: the line that called an operation, and that line's callers."""
    if not frames:
        return "it was called from no file"
    lines = []
    for number, (file, line, function) in enumerate(frames):
        source = linecache.getline(file, line).strip()
        lines.append(
            f"  {'called from ' if number else ''}{file}:{line} in {function}" + (f": {source}" * bool(source))
        )
    return "\n".join(lines)


class TracedNode(tape.Node):
    """A node that stores the user's frames if it is recorded in anomaly mode."""

    __slots__ = ("frames",)

    def __init__(self, name: str, *rest: Any) -> None:
        super().__init__(name, *rest)
        self.frames = _frames() if state.anomaly is not None else None


def _title(name: str, params: dict[str, Any]) -> str:
    function = params.get("function")
    return f"{name} ({function.__name__})" if name in ("function", "checkpoint") and function is not None else name


def _origin(node: tape.Node) -> str:
    frames = getattr(node, "frames", None)
    if frames is None:
        return "it was recorded outside of detect_anomaly(): put the forward pass into it to see from which line"
    return f"it was recorded at\n{_format_frames(frames)}"


# -- NaN


def _holds_nan(value: Any) -> bool:
    from ..tensor.ops.elementwise import isnan
    from ..tensor.ops.reductions import any as any_of
    from ..tensor.tensor import Tensor

    if not isinstance(value, Tensor) or not value.dtype.is_float or not value.numel():
        return False
    with set_grad_enabled(False):
        return bool(any_of(isnan(value.detach())).item())


def _unchecked(call: Callable[..., Any], *args: Any, **params: Any) -> Any:
    """Run call(*args, **params) without checking the operations in it."""
    saved, state.interceptor = state.interceptor, None
    try:
        return call(*args, **params)
    finally:
        state.interceptor = saved


def watched(name: str, call: Callable[..., Any], args: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """Run call(*args, **params), an operation of that name. Raises VkjitError if its result holds NaN and no operand
    does.
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


class set_detect_anomaly:  # noqa: N801  # PyTorch's name
    """Switch anomaly mode on or off in this thread; as a context manager, until the end of the block.

    `check_nan=False` skips the search for NaN and only adds the forward line to errors raised in backward.
    `forward=True` checks results as well as gradients.
    """

    def __init__(self, mode: bool, check_nan: bool = True, *, forward: bool = False) -> None:
        self._before: Anomaly | None = state.anomaly
        self._mode = mode
        _switch(Anomaly(check_nan, forward) if mode else None)

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _switch(self._before)


class detect_anomaly:  # noqa: N801  # PyTorch's name
    """Context manager and decorator: `with vk.autograd.detect_anomaly(): loss = model(x); loss.backward()`.

    The first gradient that holds NaN raises VkjitError, which names the operation and the line that called it in the
    forward pass. `check_nan` and `forward` are those of `set_detect_anomaly`.
    """

    def __init__(self, check_nan: bool = True, *, forward: bool = False) -> None:
        self._anomaly = Anomaly(check_nan, forward)
        self._saved: list[Anomaly | None] = []

    def __enter__(self) -> None:
        self._saved.append(state.anomaly)
        _switch(self._anomaly)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _switch(self._saved.pop())

    def __call__(self, function: F) -> F:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with detect_anomaly(self._anomaly.check_nan, forward=self._anomaly.forward):
                return function(*args, **kwargs)

        return wrapped  # type: ignore[return-value]  # the wrapped function keeps the signature


def is_anomaly_enabled() -> bool:
    """Return True if this thread is in anomaly mode."""
    return state.anomaly is not None


def _switch(anomaly: Anomaly | None) -> None:
    """Set this thread's mode. The tape creates traced nodes while any thread is in anomaly mode."""
    global _users
    with _lock:
        _users += (anomaly is not None) - (state.anomaly is not None)
        tape.NodeClass = TracedNode if _users else tape.Node
    state.anomaly = anomaly
    state.interceptor = watched if anomaly is not None and anomaly.forward else None
