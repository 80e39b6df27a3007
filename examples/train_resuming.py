"""Interrupt a training and resume it from its checkpoint; the losses are bit-identical to an uninterrupted training.

The checkpoint contains the states of the model, the optimizer, the schedule, the loader and the random generator.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import vkjit as vk
from vkjit import data, io, nn, optim


class Training:
    """A model with dropout, and the complete state of its training."""

    def __init__(self, seed: int, hidden: int) -> None:
        vk.manual_seed(seed)
        digits = data.digits()
        examples = data.ArrayDataset(digits.arrays[0].reshape(-1, 64), digits.arrays[1])
        self.loader = data.DataLoader(examples, 64, shuffle=True, seed=seed, workers=1)
        self.model = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Dropout(0.2), nn.Linear(hidden, 10))
        self.optimizer = optim.AdamW(self.model.parameters(), lr=1e-2)
        self.schedule = optim.lr_scheduler.ExponentialLR(self.optimizer, 0.99)

    def run(self, steps: int) -> list[float]:
        """Train for a number of steps and return the losses."""
        losses: list[float] = []
        while len(losses) < steps:
            for x, y in self.loader:
                self.optimizer.zero_grad()
                loss = nn.functional.cross_entropy(self.model(x), y)
                loss.backward()
                self.optimizer.step()
                self.schedule.step()
                losses.append(loss.item())
                if len(losses) == steps:
                    break
        return losses

    def save(self, path: Path) -> None:
        """Write a checkpoint atomically."""
        io.save_checkpoint(
            path, model=self.model.state_dict(), optimizer=self.optimizer.state_dict(),
            schedule=self.schedule.state_dict(), loader=self.loader.state_dict(), random=vk.get_rng_state(),
        )  # fmt: skip

    def load(self, path: Path) -> None:
        """Resume from a checkpoint."""
        found: dict[str, Any] = io.load_checkpoint(path)
        for name in ("model", "optimizer", "schedule", "loader"):
            getattr(self, name).load_state_dict(found[name])
        vk.set_rng_state(tuple(found["random"]))


def main(steps: int = 12, hidden: int = 16) -> None:
    """Train without and with an interruption, and compare the losses."""
    unbroken = Training(0, hidden).run(steps)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.safetensors"
        first = Training(0, hidden)
        losses = first.run(steps // 2)
        first.save(path)
        del first  # simulates the end of the process
        second = Training(1234, hidden)  # starts with other weights
        second.load(path)
        losses += second.run(steps - steps // 2)
    print(f"unbroken: {unbroken[-1]!r}, resumed: {losses[-1]!r} after {steps} steps")
    assert losses == unbroken, "the resumed training differs from the unbroken one"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="number or part of the name")
    options = parser.parse_args()
    if options.device:
        vk.set_default_device(int(options.device) if options.device.isdigit() else options.device)
    main(steps=60, hidden=64)
