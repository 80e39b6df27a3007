"""Run PyTorch's module samples: `python tests/parity/nn/modules.py [NAME...] [--device NAME]`.

PyTorch's `module_db` lists constructor arguments, inputs and modes of its modules. Each sample runs in both libraries
from the same state, with PyTorch in f64; results, gradients of inputs and parameters, and buffers are compared. The
exit status is 1 if 2 % of the samples or more fail. Modules that vkjit lacks are listed but not counted.
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
from tests.parity.reference import to_numpy  # noqa: E402
from vkjit import nn  # noqa: E402

EPS = 2.0**-24
MAX_FAILURES = 0.02


@dataclass(frozen=True)
class Sample:
    """One sample of a module: constructor arguments, inputs of a call, mode."""

    name: str
    number: int
    training: bool
    made_by: Any
    called_with: Any

    def __str__(self) -> str:
        mode = "training" if self.training else "inference"
        return f"{self.name} sample {self.number}, {mode}, {self.made_by.args} {self.made_by.kwargs}"


def is_tensor(value: Any) -> bool:
    return type(value).__module__ == "torch" and hasattr(value, "detach")


def converted(value: Any, convert: Any) -> Any:
    """Return a tree of arguments with its tensors converted."""
    if isinstance(value, (tuple, list)):
        return type(value)(converted(v, convert) for v in value)
    if isinstance(value, dict):
        return {k: converted(v, convert) for k, v in value.items()}
    if is_tensor(value):
        return convert(value)
    return function_like(value) if convert is to_ours else value


def function_like(value: Any) -> Any:
    """Return vkjit's counterpart of a PyTorch functional activation."""
    name = getattr(value, "__name__", "")
    return getattr(nn.functional, name) if callable(value) and hasattr(nn.functional, name) else value


def to_ours(tensor: Any) -> vk.Tensor:
    return vk.tensor(tensor.detach().numpy(), requires_grad=tensor.requires_grad)


def to_double(tensor: Any) -> Any:
    wide = tensor.detach().double() if tensor.dtype.is_floating_point else tensor.detach()
    return wide.requires_grad_(tensor.requires_grad)


def tensors_in(value: Any) -> Iterator[Any]:
    """Yield the tensors of a result or of arguments, in order."""
    if isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, vk.Tensor) or is_tensor(value):
        yield value


def samples(names: list[str]) -> Iterator[Sample]:
    """Yield the samples of the modules that vkjit has."""
    import torch
    from torch.testing._internal.common_modules import module_db

    torch.manual_seed(0)
    for info in module_db:
        name = info.name.removeprefix("nn.")
        if not hasattr(nn, name) or (names and name not in names):
            continue
        for training in (True, False):
            made = info.module_inputs_func(
                info, device="cpu", dtype=torch.float32, requires_grad=True, training=training
            )
            for number, sample in enumerate(made):
                if sample.forward_input is not None:
                    yield Sample(name, number, training, sample.constructor_input, sample.forward_input)


def missing() -> list[str]:
    """Return the modules of PyTorch's list that vkjit lacks."""
    from torch.testing._internal.common_modules import module_db

    found = (info.name.removeprefix("nn.") for info in module_db)
    return [name for name in found if not hasattr(nn, name)]


class Comparison:
    """Compares tensors of a sample; raises AssertionError with the difference."""

    def __init__(self, terms: int) -> None:
        self.terms = terms

    def __call__(self, found: Any, expected: Any, what: str) -> None:
        ours, theirs = to_numpy(found), to_numpy(expected)
        assert ours.shape == theirs.shape, f"{what}: shape {ours.shape}, PyTorch gives {theirs.shape}"
        # no sum of a sample is longer than its largest tensor; functions add a few dozen roundings
        finite = np.abs(theirs[np.isfinite(theirs)])
        size = float(finite.max(initial=0.0)) + 1
        allowed = EPS * 4 * (self.terms + 32) * size
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=allowed, equal_nan=True, err_msg=what)


def build(sample: Sample) -> tuple[nn.Module, Any]:
    """Return the module in both libraries with the same state."""
    import torch

    made = sample.made_by
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns about fast paths that it doesn't take
        theirs = getattr(torch.nn, sample.name)(*made.args, **made.kwargs)
    if sample.name == "TransformerEncoder":  # its first argument is a layer
        layer = made.args[0]
        ours: nn.Module = nn.TransformerEncoder(layer_like(layer), *made.args[1:], **made.kwargs)
    else:
        ours = getattr(nn, sample.name)(*converted(made.args, to_ours), **converted(made.kwargs, to_ours))
    ours.load_state_dict(theirs.state_dict())
    theirs = theirs.double()
    return ours.train(sample.training), theirs.train(sample.training)


def layer_like(layer: Any) -> nn.Module:
    """Return a vkjit encoder layer with the options of PyTorch's."""
    return nn.TransformerEncoderLayer(
        layer.linear1.in_features, layer.self_attn.num_heads, layer.linear1.out_features, layer.dropout.p,
        "relu" if layer.activation_relu_or_gelu == 1 else "gelu", layer.norm1.eps, layer.self_attn.batch_first,
        layer.norm_first, layer.linear1.bias is not None,
    )  # fmt: skip


def check(sample: Sample) -> None:
    """Run a sample in both libraries; raises AssertionError if they differ."""
    ours, theirs = build(sample)
    args = (sample.called_with.args, sample.called_with.kwargs)
    mine, other = converted(args, to_ours), converted(args, to_double)
    call_mine, call_other = mine, other
    if sample.name == "CTCLoss":  # PyTorch's gradient includes that of log_softmax: compare through it
        call_mine = ((nn.functional.log_softmax(mine[0][0], -1), *mine[0][1:]), mine[1])
        call_other = ((other[0][0].log_softmax(-1), *other[0][1:]), other[1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = theirs(*call_other[0], **call_other[1])
    found = ours(*call_mine[0], **call_mine[1])
    both = list(zip(tensors_in(found), tensors_in(expected), strict=True))
    inputs = list(zip(tensors_in(mine), tensors_in(other), strict=True))
    largest = max([int(np.prod(t.shape)) for _, t in [*both, *inputs]] + [p.numel() for p in theirs.parameters()] + [1])
    compare = Comparison(largest)
    for number, (one, reference) in enumerate(both):
        compare(one, reference, f"result {number}")
    backward(both)
    for number, (one, reference) in enumerate(inputs):
        if reference.requires_grad and reference.grad is not None:
            assert one.grad is not None, f"input {number} has no gradient"
            compare(one.grad, reference.grad, f"gradient of input {number}")
    for (name, p), (_, q) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        if q.grad is not None:
            assert p.grad is not None, f"{name} has no gradient"
            compare(p.grad, q.grad, f"gradient of {name}")
    for (name, b), (_, c) in zip(ours.named_buffers(), theirs.named_buffers(), strict=True):
        compare(b.to(vk.f32), c.double(), f"{name} afterwards")


def backward(both: list[tuple[Any, Any]]) -> None:
    """Backpropagate the weighted sum of all results, with the same random weights in both libraries."""
    import torch

    rng = np.random.default_rng(1)
    for one, reference in both:
        if not reference.requires_grad:
            continue
        weights = rng.standard_normal(tuple(reference.shape)).astype(np.float32)
        one.backward(vk.tensor(weights), retain_graph=True)
        reference.backward(torch.tensor(weights).double(), retain_graph=True)


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="modules, such as Conv2d (all where left out)")
    parser.add_argument("--device", default="interpreter", help="number or part of the name")
    parser.add_argument("--each", type=int, default=1, help="take every n-th sample")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    vk.set_default_device(int(options.device) if options.device.isdigit() else options.device)
    counts: dict[str, list[int]] = {}
    for number, sample in enumerate(samples(options.names)):
        if number % options.each:
            continue
        row = counts.setdefault(sample.name, [0, 0])
        row[0] += 1
        try:
            check(sample)
        except Exception as error:  # noqa: BLE001  # any error is a failure
            row[1] += 1
            print(f"FAILED {sample}: {type(error).__name__}: {str(error).strip()[:300]}\n", flush=True)
    total, failed = (sum(row[i] for row in counts.values()) for i in (0, 1))
    for name, (some, bad) in counts.items():
        print(f"{name:28} {some:5} samples, {bad} failed")
    print(f"not offered: {', '.join(missing())}")
    print(
        f"{total} samples of {len(counts)} modules on {vk.default_device().name}: {failed} failed, {failed / max(total, 1):.2%}"
    )
    return 0 if total and failed < MAX_FAILURES * total else 1


if __name__ == "__main__":
    sys.exit(main())
