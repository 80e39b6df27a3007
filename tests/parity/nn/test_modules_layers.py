"""Layers compared with PyTorch's: state names and shapes, repr, results, gradients, buffers.

Each layer loads the state of PyTorch's layer, which computes in f64. The underlying functions have tests of their own
with many shapes; these tests cover the layers' own work: options, parameters, buffers, modes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch isn't installed: nothing to compare with")

import vkjit as vk  # noqa: E402
from tests.parity.reference import EPS, assert_close, to_numpy  # noqa: E402  # after importorskip
from vkjit import nn  # noqa: E402


@dataclass(frozen=True)
class Layer:
    """A layer: its name and arguments, the shape of its input, and the number of products in its longest sum."""

    name: str
    args: tuple[Any, ...]
    options: dict[str, Any]
    shape: tuple[int, ...]
    terms: int = 1

    def __str__(self) -> str:
        options = [f"{key}={value}" for key, value in self.options.items()]
        return f"{self.name}({', '.join([*map(str, self.args), *options])})"


def layer(name: str, *args: Any, shape: tuple[int, ...] = (4, 6), terms: int = 1, **options: Any) -> Layer:
    return Layer(name, args, options, shape, terms)


IMAGES = (2, 4, 9, 7)
LAYERS = [
    layer("Identity"),
    layer("Linear", 6, 5, terms=6),
    layer("Linear", 6, 5, bias=False, shape=(2, 3, 6), terms=6),
    layer("Linear", 6, 1, shape=(6,), terms=6),
    layer("Conv1d", 4, 6, 3, shape=(2, 4, 11), terms=12),
    layer("Conv1d", 4, 6, 3, stride=2, padding=2, groups=2, shape=(4, 11), terms=12),
    layer("Conv2d", 4, 6, 3, shape=IMAGES, terms=36),
    layer("Conv2d", 4, 6, (3, 2), stride=(2, 1), padding=(1, 0), bias=False, shape=IMAGES, terms=36),
    layer("Conv2d", 4, 8, 3, dilation=2, groups=4, padding="same", shape=IMAGES, terms=36),
    layer("Conv2d", 4, 2, 2, padding="valid", shape=(4, 5, 5), terms=36),
    layer("MaxPool2d", 2, shape=IMAGES),
    layer("MaxPool2d", (3, 2), stride=2, padding=1, dilation=(1, 2), ceil_mode=True, shape=(2, 4, 9, 9)),
    layer("AvgPool2d", 2, shape=IMAGES, terms=4),
    layer("AvgPool2d", 3, stride=(2, 1), padding=1, ceil_mode=True, count_include_pad=False, shape=IMAGES, terms=9),
    layer("AvgPool2d", 2, divisor_override=3, shape=IMAGES, terms=4),
    layer("AdaptiveAvgPool2d", 1, shape=IMAGES, terms=63),
    layer("AdaptiveAvgPool2d", (4, None), shape=IMAGES, terms=9),
    layer("ReLU"),
    layer("Sigmoid"),
    layer("Tanh"),
    layer("GELU"),
    layer("GELU", approximate="tanh"),
    layer("SiLU"),
    layer("LeakyReLU", 0.2),
    layer("ELU", 0.7),
    layer("Softplus", 2.0, 3.0),
    layer("Softmax", 1, terms=6),
    layer("LogSoftmax", 0, terms=4),
    layer("LayerNorm", 6, terms=6),
    layer("LayerNorm", (3, 6), eps=1e-3, shape=(4, 3, 6), terms=18),
    layer("LayerNorm", 6, elementwise_affine=False, terms=6),
    layer("LayerNorm", 6, bias=False, terms=6),
    layer("GroupNorm", 2, 4, shape=IMAGES, terms=126),
    layer("GroupNorm", 4, 4, affine=False, shape=(3, 4, 5), terms=5),
    layer("RMSNorm", 6, terms=6),
    layer("RMSNorm", (3, 6), eps=1e-3, elementwise_affine=False, shape=(4, 3, 6), terms=18),
    layer("BatchNorm1d", 6, shape=(9, 6), terms=9),
    layer("BatchNorm1d", 4, momentum=0.3, eps=1e-3, shape=(3, 4, 5), terms=15),
    layer("BatchNorm2d", 4, shape=IMAGES, terms=126),
    layer("BatchNorm2d", 4, momentum=None, affine=False, shape=IMAGES, terms=126),
    layer("BatchNorm2d", 4, track_running_stats=False, shape=IMAGES, terms=126),
    layer("Flatten", shape=IMAGES),
    layer("Flatten", 0, 1, shape=IMAGES),
    layer("Unflatten", 1, (2, 3)),
    layer("Dropout", 0.0),
]


def pair(case: Layer) -> tuple[nn.Module, Any]:
    """Return a layer in both libraries with the same state, perturbed from special initial values."""
    torch.manual_seed(0)
    theirs = getattr(torch.nn, case.name)(*case.args, **case.options)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    ours: nn.Module = getattr(nn, case.name)(*case.args, **case.options)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs.double()


def compare(case: Layer, ours: nn.Module, theirs: Any, seed: int) -> None:
    """Compare one forward and backward pass."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(case.shape).astype(np.float32)
    mine, other = vk.tensor(x, requires_grad=True), torch.tensor(x.astype(np.float64), requires_grad=True)
    found, expected = ours(mine), theirs(other)
    weights = rng.standard_normal(tuple(expected.shape)).astype(np.float32)
    ours.zero_grad()
    theirs.zero_grad()
    found.backward(vk.tensor(weights))
    expected.backward(torch.tensor(weights.astype(np.float64)))
    # sums of `terms` products of numbers around 1, then about 16 roundings of functions and norms; parameter gradients
    # also sum over all elements of the batch
    size = np.abs(to_numpy(expected)).max() + 1
    assert_close(found, expected, EPS["f32"] * 4 * (case.terms + 16) * size, str(case))
    gradients = [("input", mine.grad, other.grad)]
    named = zip(ours.named_parameters(), theirs.named_parameters(), strict=True)
    gradients += [(name, p.grad, q.grad) for (name, p), (_, q) in named]
    for name, one, reference in gradients:
        terms = case.terms + 16 + (weights.size if name != "input" else 0)
        size = np.abs(to_numpy(reference)).max() + 1
        assert one is not None
        assert_close(one, reference, EPS["f32"] * 4 * terms * size, f"{case}, gradient of {name}")


@pytest.mark.parametrize("case", LAYERS, ids=str)
def test_layers_are_pytorchs(device: Any, case: Layer) -> None:
    ours, theirs = pair(case)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for seed in (1, 2):
        compare(case, ours, theirs, seed)
    ours.eval()
    theirs.eval()
    compare(case, ours, theirs, 3)
    for (name, mine), (_, other) in zip(ours.state_dict().items(), theirs.state_dict().items(), strict=True):
        allowed = EPS["f32"] * 4 * (case.terms + 16) * 4
        assert_close(mine.to(vk.f32), other, allowed, f"{case}, {name} afterwards")


@pytest.mark.parametrize("case", LAYERS, ids=str)
def test_layers_show_themselves_as_pytorchs_do(case: Layer) -> None:
    with vk.use_device("interpreter"):
        ours = repr(getattr(nn, case.name)(*case.args, **case.options))
    theirs = repr(getattr(torch.nn, case.name)(*case.args, **case.options))
    if "Norm" in case.name and ", bias=" not in theirs:  # not shown by PyTorch before 2.13
        ours = ours.replace(", bias=True", "").replace(", bias=False", "")
    assert ours == theirs


@pytest.mark.parametrize("padding", [None, 2])
def test_embeddings_are_pytorchs(device: Any, padding: int | None) -> None:
    theirs = torch.nn.Embedding(7, 3, padding_idx=padding)
    ours = nn.Embedding(7, 3, padding_idx=padding)
    ours.load_state_dict(theirs.state_dict())
    assert repr(ours) == repr(theirs)
    indices = np.random.default_rng(0).integers(0, 7, (4, 5))
    found, expected = ours(vk.tensor(indices)), theirs(torch.tensor(indices))
    assert_close(found, expected, 0.0, "embedding")
    weights = np.random.default_rng(1).standard_normal((4, 5, 3)).astype(np.float32)
    found.backward(vk.tensor(weights))
    expected.backward(torch.tensor(weights))
    assert_close(ours.weight.grad, theirs.weight.grad, EPS["f32"] * 20 * 8, "gradient")


Masks = Callable[[Any], dict[str, Any]]
MASKS: list[tuple[str, Masks]] = [
    ("none", lambda _: {}),
    ("causal", lambda make: {"attn_mask": make(np.triu(np.ones((5, 5), bool), 1))}),
    ("added", lambda make: {"attn_mask": make(np.linspace(-1, 1, 25).reshape(5, 5).astype(np.float32))}),
    ("per head", lambda make: {"attn_mask": make(np.tri(5, 5, 1)[None].repeat(4, 0) == 0)}),
    ("padding", lambda make: {"key_padding_mask": make(np.array([[0, 0, 0, 1, 1], [0, 0, 0, 0, 1]], bool))}),
]


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("masks", [m for _, m in MASKS], ids=[n for n, _ in MASKS])
def test_attention_is_pytorchs(device: Any, masks: Masks, bias: bool, batch_first: bool) -> None:
    torch.manual_seed(0)
    theirs = torch.nn.MultiheadAttention(8, 2, bias=bias, batch_first=batch_first)
    ours = nn.MultiheadAttention(8, 2, bias=bias, batch_first=batch_first)
    ours.load_state_dict(theirs.state_dict())
    shape = (2, 5, 8) if batch_first else (5, 2, 8)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    mine, other = vk.tensor(x, requires_grad=True), torch.tensor(x.astype(np.float64), requires_grad=True)
    theirs.double()
    double = lambda a: torch.tensor(a.astype(np.float64) if a.dtype == np.float32 else a)  # noqa: E731
    found, weights = ours(mine, mine, mine, **masks(vk.tensor))
    expected, expected_weights = theirs(other, other, other, **masks(double))
    allowed = EPS["f32"] * 4 * 64  # three consecutive products of 8 terms, and a softmax
    assert weights is not None
    assert_close(found, expected, allowed, "result")
    assert_close(weights, expected_weights, allowed, "weights")
    found.sum().backward()
    expected.sum().backward()
    assert_close(mine.grad, other.grad, allowed * 16, "gradient of the input")
    for (name, p), (_, q) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        size = np.abs(to_numpy(q.grad)).max() + 1
        assert_close(p.grad, q.grad, allowed * 16 * size, f"gradient of {name}")


def test_attention_to_another_sequence_is_pytorchs(device: Any) -> None:
    theirs = torch.nn.MultiheadAttention(8, 4, batch_first=True)
    ours = nn.MultiheadAttention(8, 4, batch_first=True)
    ours.load_state_dict(theirs.state_dict())
    rng = np.random.default_rng(0)
    query, memory = (rng.standard_normal(s).astype(np.float32) for s in ((3, 4, 8), (3, 6, 8)))
    found, _ = ours(vk.tensor(query), vk.tensor(memory), vk.tensor(memory), need_weights=False)
    expected, _ = theirs(torch.tensor(query), torch.tensor(memory), torch.tensor(memory))
    assert_close(found, expected, EPS["f32"] * 4 * 64 * 2, "result")  # both in f32
