"""Builder of textual LLVM IR: names of types, constants, and the instructions of one function.

Allocas are kept apart from the other instructions (`Text.variables`), because they belong in the entry block, where
LLVM's mem2reg promotes them to registers.
"""

from __future__ import annotations

import math
import struct

from vkjit import dtypes
from vkjit.dtypes import DType

__all__ = ["Text", "bytes_of", "constant", "intrinsic_suffix", "memory_type", "scalar_type", "vector_type"]

_FLOATS = {"f16": "half", "bf16": "float", "f32": "float", "f64": "double"}
_SUFFIXES = {"half": "f16", "float": "f32", "double": "f64"}


def scalar_type(dtype: DType) -> str:
    """Return the LLVM type of a value of this dtype; a bf16 value is computed and passed as an f32."""
    return _FLOATS.get(dtype.name) or f"i{dtype.bits}"


def vector_type(dtype: DType, width: int) -> str:
    """Return the LLVM vector type with one value of this dtype per lane."""
    return f"<{width} x {scalar_type(dtype)}>"


def memory_type(dtype: DType) -> str:
    """Return the LLVM type of an array element in memory: i8 for bool, i16 for bf16."""
    if dtype.kind == "bool":
        return "i8"
    return "i16" if dtype is dtypes.bf16 else scalar_type(dtype)


_SIZES = {"half": 2, "float": 4, "double": 8, "ptr": 8}


def bytes_of(kind: str) -> int:
    """Return the size in bytes of an LLVM type: a scalar, a vector (`<8 x float>`) or an array (`[4 x float]`)."""
    if kind[0] in "[<":
        count, element = kind[1:-1].split(" x ", 1)
        if element == "i1":
            return max(1, int(count) // 8)
        return int(count) * bytes_of(element)
    return _SIZES.get(kind) or max(1, int(kind[1:]) // 8)


def intrinsic_suffix(kind: str) -> str:
    """Return the suffix for a type in the names of overloaded intrinsics: `v8f32` for `<8 x float>`."""
    if kind.startswith("<"):
        count, element = kind[1:-1].split(" x ")
        return f"v{count}{_SUFFIXES.get(element, element)}"
    return _SUFFIXES.get(kind, kind)


def constant(value: bool | int | float, dtype: DType) -> str:
    """Return the LLVM literal of a value, for the type `scalar_type(dtype)`."""
    if dtype.kind == "bool":
        return "true" if value else "false"
    if not dtype.is_float:
        number = int(value) & ((1 << dtype.bits) - 1)
        return str(number - (1 << dtype.bits) if number >> (dtype.bits - 1) else number)
    return _float_constant(float(value), dtype)


def _float_constant(value: float, dtype: DType) -> str:
    if dtype is dtypes.f16:
        return f"0xH{struct.unpack('<H', struct.pack('<e', _clamped(value, '<e')))[0]:04X}"
    if dtype is not dtypes.f64:
        value = struct.unpack("<f", struct.pack("<f", _clamped(value, "<f")))[0]
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def _clamped(value: float, code: str) -> float:
    """Return the value, or the infinity that it rounds to in the format of this `struct` code."""
    try:
        struct.pack(code, value)
    except OverflowError:
        return math.copysign(math.inf, value)
    return value


class Text:
    """The instructions of one LLVM function, appended one by one.

    `variables` are the allocas, `declared` the declarations of called functions by name. `open` is False between a
    terminator and the next label. `array_bytes` is the size of all allocas of array type.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.variables: list[str] = []
        self.declared: dict[str, str] = {}
        self.open = True
        self.array_bytes = 0
        self._count = 0

    def _name(self) -> int:
        self._count += 1
        return self._count

    def op(self, instruction: str) -> str:
        """Append an instruction that has a result, and return the name of the result."""
        name = f"%v{self._name()}"
        self.lines.append(f"  {name} = {instruction}")
        return name

    def do(self, instruction: str) -> None:
        """Append an instruction without a result."""
        self.lines.append(f"  {instruction}")

    def new_label(self, hint: str = "b") -> str:
        return f"{hint}{self._name()}"

    def label(self, name: str) -> None:
        """Start a basic block."""
        self.lines.append(f"{name}:")
        self.open = True

    def jump(self, label: str) -> None:
        """End the current block by a branch to `label`, unless it already has a terminator."""
        if self.open:
            self.do(f"br label %{label}")
            self.open = False

    def branch(self, condition: str, yes: str, no: str, *, likely: bool | None = None) -> None:
        """End the current block by a conditional branch; `likely` is the usual value of the condition, if known."""
        weights = "" if likely is None else f", !prof !{0 if likely else 1}"
        self.do(f"br i1 {condition}, label %{yes}, label %{no}{weights}")
        self.open = False

    def variable(self, kind: str, hint: str = "m", align: int = 0) -> str:
        """Add an alloca of type `kind` and return the pointer to it."""
        name = f"%{hint}{self._name()}"
        if kind.startswith("["):
            self.array_bytes += bytes_of(kind)
        self.variables.append(f"  {name} = alloca {kind}" + (f", align {align}" if align else ""))
        return name

    def load(self, kind: str, pointer: str, extra: str = "") -> str:
        return self.op(f"load {kind}, ptr {pointer}{extra}")

    def store(self, kind: str, value: str, pointer: str, extra: str = "") -> None:
        self.do(f"store {kind} {value}, ptr {pointer}{extra}")

    def call(self, result: str, name: str, *arguments: str, tags: str = "") -> str:
        """Append a call of a function, usually an intrinsic, and return its result; arguments are "type value"."""
        self.declare(result, name, arguments)
        return self.op(f"call {result} @{name}({', '.join(arguments)}){tags}")

    def run(self, name: str, *arguments: str, tags: str = "") -> None:
        """Append a call of a function without a result."""
        self.declare("void", name, arguments)
        self.do(f"call void @{name}({', '.join(arguments)}){tags}")

    def declare(self, result: str, name: str, arguments: tuple[str, ...]) -> None:
        if name not in self.declared:
            kinds = ", ".join(_argument_type(a) for a in arguments)
            self.declared[name] = f"declare {result} @{name}({kinds})"


def _argument_type(argument: str) -> str:
    """Return the type of an argument "type value"."""
    if argument.startswith("<"):
        return argument[: argument.index(">") + 1]
    return argument.split(" ", 1)[0]
