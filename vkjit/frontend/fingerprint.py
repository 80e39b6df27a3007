"""What a kernel depends on besides its arguments: its source, that of the device functions that it reaches, captured
values.

Enters: a function. Leaves: `Captures`: a digest for cache keys, and a cheap test of whether captured names still mean
the same objects. Names are found in the tree, so that a name in a branch that isn't compiled counts too.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import dataclasses
import enum
import functools
import hashlib
import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import CellType, FunctionType, ModuleType
from typing import Any, TypeVar, cast

import numpy as np

from ..dtypes import DType
from ..errors import CompileError
from ..lang.control import Tune
from ..lang.packed import PackedFloat
from ..lang.structs import StructType
from ..lang.types import ArrayAnnotation, ConstAnnotation
from ..lang.vectors import VectorType
from .function import DeviceFunction
from .names import MISSING, find_global, is_frozen
from .signature import exact
from .source import source_of

__all__ = ["Captures", "fingerprint", "value_digest"]


@dataclass(frozen=True, slots=True)
class Check:
    """One captured name: how to read it again, and what it was."""

    read: Callable[[], Any]
    value: Any

    def holds(self) -> bool:
        now = self.read()
        if now is self.value:
            return True
        return isinstance(now, int | float | str | tuple) and bool(exact(now) == exact(self.value))


Quick = tuple[
    tuple[tuple[dict[str, Any], str, Any], ...], tuple[tuple[CellType, Any], ...], tuple[Callable[[], bool], ...]
]
"""Look-ups and cells that must hold the same objects for nothing to have changed, and functions that must return True."""


class Captures:
    """What a function captures, device functions included; read from its source when it is first asked for, or `taken`.

    Also what a constant captures: a device function, a struct with methods, a tuple of these. Raises CompileError where the
    source can't be read.
    """

    def __init__(self, fn: Any) -> None:
        self.fn = fn

    def taken(self) -> Captures:
        """These captures, read now: what changes from here on counts."""
        self._walk  # noqa: B018  (it is remembered)
        return self

    @functools.cached_property
    def _walk(self) -> _Walk:
        walk = _Walk()
        if not isinstance(self.fn, FunctionType):
            walk.value(self.fn)
            return walk
        walk.function(self.fn)
        _latest[:] = [weakref.ref(self)]
        return walk

    def any(self) -> bool:
        """Whether anything is captured that could change."""
        return bool(self._walk.checks)

    @property
    def digest(self) -> str:
        """Hexadecimal: equal digests compile to the same code for equal signatures."""
        return self._walk.hash.hexdigest()

    def changed(self) -> bool:
        """Whether a captured name means something else than when it was first asked for."""
        walk = self._walk
        for namespace, name, value in walk.places:
            if namespace.get(name, MISSING) is not value:
                return not all(check.holds() for check in walk.checks)
        return not all(check.holds() for check in walk.others)

    def quick(self) -> Quick:
        """The same as something to go through without calls."""
        walk = self._walk
        cells = tuple((c.read.args[0], c.value) for c in walk.others if isinstance(c.read, functools.partial))
        others = tuple(c.holds for c in walk.others if not isinstance(c.read, functools.partial))
        places = {(id(namespace), name): (namespace, name, value) for namespace, name, value in reversed(walk.places)}
        return tuple(places.values()), cells, others


def fingerprint(fn: Callable[..., Any]) -> str:
    """The digest of a function: equal digests compile to the same code for equal signatures."""
    for reference in _latest:  # a launcher has just looked at the function that it has compiled
        known = reference()
        if known is not None and known.fn is fn and not known.changed():
            return known.digest
    return Captures(fn).digest


_latest: list[weakref.ref[Captures]] = []
"""The captures that were read last."""


def value_digest(value: object) -> str:
    """The digest of a constant: equal digests mean the same to a kernel, in every process."""
    walk = _Walk()
    walk.value(value)
    return walk.hash.hexdigest()


class _Walk:
    """Collects the digest and the checks of a function and those that it refers to."""

    def __init__(self) -> None:
        self.hash = hashlib.sha256()
        self.checks: list[Check] = []
        # The same checks in a form that is quick where nothing has changed: look-ups in globals, and the others.
        self.places: list[tuple[dict[str, Any], str, Any]] = []
        self.others: list[Check] = []
        self.seen: set[FunctionType | StructType] = set()

    def add(self, *words: object) -> None:
        self.hash.update("\0".join(map(str, words)).encode() + b"\1")

    def function(self, fn: FunctionType) -> None:
        if fn in self.seen:
            self.add("again", fn.__qualname__)
            return
        self.seen.add(fn)
        source = source_of(fn)
        self.add("function", fn.__qualname__, source.text(), source.node.lineno, source.file)
        for default in (*(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values()):
            self.value(default)
        for annotation in fn.__annotations__.values():
            self.add(repr(annotation))
        for chain in sorted(_outer_chains(source.node)):
            self.chain(fn, chain)

    def device_function(self, function: DeviceFunction) -> None:
        """A device function, with its annotations as they were read: text in them stands for what it means there."""
        if function.fn not in self.seen:
            with contextlib.suppress(CompileError):  # the compiler reports it, with the place of the call
                for name, annotation in function.annotations.items():
                    self.add("parameter", name)
                    self.value(annotation)
        self.function(function.fn)

    def check(self, read: Callable[[], Any], value: Any, places: tuple[tuple[dict[str, Any], str, Any], ...]) -> None:
        """A name to look at again before each launch."""
        check = Check(read, value)
        self.checks.append(check)
        self.places += [
            place for place in places if not any(place[0] is d and place[1] == n for d, n, _ in self.places)
        ]
        if not places:
            self.others.append(check)

    def chain(self, fn: FunctionType, chain: tuple[str, ...]) -> None:
        """A captured name with its attributes, as far as they are read from modules and classes."""
        name, *rest = chain
        value = find_global(fn, name)
        if value is MISSING:
            return
        self.check(_reader(fn, name), value, _places(fn, name, value))
        path = name
        for attribute in rest:
            if not isinstance(value, ModuleType | type) or isinstance(value, DType) or not hasattr(value, attribute):
                break
            owner, value, path = value, getattr(value, attribute), f"{path}.{attribute}"
            if not _is_ours(owner):
                self.check(_attribute_reader(owner, attribute), value, ())
        self.add("name", path)
        self.value(value)

    def value(self, value: object) -> None:
        """What a captured object means: functions, structs and tuples by their parts, the rest by its text."""
        if isinstance(value, DeviceFunction):
            self.device_function(value)
        elif isinstance(value, StructType):
            self.struct(value)
        elif isinstance(value, tuple | Tune):
            items = value if isinstance(value, tuple) else value.choices
            self.add(type(value).__name__, len(items))
            for item in items:
                self.value(item)
        elif isinstance(value, float):
            self.add(type(value).__name__, value.hex())
        elif isinstance(value, np.ufunc):
            self.add("ufunc", value.__name__)
        elif isinstance(value, np.dtype):
            self.add("numpy dtype", value.descr)
        elif isinstance(value, TypeVar):
            self.add("type variable", value.__name__)
        elif is_frozen(value) and not isinstance(value, _BY_TEXT):
            self.add("dataclass", type(value).__module__, type(value).__qualname__)
            for field in dataclasses.fields(cast(Any, value)):
                self.add("field", field.name)
                self.value(getattr(value, field.name))
        elif isinstance(value, _BY_TEXT):
            self.add(type(value).__name__, repr(value))
        else:
            self.other(value)

    def other(self, value: object) -> None:
        """Modules, classes and functions go by their names. What else a kernel may not capture, so that its code can't
        depend on it; should that change, no other process finds the code.
        """
        name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
        known = isinstance(value, ModuleType | type) or (callable(value) and isinstance(name, str))
        self.add(type(value).__name__, getattr(value, "__module__", ""), name if known else _UNKNOWN)

    def struct(self, kind: StructType) -> None:
        """A struct: its fields with their types and defaults, and its methods."""
        if kind in self.seen:
            self.add("again", kind.cls.__qualname__)
            return
        self.seen.add(kind)
        self.add("struct", kind.cls.__module__, kind.cls.__qualname__)
        from .annotations import read_field  # it brings the parser of dimensions along

        for name in kind.fields:
            self.add("field", name)
            self.value(read_field(kind.cls, name, kind.scope))
            self.value(kind.defaults.get(name, MISSING))
        for name, member in vars(kind.cls).items():
            if isinstance(member, FunctionType | DeviceFunction):
                self.add("method", name)
                method = member if isinstance(member, DeviceFunction) else DeviceFunction(member, kind.scope)
                with contextlib.suppress(CompileError):  # one without source can't be called, and needn't be
                    self.device_function(method)


_UNKNOWN = os.urandom(16).hex()
_BY_TEXT = (
    bool, int, str, np.generic, enum.Enum, type(None), DType, VectorType, PackedFloat, ArrayAnnotation, ConstAnnotation,
)  # fmt: skip


def _is_ours(owner: object) -> bool:
    """Modules of this library don't change under a kernel."""
    return isinstance(owner, ModuleType) and owner.__name__.split(".")[0] in ("vkjit", "math", "numpy")


def _places(fn: FunctionType, name: str, value: Any) -> tuple[tuple[dict[str, Any], str, Any], ...]:
    """The look-ups that find a name's value in globals or builtins; none where it is found elsewhere."""
    if name in fn.__code__.co_freevars or any(p.__name__ == name for p in getattr(fn, "__type_params__", ())):
        return ()
    if name in fn.__globals__:
        return ((fn.__globals__, name, value),)
    return ((fn.__globals__, name, MISSING), (vars(builtins), name, value))


def _reader(fn: FunctionType, name: str) -> Callable[[], Any]:
    names = fn.__code__.co_freevars
    if name in names:
        return functools.partial(_content, (fn.__closure__ or ())[names.index(name)])
    return lambda: find_global(fn, name)


def _content(cell: CellType) -> Any:
    """What a free variable is now."""
    try:
        return cell.cell_contents
    except ValueError:  # nothing yet
        return MISSING


def _attribute_reader(owner: object, name: str) -> Callable[[], Any]:
    return lambda: getattr(owner, name, MISSING)


_NO_CHILDREN = frozenset({"ctx", "op", "ops", "kind", "type_comment"})
"""Fields of nodes in which no names are."""


def _outer_chains(function: ast.FunctionDef) -> set[tuple[str, ...]]:
    """Names that aren't local, with the attributes read from them: ("vk", "exp"). One walk over the body: this is most of
    what finding a kernel in the cache takes.
    """
    a = function.args
    local = {p.arg for p in (*a.posonlyargs, *a.args, *a.kwonlyargs)}
    found: set[tuple[str, ...]] = set()
    left: list[ast.AST] = list(function.body)
    while left:
        node = inner = left.pop()
        attributes: list[str] = []
        while isinstance(inner, ast.Attribute):
            attributes.append(inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name):
            if not isinstance(node.ctx, ast.Load):  # type: ignore[attr-defined]  # names and attributes have it
                local.add(inner.id)
            found.add((inner.id, *reversed(attributes)))
            continue
        for name in inner._fields:
            value = getattr(inner, name, None) if name not in _NO_CHILDREN else None
            if isinstance(value, ast.AST):
                left.append(value)
            elif isinstance(value, list):
                left += [item for item in value if isinstance(item, ast.AST)]
    return {chain for chain in found if chain[0] not in local}
