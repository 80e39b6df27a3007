"""Argument binding of launches: assigns values to parameters and deduces element types.

Takes a `KernelSpec` and the user's arguments. Produces one value per parameter (`MISSING` for an Out to be allocated),
the element types of type variables, and scalars converted to their types. Errors name the parameter, the value found
and the expected one.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from .. import dtypes
from ..dtypes import DType
from ..errors import ArgumentError, CompileError, DTypeError, Loc, ShapeError
from ..frontend import REQUIRED, Dims, KernelSpec, ParamSpec, tune_choice
from ..frontend.signature.free_names import size_fault
from ..frontend.signature.signature import is_own_key
from ..runtime.array import fresh_layout
from ..runtime.device import Device, DeviceArray
from .host_arrays import fetch

__all__ = [
    "MISSING", "Missing", "allocate_outs", "bind", "bind_dims", "bind_types", "check_allocated", "coerce_scalar",
    "poison",
]  # fmt: skip


class Missing:
    """The type of `MISSING`, which stands for an omitted Out argument."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING = Missing()

_MAX_PRINTED_BITS = 128
_MODE_NAMES = {"in": "In", "out": "Out", "inout": "InOut"}


def _describe(value: Any) -> str:
    if isinstance(value, (np.ndarray, np.generic)):
        return f"{type(value).__name__} of {value.dtype}"
    return type(value).__name__


def bind(spec: KernelSpec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Bind arguments and return one value per parameter, in order.

    Positional arguments bind to the parameters in order. If there are fewer than parameters without a default, the Outs
    are skipped. Keywords may name any parameter. An omitted Const that is the size of a dimension stays `MISSING`, until
    `bind_dims` infers it.
    """
    __tracebackhide__ = True
    params = spec.params
    if not kwargs and len(args) == len(params):
        for i in spec.constants:
            _check_constant(spec, params[i], args[i])
        return list(args)
    indices = parameter_indices(spec, args, tuple(kwargs))
    if indices is None:
        raise _unbound(spec, args, kwargs)
    values: list[Any] = [MISSING] * len(params)
    for i, value in zip(indices, (*args, *kwargs.values()), strict=True):
        values[i] = value
    for i, param in enumerate(params):
        if values[i] is MISSING and not _is_out(param) and i not in spec.size_constants:
            if param.default is REQUIRED:
                raise _missing(spec, param)
            values[i] = tune_choice(param.default)
        if param.kind == "const":
            _check_constant(spec, param, values[i])
    return values


def _missing(spec: KernelSpec, param: ParamSpec) -> ArgumentError:
    method = f"; self is the instance that a kernel of a class is called on: instance.{spec.name}(...)"
    return ArgumentError(
        f"{spec.name}() misses the argument {param.name!r}: it takes {signature_text(spec)}"
        f"{method if spec.params[0].name == 'self' else ''}"
    )


def _unbound(spec: KernelSpec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ArgumentError:
    """Return the error for arguments that `parameter_indices` can't bind."""
    count = len(args)
    names = [p.name for p in spec.params]
    unknown = [k for k in kwargs if k not in names]
    if unknown:
        return ArgumentError(f"{spec.name}() has no parameter {unknown[0]!r}: it takes {signature_text(spec)}")
    twice = [name for name in names[:count] if name in kwargs]
    if twice and count <= len(names):
        return ArgumentError(
            f"{spec.name}() got several values for {twice[0]!r}, one of them by its name: it takes {signature_text(spec)}"
        )
    slots = _free_slots(spec, args, kwargs)
    return ArgumentError(
        f"{spec.name}() takes {len(slots)} positional arguments ({', '.join(names[i] for i in slots)}) but {count} "
        f"were given: it takes {signature_text(spec)}"
    )


def _check_constant(spec: KernelSpec, param: ParamSpec, value: Any) -> None:
    """Raise ArgumentError if the value of a Const parameter isn't hashable, or too large."""
    kind: Any = type(value)
    if not is_own_key(kind) and (fault := size_fault(value)):
        raise ArgumentError(f"argument {param.name} of {spec.name}() {fault}: pass a smaller constant, or an array")
    try:
        hash(value)
    except (TypeError, ValueError):  # ValueError: a writable memoryview
        advice = "pass a tuple"
        if isinstance(value, np.ndarray):
            advice = 'annotate the parameter as an array, such as vk.In[vk.f32, "N"], or pass a tuple'
        raise ArgumentError(
            f"argument {param.name} of {spec.name}() is a {_describe(value)}: a Const is compiled into the kernel, and this "
            f"can change: {advice}"
        ) from None


def bound_names(spec: KernelSpec, args: Sequence[Any], kwargs: Collection[str]) -> list[str]:
    """Return the names of the parameters that positional arguments and the given keywords bind to."""
    slots = _free_slots(spec, args, kwargs)
    return [*(spec.params[i].name for i in slots[: len(args)]), *kwargs]


def _free_slots(spec: KernelSpec, args: Sequence[Any], named: Collection[str]) -> list[int]:
    """Return the parameters available to positional arguments, without the Outs if there are too few arguments.

    Consts that are sizes of dimensions are left out instead if one of them would get an array.
    """
    params = spec.params
    free = [i for i, p in enumerate(params) if p.name not in named]
    outs = [i for i in free if _is_out(params[i])]
    required = [i for i in free if not _is_out(params[i]) and params[i].default is REQUIRED]
    slots = free if len(args) >= len(required) + len(outs) else [i for i in free if i not in outs]
    if any(i in spec.size_constants and hasattr(value, "shape") for i, value in zip(slots, args, strict=False)):
        slots = [i for i in free if i not in spec.size_constants]
    return slots


def parameter_indices(spec: KernelSpec, args: Sequence[Any], names: tuple[str, ...]) -> list[int] | None:
    """Return the parameter indices of positional and then the named arguments; None if they don't bind."""
    count = len(args)
    if not names and count == len(spec.params):
        return list(range(count))
    numbers = {p.name: i for i, p in enumerate(spec.params)}
    slots = _free_slots(spec, args, names)
    if count > len(slots) or any(name not in numbers for name in names):
        return None
    return [*slots[:count], *(numbers[name] for name in names)]


def _is_out(param: ParamSpec) -> bool:
    return param.kind == "array" and param.mode == "out"


def signature_text(spec: KernelSpec) -> str:
    """Return the parameter list in source notation, for messages."""
    return "(" + ", ".join(_parameter_text(p) for p in spec.params) + ")"


def _parameter_text(param: ParamSpec) -> str:
    dtype = getattr(param.dtype, "__name__", None) if isinstance(param.dtype, TypeVar) else repr(param.dtype)
    if param.element is not None:
        dtype = repr(param.element)
    if param.kind == "array":
        dims = f', "{param.dims}"' if param.dims is not None else ""
        return f"{param.name}: {_MODE_NAMES[param.mode or 'inout']}[{dtype}{dims}]"
    if param.kind == "const":
        return f"{param.name}: Const"
    return param.name if param.dtype is None and param.element is None else f"{param.name}: {dtype}"


def resolve(spec: KernelSpec, values: list[Any]) -> KernelSpec:
    """Return the spec with unannotated parameters turned into arrays or scalars according to their values."""
    if spec.is_typed:
        return spec
    params = []
    for param, value in zip(spec.params, values, strict=True):
        if param.kind == "any":
            is_array = isinstance(value, (DeviceArray, np.ndarray)) or hasattr(value, "__vkjit_array__")
            param = (
                dataclasses.replace(param, kind="array", mode="inout")
                if is_array
                else dataclasses.replace(param, kind="scalar")
            )
        params.append(param)
    return dataclasses.replace(spec, params=tuple(params))


@dataclass(frozen=True, slots=True)
class _Origin:
    """The argument that bound a type variable, for the message if another argument disagrees."""

    dtype: DType
    name: str


def _conversion(dtype: DType, name: str) -> str:
    """Return an expression that converts an array to this element type, for messages; in NumPy if possible."""
    if dtype is dtypes.bf16:
        return f"vk.tensor({name}).to(vk.bf16), or .astype(ml_dtypes.bfloat16)"
    return f".astype({dtype.storage.name!r})"


def bind_types(spec: KernelSpec, array_dtypes: dict[int, DType], values: list[Any]) -> dict[str, DType]:
    """Bind type variables to element types: from arrays first, then from scalars."""
    __tracebackhide__ = True
    bound: dict[str, _Origin] = {}
    for i, dtype in array_dtypes.items():
        param = spec.params[i]
        if param.dtype is dtype:
            continue
        if isinstance(param.dtype, TypeVar):
            _bind_variable(spec, bound, param.dtype.__name__, dtype, param.name)
        elif param.dtype is not None:
            raise DTypeError(
                f"argument {param.name} of {spec.name}() has elements of {dtype!r}, expected {param.dtype!r}: convert it with "
                f"{_conversion(param.dtype, param.name)}"
            )
    for i in spec.scalars:
        param = spec.params[i]
        if isinstance(param.dtype, TypeVar) and param.dtype.__name__ not in bound:
            _bind_variable(spec, bound, param.dtype.__name__, natural_type(values[i], param.name), param.name)
    return {name: origin.dtype for name, origin in bound.items()} if bound else {}


def _bind_variable(spec: KernelSpec, bound: dict[str, _Origin], variable: str, dtype: DType, name: str) -> None:
    __tracebackhide__ = True
    origin = bound.get(variable)
    if origin is None:
        bound[variable] = _Origin(dtype, name)
    elif origin.dtype is not dtype:
        raise DTypeError(
            f"{spec.name}(): {variable} is {origin.dtype!r} by argument {origin.name}, but argument {name} has {dtype!r}: "
            f"convert one of them, or give them different type variables"
        )


def natural_type(value: Any, name: str) -> DType:
    """Return the type of a scalar for an untyped parameter: its NumPy type, else bool, i32 (i64 if needed) or f32."""
    if isinstance(value, (bool, np.bool_)):
        return dtypes.boolean
    is_array = isinstance(value, np.ndarray) and value.size == 1  # an array is typed even if it is f64
    if is_array or (isinstance(value, np.generic) and not isinstance(value, np.float64)):
        return dtypes.from_numpy(value.dtype)
    if isinstance(value, int):
        return dtypes.i32 if -(2**31) <= value < 2**31 else dtypes.i64
    if isinstance(value, float):
        return dtypes.f32
    dtype = getattr(value, "dtype", None)
    if isinstance(dtype, DType):  # a tensor
        return dtype
    raise ArgumentError(f"argument {name} is a {_describe(value)}: expected a number")


def _to_bf16(number: Any) -> Any:
    from ..ir import semantics  # here, so that `import vkjit` doesn't load the IR

    return semantics.to_bf16(np.asarray(number))[()]


def _only_element(value: Any, dtype: DType, name: str) -> Any:
    """Return the number in an array or tensor of one element; one of another size unchanged.

    Raises ArgumentError if the host can't read it.
    """
    if math.prod(tuple(value.shape)) != 1:
        return value
    if isinstance(value, np.ndarray):
        return value.reshape(())[()]
    array = value if isinstance(value, DeviceArray) else value.__vkjit_array__
    if not array.device.caps.unified_memory:
        raise ArgumentError(
            f"argument {name} lies on {array.device.name}, but a number of type {dtype!r} is passed by the host: pass "
            f"{name}.item(), which waits for the device, or take it as an array"
        )
    if hasattr(value, "__vkjit_launched__"):
        value.__vkjit_launched__("the kernel", name)
    return value.item() if hasattr(value, "item") else fetch(array).reshape(())[()]


def coerce_scalar(value: Any, dtype: DType, name: str) -> Any:
    """Convert the value to a NumPy scalar of that type.

    Raises DTypeError if it is out of range or an integer would be rounded.
    """
    __tracebackhide__ = True
    if isinstance(value, (np.ndarray, DeviceArray)) or hasattr(value, "__vkjit_array__"):
        value = _only_element(value, dtype, name)
    if not isinstance(value, (bool, int, float, np.number, np.bool_)):
        raise ArgumentError(f"argument {name} is a {_describe(value)}: expected a number of type {dtype!r}")
    if dtype.kind == "bool":
        if isinstance(value, (bool, np.bool_)):
            return np.bool_(value)
        raise DTypeError(f"argument {name} is {value!r} ({_describe(value)}): expected True or False")
    if dtype.is_float:
        return _coerce_float(value, dtype, name)
    if isinstance(value, (float, np.floating)):
        raise DTypeError(
            f"argument {name} is {value!r}: expected an integer of type {dtype!r}; convert it with int(...)"
        )
    limits = np.iinfo(dtype.numpy)
    number = int(value)
    if not limits.min <= number <= limits.max:
        raise DTypeError(
            f"argument {name} is {_number_text(number)}, out of range for {dtype!r} ({limits.min} to {limits.max})"
        )
    return dtype.numpy.type(number)


def coerce_scalars(spec: KernelSpec, values: list[Any], bound: dict[str, DType]) -> dict[int, DType]:
    """Convert the scalars in `values` to their types, and return these by parameter index.

    The type is as declared, as its type variable is bound, or the natural type of the value.
    """
    __tracebackhide__ = True
    types: dict[int, DType] = {}
    for i in spec.scalars:
        declared, name = spec.params[i].dtype, spec.params[i].name
        if isinstance(declared, TypeVar):
            declared = bound[declared.__name__]
        types[i] = natural_type(values[i], name) if declared is None else declared
        values[i] = coerce_scalar(values[i], types[i], name)
    return types


def _coerce_float(value: Any, dtype: DType, name: str) -> Any:
    try:
        number = float(value)
    except OverflowError:
        raise DTypeError(f"argument {name} is {_number_text(value)}, out of range for {dtype!r}") from None
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and int(number) != int(value):
        raise DTypeError(
            f"argument {name} is {value}, which {dtype!r} can't hold exactly: pass float({value}) to round it"
        )
    with np.errstate(over="ignore"):
        fitted = _to_bf16(number) if dtype is dtypes.bf16 else dtype.numpy.type(number)
    if math.isfinite(number) and not np.isfinite(fitted):
        raise DTypeError(f"argument {name} is {number!r}, out of range for {dtype!r}")
    return fitted


def _number_text(number: int) -> str:
    """Return an integer as text, without thousands of digits (which Python refuses to print)."""
    return str(number) if number.bit_length() <= _MAX_PRINTED_BITS else f"an integer of {number.bit_length()} bits"


def _is_composite(dims: Dims | None) -> bool:
    return dims is not None and any(d.value is not None and not d.simple for d in dims.dims)


def bind_dims(spec: KernelSpec, shapes: dict[int, tuple[int, ...]], values: list[Any]) -> dict[str, Any]:
    """Bind dimension names to sizes. Raises ShapeError that shows both arguments that disagree.

    Const parameters named like a dimension are its size: those given in `values` must agree with the shapes, those that
    are `MISSING` there are set to the size, or to their defaults if no array has that dimension.
    """
    __tracebackhide__ = True
    if spec.size_constants:
        return _bind_size_constants(spec, shapes, values)
    sizes: dict[str, Any] = {}
    for i, shape in shapes.items():
        dims = spec.params[i].dims
        if dims is None:
            continue
        names = dims.simple_names
        if names is None or len(names) != len(shape):
            return _match_dims(spec, shapes)
        for name, size in zip(names, shape, strict=True):
            if sizes.setdefault(name, size) != size:
                return _match_dims(spec, shapes)  # for the message
    return sizes


def _bind_size_constants(spec: KernelSpec, shapes: dict[int, tuple[int, ...]], values: list[Any]) -> dict[str, Any]:
    """Implementation of `bind_dims` for kernels with Const parameters named like dimensions."""
    __tracebackhide__ = True
    constants = {spec.params[i].name: i for i in spec.size_constants}
    given = {name: _size(spec, name, values[i]) for name, i in constants.items() if values[i] is not MISSING}
    sizes = _match_dims(spec, shapes, given)
    params = [spec.params[i] for name, i in constants.items() if name not in sizes]
    for param in params:
        if param.default is REQUIRED:
            raise _missing(spec, param)
    if params:
        sizes = _match_dims(spec, shapes, given | {p.name: _size(spec, p.name, p.default) for p in params})
    for name, i in constants.items():
        if values[i] is MISSING:
            values[i] = sizes[name]
    return sizes


def _size(spec: KernelSpec, name: str, value: Any) -> int | tuple[int, ...]:
    """Return the value of a Const parameter that is the size of a dimension. Raises ShapeError if it isn't a size."""
    parts = value if isinstance(value, tuple) else (value,)
    if any(isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 0 for n in parts):
        raise ShapeError(
            f"{spec.name}(): argument {name} is {value!r}, and the size of the dimension {name}: expected an int of at "
            f"least 0; leave it out to have it inferred"
        )
    return tuple(map(int, value)) if isinstance(value, tuple) else int(value)


def _match_dims(
    spec: KernelSpec, shapes: dict[int, tuple[int, ...]], constants: Mapping[str, int | tuple[int, ...]] = {}
) -> dict[str, Any]:
    """Implementation of `bind_dims` for dimensions of all kinds; `constants` are the sizes given by Const parameters."""
    __tracebackhide__ = True
    sizes: dict[str, Any] = dict(constants)
    origins = {name: f"argument {name} is {size}" for name, size in constants.items()}
    pending = [i for i in shapes if spec.params[i].dims is not None]
    # expressions over names that later arguments bind are checked in a second pass
    composite = [i for i in pending if _is_composite(spec.params[i].dims)]
    for i in (*pending, *composite):
        param = spec.params[i]
        assert param.dims is not None
        problem = param.dims.match(shapes[i], sizes)
        if problem is not None:
            others = {origins[n] for n in param.dims.names if n in origins}
            context = "".join(f"; {text}" for text in sorted(others))
            raise ShapeError(
                f"{spec.name}(): argument {param.name} has shape {shapes[i]}, expected ({param.dims}): {problem}{context}"
            )
        for name in param.dims.names:
            origins.setdefault(name, f"argument {param.name} has shape {shapes[i]} for ({param.dims})")
    return sizes


def allocate_outs(
    spec: KernelSpec, values: list[Any], known: dict[str, Any], bound: dict[str, DType], device: Device
) -> list[int]:
    """Allocate the omitted Outs, replacing `MISSING` in `values`. Return their indices."""
    __tracebackhide__ = True
    allocated = []
    for i in spec.arrays:
        if values[i] is not MISSING:
            continue
        param = spec.params[i]
        shape = param.dims.evaluate(known) if param.dims is not None else None
        if shape is None:
            raise ArgumentError(
                f"{spec.name}(): can't tell the shape of {param.name} from the other arguments"
                f"{f' ({param.dims})' if param.dims is not None else ''}: pass an array for it"
            )
        if any(extent < 0 for extent in shape):
            raise ShapeError(
                f"{spec.name}(): {param.name} ({param.dims}) would have the shape {shape}: expected no extent below 0"
            )
        dtype = bound.get(param.dtype.__name__) if isinstance(param.dtype, TypeVar) else param.dtype
        if dtype is None:
            raise ArgumentError(f"{spec.name}(): can't tell the element type of {param.name}: pass an array for it")
        nbytes, strides = fresh_layout(shape, dtype)
        values[i] = DeviceArray(device.allocate(nbytes), 0, dtype, shape, strides)
        allocated.append(i)
    return allocated


def check_allocated(spec: KernelSpec, allocated: list[int], unwritten_reads: dict[int, Loc]) -> None:
    """Raise CompileError for an allocated Out that the kernel certainly reads before it writes to it."""
    __tracebackhide__ = True
    for i in allocated:
        if i in unwritten_reads:
            name = spec.params[i].name
            raise CompileError(
                f"{name} is read, and nothing was written to it before: the launch allocates it without values",
                unwritten_reads[i],
                hint=f"assign to each element first, as in {name}[i] = 0; or declare {name} as vk.InOut and pass an array",
            )


def poison(array: DeviceArray) -> None:
    """Fill a new array with ones bits, NaN in all float types, to reveal unwritten elements in debug launches."""
    if array.buffer.nbytes:
        array.device.fill(array.buffer, 0, array.buffer.nbytes, 0xFFFFFFFF)
