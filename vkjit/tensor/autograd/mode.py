"""Autograd state of asyncio tasks and threads, and the context managers that switch recording on and off."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ...runtime.open_blocks import ReentrantBlock, block, while_set

if TYPE_CHECKING:
    from vkjit.dtypes import DType

__all__ = [
    "GradBlock", "Modes", "accumulating", "changed_modes", "enable_grad", "inference_mode", "is_grad_enabled", "modes",
    "no_grad", "recording", "set_grad_enabled", "state", "while_changed",
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
    """The recorder of the cached call that is being recorded (`vkjit.tensor.op_cache`), or None."""
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
accumulating: ContextVar[bool] = ContextVar("accumulating", default=False)
"""True during a backward pass that adds to `.grad` (`backward()`, unlike `grad()`)."""


class _State:
    """The autograd state of the running asyncio task or thread, as attributes.

    Code that runs for each operation reads `recording` and `modes` instead, which takes less time.
    """

    __slots__ = ()

    @property
    def enabled(self) -> bool:
        """True if operations are recorded."""
        return recording.get()

    @property
    def autocast(self) -> DType | None:
        """As in `Modes`."""
        return modes.get().autocast

    @property
    def anomaly(self) -> Any:
        """As in `Modes`."""
        return modes.get().anomaly

    @property
    def interceptor(self) -> Callable[..., Any] | None:
        """As in `Modes`."""
        return modes.get().interceptor

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


def while_changed(**values: Any) -> Iterator[None]:
    """Generator for blocks in which some of `Modes` have other values."""
    variable = modes  # at the interpreter's exit, modules lose their globals before other threads lose their blocks
    former = {name: getattr(variable.get(), name) for name in values}
    try:
        variable.set(variable.get().changed(**values))
        yield
    finally:
        try:  # blocks in generators may end in another order: only these modes are restored
            variable.set(variable.get().changed(**former))
        except BaseException:  # an interrupt
            variable.set(variable.get().changed(**former))
            raise


changed_modes = block(while_changed)
"""Context manager in which some of `Modes` have other values."""


class GradBlock(ReentrantBlock[None]):
    """Context manager and decorator that switches recording on or off in this thread or asyncio task."""

    _former: bool | None = None
    """What the next block restores; set by `set_grad_enabled(...)`, None for the value at its start."""

    def __init__(self, enabled: bool) -> None:
        super().__init__(functools.partial(while_set, recording, enabled))
        self._enabled = enabled

    def _held(self) -> Generator[Any, Any, None]:
        """As in `ReentrantBlock`, in one generator, which takes less time."""
        token, own = yield
        variable = recording
        former = variable.get()
        if self._former is not None:
            former, self._former = self._former, None
        try:
            variable.set(self._enabled)
            yield
        finally:
            try:
                self._innermost.reset(token)
            except ValueError:
                self._drop(own, variable.set, former)
            except BaseException:  # an interrupt
                variable.set(former)
                raise
            else:
                variable.set(former)


_disabled, _enabled = GradBlock(False), GradBlock(True)


class set_grad_enabled(GradBlock):  # noqa: N801  # PyTorch's name
    """Switch recording on or off in this thread or asyncio task: at once, as a context manager, or as a decorator.

    At the end of the block, recording is as it was before the call. As a decorator, it affects only the function. Like
    PyTorch's, the constructor switches: Ctrl-C between it and the beginning of a block leaves recording switched;
    `no_grad` and `enable_grad` switch it in the block alone.
    """

    def __init__(self, enabled: bool) -> None:
        super().__init__(bool(enabled))
        self._former = recording.get()
        recording.set(self._enabled)

    def __call__(self, function: F) -> F:
        if self._former is not None:
            recording.set(self._former)
            self._former = None
        return super().__call__(function)


def no_grad() -> GradBlock:
    """Disable recording: `with vk.no_grad(): ...` or `@vk.no_grad()`."""
    return _disabled


def enable_grad() -> GradBlock:
    """Enable recording inside a `no_grad` block."""
    return _enabled


def inference_mode(mode: bool | Callable[..., Any] = True) -> Any:
    """Alias of `no_grad`, also as `@vk.inference_mode`; with mode=False, of `enable_grad`.

    Unlike in PyTorch, tensors made inside may be used in recorded operations later, as constants.
    """
    if callable(mode):
        return no_grad()(mode)
    return _disabled if mode else _enabled
