"""Tests of devices that are closed while they are used: by other threads, by signal handlers, by NumPy views."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.faults.stress import environment

CODE = """
import signal, sys, threading, time
import numpy as np
import vkjit as vk

@vk.kernel(over="o")
def add(x: vk.In[vk.f32, "N"], o: vk.Out[vk.f32, "N"]):
    o[vk.global_id(0)] = x[vk.global_id(0)] + 1

device = vk.device({name!r})
vk.set_default_device(device)
x = vk.tensor(np.arange(200_000, dtype=np.float32))
with vk.capture(x=x) as graph:
    y = x * 2

def launch():
    o = vk.empty(200_000, device=device)
    add(x, o)
    assert o.numpy()[5] == 6

def stream():
    with vk.Stream(device):
        assert (x * 3).numpy()[5] == 15

def event():
    start, end, own = vk.Event(timing=True), vk.Event(timing=True), vk.Stream(device)
    start.record(own)
    end.record(own)
    start.elapsed_time(end)

def view():
    return np.from_dlpack(x) if x.__dlpack_device__()[0] == 1 else x.numpy()  # GPUs' own memory isn't the host's

work = {{
    "read": lambda: x.numpy(), "write": lambda: vk.tensor(np.ones(100_000, np.float32), device=device), "launch": launch,
    "stream": stream, "event": event, "replay": lambda: (graph.replay(), device.synchronize()),
    "view": lambda: view().sum(), "operations": lambda: ((x + 1) * 2).sum().item(),
}}
"""

THREADS = """
wrong = []

def use(what):
    try:
        while not device.closed:
            work[what]()
    except vk.DeviceError as error:
        assert "closed" in str(error), error
    except BaseException as error:
        wrong.append(f"{{what}}: {{error!r}}")

for what in work:
    work[what]()
threads = [threading.Thread(target=use, args=(what,)) for what in {whats}]
for thread in threads:
    thread.start()
time.sleep(0.2)
device.close()
for thread in threads:
    thread.join(30)
assert not any(thread.is_alive() for thread in threads)
assert not wrong, wrong
"""

OTHERS = {
    "a view outlives the device": "v = view()\ndevice.close()\nassert v[5] == 5\ndel v",
    "a view outlives the program": "import atexit\nv = view()\natexit.register(lambda: v.sum())",
    "a graph is dropped afterwards": (
        "graph.replay()\ndevice.close()\ndel graph, y\nvk.memory_stats(device)\nvk.empty_cache(device)"
    ),
    "several threads close it": (
        "ts = [threading.Thread(target=device.close) for _ in range(8)]\n[t.start() for t in ts]\n[t.join() for t in ts]"
    ),
    "a signal handler closes it": """
signal.signal(signal.SIGALRM, lambda *_: device.close())
signal.setitimer(signal.ITIMER_REAL, 0.1)
try:
    while True:
        launch()
except vk.DeviceError as error:
    assert "closed" in str(error)
""",
    "a capture is open": """
try:
    with vk.capture(x=x):
        device.close()
        x * 3
except vk.DeviceError as error:
    assert "closed" in str(error)
""",
}


def run(device: Any, code: str, folder: Path) -> None:
    program = folder / "program.py"  # kernels are read from files
    program.write_text(CODE.format(name=device.name) + code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, env=environment(), timeout=300, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("whats", ["list(work)", '["read"] * 4', '["view"] * 4'])
def test_a_device_is_closed_while_other_threads_use_it(device: Any, whats: str, tmp_path: Path) -> None:
    run(device, THREADS.format(whats=whats), tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGALRM")
@pytest.mark.parametrize("how", OTHERS)
def test_a_device_is_closed(device: Any, how: str, tmp_path: Path) -> None:
    run(device, OTHERS[how], tmp_path)
