"""Worker processes that make batches.

Results are requested by task number, in any order. Task n goes to process n modulo their number, which handles its
tasks in order. The parent sends and receives in the calling thread; helper threads would compete for its GIL.
"""

from __future__ import annotations

import collections
import itertools
import multiprocessing
import os
import queue
import signal
import threading
import traceback
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from .shared_memory import OpenBlocks, OwnBlocks, Packed

__all__ = ["ProcessEnded", "Processes"]


class ProcessEnded(Exception):  # noqa: N818  # an event that the caller reports
    """A worker process ended before it returned its result."""


class _RemoteTraceback(Exception):  # noqa: N818  # only the cause of another exception
    """The traceback text of an error in a worker process."""


@dataclass(slots=True)
class _Worker:
    connection: Any
    arrived: dict[int, tuple[bool, Any]] = field(default_factory=dict)
    """Results received but not requested yet."""
    returned: list[str] = field(default_factory=list)
    """Blocks the process may reuse; sent with the next task."""
    unwanted: set[int] = field(default_factory=set)


class Processes:
    """Processes that call `make(*task)` and live until `close` or until this object is garbage-collected.

    The constructor raises what multiprocessing raises for a function that can't be pickled.
    """

    def __init__(self, count: int, make: Callable[..., Any]) -> None:
        # not fork: a copy of a process with open devices and threads doesn't work
        context = multiprocessing.get_context("spawn")
        self.owner = os.getpid()
        """Id of the process that uses the workers."""
        self._workers: list[_Worker] = []
        self._blocks = OpenBlocks()
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._forgotten: collections.deque[int] = collections.deque()
        self._end = weakref.finalize(self, _close, self._workers, self._blocks)
        for _ in range(count):
            ours, theirs = context.Pipe()
            self._workers.append(_Worker(ours))
            context.Process(target=_serve, args=(theirs, make), daemon=True).start()
            theirs.close()  # the worker holds the only copy, so its end yields EOF here

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
        """Return True if the result has arrived."""
        worker = self._workers[number % len(self._workers)]
        with self._lock:
            while number not in worker.arrived and worker.connection.poll():
                self._receive(worker)
            return number in worker.arrived

    def result(self, number: int) -> Any:
        """Wait for a result and return it; each can be taken once. Raises what `make` raised, or ProcessEnded."""
        worker = self._workers[number % len(self._workers)]
        with self._lock:
            while number not in worker.arrived:
                self._receive(worker)
            is_good, value = worker.arrived.pop(number)
            if not is_good:
                error, text = value
                raise error from _RemoteTraceback(text)
            batch = self._blocks.unpack(value)
            self._return(worker, value)
            return batch

    def forget(self, numbers: Iterable[int]) -> None:
        """Discard these results. Safe to call at any time, even during garbage collection."""
        self._forgotten.extend(numbers)

    def close(self) -> None:
        """Let the processes end after their current task."""
        self._end()

    # -- messages

    def _send_forgotten(self) -> None:
        told: dict[int, set[int]] = {}
        while self._forgotten:
            number = self._forgotten.popleft()
            told.setdefault(number % len(self._workers), set()).add(number)
        for place, numbers in told.items():
            worker = self._workers[place]
            for number in numbers & worker.arrived.keys():
                is_good, value = worker.arrived.pop(number)
                if is_good:
                    self._return(worker, value)
            worker.unwanted |= numbers
            self._send(worker, ("forget", numbers))

    def _send(self, worker: _Worker, message: Any) -> None:
        try:
            worker.connection.send(message)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ProcessEnded from error

    def _receive(self, worker: _Worker) -> None:
        try:
            number, is_good, value = worker.connection.recv()
        except (EOFError, ConnectionResetError) as error:
            raise ProcessEnded from error
        if number not in worker.unwanted:
            worker.arrived[number] = is_good, value
        elif is_good:
            self._return(worker, value)
        worker.unwanted = {n for n in worker.unwanted if n > number}  # results arrive in order

    def _return(self, worker: _Worker, packed: Packed) -> None:
        self._blocks.sync(packed)
        if packed.block:
            worker.returned.append(packed.block)


def _close(workers: list[_Worker], blocks: OpenBlocks) -> None:
    for worker in workers:
        worker.connection.close()
    blocks.close()


# -- in the worker process


def _serve(connection: Any, make: Callable[..., Any]) -> None:
    """Run tasks until the other end of the connection is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets it, too, and closes the connection
    signal.signal(signal.SIGTERM, _leave)
    tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
    forgotten: set[int] = set()
    threading.Thread(target=_listen, args=(connection, tasks, forgotten), daemon=True).start()
    blocks = OwnBlocks()
    try:
        while (task := tasks.get()) is not None:
            number, arguments, returned = task
            blocks.give_back(returned)
            if number in forgotten:
                forgotten.discard(number)
                continue
            _answer(connection, number, make, arguments, blocks)
    except (BrokenPipeError, ConnectionResetError):
        pass  # the parent is gone
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # already exiting
        blocks.close()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # an exception during exit would only be printed


def _leave(*_: object) -> None:
    raise SystemExit(0)


def _listen(connection: Any, tasks: queue.SimpleQueue[Any], forgotten: set[int]) -> None:
    """Receive messages as they arrive, so the sender never blocks until a result is taken."""
    try:
        while True:
            message = connection.recv()
            if message[0] == "forget":
                forgotten |= message[1]
            else:
                tasks.put(message[1:])
    except (EOFError, OSError):
        tasks.put(None)


def _answer(connection: Any, number: int, make: Callable[..., Any], arguments: Any, blocks: OwnBlocks) -> None:
    packed = Packed(None, "")
    try:
        packed = blocks.pack(make(*arguments))
        connection.send((number, True, packed))
    except (BrokenPipeError, ConnectionResetError):
        raise
    except Exception as error:  # noqa: BLE001  # forwarded to the parent
        text = traceback.format_exc()
        if packed.block:  # the result couldn't be sent
            blocks.give_back((packed.block,))
        try:
            connection.send((number, False, (error, text)))
        except (BrokenPipeError, ConnectionResetError):
            raise
        except Exception:  # noqa: BLE001  # can't be pickled: send its text
            connection.send((number, False, (RuntimeError(f"{type(error).__name__}: {error}"), text)))
