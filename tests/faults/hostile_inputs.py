"""Feed damaged files to every loader and hostile kernels to the compiler, in processes with bounded time and memory.

    python -m tests.faults.hostile_inputs                  # 3,000 mutations of each kind of file, 500 kernels: an hour
    python -m tests.faults.hostile_inputs --only kernels --count 100 --seed 7

A case is right if it ends in a result or in an error of vkjit's within 10 s of processor time and 1 GiB of memory. All
others are listed, with the number by which `--only KIND --first NUMBER --count 1` repeats them; the exit code is then 1.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import importlib.util
import json
import os
import random
import resource
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import vkjit as vk
from tests.faults.hostile_kernels import hostile_kernel
from vkjit import data, nn
from vkjit.autotune import storage
from vkjit.compiler import cache
from vkjit.errors import VkjitError
from vkjit.runtime.artifact import KernelArtifact

SECONDS, WALL_SECONDS = 10.0, 120.0
"""Limits of a case: of processor time, and of time for a process that waits."""
MEMORY = 1 << 30
"""Bytes of address space that a process may take beyond those after its first case."""

_TOKENS = (
    b'"', b"[", b"{", b"}", b",", b"-1", b"0", b"1e999", b"NaN", b"null", b"true", b"\xff\xfe", b"\0" * 8, b"9" * 30,
    b"9" * 5000, b"[" * 3000, b'{"a":' * 3000, b'"__metadata__"', b'"$tensor"', b'"$items"', b'"$tuple"', b'"$number"',
    b"\xff" * 8, b"\x80\x96\x98\0\0\0\0\0", b"2147483648", b"9223372036854775808", b"1_000", b"'", b"\r\n", b";",
)  # fmt: skip


def mutated(rng: random.Random, content: bytes) -> bytes:
    """Return the content with one to four random changes: of bytes, numbers and tokens, cuts and repeated parts."""
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(changed) + 1)
        end = min(len(changed), at + rng.choice((1, 2, 8, 64)))
        kind = rng.randrange(7)
        if kind == 0 and at < len(changed):
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del changed[at:]
        elif kind == 2:
            del changed[at:end]
        elif kind == 3:
            changed[at:end] = rng.choice(_TOKENS)
        elif kind == 4:
            changed[at:at] = rng.choice(_TOKENS)
        elif kind == 5:
            changed[at:at] = changed[at:end] * rng.choice((1, 2, 1000))
        else:
            changed[at:end] = rng.randbytes(end - at)
    return bytes(changed)


@dataclass(frozen=True)
class Kind:
    """A kind of case: `prepare(folder)` makes the valid content, `load(folder, content)` reads a changed one."""

    prepare: Callable[[Path], bytes]
    load: Callable[[Path, bytes], Any]
    sealed: Callable[[bytes], bytes] = bytes
    """Makes the content's checksum right again, for half of the cases."""


def _file(name: str, load: Callable[[Path], Any]) -> Callable[[Path, bytes], Any]:
    def run(folder: Path, content: bytes) -> Any:
        (folder / name).write_bytes(content)
        return load(folder / name)

    return run


def _saved(save: Callable[[Path], None]) -> Callable[[Path], bytes]:
    def prepare(folder: Path) -> bytes:
        save(folder / "valid")
        return (folder / "valid").read_bytes()

    return prepare


def _tensors() -> dict[str, vk.Tensor]:
    return {"a.weight": vk.ones(3, 4), "b": vk.zeros(5, dtype=vk.i64), "empty": vk.ones(0, 2), "c": vk.ones(2).bool()}


def _checkpoint(path: Path) -> None:
    steps = {0: vk.ones(2), 1: {"$odd": float("inf")}}
    vk.io.save_checkpoint(path, model=_tensors(), optimizer={"steps": steps, "betas": (0.9, 0.99)}, epoch=3, note=None)


def _table(_folder: Path) -> bytes:
    return b"a,b,label\n" + b"".join(b'%d,"%d.5",name%d\n' % (i, i, i % 3) for i in range(20))


def _read_table(path: Path) -> None:
    for label, header in ((None, True), ("label", True), (-1, False)):
        try:
            data.csv(path, label, header=header)
        except VkjitError:
            continue


_IDX = bytes([0, 0, 8, 3]) + b"".join(n.to_bytes(4, "big") for n in (4, 5, 6)) + bytes(range(120))


def _read_mnist(folder: Path, content: bytes) -> Any:
    (folder / "train-images-idx3-ubyte").write_bytes(content)
    (folder / "train-labels-idx1-ubyte").write_bytes(b"\0\0\x08\1\0\0\0\4\0\1\2\3")
    return data.mnist(folder)


_KEY = "ab" * 32


def _artifact(_folder: Path) -> bytes:
    kernel = vk.kernel(over="x")(_doubled)
    kernel(vk.ones(4, dtype=vk.i32))
    found = [plan.plan.artifact for plan in kernel._plans.values()]
    fields = {
        name: getattr(found[0], name) for name in ("fields", "block_size", "reads", "writes", "sites", "local_size")
    }
    return cache._encode(KernelArtifact(name="k", code=b"code" * 9, entry="main", indirect=False, **fields), _KEY)


def _doubled(x: vk.InOut[vk.i32, "N"]) -> None:  # noqa: F722,F821
    x[vk.global_id(0)] *= 2


def _sealed_artifact(content: bytes) -> bytes:
    start = len(cache.MAGIC) + 32
    return content[: len(cache.MAGIC)] + hashlib.sha256(content[start:]).digest() + content[start:]


def _record(_folder: Path) -> bytes:
    row = storage.Row("tile=64", 1e-3, "")
    return storage._encode(storage.Record("k", "key", "device", "driver", (row,)))


def _sealed_record(content: bytes) -> bytes:
    try:
        document = json.loads(content)
        text = json.dumps(document["record"], sort_keys=True)
        document["sha256"] = hashlib.sha256(text.encode()).hexdigest()
        return json.dumps(document).encode()
    except (ValueError, KeyError, TypeError, RecursionError):
        return content


def _read_record(folder: Path, content: bytes) -> None:
    storage._decode(content)
    (folder / "exported").write_bytes(b'{"format": %d, "records": [%b]}' % (storage.FORMAT, content))
    storage.read_exported(folder / "exported")


def _run_kernel(folder: Path, content: bytes) -> None:
    path = folder / f"kernel_{hashlib.sha256(content).hexdigest()[:16]}.py"
    path.write_bytes(content)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        compile(content, path, "exec")
    except (SyntaxError, RecursionError, MemoryError, ValueError):
        return  # Python itself refuses it
    spec.loader.exec_module(module)
    values = vk.arange(8, dtype=vk.i32)
    module.hostile(values)
    values.tolist()


KINDS: dict[str, Kind] = {
    "safetensors": Kind(_saved(lambda path: vk.io.save(_tensors(), path, {"note": "x"})), _file("s", vk.io.load)),
    "checkpoint": Kind(_saved(_checkpoint), _file("c", vk.io.load_checkpoint)),
    "model": Kind(
        _saved(lambda path: vk.io.save_model(path, nn.Sequential(nn.Linear(3, 2), nn.ReLU()))),
        _file("m", vk.io.load_model),
    ),
    "csv": Kind(_table, _file("t.csv", _read_table)),
    "mnist": Kind(lambda _: _IDX, _read_mnist),
    "mnist_gzip": Kind(lambda _: gzip.compress(_IDX, mtime=0), _read_mnist),
    "cache": Kind(_artifact, lambda _, content: cache._decode(content, _KEY), _sealed_artifact),
    "tune": Kind(_record, _read_record, _sealed_record),
}


def content_of(name: str, valid: bytes, seed: int, number: int) -> bytes:
    """Return the content of a case, which depends on its kind, the seed and its number alone."""
    rng = random.Random(f"{name}/{seed}/{number}")
    if name == "kernels":
        return hostile_kernel(rng).encode()
    changed = mutated(rng, valid)
    return KINDS[name].sealed(changed) if rng.random() < 0.5 else changed


def work(name: str, seed: int, first: int, count: int) -> None:
    """Run cases, and print a line before and after each: the part of the process that may be killed."""
    devices = [info.index for info in vk.devices()]
    with tempfile.TemporaryDirectory() as text, vk.use_device("interpreter"):
        folder = Path(text)
        valid = b"" if name == "kernels" else KINDS[name].prepare(folder)
        if name == "kernels":
            for device in devices:  # drivers and LLVM are loaded before memory is counted
                with vk.use_device(vk.device(device)):
                    (vk.ones(3) + 1).tolist()
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
        for number in range(first, first + count):
            print(f"start {number}", flush=True)
            content = content_of(name, valid, seed, number)
            try:
                if name == "kernels":
                    with vk.use_device(vk.device(devices[number % len(devices)])):
                        _run_kernel(folder, content)
                else:
                    KINDS[name].load(folder, content)
            except VkjitError as error:
                outcome = "refused" if len(str(error)) < 20_000 else f"bad a message of {len(str(error))} characters"
            except BaseException as error:  # noqa: BLE001  # that is what is searched for
                outcome = f"bad {type(error).__name__}: {str(error)[:200]!r}"
            else:
                outcome = "accepted"
            print(f"done {number} {outcome}", flush=True)


@dataclass
class Found:
    """The outcome of a run: numbers of cases, and the failures as lines of text."""

    accepted: int = 0
    refused: int = 0
    failures: tuple[str, ...] = ()

    def fail(self, line: str) -> None:
        self.failures += (line,)
        print(f"  {line}", flush=True)


def search(name: str, count: int, seed: int = 0, first: int = 0) -> Found:
    """Run cases of a kind in processes of their own; a process that is too slow or dies is replaced."""
    found, number, end = Found(), first, first + count
    while number < end:
        command = [sys.executable, "-m", "tests.faults.hostile_inputs", "--work", name, str(seed), str(number)]
        process = subprocess.Popen([*command, str(end - number)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        failure = ""
        running, started, before = -1, time.monotonic(), 0.0
        assert process.stdout is not None
        selector = selectors.DefaultSelector()
        selector.register(process.stdout, selectors.EVENT_READ)
        rest = b""
        os.set_blocking(process.stdout.fileno(), False)
        while not failure:
            if selector.select(1.0):
                part = process.stdout.read()
                if part == b"":  # the process has ended
                    failure = "" if process.wait() == 0 else f"the process ended with {process.returncode}"
                    break
                *lines, rest = (rest + (part or b"")).split(b"\n")
                for line in lines:
                    word, told, *outcome = line.decode(errors="replace").split(" ", 2)
                    if word == "start":
                        running, started, before = int(told), time.monotonic(), _processor_time(process.pid)
                    elif word == "done":
                        number, running = int(told) + 1, -1
                        found.accepted += outcome[0] == "accepted"
                        found.refused += outcome[0] == "refused"
                        if outcome[0].startswith("bad"):
                            found.fail(f"{name} {told}: {outcome[0][4:]}")
            elif running >= 0:
                slow = _processor_time(process.pid) - before > SECONDS
                failure = f"more than {SECONDS:.0f} s of processor time" if slow else ""
                if time.monotonic() - started > WALL_SECONDS and not slow:
                    failure = f"no end after {WALL_SECONDS:.0f} s"
        process.kill()
        process.wait()
        process.stdout.close()
        selector.close()
        if failure:
            found.fail(f"{name} {max(running, number)}: {failure}")
            number = max(running, number) + 1
    return found


def _processor_time(pid: int) -> float:
    """Return the processor time of a process in seconds; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
        return 0
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", choices=[*KINDS, "kernels"], help="cases of this kind only")
    parser.add_argument("--count", type=int, help="number of cases of each kind (default: 3,000 files, 500 kernels)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    options = parser.parse_args()
    failures: list[str] = []
    for name in [options.only] if options.only else [*KINDS, "kernels"]:
        count = options.count or (500 if name == "kernels" else 3000)
        found = search(name, count, options.seed, options.first)
        print(f"{name}: {found.accepted} accepted, {found.refused} refused, {len(found.failures)} wrong", flush=True)
        failures += found.failures
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
