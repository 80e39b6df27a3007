"""Tests of data loaders with worker processes: the same batches as with threads, errors, resuming, freeing memory."""

from __future__ import annotations

import errno
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
from vkjit.data import shared_memory, worker_processes
from vkjit.data.shared_memory import ParentBlocks, WorkerBlocks
from vkjit.data.worker_processes import WorkerDied, WorkerProcesses
from vkjit.errors import ArgumentError

SHARED = Path("/dev/shm")


@pytest.fixture(autouse=True)
def on_interpreter() -> Iterator[None]:
    with vk.use_device("interpreter"):
        yield


class Drawn(data.Dataset):
    """Dataset of dictionaries with arrays, numbers and process ids; reading example `bad` fails."""

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
    iteration.close()  # type: ignore[attr-defined]  # a generator, abandoned while batches are in flight
    loader.load_state_dict(loader.state_dict())  # the next iteration resumes here
    assert batches(loader) == expected[0][1:]
    assert batches(loader) == expected[1]  # the processes are reused
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
    own, opened = WorkerBlocks(), ParentBlocks()
    packed = own.pack(batch)
    found = opened.unpack(packed)
    assert found[0].tolist() == [0, 1, 2, 3, 4] and found[0].dtype == np.uint8
    assert found[1]["a"].shape == (0, 3)
    assert found[1]["b"][:2] == (np.float32(2), "word")
    np.testing.assert_array_equal(found[1]["b"][2], batch[1]["b"][2])  # type: ignore[index]
    assert opened.unpack(own.pack("nothing")) == "nothing"
    opened.close()
    own.close()
    with pytest.raises(FileNotFoundError):
        ParentBlocks().unpack(packed)


def test_blocks_are_used_again_and_never_while_they_are_wanted() -> None:
    before = shared_blocks()
    own, opened = WorkerBlocks(), ParentBlocks()
    first, second = own.pack(np.full(10, 1.0)), own.pack(np.full(10, 2.0))
    assert first.block != second.block
    assert opened.unpack(first).tolist() == [1.0] * 10
    own.give_back((first.block,))
    third = own.pack(np.full(9, 3.0))
    assert third.block == first.block and not third.dropped
    assert opened.unpack(second).tolist() == [2.0] * 10 and opened.unpack(third).tolist() == [3.0] * 9
    own.give_back((second.block, third.block))
    larger = own.pack(np.full(10_000, 4.0))  # replaces a block that is too small
    assert larger.dropped == (second.block,) and opened.unpack(larger).sum() == 40_000
    assert len(shared_blocks() - before) == (2 if SHARED.is_dir() else 0)
    own.close()
    opened.close()
    assert not shared_blocks() - before


def double(value: Any) -> Any:
    """Double a value in a worker process: raise `Odd` for text, return something that can't be pickled for -1."""
    if isinstance(value, str):
        raise Odd(value, "words")
    return (lambda: value) if isinstance(value, int) and value == -1 else np.asarray(value) * 2


class Odd(Exception):
    """Exception that can't be pickled."""

    def __init__(self, value: str, kind: str) -> None:
        super().__init__(f"{value} is no number, found {kind}")

    def __reduce__(self) -> Any:
        raise TypeError("no")


def test_results_come_in_any_order_and_those_nobody_wants_go() -> None:
    processes = WorkerProcesses(2, double)
    numbers = [processes.submit(i) for i in range(6)]
    assert [int(processes.result(numbers[i])) for i in (3, 0, 5)] == [6, 0, 10]
    processes.forget([numbers[1], numbers[2], numbers[4]])
    later = [processes.submit(i) for i in (7, 8)]
    assert [int(processes.result(n)) for n in later] == [14, 16]
    deadline = time.monotonic() + 20
    last = processes.submit(9)
    while not processes.is_ready(last) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert processes.is_ready(last) and int(processes.result(last)) == 18
    # many tasks and results larger than a pipe's buffer: no deadlock
    wide = [processes.submit(np.full(200_000, i)) for i in range(6)]
    words = processes.submit("x" * 300_000)
    assert [int(processes.result(n)[-1]) for n in wide] == [0, 2, 4, 6, 8, 10]
    with pytest.raises(RuntimeError, match=r"Odd: xxx.*is no number, found words") as found:
        processes.result(words)
    assert "in double" in str(found.value.__cause__)
    with pytest.raises(Exception, match="lambda"):
        processes.result(processes.submit(-1))
    processes.close()
    with pytest.raises((WorkerDied, OSError)):
        processes.submit(1)


def test_a_dataset_that_cannot_be_sent_is_an_error_that_says_so() -> None:
    examples = data.Transformed(Drawn(), lambda value, _: value)
    with pytest.raises(ArgumentError, match="can't be sent to a process.*lambda"):
        batches(data.DataLoader(examples, 4, workers=1, processes=True))


class Misfit(Exception):
    """Exception that pickles, but doesn't unpickle."""

    def __init__(self, value: str, kind: str) -> None:
        super().__init__(f"{value} is no {kind}")


class Unpicklable:
    """Value that pickles, but doesn't unpickle."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


def various(kind: str) -> Any:
    """Return or raise, in a worker process, something that is hard to transfer."""
    if kind == "misfit":
        raise Misfit("it", "number")
    if kind == "reset":
        raise ConnectionResetError("the server of the data is gone")
    if kind == "value":
        return Unpicklable()
    if kind in ("closed", "replaced"):
        os.closerange(3, 1000)  # drivers of GPUs open many files
        if kind == "replaced":  # the connection's number belongs to another file
            for _ in range(3, 250):
                os.open(os.devnull, os.O_RDWR)
    if kind == "orphan" and os.fork() == 0:  # the child keeps the connection open
        time.sleep(30)
        os._exit(0)
    if kind == "orphan":
        os._exit(0)
    return np.ones(3)


def test_what_does_not_unpickle_is_an_error_that_says_so() -> None:
    processes = WorkerProcesses(1, various)
    with pytest.raises(RuntimeError, match="Misfit: it is no number") as found:
        processes.result(processes.submit("misfit"))
    assert "in various" in str(found.value.__cause__)
    with pytest.raises(ConnectionResetError, match="the server of the data is gone"):
        processes.result(processes.submit("reset"))
    with pytest.raises(ArgumentError, match=r"a batch .* can't be unpickled \(ValueError: .*no number"):
        processes.result(processes.submit("value"))
    assert processes.result(processes.submit("")).tolist() == [1, 1, 1]  # the process goes on
    processes.close()


@pytest.mark.skipif(sys.platform == "win32", reason="descriptors and fork of POSIX")
@pytest.mark.parametrize("kind", ["closed", "replaced", "orphan"])
def test_a_process_without_connection_ends(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_processes, "_SECONDS_BETWEEN_CHECKS", 0.1)
    processes = WorkerProcesses(1, various)
    with pytest.raises(WorkerDied):
        processes.result(processes.submit(kind))
    processes.close()


def pointer_arrays() -> dict[str, Any]:
    records = np.array([(3, "a word")], [("n", "i4"), ("word", "O")])
    found = {
        "object": np.array(["a word"], object),
        "struct": records,
        "masked": np.ma.masked_array([1.0, 2.0], [False, True]),
    }
    if hasattr(np.dtypes, "StringDType"):
        found["string"] = np.array(["word " * 20], np.dtypes.StringDType())
    return found


def test_arrays_with_pointers_and_masks_are_pickled() -> None:
    own, opened = WorkerBlocks(), ParentBlocks()
    packed = own.pack(pointer_arrays())
    assert packed.block == ""
    for name, expected in pointer_arrays().items():
        found = opened.unpack(packed)[name]
        assert found.dtype == expected.dtype and found.tolist() == expected.tolist()
    plain = {"time": np.array(["2020-01-01"], "M8[D]"), "text": np.array(["a", "bc"]), "struct": np.zeros(2, "i4, f8")}
    packed = own.pack(plain)
    assert packed.block
    for name, array in plain.items():
        assert opened.unpack(packed)[name].tolist() == array.tolist()
    opened.close()
    own.close()


@pytest.mark.parametrize("failing", ["posix_fallocate", "SharedMemory"])
def test_without_room_for_blocks_arrays_are_pickled(failing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if failing == "posix_fallocate" and not (SHARED.is_dir() and hasattr(os, "posix_fallocate")):
        pytest.skip("shared memory has no files here")

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    before = shared_blocks()
    own, opened = WorkerBlocks(), ParentBlocks()
    first = own.pack(np.arange(3))
    assert opened.unpack(first).tolist() == [0, 1, 2]
    own.give_back((first.block,))
    monkeypatch.setattr(os if failing == "posix_fallocate" else shared_memory, failing, full)
    packed = own.pack((np.arange(10_000), "word"))
    assert packed.block == "" and packed.dropped == (first.block,)
    values, word = opened.unpack(packed)
    assert values.tolist() == list(range(10_000)) and word == "word"
    assert shared_blocks() == before
    own.close()
    opened.close()
