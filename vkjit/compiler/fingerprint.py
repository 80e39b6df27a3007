"""Fingerprints of kernels: digests of their source, of the device functions that they call, and of captured values.

A captured name is a global or nonlocal name that a function uses. Its value is a constant in the compiled kernel, so
the kernel must be compiled again if the value changes. `Captures` provides a digest for the keys of the disk cache, and
a cheap check before each launch that the captured names still have their values. Names are collected from the syntax
tree, including those in branches that aren't compiled.
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
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import CellType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any, TypeVar, cast

import numpy as np

from ..dtypes import DType
from ..errors import CompileError
from ..frontend.scope import NestedFunction, parameters_of
from ..frontend.signature.free_names import (
    MISSING,
    class_entry,
    class_parts,
    find_global,
    is_frozen,
    is_mapping,
    size_fault,
)
from ..frontend.signature.function import DeviceFunction, is_helper
from ..frontend.signature.signature import constant_key
from ..frontend.source import FunctionSource, source_of
from ..lang.control import Tune
from ..lang.packed import PackedFloat
from ..lang.structs import StructType
from ..lang.types import ArrayAnnotation, ConstAnnotation
from ..lang.vectors import VectorType

__all__ = ["Captures", "fingerprint", "value_digest"]


@dataclass(frozen=True, slots=True)
class Check:
    """A check of one captured name. `read` returns the name's current value; `value` is the recorded one."""

    read: Callable[[], Any]
    value: Any

    def holds(self) -> bool:
        """True if the name is still bound to the same object, or to an equal number, string or tuple."""
        current = self.read()
        if current is self.value:
            return True
        if isinstance(current, MethodType):
            return bool(current == self.value)
        return isinstance(current, int | float | str | tuple) and bool(
            constant_key(current) == constant_key(self.value)
        )


DictionaryEntry = tuple[dict[str, Any], str, Any]
"""(dictionary, key, recorded value) of a name in a dictionary, such as a module's globals.

The recorded value is MISSING if the dictionary had no such key.
"""
InlineChecks = tuple[tuple[DictionaryEntry, ...], tuple[tuple[CellType, Any], ...], tuple[Callable[[], bool], ...]]
"""(dictionary entries, closure cells, predicates): the data of `Captures.inline_checks`.

A cell is (closure cell, recorded value). The captures are unchanged if all entries and cells have the recorded values
and all predicates return True.
"""


class Captures:
    """Everything that a function captures, including the captures of the device functions that it calls.

    `fn` is the function. It may also be a constant that captures something: a device function, a struct with methods,
    or a tuple of these. The source is read on first use, or by `read_now`. Raises CompileError if the source can't be
    read.
    """

    def __init__(self, fn: Any) -> None:
        self.fn = fn

    def read_now(self) -> Captures:
        """Read the captures now, so that later changes are detected, and return self."""
        self._walk  # noqa: B018  (a cached property)
        return self

    @functools.cached_property
    def _walk(self) -> _Walk:
        """The traversal of everything that `fn` captures, done on first use."""
        walk = _Walk()
        if not isinstance(self.fn, FunctionType):
            walk.value(self.fn)
            return walk
        walk.function(self.fn)
        _latest[:] = [weakref.ref(self)]
        return walk

    def any(self) -> bool:
        """True if any captured name could change."""
        return bool(self._walk.checks)

    @property
    def digest(self) -> str:
        """Hexadecimal digest. Functions with equal digests compile to the same code for equal signatures."""
        return self._walk.hash.hexdigest()

    def sources(self) -> tuple[tuple[FunctionType, FunctionSource], ...]:
        """Return the functions in the captures, each with its source."""
        return tuple((fn, source_of(fn).alone()) for fn in self._walk.seen if isinstance(fn, FunctionType))

    def changed(self) -> bool:
        """True if a captured name has another value than when the captures were read."""
        walk = self._walk
        for namespace, name, value in walk.dictionary_entries:
            if namespace.get(name, MISSING) is not value:  # another object, but perhaps an equal number
                return not all(check.holds() for check in walk.checks)
        return bool(walk.other_checks) and not all(check.holds() for check in walk.other_checks)

    def inline_checks(self) -> InlineChecks:
        """Return the checks of `changed` as data that a caller can test inline, mostly without function calls."""
        walk = self._walk
        # `_reader` reads closure cells with a `partial` whose argument is the cell
        cells = tuple((c.read.args[0], c.value) for c in walk.other_checks if isinstance(c.read, functools.partial))
        predicates = tuple(c.holds for c in walk.other_checks if not isinstance(c.read, functools.partial))
        # reversed, so that the first entry with a key remains in the dict
        entries = {
            (id(namespace), name): (namespace, name, value)
            for namespace, name, value in reversed(walk.dictionary_entries)
        }
        return tuple(entries.values()), cells, predicates


def fingerprint(fn: Callable[..., Any]) -> str:
    """Return the digest of a function. Functions with equal digests compile to the same code for equal signatures."""
    for reference in _latest:  # a launcher has usually just checked the captures of this function
        captures = reference()
        if captures is not None and captures.fn is fn and not captures.changed():
            return captures.digest
    return Captures(fn).digest


_latest: list[weakref.ref[Captures]] = []
"""The captures that were read most recently: at most one weak reference, changed in place."""


def value_digest(value: object) -> str:
    """Return the digest of a constant; stable across processes."""
    walk = _Walk()
    walk.value(value)
    return walk.hash.hexdigest()


class _Walk:
    """Traversal that collects the digest and the checks of a function and of everything that it refers to."""

    def __init__(self) -> None:
        self.hash = hashlib.sha256()
        self.checks: list[Check] = []
        # The same checks in a form that is faster to test: `dictionary_entries` for names in dictionaries, and
        # `other_checks` for all other names.
        self.dictionary_entries: list[DictionaryEntry] = []
        self.other_checks: list[Check] = []
        self.seen: set[FunctionType | StructType] = set()
        self.classes: set[type] = set()  # those whose members are added
        self.pending: list[FunctionType] | None = None  # functions to be added; a list while `function` runs

    def add(self, *parts: object) -> None:
        """Add the texts of `parts` to the digest, with separators."""
        self.hash.update("\0".join(map(str, parts)).encode(errors="surrogatepass") + b"\1")

    def function(self, fn: FunctionType) -> None:
        """Add a Python function and all functions that it refers to, one after another: chains of them can be long."""
        if fn in self.seen:
            self.add("again", fn.__qualname__)
            return
        self.seen.add(fn)
        if self.pending is not None:
            self.add("later", fn.__qualname__)
            self.pending.append(fn)
            return
        self.pending = [fn]
        try:
            for function in self.pending:  # grows meanwhile
                self._parts(function)
        finally:
            self.pending = None

    def _parts(self, fn: FunctionType) -> None:
        """Add the source of a function and its position, default values, annotations and captured names."""
        source = source_of(fn)
        self.add("function", fn.__qualname__, source.text(), source.node.lineno, source.file)
        for default in (*(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values()):
            self.value(default)
        for annotation in fn.__annotations__.values():
            self.add(repr(annotation))
        for chain in sorted(_outer_chains(source.node)):
            self.chain(fn, chain)

    def device_function(self, function: DeviceFunction) -> None:
        """Add a device function with its resolved annotations. The source alone isn't enough, since the meaning of
        string annotations depends on their scope.
        """
        if function.fn not in self.seen:
            with contextlib.suppress(CompileError):  # the compiler reports it with the location of the call
                for name, annotation in function.annotations.items():
                    self.add("parameter", name)
                    self.value(annotation)
        self.function(function.fn)

    def helper(self, fn: FunctionType) -> None:
        """Add a plain Python function that kernels may call; by its name if its source can't be read."""
        try:
            source_of(fn)
        except CompileError:  # the compiler reports it with the location of the call
            self.other(fn)
        else:
            self.function(fn)

    def members(self, kind: type) -> None:
        """Add the methods and class attributes of a constant's class."""
        if kind is tuple or kind in self.classes:
            return
        self.classes.add(kind)
        for name, value in class_parts(kind):
            self.add("attribute", name)
            self.check(_class_reader(kind, name), _snapshot(class_entry(kind, name)), ())
            self.value(value)

    def check(self, read: Callable[[], Any], value: Any, look_ups: tuple[DictionaryEntry, ...]) -> None:
        """Record a captured name to check before each launch.

        `read` returns the name's current value, and `value` is the recorded one. `look_ups` are the dictionary entries
        that determine the value. They are empty for a name that isn't found in a dictionary, such as one in a closure.
        """
        check = Check(read, value)
        self.checks.append(check)
        self.dictionary_entries += [
            (dictionary, key, recorded)
            for dictionary, key, recorded in look_ups
            if not any(dictionary is other and key == name for other, name, _ in self.dictionary_entries)
        ]
        if not look_ups:
            self.other_checks.append(check)

    def chain(self, fn: FunctionType, chain: tuple[str, ...]) -> None:
        """Add a captured name with the attributes read from it, such as `("vk", "exp")`, and the resulting value.

        Attributes are resolved as long as their owner is a module or class. The value of the last resolved one is
        added.
        """
        name, *rest = chain
        value = find_global(fn, name)
        if value is MISSING:
            return
        if isinstance(value, functools.partial) or is_mapping(value):  # they may change
            self.check(lambda: _snapshot(find_global(fn, name)), _snapshot(value), ())
        else:
            self.check(_reader(fn, name), value, _look_ups(fn, name, value))
        path = name
        for attribute in rest:
            # dtypes are classes, but count as constants here
            if not isinstance(value, ModuleType | type) or isinstance(value, DType) or not hasattr(value, attribute):
                break
            owner, value = value, getattr(value, attribute)
            path = f"{path}.{attribute}"
            if not _is_constant_module(owner):
                self.check(_attribute_reader(owner, attribute), _snapshot(value), ())
        self.add("name", path)
        self.value(value)

    def value(self, value: object) -> None:
        """Add a captured object.

        Functions, structs, tuples and frozen dataclasses are added by their parts, other constants by their repr. Those
        that are too large can't be captured, which the compiler reports.
        """
        if size_fault(value):
            self.other(value)
        else:
            self.part(value)

    def part(self, value: object) -> None:
        """Add a captured object, or a part of one; see `value`."""
        if self._callable(value) or self._class(value):
            return
        if isinstance(value, StructType):
            self.struct(value)
        elif isinstance(value, dict | MappingProxyType):
            self.add("dictionary", len(value))
            for key, item in value.items():
                self.value(key)
                self.value(item)
        elif isinstance(value, tuple | Tune):
            items = value if isinstance(value, tuple) else value.choices
            self.add(*_type_name(value), len(items))
            self.members(type(value))
            for item in items:
                self.part(item)
        elif isinstance(value, enum.Enum):
            self.add("member", *_type_name(value), value.name)
            self.value(value.value)
            self.members(type(value))
        elif isinstance(value, float):
            self.add(*_type_name(value), value.hex())
        elif isinstance(value, int | str):  # not by the repr of a subclass, which may hide the value
            self.add(*_type_name(value), int.__repr__(value) if isinstance(value, int) else str.__repr__(value))
        elif isinstance(value, np.ufunc):
            self.add("ufunc", value.__name__)
        elif isinstance(value, np.dtype):
            self.add("numpy dtype", value.descr)
        elif isinstance(value, TypeVar):
            self.add("type variable", value.__name__)
        elif is_frozen(value) and not isinstance(value, _BY_TEXT):
            self.add("dataclass", *_type_name(value))
            self.members(type(value))
            for field in dataclasses.fields(cast(Any, value)):
                self.add("field", field.name)
                self.part(getattr(value, field.name))
        elif isinstance(value, _BY_TEXT):
            self.add(type(value).__name__, repr(value))
        else:
            self.other(value)

    def _callable(self, value: object) -> bool:
        """Add a function that kernels can call, perhaps with arguments; return False for any other object."""
        if isinstance(value, DeviceFunction):
            self.device_function(value)
        elif isinstance(value, FunctionType) and is_helper(value):
            self.helper(value)
        elif isinstance(value, functools.partial):
            self.add("partial", len(value.args), *value.keywords)
            for item in (value.func, *value.args, *value.keywords.values()):
                self.part(item)
        elif isinstance(value, MethodType):
            self.part(value.__func__)
            self.part(value.__self__)
        else:
            return False
        return True

    def _class(self, value: object) -> bool:
        """Add a class of the user with its members; return False for any other object."""
        if not isinstance(value, type) or isinstance(value, DType) or value in self.classes:
            return False
        self.other(value)
        members: Iterable[object] = list[object](value) if isinstance(value, enum.EnumMeta) else ()
        for member in members:
            self.part(member)
        for name in getattr(value, "_fields", ()):
            self.add("field", name)
            self.value(getattr(value, "_field_defaults", {}).get(name))
        self.members(value)
        return True

    def other(self, value: object) -> None:
        """Add an object of a type that `value` doesn't handle.

        Modules, classes and functions are added by name. Kernels can't capture any other object, so it doesn't affect
        their code. A value that is random per process is added for it. If kernels could ever capture such objects, the
        random value would prevent processes from sharing cache entries.
        """
        name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
        has_name = isinstance(value, ModuleType | type) or (callable(value) and isinstance(name, str))
        self.add(type(value).__name__, getattr(value, "__module__", ""), name if has_name else _PROCESS_NONCE)

    def struct(self, struct_type: StructType) -> None:
        """Add a struct: its fields with types and defaults, and its methods."""
        if struct_type in self.seen:
            self.add("again", struct_type.cls.__qualname__)
            return
        self.seen.add(struct_type)
        self.add("struct", struct_type.cls.__module__, struct_type.cls.__qualname__)
        from ..frontend.signature.annotations import read_field  # imported late: it imports the dimension parser

        for name in struct_type.fields:
            self.add("field", name)
            self.value(read_field(struct_type.cls, name, struct_type.scope))
            self.value(struct_type.defaults.get(name, MISSING))
        for name, member in vars(struct_type.cls).items():
            if isinstance(member, FunctionType | DeviceFunction):
                self.add("method", name)
                method = member if isinstance(member, DeviceFunction) else DeviceFunction(member, struct_type.scope)
                with contextlib.suppress(CompileError):  # a method without source can't be called anyway
                    self.device_function(method)


_PROCESS_NONCE = os.urandom(16).hex()
"""A random value in digests that must not equal those of other processes."""
_BY_TEXT = (
    np.generic, type(None), DType, VectorType, PackedFloat, ArrayAnnotation, ConstAnnotation,
)  # fmt: skip
"""Types of values that their repr identifies."""


def _type_name(value: object) -> tuple[str, str]:
    """Return the module and the name of the value's type."""
    return type(value).__module__, type(value).__qualname__


def _is_constant_module(owner: object) -> bool:
    """True for modules whose attributes are assumed constant: this library, `math` and NumPy."""
    return isinstance(owner, ModuleType) and owner.__name__.split(".")[0] in ("vkjit", "math", "numpy")


def _look_ups(fn: FunctionType, name: str, value: Any) -> tuple[DictionaryEntry, ...]:
    """Return the dictionary entries that determine the value of a global name or builtin.

    Returns () for names of closures and type parameters. A builtin has two entries: the globals must not hide it.
    """
    if name in fn.__code__.co_freevars or any(p.__name__ == name for p in getattr(fn, "__type_params__", ())):
        return ()
    if name in fn.__globals__:
        return ((fn.__globals__, name, value),)
    return ((fn.__globals__, name, MISSING), (vars(builtins), name, value))


def _reader(fn: FunctionType, name: str) -> Callable[[], Any]:
    """Return a function that returns the current value of a captured name."""
    names = fn.__code__.co_freevars
    if name in names:
        return functools.partial(_cell_value, (fn.__closure__ or ())[names.index(name)])
    return lambda: find_global(fn, name)


def _cell_value(cell: CellType) -> Any:
    """Return the current value of a closure cell, or MISSING."""
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return MISSING


def _attribute_reader(owner: object, name: str) -> Callable[[], Any]:
    """Return a function that returns the current value of an attribute, or MISSING; of a dictionary its snapshot."""
    return lambda: _snapshot(getattr(owner, name, MISSING))


def _class_reader(owner: type, name: str) -> Callable[[], Any]:
    """Return a function that returns what a class has under a name, without calling descriptors."""
    return lambda: _snapshot(class_entry(owner, name))


def _snapshot(value: Any) -> Any:
    """Return the contents of a dictionary or `partial` as a tuple, to be compared later; any other value unchanged.

    Parts that kernels can't capture, such as arrays, count as the objects that they are.
    """
    if isinstance(value, functools.partial):
        return (value.func, *value.args, *_snapshot(value.keywords))
    if not is_mapping(value):
        return value
    return tuple((k, _snapshot(v) if is_mapping(v) or _is_hashable(v) else id(v)) for k, v in value.items())


def _is_hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


_NO_CHILDREN = frozenset({"ctx", "op", "ops", "kind", "type_comment"})
"""Fields of syntax tree nodes that contain no names."""


def _outer_chains(function: ast.FunctionDef | ast.Lambda) -> set[tuple[str, ...]]:
    """Return the captured names in a function's body, each with the attributes read from it, such as `("vk", "exp")`.

    This is a single hand-written walk because it dominates the time of a kernel cache hit.
    """
    local = set(parameters_of(function))
    chains: set[tuple[str, ...]] = set()
    pending: list[ast.AST] = list(function.body) if isinstance(function, ast.FunctionDef) else [function.body]
    while pending:
        node = inner = pending.pop()
        # `node` may be a chain of attributes, such as `a.b.c`; `inner` becomes its innermost object `a`
        attributes: list[str] = []
        while isinstance(inner, ast.Attribute):
            attributes.append(inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name):
            if not isinstance(node.ctx, ast.Load):  # type: ignore[attr-defined]  # names and attributes have a ctx
                local.add(inner.id)  # assigned, so that the chains of this name are dropped at the end
            chains.add((inner.id, *reversed(attributes)))
            continue
        if isinstance(inner, NestedFunction):  # has local names of its own
            chains |= _outer_chains(inner)
            pending += [inner.args, *getattr(inner, "decorator_list", ())]  # the defaults and annotations
            if isinstance(inner, ast.FunctionDef):
                local.add(inner.name)
            continue
        for name in inner._fields:
            value = getattr(inner, name, None) if name not in _NO_CHILDREN else None
            if isinstance(value, ast.AST):
                pending.append(value)
            elif isinstance(value, list):
                pending += [item for item in value if isinstance(item, ast.AST)]
    return {chain for chain in chains if chain[0] not in local}
