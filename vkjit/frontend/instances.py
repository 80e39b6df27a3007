"""What a generic kernel is compiled for, in words, for errors that only some signatures have.

Enters: a `KernelSpec`, a `Signature`, and an error inside the `with` block. Leaves: the error with a note at the kernel's
definition that names type variables, constants and the types of unannotated parameters; untouched for other kernels.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from ..errors import CompileError
from .signature import ArrayArg, ConstArg, Signature
from .source import source_of
from .spec import KernelSpec

__all__ = ["instance_text", "naming_instance"]


@contextmanager
def naming_instance(spec: KernelSpec, signature: Signature) -> Iterator[None]:
    """Adds to a CompileError what the kernel is compiled for."""
    try:
        yield
    except CompileError as error:
        text = instance_text(spec, signature)
        if not text:
            raise
        raise error.with_note(source_of(spec.fn).name_loc(), f"{spec.name} is compiled here for {text}") from None


def instance_text(spec: KernelSpec, signature: Signature) -> str:
    """Names and what they stand for: "T = vk.f16, TS = 16"; empty for a kernel that has no choice."""
    found: dict[str, str] = {name: repr(dtype) for name, dtype in signature.typevars}
    for parameter, argument in zip(spec.params, signature.args, strict=False):
        if isinstance(argument, ConstArg):
            found[parameter.name] = repr(argument.value)
        elif isinstance(parameter.dtype, TypeVar):
            found.setdefault(parameter.dtype.__name__, repr(argument.dtype))
        elif parameter.dtype is None:
            kind = f"an array of {argument.dtype!r}" if isinstance(argument, ArrayArg) else repr(argument.dtype)
            found[parameter.name] = f"{kind}"
    return ", ".join(f"{name} = {text}" for name, text in found.items())
