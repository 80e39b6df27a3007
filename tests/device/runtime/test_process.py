"""The runtime over a process's life: missing driver, exit, fork, Ctrl-C, validation, time to the first result."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from typing import Any

import pytest

from tests.validation import QUIET
from vkjit.backends.vulkan.runtime import enumeration

SETUP = """
import sys
import numpy as np
from tests.device.runtime import runtime_kernels as kernels
from vkjit import errors
from vkjit.backends import selection
from vkjit.backends.vulkan.runtime import instance
from vkjit.runtime import handles
from vkjit.runtime.observers import LaunchRequest
device = selection.device(0)
kernel = device.load(kernels.add())
a = kernels.upload(device, np.arange(100, dtype=np.uint32))
c = device.allocate(400)
def go():
    block = kernels.BLOCK.pack(a.address, a.address, c.address, 100)
    device.launch(LaunchRequest(kernel, kernels.groups(100), block, (a,), (c,)))
go()
"""


def run(code: str, setup: str = SETUP, **environment: str) -> Any:
    source = setup + textwrap.dedent(code)
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", source],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **environment},
    )


@pytest.fixture
def driver() -> None:
    error = enumeration.driver_error()
    if error is not None:
        pytest.skip(f"no Vulkan driver: {error}")


def loader_only() -> bool:
    error = enumeration.driver_error()
    return error is None or "no driver behind it" in str(error)


def test_without_a_driver_the_error_says_what_to_install() -> None:
    if not loader_only():
        pytest.skip("no Vulkan loader on this machine")
    code = """
    from vkjit import errors
    from vkjit.backends.vulkan.runtime import instance
    try:
        instance.get_instance()
    except errors.DriverNotFoundError as error:
        print(error)
    """
    done = run(code, setup="", VK_DRIVER_FILES=os.devnull, VK_ICD_FILENAMES=os.devnull)
    assert done.returncode == 0, done.stderr
    assert "no driver behind it" in done.stdout
    if sys.platform == "linux":
        assert "sudo apt-get install mesa-vulkan-drivers libvulkan1" in done.stdout


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize(
    "code",
    [
        pytest.param("", id="work in the open command buffer"),
        pytest.param("device.flush()", id="work in flight"),
        pytest.param("device.close()", id="closed"),
        pytest.param("device.close(); device.close(); del a, c, kernel, device", id="all gone"),
        pytest.param("import builtins; builtins.kept = (a, c, kernel, device); view = device.host_view(c)", id="kept"),
    ],
)
def test_exit_is_clean(code: str) -> None:
    done = run(code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.usefixtures("driver")
def test_an_exit_code_survives() -> None:
    assert run("sys.exit(7)").returncode == 7


@pytest.mark.usefixtures("driver")
def test_daemon_threads_end_without_a_traceback_at_exit() -> None:
    code = """
        import threading, time
        def loop():
            while True:
                go()
        for _ in range(3):
            threading.Thread(target=loop, daemon=True).start()
        time.sleep(0.3)
        """
    done = run(code)
    assert done.returncode == 0 and done.stderr == ""


@pytest.mark.usefixtures("driver")
def test_daemon_threads_are_refused_before_the_device_is_waited_for() -> None:
    """They would submit work for as long as it is waited for."""
    code = """
        import threading
        def loop():
            while True:
                go()
        thread = threading.Thread(target=loop, daemon=True)
        thread.start()
        def look():
            thread.join(60)
            go()  # not refused
            print("ended", not thread.is_alive())
        handles._call_at_exit.insert(1, look)  # after `last_words`, which is called after it
        """
    done = run(code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended True\n", "")


@pytest.mark.usefixtures("driver")
def test_exit_doesn_t_wait_forever() -> None:
    code = """
        from vkjit.backends.vulkan.runtime.queue import completion
        class Stuck:
            def __getattr__(self, name):
                pending = {"vkGetFenceStatus": 1, "vkWaitForFences": 2}
                return (lambda *_: pending[name]) if name in pending else getattr(device._functions, name)
        completion.MAX_WAIT_AT_EXIT_NS = 0
        device.synchronize()
        device._queue.functions = Stuck()
        go()
        """
    done = run(code)
    assert (done.returncode, done.stderr) == (0, "")


_BLOCKS = (
    "use_device('interpreter')", "no_grad()", "autocast(vk.f16)", "Stream('interpreter')", "autograd.detect_anomaly()",
    "autograd.set_detect_anomaly(True)", "capture('interpreter')", "profile('interpreter')",
)  # fmt: skip


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("block", _BLOCKS)
def test_blocks_of_daemon_threads_at_exit_and_after_a_fork(block: str) -> None:
    """Dropped there by other threads, they change nothing of these and print nothing."""
    program = (
        "import os, sys, threading, warnings, vkjit as vk\n"
        "warnings.simplefilter('ignore')  # newer Pythons warn of any fork in a process with threads\n"
        "vk.device('interpreter')\n"
        "inside = threading.Event()\n"
        "def other():\n"
        f"    with vk.{block}:\n"
        "        inside.set(); threading.Event().wait()\n"
        "threading.Thread(target=other, daemon=True).start(); inside.wait()\n"
        "with vk.no_grad(), vk.autocast(vk.bf16), vk.use_device('interpreter'):\n"
        "    child = os.fork()\n"
        "    x = vk.ones(2, 2, requires_grad=True) @ vk.ones(2, 2)\n"
        "    good = not x.requires_grad and x.dtype is vk.bf16 and x.device.name == vk.device('interpreter').name\n"
        "if child:\n"
        "    print(good, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        "sys.exit(0 if child or good else 1)\n"
    )
    done = run(program, setup="")
    assert (done.returncode, done.stdout, done.stderr) == (0, "True 0\n", "")


@pytest.mark.usefixtures("driver")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
def test_a_forked_child_gets_clear_errors_and_exits_cleanly() -> None:
    code = """
    import os, warnings
    warnings.simplefilter("ignore")  # newer Pythons warn of any fork in a process with threads
    stream, event = device.open_stream(), device.open_event()
    event.record(device.stream)
    pid = os.fork()
    if not pid:
        zeros = np.zeros(4, np.uint8)
        acts = [go, device.synchronize, lambda: device.allocate(4), lambda: device.write(a, 0, zeros)]
        acts += [lambda: stream.wait_event(event), event.query, event.synchronize, stream.query]
        for act in (*acts, lambda: kernels.download(device, c), instance.get_instance):
            try:
                act()
                print("no error")
            except errors.DeviceError as error:
                assert "forked" in str(error) and "spawn" in str(error), error
        device.close()
        del a, c
        sys.stdout.flush()
        os._exit(5)  # as multiprocessing does: some drivers crash in exit handlers of their own
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status == 5, status
    assert (kernels.download(device, c) == 2 * np.arange(100)).all()
    """
    done = run(code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.usefixtures("driver")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
def test_a_child_forked_before_use_may_use_devices() -> None:
    code = """
    import os, warnings
    warnings.simplefilter("ignore")
    from vkjit.backends import selection
    pid = os.fork()
    if not pid:
        os._exit(0 if selection.device(0).allocate(4).nbytes == 4 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert selection.device(0).allocate(4).nbytes == 4
    """
    done = run(code, setup="")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_of_a_fork_keeps_the_observers_of_its_thread() -> None:
    program = (
        "import os, threading, numpy as np, vkjit as vk\n"
        "from vkjit.runtime.capture import open_captures\n"
        "x, device = vk.tensor(np.ones(9, np.float32), device='cpu'), vk.device('cpu')\n"
        "inside, go = threading.Event(), threading.Event()\n"
        "def other():\n"
        "    with vk.capture('cpu'):\n"
        "        inside.set(); go.wait()\n"
        "thread = threading.Thread(target=other)\n"
        "thread.start(); inside.wait()\n"
        "with vk.capture('cpu') as graph:\n"
        "    child = os.fork()\n"
        "    count = len(device.observers)\n"
        "    assert len(open_captures) == count\n"
        "    x += 1.0\n"
        "graph.replay()\n"
        "good = x.numpy()[0] == 2 and count == (1 if child == 0 else 2)\n"
        "if child == 0:\n"
        "    os._exit(7 if good and not device.observers else 1)\n"
        "go.set(); thread.join()\n"
        "print(good, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True, timeout=100
    )
    assert done.stdout.strip() == "True 7"


@pytest.mark.usefixtures("driver")
@pytest.mark.skipif(sys.platform == "win32", reason="signals to itself work differently there")
def test_ctrl_c_ends_a_wait() -> None:
    code = """
    import os, signal, threading, time
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background inherits that it is ignored
    timeout = device._vulkan.constant("VK_TIMEOUT")
    def never(*_):
        time.sleep(0.05)
        return timeout
    device.synchronize()
    working = device._queue.functions.vkWaitForFences, device._queue.functions.vkGetFenceStatus
    device._queue.functions.vkWaitForFences = never
    device._queue.functions.vkGetFenceStatus = lambda *_: 1
    go()
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    begin = time.perf_counter()
    try:
        device.synchronize()
    except KeyboardInterrupt:
        print("stopped" if time.perf_counter() - begin < 5 else "late")
    device._queue.functions.vkWaitForFences, device._queue.functions.vkGetFenceStatus = working
    assert (kernels.download(device, c) == 2 * np.arange(100)).all()
    """
    done = run(code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "stopped\n", "")


@pytest.mark.usefixtures("driver")
def test_validation_finds_nothing_in_what_we_do() -> None:
    code = """
    if not instance.get_instance().validating:
        print("absent")
        sys.exit()
    k = device.load(kernels.add(indirect=True))
    r = device.load(kernels.report())
    for _ in range(300):
        go()
        block = kernels.BLOCK.pack(a.address, c.address, a.address, 100)
        device.launch(LaunchRequest(k, (1, 1, 1), block, (a, c), (a,)))
    device.launch(LaunchRequest(r, (1, 1, 1), kernels.BLOCK.pack(0, 0, 0, 9), (), ()))
    device.copy(a, 0, c, 4, 100)
    device.fill(a, 0, 400, 7)
    device.time_begin()
    go()
    device.time_end()
    try:
        device.synchronize()
    except errors.BoundsError as error:
        print(error.message)
    del a, c, k, r
    messages = instance.validation_messages()
    device.close()
    instance.get_instance().close()
    print(messages, handles.live_counts())
    """
    done = run(code, VKJIT_VALIDATE="1")
    if done.stdout == "absent\n":
        pytest.skip("the validation layer (vulkan-validationlayers) isn't installed")
    assert (done.returncode, done.stdout) == (0, "index 5 of 9\n[] {}\n"), done.stderr


@pytest.mark.usefixtures("driver")
def test_validation_messages_are_collected() -> None:
    code = """
    if not instance.get_instance().validating:
        print("absent")
        sys.exit()
    info = device._vulkan.struct("VkFenceCreateInfo", flags=0x40)
    out = device._vulkan.ffi.new("VkFence *")
    device._functions.vkCreateFence(device._handle.value, info, device._vulkan.null, out)
    print(len(instance.validation_messages()) > 0)
    """
    done = run(code, VKJIT_VALIDATE="1", **QUIET)
    if done.stdout == "absent\n":
        pytest.skip("the validation layer (vulkan-validationlayers) isn't installed")
    assert done.stdout == "True\n", done.stderr
