"""The open `with` blocks of a context (`contextvars`), and what each of them has to restore.

Settings that a block changes belong to the running asyncio task or thread, and a block object may be entered by several
of them at a time, so what it restores can't be kept in the object.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from ..errors import ArgumentError

__all__ = ["enter", "leave"]

_blocks: ContextVar[tuple[tuple[object, Any], ...]] = ContextVar("open blocks", default=())
"""The open blocks, innermost last, and what each restores."""


def enter(block: object, former: Any) -> None:
    """Note that a block is entered, which restores `former`."""
    _blocks.set((*_blocks.get(), (block, former)))


def leave(block: object) -> Any:
    """Note that a block that is open is left, and return what it restores."""
    blocks = _blocks.get()
    for place in reversed(range(len(blocks))):
        if blocks[place][0] is block:
            _blocks.set(blocks[:place] + blocks[place + 1 :])
            return blocks[place][1]
    raise ArgumentError(
        "a block is left that isn't open here: it is left by the thread that entered it, and by the asyncio task, once for "
        "each time that it was entered, as a with block does"
    )
