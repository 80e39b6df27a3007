"""Which element types a generic kernel can be tested with: those that the devices have and that it compiles for.

Enters: a kernel, devices. Leaves: types by type variable, and why others were left out. A module for a signature is
made here too, for those who read the kernel's operations.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from .. import dtypes
from ..dtypes import DType
from ..errors import ArgumentError, CompileError, DTypeError
from ..frontend import ArrayArg, ConstArg, ScalarArg, Signature, lower_kernel
from ..frontend.annotations import dtype_of
from ..ir.core import Module
from ..jit import Kernel
from ..runtime.interface import Device
from .dimensions import Dimensions

__all__ = ["module_of", "usable_types"]

_DEFAULT = (
    dtypes.f32, dtypes.i32, dtypes.f64, dtypes.f16, dtypes.u8, dtypes.bf16, dtypes.i64, dtypes.u32, dtypes.i8,
    dtypes.i16, dtypes.u16, dtypes.u64,
)  # fmt: skip
"""The types that a free type variable is tried with, in the order in which they shrink."""

_MOST_COMBINATIONS = 64


def module_of(
    kernel: Kernel, types: Mapping[str, DType], ranks: Mapping[str, int], constants: Mapping[str, Any]
) -> Module:
    """The front end's module for contiguous arrays of these types and ranks. Raises CompileError."""
    args: list[Any] = []
    for param in kernel.expanded_spec.params:
        if param.kind == "const":
            args.append(ConstArg(constants[param.name]))
            continue
        dtype = types[param.dtype.__name__] if isinstance(param.dtype, TypeVar) else param.dtype or dtypes.f32
        if param.kind == "array":
            args.append(ArrayArg(dtype, ranks[param.name], contiguous=True, restrict=True))
        else:
            args.append(ScalarArg(dtype))
    local = (*(kernel.declared_local() or (64,)), 1, 1)
    signature = Signature(
        tuple(args), local_size=(local[0], local[1], local[2]), narrow=True, debug=True, bounds=True,
        typevars=tuple(sorted(types.items())),
    )  # fmt: skip
    return lower_kernel(kernel.expanded_spec, signature)


def usable_types(
    kernel: Kernel,
    dimensions: Dimensions,
    devices: Sequence[Device],
    given: Mapping[str, Any] | Sequence[Any] | None,
    constants: Mapping[str, Any],
) -> tuple[dict[str, list[DType]], dict[str, str]]:
    """Type variables to the types to try, and "T = vk.f16" to the reason why it isn't tried.

    Types that the user names are taken as they are. Raises the kernel's own CompileError where no type works.
    """
    variables = _variables(kernel)
    chosen = {v.__name__: _named(v, given) for v in variables}
    left_out: dict[str, str] = {}
    found: dict[str, list[DType]] = {}
    for variable in variables:
        name = variable.__name__
        wanted = chosen[name]
        candidates = wanted if wanted is not None else _candidates(kernel, variable)
        on_devices = [t for t in candidates if all(t.name in d.caps.dtypes for d in devices)]
        left_out.update({f"{name} = {t!r}": "not on these devices" for t in candidates if t not in on_devices})
        if not on_devices:
            raise DTypeError(
                f"{kernel.name}: none of the types {candidates} of {name} is on {', '.join(d.name for d in devices)}"
            )
        found[name] = on_devices
    free = [v.__name__ for v in variables if chosen[v.__name__] is None]
    if free:
        _drop_unusable(kernel, dimensions, constants, found, free, left_out)
    return found, left_out


def _drop_unusable(
    kernel: Kernel, dimensions: Dimensions, constants: Mapping[str, Any], found: dict[str, list[DType]],
    free: list[str], left_out: dict[str, str],
) -> None:  # fmt: skip
    """Keeps those types of each free variable that compile together with some choice of the other variables."""
    ranks = {n: sum(not d.variadic for d in dims.dims) + any(d.variadic for d in dims.dims) for n, dims in
             dimensions.of_array.items()}  # fmt: skip
    names, working, reason = list(found), {n: set[DType]() for n in found}, {}
    first: CompileError | None = None
    for types in itertools.islice(itertools.product(*found.values()), _MOST_COMBINATIONS):
        bound = dict(zip(names, types, strict=True))
        try:
            module_of(kernel, bound, ranks, constants)
        except CompileError as error:
            first = first or error
            reason.update({(n, bound[n]): error.reason for n in free})
        else:
            for name in names:
                working[name].add(bound[name])
    if first is not None and not all(working.values()):
        raise first
    for name in free:
        left_out.update({f"{name} = {t!r}": reason.get((name, t), "") for t in found[name] if t not in working[name]})
        found[name] = [t for t in found[name] if t in working[name]]


def _variables(kernel: Kernel) -> list[TypeVar]:
    found = {p.dtype.__name__: p.dtype for p in kernel.expanded_spec.params if isinstance(p.dtype, TypeVar)}
    return list(found.values())


def _candidates(kernel: Kernel, variable: TypeVar) -> list[DType]:
    constrained = [t for t in map(dtype_of, variable.__constraints__) if t is not None]
    if constrained:
        return constrained
    in_arrays = any(p.kind == "array" and p.dtype is variable for p in kernel.expanded_spec.params)
    # a scalar alone has the type that its Python value says
    return list(_DEFAULT) if in_arrays else [dtypes.f32, dtypes.i32]


def _named(variable: TypeVar, given: Mapping[str, Any] | Sequence[Any] | None) -> list[DType] | None:
    """The types that the user asks for."""
    wanted = given.get(variable.__name__) if isinstance(given, Mapping) else given
    if wanted is None:
        return None
    items = wanted if isinstance(wanted, (list, tuple)) else [wanted]
    made = [dtypes.by_name.get(i) if isinstance(i, str) else dtype_of(i) for i in items]
    if None in made or not made:
        raise ArgumentError(
            f"dtypes: {wanted!r} for {variable.__name__}: expected element types such as [vk.f32, vk.f16]"
        )
    return [t for t in made if t is not None]
