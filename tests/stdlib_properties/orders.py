"""Properties of kernels that sort, search, select, scatter and scan along rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.stdlib_properties.operations import Operation

__all__ = ["ORDERS"]

BOTH = ("cpu", "gpu")


def _below(size: int) -> Any:
    return lambda rng, shape: rng.integers(0, size, shape)


def _distinct(size: int) -> Any:
    """Draw unique indices per row; which of several writes wins is covered by another property."""
    return lambda rng, shape: rng.permuted(np.tile(np.arange(size), (shape[0], 1)), axis=1)[:, : shape[1]]


def _ascending(rng: Any, shape: tuple[int, ...]) -> Any:
    return np.sort(rng.normal(size=shape).astype(np.float32), axis=-1)


def _flags(rng: Any, shape: tuple[int, ...]) -> Any:
    return rng.random(shape) < 0.4


def _rising(rng: Any, shape: tuple[int, ...]) -> Any:
    return _ascending(rng, shape) * 9


def _falling(rng: Any, shape: tuple[int, ...]) -> Any:
    return _rising(rng, shape)[..., ::-1].copy()


def _alike(_: Any, shape: tuple[int, ...]) -> Any:
    return np.full(shape, 0.5, np.float32)


def _of_lines(name: str, fixed: Any) -> tuple[Operation, ...]:
    """Return operations that track the best element so far, on rows that rise, fall or are constant."""
    given: dict[str, Any] = {"fixed": {0: fixed}, "gradients": False}
    best = [
        Operation(f"extremes, {name}", lambda F, xp, x: (x.max(dim=1)[0], x.min(dim=1)[0], xp.cummax(x, 1)[0], xp.cummin(x, 1)[0]),
                  [[(3, 5)], [(2, 300)]], BOTH, **given),
        Operation(f"best, {name}", lambda F, xp, x: (xp.sort(x, dim=1)[0], xp.topk(x, 3, dim=1)[0]), [[(2, 70)]], BOTH, **given),
        Operation(f"softmax, {name}", lambda F, xp, x: (F.softmax(x, dim=1), F.log_softmax(x, dim=1)),
                  [[(3, 40)], [(2, 300)]], BOTH, **given),
        Operation(f"softmax, long and {name}", lambda F, xp, x: F.softmax(x, dim=1), [[(1, 9000)]], ("gpu",), **given),
    ]  # fmt: skip
    if fixed is not _alike:  # which of several equal elements is selected is covered by another property
        best += [
            Operation(f"places, {name}", lambda F, xp, x: (x.argmax(dim=1), x.argmin(dim=1)), [[(3, 5)], [(2, 600)]], BOTH,
                      **given),
            Operation(f"large places, {name}", lambda F, xp, x: (x.argmax(), x.argmin()), [[(1, 9001)]], BOTH, **given),
            Operation(f"running places, {name}", lambda F, xp, x: (xp.cummax(x, 1)[1], xp.cummin(x, 1)[1]), [[(3, 7)], [(1, 1500)]],
                      **given),
        ]  # fmt: skip
    return tuple(best)


ORDERS: tuple[Operation, ...] = (
    *_of_lines("rising", _rising),
    *_of_lines("falling", _falling),
    *_of_lines("alike", _alike),
    Operation("sort", lambda F, xp, x: xp.sort(x, dim=1)[0], [[(3, 5)], [(2, 63)], [(2, 65)], [(1, 300)]], exact=True),
    Operation("sort, descending", lambda F, xp, x: xp.sort(x, dim=0, descending=True)[0], [[(70, 2)]], exact=True),
    Operation("argsort", lambda F, xp, x: xp.argsort(x, dim=1), [[(3, 5)], [(2, 131)]], gradients=False, exact=True),
    Operation("topk", lambda F, xp, x: xp.topk(x, 3, dim=1)[0], [[(2, 300)], [(3, 4)]], BOTH, exact=True),
    Operation("searchsorted", lambda F, xp, x, v: xp.searchsorted(x, v), [[(2, 9), (2, 20)], [(1, 1), (1, 3)]],
              fixed={0: _ascending}, gradients=False, exact=True),
    Operation("searchsorted, right", lambda F, xp, x: xp.searchsorted(x, x, right=True), [[(2, 9)]],
              fixed={0: _ascending}, gradients=False, exact=True),
    Operation("masked_select", lambda F, xp, x, m: xp.masked_select(x, m), [[(3, 5), (3, 5)], [(300,), (300,)], [(4100,)] * 2],
              BOTH, fixed={1: _flags}, exact=True),
    Operation("nonzero", lambda F, xp, x: xp.nonzero(x > 0)[:, 0], [[(15,)], [(4100,)]], BOTH, gradients=False, exact=True),
    Operation("scatter", lambda F, xp, x, i, v: xp.scatter(x, 1, i, v), [[(3, 9), (3, 6), (3, 6)]], fixed={1: _distinct(9)},
              exact=True),
    Operation("scatter, long", lambda F, xp, x, i, v: xp.scatter(x, 1, i, v), [[(2, 700), (2, 600), (2, 600)]], BOTH,
              fixed={1: _distinct(700)}, exact=True),
    Operation("scatter_add, few lines", lambda F, xp, x, i, v: xp.scatter_add(x, 1, i, v), [[(2, 4), (2, 30), (2, 30)]],
              ("cpu", "llvm"), fixed={1: _below(4)}),
    Operation("scatter_add, long", lambda F, xp, x, i, v: xp.scatter_add(x, 1, i, v), [[(2, 40), (2, 600), (2, 600)]], BOTH,
              fixed={1: _below(40)}),
    Operation("cumsum along rows", lambda F, xp, x: xp.cumsum(x, 1), [[(3, 5)], [(2, 33)], [(2, 1100)], [(1, 4101)]], BOTH),
    Operation("cumprod along rows", lambda F, xp, x: xp.cumprod(x, 1), [[(2, 40)]], BOTH, positive=True),
    Operation("cummax", lambda F, xp, x: xp.cummax(x, 1)[0], [[(3, 7)], [(2, 1500)]]),
    Operation("cummin, places", lambda F, xp, x: xp.cummin(x, 1)[1], [[(3, 7)], [(1, 1500)]], gradients=False, exact=True),
)  # fmt: skip
