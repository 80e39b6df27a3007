"""Loaders whose workers are processes: the batches of threads, errors, places to go on from, memory that is given back."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit import data
from vkjit.data.shared import drop, pack, unpack
from vkjit.errors import ArgumentError

SHARED = Path("/dev/shm")


@pytest.fixture(autouse=True)
def on_interpreter() -> Iterator[None]:
    with vk.use_device("interpreter"):
        yield


class Drawn(data.Dataset):
    """Arrays, numbers and words; example `bad` can't be read."""

    def __init__(self, bad: int = -1) -> None:
        self.bad = bad

    def __len__(self) -> int:
        return 12

    def item(self, index: int, generator: np.random.Generator) -> Any:
        if index == self.bad:
            raise ValueError(f"no example {index}")
        return {"image": generator.random((2, 3)).astype(np.float32), "number": index, "maker": os.getpid()}


def batches(loader: data.DataLoader) -> list[Any]:
    return [(b["image"].tolist(), b["number"].tolist()) for b in loader]


def shared_blocks() -> set[str]:
    return {p.name for p in SHARED.glob("psm_*")} if SHARED.is_dir() else set()


def test_processes_make_the_batches_that_threads_make() -> None:
    before = shared_blocks()
    threads = data.DataLoader(Drawn(), 5, shuffle=True, seed=1, workers=1)
    expected = [batches(threads) for _ in range(2)]
    loader = data.DataLoader(Drawn(), 5, shuffle=True, seed=1, workers=1, processes=True)
    iteration = iter(loader)
    first = next(iteration)
    assert first["maker"].tolist() != [os.getpid()] * 5
    assert first["image"].tolist() == expected[0][0][0]
    iteration.close()  # type: ignore[attr-defined]  # a generator: broken off, with batches under way
    assert batches(loader) == expected[0][1:]
    assert batches(loader) == expected[1]  # the processes are still there
    del loader, iteration
    gc.collect()
    deadline = time.monotonic() + 20
    while shared_blocks() - before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not shared_blocks() - before


def test_errors_of_processes_arrive() -> None:
    with pytest.raises(ValueError, match="no example 7"):
        batches(data.DataLoader(Drawn(7), 4, workers=1, processes=True))


@pytest.mark.skipif(sys.platform == "win32", reason="os._exit of a worker leaves a dialogue there")
def test_a_process_that_ends_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(ArgumentError, match='a worker process ended before it made a batch.*"__main__"'):
        batches(data.DataLoader(Ending(), 4, workers=1, processes=True))


class Ending(Drawn):
    def item(self, index: int, generator: np.random.Generator) -> Any:
        os._exit(3)


def test_processes_need_workers() -> None:
    with pytest.raises(ArgumentError, match="processes=True needs workers, found workers=0"):
        data.DataLoader(Drawn(), processes=True)


def test_batches_are_packed_and_unpacked() -> None:
    batch = (
        np.arange(5, dtype=np.uint8),
        {"a": np.zeros((0, 3)), "b": [np.float32(2), "word", np.arange(6).reshape(2, 3).T]},
    )
    packed = pack(batch)
    found = unpack(packed)
    assert found[0].tolist() == [0, 1, 2, 3, 4] and found[0].dtype == np.uint8
    assert found[1]["a"].shape == (0, 3)
    assert found[1]["b"][:2] == (np.float32(2), "word")
    np.testing.assert_array_equal(found[1]["b"][2], batch[1]["b"][2])  # type: ignore[index]
    assert unpack(pack("nothing")) == "nothing"
    with pytest.raises(FileNotFoundError):
        unpack(packed)  # once
    other = pack(batch)
    drop(other)
    with pytest.raises(FileNotFoundError):
        drop(other)
