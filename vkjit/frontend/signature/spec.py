"""`KernelSpec`: the description of a kernel by its Python signature.

`@vk.kernel` creates it from the annotations, without reading the function's source.
"""

from __future__ import annotations

import functools
import inspect
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any, TypeVar

from vkjit.dtypes import DType
from vkjit.errors import ArgumentError, CompileError, Loc
from vkjit.lang.control import Tune
from vkjit.lang.packed import PackedFloat
from vkjit.lang.structs import StructType
from vkjit.lang.types import ArrayAnnotation, ConstAnnotation
from vkjit.lang.vectors import VectorType

from ..source import LAMBDA, reject_async_and_generators
from .annotations import defining_scope, read_annotation
from .dims import Dims
from .dims_parser import parse_dims

__all__ = ["REQUIRED", "Composite", "KernelSpec", "ParamSpec", "describe", "tune_choice"]

REQUIRED: Any = inspect.Parameter.empty
"""The `default` of a required parameter."""


@dataclass(frozen=True, slots=True)
class ParamSpec:
    """One parameter of a kernel.

    - `kind`: "array", "scalar", "const", or "any" for an unannotated parameter, which may be an array or a scalar.
    - `mode`: "in", "out" or "inout" for an annotated array, else None.
    - `dtype`: the dtype of the scalar or of the array's elements; None if it is inferred from the argument.
    - `dims`: the dimensions in the annotation of an array, if it has any.
    - `default`: the default value; REQUIRED if there is none.
    - `element`: the struct, vector or packed type of a composite parameter or its elements (see `composites`), else
      None.
    """

    name: str
    kind: str
    mode: str | None
    dtype: DType | TypeVar | None
    dims: Dims | None
    default: Any
    element: StructType | VectorType | PackedFloat | None = None


@dataclass(frozen=True, slots=True)
class Composite:
    """A struct or vector parameter that `expand_composites` has replaced by its parts.

    The parts are `count` parameters of the expanded specification, from index `first` on. For an array, `part_axes` is
    the number of axes that the first part has in addition to those of the array, such as 1 for the lanes of a vector.
    """

    parameter: ParamSpec
    first: int
    count: int
    part_axes: int


@dataclass(frozen=True)
class KernelSpec:
    """A kernel's name, Python function and parameters.

    `over` is the name of the array parameter whose elements the invocations are mapped to; None for a kernel with
    explicit workgroups. `composites` lists the parameters that `expand_composites` has split into parts.
    """

    name: str
    fn: FunctionType
    params: tuple[ParamSpec, ...]
    over: str | None = None
    composites: tuple[Composite, ...] = ()

    def position(self, name: str) -> int:
        """Return the index of a parameter."""
        return next(i for i, p in enumerate(self.params) if p.name == name)

    @functools.cached_property
    def over_position(self) -> int | None:
        """The index of the parameter that `over` names; None without `over`, and if its composite was split."""
        return next((i for i, p in enumerate(self.params) if p.name == self.over), None)

    @functools.cached_property
    def is_typed(self) -> bool:
        """True if no parameter is of the kind "any"."""
        return all(p.kind != "any" for p in self.params)

    @functools.cached_property
    def constants(self) -> tuple[int, ...]:
        """The indices of the parameters of the kind "const"."""
        return self._of_kind("const")

    @functools.cached_property
    def size_constants(self) -> tuple[int, ...]:
        """The indices of the Const parameters that have the name of a dimension of an array: they are its size."""
        dimensions = {name for p in self.params if p.dims is not None for name in p.dims.names}
        return tuple(i for i in self.constants if self.params[i].name in dimensions)

    @functools.cached_property
    def scalars(self) -> tuple[int, ...]:
        """The indices of the parameters of the kind "scalar"."""
        return self._of_kind("scalar")

    @functools.cached_property
    def arrays(self) -> tuple[int, ...]:
        """The indices of the parameters of the kind "array"."""
        return self._of_kind("array")

    @functools.cached_property
    def written(self) -> tuple[bool, ...]:
        """For each of `arrays`, True if its mode allows writing."""
        return tuple(self.params[i].mode != "in" for i in self.arrays)

    def _of_kind(self, kind: str) -> tuple[int, ...]:
        return tuple(i for i, p in enumerate(self.params) if p.kind == kind)


def describe(fn: Callable[..., Any], *, over: str | None = None, scope: Mapping[str, Any] | None = None) -> KernelSpec:
    """Return the specification of the kernel that `fn` defines; `over` is the `over=` option of `@vk.kernel`.

    `scope` holds the local variables at the decorator, to resolve string annotations. Raises CompileError for invalid
    annotations and parameters.
    """
    if not isinstance(fn, FunctionType):
        raise CompileError(f"expected a function, found {fn!r}", hint="decorate a function that is written with `def`")
    reject_async_and_generators(fn)
    if fn.__name__ == LAMBDA:
        raise CompileError("a lambda can't be a kernel", place_of(fn), hint="write a function with `def`")
    scope = defining_scope(fn) if scope is None else scope
    params = tuple(_parameter(fn, p, scope) for p in inspect.signature(fn).parameters.values())
    if _is_method(fn, params):
        params = (replace(params[0], kind="const"), *params[1:])
    over = unicodedata.normalize("NFKC", over) if over is not None else None  # as Python does with identifiers
    spec = KernelSpec(fn.__name__, fn, params, over)
    if over is not None:
        _check_over(spec, over)
    for param in map(spec.params.__getitem__, spec.size_constants):
        if isinstance(param.default, Tune):
            raise CompileError(
                f"{fn.__name__}: {param.name} has choices to tune and is the size of a dimension {param.name}",
                place_of(fn),
                hint="give one of the two another name",
            )
    return spec


def _is_method(fn: FunctionType, params: tuple[ParamSpec, ...]) -> bool:
    """True for a function of a class whose first parameter is the instance or the class, which is a constant then."""
    outer = fn.__qualname__.rpartition(".")[0]
    is_in_class = bool(outer) and not outer.endswith("<locals>")
    return is_in_class and bool(params) and params[0].name in ("self", "cls") and params[0].kind == "any"


def tune_choice(value: Any) -> Any:
    """Return the first choice of a `vk.tune(...)` object; return any other value unchanged."""
    return value.choices[0] if isinstance(value, Tune) else value


def place_of(fn: FunctionType) -> Loc:
    """Return the location of a function's first line, without reading its source."""
    return Loc(fn.__code__.co_filename, fn.__code__.co_firstlineno)


def _check_over(spec: KernelSpec, over: str) -> None:
    """Raise CompileError unless `over` names an array parameter."""
    arrays = [p.name for p in spec.params if p.kind in ("array", "any")]
    if over not in arrays:
        raise CompileError(
            f"over={over!r} names no array parameter of {spec.name}",
            place_of(spec.fn),
            hint=f"name one of its arrays: {', '.join(arrays) or 'it has none'}",
        )


def _parameter(fn: FunctionType, parameter: inspect.Parameter, scope: Mapping[str, Any] | None) -> ParamSpec:
    """Return the description of one parameter. Raises CompileError if its annotation or kind isn't allowed."""
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise CompileError(
            f"{fn.__name__} takes *{parameter.name}: a kernel has a fixed list of parameters",
            place_of(fn),
            hint="name each parameter",
        )
    annotation = read_annotation(fn, parameter.name, scope)
    name, default = parameter.name, parameter.default
    if isinstance(annotation, ArrayAnnotation):
        dims, dtype = _dims(fn, name, annotation.dims), annotation.dtype
        if isinstance(dtype, StructType | VectorType | PackedFloat):
            return ParamSpec(name, "array", annotation.mode, None, dims, default, dtype)
        return ParamSpec(name, "array", annotation.mode, dtype, dims, default)
    if isinstance(annotation, ConstAnnotation):
        return ParamSpec(name, "const", None, None, None, default)
    if isinstance(annotation, PackedFloat):
        hint = "take it as vk.f32"
        raise CompileError(
            f"{fn.__name__}: {name} is {annotation!r}, a type of elements of arrays", place_of(fn), hint=hint
        )
    if isinstance(annotation, StructType | VectorType):
        return ParamSpec(name, "scalar", None, None, None, default, annotation)
    return ParamSpec(name, "scalar" if annotation is not None else "any", None, annotation, None, default)


def _dims(fn: FunctionType, name: str, text: str | None) -> Dims | None:
    """Parse the dimension string of parameter `name`."""
    if text is None:
        return None
    try:
        return parse_dims(text)
    except ArgumentError as error:
        raise CompileError(f"annotation of {name} in {fn.__name__}: {error}", place_of(fn)) from None
