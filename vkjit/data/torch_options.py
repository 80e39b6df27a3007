"""PyTorch's names for `DataLoader` options.

Maps PyTorch's option names to the loader's own. For PyTorch options without an equivalent, raises errors that name an
alternative.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import ArgumentError

__all__ = ["AliasedOptions", "refuse_others", "resolve_options"]

_UNSUPPORTED: dict[str, tuple[object, str]] = {
    "generator": (None, "the order and the random transforms follow from seed=, an int"),
    "in_order": (True, "batches come in the order of the sampler, for any number of workers"),
    "multiprocessing_context": (None, "processes=True always uses the start method spawn"),
    "pin_memory_device": ("", "device= selects the device of the batches"),
    "timeout": (
        0,
        "a worker process that has died raises an error at once, and Ctrl-C interrupts the wait for a slow one",
    ),
    "worker_init_fn": (
        None,
        "examples draw random numbers from the generator that is passed to item(index, generator)",
    ),
}
"""Unsupported PyTorch options: PyTorch's default, which is accepted, and a text that names the alternative."""


@dataclass(frozen=True, slots=True)
class AliasedOptions:
    """The values of those loader options that PyTorch calls `num_workers`, `prefetch_factor` and `collate_fn`."""

    workers: int
    prefetch: int
    collate: Callable[[list[Any]], Any]


def refuse_others(options: Mapping[str, object]) -> None:
    """Raise ArgumentError for an unsupported PyTorch option with a non-default value, TypeError for an unknown name."""
    for name, value in options.items():
        if name not in _UNSUPPORTED:
            raise TypeError(f"DataLoader() got an unexpected keyword argument {name!r}")
        default, instead = _UNSUPPORTED[name]
        if value is not default and value != default:
            raise ArgumentError(f"DataLoader takes no {name}, found {value!r}: {instead}")


def resolve_options(own: AliasedOptions, default: AliasedOptions, names: Mapping[str, Any]) -> AliasedOptions:
    """Combine the loader's own options with those given under PyTorch's names (`names`; None if not given).

    Raises ArgumentError if an option is given under both names. An option counts as given under the loader's name if it
    differs from its default.
    """
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
            # PyTorch prepares factor * workers batches ahead. Here it is prefetch + workers: `Workers.prepare` prepares
            # prefetch + workers - 1, and the loader may have uploaded one more.
            prefetch = max(1, (factor - 1) * workers)
    return AliasedOptions(workers, prefetch, collate)


def _one_name(name: str, own_name: str, own: object, default: object, value: object) -> None:
    """Raise ArgumentError if the option `own_name` isn't at its default and contradicts PyTorch's `name=value`."""
    if own not in (default, value):
        raise ArgumentError(f"{own_name} and {name} are two names of one option: give one of them")
