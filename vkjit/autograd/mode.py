"""Whether operations are recorded: a flag per thread, and the context managers that set it."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from ..dtypes import DType

__all__ = ["enable_grad", "inference_mode", "is_grad_enabled", "no_grad", "set_grad_enabled", "state"]

F = TypeVar("F", bound=Callable[..., Any])


class _State(threading.local):
    """What a thread's operations look at: one attribute each, since every operation does."""

    enabled = True
    """Whether operations are recorded."""
    special = False
    """Whether there is anything else for operations to look at: autocast, or somebody who watches them."""
    filling = False
    """Whether a walk backwards adds to `.grad`."""
    anomaly: Any = None
    """What anomaly mode looks for, where it is on."""

    _autocast: DType | None = None
    _watch: Callable[..., Any] | None = None

    @property
    def autocast(self) -> DType | None:
        """The type that products are computed in, where that isn't their operands' own."""
        return self._autocast

    @autocast.setter
    def autocast(self, dtype: DType | None) -> None:
        self._autocast = dtype
        self.special = dtype is not None or self._watch is not None

    @property
    def watch(self) -> Callable[..., Any] | None:
        """Who runs operations in this thread's stead: `watch(name, call, args, params)`."""
        return self._watch

    @watch.setter
    def watch(self, watch: Callable[..., Any] | None) -> None:
        self._watch = watch
        self.special = watch is not None or self._autocast is not None


state = _State()


def is_grad_enabled() -> bool:
    """True where operations on tensors that require gradients are recorded."""
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
    """Nothing inside is recorded: `with vk.no_grad(): ...` or `@vk.no_grad()`."""
    return set_grad_enabled(False)


def enable_grad() -> set_grad_enabled:
    """Records inside a `no_grad` block again."""
    return set_grad_enabled(True)


def inference_mode(mode: bool | Callable[..., Any] = True) -> Any:
    """Another name of `no_grad`, also as `@vk.inference_mode`; with mode=False of `enable_grad`. What is made inside may be used in
    recorded operations later, as a constant.
    """
    if callable(mode):
        return no_grad()(mode)
    return set_grad_enabled(not mode)
