"""Free ranges inside arenas of memory: best fit, coalescing, no native calls.

Enters: arenas (a number and a size) and requests in bytes. Leaves: (arena, offset) pairs. Holds: ranges in use never
overlap, every offset and rounded size is a multiple of the alignment, and no two free ranges of an arena touch, so an
arena with nothing in use is one single free range. An interruption (Ctrl-C) at any moment leaves all of this true: what is in
use is noted apart, and the free ranges are then made anew from that.
"""

from __future__ import annotations

from bisect import bisect_left, insort

__all__ = ["RangeAllocator"]


class RangeAllocator:
    """Hands out ranges of arenas. A request takes O(log n) comparisons; not safe for several threads at once."""

    def __init__(self, alignment: int = 256) -> None:
        self._mask = alignment - 1
        self._sizes: dict[int, int] = {}
        self._used: dict[tuple[int, int], int] = {}  # (arena, offset) of a range in use -> its size
        self._free: list[tuple[int, int, int]] = []  # (size, arena, offset), ascending: the first that fits is best
        self._starts: dict[tuple[int, int], int] = {}  # (arena, offset) of a free range -> its size
        self._ends: dict[tuple[int, int], int] = {}  # (arena, end) of a free range -> its offset

    def rounded(self, size: int) -> int:
        """The bytes that a request of `size` occupies (at least one unit of alignment)."""
        return (max(size, 1) + self._mask) & ~self._mask

    def add_arena(self, arena: int, size: int) -> None:
        """Adds a new arena, wholly free; `size` must be a multiple of the alignment."""
        if arena in self._sizes or size & self._mask or size <= 0:
            raise ValueError(f"arena {arena} of {size} bytes: it exists already or its size is no aligned number")
        try:
            self._sizes[arena] = size
            self._insert(arena, 0, size)
        except BaseException:
            self._rebuild()
            raise

    def remove_arena(self, arena: int) -> None:
        """Forgets an arena, which must be wholly free."""
        if not self.is_empty(arena):
            raise ValueError(f"arena {arena} still has ranges in use")
        try:
            self._take(arena, 0, self._sizes.pop(arena))
        except BaseException:
            self._rebuild()
            raise

    def is_empty(self, arena: int) -> bool:
        """True when nothing of the arena is in use."""
        return self._starts.get((arena, 0)) == self._sizes[arena]

    def allocate(self, size: int) -> tuple[int, int] | None:
        """The smallest free range that fits, as (arena, offset); None when there is none."""
        need = self.rounded(size)
        position = bisect_left(self._free, (need, -1, -1))
        if position == len(self._free):
            return None
        found, arena, offset = self._free[position]
        try:
            self._take(arena, offset, found)
            if found > need:
                self._insert(arena, offset + need, found - need)
            self._used[arena, offset] = need
        except BaseException:
            self._rebuild()
            raise
        return arena, offset

    def release(self, arena: int, offset: int, size: int) -> None:
        """Gives a range back; `size` is what was asked for. Merges it with its free neighbours."""
        size = self.rounded(size)
        del self._used[arena, offset]
        try:
            before = self._ends.get((arena, offset))
            if before is not None:
                self._take(arena, before, offset - before)
                offset, size = before, size + offset - before
            after = self._starts.get((arena, offset + size))
            if after is not None:
                self._take(arena, offset + size, after)
                size += after
            self._insert(arena, offset, size)
        except BaseException:
            self._rebuild()
            raise

    @property
    def free_bytes(self) -> int:
        """Bytes free over all arenas."""
        return sum(self._starts.values())

    def free_ranges(self) -> list[tuple[int, int, int]]:
        """All free ranges as (arena, offset, size), by arena and offset."""
        return sorted((arena, offset, size) for (arena, offset), size in self._starts.items())

    def _rebuild(self) -> None:
        """Makes the free ranges anew from those in use."""
        ranges: list[tuple[int, int, int]] = []
        for arena, size in self._sizes.items():
            used = sorted((offset, taken) for (at, offset), taken in self._used.items() if at == arena)
            begin = 0
            for offset, taken in (*used, (size, 0)):
                if offset > begin:
                    ranges.append((offset - begin, arena, begin))
                begin = offset + taken
        starts = {(arena, offset): size for size, arena, offset in ranges}
        ends = {(arena, offset + size): offset for size, arena, offset in ranges}
        self._free, self._starts, self._ends = sorted(ranges), starts, ends

    def _insert(self, arena: int, offset: int, size: int) -> None:
        insort(self._free, (size, arena, offset))
        self._starts[arena, offset] = size
        self._ends[arena, offset + size] = offset

    def _take(self, arena: int, offset: int, size: int) -> None:
        del self._free[bisect_left(self._free, (size, arena, offset))]
        del self._starts[arena, offset]
        del self._ends[arena, offset + size]
