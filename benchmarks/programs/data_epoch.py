"""Measure an epoch over an image folder: decoding alone, computing alone, and both together.

The argument is the approximate ratio of computing to decoding time. Prints a line of JSON with milliseconds for each.
On the CPU device, decoding runs in a separate process, so that it doesn't compete with the launches.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BATCH, BATCHES, EDGE = 8, 40, 256


def make_folder(root: Path) -> str:
    """Write images of four classes and return their format: PNG if Pillow is installed, else PPM."""
    import numpy as np

    rng = np.random.default_rng(0)
    try:
        from PIL import Image
    except ImportError:
        Image = None
    for number in range(BATCH * BATCHES):
        folder = root / f"class{number % 4}"
        folder.mkdir(exist_ok=True)
        smooth = np.cumsum(rng.integers(-3, 4, (EDGE, EDGE, 3)), 1)
        pixels = (smooth + 128).clip(0, 255).astype(np.uint8)
        if Image is None:
            header = f"P6\n{EDGE} {EDGE}\n255\n".encode()
            (folder / f"{number}.ppm").write_bytes(header + pixels.tobytes())
        else:
            Image.fromarray(pixels).save(folder / f"{number}.png")
    return "ppm" if Image is None else "png"


def make_step() -> Callable[[Any, Any], Any]:
    from vkjit import nn, optim

    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(256, 4),
    )  # fmt: skip
    optimizer = optim.SGD(model.parameters(), lr=0.01)

    def step(x: Any, y: Any) -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def milliseconds(work: Callable[[], object], rounds: int = 3) -> float:
    """Return the minimum time of several runs in milliseconds."""
    import vkjit as vk

    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        vk.synchronize()
        times.append(time.perf_counter() - start)
    return min(times) * 1e3


def main(share: float) -> None:
    """Measure and print the times."""
    import vkjit as vk
    from vkjit import data

    with tempfile.TemporaryDirectory() as name:
        kind = make_folder(Path(name))
        images = data.ImageFolder(
            name, transform=data.transforms.Compose(data.transforms.Resize((64, 64)), data.transforms.ToFloat())
        )
        on_host = vk.default_device().caps.kind == "llvm-cpu"
        workers = 1 if on_host else min(4, os.cpu_count() or 1)
        options: Any = {"shuffle": True, "workers": workers, "prefetch": 4, "processes": on_host}
        loader = data.DataLoader(images, BATCH, **options)
        bare = data.DataLoader(images, BATCH, to_device=False, **options)
        step = make_step()
        x, y = next(iter(loader))
        loader.position = 0
        for _ in range(5):
            step(x, y)
        for _ in bare:  # start the worker processes
            pass
        decode = milliseconds(lambda: [None for _ in bare])
        step_time = milliseconds(lambda: [step(x, y) for _ in range(20)]) / 20
        steps = max(1, round(share * decode / BATCHES / step_time))

        def compute() -> None:
            for _ in range(BATCHES * steps):
                step(x, y)

        def epoch() -> None:
            for images, labels in loader:
                for _ in range(steps):
                    step(images, labels)

        times = {"decode": decode, "compute": milliseconds(compute), "epoch": milliseconds(epoch)}
    print(json.dumps({**times, "images": kind, "steps": steps}))


if __name__ == "__main__":
    main(float(sys.argv[1]))
