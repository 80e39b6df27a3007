"""Context managers as decorators: functions, coroutine functions, and generators, whose bodies run in the block."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

__all__ = ["in_block"]

F = TypeVar("F", bound=Callable[..., Any])


def in_block(function: F, block: Callable[[], AbstractContextManager[Any]]) -> F:
    """Return the function with its body in a block that `block()` makes.

    The body of a generator leaves the block where it yields.
    """
    wrapped: Any
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def wrapped(*args: Any, **kwargs: Any) -> Any:
            with block():
                return await function(*args, **kwargs)

    elif inspect.isasyncgenfunction(function):

        @functools.wraps(function)
        async def wrapped(*args: Any, **kwargs: Any) -> Any:
            generator = function(*args, **kwargs)
            advance: Callable[[], Any] = functools.partial(generator.asend, None)
            while True:
                try:
                    with block():
                        item = await advance()
                except StopAsyncIteration:
                    return
                try:
                    advance = functools.partial(generator.asend, (yield item))
                except GeneratorExit:
                    with block():
                        await generator.aclose()
                    raise
                except BaseException as error:  # noqa: BLE001  # the generator gets it
                    advance = functools.partial(generator.athrow, error)

    elif inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            generator = function(*args, **kwargs)
            advance: Callable[[], Any] = functools.partial(generator.send, None)
            while True:
                try:
                    with block():
                        item = advance()
                except StopIteration as end:
                    return end.value
                try:
                    advance = functools.partial(generator.send, (yield item))
                except GeneratorExit:
                    with block():
                        generator.close()
                    raise
                except BaseException as error:  # noqa: BLE001  # the generator gets it
                    advance = functools.partial(generator.throw, error)

    else:

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with block():
                return function(*args, **kwargs)

    return wrapped  # type: ignore[no-any-return]
