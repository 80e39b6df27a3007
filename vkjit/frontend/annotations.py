"""Reads the annotations of kernels and device functions, as objects or as text, without evaluating code.

Enters: an annotation (an object made by `vk.In[...]`, a dtype, a TypeVar, a Python type; or a string, as under `from
__future__ import annotations`). Leaves: an `ArrayAnnotation`, a `ConstAnnotation`, a dtype, a TypeVar, or None where
the type is to be inferred. Names in strings are looked up in the function's closure, globals, builtins and type
parameters, and in the variables of the scope where the decorator ran.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any, TypeVar

import numpy as np

from .. import dtypes
from ..dtypes import DType
from ..errors import CompileError, DTypeError, Loc
from ..lang.packed import PackedFloat
from ..lang.structs import StructType
from ..lang.types import ArrayAnnotation, ConstAnnotation
from ..lang.vectors import VectorType, vec

__all__ = ["Annotation", "defining_scope", "dtype_of", "read_annotation", "read_field"]

_Composite = StructType | VectorType | PackedFloat
Annotation = ArrayAnnotation | ConstAnnotation | DType | TypeVar | StructType | VectorType | PackedFloat | None

_PYTHON_TYPES: dict[object, DType] = {float: dtypes.f32, int: dtypes.i32, bool: dtypes.boolean}


def dtype_of(value: object) -> DType | None:
    """The element type that an object stands for (a dtype, a NumPy type, `float`, `int`, `bool`), or None."""
    if isinstance(value, DType):
        return value
    if isinstance(value, type) and value in _PYTHON_TYPES:
        return _PYTHON_TYPES[value]
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        try:
            return dtypes.from_numpy(value)
        except (DTypeError, TypeError):
            return None
    return None


@dataclass(frozen=True, slots=True)
class _Place:
    """An annotation: what it belongs to, where, and the scopes in which its names are looked up."""

    what: str
    loc: Loc
    scopes: tuple[Mapping[str, Any], ...]

    def error(self, why: str) -> CompileError:
        hint = 'write a dtype (vk.f32), a TypeVar, vk.Const[int], or an array such as vk.In[vk.f32, "M N"]'
        return CompileError(f"annotation of {self.what}: {why}", self.loc, hint=hint)


def read_annotation(function: FunctionType, parameter: str, scope: Mapping[str, Any] | None = None) -> Annotation:
    """What the annotation of a parameter says; CompileError where it can't be understood."""
    code = function.__code__
    scopes = (_closure(function), _type_parameters(function), scope or {}, function.__globals__, vars(builtins))
    place = _Place(f"{parameter} in {function.__name__}", Loc(code.co_filename, code.co_firstlineno), scopes)
    found = _read(place, function.__annotations__.get(parameter))
    if isinstance(found, ArrayAnnotation) and found.mode == "array":
        raise place.error("vk.Array is for fields of structs; parameters are vk.In, vk.Out or vk.InOut")
    return found


def defining_scope(function: FunctionType) -> dict[str, Any]:
    """The variables of the function that is just now defining this one, for annotations that are text; else nothing."""
    if "<locals>" not in function.__qualname__ or not any(
        isinstance(a, str) for a in function.__annotations__.values()
    ):
        return {}
    frame = sys._getframe(1)
    while frame is not None:
        if function.__code__ in frame.f_code.co_consts:
            return dict(frame.f_locals)
        frame = frame.f_back  # type: ignore[assignment]
    return {}


def read_field(cls: type, name: str, scope: Mapping[str, Any]) -> Annotation:
    """What the annotation of a class's field says; CompileError where it can't be understood."""
    module = sys.modules.get(cls.__module__)
    scopes = (vars(cls), scope, vars(module) if module is not None else {}, vars(builtins))
    place = _Place(f"{name} in {cls.__name__}", Loc(getattr(module, "__file__", None) or cls.__module__, 1), scopes)
    return _read(place, inspect.get_annotations(cls)[name])


def _read(place: _Place, raw: object) -> Annotation:
    value = _parsed(place, raw) if isinstance(raw, str) else raw
    if value is None or value is Any:
        return None
    if isinstance(value, ArrayAnnotation):
        element = value.dtype if isinstance(value.dtype, TypeVar | _Composite) else dtype_of(value.dtype)
        if element is None:
            raise place.error(f"{value.dtype!r} is no element type")
        return ArrayAnnotation(value.mode, element, value.dims)
    if isinstance(value, ConstAnnotation | TypeVar | _Composite):
        return value
    dtype = dtype_of(value)
    if dtype is None:
        raise place.error(f"{value!r} is no type that it can have")
    return dtype


def _parsed(place: _Place, text: str) -> object:
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError:
        raise place.error(f"{text!r} doesn't parse") from None
    return _resolved(place, tree.body)


def _resolved(place: _Place, node: ast.expr) -> object:
    """The object that the tree of an annotation's text stands for."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return _name(place, node.id)
    if isinstance(node, ast.Attribute):
        base = _resolved(place, node.value)
        if not hasattr(base, node.attr):
            raise place.error(f"{ast.unparse(node)} doesn't exist")
        return getattr(base, node.attr)
    if isinstance(node, ast.Tuple):
        return tuple(_resolved(place, item) for item in node.elts)
    if isinstance(node, ast.Subscript):
        return _subscripted(place, node)
    if isinstance(node, ast.Call):
        return _called(place, node)
    raise place.error(f"{ast.unparse(node)} isn't understood")


def _name(place: _Place, name: str) -> object:
    for scope in place.scopes:
        if name in scope:
            return scope[name]
    raise place.error(f"{name} isn't found (names in annotations are looked up in the module's scope)")


def _subscripted(place: _Place, node: ast.Subscript) -> object:
    base: Any = _resolved(place, node.value)
    key = _resolved(place, node.slice)
    try:
        return base[key]
    except TypeError as error:
        raise place.error(str(error)) from None


def _called(place: _Place, node: ast.Call) -> object:
    """Only `vk.vec(dtype, size)` is called in annotations."""
    if _resolved(place, node.func) is not vec or node.keywords:
        raise place.error(f"{ast.unparse(node)} isn't understood")
    arguments: list[Any] = [_resolved(place, argument) for argument in node.args]
    return vec(*arguments)


def _closure(function: FunctionType) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return found


def _type_parameters(function: FunctionType) -> dict[str, Any]:
    return {p.__name__: p for p in getattr(function, "__type_params__", ())}
