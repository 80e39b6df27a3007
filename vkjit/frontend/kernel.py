"""Lowers a kernel: its parameters, the mapping of an `over=` array to the grid, its body.

Enters: a `KernelSpec` and the `Signature` of a launch. Leaves: an `ir.Module` in its high-level form.
"""

from __future__ import annotations

from typing import TypeVar

from ..dtypes import DType
from ..errors import ArgumentError, CompileError
from ..ir import types
from ..ir.core import Function, Module, Region, Value
from ..ir.types import Array, Scalar, Type
from . import (  # noqa: F401  (they register lowerings)
    atomics,
    collectives,
    device,
    ids,
    lazy_collectives,
    loops,
    mathematics,
    matrices,
    memory,
    numpy_names,
    printing,
    promises,
    random,
    ranges,
    records,
    scans,
    statements,
    structs,
    tiles,
    tiles_reduce,
    tiles_shape,
    vectors,
)
from .composites import expanded
from .context import Context, Session
from .resolve import captured
from .scope import analyse
from .signature import ArrayArg, ConstArg, ScalarArg, Signature
from .source import source_of
from .spec import KernelSpec, ParamSpec
from .values import Aggregate, Records

__all__ = ["lower_kernel"]


def lower_kernel(spec: KernelSpec, signature: Signature) -> Module:
    """The IR of a kernel for one signature; CompileError where the kernel can't be compiled.

    Raises ArgumentError where the signature doesn't fit the kernel's parameters.
    """
    spec = expanded(spec)
    if len(signature.args) != len(spec.params):
        raise ArgumentError(f"{spec.name} takes {len(spec.params)} arguments, found {len(signature.args)}")
    source = source_of(spec.fn)
    typevars = _typevars(spec, signature)
    ir_types, names, positions = _parameters(spec, signature)
    kernel = Function(
        spec.name, Region(ir_types, names), [], _attributes(spec, signature, names, positions), source.name_loc()
    )
    session = Session(Module(kernel), signature, spec.over)
    session.active.append(spec.fn)
    ctx = Context(session, spec.fn, source, analyse(source.node), kernel, typevars)
    ctx.is_kernel = True
    values = iter(kernel.params)
    for parameter, argument in zip(spec.params, signature.args, strict=True):
        if isinstance(argument, ConstArg):
            ctx.bind(parameter.name, captured(ctx, source.name_loc(), parameter.name, argument.value))
        else:
            ctx.bind(parameter.name, next(values))
    _bind_composites(ctx, spec, kernel.params)
    _body(ctx, spec)
    ctx.finish_entry()
    return session.module


def _bind_composites(ctx: Context, spec: KernelSpec, params: list[Value]) -> None:
    """Binds structs, vectors and arrays of them to what their parts make."""
    by_name = {param.name: param for param in params}
    for composite in spec.composites:
        parts = [by_name[p.name] for p in spec.params[composite.first : composite.first + composite.count]]
        name, element = composite.parameter.name, composite.parameter.element
        if composite.parameter.kind == "scalar":
            ctx.bind(name, records.value_of(ctx, element, iter(parts)))
            continue
        kind = parts[0].type
        assert isinstance(kind, Array)
        ctx.bind(name, records.records(element, iter(parts), kind.rank - composite.axes))


def _attributes(spec: KernelSpec, signature: Signature, names: list[str], positions: list[int]) -> dict[str, object]:
    found: dict[str, object] = {
        "local_size": signature.local_size,
        "arg_index": tuple(positions),
        "param_names": tuple(names),
        "dims": tuple(_dim_names(spec, position) for position in positions),
    }
    if spec.over is not None:
        found["over"] = spec.over
    for flag in ("narrow", "aligned", "backward", "cut", "strict", "fast_math", "debug", "bounds"):
        if getattr(signature, flag):
            found[flag] = True
    if signature.sanitize:
        found["sanitize"] = signature.sanitize
        found["arg_count"] = len(signature.args)
        found["overlaps"] = signature.overlaps
    return found


def _dim_names(spec: KernelSpec, position: int) -> str:
    """The names of an array's dimensions, or their numbers, `_` for other ones: axes of one name have one extent."""
    dims = spec.params[position].dims
    if dims is None or dims.rank is None:
        return ""
    return " ".join(dim.text if dim.simple or dim.text.isdecimal() else "_" for dim in dims.dims)


def _typevars(spec: KernelSpec, signature: Signature) -> dict[str, DType]:
    """The type variables that arguments and the signature bind; arrays bind first, scalars must agree."""
    bound = dict(signature.typevars)
    pairs = list(zip(spec.params, signature.args, strict=True))
    by: dict[str, str] = {}
    for parameter, argument in sorted(pairs, key=lambda pair: not isinstance(pair[1], ArrayArg)):
        if not isinstance(parameter.dtype, TypeVar) or isinstance(argument, ConstArg):
            continue
        name = parameter.dtype.__name__
        known = bound.setdefault(name, argument.dtype)
        if known is not argument.dtype:
            where = f" by {by[name]}" if name in by else ""
            raise ArgumentError(f"{spec.name}: {name} is {known!r}{where}, but {parameter.name} has {argument.dtype!r}")
        by.setdefault(name, parameter.name)
    return bound


def _parameters(spec: KernelSpec, signature: Signature) -> tuple[list[Type], list[str], list[int]]:
    """IR types and names of the parameters that exist at run time, and their numbers among the user's."""
    found: list[Type] = []
    names: list[str] = []
    positions: list[int] = []
    for position, (parameter, argument) in enumerate(zip(spec.params, signature.args, strict=True)):
        if isinstance(argument, ConstArg):
            continue
        _check(spec, parameter, argument)
        found.append(_type(parameter, argument))
        names.append(parameter.name)
        positions.append(position)
    return found, names, positions


def _check(spec: KernelSpec, parameter: ParamSpec, argument: ArrayArg | ScalarArg) -> None:
    kind = "array" if isinstance(argument, ArrayArg) else "scalar"
    if parameter.kind == "const" or parameter.kind not in (kind, "any"):
        raise ArgumentError(f"{spec.name}: {parameter.name} is {parameter.kind}, found {kind}")
    if isinstance(parameter.dtype, DType) and parameter.dtype is not argument.dtype:
        raise ArgumentError(f"{spec.name}: {parameter.name} is of {parameter.dtype!r}, found {argument.dtype!r}")


def _type(parameter: ParamSpec, argument: ArrayArg | ScalarArg) -> Type:
    if isinstance(argument, ScalarArg):
        return Scalar(argument.dtype)
    return Array(
        Scalar(argument.dtype),
        argument.rank,
        access=parameter.mode or "inout",
        contiguous=argument.contiguous,
        restrict=argument.restrict,
    )


def _body(ctx: Context, spec: KernelSpec) -> None:
    body = ctx.source.node.body
    place = ctx.source.name_loc()
    if spec.over is None:
        if not ctx.block(body):
            ctx.builder.loc = place
            ctx.builder.op("return")
        return
    inside = _over_index(ctx, spec)
    regions = [Region(), Region()]
    with ctx.builder.at(regions[0]):
        if not ctx.block(body):
            ctx.builder.loc = place
            ctx.builder.op("yield")
    with ctx.builder.at(regions[1]):
        ctx.builder.op("yield")
    ctx.builder.loc = place
    ctx.builder.op("if", inside, types=[], regions=regions)
    ctx.builder.op("return")


def _over_index(ctx: Context, spec: KernelSpec) -> Value:
    """Sets the index of the invocation; gives whether it lies inside the array.

    Axis rank - 1 - d is dimension d of the grid; the axes from 0 to rank - 3 share dimension 2, the last of them the
    fastest.
    """
    value = ctx.env[spec.over or ""].value  # type: ignore[union-attr]
    array = records.first_array(value) if records.is_records(value) else value
    if not isinstance(array, Value) or not isinstance(array.type, Array):
        raise CompileError(f"over={spec.over!r}: that argument is no array", ctx.source.name_loc())
    b = ctx.builder
    rank = value.kind.rank if isinstance(value, Aggregate) and isinstance(value.kind, Records) else array.type.rank
    extents = [b.emit("extent", array, axis=axis) for axis in range(rank)]
    grid = [b.emit("global_id", dim=d) for d in range(max(1, min(rank, 3)))]
    sizes = list(reversed(extents[max(0, rank - 2) :])) or [b.index(1)]
    folded = extents[: rank - 2] if rank >= 3 else []
    if folded:
        size = folded[0]
        for more in folded[1:]:
            size = b.emit("mul", size, more)
        sizes.append(size)
    inside = b.const(True, types.BOOL)
    for position, (i, size) in enumerate(zip(grid, sizes, strict=True)):
        here = b.emit("lt", i, size)
        inside = here if position == 0 else b.emit("and", inside, here)
    ctx.index = (
        (*_unfold(ctx, grid[2], folded), *reversed(grid[: min(rank, 2)])) if folded else tuple(reversed(grid[:rank]))
    )
    return inside


def _unfold(ctx: Context, position: Value, extents: list[Value]) -> list[Value]:
    """The indices along several axes that share one dimension of the grid."""
    found: list[Value] = []
    for size in reversed(extents[1:]):
        found.append(ctx.builder.emit("floormod", position, size))
        position = ctx.builder.emit("floordiv", position, size)
    return [position, *reversed(found)]
