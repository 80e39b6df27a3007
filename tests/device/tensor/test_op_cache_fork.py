"""Forking a process while a call is being recorded for the op cache."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_while_a_call_is_watched() -> None:
    program = (
        "import os, threading, numpy as np, vkjit as vk\n"
        "from vkjit.tensor.op_cache import with_replay\n"
        "inside, go, calls = threading.Event(), threading.Event(), []\n"
        "def forward(x):\n"
        "    calls.append(1)\n"
        "    if len(calls) == 3:\n"
        "        inside.set(); go.wait()\n"
        "    return vk.exp(x)\n"
        "run, x = with_replay('forked', forward), vk.tensor(np.ones(9, np.float32), device='cpu')\n"
        "thread = threading.Thread(target=lambda: [run(x) for _ in range(3)])\n"
        "thread.start(); inside.wait()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    with vk.capture('cpu') as graph:\n"
        "        y = x + 1.0\n"
        "    graph.replay()\n"
        "    os._exit(7 if y.numpy()[0] == 2 else 1)\n"
        "go.set(); thread.join()\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True, timeout=100
    )
    assert done.stdout.strip() == "7"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_while_another_thread_notes_a_call() -> None:
    program = (
        "import os, signal, numpy as np, vkjit as vk\n"
        "from vkjit.runtime import dispatch_cache\n"
        "from vkjit.tensor.op_cache import dispatch as op_cache\n"
        "x = vk.tensor(np.ones(9, np.float32), device='cpu')\n"
        "with op_cache._changing, dispatch_cache._lock:\n"  # as another thread would at that moment
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        signal.alarm(60)\n"
        "        dispatch_cache.renew()\n"
        "        found = [float((x + 1.0).numpy()[0]) for _ in range(5)]\n"
        "        os._exit(7 if found == [2.0] * 5 else 1)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True, timeout=100
    )
    assert done.stdout.strip() == "7"
