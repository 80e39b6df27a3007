"""LLVM through llvmlite: compile LLVM IR to object code, and link object code into the process.

Only this module imports llvmlite. Kernels are compiled for the host CPU with all of its features (see `host`). The
sections of an object are placed in one memory range, even if the address space is fragmented, so that they can reach
each other. Link errors raise exceptions and never end the process.
"""

from __future__ import annotations

import contextlib
import ctypes
import difflib
import functools
import importlib.util
import itertools
import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vkjit.errors import ArgumentError, FeatureError, InternalError
from vkjit.files import write_text

from .. import obstacle
from .stacks import on_large_stack

__all__ = ["Host", "Linked", "compile_functions", "compile_text", "host", "link", "texts_of"]

_lock = threading.RLock()  # a signal handler may compile, too
_numbers = itertools.count()


if hasattr(os, "register_at_fork"):  # a child must not inherit LLVM or llvmlite's lock in the middle of an operation
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


@dataclass(frozen=True, slots=True)
class Host:
    """The host CPU as LLVM describes it.

    `name` is the CPU's name, `flags` its signed features ("+avx2,-avx512f,..."), `features` those it has, `llvm` LLVM's
    version, `family` the architecture ("x86_64", "aarch64").
    """

    name: str
    flags: str
    features: frozenset[str]
    llvm: tuple[int, ...]
    family: str = ""

    @property
    def lanes(self) -> int:
        """Number of 32-bit lanes of its vectors."""
        if self.features >= {"avx512f", "avx512bw", "avx512dq", "avx512vl"}:
            return 16
        return 8 if "avx2" in self.features else 4


def _preload() -> None:
    """Load LLVM's library by a foreign call, which releases the GIL.

    Python's own loader holds it for 20 ms or more, during which no other thread launches.
    """
    spec = importlib.util.find_spec("llvmlite")
    library = None if spec is None or spec.origin is None else Path(spec.origin).parent / "binding" / "libllvmlite.so"
    if library is not None and library.exists():  # on other systems it has another name
        with contextlib.suppress(AttributeError, OSError, TypeError):
            ctypes.CDLL(None).dlopen(ctypes.c_char_p(os.fsencode(library)), ctypes.c_int(os.RTLD_NOW))


@functools.lru_cache(maxsize=1)
def _llvm() -> Any:
    """Return llvmlite's binding, initialized."""
    if obstacle():
        raise FeatureError(obstacle())
    _preload()
    try:
        import llvmlite.binding as llvm
    except (ImportError, OSError) as error:
        raise FeatureError(f"the CPU device needs llvmlite, which doesn't load here: {error}") from error
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


@functools.lru_cache(maxsize=1)
def host() -> Host:
    """Return LLVM's description of the host CPU. VKJIT_CPU_FEATURES ("-avx512f,...") disables features."""
    llvm = _llvm()
    found = _features_found(llvm)
    known = set(found.values())
    for text in filter(None, map(str.strip, os.environ.get("VKJIT_CPU_FEATURES", "").split(","))):
        if not text.startswith("-") and not found.get(text.lstrip("+")):
            raise ArgumentError(
                f"VKJIT_CPU_FEATURES asks for {text!r}, which this processor doesn't have: it takes features away, as in "
                "'-avx512f,-avx512vl'"
            )
        if text.startswith("-"):
            if False in known and text[1:] not in found:  # on other CPUs LLVM lists only the present features
                raise ArgumentError(f"VKJIT_CPU_FEATURES has {text!r}: {_close_to(text[1:], found)}")
            found[text[1:]] = False
    flags = ",".join(f"{'+' if on else '-'}{feature}" for feature, on in sorted(found.items()))
    features = frozenset(feature for feature, on in found.items() if on)
    family = str(llvm.get_process_triple()).split("-", maxsplit=1)[0]
    return Host(llvm.get_host_cpu_name(), flags, features, tuple(llvm.llvm_version_info), _FAMILIES.get(family, family))


def _close_to(name: str, known: Iterable[str]) -> str:
    """Return suggestions for an unknown feature name."""
    close = difflib.get_close_matches(name.lower(), known)
    meant = (
        f"did you mean {' or '.join(f'-{other}' for other in close)}?"
        if close
        else f"there are {', '.join(sorted(known))}"
    )
    return f"LLVM knows no feature {name!r} here; {meant}"


_FAMILIES = {"arm64": "aarch64", "amd64": "x86_64"}


def _features_found(llvm: Any) -> dict[str, bool]:
    """Return the features that LLVM detects; {} if it can't, so that code is compiled for the architecture's baseline."""
    try:
        return dict(llvm.get_host_cpu_features())
    except RuntimeError:
        return {}


@functools.cache
def _target_machine(level: int = 2) -> Any:
    llvm, machine = _llvm(), host()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=machine.name, features=machine.flags, opt=level, reloc="pic", codemodel="small", jit=True
    )


def _passes(level: int) -> tuple[Any, Any]:
    """Return a pass builder and LLVM's default pipeline without vectorization and unrolling. A pipeline runs only once."""
    llvm = _llvm()
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization = False
    options.slp_vectorization = False
    options.loop_unrolling = False  # a single load that visits the cache lines in order trains the prefetcher best
    builder = llvm.create_pass_builder(_target_machine(), options)
    return builder, builder.getModulePassManager()


@on_large_stack
def compile_text(text: str, level: int = 2) -> bytes:
    """Compile a module of LLVM IR to object code, at LLVM's optimization level `level`; level 0 also generates code fast.

    VKJIT_CPU_DUMP names a folder to which the module before and after optimization and its assembly are written.
    """
    with _lock:
        return _compiled(text, level)


def _compiled(text: str, level: int) -> bytes:
    """A separate function, so that LLVM's objects are freed before the lock is released."""
    machine = _target_machine(2 if level else 0)
    module = _optimised(text, level)
    _dump(text, module, machine)
    code: bytes = machine.emit_object(module)
    return code


def _optimised(text: str, level: int) -> Any:
    try:
        module = _llvm().parse_assembly(text)
    except RuntimeError as error:
        raise InternalError(f"LLVM refuses the module: {error}") from error
    builder, passes = _passes(level)
    passes.run(module, builder)
    return module


@on_large_stack
def texts_of(text: str, level: int = 2) -> tuple[str, str]:
    """Return a module's IR after optimization, and its assembly."""
    with _lock:
        return _texts_of(text, level)


def _texts_of(text: str, level: int) -> tuple[str, str]:
    module = _optimised(text, level)
    return str(module), str(_target_machine().emit_assembly(module))


def _dump(text: str, module: Any, machine: Any) -> None:
    folder = os.environ.get("VKJIT_CPU_DUMP")
    if not folder:
        return
    number = next(_numbers)
    for ending, content in (("in.ll", text), ("out.ll", str(module)), ("s", machine.emit_assembly(module))):
        path = Path(folder, f"kernel{number}.{ending}")
        try:
            path.unlink(missing_ok=True)  # it may be a link of another user to a file of this one
            write_text(path, content)
        except OSError as error:
            raise ArgumentError(
                f"VKJIT_CPU_DUMP is {folder!r}: nothing can be written there ({error.strerror}); name a folder that exists"
            ) from error


@dataclass(slots=True)
class Linked:
    """Linked object code: the `addresses` of its entries. The code lives as long as this object."""

    addresses: dict[str, int]
    library: Any


@functools.lru_cache(maxsize=1)
def _linker() -> Any:
    """Return LLVM's linker.

    JITLink places an object as a whole. The older linker, which Windows still needs, places sections separately and
    ends the process if they can't reach each other.
    """
    return _llvm().create_lljit_compiler(_target_machine(), use_jit_link=os.name != "nt")


_linked_for_good: list[Linked] = []


@on_large_stack
def compile_functions(text: str, *names: str) -> dict[str, int]:
    """Compile a module for any CPU of this architecture and return its functions' addresses. Their code stays loaded.

    The code must be self-contained: without constants in memory, and without calls of other modules.
    """
    with _lock:
        target = _llvm().Target.from_default_triple()
        machine = target.create_target_machine(opt=2, reloc="pic", codemodel="small", jit=True)
        code = bytes(machine.emit_object(_optimised(text, 2)))
        sections = [section.name() for section in _llvm().ObjectFileRef.from_data(code).sections() if section.size()]
        if any(name.startswith((b".rela.text", b".rodata", b".data", b".bss")) for name in sections):
            raise InternalError(
                f"machine code that must be self-contained has sections {b', '.join(sections).decode()}"
            )
        linked = link(code, *names)
    _linked_for_good.append(linked)
    return linked.addresses


@on_large_stack
def link(code: bytes, *entries: str) -> Linked:
    """Load object code into the process. Raises InternalError for code that LLVM can't link."""
    llvm = _llvm()
    with _lock:
        name = f"kernel{next(_numbers)}"
        library = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
        for entry in entries:
            library = library.export_symbol(entry)
        try:
            tracker = library.link(_linker(), name)
        except RuntimeError as error:
            raise InternalError(f"LLVM can't link the kernel: {error}") from error
        return Linked({entry: int(tracker[entry]) for entry in entries}, tracker)
