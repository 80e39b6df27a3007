"""Printer for the text form of the IR, which `parser` reads back to the same module.

Prints modules, functions and operations, even invalid ones: values that the function doesn't define show as `%?name`.
The names of values are unique within a function. They are derived from `Value.name`; values without a name are numbered
in the order of the text::

    kernel @scale(%a: f32, %x: array<f32, 1, inout>) attrs {local_size = (64, 1, 1)} {
      %i = global_id {dim = 0} : index
      %0 = extent %x {axis = 0} : index
      %1 = lt %i, %0 : bool
      if %1 {
        %2 = load %x, %i : f32
        %3 = mul %a, %2 : f32
        store %x, %i, %3
        yield
      } else {
        yield
      }
      return
    }

The attribute `type` isn't printed if it equals the result's type. The attribute `value` of a constant is printed in
place of operands: `%c = const 1.5 : f32`. The arguments of a region are written before its brace, as in
`for %lo, %hi, %step, %init : f32 (%k: index, %sum: f32) {`. A second region follows the word `else`.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping
from typing import Any

from ..dtypes import DType
from ..errors import UNKNOWN, Loc
from .core import Function, Module, Op, Region, Value
from .types import Type

__all__ = ["attribute_text", "name_values", "print_function", "print_module", "print_op"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*\Z")
_INVALID = re.compile(r"[^A-Za-z0-9_.]")
"""A character that a name can't contain."""
_DEFAULT_NAN = 0x7FF8000000000000
"""The bits of `float("nan")`, which the parser reads "nan" as."""


class _Names:
    """Unique names for the values of one function.

    `of` maps the values to their names. `_suffix` has the last suffix used for each name hint, and `_numbered` is the
    number of values that have a number as their name.
    """

    def __init__(self) -> None:
        self.of: dict[Value, str] = {}
        self._taken: set[str] = set()
        self._suffix: dict[str, int] = {}
        self._numbered = 0

    def define(self, value: Value) -> None:
        """Choose the name of a value: its own name, with a suffix if that is taken.

        A value without a valid name gets the next number.
        """
        hint = _INVALID.sub("_", value.name)
        if _NAME.match(hint):
            name = hint
            while name in self._taken:
                self._suffix[hint] = self._suffix.get(hint, 0) + 1
                name = f"{hint}_{self._suffix[hint]}"
            self._taken.add(name)
        else:
            name = str(self._numbered)
            self._numbered += 1
        self.of[value] = name

    def region(self, region: Region) -> None:
        """Choose the names of all values that a region defines."""
        for argument in region.args:
            self.define(argument)
        for op in region.ops:
            for result in op.results:
                self.define(result)
            for nested in op.regions:
                self.region(nested)


def name_values(function: Function) -> dict[Value, str]:
    """Return the name, without its %, of each value that the function defines."""
    names = _Names()
    names.region(function.body)
    return names.of


def _float_text(value: float) -> str:
    """Return the text of a float. For NaNs other than the default one, it contains the bits."""
    if math.isnan(value):
        (bits,) = struct.unpack("<Q", struct.pack("<d", value))
        return "nan" if bits == _DEFAULT_NAN else f"nan:0x{bits:016x}"
    return repr(value)


def attribute_text(value: Any) -> str:
    """Return the text of an attribute's value.

    A value that the text form can't represent shows as a question mark and its repr, which the parser rejects.
    """
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    if type(value) is int:
        return str(value)
    if type(value) is float:
        return _float_text(value)
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
        return f'"{escaped}"'
    if isinstance(value, tuple):
        inner = ", ".join(attribute_text(item) for item in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, Type):
        return str(value)
    if isinstance(value, DType):
        return f"dtype {value.name}"
    return f"?{value!r}"


def _attributes(attrs: Mapping[str, Any]) -> str:
    """Return the text of a dict of attributes, sorted by name."""
    return "{" + ", ".join(f"{key} = {attribute_text(value)}" for key, value in sorted(attrs.items())) + "}"


def _location(loc: Loc) -> str:
    return f"loc({attribute_text(loc.file)}, {loc.line}, {loc.col}, {loc.end})"


class _Printer:
    """A printer that appends the lines of the text to `lines`.

    If `locations` is True, source locations are printed, too. `names` are the names of the current function's values.
    The methods that return a `str` don't append anything.
    """

    def __init__(self, locations: bool, names: Mapping[Value, str] | None = None) -> None:
        self.lines: list[str] = []
        self.locations = locations
        self.names = names or {}

    def value(self, value: Value) -> str:
        """Return the name of a value, with its %."""
        name = self.names.get(value)
        return f"%{name}" if name is not None else f"%?{_INVALID.sub('_', value.name)}"

    def line(self, op: Op) -> str:
        """Return the text of an operation without its regions."""
        parts = [f"{', '.join(map(self.value, op.results))} = {op.name}" if op.results else op.name]
        attrs = {k: v for k, v in op.attrs.items() if not self._implied(op, k)}
        inputs = [self.value(v) for v in op.operands]
        if op.name == "const" and "value" in attrs:  # an invalid constant may lack the value
            inputs.insert(0, attribute_text(attrs.pop("value")))
        if inputs:
            parts.append(", ".join(inputs))
        if attrs:
            parts.append(_attributes(attrs))
        if op.results:
            parts.append(": " + ", ".join(str(r.type) for r in op.results))
        if self.locations and op.loc != UNKNOWN:
            parts.append(_location(op.loc))
        return " ".join(parts)

    def op(self, op: Op, indent: int) -> None:
        """Append the lines of an operation. `indent` is the nesting level, of two spaces each."""
        pad = "  " * indent
        line = self.line(op)
        for number, region in enumerate(op.regions):
            start = line if number == 0 else "} else"
            arguments = f" ({self.arguments(region)})" if region.args else ""
            self.lines.append(f"{pad}{start}{arguments} {{")
            for inner in region.ops:
                self.op(inner, indent + 1)
        last_line = "}" if op.regions else line
        self.lines.append(f"{pad}{last_line}")

    @staticmethod
    def _implied(op: Op, key: str) -> bool:
        """True for an attribute that isn't printed: the type of the only result."""
        return key == "type" and len(op.results) == 1 and op.attrs["type"] == op.results[0].type

    def arguments(self, region: Region) -> str:
        """Return the text of a region's arguments."""
        return ", ".join(f"{self.value(a)}: {a.type}" for a in region.args)

    def function(self, function: Function, keyword: str) -> None:
        """Append a function. `keyword` is "kernel" or "func", for a device function."""
        self.names = name_values(function)
        header = f"{keyword} @{function.name}({self.arguments(function.body)})"
        if function.result_types:
            header += f" -> ({', '.join(map(str, function.result_types))})"
        if function.attrs:
            header += f" attrs {_attributes(function.attrs)}"
        if self.locations and function.loc != UNKNOWN:
            header += f" {_location(function.loc)}"
        self.lines.append(header + " {")
        for op in function.body.ops:
            self.op(op, 1)
        self.lines.append("}")


def print_module(module: Module, *, locations: bool = False) -> str:
    """Return the text of a module: its report sites, its device functions, its kernel."""
    printer = _Printer(locations)
    for number, site in enumerate(module.sites):
        kind_and_message = f"{attribute_text(site.kind)}, {attribute_text(site.message)}"
        printer.lines.append(f"site {number} {kind_and_message} {_location(site.loc)}")
    for function in module.functions.values():
        printer.function(function, "func")
    printer.function(module.kernel, "kernel")
    return "\n".join(printer.lines) + "\n"


def print_function(function: Function, *, locations: bool = False) -> str:
    """Return the text of one function, printed as a device function."""
    printer = _Printer(locations)
    printer.function(function, "func")
    return "\n".join(printer.lines) + "\n"


def print_op(op: Op, names: Mapping[Value, str] | None = None) -> str:
    """Return the text of an operation on one line; "{...}" stands for its regions.

    `names` are the names of its function's values (see `name_values`).
    """
    return _Printer(False, names).line(op) + (" {...}" if op.regions else "")
