"""Reads the annotations of kernels and device functions, as objects or as text, without evaluating code.

Enters: an annotation (an object made by `vk.In[...]`, a dtype, a TypeVar, a Python type; or a string, as under
`from __future__ import annotations`). Leaves: an `ArrayAnnotation`, a `ConstAnnotation`, a dtype, a TypeVar, or None where the
type is to be inferred. Names in strings are looked up in the function's closure, globals, builtins and type parameters, and in
the variables of the scope where the decorator ran.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Mapping
from types import FunctionType
from typing import Any, TypeVar

import numpy as np

from .. import dtypes
from ..dtypes import DType
from ..errors import CompileError, DTypeError, Loc
from ..lang.types import ArrayAnnotation, ConstAnnotation

__all__ = ["Annotation", "dtype_of", "read_annotation"]

Annotation = ArrayAnnotation | ConstAnnotation | DType | TypeVar | None

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


def read_annotation(function: FunctionType, parameter: str, scope: Mapping[str, Any] | None = None) -> Annotation:
    """What the annotation of a parameter says; CompileError where it can't be understood."""
    raw = function.__annotations__.get(parameter)
    if isinstance(raw, str):
        raw = _Reader(function, parameter, scope or {}).read(raw)
    return _classify(function, parameter, raw)


def _classify(function: FunctionType, parameter: str, value: object) -> Annotation:
    if value is None or value is Any:
        return None
    if isinstance(value, ArrayAnnotation):
        element = value.dtype if isinstance(value.dtype, TypeVar) else dtype_of(value.dtype)
        if element is None:
            raise _unreadable(function, parameter, f"{value.dtype!r} is no element type")
        return ArrayAnnotation(value.mode, element, value.dims)
    if isinstance(value, ConstAnnotation | TypeVar):
        return value
    dtype = dtype_of(value)
    if dtype is None:
        raise _unreadable(function, parameter, f"{value!r} is no type that a parameter can have")
    return dtype


def _unreadable(function: FunctionType, parameter: str, why: str) -> CompileError:
    code = function.__code__
    return CompileError(
        f"annotation of {parameter} in {function.__name__}: {why}",
        Loc(code.co_filename, code.co_firstlineno),
        hint='write a dtype (vk.f32), a TypeVar, vk.Const[int], or an array such as vk.In[vk.f32, "M N"]',
    )


class _Reader:
    """Resolves the tree of an annotation's text."""

    def __init__(self, function: FunctionType, parameter: str, scope: Mapping[str, Any]) -> None:
        self.function = function
        self.parameter = parameter
        self.scopes = [_closure(function), _type_parameters(function), scope, function.__globals__, vars(builtins)]

    def read(self, text: str) -> object:
        try:
            tree = ast.parse(text.strip(), mode="eval")
        except SyntaxError:
            raise _unreadable(self.function, self.parameter, f"{text!r} doesn't parse") from None
        return self.visit(tree.body)

    def visit(self, node: ast.expr) -> object:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return self.name(node.id)
        if isinstance(node, ast.Attribute):
            base = self.visit(node.value)
            if not hasattr(base, node.attr):
                raise _unreadable(self.function, self.parameter, f"{ast.unparse(node)} doesn't exist")
            return getattr(base, node.attr)
        if isinstance(node, ast.Tuple):
            return tuple(self.visit(item) for item in node.elts)
        if isinstance(node, ast.Subscript):
            return self.subscript(node)
        raise _unreadable(self.function, self.parameter, f"{ast.unparse(node)} isn't understood")

    def name(self, name: str) -> object:
        for scope in self.scopes:
            if name in scope:
                return scope[name]
        raise _unreadable(
            self.function,
            self.parameter,
            f"{name} isn't found (names in annotations are looked up in the module's scope)",
        )

    def subscript(self, node: ast.Subscript) -> object:
        base: Any = self.visit(node.value)
        key = self.visit(node.slice)
        try:
            return base[key]
        except TypeError as error:
            raise _unreadable(self.function, self.parameter, str(error)) from None


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
