"""Per-thread autograd state, and the context managers that switch recording on and off."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from vkjit.dtypes import DType

__all__ = ["enable_grad", "inference_mode", "is_grad_enabled", "no_grad", "set_grad_enabled", "state"]

F = TypeVar("F", bound=Callable[..., Any])


class _State(threading.local):
    """Per-thread autograd state. Every operation reads `enabled` and `intercepts`, so these are plain attributes."""

    enabled = True
    """True if operations are recorded."""
    intercepts = False
    """True if autocast is on or an `interceptor` is set, so that operations leave their fast path."""
    accumulates_grad = False
    """True during a backward pass that adds to `.grad` (`backward()`, unlike `grad()`)."""
    anomaly: Any = None
    """The settings of anomaly mode (`vkjit.autograd.anomaly`), or None if it is off.

    The backward pass calls its method `vjp(node, gradients)` instead of `Node.vjp`.
    """

    observed = False
    """True if an `interceptor` or a `recorder` is set, so that no call is replayed."""
    special = False
    """True if autocast is on, or an `interceptor` or a `recorder` is set."""

    autocast_dtype: DType | None = None
    """The 16-bit type of autocast, or None if it is off; set it through `autocast`."""
    _recorder: Any = None
    _interceptor: Callable[..., Any] | None = None

    @property
    def autocast(self) -> DType | None:
        """The 16-bit type of autocast, or None if it is off."""
        return self.autocast_dtype

    @autocast.setter
    def autocast(self, dtype: DType | None) -> None:
        self.autocast_dtype = dtype
        self._update_flags()

    @property
    def interceptor(self) -> Callable[..., Any] | None:
        """A function that runs this thread's operations instead of the dispatcher, or None.

        It is called as `interceptor(name, call, args, params)` and returns the result, normally
        `call(*args, **params)`.
        """
        return self._interceptor

    @interceptor.setter
    def interceptor(self, function: Callable[..., Any] | None) -> None:
        self._interceptor = function
        self._update_flags()

    @property
    def recorder(self) -> Any:
        """The recorder of the cached call that this thread runs (`vkjit.tensor.op_cache`), or None."""
        return self._recorder

    @recorder.setter
    def recorder(self, recorder: Any) -> None:
        self._recorder = recorder
        self._update_flags()

    def _update_flags(self) -> None:
        intercepted, recorded = self._interceptor is not None, self._recorder is not None
        self.intercepts = intercepted or self.autocast_dtype is not None
        self.observed = intercepted or recorded
        self.special = self.intercepts or recorded


state = _State()


def is_grad_enabled() -> bool:
    """Return True if operations on tensors that require gradients are recorded."""
    return state.enabled


class set_grad_enabled:  # noqa: N801  # PyTorch's name
    """Context manager and decorator that switches recording on or off in this thread."""

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled
        self._saved: list[bool] = []

    def __enter__(self) -> None:
        self._saved.append(state.enabled)
        state.enabled = self._enabled

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        state.enabled = self._saved.pop()

    def __call__(self, function: F) -> F:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with set_grad_enabled(self._enabled):
                return function(*args, **kwargs)

        return wrapped  # type: ignore[return-value]  # the wrapped function keeps the signature


def no_grad() -> set_grad_enabled:
    """Disable recording: `with vk.no_grad(): ...` or `@vk.no_grad()`."""
    return set_grad_enabled(False)


def enable_grad() -> set_grad_enabled:
    """Enable recording inside a `no_grad` block."""
    return set_grad_enabled(True)


def inference_mode(mode: bool | Callable[..., Any] = True) -> Any:
    """Alias of `no_grad`, also as `@vk.inference_mode`; with mode=False, of `enable_grad`.

    Unlike in PyTorch, tensors made inside may be used in recorded operations later, as constants.
    """
    if callable(mode):
        return no_grad()(mode)
    return set_grad_enabled(not mode)
