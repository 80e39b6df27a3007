"""Preparation of a fuzzing run from its command line: the names of its devices, and the requests for its workers."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

from vkjit.errors import ArgumentError

from .generate import TILES
from .sources import SOURCES

__all__ = ["device_names", "requests"]


_SEEDS_PER_RUN = 1_000_003
"""Runs with different values of `--seed` have no program in common if they have at most this number of programs."""


def device_names(wanted: str) -> tuple[str, ...]:
    """Return the names of the devices that the option `--devices` selects.

    `wanted` is the value of the option: comma-separated parts of names, "all" or "none". The interpreter
    is never included. Raises ArgumentError for a part that matches no device.
    """
    from vkjit.backends.selection import devices

    if wanted == "none":
        return ()
    present = [info.name for info in devices() if info.kind != "interpreter"]
    if wanted == "all":
        return tuple(present)
    parts = [part.strip().casefold() for part in wanted.split(",") if part.strip() != "interpreter"]
    absent = [part for part in parts if not any(part in name.casefold() for name in present)]
    if absent:
        raise ArgumentError(f"no device has {absent[0]!r} in its name: there are {', '.join(present) or 'none'}")
    return tuple(name for name in present if any(part in name.casefold() for part in parts))


def requests(
    seed: int, count: int, statements: int = 0, minutes: float = 0.0, *, tiles: bool = False, sources: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield the requests for `count` generated programs (see `worker`), until `minutes` have passed (0: no limit).

    The seeds of the programs are consecutive numbers from `seed * _SEEDS_PER_RUN`, with `TILES` added for programs on
    tiles and `SOURCES` for programs in Python. One program in eight is on tiles, and one in eight in Python; if `tiles`
    or `sources` is True, all programs are. `statements` is the number of statements of each program (0: random).
    """
    start = time.monotonic()
    for number in itertools.count():
        if number >= count or (minutes and time.monotonic() - start > 60 * minutes):
            return
        is_source = sources or (number % 8 == 3 and not tiles)
        offset = SOURCES if is_source else TILES if tiles or number % 8 == 7 else 0
        yield {"seed": offset + seed * _SEEDS_PER_RUN + number, "statements": statements}
