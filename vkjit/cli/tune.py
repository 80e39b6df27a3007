"""`python -m vkjit tune`: tune the library's matrix products on a device; show, export and import tuning results.

`stdlib.matmul.tuning` measures the candidates, `autotune.storage` keeps the results.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from ..autotune import storage
from ..autotune.storage import Record
from ..errors import VkjitError

__all__ = ["add_arguments", "run"]


DRIVER_SHOWN = 48
"""Maximum number of characters of a driver's name to show."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--device", default=None, help="the device to tune for, by name or number (default: the first)")
    parser.add_argument("--budget", type=float, default=20.0, help="seconds to measure for, in all (default 20)")
    parser.add_argument(
        "--size", type=int, action="append", help="rows, columns and depth of products to tune; repeatable"
    )
    parser.add_argument(
        "--dtype", action="append", help="element types of these products (default: f32, f16); repeatable"
    )
    parser.add_argument("--show", action="store_true", help="show what has been found so far, and measure nothing")
    parser.add_argument("--json", action="store_true", help="with --show: print JSON")
    parser.add_argument("--clear", action="store_true", help="delete all results")
    parser.add_argument("--export", metavar="FILE", help="write all results to a file, for VKJIT_TUNED or --import")
    parser.add_argument("--import", metavar="FILE", dest="take", help="add the results in a file that --export wrote")


def run(arguments: argparse.Namespace) -> int:
    """Run the command. Exit code 1 if results can't be stored."""
    if arguments.clear:
        print(f"forgot {storage.clear()} files")
        return 0
    if arguments.take:
        imported = storage.read_exported(Path(arguments.take))
        kept = sum(storage.store(record) for record in imported)
        print(f"took over {kept} of {len(imported)} results")
        return 0 if kept == len(imported) else 1
    if arguments.export:
        print(f"wrote {storage.export(Path(arguments.export), storage.stored())} results to {arguments.export}")
        return 0
    if arguments.show:
        return _show(list(storage.stored()), as_json=arguments.json)
    if not storage.enabled():
        raise VkjitError("results can't be kept: VKJIT_TUNE=0 or VKJIT_CACHE=0 is set, or the cache can't be used")
    return _tune(arguments)


def _show(stored: list[Record], *, as_json: bool) -> int:
    """Print stored tuning results. Returns exit code 0."""
    if as_json:
        print(json.dumps([asdict(record) for record in stored], indent=2))
        return 0
    if not stored:
        print("nothing has been tuned yet: run python -m vkjit tune, or kernel.tune(...)")
    for record in stored:
        print(_format_record(record))
    return 0


def _format_record(record: Record) -> str:
    """Format a tuning result: a heading, and a line for each candidate that was measured."""
    best = record.best
    driver = record.driver if len(record.driver) <= DRIVER_SHOWN else f"{record.driver[:DRIVER_SHOWN]}..."
    head = f"{record.name} on {record.device} ({driver}){'' if record.complete else ', not finished'}"
    # The key of a kernel's record ends with " | " and the arguments (see `autotune.kernels`); only these are shown.
    lines = [head, f"  {record.key.rpartition(' | ')[2] or record.key}"]
    for number, row in enumerate(record.rows):
        time = f"{row.seconds * 1e6:11.1f} us" if row.seconds is not None else f"{row.verdict:>14}"
        marks = []
        if number == 0:
            marks.append("default")
        if row == best:
            marks.append("best")
        why = f"  {row.why}" if row.why else ""
        lines.append(f"    {time}  {row.choice}{why}{'  <- ' + ', '.join(marks) if marks else ''}")
    return "\n".join(lines)


def _tune(arguments: argparse.Namespace) -> int:
    """Tune square matrix products of the given sizes and dtypes, each in an equal share of the time budget."""
    from .. import dtypes
    from ..backends.selection import default_device, device
    from ..stdlib.matmul import tuning

    target_device = default_device() if arguments.device is None else device(_device_argument(arguments.device))
    sizes = arguments.size or [512]
    names = arguments.dtype or ["f32", "f16"]
    unknown = [name for name in names if name not in dtypes.by_name]
    if unknown:
        raise VkjitError(f"no element type is named {unknown[0]!r}: expected one of {', '.join(dtypes.by_name)}")
    jobs = [(size, name) for size in sizes for name in names]
    for size, name in jobs:
        record = tuning.tune_product(target_device, size, dtypes.by_name[name], arguments.budget / len(jobs))
        if record is None:
            print(f"product of {size} x {size} {name}: nothing to tune, {target_device.name} has only one variant")
            continue
        print(_format_record(record))
        print(
            f"  {record.gain:.2f} times as fast as the default{'' if record.complete else '; run it again to continue'}"
        )
    return 0


def _device_argument(text: str) -> int | str:
    """Convert the option `--device` to an index or a name."""
    return int(text) if text.isdecimal() else text
