"""Worker processes that prepare batches for `batch_workers`.

The parent submits numbered tasks and requests results by task number, in any order. Task n goes to process
n % process count, which handles its tasks in order. The parent sends and receives messages in the calling thread;
helper threads would compete with it for the GIL.

Messages to a worker are ("make", task number, arguments, names of shared memory blocks given back) and ("forget", task
numbers). The worker answers with (task number, True, `PackedBatch`) or (task number, False, `_Failure`). Results and
errors are pickled within these messages, so that one that can't be unpickled is told from a broken connection.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import multiprocessing
import os
import pickle
import queue
import signal
import threading
import traceback
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from ..errors import ArgumentError
from .shared_memory import PackedBatch, ParentBlocks, WorkerBlocks

__all__ = ["WorkerDied", "WorkerProcesses"]

_SECONDS_BETWEEN_CHECKS = 5.0
"""While the parent waits for a result, it checks this often that the worker is alive."""


class WorkerDied(Exception):  # noqa: N818  # an event that the caller reports
    """A worker process ended before it returned its result."""


class _RemoteTraceback(Exception):  # noqa: N818  # only the cause of another exception
    """The traceback text of an error in a worker process."""


@dataclass(frozen=True, slots=True)
class _Failure:
    """An error in a worker process."""

    pickled: bytes
    """The exception; empty if it can't be pickled."""
    summary: str
    """Its type and message."""
    traceback: str

    def exception(self) -> BaseException:
        """Return the exception, or a RuntimeError with the same message if it can't be unpickled."""
        with contextlib.suppress(Exception):
            error = pickle.loads(self.pickled)  # noqa: S301  # from our own process
            if isinstance(error, BaseException):
                return error
        return RuntimeError(self.summary)


@dataclass(slots=True)
class _Worker:
    """The parent's view of a worker process."""

    connection: Any
    process: Any
    arrived: dict[int, tuple[bool, Any]] = field(default_factory=dict)
    """Results received but not requested yet, by task number: (True, `PackedBatch`) or (False, `_Failure`)."""
    returned: list[str] = field(default_factory=list)
    """Names of shared memory blocks that the process may reuse; sent with the next task."""
    unwanted: set[int] = field(default_factory=set)
    """Numbers of forgotten tasks whose results may still arrive."""


class WorkerProcesses:
    """A pool of worker processes that call `make(*task)`.

    The processes live until `close`, or until this object is garbage-collected. The constructor raises what
    multiprocessing raises if `make` can't be pickled.
    """

    def __init__(self, count: int, make: Callable[..., Any]) -> None:
        # not "fork": the copy of a process that has open devices and threads doesn't work
        context = multiprocessing.get_context("spawn")
        self.owner = os.getpid()
        """Id of the process that uses the workers."""
        self._workers: list[_Worker] = []
        self._blocks = ParentBlocks()
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._forgotten: collections.deque[int] = collections.deque()
        self._end = weakref.finalize(self, _close, self._workers, self._blocks)
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, make), daemon=True)
            self._workers.append(_Worker(ours, process))
            process.start()
            theirs.close()  # the worker holds the only copy, so `ours` reads EOF when the worker ends

    def submit(self, *task: Any) -> int:
        """Submit a task and return its number."""
        with self._lock:
            self._send_forgotten()
            number = next(self._numbers)
            worker = self._workers[number % len(self._workers)]
            self._send(worker, ("make", number, task, tuple(worker.returned)))
            worker.returned.clear()
            return number

    def is_ready(self, number: int) -> bool:
        """Return True if the result of task `number` has arrived. Never blocks."""
        worker = self._workers[number % len(self._workers)]
        with self._lock:
            while number not in worker.arrived and worker.connection.poll():
                self._receive(worker)
            return number in worker.arrived

    def result(self, number: int) -> Any:
        """Wait for the result of task `number` and return it; each result can be taken once.

        Raises what `make` raised, WorkerDied if the worker died, or ArgumentError if the result can't be unpickled.
        """
        worker = self._workers[number % len(self._workers)]
        with self._lock:
            while number not in worker.arrived:
                self._receive(worker)
            is_good, value = worker.arrived.pop(number)
            if not is_good:
                raise value.exception() from _RemoteTraceback(value.traceback)
            try:
                return self._blocks.unpack(value)
            except Exception as error:
                raise ArgumentError(
                    f"a batch from a worker process can't be unpickled ({type(error).__name__}: {error}): return arrays, numbers "
                    "and objects that pickle and unpickle, or use threads (processes=False)"
                ) from error
            finally:
                self._give_back(worker, value)

    def forget(self, numbers: Iterable[int]) -> None:
        """Discard the results of these tasks; `submit` tells the workers.

        Only appends to a deque, without the lock, so it is safe to call at any time, even during garbage collection.
        """
        self._forgotten.extend(numbers)

    def close(self) -> None:
        """Close the connections, so that each process ends after its current task."""
        self._end()

    # -- messages

    def _send_forgotten(self) -> None:
        """Tell the workers which tasks to skip, and give back the blocks of their results that have arrived."""
        by_worker: dict[int, set[int]] = {}
        while self._forgotten:
            number = self._forgotten.popleft()
            by_worker.setdefault(number % len(self._workers), set()).add(number)
        for index, numbers in by_worker.items():
            worker = self._workers[index]
            for number in numbers & worker.arrived.keys():
                is_good, value = worker.arrived.pop(number)
                if is_good:
                    self._give_back(worker, value)
            worker.unwanted |= numbers
            self._send(worker, ("forget", numbers))

    def _send(self, worker: _Worker, message: Any) -> None:
        """Send a message to a worker. Raises WorkerDied if it died."""
        try:
            worker.connection.send(message)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise WorkerDied from error

    def _receive(self, worker: _Worker) -> None:
        """Wait for the worker's next result, and store it, or discard it if its task was forgotten."""
        try:
            # not `recv` alone: another process that has inherited the worker's end would keep EOF from coming
            while not worker.connection.poll(_SECONDS_BETWEEN_CHECKS):
                if not worker.process.is_alive() and not worker.connection.poll():
                    raise WorkerDied
            number, is_good, value = worker.connection.recv()
        except (EOFError, ConnectionResetError) as error:
            raise WorkerDied from error
        if number not in worker.unwanted:
            worker.arrived[number] = is_good, value
        elif is_good:
            self._give_back(worker, value)
        worker.unwanted = {n for n in worker.unwanted if n > number}  # results arrive in order, so older ones won't

    def _give_back(self, worker: _Worker, packed: PackedBatch) -> None:
        """Give the block of a batch back to its worker, with the next task."""
        self._blocks.sync(packed)
        if packed.block:
            worker.returned.append(packed.block)


def _close(workers: list[_Worker], blocks: ParentBlocks) -> None:
    """Close all connections and blocks.

    Not a method of `WorkerProcesses`: the finalizer that calls it must not keep the pool alive.
    """
    for worker in workers:
        worker.connection.close()
    blocks.close()


# -- code that runs in the worker process


def _serve(connection: Any, make: Callable[..., Any]) -> None:
    """Run tasks until the other end of the connection is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C also reaches the parent, which closes the connection
    signal.signal(signal.SIGTERM, _exit_on_sigterm)
    tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
    forgotten: set[int] = set()
    threading.Thread(target=_listen, args=(connection, tasks, forgotten), daemon=True).start()
    blocks, channel = WorkerBlocks(), os.fstat(connection.fileno())
    try:
        while (task := tasks.get()) is not None:
            number, arguments, returned = task
            blocks.give_back(returned)
            if number in forgotten:
                forgotten.discard(number)
                continue
            answer = _answer(number, make, arguments, blocks)
            # `make` may have closed the connection, and its descriptor may be another file's by now
            if not os.path.samestat(os.fstat(connection.fileno()), channel):
                raise RuntimeError("the dataset has closed the connection to the parent process")
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the parent is gone: `tasks` ends
                connection.send(answer)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # don't interrupt the cleanup
        blocks.close()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # from here on, an exception would only be printed


def _exit_on_sigterm(*_: object) -> None:
    """Signal handler for SIGTERM: exit, so that `finally` blocks run."""
    raise SystemExit(0)


def _listen(connection: Any, tasks: queue.SimpleQueue[Any], forgotten: set[int]) -> None:
    """Receive the parent's messages until the connection is closed; runs in a thread of its own.

    The pipe is emptied while a task runs, so that the parent's `send` doesn't block. Tasks go to the queue, followed by
    None at the end, and numbers to forget go to `forgotten`.
    """
    try:
        while True:
            message = connection.recv()
            if message[0] == "forget":
                forgotten |= message[1]
            else:
                tasks.put(message[1:])
    except (EOFError, OSError):
        tasks.put(None)


def _answer(number: int, make: Callable[..., Any], arguments: Any, blocks: WorkerBlocks) -> tuple[int, bool, Any]:
    """Run task `number` and return the message with its result, or with the error that it raised."""
    try:
        return number, True, blocks.pack(make(*arguments))
    except Exception as error:  # noqa: BLE001  # forwarded to the parent
        pickled, summary = b"", type(error).__name__
        with contextlib.suppress(Exception):  # `__reduce__` and `__str__` of an exception may raise anything
            pickled = pickle.dumps(error)
        with contextlib.suppress(Exception):
            summary = f"{summary}: {error}"
        return number, False, _Failure(pickled, summary, traceback.format_exc())
