"""Compare training curves with PyTorch's.

    python tests/parity/nn/curves.py [--steps 200] [--device NAME] [--model NAME] [--memory]

An MLP, a CNN and a transformer start from PyTorch's weights and see the same batches. PyTorch trains in f64 and in f32.
The losses may differ from the f64 losses by FACTOR times as much as PyTorch's own f32 losses do, plus a floor for
rounding: two f32 trainings drift apart, and by how much depends on the problem, not the library. Each training also
runs twice from one seed, and all parameters must match bit for bit. --memory runs 1,000 steps and checks that memory
use doesn't grow.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[3]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import vkjit as vk  # noqa: E402  # after the change of sys.path

FACTOR = 8.0
FLOOR = 2.0**-24 * 256
"""A loss is a mean over a batch of sums of up to a few hundred terms."""


def mlp(library: Any) -> Any:
    nn = library.nn
    return nn.Sequential(nn.Linear(64, 32), nn.GELU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 10))


def cnn(library: Any) -> Any:
    nn = library.nn
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 8, 3, padding=1),
        nn.ReLU(), nn.Flatten(), nn.Linear(128, 10),
    )  # fmt: skip


def transformer(library: Any) -> Any:
    """Return a transformer that takes the rows of an image as a sequence."""

    class Model(library.nn.Module):  # type: ignore[misc]  # from either library
        def __init__(self) -> None:
            super().__init__()
            self.embed = library.nn.Linear(8, 16)
            layer = library.nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True, norm_first=True)
            self.layers = library.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.head = library.nn.Linear(16, 10)

        def forward(self, x: Any) -> Any:
            return self.head(self.layers(self.embed(x)).mean(1))

    return Model()


MODELS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "MLP": (mlp, (64,)),
    "CNN": (cnn, (1, 8, 8)),
    "transformer": (transformer, (8, 8)),
}


def batches(shape: tuple[int, ...], steps: int, size: int = 32) -> list[tuple[Any, Any]]:
    """Return batches of noisy images of ten patterns, with their labels."""
    rng = np.random.default_rng(7)
    patterns = rng.standard_normal((10, *shape))
    result = []
    for _ in range(steps):
        labels = rng.integers(0, 10, size)
        result.append((patterns[labels] + rng.standard_normal((size, *shape)), labels))
    return result


def train(library: Any, model: Any, data: list[tuple[Any, Any]], place: Callable[[Any], Any]) -> Any:
    """Return the losses of a training; `place` converts arrays to tensors."""
    optimizer = library.optim.AdamW(model.parameters(), lr=3e-3)
    loss_of = library.nn.CrossEntropyLoss()
    losses = []
    for x, y in data:
        optimizer.zero_grad()
        loss = loss_of(model(place(x)), place(y))
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return np.array([loss.item() for loss in losses])


def ours(name: str, state: Any, data: list[tuple[Any, Any]]) -> tuple[Any, list[Any]]:
    """Return the losses of vkjit's training, and the final parameters."""
    vk.manual_seed(0)
    model = MODELS[name][0](vk)
    model.load_state_dict(state)
    losses = train(vk, model, data, lambda a: vk.tensor(a.astype(np.float32) if a.dtype == np.float64 else a))
    return losses, [p.detach().numpy() for p in model.parameters()]


def compare(name: str, steps: int) -> tuple[float, float, float]:
    """Return the largest difference to PyTorch in f64, its bound, and the last loss; raises AssertionError."""
    import torch

    make, shape = MODELS[name]
    data = batches(shape, steps)
    torch.manual_seed(0)
    theirs = make(torch)
    state = {key: value.clone() for key, value in theirs.state_dict().items()}
    single = train(torch, theirs, data, lambda a: torch.tensor(a.astype(np.float32) if a.dtype == np.float64 else a))
    wide = make(torch).double()
    wide.load_state_dict(state)
    exact = train(torch, wide, data, torch.tensor)
    found, parameters = ours(name, state, data)
    _, again = ours(name, state, data)
    for one, other in zip(parameters, again, strict=True):
        np.testing.assert_array_equal(one, other, err_msg=f"{name}: two trainings from one seed differ")
    # drift grows with the steps: the bound at a step is the drift of PyTorch's f32 training up to then
    drift = np.maximum.accumulate(np.abs(single - exact))
    allowed = FACTOR * drift + FLOOR * (1 + np.abs(exact))
    difference = np.abs(found - exact)
    worst = int(np.argmax(difference / allowed))
    assert (difference <= allowed).all(), (
        f"{name}: the loss of step {worst} is {found[worst]}, in f64 {exact[worst]}, in PyTorch's f32 {single[worst]}"
    )
    return float(difference[worst]), float(allowed[worst]), float(found[-1])


def check_memory(name: str, steps: int) -> tuple[int, int]:
    """Return the bytes in use after a few steps, and the peak; raises AssertionError if usage grows later."""
    make, shape = MODELS[name]
    data = batches(shape, 20)
    vk.manual_seed(0)
    model = make(vk)
    optimizer = vk.optim.AdamW(model.parameters(), lr=1e-3)
    device = vk.default_device()
    in_use = []
    for step in range(steps):
        x, y = data[step % len(data)]
        optimizer.zero_grad()
        vk.nn.functional.cross_entropy(model(vk.tensor(x.astype(np.float32))), vk.tensor(y)).backward()
        optimizer.step()
        if step in (9, steps - 1):
            optimizer.zero_grad()
            device.synchronize()
            in_use.append(device.memory_stats()["allocated"])
    assert in_use[0] == in_use[1], f"{name}: {in_use[0]} bytes in use after 10 steps, {in_use[1]} after {steps}"
    return in_use[0], device.memory_stats()["peak"]


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--device", help="number or part of the name")
    parser.add_argument(
        "--model", choices=list(MODELS), help="this one alone; the transformer takes the most time by far"
    )
    parser.add_argument("--memory", action="store_true", help="1,000 steps, whose memory must stay")
    options = parser.parse_args(arguments)
    if options.device:
        vk.set_default_device(int(options.device) if options.device.isdigit() else options.device)
    print(f"{options.steps} steps on {vk.default_device().name}")
    failed = 0
    for name in [options.model] if options.model else MODELS:
        started = time.perf_counter()
        try:
            difference, allowed, last = compare(name, options.steps)
            print(
                f"{name}: loss {last:.4f}, differs by at most {difference:.2e} (allowed there {allowed:.2e}); same bits twice"
            )
            if options.memory:
                in_use, peak = check_memory(name, 1000)
                print(f"{name}: {in_use:,} bytes in use after 10 and after 1,000 steps, peak {peak:,}")
        except AssertionError as error:
            failed += 1
            print(f"FAILED {error}")
        print(f"{name}: {time.perf_counter() - started:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
