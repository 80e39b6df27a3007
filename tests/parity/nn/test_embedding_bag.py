"""Embedding bags and options of embeddings, against PyTorch: values, gradients, in-place renormalization, errors."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from tests.parity.nn.nn_functions import torch
from vkjit import nn
from vkjit.errors import ArgumentError, DTypeError, ShapeError, VkjitError
from vkjit.nn import functional as F

functional = torch.nn.functional
ROWS, WIDTH = 7, 5
OFFSETS = [0, 3, 3, 4, 10]
ENDS = [*OFFSETS[1:], 13]


def table(seed: int) -> Any:
    """Return multiples of 1/2, so that there are equal elements."""
    return np.round(np.random.default_rng(seed).standard_normal((ROWS, WIDTH)) * 2).astype(np.float32) / 2


def compare(found: Any, expected: Any, what: object) -> None:
    np.testing.assert_allclose(
        found.detach().numpy(), expected.detach().numpy(), rtol=2e-6, atol=1e-6, err_msg=str(what)
    )


def by_frequency(indices: Any, weight: Any, factors: Any, mode: str, padding: int | None, ends: list[int]) -> Any:
    """Return the correct result from `embedding`: PyTorch's embedding_bag uses wrong index counts on CPUs."""
    flat = indices.reshape(-1)
    counted = (torch.ones_like(flat) if padding is None else flat != padding).to(weight.dtype).unsqueeze(-1)
    values = functional.embedding(flat, weight, scale_grad_by_freq=True) * counted
    if factors is not None:
        values = values * factors.reshape(-1, 1)
    rows = []
    for start, end in zip([0, *ends], ends, strict=False):
        size = max(1.0, float(counted[start:end].sum())) if mode == "mean" else 1.0
        rows.append(values[start:end].sum(0) / size)
    return torch.stack(rows)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("wide", [False, True], ids=["offsets", "rows"])
def test_bags_are_pytorchs(device: Any, mode: str, wide: bool) -> None:
    flags = (False, True)
    for padding, last, frequent, most, weighted in itertools.product((None, 2), flags, flags, (None, 0.9), flags):
        if (weighted and mode != "sum") or (frequent and mode == "max") or (wide and last):
            continue
        what = (padding, last, frequent, most, weighted)
        rng = np.random.default_rng(len(str(what)))
        indices = rng.integers(0, ROWS, (4, 6) if wide else 13)
        ends = [6, 12, 18, 24] if wide else ENDS
        offsets = None if wide else [*OFFSETS, 13] if last else OFFSETS
        values, g = table(3), rng.standard_normal((len(ends), WIDTH)).astype(np.float32)
        factors = rng.standard_normal(indices.shape).astype(np.float32) if weighted else None

        theirs = torch.tensor(values, requires_grad=True)
        scales = None if factors is None else torch.tensor(factors, requires_grad=True)
        bounds = None if offsets is None else torch.tensor(offsets)
        expected = functional.embedding_bag(
            torch.tensor(indices), theirs, bounds, most, 2.0, False, mode, False, scales, last, padding
        )  # fmt: skip
        if frequent:
            theirs = theirs.detach().requires_grad_()
            compare(by_frequency(torch.tensor(indices), theirs, scales, mode, padding, ends), expected, what)
            expected = by_frequency(torch.tensor(indices), theirs, scales, mode, padding, ends)
        expected.backward(torch.tensor(g))

        ours = vk.tensor(values, requires_grad=True)
        mine = None if factors is None else vk.tensor(factors, requires_grad=True)
        found = F.embedding_bag(
            vk.tensor(indices), ours, None if offsets is None else vk.tensor(offsets), most, 2.0, frequent, mode, False, mine,
            last, padding,
        )  # fmt: skip
        found.backward(vk.tensor(g))
        compare(found, expected, what)
        compare(ours, theirs, what)
        compare(ours.grad, theirs.grad, what)
        if weighted:
            assert mine is not None
            assert scales is not None
            compare(mine.grad, scales.grad, what)


def test_embeddings_scale_tables_and_gradients_as_pytorchs(device: Any) -> None:
    for padding, most, order, frequent in itertools.product(
        (None, 2), (None, 0.9, 0.0), (2.0, 1.0, float("inf")), (False, True)
    ):
        rng = np.random.default_rng(5)
        indices, g = rng.integers(0, ROWS, (3, 4)), rng.standard_normal((3, 4, WIDTH)).astype(np.float32)
        theirs, ours = torch.tensor(table(1), requires_grad=True), vk.tensor(table(1), requires_grad=True)
        expected = functional.embedding(torch.tensor(indices), theirs, padding, most, order, frequent)
        found = F.embedding(vk.tensor(indices), ours, padding, most, order, frequent)
        expected.backward(torch.tensor(g))
        found.backward(vk.tensor(g))
        for a, b in ((found, expected), (ours, theirs), (ours.grad, theirs.grad)):
            compare(a, b, (padding, most, order, frequent))


def test_bags_without_indices_are_zeros(device: Any) -> None:
    for mode in ("sum", "mean", "max"):
        weight = vk.tensor(table(1), requires_grad=True)
        nothing = F.embedding_bag(vk.zeros(0, dtype=vk.i64), weight, vk.tensor([0, 0]), mode=mode)
        nothing.sum().backward()
        assert weight.grad is not None
        assert nothing.tolist() == [[0.0] * WIDTH] * 2 and weight.grad.abs().sum().item() == 0
        padded = F.embedding_bag(vk.tensor([[1, 1], [1, 3]]), weight, mode=mode, padding_idx=1)
        assert padded[0].tolist() == [0.0] * WIDTH and padded[1].tolist() == table(1)[3].tolist()
        assert F.embedding_bag(vk.zeros(0, dtype=vk.i64), weight, vk.zeros(0, dtype=vk.i64), mode=mode).shape == (
            0,
            WIDTH,
        )


def test_layers_of_bags(device: Any) -> None:
    theirs = torch.nn.EmbeddingBag(ROWS, WIDTH, mode="max", padding_idx=-1)
    ours = nn.EmbeddingBag(ROWS, WIDTH, mode="max", padding_idx=-1)
    assert ours.weight[-1].abs().sum().item() == 0
    ours.load_state_dict(theirs.state_dict())
    where = np.random.default_rng(0).integers(0, ROWS, (3, 4))
    compare(ours(vk.tensor(where)), theirs(torch.tensor(where)), "max")
    assert repr(ours) == "EmbeddingBag(7, 5, padding_idx=6, mode='max')"
    halves = nn.EmbeddingBag.from_pretrained(vk.tensor(table(2)).half(), mode="sum", include_last_offset=True)
    found = halves(vk.tensor([1, 2, 1], dtype=vk.i32), vk.tensor([0, 2, 3]))
    assert found.dtype is vk.f16 and not halves.weight.requires_grad
    assert found.tolist() == [(table(2)[1] + table(2)[2]).tolist(), table(2)[1].tolist()]
    embedding = nn.Embedding(4, 2, max_norm=1.0, scale_grad_by_freq=True)
    assert repr(embedding) == "Embedding(4, 2, max_norm=1.0, scale_grad_by_freq=True)"
    lengths = embedding(vk.tensor([0, 1, 2, 3])).detach().norm(dim=-1)
    assert bool((lengths <= 1.0 + 1e-6).all())


def test_wrong_offsets_are_reported(device: Any) -> None:
    weight, indices = vk.tensor(table(1)), vk.tensor([1, 2, 3])
    for offsets, message in (
        ([1, 2], "offsets begin with 0"),
        ([0, 2, 1], "offsets don't fall"),
        ([0, 4], "there are 3 indices|offsets don't fall"),  # bag 2 begins past the end: either may come first
    ):
        with pytest.raises(VkjitError, match=message):
            F.embedding_bag(indices, weight, vk.tensor(offsets), mode="sum").numpy()
    with pytest.raises(VkjitError, match="there are 3 indices"):
        F.embedding_bag(indices, weight, vk.tensor([0, 2]), mode="sum", include_last_offset=True).numpy()


def test_options_out_of_range_are_refused() -> None:
    with vk.use_device("interpreter"):
        weight, row, bags = vk.tensor(table(1)), vk.tensor([1, 2]), vk.tensor([[1, 2]])
        offsets = vk.tensor([0])
        cases: list[tuple[Any, type[Exception], str]] = [
            (lambda: F.embedding_bag(row, weight), ArgumentError, "need offsets"),
            (lambda: F.embedding_bag(bags, weight, offsets), ArgumentError, "leave out offsets"),
            (lambda: F.embedding_bag(bags[None], weight), ShapeError, r"shape \(1, 1, 2\)"),
            (lambda: F.embedding_bag(row, weight, offsets.float()), DTypeError, "offsets are a tensor of integers"),
            (lambda: F.embedding_bag(row, weight, bags), ShapeError, "offsets have one axis"),
            (lambda: F.embedding_bag(bags, weight, mode="min"), ArgumentError, "one of sum, mean, max, found 'min'"),
            (lambda: F.embedding_bag(bags, weight, per_sample_weights=bags.float()), ArgumentError, "found mode='mean'"),
            (lambda: F.embedding_bag(bags, weight, mode="sum", per_sample_weights=row.float()), ShapeError, "per_sample_weights"),
            (lambda: F.embedding_bag(bags, weight, mode="max", scale_grad_by_freq=True), ArgumentError, "scale_grad_by_freq"),
            (lambda: F.embedding(row, weight, sparse=True), ArgumentError, "gradients are dense"),
            (lambda: F.embedding(row, weight, max_norm=-1.0), ArgumentError, "max_norm=-1.0, expected at least 0"),
            (lambda: nn.Embedding(3, 2, sparse=True), ArgumentError, "gradients are dense"),
            (lambda: nn.EmbeddingBag(3, 2, mode="min"), ArgumentError, "found 'min'"),
        ]  # fmt: skip
        for make, kind, message in cases:
            with pytest.raises(kind, match=message):
                make()
