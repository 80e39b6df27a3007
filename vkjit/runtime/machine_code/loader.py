"""Machine code of a back end: compiled once per machine, in the background, and cached on disk for later processes.

Machine code is optional: it isn't used on interpreters with unrecognized object layouts, without LLVM if none is cached
on disk, if its self-test fails, or if VKJIT_NATIVE_LAUNCH is 0.
"""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import platform
import struct
import sys
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ...errors import VkjitError
from ...settings import boolean_setting
from .. import host_compiler
from ..handles import on_fork
from . import cpython
from .abi import Layout, Plan

__all__ = ["IS_X86", "Accelerated", "MachineCode"]

Accelerated = Callable[..., bool]
"""Launches with the arguments of a call. Returns False and has no effect if Python must handle the call."""

IS_X86 = platform.machine().lower() in ("x86_64", "amd64")
"""True on x86, where code can be copied to memory and run; other CPUs require instruction cache flushes."""
_SWITCH_INTERVAL = 1e-4
"""The interpreter's thread switch interval during compilation, in seconds, so that other threads aren't held up."""

_instances: weakref.WeakSet[MachineCode] = weakref.WeakSet()


class MachineCode(ABC):
    """The machine code of a back end in this process.

    `names` are its functions, `vkjit_launch` first and `vkjit_end`, which follows the code, last. `table` has the names of
    the objects and C functions that it uses. `modules` are those that generate the text, beside the ones of this package.
    """

    names: tuple[str, ...]
    table: tuple[str, ...]
    modules: tuple[str, ...]

    def __init__(self) -> None:
        self.functions: dict[str, int] = {}
        """The addresses of its functions; empty until it is ready."""
        self.thread: threading.Thread | None = None
        """The compiling thread; None before it is started."""
        self.failed = False
        self._memory: Any = None
        """The memory mapping that holds code loaded by `_placed`."""
        self._table = (ctypes.c_uint64 * len(self.table))()
        _instances.add(self)

    @abstractmethod
    def layout(self) -> Layout | None:
        """Return the offsets that the code uses; None for an interpreter whose object layout isn't recognized."""

    @abstractmethod
    def text(self, layout: Layout) -> str:
        """Return the LLVM assembly. Takes some milliseconds."""

    @abstractmethod
    def objects(self) -> dict[str, Any]:
        """Return the Python objects in the table, by name, and the addresses (int) of functions beside the C API's."""

    @abstractmethod
    def passes_test(self, functions: dict[str, int]) -> bool:
        """Run the functions on examples and check all their effects."""

    def use(self, functions: dict[str, int]) -> None:
        """Enable functions that passed the test."""
        self.functions = functions

    def load(self) -> None:
        """Load the machine code that an earlier process cached. With VKJIT_NATIVE_LAUNCH=1, compile it if there is none.

        Raises ArgumentError for settings other than 0 and 1.
        """
        wanted = boolean_setting("VKJIT_NATIVE_LAUNCH")
        layout = None if self.functions or self.failed or wanted is False else self.layout()
        if layout is None:
            return
        data = host_compiler.read(self._name(layout)) if IS_X86 else None
        if (data is None or not self._enable(self._placed(data))) and wanted:
            self.start()

    def start(self) -> None:
        """Start compiling in the background, on the first call. With VKJIT_NATIVE_LAUNCH=1, wait for completion."""
        wanted = boolean_setting("VKJIT_NATIVE_LAUNCH")
        layout = None if self.functions or self.failed or wanted is False else self.layout()
        if layout is None:
            return
        if self.thread is None:
            self.thread = threading.Thread(target=self._compile, args=(layout,), name="vkjit machine code")
            try:
                self.thread.start()
            except RuntimeError:  # the interpreter is about to exit, or there are too many threads
                self.failed = True
                return
        if wanted:
            self.thread.join()

    def is_ready(self) -> bool:
        """Return True if machine code can be used."""
        return bool(self.functions)

    def is_possible(self) -> bool:
        """Return True if machine code can be used now, or perhaps later."""
        wanted = boolean_setting("VKJIT_NATIVE_LAUNCH")
        return bool(self.functions) or not (self.failed or wanted is False or self.layout() is None)

    def compile_plans(self, plans: Sequence[Plan]) -> Accelerated | None:
        """Return a function that launches by the first matching plan; None if machine code isn't available (yet)."""
        address = self.functions.get("vkjit_launch")
        if address is None:
            return None
        for plan, following in zip(plans, [*plans[1:], None], strict=True):
            plan.follow_with(following)
        return self.method(address, plans[0])

    def method(self, address: int, plan: Plan | None = None) -> Callable[..., Any]:
        """Return a Python function that runs the machine code at `address`."""
        first = 0 if plan is None else plan.address
        owner = cpython.Owner(struct.pack("<2Q", first, ctypes.addressof(self._table)))
        owner.kept = plan
        return cpython.method(address, owner)

    def _name(self, layout: Layout) -> str:
        """Return the cache file name of the code: it follows from the layout and the source of the generator."""
        modules = [f"{__package__}.{name}" for name in ("abi", "launch_code", "llvm_text")] + [*self.modules]
        try:
            sources = [Path(sys.modules[name].__file__ or "").read_text(encoding="utf-8") for name in modules]
        except OSError:  # imported from an archive
            sources = [self.text(layout)]
        return hashlib.sha256(
            "\0".join([platform.machine(), sys.platform, repr(layout), *sources]).encode()
        ).hexdigest()

    def _compile(self, layout: Layout) -> None:
        """Compile, load and test the machine code, and cache it on disk for later processes."""
        before = sys.getswitchinterval()
        sys.setswitchinterval(min(before, _SWITCH_INTERVAL))
        lowered = sys.getswitchinterval()
        try:
            functions = host_compiler.compile_functions(self.text(layout), *self.names)
            places = [functions[name] for name in self.names]
            start, end = places[0], places[-1]
            if not IS_X86 or (start, end) != (min(places), max(places)):
                self._enable(functions)
                return
            offsets = struct.pack(f"<{len(places)}Q", *[place - start for place in places])
            data = offsets + ctypes.string_at(start, end - start)
            if self._enable(self._placed(data)):
                host_compiler.write(self._name(layout), data)
        except VkjitError:
            pass
        finally:
            self.failed = not self.functions
            if sys.getswitchinterval() == lowered:
                sys.setswitchinterval(before)

    def _placed(self, data: bytes) -> dict[str, int]:
        """Copy machine code to executable memory. Return the addresses of its functions; empty if that isn't possible."""
        head = struct.Struct(f"<{len(self.names)}Q")
        if len(data) < head.size:
            return {}
        offsets, code = head.unpack_from(data), data[head.size :]
        if max(offsets) != len(code):
            return {}
        try:
            memory = mmap.mmap(-1, len(code), prot=mmap.PROT_READ | mmap.PROT_WRITE)
            memory[:] = code
            start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
            if ctypes.CDLL(None).mprotect(
                ctypes.c_void_p(start), ctypes.c_size_t(len(code)), mmap.PROT_READ | mmap.PROT_EXEC
            ):
                return {}
        except (OSError, AttributeError, TypeError):  # the system lacks these calls or forbids executable memory
            return {}
        self._memory = memory
        return {name: start + offset for name, offset in zip(self.names, offsets, strict=True)}

    def _enable(self, functions: dict[str, int]) -> bool:
        """Test machine code, and enable it if the test passes; return True if it does."""
        objects = self.objects()
        for number, name in enumerate(self.table):
            found = objects.get(name)
            if name not in objects:
                found = cpython.api(name)
            self._table[number] = found if type(found) is int else id(found)
        if not functions or not self.passes_test(functions):
            return False
        self.use(functions)
        return True


def _in_child() -> None:
    for code in list(_instances):
        code.thread = None  # the thread exists only in the parent


on_fork(_in_child)
