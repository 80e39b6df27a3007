"""Writes `_gen_launch.py` and `_gen_replay.py`: the short ways of a launch, written out for each number of arrays.

    python -m vkjit.backends.vulkan.runtime.fast_path.generate            write the files
    python -m vkjit.backends.vulkan.runtime.fast_path.generate --check    check that they are up to date (exit 1 if not)

Enters: the templates below. Leaves: in the first file a function per number of arrays for calls of kernels; in the second what
records a launch of which everything is known but its buffers (`RECORDING`, and `RECORDING_FEW` for launches of three), and what
runs one that makes an array (`MAKING`) or writes into the first of those it is given (`WRITING`), per number of given arrays.
Loops over two or three arrays, and calls in between, would take longer than everything else that a launch does, so there are
none. All of them do the same under the lock, which is written once: `_LOCKED` and `_RECORDED`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..trampoline import FLAT_PLACE

__all__ = ["main", "render"]

_FOLDER = Path(__file__).parent
COUNTS = (*range(1, 9), 20)
"""Numbers of arrays that have a short way: what kernels mostly take, and what the optimisers' kernel of many tensors takes."""
PAIRED = 8
"""Arrays up to which their buffers are compared in pairs."""
GIVEN = (1, 2, 3)
"""Numbers of arrays that operations of one launch are given."""

_HEADER = '''"""The short way of a launch; written by `generate`, which explains it. Do not edit."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vkjit.runtime.array import DeviceArray

if TYPE_CHECKING:
    from .fast_path import CallShape

__all__ = ["MAKERS"]
'''

# What happens, in order: is everything that the code was compiled with still the same; what are the arrays; which entry
# belongs to calls like this; do the shapes agree, and what is the grid; under the lock: is the open submission there, does a
# buffer conflict with a command since the last barrier; the record is filled; the uses are noted; the driver is called.
# Uses are noted before the call, so that an interruption in between can't leave a command that nobody knows of. A slot for
# a report is claimed first: that may wait, and with that submit. The lock is taken inside of `try`: signal handlers run right after
# a call, so Ctrl-C in between would leave it taken for good; `mark_dirty` takes it if the call was interrupted before.
_LOCKED = """        lock = queue.lock
        try:
            lock.acquire()
{claimed}            command = queue.command_handle or queue.open_command_handle()
            if not command:
                return {refused}
            epoch = queue.epoch
{asked}                if queue.transferred:
                    queue.order()
                    flags, epoch = 0, queue.epoch
                else:
                    flags, epoch = 2, next(queue.group.epochs)
            else:
                flags = 0
            if queue.bound is not kernel:
                flags += 1
"""

_RECORDED = """            serial = queue.serial
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
                queue.full()
                owner.submitted()
        except BaseException:
            try:
                queue.mark_dirty()
            except KeyboardInterrupt:  # another one
                queue.mark_dirty()
            raise
        finally:
            lock.release()
"""

_ASKED = """            if {elsewhere}:
                return {refused}
            if {conflicts}:
"""

_TEMPLATE = """

def _with_{n}(shape: CallShape) -> Callable[[tuple[Any, ...]], bool]:
    {places} = shape.arrays
    {writes} = shape.written
    names, more, blocks, look_up, overlap = shape.names, shape.more, shape.blocks, shape.entries.get, shape.overlap
    others, kinds, told, missing = shape.others, shape.kinds, shape.told, shape.missing

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
{locked}            try:
                if place:
                    pack(memory, place, command, x, *pick(words))
                else:
                    pack(memory, 32, y, z, command, x, *pick(words))
            except (struct.error, OverflowError):  # a number that doesn't fit; the long way says which
                return False
{recorded}        for position in told:
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
        words=" + ".join(f"{a}.descriptor" for a in arrays),
        first=buffers[0],
        forms=", ".join(f"{a}.spec_class" for a in arrays),
        alias=alias,
        locked=_LOCKED.format(
            claimed="            if claim is not None:\n                words += (claim(),)\n",
            refused=False,
            asked=_ASKED.format(
                refused=False,
                elsewhere=" or ".join(
                    f"{b}.queue is not queue or ({w} and {b}.readers is not None)"
                    for b, w in zip(buffers, writes, strict=True)
                ),
                conflicts=" or ".join(
                    f"{b}.write_epoch == epoch or ({w} and {b}.read_epoch == epoch)"
                    for b, w in zip(buffers, writes, strict=True)
                ),
            ),
        ),
        recorded=_RECORDED.format(
            notes="".join(
                f"            if {w}:\n    {_written(b)}            else:\n    {_read(b)}"
                for b, w in zip(buffers, writes, strict=True)
            )
        ),
    )


def _read(buffer: str) -> str:
    return f"            {buffer}.read_epoch, {buffer}.last_use = epoch, serial\n"


def _written(buffer: str) -> str:
    return f"            {buffer}.write_epoch, {buffer}.last_use, {buffer}.last_write = epoch, serial, serial\n"


_REPEAT_HEADER = '''"""Repeated launches; written by `generate`, which explains it. Do not edit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vkjit.runtime.array import LAYOUT_ALIGNMENT, DeviceArray

__all__ = ["MAKING", "RECORDING", "RECORDING_FEW", "WRITING"]
'''

# `prepared` is a `fast_path.Prepared`.
_RECORDING = """

def {name}(prepared: Any) -> Callable[[Sequence[Any], tuple[int, ...]], bool]:
    owner, kernel, memory, addresses, block = prepared.parts
    current, claim, pack, x = owner.current, prepared.claim, prepared.pack, prepared.x
{unpacked}
    def record(buffers: Sequence[Any], places: tuple[int, ...]) -> bool:
{taken}        queue = current.queue
{locked}            pack(memory, {place}, command, x, *{words})
{recorded}        return True

    return record
"""

_MAKING = """

def _making_{n}(prepared: Any) -> Callable[..., Any]:
    owner, kernel, memory, addresses, block = prepared.parts
    current, claim, pack, x = owner.current, prepared.claim, prepared.pack, prepared.x
    plain, pick, pieces = prepared.plain, prepared.pick, prepared.pieces
    device, again, nbytes, dtype, layout = prepared.made
    _, form, tail, shape, strides, same = layout
    new = DeviceArray.__new__

    def make({arrays}: Any) -> DeviceArray | None:
        {buffers} = {buffers_of}
        queue = current.queue
        if not queue.command_handle:  # asked before anything is allocated: those who watch the device see allocations, too
            with queue.lock:
                if not queue.open_command_handle():
                    return None
        out: Any = again(device, queue, nbytes)
        if out is None:
            out = device.allocate(nbytes)
        address = out.address
        if address % LAYOUT_ALIGNMENT:
            return None
{locked}            if plain:
                pack(memory, {place}, command, x, {words}, address)
            else:
                pack(memory, {place}, command, x, *pick(({words}, address) + rest))
{recorded}        made = new(DeviceArray)
        made.buffer, made.offset, made.dtype, made.spec_class = out, 0, dtype, form
        made.shape, made.strides, made.layout, made.descriptor = shape, strides, same, (address, *tail)
        return made

    return make
"""

_WRITING = """

def _writing_{n}(prepared: Any) -> Callable[..., Any]:
    owner, kernel, memory, addresses, block = prepared.parts
    current, claim, pack, x = owner.current, prepared.claim, prepared.pack, prepared.x
    plain, pick, pieces = prepared.plain, prepared.pick, prepared.pieces

    def write({arrays}: Any) -> bool:
        {buffers} = {buffers_of}
        queue = current.queue
{locked}            if plain:
                pack(memory, {place}, command, x, {words}, a0.descriptor[0])
            else:
                pack(memory, {place}, command, x, *pick(({words},) + rest))
{recorded}        return True

    return write
"""

_REST = "            rest = pieces if claim is None else (*pieces, claim())\n"


def _asked(buffers: list[str], written: str, refused: object) -> str:
    here = [f"{b}.queue is not queue" for b in buffers]
    clashes = [f"{b}.write_epoch == epoch" for b in buffers]
    return _ASKED.format(
        elsewhere=" or ".join([*here, f"{written}.readers is not None"]),
        conflicts=" or ".join([*clashes, f"{written}.read_epoch == epoch"]),
        refused=refused,
    )


def _noted(buffers: list[str], written: str) -> str:
    """The one that is written comes last: it may be among those that are read."""
    return _RECORDED.format(notes="".join(_read(b) for b in buffers if b != written) + _written(written))


def _operation(template: str, n: int) -> str:
    """What runs an operation of one launch that is given n arrays."""
    arrays, buffers = [f"a{i}" for i in range(n)], [f"b{i}" for i in range(n)]
    making = template is _MAKING
    used, written, refused = ([*buffers, "out"], "out", None) if making else (buffers, "b0", False)
    return template.format(
        n=n,
        place=FLAT_PLACE,
        arrays=": Any, ".join(arrays),
        buffers=", ".join(buffers),
        buffers_of=", ".join(f"{a}.buffer" for a in arrays),
        words=", ".join(f"{a}.descriptor[0]" for a in arrays),
        locked=_LOCKED.format(claimed=_REST, refused=refused, asked=_asked(used, written, refused)),
        recorded=_noted(used, written),
    )


_EACH = """            hazard = False
            for number in reads:
                buffer = buffers[number]
                if buffer.queue is not queue:
                    return False
                if buffer.write_epoch == epoch:
                    hazard = True
            for number in writes:
                buffer = buffers[number]
                if buffer.queue is not queue or buffer.readers is not None:
                    return False
                if buffer.write_epoch == epoch or buffer.read_epoch == epoch:
                    hazard = True
            if hazard:
"""


def _recording() -> str:
    """For any numbers of buffers."""
    notes = "            for number in {of}:\n                buffer = buffers[number]\n    {use}"
    return _RECORDING.format(
        name="_recording",
        unpacked="    reads, writes, words_of = prepared.reads, prepared.writes, prepared.values\n",
        taken="",
        place=FLAT_PLACE,
        words="words_of(places, slot)",
        locked=_LOCKED.format(
            claimed="            slot = 0 if claim is None else claim()\n", refused=False, asked=_EACH
        ),
        recorded=_RECORDED.format(
            notes=notes.format(of="reads", use=_read("buffer")) + notes.format(of="writes", use=_written("buffer"))
        ),
    )


def _recording_few() -> str:
    """For one or two that are read and one that is written."""
    return _RECORDING.format(
        name="_recording_few",
        unpacked="    pick, pieces = prepared.pick, prepared.pieces\n"
        "    first, second, third = prepared.reads[0], prepared.reads[-1], prepared.writes[0]\n",
        taken="        a, b, c = buffers[first], buffers[second], buffers[third]\n",
        place=FLAT_PLACE,
        words="pick(places + rest)",
        locked=_LOCKED.format(claimed=_REST, refused=False, asked=_asked(["a", "b", "c"], "c", False)),
        recorded=_noted(["a", "b", "c"], "c"),
    )


def _repeating() -> str:
    """The text of the second file."""
    tables = [f"{{{', '.join(f'{n}: _{name}_{n}' for n in GIVEN)}}}" for name in ("making", "writing")]
    functions = [_recording(), _recording_few(), *(_operation(t, n) for t in (_MAKING, _WRITING) for n in GIVEN)]
    end = f"\n\nRECORDING, RECORDING_FEW = _recording, _recording_few\nMAKING = {tables[0]}\nWRITING = {tables[1]}\n"
    return _REPEAT_HEADER + "".join(functions) + end


def render() -> dict[str, str]:
    """The texts of the files, by name."""
    table = ", ".join(f"{n}: _with_{n}" for n in COUNTS)
    calls = _HEADER + "".join(_function(n) for n in COUNTS) + f"\n\nMAKERS = {{{table}}}\n"
    return {"_gen_launch.py": calls, "_gen_replay.py": _repeating()}


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only compare")
    check, status = parser.parse_args(arguments).check, 0
    for name, text in render().items():
        path = _FOLDER / name
        if not check:
            path.write_text(text, encoding="utf-8")
        elif path.read_text(encoding="utf-8") != text:
            sys.stderr.write(f"{path} is out of date: run python -m vkjit.backends.vulkan.runtime.fast_path.generate\n")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
