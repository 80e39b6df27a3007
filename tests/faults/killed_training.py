"""Kill and resume a training run: `python -m tests.faults.killed_training [--device NAME] [--steps 1000] [--kills 8]`.

A process trains a small network and writes a checkpoint every few steps. It is killed (SIGKILL) at random moments, also
in the middle of writing a checkpoint, and restarted each time. The last loss and the bits of model, optimizer and
averages must equal those of an uninterrupted process; the exit status is 1 if they don't.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
WRITING = "writing"
"""Printed by the training process when it pauses in the middle of writing a file."""
EVERY = 5
"""Number of steps between checkpoints."""


# -- the training process


class Training:
    """A network with dropout and batch statistics, with all state needed to resume its training."""

    def __init__(self) -> None:
        import numpy as np

        import vkjit as vk
        from vkjit import data, nn, optim

        vk.manual_seed(7)
        rng = np.random.default_rng(0)
        examples = data.ArrayDataset(rng.standard_normal((40, 6)).astype(np.float32), rng.integers(0, 3, 40))
        self.model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.4), nn.Linear(8, 3))
        self.optimizer = optim.AdamW(self.model.parameters(), lr=0.02)
        self.schedule = optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=50)
        self.average = optim.EMA(self.model.parameters(), 0.9)
        self.loader = data.DataLoader(examples, 8, shuffle=True, seed=5, workers=1)
        self.done, self.loss = 0, 0.0

    def step(self, x: Any, y: Any) -> None:
        from vkjit import nn

        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        self.average.update()
        self.done, self.loss = self.done + 1, loss.item()

    def parts(self) -> dict[str, Any]:
        import vkjit as vk

        parts = ("model", "optimizer", "schedule", "average", "loader")
        states = {name: getattr(self, name).state_dict() for name in parts}
        return {**states, "random": vk.get_rng_state(), "done": self.done, "loss": self.loss}

    def restore(self, found: dict[str, Any]) -> None:
        import vkjit as vk

        for name in ("model", "optimizer", "schedule", "average", "loader"):
            getattr(self, name).load_state_dict(found[name])
        vk.set_rng_state(tuple(found["random"]))
        self.done, self.loss = found["done"], found["loss"]

    def digest(self) -> str:
        """Return a hash of the last loss and of the complete training state."""
        whole = hashlib.sha256(repr(self.loss).encode())

        def add(value: Any) -> None:
            if isinstance(value, dict):
                for key in value:
                    whole.update(str(key).encode())
                    add(value[key])
            elif isinstance(value, (list, tuple)):
                for item in value:
                    add(item)
            else:
                whole.update(value.numpy().tobytes() if hasattr(value, "numpy") else repr(value).encode())

        add(self.parts())
        return whole.hexdigest()


class _Stopping:
    """A file that pauses the process after a number of bytes has been written."""

    def __init__(self, file: Any, after: int) -> None:
        self.file, self.left = file, after

    def __enter__(self) -> _Stopping:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def write(self, data: bytes) -> None:
        self.file.write(data[: self.left])
        self.left -= len(data)
        if self.left < 0:
            self.file.flush()
            print(WRITING, flush=True)
            time.sleep(3600)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def train(path: Path, steps: int, every: int, stop_at: int, after: int) -> None:
    """Train up to `steps`, resuming from any checkpoint; pause `after` bytes into the checkpoint of step `stop_at`."""
    from vkjit import files, io

    training = Training()
    if path.exists():
        training.restore(io.load_checkpoint(path))
    while training.done < steps:
        for x, y in training.loader:
            training.step(x, y)
            print(f"step {training.done}", flush=True)
            if training.done % every == 0:
                if training.done == stop_at:
                    vars(files)["open"] = lambda *a, **k: _Stopping(open(*a, **k), after)
                io.save_checkpoint(path, **training.parts())
            if training.done == steps:
                break
    print(f"digest {training.digest()}", flush=True)


# -- the parent process


def start(path: Path, device: str, steps: int, every: int, stop_at: int = 0, after: int = 0) -> subprocess.Popen[str]:
    """Start a training process."""
    arguments = [str(path), str(steps), str(every), str(stop_at), str(after)]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.faults.killed_training", "--train", *arguments],
        cwd=ROOT, env={**os.environ, "VKJIT_DEVICE": device}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def follow(process: subprocess.Popen[str], until: str = "", pause: float = 0.0) -> list[str]:
    """Return the lines that a process prints, up to `until`, after which it is killed with a delay, or to its end.

    Raises AssertionError if the process fails.
    """
    assert process.stdout is not None
    lines: list[str] = []
    with process:
        for line in process.stdout:
            lines.append(line.strip())
            if lines[-1] == until:
                time.sleep(pause)
                process.kill()
                return lines
    assert process.returncode == 0, f"the training ended with {process.returncode} after {lines[-1:]}"
    assert not until, f"the training never said {until!r}: it ended with {lines[-1:]}"
    return lines


def digest_of(lines: list[str]) -> str:
    """Return the digest printed by a training process that ran to its end."""
    return next(line.split()[1] for line in lines if line.startswith("digest "))


def killed_at_random(path: Path, device: str, steps: int, kills: int, seed: int) -> str:
    """Return the digest of a training killed `kills` times, alternately after a step and in the middle of a file."""
    rng = random.Random(seed)
    for kill in range(kills):
        reached = (kill + 1) * steps // (kills + 1) // EVERY * EVERY
        if kill % 2:
            process = start(path, device, steps, EVERY, reached, rng.randrange(1, 4000))
            follow(process, WRITING)
        else:
            follow(start(path, device, steps, EVERY), f"step {reached}", rng.random() / 20)
        print(f"killed at step {reached}{', in the middle of a file' if kill % 2 else ''}", flush=True)
    return digest_of(follow(start(path, device, steps, EVERY)))


def main() -> int:
    """Run the command and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="interpreter", help="number or part of the name")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--train", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        train(Path(options.train[0]), *map(int, options.train[1:]))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        unbroken = digest_of(follow(start(Path(folder) / "unbroken.safetensors", options.device, options.steps, EVERY)))
        killed = killed_at_random(
            Path(folder) / "killed.safetensors", options.device, options.steps, options.kills, options.seed
        )
    print(f"{options.steps} steps, {options.kills} kills: {'the same bits' if unbroken == killed else 'OTHER BITS'}")
    return 0 if unbroken == killed else 1


if __name__ == "__main__":
    sys.exit(main())
