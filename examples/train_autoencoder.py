"""Train an autoencoder that compresses handwritten digits to a few numbers and reconstructs them.

`python examples/train_autoencoder.py` trains briefly, `--full` to a fifth of the error of the mean image; `--plot FILE`
plots digits, their reconstructions and the loss curve (requires matplotlib).
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import vkjit as vk
from vkjit import data, nn, optim


def make_model(hidden: int, code: int) -> nn.Sequential:
    """(N, 64) -> code -> (N, 64)."""
    return nn.Sequential(
        nn.Linear(64, hidden), nn.SiLU(), nn.Linear(hidden, code),
        nn.Linear(code, hidden), nn.SiLU(), nn.Linear(hidden, 64), nn.Sigmoid(),
    )  # fmt: skip


def drawn(image: Any) -> list[str]:
    """Return an image (64,) as eight lines of text."""
    shades = " .:-=+*#%@"
    return ["".join(shades[min(9, int(v * 10))] * 2 for v in row) for row in np.asarray(image).reshape(8, 8)]


def plot(path: str, images: Any, copies: Any, losses: Any) -> None:
    """Plot digits, their reconstructions and the loss curve."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3))
    rows = [np.concatenate([i.reshape(8, 8) for i in group], 1) for group in (images[:8], copies[:8])]
    axes[0].imshow(np.concatenate(rows), cmap="gray")
    axes[0].set_axis_off()
    axes[1].semilogy(losses)
    axes[1].set(xlabel="step", ylabel="loss")
    figure.savefig(path)


def main(
    epochs: int = 4,
    hidden: int = 64,
    code: int = 16,
    rate: float = 1e-2,
    least: float = 0.8,
    seed: int = 0,
    plot_to: str = "",
) -> float:
    """Train, and check that the test error is less than `least` times that of the mean image."""
    vk.manual_seed(seed)
    digits = data.digits()
    images = digits.arrays[0].reshape(-1, 64)
    train, test = data.split(data.ArrayDataset(images), (0.8, 0.2), seed=seed)
    loader = data.DataLoader(train, 64, shuffle=True, seed=seed, drop_last=True)
    model = make_model(hidden, code)
    optimizer = optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0)
    schedule = optim.lr_scheduler.OneCycleLR(optimizer, rate, epochs * len(loader), cycle_momentum=False)
    losses = []
    for epoch in range(epochs):
        for x in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), x)
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.detach())
        if epoch == 0 or (epoch + 1) % 10 == 0:
            print(f"epoch {epoch + 1}: loss {losses[-1].item():.4f}")
    held_out = np.stack([test[i] for i in range(len(test))])
    with vk.no_grad():
        copies = model(vk.tensor(held_out)).numpy()
    mean_error = float(((held_out - images[train.indices].mean(0)) ** 2).mean())
    error = float(((copies - held_out) ** 2).mean())
    print("\n".join(f"{a}   {b}" for a, b in zip(drawn(held_out[0]), drawn(copies[0]), strict=True)))
    print(f"test error {error:.4f}, {error / mean_error:.0%} of that of the mean image")
    if plot_to:
        plot(plot_to, held_out, copies, vk.stack(losses).numpy())
    assert error < least * mean_error, f"expected less than {least:.0%}"
    return error / mean_error


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="train to a fifth of the mean image's error")
    parser.add_argument("--plot", default="", metavar="FILE", help="write digits, copies and the curve")
    parser.add_argument("--device", help="number or part of the name")
    options = parser.parse_args()
    if options.device:
        vk.set_default_device(int(options.device) if options.device.isdigit() else options.device)
    if options.full:
        main(epochs=60, hidden=128, code=12, rate=5e-3, least=0.2, plot_to=options.plot)
    else:
        main(plot_to=options.plot)
