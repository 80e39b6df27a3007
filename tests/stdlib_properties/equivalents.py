"""Mutants that change nothing that a program can see, each with the argument why.

Keys are `file.kernel: line of the source | edit`, as the command prints survivors.
"""

from __future__ import annotations

__all__ = ["ARGUED"]

_ANY_LANE = "every lane of the workgroup holds the sum, so that it doesn't matter which of them store it"
_SPLIT = "a shorter first part leaves more to the loop over the rest, which takes all that is left"
_WORDS = "elements have 8, 16 or 32 bits: 65 // SIZE is 64 // SIZE"
_IN_RANGE = "the index is in range where nothing was reported: the pad is never taken"
_NO_BEGINNING = "following elements lie after their beginning: the place 0 is never found"
_WHOLE_ROUNDS = "the end is a multiple of the step from the first: the same rounds come before the end less one"

_SAME_SUM = "after the tree the sum lies in shared memory, where all invocations read it: it doesn't matter which of them store it"

ARGUED: dict[str, str] = {
    "compaction._count: if lane == 0: | comparison: == -> !=": _ANY_LANE,
    "compaction._count: if lane == 0: | turned condition: lane == 0 -> not (lane == 0)": _ANY_LANE,
    "loss_mean.cross_entropy_by_group: if lane == 0: | comparison: == -> !=": _SAME_SUM,
    'conv_gemm.product: if WHAT != "weight": | comparison: != -> ==': (
        "which invocation fetches which element of a slice is a matter of speed: either way each is fetched once"
    ),
    "elementwise.wide1: for n in vk.unroll(64 // SIZE): | off by one: 64 -> 65": _WORDS,
    "elementwise.wide2: for n in vk.unroll(64 // SIZE): | off by one: 64 -> 65": _WORDS,
    "elementwise.wide2_right: for n in vk.unroll(64 // SIZE): | off by one: 64 -> 65": _WORDS,
    "conv_strips.strips: PITCH = BROAD + (2 - BROAD % 4) % 4 if WIDE == 4 else BROAD | 1 | off by one: 4 -> 3": (
        "rows of shared memory may lie in any distance from each other that is at least their length"
    ),
    "conv_weight_lines.weight_lines: if lane == 0 and f + i < filters and c + j < channels: | comparison: == -> !=": _ANY_LANE,
    "scan.running_rows: if lane == 0: | turned condition: lane == 0 -> not (lane == 0)": _ANY_LANE,
    "tile_attention.attention: total = vk.where(total > 0, total, 1) | off by one: 1 -> 2": (
        "where no key counts the sum of values is 0, over 1 or over 2; the logarithm beside the least number is rounded off"
    ),
    "embedding.chain_sums: if at < 0: | off by one: 0 -> 1": _NO_BEGINNING,
    "embedding.link: if found >= 0: | off by one: 0 -> 1": _NO_BEGINNING,
    "embedding.link: if found >= 0: | comparison: >= -> >": _NO_BEGINNING,
    "index.take_last: y[a, n] = x.get(a, p, pad=0) | off by one: 0 -> 1": _IN_RANGE,
    "matmul_panels.multiply_dots: if lane == 0 and row + i < rows: | comparison: == -> !=": _ANY_LANE,
    "norm_kernels.moments_of_groups: if lane == 0: | comparison: == -> !=": _ANY_LANE,
    "norm_kernels.moments_of_groups: if lane == 0: | dropped mask: lane == 0 -> True": _ANY_LANE,
    "norm_kernels.sums_of_groups: if lane == 0: | comparison: == -> !=": _ANY_LANE,
    "norm_kernels.sums_of_groups: if lane == 0: | dropped mask: lane == 0 -> True": _ANY_LANE,
    "tile_rows_gradient.norm_gradient: if vk.local_id(0) == 0: | dropped mask: vk.local_id(0) == 0 -> True": _ANY_LANE,
    "tile_rows_gradient.norm_gradient: if vk.local_id(0) == 0: | turned condition: vk.local_id(0) == 0 -> "
    "not (vk.local_id(0) == 0)": _ANY_LANE,
    "reduce.reduce_groups: for start in range(0, long, 4 * ROUND): | off by one: range(0, long, 4 * ROUND) -> "
    "range(0, long - 1, 4 * ROUND)": _WHOLE_ROUNDS,
    "reduce.reduce_groups: for start in range(long, whole, ROUND): | off by one: range(long, whole, ROUND) -> "
    "range(long, whole - 1, ROUND)": _WHOLE_ROUNDS,
    "reduce.reduce_lines: whole = n // 4 | off by one: 4 -> 5": _SPLIT,
}
