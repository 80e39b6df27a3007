"""`vk.check`: compile a kernel without a device, only to report errors.

Runs the front end and the whole-program checks as for a launch. No driver is loaded and nothing is cached.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from ..backends.interp.runtime.device import INTERPRETER_CAPS
from ..compiler import driver
from ..errors import ArgumentError
from ..frontend import ArrayArg, ScalarArg, Signature, naming_instance
from ..launch.kernel import Kernel
from .inspection import guess_signature

__all__ = ["check"]


def check(kernel: Any, signature: Signature | Mapping[str, Any] | None = None, /, **types: Any) -> None:
    """Compile a kernel as for a launch with contiguous arrays; no device is needed.

    `signature`, or keyword arguments, give an element type for each type variable (default f32) and a value for each
    Const parameter without a default, as in `vk.check(saxpy, T=vk.f16)`. For an unannotated parameter, pass a type for
    a scalar or `(type, rank)` for an array.

    Raises CompileError if the kernel can't be compiled for these types, ArgumentError for names that the kernel doesn't
    have.
    """
    if not isinstance(kernel, Kernel):
        raise ArgumentError(f"vk.check takes a kernel, found {kernel!r}: decorate the function with @vk.kernel")
    spec = kernel.expanded_spec
    if not isinstance(signature, Signature):
        choices = {**(signature or {}), **types}
        valid_names = {getattr(p.dtype, "__name__", p.name) for p in spec.params if isinstance(p.dtype, TypeVar)}
        valid_names |= {p.name for p in spec.params if p.kind == "const" or p.dtype is None}
        unknown = [name for name in choices if name not in valid_names]
        if unknown:
            available = ", ".join(sorted(valid_names)) or "no name to choose a type for"
            raise ArgumentError(f"{kernel.name} has no {unknown[0]!r}: it has {available}")
        signature = _signature(kernel, choices)
    with naming_instance(spec, signature):
        driver.lower_for(spec, signature, INTERPRETER_CAPS)


def _signature(kernel: Kernel, choices: dict[str, Any]) -> Signature:
    """Return a signature that fits the annotations and `choices`, which also decide if unannotated parameters are
    arrays or scalars.
    """
    spec = kernel.expanded_spec
    loose = {p.name: choices[p.name] for p in spec.params if p.kind == "any" and p.name in choices}
    plain = choices | {name: chosen[0] if isinstance(chosen, tuple) else chosen for name, chosen in loose.items()}
    guessed = guess_signature(kernel, INTERPRETER_CAPS, plain)
    args = list(guessed.args)
    for place, parameter in enumerate(spec.params):
        chosen, argument = loose.get(parameter.name), args[place]
        if chosen is not None and isinstance(argument, ArrayArg):
            is_array = isinstance(chosen, tuple)
            args[place] = replace(argument, rank=chosen[1]) if is_array else ScalarArg(argument.dtype)
    return replace(guessed, args=tuple(args))
