"""A training resumed from its checkpoint matches an uninterrupted one bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit import data, io, nn, optim

STEPS = 6
"""More than an epoch of the loader, so that an interruption may fall into the second."""


class Run:
    """A complete training state: model with dropout and batch norm, optimizer, schedule, EMA, loader, random state."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        examples = data.ArrayDataset(rng.standard_normal((20, 6)).astype(np.float32), rng.integers(0, 3, 20))
        self.model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.4), nn.Linear(8, 3))
        self.optimizer = optim.AdamW(self.model.parameters(), lr=0.05)
        self.schedule = optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=STEPS)
        self.average = optim.EMA(self.model.parameters(), 0.9)
        self.loader = data.DataLoader(examples, 4, shuffle=True, seed=5, workers=1)

    def parts(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(), "average": self.average.state_dict(),
            "loader": self.loader.state_dict(), "random": vk.get_rng_state(),
        }  # fmt: skip

    def restore(self, found: dict[str, Any]) -> None:
        for name in ("model", "optimizer", "schedule", "average", "loader"):
            getattr(self, name).load_state_dict(found[name])
        vk.set_rng_state(tuple(found["random"]))

    def train(self, steps: int) -> list[float]:
        losses: list[float] = []
        while len(losses) < steps:
            for x, y in self.loader:
                self.optimizer.zero_grad()
                loss = nn.functional.cross_entropy(self.model(x), y)
                loss.backward()
                optim.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                self.schedule.step()
                self.average.update()
                losses.append(loss.item())
                if len(losses) == steps:
                    break
        return losses


def bits(run: Run) -> list[Any]:
    return [t.numpy().tobytes() for t in (*run.model.state_dict().values(), *run.average.averages)]


@pytest.mark.parametrize("stop", [2, 5])
def test_a_resumed_training_gives_the_same_bits(device: Any, tmp_path: Path, stop: int) -> None:
    vk.manual_seed(11)
    unbroken = Run()
    initial = {name: vk.tensor(t) for name, t in unbroken.model.state_dict().items()}
    expected = unbroken.train(STEPS)

    vk.manual_seed(11)
    first = Run()
    assert all((first.model.state_dict()[n].numpy() == t.numpy()).all() for n, t in initial.items())
    found = first.train(stop)
    io.save_checkpoint(tmp_path / "run.safetensors", **first.parts())
    del first

    vk.manual_seed(999)  # another process would have another random state
    second = Run()
    second.restore(io.load_checkpoint(tmp_path / "run.safetensors"))
    found += second.train(STEPS - stop)
    assert found == expected
    assert bits(second) == bits(unbroken)
