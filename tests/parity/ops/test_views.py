"""Views, copies and concatenation against PyTorch: values, gradients, and that views share memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkjit as vk
from tests.parity.reference import SHAPES, Case, normal, run, torch

BY_RANK: list[tuple[str, int, Any, Any]] = [
    ("flatten", 0, lambda x: x.flatten(), lambda x: x.flatten()),
    ("reshape", 0, lambda x: x.reshape(x.numel()), lambda x: x.reshape(x.numel())),
    ("unsqueeze", 0, lambda x: x.unsqueeze(-1), lambda x: x.unsqueeze(-1)),
    ("squeeze", 0, lambda x: x.squeeze(), lambda x: x.squeeze()),
    ("clone", 0, lambda x: x.clone(), lambda x: x.clone()),
    ("expand", 0, lambda x: x.expand(2, *x.shape), lambda x: x.expand(2, *x.shape)),
    ("stack", 0, lambda x: vk.stack([x, x * 2], 0), lambda x: torch.stack([x, x * 2], 0)),
    ("x[None]", 0, lambda x: x[None], lambda x: x[None]),
    ("x[...]", 0, lambda x: x[...], lambda x: x[...]),
    ("repeat", 1, lambda x: x.repeat(2, *[1] * x.ndim), lambda x: x.repeat(2, *[1] * x.ndim)),
    ("cat", 1, lambda x: vk.cat([x, x * 2, x], -1), lambda x: torch.cat([x, x * 2, x], -1)),
    ("x[1:]", 1, lambda x: x[1:], lambda x: x[1:]),
    ("x[..., ::2]", 1, lambda x: x[..., ::2], lambda x: x[..., ::2]),
    ("flip", 1, lambda x: x.flip(0), lambda x: x.flip(0)),
    ("roll", 1, lambda x: x.roll(1, -1), lambda x: x.roll(1, -1)),
    ("chunk", 1, lambda x: x.chunk(2, -1)[0], lambda x: x.chunk(2, -1)[0]),
    ("split", 1, lambda x: x.split(2, 0)[-1], lambda x: x.split(2, 0)[-1]),
    ("repeat_interleave", 1, lambda x: x.repeat_interleave(3, 0), lambda x: x.repeat_interleave(3, 0)),
    ("transpose", 2, lambda x: x.transpose(0, 1), lambda x: x.transpose(0, 1)),
    ("mT reshape", 2, lambda x: x.mT.reshape(x.numel()), lambda x: x.mT.reshape(x.numel())),
    ("movedim", 2, lambda x: x.movedim(0, -1), lambda x: x.movedim(0, -1)),
    ("diagonal", 2, lambda x: x.diagonal(), lambda x: x.diagonal()),
    ("diagonal above", 2, lambda x: x.diagonal(1, -2, -1), lambda x: x.diagonal(1, -2, -1)),
    ("flatten 2", 2, lambda x: x.flatten(0, 1), lambda x: x.flatten(0, 1)),
    (
        "permute contiguous",
        3,
        lambda x: x.permute(2, 0, 1, *range(3, x.ndim)).contiguous(),
        lambda x: x.permute(2, 0, 1, *range(3, x.ndim)).contiguous(),
    ),
    (
        "x[:, None, 0]",
        2,
        lambda x: x[:0, None, 0] if 0 in x.shape else x[:, None, 0],
        lambda x: x[:0, None, 0] if 0 in x.shape else x[:, None, 0],
    ),
]


@pytest.mark.parametrize(("name", "rank", "ours", "theirs"), BY_RANK, ids=[row[0] for row in BY_RANK])
def test_views_and_copies(device: Any, name: str, rank: int, ours: Any, theirs: Any) -> None:
    tested = 0
    extra = [
        (3, 5),
        (4, 4),
        (2, 3, 2),
        (6, 1, 2),
        (8,),
        (9, 2),
        (5, 5, 5),
        (1, 2, 1, 2),
        (2, 2, 7),
        (3, 1, 2),
        (1, 6, 5),
        (4, 2, 1, 3),
        (2, 5, 2),
        (7, 2, 3),
        (1, 1, 9),
        (3, 3, 3, 2),
        (2, 1, 1),
        (2, 7),
        (3, 2, 3),
    ]
    for shape in [*SHAPES, *extra]:
        if len(shape) < rank or (0 in shape and name.startswith("x[:, None")):
            continue
        run(Case(name, ours, theirs, normal, 0, gradient_ulp=4), [shape])
        tested += 1
    assert tested >= 20


def test_views_share_memory_and_copies_do_not(device: Any) -> None:
    x = vk.arange(12).reshape(3, 4)
    row, copy = x[1], x[1].clone()
    transposed = x.t()
    x[1] = 7
    assert row.tolist() == [7] * 4
    assert copy.tolist() == [4, 5, 6, 7]
    assert transposed[:, 1].tolist() == [7] * 4
    row += 1
    assert x[1].tolist() == [8] * 4


def test_reshape_of_every_stride_pattern(device: Any) -> None:
    rng = np.random.default_rng(1)
    base = rng.standard_normal((4, 6, 5)).astype(np.float32)
    views = [
        lambda x: x,
        lambda x: x[:, ::2],
        lambda x: x.transpose(0, 1),
        lambda x: x[1:3],
        lambda x: x[:, :1],
        lambda x: x[:, :, 1:2],
        lambda x: x.transpose(0, 2),
        lambda x: x[::2, 1:, :3],
        lambda x: x[:, :1].expand(4, 6, 5),
    ]
    for view in views:
        shown: Any = view
        ours, theirs = shown(vk.tensor(base)), shown(torch.tensor(base))
        n = theirs.numel()
        for target in (
            (n,),
            (1, n),
            (n, 1),
            (theirs.shape[0], -1),
            (-1, theirs.shape[2]),
            (2, n // 2),
            (theirs.shape[0], 1, -1, 1),
        ):
            assert np.array_equal(ours.reshape(target).numpy(), theirs.reshape(target).numpy()), target
            try:
                expected = theirs.view(target)
            except RuntimeError:
                continue
            assert np.array_equal(ours.view(target).numpy(), expected.numpy())


def test_impossible_shapes_are_refused_with_both_shapes(device: Any) -> None:
    x = vk.zeros(2, 3)
    with pytest.raises(vk.ShapeError, match=r"\(2, 3\).*7"):
        x.reshape(7)
    with pytest.raises(vk.ShapeError, match="-1"):
        x.reshape(4, -1)
    with pytest.raises(vk.ShapeError, match="strides"):
        x.t().view(6)
    with pytest.raises(vk.ShapeError, match="axis"):
        x.transpose(0, 2)
    with pytest.raises(vk.ShapeError, match="expand"):
        x.expand(2, 4)
    with pytest.raises(vk.ShapeError, match="cat"):
        vk.cat([x, vk.zeros(3, 2)])
