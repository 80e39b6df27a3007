"""Free-range allocator over memory arenas: best fit with coalescing, no native calls.

An arena has a number and a size in bytes; ranges are identified by (arena, offset). Ranges in use never overlap, all
offsets and rounded sizes are multiples of the alignment, and no two free ranges of an arena are adjacent, so an unused
arena is one single free range. An interrupt (Ctrl-C) at any point preserves these invariants: the ranges in use are
recorded separately, and the free ranges are rebuilt from them.
"""

from __future__ import annotations

from bisect import bisect_left, insort

__all__ = ["RangeAllocator"]


class RangeAllocator:
    """Allocates ranges of arenas. A request takes O(log n) comparisons. Not thread-safe."""

    def __init__(self, alignment: int = 256) -> None:
        self._mask = alignment - 1
        self._sizes: dict[int, int] = {}
        self._used: dict[tuple[int, int], int] = {}  # (arena, offset) of a range in use -> its size
        self._free: list[tuple[int, int, int]] = []  # (size, arena, offset), ascending: the first that fits is best
        self._starts: dict[tuple[int, int], int] = {}  # (arena, offset) of a free range -> its size
        self._ends: dict[tuple[int, int], int] = {}  # (arena, end) of a free range -> its offset

    def rounded(self, size: int) -> int:
        """Return the number of bytes that a request of `size` bytes occupies (at least one unit of alignment)."""
        return (max(size, 1) + self._mask) & ~self._mask

    def add_arena(self, arena: int, size: int) -> None:
        """Add a new, entirely free arena. `size` must be a multiple of the alignment."""
        if arena in self._sizes or size & self._mask or size <= 0:
            raise ValueError(f"arena {arena} of {size} bytes: it exists already or its size is no aligned number")
        try:
            self._sizes[arena] = size
            self._insert(arena, 0, size)
        except BaseException:
            self._rebuild()
            raise

    def remove_arena(self, arena: int) -> None:
        """Remove an arena, which must be entirely free."""
        if not self.is_empty(arena):
            raise ValueError(f"arena {arena} still has ranges in use")
        try:
            self._take(arena, 0, self._sizes.pop(arena))
        except BaseException:
            self._rebuild()
            raise

    def is_empty(self, arena: int) -> bool:
        """True if nothing of the arena is in use."""
        return self._starts.get((arena, 0)) == self._sizes[arena]

    def allocate(self, size: int) -> tuple[int, int] | None:
        """Allocate from the smallest free range that fits and return (arena, offset); None if there is none."""
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
        """Free a range and merge it with adjacent free ranges. `size` is the requested size."""
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
        """Free bytes in all arenas."""
        return sum(self._starts.values())

    def free_ranges(self) -> list[tuple[int, int, int]]:
        """Return all free ranges as (arena, offset, size), sorted by arena and offset."""
        return sorted((arena, offset, size) for (arena, offset), size in self._starts.items())

    def _rebuild(self) -> None:
        """Rebuild the free ranges from the ranges in use."""
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
