"""Run PyTorch's optimizer samples: `python tests/parity/nn/optimizers.py [NAME...] [--device NAME]`.

PyTorch's `optim_db` lists options of its optimizers. Each sample makes steps in both libraries from the same parameters
with the same gradients, with PyTorch in f64; parameters and states are compared. Halfway, the state is loaded into a
new optimizer. The exit status is 1 if 2 % of the samples or more fail.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[3]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import vkjit as vk  # noqa: E402  # after the change of sys.path
from vkjit import optim  # noqa: E402
from vkjit.stdlib.registry import forcing_class  # noqa: E402

STEPS = 12
SHAPES: tuple[tuple[int, ...], ...] = ((3, 4), (5,), (), (2, 1, 3), (0, 2), (1,), (7,), (4,), (2, 2), (6,))
MAX_FAILURES = 0.02
EPS = 2.0**-24
IMPLEMENTATION_OPTIONS = ("capturable", "differentiable", "foreach", "fused")
"""PyTorch options that select an implementation and don't affect results: left out."""


@dataclass(frozen=True)
class Sample:
    """A set of options of an optimizer."""

    name: str
    options: dict[str, Any]
    about: str

    def __str__(self) -> str:
        return f"{self.name} {self.options} ({self.about})"


def samples(names: list[str]) -> Iterator[Sample]:
    """Yield the samples of the optimizers that vkjit has, each set of options once."""
    from torch.testing._internal.common_optimizers import optim_db

    seen: set[str] = set()
    for info in optim_db:
        name = info.optim_cls.__name__
        if not hasattr(optim, name) or (names and name not in names):
            continue
        for sample in info.optim_inputs_func(device="cpu"):
            options = {k: v for k, v in sample.kwargs.items() if k not in IMPLEMENTATION_OPTIONS}
            for key, value in options.items():
                if type(value).__module__ == "torch":
                    options[key] = float(value)
                elif isinstance(value, tuple):
                    options[key] = tuple(float(v) for v in value)
            made = Sample(name, options, sample.desc)
            text = f"{name}{sorted(options.items(), key=str)}"
            if text not in seen:
                seen.add(text)
                yield made


def missing() -> list[str]:
    """Return the optimizers of PyTorch's list that vkjit lacks."""
    from torch.testing._internal.common_optimizers import optim_db

    names = [info.optim_cls.__name__ for info in optim_db]
    return [name for name in names if not hasattr(optim, name)]


def values(seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype(np.float32) for shape in SHAPES]


def check(sample: Sample) -> None:
    """Run a sample in both libraries; raises AssertionError if they differ."""
    import torch

    ours: list[Any] = [vk.tensor(v, requires_grad=True) for v in values(0)]
    theirs = [torch.tensor(v.astype(np.float64), requires_grad=True) for v in values(0)]
    optimizer: Any = getattr(optim, sample.name)(ours, **sample.options)
    reference: Any = getattr(torch.optim, sample.name)(theirs, **sample.options)
    for step in range(STEPS):
        if step == STEPS // 2:
            second: Any = getattr(optim, sample.name)(ours, **sample.options)
            second.load_state_dict(optimizer.state_dict())
            optimizer = second
        for one, other, gradient in zip(ours, theirs, values(step + 1), strict=True):
            one.grad, other.grad = vk.tensor(gradient), torch.tensor(gradient.astype(np.float64))
        optimizer.step()
        reference.step()
    # A step has about 32 roundings, of values and of a state that may be 16 times as large. Where the root of a mean of
    # squares is small, its relative error matters, which the step size bounds.
    rate = float(optimizer.param_groups[0]["lr"])
    for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        expected = other.detach().numpy()
        size = float(np.abs(expected).max(initial=0)) + 1
        allowed = STEPS * 32 * EPS * (size + 16 * rate)
        np.testing.assert_allclose(one.detach().numpy(), expected, rtol=0, atol=allowed, err_msg=f"parameter {number}")
        for name, value in reference.state[other].items():
            found = optimizer.state[one].get(name)
            if found is None or name == "step":
                continue
            expected = np.asarray(value.detach().numpy() if hasattr(value, "detach") else value)
            mine = np.asarray(found.numpy() if hasattr(found, "numpy") else found)
            size = float(np.abs(expected).max(initial=0)) + 1
            np.testing.assert_allclose(
                mine, expected, rtol=0, atol=STEPS * 32 * EPS * size, err_msg=f"{name} of parameter {number}"
            )


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="optimisers, such as Adam (all where left out)")
    parser.add_argument("--device", default="interpreter", help="number or part of the name")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    vk.set_default_device(int(options.device) if options.device.isdigit() else options.device)
    total = failed = 0
    for sample in samples(options.names):
        for kind in ("gpu", "cpu"):  # several tensors in one launch, and each in its own
            total += 1
            try:
                with forcing_class(kind):
                    check(sample)
            except Exception as error:  # noqa: BLE001  # any error is a failure
                failed += 1
                print(f"FAILED {sample}, as {kind}: {type(error).__name__}: {str(error).strip()[:300]}\n", flush=True)
    print(f"not offered: {', '.join(missing())}")
    print(f"{total} samples on {vk.default_device().name}: {failed} failed, {failed / max(total, 1):.2%}")
    return 0 if total and failed < MAX_FAILURES * total else 1


if __name__ == "__main__":
    sys.exit(main())
