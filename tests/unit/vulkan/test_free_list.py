"""Tests of the range allocator: no overlaps, alignment, coalescing, no lost memory."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from tests.selection import examples
from vkjit.backends.vulkan.runtime.memory.free_list import RangeAllocator

ARENA = 1 << 16


def test_best_fit_takes_the_smallest_hole() -> None:
    ranges = RangeAllocator()
    ranges.add_arena(1, 4096)
    places = [ranges.allocate(256 * size) for size in (4, 1, 2, 1)]
    assert None not in places
    ranges.release(1, 0, 1024)
    ranges.release(1, 1280, 512)
    assert ranges.allocate(300) == (1, 1280)


def test_a_request_that_fits_nowhere_gets_none() -> None:
    ranges = RangeAllocator()
    ranges.add_arena(1, 1024)
    assert ranges.allocate(1025) is None
    assert ranges.allocate(1024) == (1, 0)
    assert ranges.allocate(1) is None


def test_neighbours_merge_in_any_order() -> None:
    ranges = RangeAllocator()
    ranges.add_arena(7, 1024)
    places = [ranges.allocate(256) for _ in range(4)]
    for place in (places[0], places[2], places[1], places[3]):
        assert place is not None
        ranges.release(*place, 256)
    assert ranges.free_ranges() == [(7, 0, 1024)]
    assert ranges.is_empty(7)


def test_arenas_with_something_in_use_stay() -> None:
    ranges = RangeAllocator()
    ranges.add_arena(1, 512)
    place = ranges.allocate(1)
    assert place is not None
    with pytest.raises(ValueError, match="still has ranges in use"):
        ranges.remove_arena(1)
    ranges.release(*place, 1)
    ranges.remove_arena(1)
    assert ranges.free_bytes == 0
    assert ranges.allocate(1) is None


@pytest.mark.parametrize("size", [0, -256, 100])
def test_arena_sizes_are_checked(size: int) -> None:
    with pytest.raises(ValueError, match="aligned"):
        RangeAllocator().add_arena(1, size)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9000), st.integers(0, 10**6)), max_size=120))
def test_ranges_never_overlap_and_all_come_back(steps: list[tuple[int, int, int]]) -> None:
    ranges = RangeAllocator()
    for arena in (1, 2):
        ranges.add_arena(arena, ARENA)
    used: list[tuple[int, int, int]] = []
    for action, size, choice in steps:
        if action and used:
            ranges.release(*used.pop(choice % len(used)))
        else:
            place = ranges.allocate(size)
            if place is None:
                assert all(free < ranges.rounded(size) for _, _, free in ranges.free_ranges())
                continue
            used.append((*place, size))
        _check(ranges, used)
    for held in used:
        ranges.release(*held)
    assert ranges.free_ranges() == [(1, 0, ARENA), (2, 0, ARENA)]


def _check(ranges: RangeAllocator, used: list[tuple[int, int, int]]) -> None:
    """Assert that used and free ranges tile the arenas and that no two free ranges touch."""
    taken = [(arena, offset, ranges.rounded(size), True) for arena, offset, size in used]
    tiles = sorted(taken + [(*free, False) for free in ranges.free_ranges()])
    end, arena_before, free_before = ARENA, 0, False
    for arena, offset, size, in_use in tiles:
        if arena != arena_before:
            assert end == ARENA and offset == 0
            free_before = False
        else:
            assert offset == end
            assert in_use or not free_before
        assert offset % 256 == 0
        end, arena_before, free_before = offset + size, arena, not in_use
    assert end == ARENA
