"""Fine-tune a network that PyTorch trained on half of the digit classes to the other half, with most layers frozen.

`python examples/train_fine_tuning.py` needs PyTorch for the first part. If PyTorch isn't installed, vkjit trains that
part, and the state is passed through a safetensors file. `--full` reaches at least 95 % on the new classes.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import vkjit as vk
from vkjit import data, nn, optim


def make_model(library: Any, hidden: int, classes: int) -> Any:
    """Return the network (N, 64) -> (N, classes), built with either library."""
    return library.Sequential(
        library.Linear(64, hidden), library.ReLU(), library.Linear(hidden, hidden), library.ReLU(),
        library.Linear(hidden, classes),
    )  # fmt: skip


def train_with_pytorch(x: Any, y: Any, hidden: int, steps: int) -> Any:
    """Train a network on the first five digits with PyTorch and return its state."""
    import torch

    torch.manual_seed(0)
    model = make_model(torch.nn, hidden, 5)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(torch.tensor(x)), torch.tensor(y)).backward()
        optimizer.step()
    return model.state_dict()


def train_here(model: nn.Module, x: Any, y: Any, steps: int, rate: float) -> None:
    """Train the parameters that aren't frozen by full-batch steps."""
    optimizer = optim.Adam([p for p in model.parameters() if p.requires_grad], lr=rate)
    images, labels = vk.tensor(x), vk.tensor(y)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()


def first_state(x: Any, y: Any, hidden: int, steps: int) -> Any:
    """Return the initial state: PyTorch's, or one from a file."""
    try:
        return train_with_pytorch(x, y, hidden, steps)
    except ImportError:
        print("PyTorch isn't installed: the first part is trained here, too")
        model = make_model(nn, hidden, 5)
        train_here(model, x, y, steps, 1e-2)
        path = Path(tempfile.mkdtemp()) / "first.safetensors"
        vk.io.save(model.state_dict(), path)
        return vk.io.load(path)


def main(first_steps: int = 40, steps: int = 30, hidden: int = 32, least: float = 0.6, seed: int = 0) -> float:
    """Train twice, and check the accuracy on the new classes and that the frozen layers are unchanged."""
    vk.manual_seed(seed)
    digits = data.digits()
    x, y = digits.arrays[0].reshape(-1, 64), digits.arrays[1]
    old, test = y < 5, np.arange(len(y)) % 5 == 4
    state = first_state(x[old & ~test], y[old & ~test], hidden, first_steps)
    model = make_model(nn, hidden, 5)
    model.load_state_dict(state)
    model.requires_grad_(False)
    model[4] = nn.Linear(hidden, 5)  # a new head for the new classes
    model[2].requires_grad_()
    print(nn.summary(model, vk.tensor(x[:1])))
    frozen = model[0].weight.numpy()
    train_here(model, x[~old & ~test], y[~old & ~test] - 5, steps, 2e-2)
    assert (model[0].weight.numpy() == frozen).all(), "a frozen layer has changed"
    with vk.no_grad():
        found = model(vk.tensor(x[~old & test])).argmax(1).numpy()
    reached = float((found == y[~old & test] - 5).mean())
    print(f"accuracy on classes that PyTorch's network never saw: {reached:.1%}")
    assert reached >= least, f"expected at least {least:.0%}"
    return reached


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="train to at least 95 percent")
    parser.add_argument("--device", help="number or part of the name")
    options = parser.parse_args()
    if options.device:
        vk.set_default_device(int(options.device) if options.device.isdigit() else options.device)
    if options.full:
        main(first_steps=200, steps=200, hidden=128, least=0.95)
    else:
        main()
