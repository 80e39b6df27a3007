"""Free ranges inside arenas of memory: best fit, coalescing, no native calls.

Enters: arenas (a number and a size) and requests in bytes. Leaves: (arena, offset) pairs. Holds: ranges in use never
overlap, every offset and rounded size is a multiple of the alignment, and no two free ranges of an arena touch, so an
arena with nothing in use is one single free range.
"""

from __future__ import annotations

from bisect import bisect_left, insort

__all__ = ["RangeAllocator"]


class RangeAllocator:
    """Hands out ranges of arenas. A request takes O(log n) comparisons; not safe for several threads at once."""

    def __init__(self, alignment: int = 256) -> None:
        self._mask = alignment - 1
        self._sizes: dict[int, int] = {}
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
        self._sizes[arena] = size
        self._insert(arena, 0, size)

    def remove_arena(self, arena: int) -> None:
        """Forgets an arena, which must be wholly free."""
        if not self.is_empty(arena):
            raise ValueError(f"arena {arena} still has ranges in use")
        self._take(arena, 0, self._sizes.pop(arena))

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
        self._take(arena, offset, found)
        if found > need:
            self._insert(arena, offset + need, found - need)
        return arena, offset

    def release(self, arena: int, offset: int, size: int) -> None:
        """Gives a range back; `size` is what was asked for. Merges it with its free neighbours."""
        size = self.rounded(size)
        before = self._ends.get((arena, offset))
        if before is not None:
            self._take(arena, before, offset - before)
            offset, size = before, size + offset - before
        after = self._starts.get((arena, offset + size))
        if after is not None:
            self._take(arena, offset + size, after)
            size += after
        self._insert(arena, offset, size)

    @property
    def free_bytes(self) -> int:
        """Bytes free over all arenas."""
        return sum(self._starts.values())

    def free_ranges(self) -> list[tuple[int, int, int]]:
        """All free ranges as (arena, offset, size), by arena and offset."""
        return sorted((arena, offset, size) for (arena, offset), size in self._starts.items())

    def _insert(self, arena: int, offset: int, size: int) -> None:
        insort(self._free, (size, arena, offset))
        self._starts[arena, offset] = size
        self._ends[arena, offset + size] = offset

    def _take(self, arena: int, offset: int, size: int) -> None:
        del self._free[bisect_left(self._free, (size, arena, offset))]
        del self._starts[arena, offset]
        del self._ends[arena, offset + size]
