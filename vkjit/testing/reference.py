"""Calls the user's reference: which arguments it gets, and what its result means.

Enters: a function and a case. Leaves: the expected value of each output. Floats are handed over as float64, so that the
reference's own roundings don't count; outputs are compared in the kernel's types.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ArgumentError
from ..frontend import KernelSpec
from .case import ArrayInput, Case
from .composites import outputs_by_parameter, parameters_of, taken_apart, whole

__all__ = ["call_by_name", "expected_outputs", "outputs_of", "uncertainty", "values_by_name"]


def outputs_of(spec: KernelSpec) -> list[str]:
    """Names of the arrays that the kernel writes, in order; structs by their parts where the specification has them."""
    return [p.name for p in spec.params if p.kind == "array" and p.mode != "in"]


def values_by_name(case: Case, *, precise: bool) -> dict[str, Any]:
    """The case's arguments as fresh C-order arrays and Python numbers; Outs are arrays of NaN or zero. Structs are taken
    apart; `whole` puts them together."""
    made = {}
    for name, value in case.arguments.items():
        made[name] = _array(value, precise) if isinstance(value, ArrayInput) else value
    return made


def _array(value: ArrayInput, precise: bool) -> npt.NDArray[Any]:
    carried = np.dtype(np.float64) if precise and value.dtype.is_float else value.dtype.numpy
    if value.values is None:
        return np.full(value.shape, np.nan if carried.kind == "f" else 0, carried)
    return (
        np.broadcast_to(value.distinct.astype(carried), value.shape)
        if _is_huge(value)
        else value.values.astype(carried)
    )


def _is_huge(value: ArrayInput) -> bool:
    """Whether the elements, each with memory of its own, would be too many."""
    return math.prod(value.shape) > 1 << 24


def call_by_name(function: Callable[..., Any], values: Mapping[str, Any], what: str) -> Any:
    """Calls a function with those of the values that its parameters name; a function with other names gets the
    values in order. ArgumentError where neither fits."""
    wanted = inspect.signature(function).parameters.values()
    named = [p for p in wanted if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    if any(p.kind is p.VAR_KEYWORD for p in wanted):
        return function(**values)
    if any(p.kind is p.VAR_POSITIONAL for p in wanted):
        return function(*values.values())
    required = [p for p in named if p.default is p.empty]
    if all(p.name in values for p in required):
        chosen = [p for p in named if p.name in values]
        positional = [values[p.name] for p in chosen if p.kind is p.POSITIONAL_ONLY]
        return function(*positional, **{p.name: values[p.name] for p in chosen if p.kind is not p.POSITIONAL_ONLY})
    if len(required) <= len(values) <= len(named):
        return function(*values.values())
    raise ArgumentError(
        f"{what} takes ({', '.join(p.name for p in named)}): expected names among {', '.join(values)}, or one "
        f"parameter for each of them"
    )


def expected_outputs(
    reference: Callable[..., Any], spec: KernelSpec, case: Case, *, precise: bool = True, loose: Collection[str] = ()
) -> dict[str, npt.NDArray[Any]]:
    """The expected value of each output, by name.

    The reference returns one array, a tuple in order of the outputs, or a dictionary by name; or it returns None and
    writes the outputs that it was given. What a dictionary leaves out, or where a tuple holds None, it says nothing of.
    `loose`: outputs of which it may give fewer rows than there are. Raises ArgumentError for a result of another shape.
    """
    return _called(reference, spec, case, precise=precise, moved=lambda value: value, loose=loose)


def _called(
    reference: Callable[..., Any],
    spec: KernelSpec,
    case: Case,
    *,
    precise: bool,
    moved: Callable[[Any], Any],
    loose: Collection[str] = (),
) -> dict[str, npt.NDArray[Any]]:
    """The outputs for inputs that `moved` has changed."""
    values = whole(spec, {n: moved(v) for n, v in values_by_name(case, precise=precise).items()})
    outs = [p.name for p in parameters_of(spec) if p.kind == "array" and p.mode == "out"]
    wanted = set(inspect.signature(reference).parameters)
    constants = {p.name for p in spec.params if p.kind == "const"}
    unasked = set() if wanted & set(outs) else set(outs)
    unasked |= constants - wanted if not _takes_keywords(reference) else set()
    given = {n: v for n, v in values.items() if n not in unasked}
    with np.errstate(all="ignore"):
        result = call_by_name(reference, given, "the reference")
    names = list(outputs_by_parameter(spec))
    if result is None:
        named = [n for n in names if n in given]
        if names and not named:  # nothing would be compared: a forgotten `return`
            raise ArgumentError(
                f"the reference returns nothing and takes no output: return {', '.join(names)}, or name them among its "
                "parameters and write into them"
            )
        result = {n: given[n] for n in named}
    return _given_outputs(spec, case, names, result, loose)


def _given_outputs(
    spec: KernelSpec, case: Case, names: list[str], result: Any, loose: Collection[str]
) -> dict[str, npt.NDArray[Any]]:
    """What the reference's result says of each output, structs in parts; outputs that it leaves out are missing."""
    if isinstance(result, Mapping):
        known = [*names, *outputs_of(spec)]
        unknown = [n for n in result if n not in known]
        if unknown:
            raise ArgumentError(
                f"the reference gives {unknown[0]!r}, which is no output; outputs are {', '.join(names)}"
            )
        made: dict[str, Any] = dict(result)
    elif isinstance(result, tuple) and len(names) > 1:
        if len(result) != len(names):
            raise ArgumentError(
                f"the reference gives {len(result)} results, expected {len(names)} ({', '.join(names)})"
            )
        made = dict(zip(names, result, strict=True))
    else:
        if len(names) != 1:
            raise ArgumentError(f"the reference gives one result, expected {len(names)} ({', '.join(names)})")
        made = {names[0]: result}
    parts = {
        n: v for name, value in made.items() if value is not None for n, v in taken_apart(spec, name, value).items()
    }
    return {n: _shaped(n, value, case.arguments[n].shape, n in loose) for n, value in parts.items()}


_NUDGES = 4
_NUDGE = 16
"""Reruns of a reference, and by how many ULPs of its own type its inputs are moved in them."""


def uncertainty(
    reference: Callable[..., Any],
    spec: KernelSpec,
    case: Case,
    name: str,
    expected: npt.NDArray[Any],
    *,
    precise: bool,
    loose: Collection[str] = (),
) -> npt.NDArray[Any] | None:
    """How far the reference's own roundings can put its results off, per element; None where it can't be told.

    A backward stable computation gives what the exact one gives for inputs a few ULPs away. So the reference is run again
    on inputs that are moved by a few ULPs of the type it computes in: where its terms cancel, its results move. A few
    ULPs of the largest input are added, for what cancels among integers, which can't be moved.
    """
    held = [v for v in values_by_name(case, precise=precise).values() if isinstance(v, np.ndarray)]
    eps = max((float(np.finfo(v.dtype).eps) for v in held if v.dtype.kind == "f"), default=2.0**-52)
    with np.errstate(all="ignore"):
        largest = max((float(np.abs(v[np.isfinite(v)].astype(np.float64)).max(initial=0.0)) for v in held if v.size < 1 << 20),
                      default=0.0)  # fmt: skip
        widest = np.full(np.shape(expected), _NUDGE * eps * largest)
        for number in range(_NUDGES):
            rng = np.random.default_rng(number)

            def moved(value: Any, eps: float = eps, rng: Any = rng) -> Any:
                if not isinstance(value, np.ndarray) or value.dtype.kind != "f" or value.size > 1 << 20:
                    return value
                return value * (1 + _NUDGE * eps * rng.uniform(-1, 1, value.shape)).astype(value.dtype)

            try:
                again = _called(reference, spec, case, precise=precise, moved=moved, loose=loose).get(name)
            except (ArithmeticError, ArgumentError, ValueError):
                return None
            if again is None or again.shape != np.shape(expected):
                return None
            distance = np.abs(np.asarray(again, np.float64) - np.asarray(expected, np.float64))
            np.maximum(widest, np.where(np.isfinite(distance), distance, 0.0), out=widest)
    return widest


def _takes_keywords(function: Callable[..., Any]) -> bool:
    return any(p.kind is p.VAR_KEYWORD for p in inspect.signature(function).parameters.values())


def _shaped(name: str, value: Any, shape: tuple[int, ...], fewer: bool) -> npt.NDArray[Any]:
    found = np.asarray(value)
    if found.shape == shape or (
        fewer and found.ndim == len(shape) and found.shape[1:] == shape[1:] and len(found) < shape[0]
    ):
        return found
    if found.ndim == 0 and int(np.prod(shape)) == 1:
        return found.reshape(shape)
    raise ArgumentError(f"the reference gives {name} the shape {found.shape}, expected {shape}")
