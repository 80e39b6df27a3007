"""PyTorch's names for data loader options.

Maps them to the loader's own options; raises errors that name the alternative for options with no equivalent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import ArgumentError

__all__ = ["Named", "refuse_others", "resolved"]

_OTHERS: dict[str, tuple[object, str]] = {
    "generator": (None, "orders and what transforms draw follow from seed=, an int"),
    "in_order": (True, "batches come in the order of the sampler, however many workers make them"),
    "multiprocessing_context": (None, "processes=True starts its processes from nothing (spawn)"),
    "pin_memory_device": ("", "device= is where batches go"),
    "timeout": (
        0,
        "a worker process that has ended is an error at once, and Ctrl-C ends the wait for one that is slow",
    ),
    "worker_init_fn": (
        None,
        "what is random about an example is drawn from the generator that item(index, generator) gets",
    ),
}
"""Unsupported PyTorch options: the default value, which is accepted, and what to use instead."""


@dataclass(frozen=True, slots=True)
class Named:
    """The options that have two names."""

    workers: int
    prefetch: int
    collate: Callable[[list[Any]], Any]


def refuse_others(options: Mapping[str, object]) -> None:
    """Raise ArgumentError for an unsupported PyTorch option with a non-default value, TypeError for an unknown name."""
    for name, value in options.items():
        if name not in _OTHERS:
            raise TypeError(f"DataLoader() got an unexpected keyword argument {name!r}")
        nothing, instead = _OTHERS[name]
        if value is not nothing and value != nothing:
            raise ArgumentError(f"DataLoader takes no {name}, found {value!r}: {instead}")


def resolved(own: Named, default: Named, names: Mapping[str, Any]) -> Named:
    """Resolve options given by either name. Raises ArgumentError if both are given."""
    workers, prefetch, collate = own.workers, own.prefetch, own.collate
    if names["num_workers"] is not None:
        _one_name("num_workers", "workers", own.workers, default.workers, names["num_workers"])
        workers = names["num_workers"]
    if names["collate_fn"] is not None:
        _one_name("collate_fn", "collate", own.collate, default.collate, names["collate_fn"])
        collate = names["collate_fn"]
    factor = names["prefetch_factor"]
    if factor is not None:
        _one_name("prefetch_factor", "prefetch", own.prefetch, default.prefetch, None)
        if type(factor) is not int or factor < 1:
            raise ArgumentError(f"prefetch_factor is an int of at least 1 (batches per worker), found {factor!r}")
        if type(workers) is int:
            prefetch = max(1, (factor - 1) * workers)  # each worker prepares one more
    return Named(workers, prefetch, collate)


def _one_name(name: str, own_name: str, own: object, default: object, value: object) -> None:
    if own not in (default, value):
        raise ArgumentError(f"{own_name} and {name} are two names of one option: give one of them")
