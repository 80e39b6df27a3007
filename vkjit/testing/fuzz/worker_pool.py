"""A pool of worker processes: distributes requests, collects answers and replaces workers that die or hang.

The format of requests and answers is described in `worker`. If a worker dies, or sends nothing for `patience` seconds,
the pool itself makes the answer: a finding of the stage "crash" for the program that the worker was running.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from .worker import Config

__all__ = ["WorkerPool"]

START_SECONDS = 120.0
"""Time limit for the start of a worker, in seconds."""


class _Process:
    """One worker process, and a thread that reads its standard error.

    `partial_line` is output that isn't a complete line yet; `errors` are the last lines of standard error.
    """

    def __init__(self, config: Config) -> None:
        command = [sys.executable, "-m", "vkjit.testing.fuzz.worker", config.text()]
        # in a new session, so that Ctrl+C in the terminal interrupts only the parent
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
        self.partial_line = b""
        self.errors: list[bytes] = []
        self.listener = threading.Thread(target=self._drain, daemon=True)
        self.listener.start()

    def _drain(self) -> None:
        """Keep the last lines of the process's standard error."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.errors = [*self.errors[-20:], line]

    def ask(self, request: dict[str, Any]) -> None:
        """Send a request."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self, patience: float) -> dict[str, Any] | None:
        """Return the worker's next message; None if the worker has closed its output.

        Raises TimeoutError if no message comes within `patience` seconds.
        """
        assert self.process.stdout is not None
        deadline = time.monotonic() + patience
        while b"\n" not in self.partial_line:
            remaining = deadline - time.monotonic()
            ready, _, _ = select.select([self.process.stdout], [], [], max(remaining, 0.0))
            if not ready:
                raise TimeoutError
            part = os.read(self.process.stdout.fileno(), 1 << 16)
            if not part:
                return None
            self.partial_line += part
        line, _, self.partial_line = self.partial_line.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def end(self) -> str:
        """End the process, by force after 2 seconds. Return its exit status and its last error lines."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            code = self.process.wait(2)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self.listener.join(2)
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"status {code}"
        tail = b"".join(self.errors[-6:]).decode(errors="replace").strip()
        return f"{how}\n{tail}" if tail else how


class WorkerPool:
    """`jobs` worker processes that share an iterator of requests. A thread serves each process.

    A worker that sends nothing for `patience` seconds is ended.
    """

    def __init__(self, config: Config, jobs: int, patience: float = 300.0) -> None:
        self.config = config
        self.jobs = jobs
        self.patience = patience
        self.stopped = False
        self._lock = threading.Lock()
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()

    def run(self, requests: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yield the answers in the order of completion. After `stop()`, no more requests are taken."""
        threads = [threading.Thread(target=self._serve, args=(requests,), daemon=True) for _ in range(self.jobs)]
        for thread in threads:
            thread.start()
        running = len(threads)
        while running:
            answer = self._answers.get()
            if answer is None:
                running -= 1
            else:
                yield answer

    def stop(self) -> None:
        """Stop distributing requests."""
        self.stopped = True

    def _next(self, requests: Iterator[dict[str, Any]]) -> dict[str, Any] | None:
        """Return the next request; None if there are no more."""
        with self._lock:
            return None if self.stopped else next(requests, None)

    def _serve(self, requests: Iterator[dict[str, Any]]) -> None:
        """Run requests in a process until none are left, with a new process after each crash.

        Puts the answers into the queue, and None at the end.
        """
        process: _Process | None = None
        try:
            while (request := self._next(requests)) is not None:
                if process is None:
                    process = self._started()
                if process is None:
                    return
                answer, process = self._one(process, request)
                self._answers.put(answer)
        finally:
            if process is not None:
                process.end()
            self._answers.put(None)

    def _started(self) -> _Process | None:
        """Start a process and wait until it is ready.

        If the process fails to start, put a finding into the queue and return None.
        """
        process = _Process(self.config)
        with contextlib.suppress(TimeoutError):
            if process.answer(START_SECONDS) is not None:
                return process
        text = f"a worker doesn't start: {process.end()}"
        self._answers.put({"done": -1, "ops": [], "counts": {}, "stage": "start", "text": text, "program": ""})
        return None

    def _one(self, process: _Process, request: dict[str, Any]) -> tuple[dict[str, Any], _Process | None]:
        """Send a request to a process. Return the answer, and the process; None instead of a process that has ended."""
        text = "the worker's process died: "  # unless an exception gives another reason
        try:
            process.ask(request)
            while (answer := process.answer(self.patience)) is not None:  # skip {"start": ...}
                if "done" in answer:
                    return {**answer, "seed": request.get("seed", -1)}, process
        except TimeoutError:
            text = f"no answer within {self.patience:.0f} s: "
        except OSError:
            text = "the worker's process went away: "
        ended = process.end()
        seed = request.get("seed", -1)
        return {
            "done": seed,
            "seed": seed,
            "ops": [],
            "counts": {},
            "stage": "crash",
            "text": text + ended,
            "program": "",
        }, None
