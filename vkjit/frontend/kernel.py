"""Lowering of a kernel: its parameters, the mapping of an `over=` array to the grid, and its body.

In a kernel with `over="x"`, each invocation runs the body for one element of the array x; invocations past the end of
the array do nothing. Other kernels are launched with explicit workgroups.
"""

from __future__ import annotations

from typing import TypeVar

from ..dtypes import DType
from ..errors import ArgumentError, CompileError
from ..ir import types
from ..ir.attributes import LAUNCH_FLAGS, FunctionAttrs
from ..ir.core import Function, Module, Region, Value
from ..ir.types import Array, Scalar, Type
from . import lowerings  # noqa: F401  # fills the registries of lowerings
from .context import Context, Session
from .kernel_values import Aggregate, StructArrayKind
from .resolve import captured
from .scope import analyze
from .signature.composites import expand_composites
from .signature.signature import ArrayArg, ConstArg, ScalarArg, Signature
from .signature.spec import KernelSpec, ParamSpec
from .source import source_of
from .values import struct_arrays
from .values.lazy import unflattened

__all__ = ["lower_kernel"]


def lower_kernel(spec: KernelSpec, signature: Signature) -> Module:
    """Lower a kernel to an IR module in high form (see `ir.verify`) for one signature.

    Raises CompileError if the kernel can't be compiled, and ArgumentError if the signature doesn't match its
    parameters.
    """
    spec = expand_composites(spec)
    if len(signature.args) != len(spec.params):
        raise ArgumentError(f"{spec.name} takes {len(spec.params)} arguments, found {len(signature.args)}")
    source = source_of(spec.fn)
    typevars = _typevars(spec, signature)
    ir_types, names, positions = _parameters(spec, signature)
    kernel = Function(
        spec.name,
        Region(ir_types, names),
        [],
        _function_attributes(spec, signature, names, positions),
        source.name_loc(),
    )
    session = Session(Module(kernel), signature, spec.over)
    ctx = Context(session, spec.fn, source, analyze(source.node), kernel, typevars)
    ctx.is_kernel = True
    values = iter(kernel.params)
    for parameter, argument in zip(spec.params, signature.args, strict=True):
        if isinstance(argument, ConstArg):
            ctx.bind(parameter.name, captured(ctx, source.name_loc(), parameter.name, argument.value))
        else:
            ctx.bind(parameter.name, next(values))
    _bind_composites(ctx, spec, kernel.params)
    _lower_body(ctx, spec)
    ctx.finish_entry()
    return session.module


def _bind_composites(ctx: Context, spec: KernelSpec, params: list[Value]) -> None:
    """Bind struct and vector parameters, and arrays of them, to values assembled from their parts."""
    by_name = {param.name: param for param in params}
    for composite in spec.composites:
        parts = [by_name[p.name] for p in spec.params[composite.first : composite.first + composite.count]]
        name, element = composite.parameter.name, composite.parameter.element
        if composite.parameter.kind == "scalar":
            ctx.bind(name, struct_arrays.value_of(ctx, element, iter(parts)))
            continue
        kind = parts[0].type
        assert isinstance(kind, Array)
        ctx.bind(name, struct_arrays.struct_array(element, iter(parts), kind.rank - composite.part_axes))


def _function_attributes(
    spec: KernelSpec, signature: Signature, names: list[str], positions: list[int]
) -> FunctionAttrs:
    """Return the attributes of the IR function; `names` and `positions` are those that `_parameters` returns."""
    attributes: FunctionAttrs = {
        "local_size": signature.local_size,
        "arg_index": tuple(positions),
        "param_names": tuple(names),
        "dims": tuple(_dim_names(spec, index) for index in positions),
    }
    if spec.over is not None:
        attributes["over"] = spec.over
    for flag in LAUNCH_FLAGS:
        if getattr(signature, flag):
            attributes[flag] = True
    if signature.sanitize:
        attributes["sanitize"] = signature.sanitize
        attributes["arg_count"] = len(signature.args)
        attributes["overlaps"] = signature.overlaps
    return attributes


def _dim_names(spec: KernelSpec, position: int) -> str:
    """Return the dimensions of the array parameter number `position` as text, such as "N 3 _".

    A dimension is a name, a constant size, or `_` for an expression. Dimensions of the same name have the same extent
    in all arrays. The text is empty if the annotation doesn't fix the number of dimensions.
    """
    dims = spec.params[position].dims
    if dims is None or dims.rank is None:
        return ""
    return " ".join(dim.text if dim.simple or dim.text.isdecimal() else "_" for dim in dims.dims)


def _typevars(spec: KernelSpec, signature: Signature) -> dict[str, DType]:
    """Return the dtypes of the type variables, by name, as bound by the signature and the types of the arguments.

    Array arguments bind type variables first, then scalar arguments. Raises ArgumentError if two arguments bind a type
    variable to different types.
    """
    bound = dict(signature.typevars)
    pairs = list(zip(spec.params, signature.args, strict=True))
    bound_by: dict[str, str] = {}
    for parameter, argument in sorted(pairs, key=lambda pair: not isinstance(pair[1], ArrayArg)):
        if not isinstance(parameter.dtype, TypeVar) or isinstance(argument, ConstArg):
            continue
        name = parameter.dtype.__name__
        bound_dtype = bound.setdefault(name, argument.dtype)
        if bound_dtype is not argument.dtype:
            origin = f" by {bound_by[name]}" if name in bound_by else ""
            raise ArgumentError(
                f"{spec.name}: {name} is {bound_dtype!r}{origin}, but {parameter.name} has {argument.dtype!r}"
            )
        bound_by.setdefault(name, parameter.name)
    return bound


def _parameters(spec: KernelSpec, signature: Signature) -> tuple[list[Type], list[str], list[int]]:
    """Return the IR types and names of the run-time parameters, and their positions among the kernel's parameters."""
    ir_types: list[Type] = []
    names: list[str] = []
    positions: list[int] = []
    for position, (parameter, argument) in enumerate(zip(spec.params, signature.args, strict=True)):
        if isinstance(argument, ConstArg):
            continue
        _check_argument(spec, parameter, argument)
        ir_types.append(_parameter_type(parameter, argument))
        names.append(parameter.name)
        positions.append(position)
    return ir_types, names, positions


def _check_argument(spec: KernelSpec, parameter: ParamSpec, argument: ArrayArg | ScalarArg) -> None:
    """Raise ArgumentError unless the argument has the kind and the dtype of the parameter."""
    kind = "array" if isinstance(argument, ArrayArg) else "scalar"
    if parameter.kind == "const" or parameter.kind not in (kind, "any"):
        raise ArgumentError(f"{spec.name}: {parameter.name} is {parameter.kind}, found {kind}")
    if isinstance(parameter.dtype, DType) and parameter.dtype is not argument.dtype:
        raise ArgumentError(f"{spec.name}: {parameter.name} is of {parameter.dtype!r}, found {argument.dtype!r}")


def _parameter_type(parameter: ParamSpec, argument: ArrayArg | ScalarArg) -> Type:
    """Return the IR type of a run-time parameter."""
    if isinstance(argument, ScalarArg):
        return Scalar(argument.dtype)
    return Array(
        Scalar(argument.dtype),
        argument.rank,
        access=parameter.mode or "inout",
        contiguous=argument.contiguous,
        restrict=argument.restrict,
    )


def _lower_body(ctx: Context, spec: KernelSpec) -> None:
    """Lower the kernel's body. With `over=`, it is wrapped in a test that the invocation's index is in the array."""
    body = ctx.source.node.body
    def_loc = ctx.source.name_loc()
    if spec.over is None:
        if not ctx.block(body):
            ctx.builder.loc = def_loc
            ctx.builder.op("return")
        return
    inside = _over_index(ctx, spec)
    regions = [Region(), Region()]
    ctx.outermost = regions[0]
    with ctx.builder.at(regions[0]):
        if not ctx.block(body):
            ctx.builder.loc = def_loc
            ctx.builder.op("yield")
    with ctx.builder.at(regions[1]):
        ctx.builder.op("yield")
    ctx.builder.loc = def_loc
    ctx.builder.op("if", inside, types=[], regions=regions)
    ctx.builder.op("return")


def _over_index(ctx: Context, spec: KernelSpec) -> Value:
    """Set `ctx.index` to the invocation's index in the `over=` array, and return the condition that it is in bounds.

    The last axis of the array runs along dimension 0 of the grid, the last but one along dimension 1. The remaining
    axes, 0 to rank - 3, share dimension 2, the last of them varying fastest.
    """
    # `spec.over` isn't None, and the parameter is bound; the type checker knows neither.
    value = ctx.env[spec.over or ""].value  # type: ignore[union-attr]
    array = struct_arrays.first_array(value) if struct_arrays.is_struct_array(value) else value
    if not isinstance(array, Value) or not isinstance(array.type, Array):
        raise CompileError(f"over={spec.over!r}: that argument is no array", ctx.source.name_loc())
    b = ctx.builder
    rank = (
        value.kind.rank if isinstance(value, Aggregate) and isinstance(value.kind, StructArrayKind) else array.type.rank
    )
    extents = [b.emit("extent", array, axis=axis) for axis in range(rank)]
    grid = [b.emit("global_id", dim=d) for d in range(max(1, min(rank, 3)))]
    # The extent along each dimension of the grid; 1 for an array without axes, which has one element.
    sizes = list(reversed(extents[max(0, rank - 2) :])) or [b.index(1)]
    folded = extents[: rank - 2] if rank >= 3 else []  # the extents of the axes that share dimension 2
    if folded:
        size = folded[0]
        for extent in folded[1:]:
            size = b.emit("mul", size, extent)
        sizes.append(size)
    inside = b.const(True, types.BOOL)
    for grid_dim, (i, size) in enumerate(zip(grid, sizes, strict=True)):
        inside_dim = b.emit("lt", i, size)
        inside = inside_dim if grid_dim == 0 else b.emit("and", inside, inside_dim)
    if folded:
        ctx.index = (*unflattened(ctx, grid[2], folded), *reversed(grid[:2]))
    else:
        ctx.index = tuple(reversed(grid[:rank]))  # for an array without axes: ()
    return inside
