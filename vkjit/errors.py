"""Exceptions and source locations, shared by all layers.

The hierarchy::

    VkjitError
    +-- CompileError            a kernel that can't be compiled; shows file, line and a caret
    +-- ArgumentError           a launch with wrong arguments (also a TypeError)
    |   +-- ShapeError          shapes that don't agree (also a ValueError)
    |   +-- DTypeError          element types that don't agree
    +-- DeviceError
    |   +-- DriverNotFoundError no Vulkan loader or driver
    |   +-- DeviceNotFoundError no device matches the given name or index
    |   +-- FeatureError        the device lacks what the kernel needs
    |   +-- OutOfMemoryError    (also a MemoryError)
    |   +-- DeviceLostError     the driver reported the device as lost
    +-- KernelError             detected while a kernel ran; names kernel, line and invocation
    |   +-- LoopLimitError      a loop would have exceeded the driver's silent iteration limit
    |   +-- BoundsError         an index out of bounds (also an IndexError)
    |   +-- KernelAssertionError a failing assert (also an AssertionError)
    |   +-- AssumptionError     a `vk.assume` condition that did not hold
    |   +-- KernelZeroDivisionError (also a ZeroDivisionError)
    |   +-- SanitizerError      the sanitizer's reports of one launch (in `runtime.sanitizer_reports`)
    +-- InternalError           a bug in vkjit itself
"""

from __future__ import annotations

import linecache
from dataclasses import dataclass

__all__ = [
    "ArgumentError",
    "AssumptionError",
    "BoundsError",
    "CompileError",
    "DTypeError",
    "DeviceError",
    "DeviceLostError",
    "DeviceNotFoundError",
    "DriverNotFoundError",
    "FeatureError",
    "InternalError",
    "KernelAssertionError",
    "KernelError",
    "KernelZeroDivisionError",
    "Loc",
    "LoopLimitError",
    "OutOfMemoryError",
    "ReportSite",
    "ShapeError",
    "VkjitError",
]


@dataclass(frozen=True, slots=True)
class Loc:
    """A span of source text: `line` counts from 1, `col` and `end` (exclusive, same line) from 0."""

    file: str
    line: int
    col: int = 0
    end: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


UNKNOWN = Loc("<unknown>", 0)
"""The location of an error that belongs to no line of source."""


@dataclass(frozen=True, slots=True)
class ReportSite:
    """A location in a kernel that can report an error, or print.

    The sites of a kernel are listed in its IR module (`Module.sites`). A running kernel identifies the site of a report
    by its index in this list plus one. `kind` is what is reported, such as "bounds", "assert", "assume", "loop_limit",
    "zero_division", "uniform" or "print". `message` is a `str.format` template over the values that the kernel stores
    with the report (`{0}`, `{1}`...).
    """

    kind: str
    loc: Loc
    message: str


def render_caret(loc: Loc, text: str | None = None) -> str:
    """Return the source line of `loc` with carets under its span, or "" if the source isn't available.

    `text` is the text of the line; if it is None, the line is read from the file.
    """
    line = linecache.getline(loc.file, loc.line) if text is None else text
    line = line.rstrip("\n").expandtabs(1)
    if not line:
        return ""
    end = loc.end if loc.end > loc.col else len(line)
    gutter = f"{loc.line:>5} | "
    return f"{gutter}{line}\n{' ' * len(gutter)}{' ' * loc.col}{'^' * max(1, min(end, len(line)) - loc.col)}"


MAX_NESTING = 64
"""Levels of lists, tuples and dictionaries in an argument: as many as NumPy's arrays have dimensions."""


def is_nested_too_deep(value: object) -> bool:
    """True if lists, tuples and dictionaries in a value are nested more than `MAX_NESTING` deep, or contain themselves."""
    level = [value]
    for _ in range(MAX_NESTING):
        inner: dict[int, object] = {}  # by identity: the same list may be there many times
        for item in level:
            if isinstance(item, (list, tuple, dict)):
                inner.update((id(part), part) for part in (item.values() if isinstance(item, dict) else item))
        level = list(inner.values())
        if not level:
            return False
    return any(isinstance(item, (list, tuple, dict)) for item in level)


def check_nesting(value: object, what: str) -> None:
    """Raise ArgumentError if a value, which `what` names, is nested too deep to be walked recursively."""
    if is_nested_too_deep(value):
        raise ArgumentError(
            f"{what} has lists, tuples or dictionaries nested more than {MAX_NESTING} deep, expected at most as many levels "
            "as an array has dimensions: flatten them"
        )


def shown(value: object) -> str:
    """Return `repr(value)` for an error message, or only what kind of value it is if that would be long or endless."""
    if isinstance(value, (list, tuple, dict)) and is_nested_too_deep(value):
        return f"a {type(value).__name__} nested more than {MAX_NESTING} deep"
    if isinstance(value, int) and value.bit_length() > 4096:  # Python refuses to write ints of more than 4,300 digits
        return f"an int of {value.bit_length()} bits"
    return repr(value)


class VkjitError(Exception):
    """The base class of all exceptions that vkjit raises deliberately."""


@dataclass(frozen=True, slots=True)
class Note:
    """A secondary source location of an error message ("called from here", "first bound here")."""

    loc: Loc
    text: str


class CompileError(VkjitError):
    """A kernel that can't be compiled.

    `reason` says what was found and what was expected, `hint` what to write instead. `notes` are secondary locations,
    such as the call chain.
    """

    def __init__(self, reason: str, loc: Loc = UNKNOWN, *, hint: str = "", notes: tuple[Note, ...] = ()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.loc = loc
        self.hint = hint
        self.notes = notes

    def with_note(self, loc: Loc, text: str) -> CompileError:
        """Return the same error with one more note; calls of device functions add notes while the error propagates."""
        return type(self)(self.reason, self.loc, hint=self.hint, notes=(*self.notes, Note(loc, text)))

    def __str__(self) -> str:
        parts = [self.reason]
        if self.loc != UNKNOWN:
            parts = [f"{self.loc}: {self.reason}"]
            caret = render_caret(self.loc)
            if caret:
                parts.append(caret)
        if self.hint:
            parts.append(f"help: {self.hint}")
        for note in self.notes:
            parts.append(f"{note.loc}: note: {note.text}")
            caret = render_caret(note.loc)
            if caret:
                parts.append(caret)
        return "\n".join(parts)


class ArgumentError(VkjitError, TypeError):
    """A kernel or operation was called with arguments that don't fit."""


class ShapeError(ArgumentError, ValueError):
    """Shapes that don't agree."""


class DTypeError(ArgumentError):
    """Element types that don't agree."""


class DeviceError(VkjitError, RuntimeError):
    """An error of a device or its driver."""


class DriverNotFoundError(DeviceError):
    """No Vulkan loader, or a loader without drivers."""


class DeviceNotFoundError(DeviceError):
    """No device matches the given name or index."""


class FeatureError(DeviceError):
    """The device lacks a feature that the kernel needs."""


class OutOfMemoryError(DeviceError, MemoryError):
    """A device allocation failed for lack of memory."""


class DeviceLostError(DeviceError):
    """The driver reported the device as lost; the device object can no longer be used."""


class KernelError(VkjitError):
    """An error detected while a kernel ran.

    `kernel` is the kernel's name, `loc` the line in its source, and `invocation` the global id (x, y, z) of the
    invocation that reported it.
    """

    def __init__(
        self,
        message: str,
        *,
        kernel: str = "",
        loc: Loc = UNKNOWN,
        invocation: tuple[int, int, int] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.kernel = kernel
        self.loc = loc
        self.invocation = invocation

    def __str__(self) -> str:
        where = f"{self.loc}: " if self.loc != UNKNOWN else ""
        who = f" (kernel {self.kernel}" if self.kernel else ""
        if who and self.invocation is not None:
            who += f", invocation {self.invocation}"
        text = f"{where}{self.message}{who + ')' if who else ''}"
        caret = render_caret(self.loc) if self.loc != UNKNOWN else ""
        return f"{text}\n{caret}" if caret else text


class LoopLimitError(KernelError):
    """A loop would have exceeded the number of iterations after which the device's driver silently stops loops."""


class BoundsError(KernelError, IndexError):
    """An index outside its array."""


class KernelAssertionError(KernelError, AssertionError):
    """A failed assert in a kernel."""


class AssumptionError(KernelError):
    """A `vk.assume` condition that did not hold; reported by the interpreter and in debug mode."""


class KernelZeroDivisionError(KernelError, ZeroDivisionError):
    """An integer division by zero, reported in debug mode."""


class InternalError(VkjitError, RuntimeError):
    """A bug in vkjit itself; please report it with the text of the message."""
