"""Read the type annotations of kernels, device functions and struct fields without evaluating code.

An annotation is an object (`vk.In[...]`, a dtype, a TypeVar, a Python type) or, under `from __future__ import
annotations`, a string. The result is an `Annotation`; None means that the type is inferred. Names in strings are looked
up in the function's closure, its type parameters, the local scope of the decorator, the globals and the builtins, in
this order.
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

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.errors import CompileError, DTypeError, Loc
from vkjit.lang.packed import PackedFloat
from vkjit.lang.structs import StructType
from vkjit.lang.types import ArrayAnnotation, ConstAnnotation
from vkjit.lang.vectors import VectorType, vec

__all__ = ["Annotation", "defining_scope", "dtype_of", "nested_annotation", "read_annotation", "read_field"]

# Types whose values consist of parts; see `composites`.
_Composite = StructType | VectorType | PackedFloat
Annotation = ArrayAnnotation | ConstAnnotation | DType | TypeVar | StructType | VectorType | PackedFloat | None

_PYTHON_TYPES: dict[object, DType] = {float: dtypes.f32, int: dtypes.i32, bool: dtypes.boolean}


def dtype_of(value: object) -> DType | None:
    """Return the element type that an object denotes (a dtype, a NumPy type, `float`, `int`, `bool`), or None."""
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
class _AnnotationSite:
    """The context of one annotation, for messages and name look-up.

    - `what`: the annotated parameter or field as text, such as "x in saxpy".
    - `loc`: the location for errors.
    - `scopes`: the mappings in which names are looked up, in this order.
    """

    what: str
    loc: Loc
    scopes: tuple[Mapping[str, Any], ...]

    def error(self, why: str) -> CompileError:
        """Return the error for an invalid annotation."""
        hint = 'write a dtype (vk.f32), a TypeVar, vk.Const[int], or an array such as vk.In[vk.f32, "M N"]'
        return CompileError(f"annotation of {self.what}: {why}", self.loc, hint=hint)


def read_annotation(function: FunctionType, parameter: str, scope: Mapping[str, Any] | None = None) -> Annotation:
    """Return the annotation of a parameter. Raises CompileError if it isn't valid.

    `scope` holds the local variables at the function's decorator (see `defining_scope`).
    """
    code = function.__code__
    place = Loc(code.co_filename, code.co_firstlineno)
    site = _AnnotationSite(f"{parameter} in {function.__name__}", place, _scopes(function, scope or {}))
    return _parameter_annotation(site, function.__annotations__.get(parameter))


def nested_annotation(function: FunctionType, parameter: str, node: ast.expr | None, loc: Loc) -> Annotation:
    """Return the annotation `node` of a parameter of a function that is nested in `function`; see `read_annotation`.

    `parameter` names it in messages.
    """
    site = _AnnotationSite(parameter, loc, _scopes(function, {}))
    return _parameter_annotation(site, None if node is None else _evaluate_node(site, node))


def _scopes(function: FunctionType, scope: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    return (_closure(function), _type_parameters(function), scope, function.__globals__, vars(builtins))


def _parameter_annotation(site: _AnnotationSite, value: object) -> Annotation:
    annotation = _convert_annotation(site, value)
    if isinstance(annotation, ArrayAnnotation) and annotation.mode == "array":
        raise site.error("vk.Array is for fields of structs; parameters are vk.In, vk.Out or vk.InOut")
    return annotation


def defining_scope(function: FunctionType) -> dict[str, Any]:
    """Return the local variables of the function that is currently defining `function`, to resolve string annotations.

    The result is empty if `function` isn't nested in another function, or has no string annotations.
    """
    is_nested = "<locals>" in function.__qualname__
    if not is_nested or not any(isinstance(a, str) for a in function.__annotations__.values()):
        return {}
    # The code object of a nested function is a constant of the function that defines it.
    frame = sys._getframe(1)
    while frame is not None:
        if function.__code__ in frame.f_code.co_consts:
            return dict(frame.f_locals)
        frame = frame.f_back  # type: ignore[assignment]
    return {}


def read_field(cls: type, name: str, scope: Mapping[str, Any]) -> Annotation:
    """Return the annotation of a field of a class. Raises CompileError if it isn't valid.

    `scope` holds the local variables at the class's decorator.
    """
    module = sys.modules.get(cls.__module__)
    scopes = (vars(cls), scope, vars(module) if module is not None else {}, vars(builtins))
    site = _AnnotationSite(
        f"{name} in {cls.__name__}", Loc(getattr(module, "__file__", None) or cls.__module__, 1), scopes
    )
    return _convert_annotation(site, inspect.get_annotations(cls)[name])


def _convert_annotation(site: _AnnotationSite, annotation: object) -> Annotation:
    """Convert an annotation (an object or a string) to an `Annotation`, with element types as dtypes."""
    value = _evaluate_text(site, annotation) if isinstance(annotation, str) else annotation
    if value is None or value is Any:
        return None
    if isinstance(value, ArrayAnnotation):
        element = value.dtype if isinstance(value.dtype, TypeVar | _Composite) else dtype_of(value.dtype)
        if element is None:
            raise site.error(f"{value.dtype!r} is no element type")
        return ArrayAnnotation(value.mode, element, value.dims)
    if isinstance(value, ConstAnnotation | TypeVar | _Composite):
        return value
    dtype = dtype_of(value)
    if dtype is None:
        raise site.error(f"{value!r} is no type that it can have")
    return dtype


def _evaluate_text(site: _AnnotationSite, text: str) -> object:
    """Return the object that a string annotation denotes."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError:
        raise site.error(f"{text!r} doesn't parse") from None
    return _evaluate_node(site, tree.body)


def _evaluate_node(site: _AnnotationSite, node: ast.expr) -> object:
    """Return the object that the syntax tree of a string annotation denotes."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return _look_up_name(site, node.id)
    if isinstance(node, ast.Attribute):
        base = _evaluate_node(site, node.value)
        if not hasattr(base, node.attr):
            raise site.error(f"{ast.unparse(node)} doesn't exist")
        return getattr(base, node.attr)
    if isinstance(node, ast.Tuple):
        return tuple(_evaluate_node(site, item) for item in node.elts)
    if isinstance(node, ast.Subscript):
        return _evaluate_subscript(site, node)
    if isinstance(node, ast.Call):
        return _evaluate_call(site, node)
    raise site.error(f"{ast.unparse(node)} isn't understood")


def _look_up_name(site: _AnnotationSite, name: str) -> object:
    """Look up a name in the scopes of the annotation."""
    for scope in site.scopes:
        if name in scope:
            return scope[name]
    raise site.error(f"{name} isn't found where the annotation is written")


def _evaluate_subscript(site: _AnnotationSite, node: ast.Subscript) -> object:
    base: Any = _evaluate_node(site, node.value)
    key = _evaluate_node(site, node.slice)
    try:
        return base[key]
    except TypeError as error:
        raise site.error(str(error)) from None


def _evaluate_call(site: _AnnotationSite, node: ast.Call) -> object:
    """Evaluate a call in an annotation; only `vk.vec(dtype, size)` is allowed."""
    if _evaluate_node(site, node.func) is not vec or node.keywords:
        raise site.error(f"{ast.unparse(node)} isn't understood")
    arguments: list[Any] = [_evaluate_node(site, argument) for argument in node.args]
    return vec(*arguments)


def _closure(function: FunctionType) -> dict[str, Any]:
    """Return the variables of the function's closure, by name."""
    values: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            values[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return values


def _type_parameters(function: FunctionType) -> dict[str, Any]:
    """Return the type parameters of a generic function (`def f[T](...)`), by name."""
    return {p.__name__: p for p in getattr(function, "__type_params__", ())}
