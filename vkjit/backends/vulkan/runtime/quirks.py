"""Faults of drivers that compilers must work around, by driver and version.

Enters: the driver's id and version. Leaves: quirk names and the loop cap, as they stand in `DeviceCaps`. Holds: each
row names faults that were observed; a driver without rows is taken at its word.

The names:

- ``subgroup_broadcast_first_float``: broadcast-first of a float expression inside a loop aborts the process;
- ``shuffle_up_constant``: subgroup shuffle-up by a constant gives wrong lanes;
- ``literal_float_zero``: float arithmetic with a literal zero is simplified as if there were no NaN, infinity or -0;
- ``slow_subgroup_arithmetic``: subgroup reductions are lane loops, a shuffle-xor butterfly is several times faster;
- ``unfolded_constants``: making a pipeline of valid code that computes much with constants (loops without rounds among
  it) can take the process down;
- ``widened_compare``: a number converted from 32 to 64 signed bits compares wrongly with constants;
- ``ordered_atomics``: an atomic with an order stronger than relaxed, in a loop that some invocations have left, loses
  others; relaxed ones are as strong there as any;
- ``parity_products``: in some kernels the lowest bit of an integer is taken for 1 where it is a factor, as in the offset of
  `y[i & 1, j]`; seen with driver 580.159 in a seventh of generated programs;
- ``carried_truths``: making a pipeline of a loop that carries truth values, such as one that swaps two, can take the process
  down;
- ``unrounded_halves``: a float that is rounded to a half and widened again keeps all its digits;
- ``far_whole_numbers``: on processors without AVX-512, trunc and round take f64 for f32 (what lies beyond 2^24 stays as it is), and
  halves don't become even; floor and ceil are right;
- ``scalar_loads``: non-uniform loads and stores are done lane by lane, so wider elements per lane are cheaper.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Quirks", "quirks_of", "version_of"]

NVIDIA_PROPRIETARY = 4
"""VK_DRIVER_ID_NVIDIA_PROPRIETARY."""
MESA_LLVMPIPE = 13
"""VK_DRIVER_ID_MESA_LLVMPIPE."""

Version = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Quirks:
    """What is known of a driver. `loop_cap` is None where loops run to their end."""

    names: frozenset[str] = frozenset()
    loop_cap: int | None = None


@dataclass(frozen=True, slots=True)
class _Row:
    """Applies to versions with `since` <= version < `before`; None leaves that end open."""

    driver: int
    since: Version | None
    before: Version | None
    names: frozenset[str] = frozenset()
    loop_cap: int | None = None


_ROWS = (
    _Row(
        NVIDIA_PROPRIETARY,
        None,
        None,
        frozenset({"unfolded_constants", "parity_products", "unrounded_halves", "carried_truths"}),
    ),
    _Row(
        MESA_LLVMPIPE,
        None,
        None,
        frozenset(
            {
                "subgroup_broadcast_first_float",
                "shuffle_up_constant",
                "literal_float_zero",
                "slow_subgroup_arithmetic",
                "scalar_loads",
                "widened_compare",
                "ordered_atomics",
                "far_whole_numbers",
            }
        ),
        loop_cap=65535,
    ),
)


def quirks_of(driver: int, version: Version) -> Quirks:
    """The quirks of the driver with this VkDriverId and version; an unknown version, (), gets every row."""
    names: frozenset[str] = frozenset()
    caps: list[int] = []
    for row in _ROWS:
        if row.driver != driver:
            continue
        if version and row.since is not None and version < row.since:
            continue
        if version and row.before is not None and version >= row.before:
            continue
        names |= row.names
        if row.loop_cap is not None:
            caps.append(row.loop_cap)
    return Quirks(names, min(caps, default=None))


def version_of(driver_info: str) -> Version:
    """The first dotted number in a driver's own description, as a tuple; () when there is none."""
    found = re.search(r"\d+(?:\.\d+)+", driver_info)
    return tuple(int(part) for part in found.group().split(".")) if found else ()
