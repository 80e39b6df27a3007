"""The element types with which a generic kernel can be tested: supported by all devices and accepted by the compiler.

Also lowers a kernel to IR for given types (`module_of`), for analyses of its operations.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.errors import ArgumentError, CompileError, DTypeError
from vkjit.frontend import ArrayArg, ConstArg, ScalarArg, Signature, lower_kernel
from vkjit.frontend.signature.annotations import dtype_of
from vkjit.ir.core import Module
from vkjit.launch.kernel import Kernel
from vkjit.runtime.device import Device

from .dimensions import Dimensions

__all__ = ["module_of", "usable_types"]

_DEFAULT = (
    dtypes.f32, dtypes.i32, dtypes.f64, dtypes.f16, dtypes.u8, dtypes.bf16, dtypes.i64, dtypes.u32, dtypes.i8,
    dtypes.i16, dtypes.u16, dtypes.u64,
)  # fmt: skip
"""Types tried for a type variable without constraints, the simplest first, which shrinking prefers."""

_MAX_COMBINATIONS = 64
"""Maximum number of combinations of types that are compiled to find usable ones."""


def module_of(
    kernel: Kernel, types: Mapping[str, DType], ranks: Mapping[str, int], constants: Mapping[str, Any]
) -> Module:
    """Lower the kernel to IR in high form, for contiguous arrays. Raises CompileError.

    types: by type variable. ranks: the number of dimensions of each array. constants: the values of Const parameters.
    """
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
    """Return the types to try by type variable, and the reasons why other types aren't used, keyed like "T = vk.f16".

    `given` is the user's `dtypes=`; these types only have to be supported by the devices. Other types must also
    compile. `constants` are values of the Const parameters. Raises the compiler's CompileError if no type compiles, and
    DTypeError if the devices support none.
    """
    variables = _variables(kernel)
    chosen = {v.__name__: _named(v, given) for v in variables}
    left_out: dict[str, str] = {}
    types: dict[str, list[DType]] = {}
    for variable in variables:
        name = variable.__name__
        named = chosen[name]
        candidates = named if named is not None else _candidates(kernel, variable)
        on_devices = [t for t in candidates if all(t.name in d.caps.dtypes for d in devices)]
        left_out.update({f"{name} = {t!r}": "not on these devices" for t in candidates if t not in on_devices})
        if not on_devices:
            raise DTypeError(
                f"{kernel.name}: none of the types {candidates} of {name} is on {', '.join(d.name for d in devices)}"
            )
        types[name] = on_devices
    free = [v.__name__ for v in variables if chosen[v.__name__] is None]
    if free:
        _drop_unusable(kernel, dimensions, constants, types, free, left_out)
    return types, left_out


def _drop_unusable(
    kernel: Kernel, dimensions: Dimensions, constants: Mapping[str, Any], found: dict[str, list[DType]],
    free: list[str], left_out: dict[str, str],
) -> None:  # fmt: skip
    """Remove types that don't compile with any choice of the other type variables, from the lists in `found`.

    `free` are the type variables to consider, those without types given by the user. The reasons go to `left_out`.
    """
    ranks = {n: sum(not d.variadic for d in dims.dims) + any(d.variadic for d in dims.dims) for n, dims in
             dimensions.of_array.items()}  # fmt: skip
    names, working, reason = list(found), {n: set[DType]() for n in found}, {}
    first: CompileError | None = None
    for types in itertools.islice(itertools.product(*found.values()), _MAX_COMBINATIONS):
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
    """Return the type variables of a kernel's parameters."""
    variables = {p.dtype.__name__: p.dtype for p in kernel.expanded_spec.params if isinstance(p.dtype, TypeVar)}
    return list(variables.values())


def _candidates(kernel: Kernel, variable: TypeVar) -> list[DType]:
    """Return the types that a type variable may have: those that it lists, or a default list."""
    constrained = [t for t in map(dtype_of, variable.__constraints__) if t is not None]
    if constrained:
        return constrained
    in_arrays = any(p.kind == "array" and p.dtype is variable for p in kernel.expanded_spec.params)
    # a variable of scalars only is bound by the Python value's type
    return list(_DEFAULT) if in_arrays else [dtypes.f32, dtypes.i32]


def _named(variable: TypeVar, given: Mapping[str, Any] | Sequence[Any] | None) -> list[DType] | None:
    """Return the types given by the user; None if there are none."""
    named = given.get(variable.__name__) if isinstance(given, Mapping) else given
    if named is None:
        return None
    items = named if isinstance(named, (list, tuple)) else [named]
    types = [dtypes.by_name.get(i) if isinstance(i, str) else dtype_of(i) for i in items]
    if None in types or not types:
        raise ArgumentError(
            f"dtypes: {named!r} for {variable.__name__}: expected element types such as [vk.f32, vk.f16]"
        )
    return [t for t in types if t is not None]
