"""Train a multi-layer perceptron on scikit-learn's handwritten digits.

`python examples/train_mlp.py` trains briefly, `--full` to at least 97 % test accuracy; both print the accuracy.
`--plot FILE` plots the loss (requires matplotlib).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

import vkjit as vk
from vkjit import nn, optim

Array = npt.NDArray[Any]


class MLP(nn.Module):
    """64 pixels -> hidden -> 10 classes."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.first = nn.Linear(64, hidden)
        self.second = nn.Linear(hidden, 10)

    def forward(self, x: vk.Tensor) -> Any:
        return self.second(self.first(x).relu())


def load_digits() -> tuple[Array, Array, Array, Array]:
    """Return training and test images (N, 64) from 0 to 1, and their labels; every fifth image is a test image."""
    from sklearn.datasets import load_digits as load

    images, labels = load(return_X_y=True)
    images, labels = (images / 16).astype(np.float32), labels.astype(np.int64)
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


def main(
    epochs: int = 2,
    hidden: int = 64,
    batch: int = 64,
    rate: float = 1e-2,
    noise: float = 0.0,
    seed: int = 0,
    least: float = 0.7,
    plot_to: str = "",
) -> float:
    """Train, print a line per epoch, and check that the test accuracy reaches `least`."""
    vk.manual_seed(seed)
    x_train, y_train, x_test, y_test = load_digits()
    model = MLP(hidden)
    print(f"{model}\non {vk.default_device().name}")
    optimizer = optim.Adam(model.parameters(), lr=rate)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs, eta_min=rate / 20)
    loss_of = nn.CrossEntropyLoss()
    start, curve = time.perf_counter(), []
    for epoch in range(epochs):
        losses = []
        steps = batches(x_train, y_train, batch, seed + epoch, noise)
        for x, y in tracked(steps, len(x_train) // batch):
            optimizer.zero_grad()
            loss = loss_of(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        schedule.step()
        curve += losses
        print(f"epoch {epoch + 1}: loss {vk.stack(losses).mean().item():.4f}, {time.perf_counter() - start:.1f} s")
    if plot_to:
        plot(plot_to, vk.stack(curve).numpy())
    reached = accuracy(model, x_test, y_test)
    print(f"test accuracy {reached:.2%} after {time.perf_counter() - start:.1f} s")
    assert reached >= least, f"expected at least {least:.0%}"
    return reached


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="train to at least 97 percent")
    parser.add_argument("--plot", default="", metavar="FILE", help="draw the loss")
    parser.add_argument("--device", help="number or part of the name")
    options = parser.parse_args()
    if options.device:
        vk.set_default_device(int(options.device) if options.device.isdigit() else options.device)
    if options.full:
        main(epochs=30, hidden=256, noise=0.3, least=0.97, plot_to=options.plot)
    else:
        main(plot_to=options.plot)
