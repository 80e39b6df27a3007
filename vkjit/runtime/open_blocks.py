"""Context managers that restore their state even if Ctrl-C comes at any moment.

CPython runs signal handlers when a Python function begins or a generator resumes, after a call, and at the end of a
loop iteration. KeyboardInterrupt may therefore come before the first instruction of an `__exit__` that is a Python
function, which then restores nothing. The blocks here restore their state in the `finally` clause of a generator, and
their `__exit__` is C code that closes the generator: no Python code runs, and so no signal handler, between the end of
the block and that clause.

Rules for the `finally` clause of such a generator: make its first call one of a C function, such as `ContextVar.set`,
which can't be interrupted; put each further call into a `finally` clause of its own, nested in it; where a Python
function is called, catch an interrupt, call the function again, and raise the interrupt.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Generator, Iterator
from contextvars import Context, ContextVar
from operator import methodcaller
from typing import Any, Generic, ParamSpec, TypeVar, cast

from ..errors import ArgumentError
from .scopes import in_block

__all__ = ["Block", "ReentrantBlock", "block", "while_set"]

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
T = TypeVar("T")


class _Leaver(io.IOBase):
    """An object whose `__exit__` calls its `close`.

    `io.IOBase.__exit__` is the only one in CPython that is C code and calls a method of the object.
    """

    __slots__ = ("close",)
    closed = True
    """Keeps the finalizer from calling `close`."""


class _ReentrantLeaver(io.IOBase):
    """Like `_Leaver`, but looks `close` up at each exit.

    `innermost` is the `get` method of a context variable, whose value is the `close` method of the innermost open
    generator. To read `close` is to call `innermost`; `IOBase.__exit__` calls the result. All of this is C code.
    """

    __slots__ = ("innermost",)
    innermost: Callable[[], Callable[[], None]]
    closed = True
    close = property(methodcaller("innermost"))


class _Exit:
    """The descriptor of `__exit__`.

    A `with` statement reads it from the block and gets the C method `IOBase.__exit__` of the block's leaver.
    `contextlib.ExitStack` reads it from the class and calls it with the block, so there it is the function `_leave`.
    """

    def __get__(self, block: Any, owner: Any = None) -> Callable[..., None]:
        return _leave if block is None else block._exit


def _leave(block: Any, *error: Any) -> None:
    block._exit(*error)


class Block(Generic[T]):
    """A context manager and decorator like those of `contextlib.contextmanager`; see `block`.

    May be entered again after it was left. `hold` returns a generator that sets the state, yields once in a `try`
    statement, and restores the state in its `finally` clause.
    """

    def __init__(self, hold: Callable[[], Iterator[T]]) -> None:
        self._hold = cast("Callable[[], Generator[T, None, None]]", hold)
        self._leaver = _Leaver()
        self._exit = self._leaver.__exit__

    def __enter__(self) -> T:
        held = self._hold()
        self._leaver.close = held.close  # type: ignore[method-assign]
        try:
            value = next(held)
        except BaseException:  # perhaps an interrupt after it yielded: the block isn't entered, so isn't left either
            held.close()
            raise
        return value

    __exit__ = _Exit()

    def __call__(self, function: F) -> F:
        return in_block(function, lambda: Block(self._hold))


def block(function: Callable[P, Iterator[T]]) -> Callable[P, Block[T]]:
    """Decorator of generator functions that makes them context managers, like `contextlib.contextmanager`.

    Unlike there, the generator doesn't get an exception that ends the block. It is closed at each exit, so it always
    gets GeneratorExit, whose `__context__` is that exception, if there was one.
    """

    @functools.wraps(function)
    def made(*args: P.args, **kwargs: P.kwargs) -> Block[T]:
        return Block(functools.partial(function, *args, **kwargs))

    return made


class ReentrantBlock(Block[T]):
    """A block that may be entered while it is open, also by other threads and asyncio tasks.

    Each exit closes the latest entry of its own thread or task.
    """

    _yields_itself = False
    """True if `as` binds the block instead of what the generator yields."""

    def __init__(self, hold: Callable[[], Iterator[T]]) -> None:
        self._hold = cast("Callable[[], Generator[T, None, None]]", hold)
        self._innermost: ContextVar[Callable[[], None]] = ContextVar("innermost", default=_refuse)
        leaver = _ReentrantLeaver()
        leaver.innermost = self._innermost.get
        self._exit = leaver.__exit__

    def __enter__(self) -> T:
        held, innermost = self._held(), self._innermost
        former = innermost.get()
        try:
            next(held)
            value: T = held.send((innermost.set(held.close), id(held)))
        except BaseException:  # see `Block`
            try:
                held.close()
            finally:
                innermost.set(former)
            raise
        itself: Any = self
        return itself if self._yields_itself else value

    def _held(self) -> Generator[Any, Any, None]:
        """Hold the state. Takes the token of `_innermost` and the generator's own id by `send`."""
        token, own = yield
        hold = self._hold()
        try:
            yield next(hold)
        finally:
            try:
                self._innermost.reset(token)
            except ValueError:
                self._drop(own, hold.close)
            except BaseException:  # an interrupt
                hold.close()
                raise
            else:
                hold.close()

    def _drop(self, own: int, restore: Callable[..., object], *args: Any, _context: type[Context] = Context) -> None:
        """End the generator in another context than that which entered the block, without effect on either.

        A thread that ended in the block drops it, a child of a fork drops those of other threads. A call of `__exit__`
        in a copy of the context is refused. `_context` is a default because the interpreter's exit drops generators,
        too, after modules lost their globals.
        """
        _context().run(restore, *args)
        if id(getattr(self._innermost.get(), "__self__", None)) == own:  # not dropped: the context refers to it
            _refuse()

    def __call__(self, function: F) -> F:
        return in_block(function, lambda: self)


def _refuse() -> None:
    raise ArgumentError(
        "this block isn't open here: leave it in the thread and asyncio task that entered it, once for each time that it was "
        "entered, as a with statement does"
    )


def while_set(variable: ContextVar[Any], value: Any) -> Iterator[Any]:
    """Generator for blocks in which a context variable has a value. Yields the value."""
    former = variable.get()
    try:
        variable.set(value)
        yield value
    finally:
        variable.set(former)
