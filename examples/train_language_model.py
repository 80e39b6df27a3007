"""Train a small character-level transformer on Python's own documentation and sample text from it.

`python examples/train_language_model.py` trains briefly, `--full` until the samples contain words: minutes on a GPU, or
with a smaller model on a CPU. `--plot FILE` plots the loss (requires matplotlib). The text ships with Python: the topics
of `help()` or, if they aren't installed, docstrings of the standard library.
"""

from __future__ import annotations

import argparse
import math
import time
from typing import Any

import numpy as np
import numpy.typing as npt

import vkjit as vk
from vkjit import nn, optim

Array = npt.NDArray[np.int64]


def load_text() -> str:
    """Return text that is part of every Python installation."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        import builtins

        return "\n".join(str(getattr(builtins, name).__doc__) for name in sorted(dir(builtins)))
    return "\n".join(topics[name] for name in sorted(topics))


class LanguageModel(nn.Module):
    """Characters (N, L) -> logits of the next character at each position (N, L, characters)."""

    def __init__(self, characters: int, context: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.context = context
        self.embed = nn.Embedding(characters, width)
        self.place = nn.Embedding(context, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width))
        self.head = nn.Linear(width, characters)

    def forward(self, x: vk.Tensor) -> Any:
        places = vk.tensor(np.arange(x.shape[1]))
        return self.head(self.layers(self.embed(x) + self.place(places), is_causal=True))


def batch_of(text: Array, size: int, context: int, rng: np.random.Generator) -> tuple[vk.Tensor, vk.Tensor]:
    """Return random sections of the text, and the same sections shifted by one character."""
    starts = rng.integers(0, len(text) - context - 1, size)
    pieces = text[starts[:, None] + np.arange(context + 1)]
    return vk.tensor(pieces[:, :-1]), vk.tensor(pieces[:, 1:])


def sample(
    model: LanguageModel, start: list[int], length: int, temperature: float, rng: np.random.Generator
) -> list[int]:
    """Continue the text by sampling one character at a time, with a softmax temperature."""
    written = list(start)
    model.eval()
    with vk.no_grad():
        for _ in range(length):
            scores = model(vk.tensor(np.array([written[-model.context :]])))[0, -1]
            chances = nn.functional.softmax(scores / temperature, 0).numpy().astype(np.float64)
            written.append(int(rng.choice(len(chances), p=chances / chances.sum())))
    model.train()
    return written


def plot(path: str, losses: Any, entropy: float) -> None:
    """Plot the loss curve and the loss of guessing by frequency."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4))
    axes.plot(losses, linewidth=1)
    axes.axhline(entropy, linestyle="--", label="guessing by frequency")
    axes.set(xlabel="step", ylabel="cross entropy of a character")
    axes.legend()
    figure.savefig(path)


def main(
    steps: int = 12,
    batch: int = 8,
    context: int = 16,
    width: int = 16,
    layers: int = 1,
    length: int = 12,
    seed: int = 0,
    plot_to: str = "",
) -> float:
    """Train, print the loss and a sample, and check that the loss is below that of guessing by frequency, or at least a
    tenth below the initial loss.
    """
    vk.manual_seed(seed)
    rng = np.random.default_rng(seed)
    text = load_text()
    characters = sorted(set(text))
    numbers = {c: i for i, c in enumerate(characters)}
    encoded = np.array([numbers[c] for c in text], np.int64)
    counts = np.bincount(encoded) / len(encoded)
    entropy = float(-(counts * np.log(counts)).sum())
    model = LanguageModel(len(characters), context, width, max(1, width // 32), layers)
    print(f"{len(text):,} characters, {len(characters)} kinds; {nn.summary(model).parameters:,} parameters")
    optimizer = optim.AdamW(model.parameters(), lr=3e-3 if steps > 100 else 2e-2)
    schedule = optim.lr_scheduler.OneCycleLR(optimizer, optimizer.param_groups[0]["lr"], steps, cycle_momentum=False)
    start, losses = time.perf_counter(), []
    for step in range(steps):
        x, y = batch_of(encoded, batch, context, rng)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        optim.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.detach())
        if (step + 1) % max(1, steps // 10) == 0:
            print(f"step {step + 1}: loss {loss.item():.3f}, {time.perf_counter() - start:.1f} s")
    if plot_to:
        plot(plot_to, vk.stack(losses).numpy(), entropy)
    written = sample(model, [numbers["T"]], length, 0.8, rng)
    print(f"(guessing by frequency: {entropy:.3f})\n{''.join(characters[i] for i in written)!r}")
    first, last = losses[0].item(), float(vk.stack(losses[-max(1, steps // 10) :]).mean().item())
    assert math.isfinite(last) and (last < entropy or last < 0.9 * first), (
        f"the loss went from {first:.3f} to {last:.3f}"
    )
    return last


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="train until there are words")
    parser.add_argument("--plot", default="", metavar="FILE", help="draw the loss")
    parser.add_argument("--device", help="number or part of the name")
    options = parser.parse_args()
    if options.device:
        vk.set_default_device(int(options.device) if options.device.isdigit() else options.device)
    if not options.full:
        main(plot_to=options.plot)
    elif vk.default_device().caps.kind in ("cpu", "llvm-cpu", "interpreter"):
        main(steps=1200, batch=32, context=64, width=128, layers=2, length=400, plot_to=options.plot)
    else:
        main(steps=3000, batch=64, context=96, width=192, layers=4, length=400, plot_to=options.plot)
