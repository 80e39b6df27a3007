"""Samples longer than PyTorch's, with sizes around those of tiles, segments, radix digits and vectors.

`drawn` yields operations and samples as `checks` takes them. Summed values are small integers, so that sums in any
order are exact.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch

__all__ = ["CASES", "drawn"]

LENGTHS = (1023, 1024, 1025, 2049, 4097, 16384, 16385, 33000, 70001)
ROWS = ((3, 5000), (5000, 3), (257, 259), (64, 1024), (1, 17000), (1025, 17), (2, 33, 130), (300, 4, 40))

Made = tuple[tuple[Any, ...], dict[str, Any]]


def _floats(shape: tuple[int, ...], rng: random.Random) -> torch.Tensor:
    """Return integer values with many duplicates, of one of several types."""
    most = rng.choice([3, 60, 100000])
    dtype = rng.choice(
        [torch.float32, torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8, torch.float16]
    )
    least, most = (0, min(most, 250)) if dtype is torch.uint8 else (-most, most)
    return torch.randint(least, most + 1, shape).clamp(-60000, 60000).to(dtype)


def _few(shape: tuple[int, ...], rng: random.Random) -> torch.Tensor:
    """Return values whose sums are exact."""
    dtype = rng.choice([torch.float32, torch.float32, torch.float64, torch.int32, torch.int64])
    return torch.randint(-3, 4, shape).to(dtype)


def _dim(shape: tuple[int, ...], rng: random.Random) -> int:
    return rng.randrange(len(shape))


def _along(make: Callable[..., torch.Tensor], **options: Any) -> Callable[..., Made]:
    def made(shape: tuple[int, ...], rng: random.Random) -> Made:
        return (make(shape, rng),), {"dim": _dim(shape, rng), **options}

    return made


def _alone(make: Callable[..., torch.Tensor]) -> Callable[..., Made]:
    return lambda shape, rng: ((make(shape, rng),), {})


def _index(shape: tuple[int, ...], dim: int, rng: random.Random, extent: int) -> torch.Tensor:
    """Return an index tensor along an axis: a permutation of each row, or random."""
    if rng.random() < 0.5:
        return torch.rand(shape).argsort(dim)
    return torch.randint(0, extent, shape)


def _gather(shape: tuple[int, ...], rng: random.Random) -> Made:
    dim = _dim(shape, rng)
    return (_floats(shape, rng), dim, _index(shape, dim, rng, shape[dim])), {}


def _scatter_add(shape: tuple[int, ...], rng: random.Random) -> Made:
    dim, source = _dim(shape, rng), _few(shape, rng)
    short = tuple(rng.choice([e, 7]) if a == dim else e for a, e in enumerate(shape))
    index = torch.randint(0, short[dim], shape)
    return (torch.zeros(short, dtype=source.dtype), dim, index, source), {}


def _scatter(shape: tuple[int, ...], rng: random.Random) -> Made:
    dim, source = _dim(shape, rng), _floats(shape, rng)
    return (torch.zeros(shape, dtype=source.dtype), dim, torch.rand(shape).argsort(dim), source), {}


def _cat(shape: tuple[int, ...], rng: random.Random) -> Made:
    dim, one = _dim(shape, rng), _floats(shape, rng)
    parts = [one, *(one.narrow(dim, 0, rng.randint(0, shape[dim])) for _ in range(rng.randint(1, 4)))]
    rng.shuffle(parts)
    return (parts, dim), {}


def _lines(shape: tuple[int, ...], rng: random.Random) -> Made:
    dim = _dim(shape, rng)
    return (_floats(shape, rng), dim, torch.randint(0, shape[dim], (rng.choice([1, 5, 2000]),))), {}


def _added_lines(shape: tuple[int, ...], rng: random.Random) -> Made:
    dim, x = _dim(shape, rng), _few(shape, rng)
    index = torch.randint(0, shape[dim], (rng.choice([1, 50, 900]),))
    return (x, dim, index, x.index_select(dim, index.flip(0))), {}


def _searched(shape: tuple[int, ...], rng: random.Random) -> Made:
    values = _floats(shape, rng)
    return (values.sort(-1).values, values.roll(3, -1)), {"right": rng.random() < 0.5}


def _picked(shape: tuple[int, ...], rng: random.Random) -> Made:
    return (_floats(shape, rng), torch.rand(shape) < rng.choice([0.01, 0.5, 1.1])), {}


def _most(shape: tuple[int, ...], rng: random.Random) -> Made:
    dim = _dim(shape, rng)
    options = {"dim": dim, "largest": rng.random() < 0.5}
    return (_floats(shape, rng), min(rng.choice([1, 5, 32, 33, 1000]), shape[dim])), options


def _kth(shape: tuple[int, ...], rng: random.Random) -> Made:
    dim = _dim(shape, rng)
    return (_floats(shape, rng), rng.randint(1, shape[dim])), {"dim": dim}


CASES: dict[str, Callable[[tuple[int, ...], random.Random], Made]] = {
    "amax": _along(_floats),
    "argmax": _along(_floats),
    "argmin": _along(_floats),
    "argsort": _along(_floats, stable=True),
    "bincount": lambda shape, rng: ((torch.randint(0, rng.choice([3, 5000]), (shape[-1],)),), {}),
    "cat": _cat,
    "count_nonzero": _along(_few),
    "cummax": _along(_floats),
    "cumsum": _along(_few),
    "flip": lambda shape, rng: ((_floats(shape, rng), [_dim(shape, rng)]), {}),
    "gather": _gather,
    "index_add": _added_lines,
    "index_select": _lines,
    "kthvalue": _kth,
    "masked_select": _picked,
    "median": _along(_floats),
    "nonzero": _alone(_few),
    "roll": lambda shape, rng: ((_floats(shape, rng), rng.randint(-9, 9), _dim(shape, rng)), {}),
    "scatter": _scatter,
    "scatter_add": _scatter_add,
    "searchsorted": _searched,
    "sort": _along(_floats, stable=True),
    "sum": _along(_few),
    "topk": _most,
    "unique": _alone(_floats),
    "unique_consecutive": _alone(_floats),
}
"""Functions that make arguments for a shape, by operation."""


def drawn(name: str, rng: random.Random) -> Iterator[tuple[Any, Any]]:
    """Yield an operation with a sample, twice."""
    torch.manual_seed(rng.randint(0, 1 << 30))
    for shape in ((rng.choice(LENGTHS),), rng.choice(ROWS)):
        try:
            args, kwargs = CASES[name](shape, rng)
        except RuntimeError:  # the operation doesn't support the type
            continue
        op = SimpleNamespace(name=name, op=getattr(torch, name), supports_out=False, inplace_variant=None)
        yield op, SimpleNamespace(input=args[0], args=args[1:], kwargs=kwargs)
