"""Tests of detecting strides for which elements of an array overlap, against a list of all bytes."""

from __future__ import annotations

import itertools
from random import Random

from vkjit.runtime.self_overlap import elements_overlap


def _shares(shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> bool:
    places = [sum(i * s for i, s in zip(at, strides, strict=True)) for at in itertools.product(*map(range, shape))]
    return len({place + byte for place in places for byte in range(size)}) < size * len(places)


def test_strides_whose_elements_share_a_place() -> None:
    random = Random(1)
    found = dict.fromkeys([(rank, shares) for rank in (1, 2, 3) for shares in (False, True)], 0)
    for _ in range(6000):
        rank, size = random.choice([1, 2, 2, 3]), random.choice([1, 2, 4, 8])
        shape = tuple(random.randint(0, 6) for _ in range(rank))
        strides = tuple(random.choice([1, size]) * random.randint(-14, 14) for _ in range(rank))
        expected, told = _shares(shape, strides, size), elements_overlap(shape, strides, size)
        assert told == expected or (rank == 3 and expected), (shape, strides, size)
        found[rank, told] += 1
    assert min(found.values()) > 100
