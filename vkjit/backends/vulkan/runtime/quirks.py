"""Driver bugs that compilers and the runtime must work around, by driver and version.

Each row of the table lists faults that were observed; a driver without rows has no quirks. The names and the loop cap
become part of `DeviceCaps`.

The names:

- ``subgroup_broadcast_first_float``: broadcast-first of a float expression inside a loop aborts the process;
- ``shuffle_up_constant``: subgroup shuffle-up by a constant returns wrong lanes;
- ``literal_float_zero``: float arithmetic with a literal zero is simplified as if there were no NaN, infinity or -0;
- ``slow_subgroup_arithmetic``: subgroup reductions are loops over lanes; a shuffle-xor butterfly is several times faster;
- ``unfolded_constants``: creating a pipeline from valid code with much constant arithmetic (including loops without
  iterations) can crash the process;
- ``widened_compare``: comparing an integer converted from 32 to 64 signed bits with a constant gives wrong results;
- ``ordered_atomics``: in a loop that some invocations have left, an atomic with an ordering stronger than relaxed loses
  others' updates; relaxed atomics are as strong as any on this driver;
- ``parity_products``: in some kernels, the lowest bit of an integer is treated as 1 where it is multiplied, as in the
  offset of `y[i & 1, j]`; observed with driver 580.159 in a seventh of the generated programs;
- ``carried_truths``: creating a pipeline with a loop that has loop-carried booleans, such as one that swaps two, can crash
  the process;
- ``unrounded_halves``: a float that is rounded to f16 and widened again keeps all its digits;
- ``far_whole_numbers``: on CPUs without AVX-512, trunc and round treat f64 as f32 (values beyond 2^24 stay unchanged), and
  ties don't round to even; floor and ceil are correct;
- ``minimum_trip_counts``: a loop with a constant start and step whose limit is a minimum with a constant runs as if that
  constant were the limit, also where the limit bounds the iterations from below (`range(10, min(n, 10), -1)`). The fault
  is in the optimizer that all drivers of Mesa share; it was observed with llvmpipe;
- ``recomputed_results``: a value that is computed in a loop and used after it is computed again, from operands that may
  have changed, for invocations that have left the loop before others;
- ``shallow_nesting``: branches and loops that are nested more than 80 deep ignore their conditions;
- ``scalar_loads``: non-uniform loads and stores are done lane by lane, so wider elements per lane are cheaper;
- ``slow_timestamps``: a timestamp after earlier work takes 5 to 50 us, which count as time of that work. Each command is
  complete before the next starts, so a timestamp at the top of the pipe is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Quirks", "quirks_of"]

NVIDIA_PROPRIETARY = 4
"""VK_DRIVER_ID_NVIDIA_PROPRIETARY."""
MESA_LLVMPIPE = 13
"""VK_DRIVER_ID_MESA_LLVMPIPE."""
_MESA = (3, 6, MESA_LLVMPIPE, 18, 19, 20, 22, 23, 24, 25, 26)
"""Drivers that share Mesa's optimizer: RADV, ANV, llvmpipe, Turnip, V3DV, PanVK, Venus, Dozen, NVK, PowerVR, Honeykrisp."""

Version = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Quirks:
    """Known quirks of a driver. `loop_cap` is the maximum number of loop iterations, None if loops are not cut off."""

    names: frozenset[str] = frozenset()
    loop_cap: int | None = None


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of the table, for versions with `since` <= version < `before`; None leaves that end open."""

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
                "recomputed_results",
                "slow_timestamps",
                "shallow_nesting",
            }
        ),
        loop_cap=65535,
    ),
    *(_Row(driver, None, None, frozenset({"minimum_trip_counts"})) for driver in _MESA),
)


def quirks_of(driver: int, version: Version) -> Quirks:
    """Return the quirks of a driver, by VkDriverId and version. All of the driver's rows apply to an unknown version,
    ().
    """
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
