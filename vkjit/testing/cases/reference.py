"""Call the user's reference, a Python function that computes the expected outputs.

This module chooses the reference's arguments and interprets its result. With `precise`, floats are passed as float64,
so that the reference's own rounding errors don't matter. `loose` names outputs with unordered rows and a row count, of
which the reference may return the valid rows only.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from vkjit.errors import ArgumentError
from vkjit.frontend import KernelSpec

from .case import ArrayInput, Case
from .composites import outputs_by_parameter, parameters_of, split_into_parts, whole

__all__ = ["call_by_name", "expected_outputs", "outputs_of", "uncertainty", "values_by_name"]


def outputs_of(spec: KernelSpec) -> list[str]:
    """Return the names of the array parameters in `spec` that the kernel writes, in order."""
    return [p.name for p in spec.params if p.kind == "array" and p.mode != "in"]


def values_by_name(case: Case, *, precise: bool) -> dict[str, Any]:
    """Return the case's arguments as new C-order arrays and Python numbers; Outs are arrays of NaN or zero.

    Structs and vectors are split into parts; `composites.whole` assembles them.
    """
    values = {}
    for name, value in case.arguments.items():
        values[name] = _array(value, precise) if isinstance(value, ArrayInput) else value
    return values


def _array(value: ArrayInput, precise: bool) -> npt.NDArray[Any]:
    """Return an array of a case as an argument for the reference: float64 for floats if `precise`."""
    carried = np.dtype(np.float64) if precise and value.dtype.is_float else value.dtype.numpy
    if value.values is None:
        return np.full(value.shape, np.nan if carried.kind == "f" else 0, carried)
    return (
        np.broadcast_to(value.distinct.astype(carried), value.shape)
        if _is_huge(value)
        else value.values.astype(carried)
    )


def _is_huge(value: ArrayInput) -> bool:
    """True if the array is too large to store all its elements."""
    return math.prod(value.shape) > 1 << 24


def call_by_name(function: Callable[..., Any], values: Mapping[str, Any], what: str) -> Any:
    """Call a user's function with those of `values` that its parameters name.

    If the names of its parameters don't match, it is called with all values in order. Raises ArgumentError if their
    number doesn't match either; `what` names the function in the message.
    """
    declared = inspect.signature(function).parameters.values()
    named = [p for p in declared if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    if any(p.kind is p.VAR_KEYWORD for p in declared):
        return function(**values)
    if any(p.kind is p.VAR_POSITIONAL for p in declared):
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
    """Return the expected value of each output, by name.

    The reference returns one array, a tuple in the order of the outputs, or a dictionary by name; or it returns None
    and writes into the outputs passed to it. Outputs that a dictionary omits or a tuple holds None for are left out.
    `loose` names outputs of which it may return fewer rows. Raises ArgumentError for a result of another shape.
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
    """Return the reference's outputs, as `expected_outputs` does, for arguments transformed by `moved`."""
    values = whole(spec, {n: moved(v) for n, v in values_by_name(case, precise=precise).items()})
    outs = [p.name for p in parameters_of(spec) if p.kind == "array" and p.mode == "out"]
    names_taken = set(inspect.signature(reference).parameters)
    constants = {p.name for p in spec.params if p.kind == "const"}
    omitted = set() if names_taken & set(outs) else set(outs)
    omitted |= constants - names_taken if not _takes_keywords(reference) else set()
    passed = {n: v for n, v in values.items() if n not in omitted}
    with np.errstate(all="ignore"):
        result = call_by_name(reference, passed, "the reference")
    names = list(outputs_by_parameter(spec))
    if result is None:
        named = [n for n in names if n in passed]
        if names and not named:  # nothing would be compared; probably a forgotten `return`
            raise ArgumentError(
                f"the reference returns nothing and takes no output: return {', '.join(names)}, or name them among its "
                "parameters and write into them"
            )
        result = {n: passed[n] for n in named}
    return _given_outputs(spec, case, names, result, loose)


def _given_outputs(
    spec: KernelSpec, case: Case, names: list[str], result: Any, loose: Collection[str]
) -> dict[str, npt.NDArray[Any]]:
    """Map the reference's result to outputs, with structs split into parts; outputs that it omits are left out.

    `names` are the outputs as the user declared them.
    """
    if isinstance(result, Mapping):
        allowed = [*names, *outputs_of(spec)]
        unknown = [n for n in result if n not in allowed]
        if unknown:
            raise ArgumentError(
                f"the reference gives {unknown[0]!r}, which is no output; outputs are {', '.join(names)}"
            )
        outputs: dict[str, Any] = dict(result)
    elif isinstance(result, tuple) and len(names) > 1:
        if len(result) != len(names):
            raise ArgumentError(
                f"the reference gives {len(result)} results, expected {len(names)} ({', '.join(names)})"
            )
        outputs = dict(zip(names, result, strict=True))
    else:
        if len(names) != 1:
            raise ArgumentError(f"the reference gives one result, expected {len(names)} ({', '.join(names)})")
        outputs = {names[0]: result}
    parts = {
        n: v
        for name, value in outputs.items()
        if value is not None
        for n, v in split_into_parts(spec, name, value).items()
    }
    return {n: _shaped(n, value, case.arguments[n].shape, n in loose) for n, value in parts.items()}


_NUDGES = 4
"""Number of reruns of a reference to estimate its uncertainty."""
_NUDGE = 16
"""Perturbation of the reference's inputs in these reruns, in ULPs of the type it computes in."""


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
    """Estimate how far the reference's own rounding errors can move the output `name`, per element; None if unknown.

    A backward stable computation returns the exact result for inputs a few ULPs away. Therefore the reference is rerun
    on inputs perturbed by a few ULPs of the type that it computes in; its results change where its terms cancel.
    Integers can't be perturbed, so the estimate is at least a few ULPs of the largest input. `expected` is the
    output for the unchanged inputs.
    """
    arrays = [v for v in values_by_name(case, precise=precise).values() if isinstance(v, np.ndarray)]
    eps = max((float(np.finfo(v.dtype).eps) for v in arrays if v.dtype.kind == "f"), default=2.0**-52)
    with np.errstate(all="ignore"):
        largest = max((float(np.abs(v[np.isfinite(v)].astype(np.float64)).max(initial=0.0)) for v in arrays if v.size < 1 << 20),
                      default=0.0)  # fmt: skip
        largest_change = np.full(np.shape(expected), _NUDGE * eps * largest)
        for number in range(_NUDGES):
            rng = np.random.default_rng(number)

            def perturbed(value: Any, eps: float = eps, rng: Any = rng) -> Any:
                if not isinstance(value, np.ndarray) or value.dtype.kind != "f" or value.size > 1 << 20:
                    return value
                return value * (1 + _NUDGE * eps * rng.uniform(-1, 1, value.shape)).astype(value.dtype)

            try:
                rerun_result = _called(reference, spec, case, precise=precise, moved=perturbed, loose=loose).get(name)
            except (ArithmeticError, ArgumentError, ValueError):
                return None
            if rerun_result is None or rerun_result.shape != np.shape(expected):
                return None
            distance = np.abs(np.asarray(rerun_result, np.float64) - np.asarray(expected, np.float64))
            np.maximum(largest_change, np.where(np.isfinite(distance), distance, 0.0), out=largest_change)
    return largest_change


def _takes_keywords(function: Callable[..., Any]) -> bool:
    """True if the function has a `**kwargs` parameter."""
    return any(p.kind is p.VAR_KEYWORD for p in inspect.signature(function).parameters.values())


def _shaped(name: str, value: Any, shape: tuple[int, ...], fewer: bool) -> npt.NDArray[Any]:
    """Return an output of the reference as an array of the given shape, or with `fewer`, of fewer rows; else raise."""
    array = np.asarray(value)
    if array.shape == shape or (
        fewer and array.ndim == len(shape) and array.shape[1:] == shape[1:] and len(array) < shape[0]
    ):
        return array
    if array.ndim == 0 and int(np.prod(shape)) == 1:
        return array.reshape(shape)
    raise ArgumentError(f"the reference gives {name} the shape {array.shape}, expected {shape}")
