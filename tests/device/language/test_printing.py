# mypy: disable-error-code="arg-type, assignment, attr-defined, call-arg, no-untyped-call, valid-type, operator"
"""`print` in kernels, on every executor: text, order, formats, buffer size."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit.backends.vulkan.runtime.device import VulkanDevice

Captured = pytest.CaptureFixture[str]


@vk.kernel(over="x")
def shows(x: vk.In[vk.f32, "N"]):
    i = vk.global_id(0)
    if i % 2 == 0:
        print("at", i, end=": ")
        print(f"{x[i]:.2f}|{i:>3}|{x[i] > 1}", f"{{{vk.i32(x[i])}}}")


def test_lines_come_in_order(device: Any, capsys: Captured) -> None:
    shows(np.arange(5, dtype=np.float32) / 2)
    expected = "".join(f"at {i}: {i / 2:.2f}|{i:>3}|{i / 2 > 1} {{{i // 2}}}\n" for i in (0, 2, 4))
    assert capsys.readouterr().out == expected


@vk.kernel(groups=(2, 2), local=(2, 2))
def ids(x: vk.In[vk.i32, "N"]):
    print(vk.group_id(1), vk.group_id(0), vk.local_id(1), vk.local_id(0), x[0])


def test_invocations_of_a_workgroup_stay_together(device: Any, capsys: Captured) -> None:
    ids(np.zeros(1, np.int32))
    rows = [f"{gy} {gx} {y} {x} 0\n" for gy in range(2) for gx in range(2) for y in range(2) for x in range(2)]
    assert capsys.readouterr().out == "".join(rows)


@vk.kernel(groups=1, local=1)
def kinds(i8: vk.i8, u8: vk.u8, i64: vk.i64, u64: vk.u64, f16: vk.f16, f64: vk.f64, b: vk.boolean):
    v = vk.vec(vk.f32, 3)(1, 2.5, vk.f32(i8))
    print(i8, u8, i64, u64, f16, f64, b, v, (1, i8), "text", 2.5, None, sep="/")
    print()
    print(vk.vec(vk.u8, 2)(u8))


def test_every_type(device: Any, capsys: Captured) -> None:
    kinds(-5, 250, -(2**62), 2**64 - 1, 0.5, 1 / 3, True)
    device.synchronize()
    first = f"-5/250/{-(2**62)}/{2**64 - 1}/0.5/{1 / 3}/True/[1.0, 2.5, -5.0]/(1, -5)/text/2.5/None"
    assert capsys.readouterr().out == f"{first}\n\n[250, 250]\n"


WIDTH = 6


@vk.kernel(over="x")
def formats(x: vk.In[vk.f32, "N"]):
    i = vk.global_id(0)
    print(f"{x[i]:{WIDTH}.{1}f}|{i:04d}|{x[i]!r}|{i=}|{'text'!r}|{x[i]:.1%}|{(i, x[i])}|{vk.i32(i):x}")


def test_formats(device: Any, capsys: Captured) -> None:
    formats(np.array([2.25], np.float32))
    assert capsys.readouterr().out == "   2.2|0000|2.25|i=0|'text'|225.0%|(0, 2.25)|0\n"


@vk.kernel(over="x")
def vectors(x: vk.In[vk.f32, "N"]):
    v = vk.vec(vk.f32, 3)(x[0], 2, 3)
    assert v.y > 5, f"{v} and {v.xy:.2f}, {vk.i32(v)}"


def test_vectors_in_messages(device: Any) -> None:
    with pytest.raises(vk.KernelAssertionError, match=r"\[1\.5, 2\.0, 3\.0\] and \[1\.50, 2\.00\], \[1, 2, 3\]"):
        vectors(np.array([1.5], np.float32))


def test_formats_that_are_for_other_types() -> None:
    @vk.kernel(over="x")
    def wrong(x: vk.In[vk.f32, "N"]):
        print(f"{x[vk.global_id(0)]:d}")

    @vk.kernel(over="x")
    def unknown(x: vk.In[vk.i32, "N"]):
        print(f"{x[0]:{x[0]}}")

    @vk.kernel(over="x")
    def many(x: vk.In[vk.i32, "N"]):
        v = vk.vec(vk.i32, 4)(x[0])
        assert x[0] > 0, f"{v} {v} {v} {v} {v} {v} {v} {v}"

    with pytest.raises(vk.CompileError, match="32 values in one message"):
        vk.check(many)

    @vk.kernel(over="x")
    def wide(x: vk.In[vk.f32, "N"]):
        print(f"{x[0]:>1000000000}")

    @vk.kernel(over="x")
    def precise(x: vk.In[vk.f32, "N"]):
        print(f"{x[0]:.{10**9}f}")

    @vk.kernel(over="x")
    def wide_text(x: vk.In[vk.f32, "N"]):
        print(f"{'word':>1000000000}", x[0])

    for kernel in (wide, precise, wide_text):
        with pytest.raises(vk.CompileError, match="is wider than 1000 characters"):
            vk.check(kernel)
    with pytest.raises(vk.CompileError, match="the format 'd' isn't for vk.f32"):
        vk.check(wrong)
    with pytest.raises(vk.CompileError, match="known at compile time"):
        vk.check(unknown)


@vk.kernel(over="x")
def loops(x: vk.InOut[vk.i32, "N"]):
    i = vk.global_id(0)
    for k in range(3):
        print(f"{i}.{k}")
        x[i] += k
    assert x[i] < 5, f"{x[i]} is too much"


@vk.kernel(over="b")
def unsigned_is_zero(b: vk.In[vk.u64, "N"]) -> None:
    i = vk.global_id(0)
    assert b[i] == 0, f"{b[i]} {b[i] > 0} {b[i]:#x}"


def test_messages_of_asserts_show_unsigned_numbers_and_bools(device: Any) -> None:
    x = vk.tensor(np.array([2**64 - 1], np.uint64), device=device)
    with pytest.raises(vk.KernelAssertionError, match="18446744073709551615 True 0xffffffffffffffff"):
        launch_and_wait(unsigned_is_zero, x)


def launch_and_wait(kernel: Any, x: Any) -> None:
    kernel(x)
    x.device.synchronize()


def test_prints_of_an_invocation_stay_in_order_and_failures_come_after(device: Any, capsys: Captured) -> None:
    x = np.array([1, 1], np.int32)
    loops(x)
    assert capsys.readouterr().out == "0.0\n0.1\n0.2\n1.0\n1.1\n1.2\n"
    x[1] = 9
    with pytest.raises(vk.KernelAssertionError, match="7 is too much"):
        loops(x)
    assert capsys.readouterr().out.count("\n") == 6


@vk.kernel(over="x")
def much(x: vk.In[vk.i32, "N"]):
    print(x[vk.global_id(0)])


def test_what_has_no_room_is_announced(device: Any, capsys: Captured) -> None:
    if device.caps.kind == "interpreter":
        pytest.skip("the interpreter keeps all lines")
    count = 100_000
    much(np.arange(count, dtype=np.int32))
    *lines, last = capsys.readouterr().out.splitlines()
    numbers = [int(line) for line in lines]
    assert len(numbers) > 1000
    assert numbers == sorted(set(numbers))
    assert last == f"[kernel much: {len(numbers)} prints shown, {count - len(numbers)} had no room]"
    much(np.arange(2, dtype=np.int32))
    assert capsys.readouterr().out == "0\n1\n"


def test_launches_follow_each_other(device: Any, capsys: Captured) -> None:
    x = vk.tensor(np.array([1], np.int32), device=device)
    for _ in range(20):
        much(x)
    device.synchronize()
    assert capsys.readouterr().out == "1\n" * 20


IN_A_PROCESS = """
import sys
import vkjit as vk

@vk.kernel(over="x")
def shows(x: vk.In[vk.f32, "N"]):
    i = vk.global_id(0)
    print("at", i, x[i])
    assert x[i] < 1.5, f"{i} holds {x[i]}"

shows(vk.arange(3, dtype=vk.f32, device=sys.argv[1]))
try:
    vk.device(sys.argv[1]).synchronize()
except vk.KernelAssertionError as error:
    print(str(error).splitlines()[0])
"""


def test_a_kernel_that_an_earlier_process_compiled(vkjit_device: Any, tmp_path: Path) -> None:
    file = tmp_path / "shows.py"
    file.write_text(IN_A_PROCESS)
    settings = {**os.environ, "VKJIT_CACHE": "1", "VKJIT_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, str(file), vkjit_device.name]
    first, second = (
        subprocess.run(command, capture_output=True, text=True, check=True, env=settings).stdout for _ in range(2)
    )
    assert first.splitlines()[:3] == ["at 0 0.0", "at 1 1.0", "at 2 2.0"]
    assert "2 holds 2.0" in first.splitlines()[3]
    assert second == first


def test_another_thread_may_wait_while_launches_print(device: Any, capsys: Captured) -> None:
    """A concurrent wait neither prints the output of an unfinished launch nor drops it."""
    x, over, shown = vk.arange(1, dtype=vk.f32), threading.Event(), []

    def wait() -> None:
        while not over.is_set():
            device.synchronize()

    waiting = threading.Thread(target=wait)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        waiting.start()
        for _ in range(200):
            shows(x)
        over.set()
        waiting.join()
        device.synchronize()
    finally:
        over.set()
        sys.setswitchinterval(interval)
    shown += capsys.readouterr().out.splitlines()
    assert shown == ["at 0: 0.00|  0|False {0}"] * 200


def test_an_interrupted_wait_leaves_the_rest_for_the_next(
    device: Any, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vkjit.backends.vulkan.runtime import printing

    usual, calls = printing.printed_text, []

    def interrupted(*arguments: Any) -> str:
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return usual(*arguments)

    x = vk.arange(1, dtype=vk.f32)
    for _ in range(3):
        shows(x)
    monkeypatch.setattr(printing, "printed_text", interrupted)
    if isinstance(device, VulkanDevice):  # other devices have printed the text already, or need no wait
        with pytest.raises(KeyboardInterrupt):
            device.synchronize()
    device.synchronize()
    assert capsys.readouterr().out.splitlines() == ["at 0: 0.00|  0|False {0}"] * 3


NOT_WAITED_FOR = """
import sys
import vkjit as vk

@vk.kernel(over="x")
def shows(x: vk.InOut[vk.i32, "N"]):
    print("element", x[vk.global_id(0)])
    assert x[vk.global_id(0)] < 1, "too large"

shows(vk.arange(2, dtype=vk.i32, device=sys.argv[1]))
"""


def test_what_nobody_waited_for_is_told_at_exit(vkjit_device: Any, tmp_path: Path) -> None:
    file = tmp_path / "shows.py"
    file.write_text(NOT_WAITED_FOR)
    done = subprocess.run([sys.executable, str(file), vkjit_device.name], capture_output=True, text=True, check=True)
    assert done.stdout == "element 0\nelement 1\n"
    assert f"vkjit: at exit, {vkjit_device.name}: KernelAssertionError: " in done.stderr
    assert "too large" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="pipes that nobody reads, and closed ones, are made as on Unix")
@pytest.mark.parametrize("output", ["closed", "unread"])
def test_failures_are_told_where_prints_cannot_be_written(vkjit_device: Any, tmp_path: Path, output: str) -> None:
    file = tmp_path / "shows.py"
    file.write_text(NOT_WAITED_FOR)
    command = [sys.executable, str(file), vkjit_device.name]
    if output == "closed":
        command = ["/bin/sh", "-c", 'exec "$0" "$@" >&-', *command]
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(write)
    assert f"vkjit: at exit, {vkjit_device.name}: KernelAssertionError: " in done.stderr
    assert "too large" in done.stderr and "AttributeError" not in done.stderr


def test_what_was_printed_stays_where_writing_was_interrupted(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line is consumed even if writing it is interrupted; the failure is still raised."""

    class Interrupted(io.StringIO):
        calls = 0

        def write(self, text: str) -> int:
            self.calls += 1
            if self.calls == 1:
                raise KeyboardInterrupt
            return super().write(text)

    monkeypatch.setattr(sys, "stdout", Interrupted())
    fails_and_prints(vk.zeros(4, dtype=vk.i32))
    with pytest.raises(KeyboardInterrupt):
        vk.synchronize()
    with pytest.raises(vk.KernelAssertionError):
        vk.synchronize()
    vk.synchronize()


@vk.kernel(over="x")
def fails_and_prints(x: vk.InOut[vk.i32, "N"]):
    i = vk.global_id(0)
    if i == 0:
        print("first", x[i])
    assert x[i] > 0, "too small"
