"""Autograd state of asyncio tasks and threads, and the context managers that switch recording on and off."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ...runtime import open_blocks
from .scopes import in_block

if TYPE_CHECKING:
    from vkjit.dtypes import DType

__all__ = [
    "Modes", "enable_grad", "inference_mode", "is_grad_enabled", "modes", "no_grad", "recording", "set_grad_enabled", "state",
]  # fmt: skip

F = TypeVar("F", bound=Callable[..., Any])


class Modes(NamedTuple):
    """The modes of a context, in one immutable object."""

    autocast: DType | None = None
    """The 16-bit type of autocast, or None if it is off."""
    anomaly: Any = None
    """The settings of anomaly mode (`vkjit.autograd.anomaly`), or None if it is off.

    The backward pass calls its method `vjp(node, gradients)` instead of `Node.vjp`.
    """
    interceptor: Callable[..., Any] | None = None
    """A function that runs operations instead of the dispatcher, or None.

    It is called as `interceptor(name, call, args, params)` and returns the result, normally `call(*args, **params)`.
    """
    recorder: Any = None
    """The recorder of the cached call that runs (`vkjit.tensor.op_cache`), or None."""
    intercepts: bool = False
    """True if autocast is on or an `interceptor` is set, so that operations leave their fast path."""
    observed: bool = False
    """True if an `interceptor` or a `recorder` is set, so that no call is replayed."""
    special: bool = False
    """True if autocast is on, or an `interceptor` or a `recorder` is set."""

    def changed(self, **values: Any) -> Modes:
        """Return these modes with other values of the first four fields."""
        new = self._replace(**values)
        intercepted, recorded = new.interceptor is not None, new.recorder is not None
        intercepts = intercepted or new.autocast is not None
        return new._replace(
            intercepts=intercepts, observed=intercepted or recorded, special=intercepts or recorded
        )  # fmt: skip


recording: ContextVar[bool] = ContextVar("recording", default=True)
"""True if operations are recorded."""
modes: ContextVar[Modes] = ContextVar("modes", default=Modes())  # noqa: B039  # immutable
_accumulates_grad: ContextVar[bool] = ContextVar("accumulates_grad", default=False)


class _State:
    """The autograd state of the running asyncio task or thread, as attributes.

    Code that runs for each operation reads `recording` and `modes` instead, which takes less time.
    """

    __slots__ = ()

    @property
    def enabled(self) -> bool:
        """True if operations are recorded."""
        return recording.get()

    @enabled.setter
    def enabled(self, value: bool) -> None:
        recording.set(value)

    @property
    def accumulates_grad(self) -> bool:
        """True during a backward pass that adds to `.grad` (`backward()`, unlike `grad()`)."""
        return _accumulates_grad.get()

    @accumulates_grad.setter
    def accumulates_grad(self, value: bool) -> None:
        _accumulates_grad.set(value)

    @property
    def autocast(self) -> DType | None:
        """As in `Modes`."""
        return modes.get().autocast

    @autocast.setter
    def autocast(self, dtype: DType | None) -> None:
        modes.set(modes.get().changed(autocast=dtype))

    @property
    def anomaly(self) -> Any:
        """As in `Modes`."""
        return modes.get().anomaly

    @anomaly.setter
    def anomaly(self, settings: Any) -> None:
        modes.set(modes.get().changed(anomaly=settings))

    @property
    def interceptor(self) -> Callable[..., Any] | None:
        """As in `Modes`."""
        return modes.get().interceptor

    @interceptor.setter
    def interceptor(self, function: Callable[..., Any] | None) -> None:
        modes.set(modes.get().changed(interceptor=function))

    @property
    def recorder(self) -> Any:
        """As in `Modes`."""
        return modes.get().recorder

    @recorder.setter
    def recorder(self, recorder: Any) -> None:
        modes.set(modes.get().changed(recorder=recorder))


state = _State()


def is_grad_enabled() -> bool:
    """Return True if operations on tensors that require gradients are recorded."""
    return recording.get()


class set_grad_enabled:  # noqa: N801  # PyTorch's name
    """Context manager and decorator that switches recording on or off in this thread or asyncio task."""

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled

    def __enter__(self) -> None:
        open_blocks.enter(self, recording.get())
        recording.set(self._enabled)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        recording.set(open_blocks.leave(self))

    def __call__(self, function: F) -> F:
        return in_block(function, lambda: set_grad_enabled(self._enabled))


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
