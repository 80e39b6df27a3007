"""Notes in compile errors of generic kernels, which name the instance that is being compiled.

An instance is a generic kernel compiled for one `Signature`: for certain type variables, constants and inferred types.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from vkjit.errors import CompileError

from ..source import source_of
from .signature import ArrayArg, ConstArg, Signature
from .spec import KernelSpec

__all__ = ["instance_text", "naming_instance"]


@contextmanager
def naming_instance(spec: KernelSpec, signature: Signature) -> Iterator[None]:
    """Add a note about the kernel's instance to any CompileError raised in the block.

    Kernels that aren't generic get no note.
    """
    try:
        yield
    except CompileError as error:
        text = instance_text(spec, signature)
        if not text:
            raise
        raise error.with_note(source_of(spec.fn).name_loc(), f"{spec.name} is compiled here for {text}") from None


def instance_text(spec: KernelSpec, signature: Signature) -> str:
    """Format the instance's parameters, as in "T = vk.f16, TS = 16"; empty for a kernel that isn't generic."""
    texts: dict[str, str] = {name: repr(dtype) for name, dtype in signature.typevars}
    for parameter, argument in zip(spec.params, signature.args, strict=False):
        if isinstance(argument, ConstArg):
            texts[parameter.name] = repr(argument.value)
        elif isinstance(parameter.dtype, TypeVar):
            texts.setdefault(parameter.dtype.__name__, repr(argument.dtype))
        elif parameter.dtype is None:
            dtype = repr(argument.dtype)
            texts[parameter.name] = f"an array of {dtype}" if isinstance(argument, ArrayArg) else dtype
    return ", ".join(f"{name} = {text}" for name, text in texts.items())
