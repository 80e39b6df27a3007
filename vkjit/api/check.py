"""`vk.check`: compile a kernel without a device, only to report errors.

Runs the front end and the whole-program checks as for a launch, with the capabilities of the interpreter. No driver is
loaded and nothing is cached.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from ..backends.interp import INTERPRETER_CAPS
from ..compiler import driver
from ..errors import ArgumentError
from ..frontend import ArrayArg, ScalarArg, Signature, naming_instance
from ..launch.kernel import Kernel
from .inspection import guess_signature

__all__ = ["check"]


def check(kernel: Any, signature: Signature | Mapping[str, Any] | None = None, /, **types: Any) -> None:
    """Check that a kernel compiles for contiguous arrays of the given types; no device is needed.

    Keyword arguments, or a mapping as `signature`, give an element type for each type variable (default f32) and a
    value for each Const parameter without a default, as in `vk.check(saxpy, T=vk.f16)`. For an unannotated parameter,
    give a type if it is a scalar or `(type, rank)` if it is an array. Alternatively, `signature` is a complete
    `Signature`.

    Raises CompileError if the kernel can't be compiled for these types, ArgumentError for names that the kernel doesn't
    have.
    """
    if not isinstance(kernel, Kernel):
        raise ArgumentError(f"vk.check takes a kernel, found {kernel!r}: decorate the function with @vk.kernel")
    spec = kernel.expanded_spec
    if not isinstance(signature, Signature):
        choices = {**(signature or {}), **types}
        # type variables, Const parameters and unannotated parameters
        valid_names = {getattr(p.dtype, "__name__", p.name) for p in spec.params if isinstance(p.dtype, TypeVar)}
        valid_names |= {p.name for p in spec.params if p.kind == "const" or p.dtype is None}
        unknown = [name for name in choices if name not in valid_names]
        if unknown:
            available = ", ".join(sorted(valid_names)) or "nothing whose type or value can be chosen"
            raise ArgumentError(f"{kernel.name} has no {unknown[0]!r}: it has {available}")
        signature = _signature(kernel, choices)
    with naming_instance(spec, signature):
        driver.lower_for(spec, signature, INTERPRETER_CAPS)


def _signature(kernel: Kernel, choices: dict[str, Any]) -> Signature:
    """Return a signature that fits the annotations and `choices`, the arguments of `check`.

    `guess_signature` makes every unannotated parameter an array; the ones chosen to be scalars are replaced here.
    """
    spec = kernel.expanded_spec
    unannotated = {p.name: choices[p.name] for p in spec.params if p.kind == "any" and p.name in choices}
    element_choices = choices | {
        name: chosen[0] if isinstance(chosen, tuple) else chosen for name, chosen in unannotated.items()
    }
    guessed = guess_signature(kernel, INTERPRETER_CAPS, element_choices)
    args = list(guessed.args)
    for index, parameter in enumerate(spec.params):
        chosen, argument = unannotated.get(parameter.name), args[index]
        if chosen is not None and isinstance(argument, ArrayArg):
            is_array = isinstance(chosen, tuple)
            args[index] = replace(argument, rank=chosen[1]) if is_array else ScalarArg(argument.dtype)
    return replace(guessed, args=tuple(args))
