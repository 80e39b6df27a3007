"""Train a small convolutional network on scikit-learn's handwritten digits, then save and load its state.

`python examples/train_cnn.py` trains briefly, `--full` to at least 98.5 % test accuracy; both print the accuracy.
`--plot FILE` plots the loss (requires matplotlib).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import vkjit as vk
from vkjit import nn, optim

Array = npt.NDArray[Any]


def make_model(channels: int) -> nn.Sequential:
    """(N, 1, 8, 8) -> (N, 10)."""
    return nn.Sequential(
        nn.Conv2d(1, channels, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(channels, 2 * channels, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(2 * channels * 16, 10),
    )


def load_digits() -> tuple[Array, Array, Array, Array]:
    """Return training and test images (N, 1, 8, 8) from 0 to 1, and their labels; every fifth image is a test image."""
    from sklearn.datasets import load_digits as load

    images, labels = load(return_X_y=True)
    images, labels = (images / 16).astype(np.float32).reshape(-1, 1, 8, 8), labels.astype(np.int64)
    test = np.arange(len(images)) % 5 == 4
    return images[~test], labels[~test], images[test], labels[test]


def batches(x: Array, y: Array, size: int, seed: int, noise: float) -> Iterator[tuple[vk.Tensor, vk.Tensor]]:
    """Yield shuffled batches with added noise of standard deviation `noise`; an incomplete last batch is dropped."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(x))
    for start in range(0, len(x) - size + 1, size):
        chosen = order[start : start + size]
        drawn = rng.standard_normal(x[chosen].shape, np.float32) * np.float32(noise)
        yield vk.tensor(x[chosen] + drawn), vk.tensor(y[chosen])


def tracked(steps: Any, total: int) -> Any:
    """Iterate over the steps, with a progress bar if rich is installed."""
    try:
        from rich.progress import track
    except ImportError:
        return steps
    return track(steps, "training", total, transient=True)


def plot(path: str, losses: Any) -> None:
    """Plot the loss curve."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4))
    axes.semilogy(losses, linewidth=1)
    axes.set(xlabel="step", ylabel="cross entropy of a batch")
    figure.savefig(path)


def accuracy(model: nn.Module, x: Array, y: Array) -> float:
    """Return the accuracy: the fraction of images whose largest logit is at their label."""
    model.eval()
    with vk.no_grad():
        found = model(vk.tensor(x)).argmax(1).numpy()
    model.train()
    return float((found == y).mean())


def train(
    model: nn.Module, x: Array, y: Array, epochs: int, batch: int, rate: float, noise: float, seed: int
) -> list[vk.Tensor]:
    """Train with Adam and a cosine learning-rate schedule; return the losses."""
    optimizer = optim.Adam(model.parameters(), lr=rate)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs, eta_min=rate / 20)
    loss_of = nn.CrossEntropyLoss()
    start, curve = time.perf_counter(), []
    for epoch in range(epochs):
        losses = []
        for images, labels in tracked(batches(x, y, batch, seed + epoch, noise), len(x) // batch):
            optimizer.zero_grad()
            loss = loss_of(model(images), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        schedule.step()
        curve += losses
        print(f"epoch {epoch + 1}: loss {vk.stack(losses).mean().item():.4f}, {time.perf_counter() - start:.1f} s")
    return curve


def main(
    epochs: int = 3,
    channels: int = 4,
    batch: int = 32,
    rate: float = 2e-2,
    noise: float = 0.0,
    seed: int = 0,
    least: float = 0.6,
    images: int | None = 320,
    plot_to: str = "",
) -> float:
    """Train on `images` images (None: all), save and load the state, and check that the accuracy reaches `least`."""
    vk.manual_seed(seed)
    x_train, y_train, x_test, y_test = load_digits()
    model = make_model(channels)
    print(f"{model}\non {vk.default_device().name}")
    losses = train(model, x_train[:images], y_train[:images], epochs, batch, rate, noise, seed)
    if plot_to:
        plot(plot_to, vk.stack(losses).numpy())
    reached = accuracy(model, x_test, y_test)
    print(f"test accuracy {reached:.2%}")
    assert reached >= least, f"expected at least {least:.0%}"

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "digits.safetensors"
        vk.io.save(model.state_dict(), file, metadata={"accuracy": f"{reached:.4f}"})
        copy = make_model(channels)
        copy.load_state_dict(vk.io.load(file))
        assert accuracy(copy, x_test, y_test) == reached
        print(f"the same from {file.name} ({file.stat().st_size} bytes)")
    return reached


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="train to at least 98.5 percent")
    parser.add_argument("--plot", default="", metavar="FILE", help="draw the loss")
    parser.add_argument("--device", help="number or part of the name")
    options = parser.parse_args()
    if options.device:
        vk.set_default_device(int(options.device) if options.device.isdigit() else options.device)
    if options.full:
        main(epochs=20, channels=16, batch=64, rate=1e-2, noise=0.2, least=0.985, images=None, plot_to=options.plot)
    else:
        main(plot_to=options.plot)
