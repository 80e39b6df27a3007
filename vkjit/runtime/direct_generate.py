"""Writes `_gen_direct.py`: the short way of a launch, written out for each number of arrays.

    python -m vkjit.runtime.direct_generate            write the file
    python -m vkjit.runtime.direct_generate --check    only say whether it is up to date (exit status 1 if not)

Enters: the template below. Leaves: one function per number of arrays. Loops over two or three arrays, and calls in between, would
take longer than everything else that a launch does, so there are none; that is all that the functions differ in.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

__all__ = ["main", "render"]

TARGET = Path(__file__).with_name("_gen_direct.py")
COUNTS = (*range(1, 9), 20)
"""Numbers of arrays that have a short way: what kernels mostly take, and what the optimisers' kernel of many tensors takes."""
PAIRED = 8
"""Arrays up to which their buffers are compared in pairs."""

_HEADER = '''"""The short way of a launch; written by `python -m vkjit.runtime.direct_generate`, which explains it. Do not edit."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .array import DeviceArray

if TYPE_CHECKING:
    from .direct import Calls

__all__ = ["MAKERS"]
'''

# What happens, in order: is everything that the code was compiled with still the same; what are the arrays; which entry
# belongs to calls like this; do the shapes agree, and what is the grid; under the lock: is the open submission there, does a
# buffer conflict with a command since the last barrier; the record is filled; the uses are noted; the driver is called.
# Uses are noted before the call, so that an interruption in between can't leave a command that nobody knows of.
_TEMPLATE = """

def _with_{n}(calls: Calls) -> Callable[[tuple[Any, ...]], bool]:
    {places} = calls.arrays
    {writes} = calls.written
    names, more, blocks, look_up, overlap = calls.names, calls.more, calls.blocks, calls.entries.get, calls.overlap
    others, kinds, told, missing = calls.others, calls.kinds, calls.told, calls.missing

    def launch(args: tuple[Any, ...]) -> bool:
        for namespace, name, value in names:
            if namespace.get(name, missing) is not value:
                return False
        if blocks:
            return False
        try:
            if more is not None and not more():
                return False
            {arrays} = {arguments}
            {buffers} = {buffers_of}
            words = {words}
            key: tuple[Any, ...] = ({first}.device, {forms})
{alias}            if others is not None:
                rest = others(args)
                key += kinds(rest)
                words += rest
            entry = look_up(key)
        except (AttributeError, TypeError, ValueError):  # no array, a constant that can't be a key, an emptied name
            return False
        if entry is None:
            return False
        (
            current, owner, kernel, constants, left, right, mixed, pick, over, wide, most, grid, deep, x, pack, place,
            memory, addresses, block, fresh, claim,
        ) = entry
        if fresh is not None and not fresh():
            return False
        if constants:
            words += constants
        if left is not None and {disagree}left(words) != right(words):
            return False
        if over is not None:
            x = -(-words[over] // wide)
            if not 0 < x <= most:
                return False
            if deep is not None:
                row, high, most_rows = deep
                y, z = -(-words[row] // high), 1
                if not 0 < y <= most_rows:
                    return False
        elif grid is not None:
            size = grid(words)
            if size is None:
                return False
            x, y, z = size
        queue = current.queue
        lock = queue.lock
        lock.acquire()
        try:
            if claim is not None:
                words += (claim(),)
            command = queue.ticket or queue.open_ticket()
            if not command:
                return False
            epoch = queue.epoch
            if {elsewhere}:
                return False
            if {conflicts}:
                if queue.transferred:
                    queue.order()
                    flags, epoch = 0, queue.epoch
                else:
                    flags, epoch = 2, next(queue.group.epochs)
            else:
                flags = 0
            if queue.bound is not kernel:
                flags += 1
            try:
                if place:
                    pack(memory, place, command, x, *pick(words))
                else:
                    pack(memory, 32, y, z, command, x, *pick(words))
            except (struct.error, OverflowError):  # a number that doesn't fit; the long way says which
                return False
            serial = queue.serial
{notes}            queue.epoch = epoch
            call = owner.call
            if call is None:
                queue.emit(kernel, flags, memory, block)
            else:
                call(addresses[flags])
            if flags & 1:
                queue.bound = kernel
                kernel.last_use, kernel.user = serial, queue
            recorded = queue.recorded = queue.recorded + 1
            if recorded >= queue.budget:
                queue.submit()
                owner.submitted()
        except BaseException:
            queue.distrust()
            raise
        finally:
            lock.release()
        for position in told:
            if args[position].__class__ is not DeviceArray:
                args[position].__vkjit_written__()
        return True

    return launch
"""


def _function(n: int) -> str:
    arrays = [f"a{i}" for i in range(n)]
    buffers = [f"b{i}" for i in range(n)]
    places = [f"i{i}" for i in range(n)]
    writes = [f"w{i}" for i in range(n)]
    pairs = [f"b{i} is b{j}" for i in range(n) for j in range(i + 1, n)]
    comma = "," if n == 1 else ""
    alias = ""
    if pairs:
        same = " or ".join(pairs) if n <= PAIRED else f"len({{{', '.join(f'id({b})' for b in buffers)}}}) < {n}"
        alias = f"            if {same}:\n                key += overlap(({', '.join(arrays)}))\n"
    apart = [f"a0.shape is not {a}.shape" for a in arrays[1:]]
    return _TEMPLATE.format(
        disagree=f"(mixed or {' or '.join(apart)}) and " if apart else "",
        n=n,
        places=", ".join(places) + comma,
        writes=", ".join(writes) + comma,
        arrays=", ".join(arrays),
        arguments=", ".join(f"args[{p}].__vkjit_array__" for p in places),
        buffers=", ".join(buffers),
        buffers_of=", ".join(f"{a}.buffer" for a in arrays),
        words=" + ".join(f"{a}.words" for a in arrays),
        first=buffers[0],
        forms=", ".join(f"{a}.form" for a in arrays),
        alias=alias,
        elsewhere=" or ".join(
            f"{b}.queue is not queue or ({w} and {b}.readers is not None)" for b, w in zip(buffers, writes, strict=True)
        ),
        conflicts=" or ".join(
            f"{b}.write_epoch == epoch or ({w} and {b}.read_epoch == epoch)"
            for b, w in zip(buffers, writes, strict=True)
        ),
        notes="".join(
            f"            if {w}:\n"
            f"                {b}.write_epoch, {b}.last_use, {b}.last_write = epoch, serial, serial\n"
            f"            else:\n"
            f"                {b}.read_epoch, {b}.last_use = epoch, serial\n"
            for b, w in zip(buffers, writes, strict=True)
        ),
    )


def render() -> str:
    """The text of the file."""
    table = ", ".join(f"{n}: _with_{n}" for n in COUNTS)
    return _HEADER + "".join(_function(n) for n in COUNTS) + f"\n\nMAKERS = {{{table}}}\n"


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only compare")
    text = render()
    if not parser.parse_args(arguments).check:
        TARGET.write_text(text, encoding="utf-8")
        return 0
    if TARGET.read_text(encoding="utf-8") == text:
        return 0
    sys.stderr.write(f"{TARGET} is out of date: run python -m vkjit.runtime.direct_generate\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
