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
from .composites import assemble, outputs_by_parameter, parameters_of, split_into_parts

__all__ = ["call_by_name", "expected_outputs", "outputs_of", "uncertainty", "values_by_name"]


def outputs_of(spec: KernelSpec) -> list[str]:
    """Return the names of the array parameters in `spec` that the kernel writes, in order."""
    return [p.name for p in spec.params if p.kind == "array" and p.mode != "in"]


def values_by_name(case: Case, *, precise: bool) -> dict[str, Any]:
    """Return the case's arguments as new C-order arrays and Python numbers; Outs are arrays of NaN or zero.

    Structs and vectors are split into parts, which `composites.assemble` assembles.
    """
    values = {}
    for name, value in case.arguments.items():
        values[name] = _array(value, precise) if isinstance(value, ArrayInput) else value
    return values


def _array(value: ArrayInput, precise: bool) -> npt.NDArray[Any]:
    """Return an array of a case as an argument for the reference: float64 for floats if `precise`."""
    dtype = np.dtype(np.float64) if precise and value.dtype.is_float else value.dtype.numpy
    if value.values is None:
        return np.full(value.shape, np.nan if dtype.kind == "f" else 0, dtype)
    if _is_huge(value):
        return np.broadcast_to(value.distinct.astype(dtype), value.shape)
    return value.values.astype(dtype)


_MAX_STORED = 1 << 24
"""Maximum number of elements of an array of which the reference gets a copy; larger ones have axes of stride 0."""


def _is_huge(value: ArrayInput) -> bool:
    """True if the array is too large to store all its elements."""
    return math.prod(value.shape) > _MAX_STORED


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
    reference: Callable[..., Any],
    spec: KernelSpec,
    case: Case,
    *,
    precise: bool = True,
    counted_rows: Collection[str] = (),
) -> dict[str, npt.NDArray[Any]]:
    """Return the expected value of each output, by name.

    The reference returns one array, a tuple in the order of the outputs, or a dictionary by name; or it returns None
    and writes into the outputs passed to it. Outputs that a dictionary omits or a tuple holds None for are left out.
    `counted_rows` names outputs of which it may return fewer rows. Raises ArgumentError for a result of another shape.
    """
    return _call_reference(reference, spec, case, precise=precise, transform=lambda value: value, loose=counted_rows)


def _call_reference(
    reference: Callable[..., Any],
    spec: KernelSpec,
    case: Case,
    *,
    precise: bool,
    transform: Callable[[Any], Any],
    loose: Collection[str] = (),
) -> dict[str, npt.NDArray[Any]]:
    """Return the reference's outputs, as `expected_outputs` does, with each argument replaced by transform(argument).

    `loose` is the `counted_rows` of `expected_outputs`.
    """
    values = assemble(spec, {n: transform(v) for n, v in values_by_name(case, precise=precise).items()})
    outs = [p.name for p in parameters_of(spec) if p.kind == "array" and p.mode == "out"]
    parameter_names = set(inspect.signature(reference).parameters)
    # Outs are passed only to a reference that names one of them, constants only if it names them
    constants = {p.name for p in spec.params if p.kind == "const"}
    omitted = set() if parameter_names & set(outs) else set(outs)
    if not _takes_keywords(reference):
        omitted |= constants - parameter_names
    passed = {n: v for n, v in values.items() if n not in omitted}
    with np.errstate(all="ignore"):
        result = call_by_name(reference, passed, "the reference")
    names = list(outputs_by_parameter(spec))
    if result is None:
        passed_outputs = [n for n in names if n in passed]
        if names and not passed_outputs:  # nothing would be compared; probably a forgotten `return`
            raise ArgumentError(
                f"the reference returns nothing and takes no output: return {', '.join(names)}, or name them among its "
                "parameters and write into them"
            )
        result = {n: passed[n] for n in passed_outputs}
    return _outputs_from_result(spec, case, names, result, loose)


def _outputs_from_result(
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


_RERUNS = 4
"""Number of reruns of a reference to estimate its uncertainty."""
_PERTURBATION_ULPS = 16
"""Perturbation of the reference's inputs in these reruns, in ULPs of the type it computes in."""
_MAX_PERTURBED = 1 << 20
"""Maximum number of elements of an array that is perturbed."""


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
        largest = max((_largest_magnitude(v) for v in arrays if v.size < _MAX_PERTURBED), default=0.0)
        largest_change = np.full(np.shape(expected), _PERTURBATION_ULPS * eps * largest)
        for number in range(_RERUNS):
            rng = np.random.default_rng(number)

            # the defaults bind this iteration's values
            def perturbed(value: Any, eps: float = eps, rng: Any = rng) -> Any:
                if not isinstance(value, np.ndarray) or value.dtype.kind != "f" or value.size > _MAX_PERTURBED:
                    return value
                return value * (1 + _PERTURBATION_ULPS * eps * rng.uniform(-1, 1, value.shape)).astype(value.dtype)

            try:
                rerun_result = _call_reference(
                    reference, spec, case, precise=precise, transform=perturbed, loose=loose
                ).get(name)
            except (ArithmeticError, ArgumentError, ValueError):
                return None
            if rerun_result is None or rerun_result.shape != np.shape(expected):
                return None
            distance = np.abs(np.asarray(rerun_result, np.float64) - np.asarray(expected, np.float64))
            np.maximum(largest_change, np.where(np.isfinite(distance), distance, 0.0), out=largest_change)
    return largest_change


def _largest_magnitude(values: npt.NDArray[Any]) -> float:
    """Return the largest magnitude of the finite elements; 0 if there are none."""
    return float(np.abs(values[np.isfinite(values)].astype(np.float64)).max(initial=0.0))


def _takes_keywords(function: Callable[..., Any]) -> bool:
    """True if the function has a `**kwargs` parameter."""
    return any(p.kind is p.VAR_KEYWORD for p in inspect.signature(function).parameters.values())


def _shaped(name: str, value: Any, shape: tuple[int, ...], fewer_rows: bool) -> npt.NDArray[Any]:
    """Return an output of the reference as an array of the given shape. With `fewer_rows`, it may have fewer rows.

    Raises ArgumentError if it has another shape, or elements that aren't real numbers.
    """
    try:
        array = np.asarray(value)
    except ValueError:
        raise ArgumentError(
            f"the reference gives {name} rows of different lengths, expected the shape {shape}"
        ) from None
    exact = array.dtype.kind == "O" and all(isinstance(v, int | float | np.number) for v in array.flat)
    if array.dtype.kind in "OcSUmM" and not exact:
        raise ArgumentError(f"the reference gives {name} values of type {array.dtype}, expected real numbers")
    if array.shape == shape:
        return array
    if fewer_rows and array.ndim == len(shape) and array.shape[1:] == shape[1:] and len(array) < shape[0]:
        return array
    if array.ndim == 0 and int(np.prod(shape)) == 1:  # a number for an output of one element
        return array.reshape(shape)
    raise ArgumentError(f"the reference gives {name} the shape {array.shape}, expected {shape}")
