"""Tests of samplers: orders, batches, repeated examples, resuming, and the names of PyTorch's options."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit import data
from vkjit.errors import ArgumentError


@pytest.fixture(autouse=True)
def on_interpreter() -> Iterator[None]:
    with vk.use_device("interpreter"):
        yield


class Drawn(data.Dataset):
    """Dataset of the example's index and a random number drawn for it."""

    def __init__(self, count: int = 10) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def item(self, index: int, generator: np.random.Generator) -> Any:
        return index, generator.random()


def epoch(loader: data.DataLoader) -> list[tuple[list[int], list[float]]]:
    return [(number.tolist(), drawn.tolist()) for number, drawn in loader]


def indices(loader: data.DataLoader) -> list[int]:
    return [i for numbers, _ in epoch(loader) for i in numbers]


class Odds(data.Sampler):
    """Sampler of odd numbers, rotated at random."""

    def __len__(self) -> int:
        return 5

    def order(self, generator: np.random.Generator) -> Any:
        return np.roll([1, 3, 5, 7, 9], generator.integers(5))


class Iterated:
    """Iterable with a length, as other libraries define samplers."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    def __len__(self) -> int:
        return len(self.values)


def test_a_random_sampler_is_what_shuffle_makes() -> None:
    shuffled = data.DataLoader(Drawn(), 4, shuffle=True, seed=5)
    sampled = data.DataLoader(Drawn(), 4, sampler=data.RandomSampler(Drawn()), seed=5)
    for _ in range(2):
        assert epoch(sampled) == epoch(shuffled)
    plain = data.DataLoader(Drawn(), 4, sampler=data.SequentialSampler(Drawn()))
    assert epoch(plain) == epoch(data.DataLoader(Drawn(), 4, shuffle=None))


def test_samplers_give_what_they_say() -> None:
    rng = np.random.default_rng(1)
    subset = data.SubsetRandomSampler([7, 2, 5])
    assert sorted(subset.order(rng).tolist()) == [2, 5, 7] and len(subset) == 3
    several = data.RandomSampler(Drawn(4), num_samples=10)
    found = several.order(rng).tolist()
    assert len(found) == len(several) == 10 and sorted(found[:4]) == sorted(found[4:8]) == [0, 1, 2, 3]
    with_replacement = data.RandomSampler(Drawn(3), replacement=True, num_samples=3000).order(rng)
    assert all(900 < n < 1100 for n in Counter(with_replacement.tolist()).values())
    weighted = data.WeightedRandomSampler([0, 3, 1], 4000)
    counts = Counter(weighted.order(rng).tolist())
    assert set(counts) == {1, 2} and 2850 < counts[1] < 3150
    without = data.WeightedRandomSampler(vk.tensor([1.0, 0.0, 2.0]), 2, replacement=False)
    assert sorted(without.order(rng).tolist()) == [0, 2]
    again = data.SubsetRandomSampler([7, 2, 5])  # outside a loader, each pass is a new epoch
    passes = [list(subset) for _ in range(5)]
    assert passes == [list(again) for _ in range(5)] and len({tuple(p) for p in passes}) > 1
    assert sorted(passes[0]) == [2, 5, 7] and type(passes[0][0]) is int


def test_batch_samplers_give_whole_batches() -> None:
    whole = data.BatchSampler(data.SequentialSampler(Drawn(5)), 2, drop_last=False)
    assert list(whole) == [[0, 1], [2, 3], [4]] and len(whole) == 3
    assert list(data.BatchSampler(range(5), 2, True)) == [[0, 1], [2, 3]]
    loader = data.DataLoader(Drawn(), batch_sampler=data.BatchSampler(data.RandomSampler(Drawn()), 4), seed=5)
    assert epoch(loader) == epoch(data.DataLoader(Drawn(), 4, shuffle=True, seed=5)) and len(loader) == 3
    ragged = data.DataLoader(Drawn(), batch_sampler=[[3], [1, 2, 9]])
    assert [n for n, _ in epoch(ragged)] == [[3], [1, 2, 9]] and len(ragged) == 2


@pytest.mark.parametrize("workers", [0, 2])
def test_examples_that_come_again_are_drawn_anew(workers: int) -> None:
    loader = data.DataLoader(Drawn(), 3, sampler=[4, 4, 1, 4, 1, 1], workers=workers)
    found = epoch(loader)
    assert [n for n, _ in found] == [[4, 4, 1], [4, 1, 1]]
    drawn = [v for _, values in found for v in values]
    assert len(set(drawn)) == 6
    alone = data.DataLoader(Drawn(), 1, sampler=[1, 4])
    assert {v for _, values in epoch(alone) for v in values} <= set(drawn)  # draws don't depend on the order
    place = data.DataLoader(Drawn(), 3, sampler=[4, 4, 1, 4, 1, 1])
    next(iter(place))
    place.load_state_dict(place.state_dict())
    assert epoch(place) == found[1:]


SAMPLERS: dict[str, Any] = {
    "weighted": lambda: {"sampler": data.WeightedRandomSampler(np.arange(10), 11)},
    "subset": lambda: {"sampler": data.SubsetRandomSampler(range(2, 10))},
    "own": lambda: {"sampler": Odds()},
    "list": lambda: {"sampler": [1, 9, 4, 4, 0, 2, 3]},
    "batches": lambda: {"batch_sampler": data.BatchSampler(data.RandomSampler(Drawn()), 3, True), "batch_size": 1},
    "lists": lambda: {"batch_sampler": [[3], [1, 2, 9], [0, 3]], "batch_size": 1},
}


@pytest.mark.parametrize("kind", SAMPLERS)
def test_places_hold_for_samplers(kind: str) -> None:
    def make(seed: int, workers: int = 0) -> data.DataLoader:
        options = {"batch_size": 3, **SAMPLERS[kind]()}
        return data.DataLoader(Drawn(), seed=seed, workers=workers, **options)

    unbroken = make(7)
    expected = epoch(unbroken) + epoch(unbroken)
    for stop in range(1, len(expected)):
        found: list[Any] = []
        first = make(7, workers=1)
        while len(found) < stop:
            for numbers, drawn in first:
                found.append((numbers.tolist(), drawn.tolist()))
                if len(found) == stop:
                    break
        second = make(99)
        second.load_state_dict(first.state_dict())
        while len(found) < len(expected):
            found += epoch(second)
        assert found == expected


def test_places_of_other_orders_are_refused() -> None:
    place = data.DataLoader(Drawn(), 2, shuffle=True).state_dict()
    with pytest.raises(ArgumentError, match=r"order=shuffle='epoch', this loader has SequentialSampler"):
        data.DataLoader(Drawn(), 2).load_state_dict(place)
    weighted = data.DataLoader(Drawn(), 2, sampler=data.WeightedRandomSampler([1] * 10, 6)).state_dict()
    with pytest.raises(ArgumentError, match="batches=3, this loader has 4"):
        data.DataLoader(Drawn(), 2, sampler=data.WeightedRandomSampler([1] * 10, 8)).load_state_dict(weighted)
    older = {n: place[n] for n in ("epoch", "position", "seed", "batch_size", "length")}
    data.DataLoader(Drawn(), 2, shuffle=True).load_state_dict(older)
    foreign = data.DataLoader(Drawn(), 2, sampler=Iterated([3, 1, 2]))
    assert indices(foreign) == [3, 1, 2] and len(foreign) == 2
    for use in (foreign.state_dict, lambda: foreign.load_state_dict({"epoch": 0, "position": 0, "seed": 0})):
        with pytest.raises(ArgumentError, match=r"order of a Iterated can't be told again.*vk\.data\.Sampler"):
            use()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampler": [0], "shuffle": True}, "leave out shuffle, found shuffle=True beside a list"),
        ({"batch_sampler": [[0]], "batch_size": 2}, "leave out batch_size, shuffle, sampler and drop_last"),
        ({"batch_sampler": [[0]], "drop_last": True}, "leave out batch_size"),
        ({"sampler": 3}, "each time it is iterated over, found a int"),
        ({"sampler": iter([1, 2])}, "each time it is iterated over, found a list_iterator"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        data.DataLoader(Drawn(), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampler": [0, 10]}, r"the sampler \(list\) gave index 10: the dataset has 10 examples"),
        ({"sampler": [-1, 1]}, "gave index -1"),
        ({"sampler": [0.5, 1.5]}, r"a sampler gives indices, list gave \[0.5, 1.5\]"),
        ({"sampler": data.BatchSampler(range(4), 2)}, "a sampler gives indices, BatchSampler gave"),
        (
            {"batch_sampler": [[1], []]},
            r"a batch_sampler gives batches, each a list of at least one index, list gave \[\]",
        ),
        ({"batch_sampler": [1, 2]}, "a batch_sampler gives batches.*list gave 1"),
    ],
)
def test_what_is_no_index_is_refused(options: dict[str, Any], message: str) -> None:
    batch_size = 1 if "batch_sampler" in options else 2
    with pytest.raises(ArgumentError, match=message):
        list(data.DataLoader(Drawn(), batch_size, **options))


def test_samplers_refuse_what_they_cannot_draw() -> None:
    cases: list[tuple[Any, str]] = [
        (lambda: data.WeightedRandomSampler([1, -1], 1), "weights are numbers of at least 0.*-1 to 1"),
        (lambda: data.WeightedRandomSampler([0, 0], 1), "not all 0"),
        (lambda: data.WeightedRandomSampler([1, float("nan")], 1), "weights are numbers"),
        (lambda: data.WeightedRandomSampler([[1.0]], 1), r"found shape \(1, 1\)"),
        (lambda: data.WeightedRandomSampler([1, 0, 1], 3, replacement=False), "3 different examples.*only 2 have"),
        (lambda: data.WeightedRandomSampler([1], 0), "num_samples is an int of at least 1, found 0"),
        (lambda: data.RandomSampler(Drawn(), num_samples=1.5), "num_samples is an int"),  # type: ignore[arg-type]
        (lambda: data.RandomSampler([], replacement=True), "a dataset without examples"),
        (lambda: data.RandomSampler(Drawn(), generator=object()), "follows from the loader's seed"),  # type: ignore[arg-type]
        (lambda: data.BatchSampler([1], 0), "batch_size is an int of at least 1, found 0"),
        (lambda: data.SubsetRandomSampler([0.5]), "takes indices, integers, found float64"),
    ]
    for make, message in cases:
        with pytest.raises(ArgumentError, match=message):
            make()
    with pytest.raises(NotImplementedError, match=r"has no order\(generator\)"):
        list(data.Sampler())


def test_other_names_of_options() -> None:
    loader = data.DataLoader(
        Drawn(), 4, num_workers=2, collate_fn=len, to_device=False, prefetch_factor=3, pin_memory=True,
        persistent_workers=True, timeout=0, generator=None, worker_init_fn=None,
    )  # fmt: skip
    assert loader.workers == 2 and loader.prefetch == 4 and list(loader) == [4, 4, 2]
    same = data.DataLoader(Drawn(), workers=2, num_workers=2)
    assert same.workers == 2 and same.prefetch == 2
    cases: list[tuple[dict[str, Any], str]] = [
        ({"workers": 1, "num_workers": 2}, "workers and num_workers are two names of one option"),
        ({"collate": len, "collate_fn": list}, "collate and collate_fn are two names"),
        ({"prefetch": 3, "prefetch_factor": 2}, "prefetch and prefetch_factor are two names"),
        ({"prefetch_factor": 0}, "prefetch_factor is an int of at least 1"),
        ({"num_workers": -1}, "workers is an int of at least 0"),
        ({"generator": np.random.default_rng(0)}, "takes no generator, found.*follow from seed="),
        ({"worker_init_fn": len}, r"takes no worker_init_fn.*item\(index, generator\)"),
        ({"timeout": 5}, "takes no timeout, found 5"),
        ({"in_order": False}, "batches come in the order of the sampler"),
        ({"multiprocessing_context": "fork"}, "spawn"),
    ]
    for options, message in cases:
        with pytest.raises(ArgumentError, match=message):
            data.DataLoader(Drawn(), **options)
    with pytest.raises(TypeError, match="unexpected keyword argument 'batches'"):
        data.DataLoader(Drawn(), batches=3)


def test_what_has_no_numbered_examples_is_refused() -> None:
    with pytest.raises(ArgumentError, match="a length and numbered examples, found a callable_iterator"):
        data.DataLoader(iter(lambda: 0, 1))
