"""`vk.check`: compiles a kernel without a device, for the errors alone.

Enters: a kernel, and what its annotations leave open. Leaves: nothing, or CompileError. The front end and the checks of the
whole program run as for a launch; no driver is loaded and nothing is cached.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from . import compiler
from .errors import ArgumentError
from .frontend import ArrayArg, ScalarArg, Signature, naming_instance
from .inspection import guess_signature
from .interp.device import INTERPRETER_CAPS
from .jit import Kernel

__all__ = ["check"]


def check(kernel: Any, signature: Signature | Mapping[str, Any] | None = None, /, **types: Any) -> None:
    """Compiles a kernel as for a launch with contiguous arrays; no device is needed.

    `signature`, or keywords: an element type for each type variable (f32 for those left out), a value for each Const
    parameter without a default, as in `vk.check(saxpy, T=vk.f16)`; for an unannotated parameter a type where it is a number,
    `(type, rank)` where it is an array.

    Raises CompileError for a kernel that can't be compiled for these types, ArgumentError for names that the kernel hasn't.
    """
    if not isinstance(kernel, Kernel):
        raise ArgumentError(f"vk.check takes a kernel, found {kernel!r}: decorate the function with @vk.kernel")
    spec = kernel.expanded_spec
    if not isinstance(signature, Signature):
        choices = {**(signature or {}), **types}
        known = {getattr(p.dtype, "__name__", p.name) for p in spec.params if isinstance(p.dtype, TypeVar)}
        known |= {p.name for p in spec.params if p.kind == "const" or p.dtype is None}
        unknown = [name for name in choices if name not in known]
        if unknown:
            there = ", ".join(sorted(known)) or "no name to choose a type for"
            raise ArgumentError(f"{kernel.name} has no {unknown[0]!r}: it has {there}")
        signature = _signature(kernel, choices)
    with naming_instance(spec, signature):
        compiler.lower_for(spec, signature, INTERPRETER_CAPS)


def _signature(kernel: Kernel, choices: dict[str, Any]) -> Signature:
    """A signature that fits the annotations; unannotated parameters are what the choices say."""
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
