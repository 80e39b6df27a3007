"""Part 2 of the demo: train a small convolutional network on scikit-learn's handwritten digits.

Every fifth of the 1,797 images is held out for testing. On the reference interpreter, the network is smaller, training
has fewer epochs and the required accuracy is lower, so that the demo stays short.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import vkjit as vk
from vkjit import nn, optim
from vkjit.backends.selection import default_device
from vkjit.errors import ArgumentError

from .report import Report

__all__ = ["Budget", "load_digits", "run"]

Array = npt.NDArray[Any]
SEED = 0
BARS = "▁▂▃▄▅▆▇█"
"""Characters of `sparkline`, by height."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Size of the network and length of the training.

    - `channels`: the number of output channels of the first convolution.
    - `batch`: the number of images per step.
    - `epochs`: the number of passes over the training images.
    - `min_accuracy`: the accuracy on the test images that the demo requires.
    """

    channels: int
    batch: int
    epochs: int
    min_accuracy: float


FULL = Budget(channels=8, batch=64, epochs=9, min_accuracy=0.97)
"""The budget on real devices."""
SMALL = Budget(channels=4, batch=32, epochs=3, min_accuracy=0.90)
"""The budget on the reference interpreter."""


def load_digits() -> tuple[Array, Array, Array, Array]:
    """Return the training images, their labels, the test images, and their labels.

    Images have the shape (N, 1, 8, 8) and values from 0 to 1.
    """
    try:
        from sklearn.datasets import load_digits as load
    except ImportError:
        raise ArgumentError("the demo's digits come with scikit-learn: pip install 'vkjit[demo]'") from None
    images, labels = load(return_X_y=True)
    images = (images / 16).astype(np.float32).reshape(-1, 1, 8, 8)  # the gray values are 0 to 16
    labels = labels.astype(np.int64)
    test = np.arange(len(images)) % 5 == 4
    return images[~test], labels[~test], images[test], labels[test]


def make_model(channels: int) -> nn.Sequential:
    """Return the network: (N, 1, 8, 8) -> (N, 10)."""
    return nn.Sequential(
        nn.Conv2d(1, channels, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(channels, 2 * channels, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(2 * channels * 4 * 4, 10),  # the pooling leaves 4 x 4 pixels
    )


def batches(x: Array, y: Array, budget: Budget) -> Iterator[tuple[int, vk.Tensor, vk.Tensor]]:
    """Yield each epoch's shuffled batches with the epoch number; the last, partial batch is dropped."""
    for epoch in range(budget.epochs):
        order = np.random.default_rng(SEED + epoch).permutation(len(x))
        for start in range(0, len(x) - budget.batch + 1, budget.batch):
            chosen = order[start : start + budget.batch]
            yield epoch, vk.tensor(x[chosen]), vk.tensor(y[chosen])


def train(report: Report, model: nn.Module, x: Array, y: Array, budget: Budget) -> Array:
    """Train with a progress bar and return the loss of every step."""
    optimizer = optim.Adam(model.parameters(), lr=2e-2)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=budget.epochs, eta_min=1e-3)
    loss_of = nn.CrossEntropyLoss()
    losses: list[vk.Tensor] = []
    total = budget.epochs * (len(x) // budget.batch)
    for epoch, images, labels in report.progress(batches(x, y, budget), total, "training"):
        if epoch != schedule.last_epoch:  # the first batch of a new epoch
            schedule.step()
        optimizer.zero_grad()
        loss = loss_of(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        if len(losses) % 16 == 0:
            losses[-1].item()  # synchronize, so that the progress bar shows completed steps, not queued ones
    return np.asarray(vk.stack(losses).numpy())


def accuracy(model: nn.Module, x: Array, y: Array) -> float:
    """Return the fraction of images that the model classifies correctly."""
    model.eval()
    with vk.no_grad():
        predicted = model(vk.tensor(x)).argmax(1).numpy()
    return float((predicted == y).mean())


def sparkline(values: Array, width: int = 60) -> str:
    """Draw positive values on a logarithmic scale, as a line of up to `width` bars of eight heights.

    Each bar shows the mean logarithm of an equal share of consecutive values.
    """
    logarithms = np.log(np.maximum(values, 1e-6))  # a loss may be rounded to 0
    parts = np.array_split(logarithms, min(width, len(values)))
    means = np.array([part.mean() for part in parts])
    spread = float(means.max() - means.min()) or 1.0  # if all are equal, any divisor will do
    heights = np.minimum((means - means.min()) / spread * len(BARS), len(BARS) - 1).astype(int)
    return "".join(BARS[height] for height in heights)


def plot(losses: Array, steps_per_epoch: int, file: Path) -> bool:
    """Plot the loss of each step to an image file. Returns False if matplotlib isn't installed."""
    with contextlib.suppress(ImportError):
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7, 4), layout="constrained")
        axes = figure.subplots()
        axes.semilogy(np.arange(1, len(losses) + 1) / steps_per_epoch, losses, linewidth=1)
        axes.set(xlabel="epoch", ylabel="cross entropy of a batch", title="A small CNN learns handwritten digits")
        axes.grid(alpha=0.3)
        figure.savefig(file, dpi=120)
        return True
    return False


def run(report: Report, arguments: argparse.Namespace) -> None:
    """Train the network, check its accuracy on the test images, and plot the loss to the output folder."""
    is_interpreter = default_device().caps.kind == "interpreter"
    budget = SMALL if is_interpreter else FULL
    x_train, y_train, x_test, y_test = load_digits()
    report.title(f"A small CNN learns {len(x_train)} handwritten digits, {budget.epochs} times over")
    if is_interpreter:
        report.line("  a smaller network and fewer epochs, because this is the reference interpreter")
    vk.manual_seed(SEED)
    model = make_model(budget.channels)
    report.line(f"  {sum(p.numel() for p in model.parameters())} parameters, batches of {budget.batch}")
    start = time.perf_counter()
    losses = train(report, model, x_train, y_train, budget)
    seconds = time.perf_counter() - start
    report.line(f"  loss {losses[0]:.3f} {sparkline(losses)} {losses[-1]:.3f}")
    report.line(
        f"  {len(losses)} steps in {seconds:.1f} s with compilation, {seconds / len(losses) * 1e3:.1f} ms per step"
    )
    _show_digits(report, model, x_test, y_test)
    reached = accuracy(model, x_test, y_test)
    detail = f"{reached:.2%} of {len(x_test)} unseen digits, expected at least {budget.min_accuracy:.0%}"
    report.check("test accuracy", reached >= budget.min_accuracy, detail)
    if plot(losses, len(losses) // budget.epochs, arguments.out / "loss.png"):
        report.line(f"  wrote loss.png to {arguments.out}")


def _show_digits(report: Report, model: nn.Module, images: Array, labels: Array, count: int = 6) -> None:
    """Print the first `count` test images as text, with their predicted labels."""
    shades = " .:*#@"  # characters for gray values from 0 to 1
    with vk.no_grad():
        predicted: Sequence[int] = model(vk.tensor(images[:count])).argmax(1).tolist()

    def shade(gray: float) -> str:
        """Return the character for a gray value from 0 to 1, twice, since characters are higher than wide."""
        return shades[min(int(gray * len(shades)), len(shades) - 1)] * 2

    for row in range(8):
        cells = ("".join(shade(gray) for gray in image[0, row]) for image in images[:count])
        report.line("    " + "  ".join(cells))
    names = [
        f"{digit}" if digit == label else f"{digit} (is {label})"
        for digit, label in zip(predicted, labels, strict=False)
    ]
    report.line("    " + "  ".join(name.ljust(16) for name in names))
