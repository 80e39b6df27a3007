"""The types that a kernel's type variables can have in tests: supported by all devices and accepted by the compiler.

`usable_types` finds them. `module_of` lowers a kernel to IR for given types; other modules use it, too, to analyze the
kernel's operations.
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
"""Types tried for a type variable without constraints, in the order in which shrinking prefers them."""

_MAX_COMBINATIONS = 64
"""Maximum number of combinations of types that are compiled to find the usable types."""


def module_of(
    kernel: Kernel, types: Mapping[str, DType], ranks: Mapping[str, int], constants: Mapping[str, Any]
) -> Module:
    """Lower the kernel to IR as the frontend emits it (high form, see `vkjit.ir.verify`), for contiguous arrays.

    `types` maps type variables to types, `ranks` arrays to their number of dimensions, and `constants` Const parameters
    to values, all by name. Raises CompileError if the kernel isn't valid for them.
    """
    args: list[Any] = []
    for param in kernel.expanded_spec.params:
        if param.kind == "const":
            args.append(ConstArg(constants[param.name]))
            continue
        # f32 stands for a type that would be inferred from the argument
        dtype = types[param.dtype.__name__] if isinstance(param.dtype, TypeVar) else param.dtype or dtypes.f32
        if param.kind == "array":
            args.append(ArrayArg(dtype, ranks[param.name], contiguous=True, restrict=True))
        else:
            args.append(ScalarArg(dtype))
    local = (*(kernel.declared_local() or (64,)), 1, 1)  # three axes or more, of which the first three are used
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
    """Return the types to try for each type variable, and the types that were left out with the reasons.

    The second dictionary has keys such as "T = vk.f16".

    `given` is the user's `dtypes=`. Types that it names must be supported by the devices, but aren't compiled here. If
    it names none for a type variable, the candidates must also compile. `constants` maps Const parameters to the values
    to compile with. Raises the compiler's CompileError if no candidate compiles, and DTypeError if the devices support
    no candidate.
    """
    variables = _variables(kernel)
    names = [v.__name__ for v in variables]
    unknown = [name for name in given if name not in names] if isinstance(given, Mapping) else []
    if unknown or (given and not names):
        raise ArgumentError(
            f"dtypes: {kernel.name} has {f'the type variables {names}' if names else 'no type variable'}, found types for "
            f"{unknown or given}: leave them out"
        )
    given_types = {v.__name__: _given_types(v, given) for v in variables}
    left_out: dict[str, str] = {}
    types: dict[str, list[DType]] = {}
    for variable in variables:
        name = variable.__name__
        user_types = given_types[name]
        candidates = user_types if user_types is not None else _candidates(kernel, variable)
        on_devices = [t for t in candidates if all(t.name in d.caps.dtypes for d in devices)]
        left_out.update({f"{name} = {t!r}": "not on these devices" for t in candidates if t not in on_devices})
        if not on_devices:
            raise DTypeError(
                f"{kernel.name}: none of the types {candidates} of {name} is on {', '.join(d.name for d in devices)}"
            )
        types[name] = on_devices
    free = [v.__name__ for v in variables if given_types[v.__name__] is None]
    if free:
        _drop_unusable(kernel, dimensions, constants, types, free, left_out)
    return types, left_out


def _drop_unusable(
    kernel: Kernel, dimensions: Dimensions, constants: Mapping[str, Any], candidates: dict[str, list[DType]],
    free: list[str], left_out: dict[str, str],
) -> None:  # fmt: skip
    """Compile the kernel for combinations of candidate types. Remove types that occur in no combination that compiles.

    `candidates` maps each type variable to its types. Types are only removed for the type variables in `free`, for
    which the user gave no types. The reasons are added to `left_out`. `dimensions` gives the ranks of the arrays.
    Raises the first CompileError if a type variable has no type left.
    """
    # a variadic dimension is compiled as one axis
    ranks = {n: sum(not d.variadic for d in dims.dims) + any(d.variadic for d in dims.dims) for n, dims in
             dimensions.of_array.items()}  # fmt: skip
    names = list(candidates)
    compiled = {n: set[DType]() for n in candidates}  # the types with which the kernel has compiled
    reasons: dict[tuple[str, DType], str] = {}
    first_error: CompileError | None = None
    for types in itertools.islice(itertools.product(*candidates.values()), _MAX_COMBINATIONS):
        bound = dict(zip(names, types, strict=True))
        try:
            module_of(kernel, bound, ranks, constants)
        except CompileError as error:
            first_error = first_error or error
            reasons.update({(n, bound[n]): error.reason for n in free})
        else:
            for name in names:
                compiled[name].add(bound[name])
    if first_error is not None and not all(compiled.values()):
        raise first_error
    for name in free:
        left_out.update(
            {f"{name} = {t!r}": reasons.get((name, t), "") for t in candidates[name] if t not in compiled[name]}
        )
        candidates[name] = [t for t in candidates[name] if t in compiled[name]]


def _variables(kernel: Kernel) -> list[TypeVar]:
    """Return the type variables of a kernel's parameters."""
    variables = {p.dtype.__name__: p.dtype for p in kernel.expanded_spec.params if isinstance(p.dtype, TypeVar)}
    return list(variables.values())


def _candidates(kernel: Kernel, variable: TypeVar) -> list[DType]:
    """Return the types that a type variable may have: its constraints, or a default list."""
    constrained = [t for t in map(dtype_of, variable.__constraints__) if t is not None]
    if constrained:
        return constrained
    in_arrays = any(p.kind == "array" and p.dtype is variable for p in kernel.expanded_spec.params)
    # a variable without arrays gets its type from a Python number: a float gives f32, an int i32
    return list(_DEFAULT) if in_arrays else [dtypes.f32, dtypes.i32]


def _given_types(variable: TypeVar, given: Mapping[str, Any] | Sequence[Any] | None) -> list[DType] | None:
    """Return the types that the user gave for a type variable in `dtypes=`; None if there are none.

    A sequence without names holds for all type variables. Raises ArgumentError for anything that isn't a type.
    """
    user_types = given.get(variable.__name__) if isinstance(given, Mapping) else given
    if user_types is None:
        return None
    items = user_types if isinstance(user_types, (list, tuple)) else [user_types]
    types = [dtypes.by_name.get(i) if isinstance(i, str) else dtype_of(i) for i in items]
    if None in types or not types:
        raise ArgumentError(
            f"dtypes: {user_types!r} for {variable.__name__}: expected element types such as [vk.f32, vk.f16]"
        )
    return [t for t in types if t is not None]
