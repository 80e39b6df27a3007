"""LLVM itself, through llvmlite: text in, object code out; object code in, addresses of functions out.

Everything that imports llvmlite is here. Code is made for the processor it runs on, with all of its features.
"""

from __future__ import annotations

import functools
import itertools
import os
import threading
from dataclasses import dataclass
from typing import Any

from ..errors import FeatureError, InternalError

__all__ = ["Host", "Linked", "compile_text", "host", "link", "texts_of"]

_LEAST_LLVM = 17
_lock = threading.Lock()
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Host:
    """The processor: its name, its features with signs ("+avx2,-avx512f,..."), those that it has, LLVM's version."""

    name: str
    flags: str
    features: frozenset[str]
    llvm: tuple[int, ...]

    @property
    def lanes(self) -> int:
        """32-bit lanes of its vectors."""
        if "avx512f" in self.features and "avx512bw" in self.features and "avx512vl" in self.features:
            return 16
        return 8 if "avx2" in self.features else 4


@functools.lru_cache(maxsize=1)
def _llvm() -> Any:
    """llvmlite's binding, initialised."""
    try:
        import llvmlite.binding as llvm
    except ImportError as error:
        raise FeatureError(f"the CPU device needs llvmlite ({error}): pip install 'vkjit[cpu]'") from error
    if llvm.llvm_version_info[0] < _LEAST_LLVM:
        raise FeatureError(
            f"the CPU device needs LLVM {_LEAST_LLVM} or newer, found {llvm.llvm_version_info}: upgrade llvmlite"
        )
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


@functools.lru_cache(maxsize=1)
def host() -> Host:
    """What LLVM says about this processor. VKJIT_CPU_FEATURES ("-avx512f,...") takes features away."""
    llvm = _llvm()
    name = llvm.get_host_cpu_name()
    found = dict(llvm.get_host_cpu_features())
    for text in filter(None, os.environ.get("VKJIT_CPU_FEATURES", "").split(",")):
        found[text.strip().lstrip("+-")] = not text.strip().startswith("-")
    flags = ",".join(f"{'+' if on else '-'}{feature}" for feature, on in sorted(found.items()))
    features = frozenset(feature for feature, on in found.items() if on)
    return Host(name, flags, features, tuple(llvm.llvm_version_info))


@functools.lru_cache(maxsize=1)
def _target_machine() -> Any:
    llvm, machine = _llvm(), host()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=machine.name, features=machine.flags, opt=2, reloc="pic", codemodel="small", jit=True
    )


def _passes(level: int) -> tuple[Any, Any]:
    """A pass builder and LLVM's usual pipeline; a pipeline runs once."""
    llvm = _llvm()
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization = False
    options.slp_vectorization = False
    options.loop_unrolling = False  # a load that meets each cache line in turn trains the prefetcher best
    builder = llvm.create_pass_builder(_target_machine(), options)
    return builder, builder.getModulePassManager()


def compile_text(text: str, level: int = 2) -> bytes:
    """Object code of a module in LLVM's text form; `level` is LLVM's optimisation level. VKJIT_CPU_DUMP names a folder
    that gets the module before and after optimisation, and the assembler text."""
    llvm = _llvm()
    with _lock:
        machine = _target_machine()
        try:
            module = llvm.parse_assembly(text)
        except RuntimeError as error:
            raise InternalError(f"LLVM refuses the module: {error}") from error
        builder, passes = _passes(level)
        passes.run(module, builder)
        _dump(text, module, machine)
        code: bytes = machine.emit_object(module)
        return code


def texts_of(text: str, level: int = 2) -> tuple[str, str]:
    """A module's text after optimisation, and its assembler text."""
    llvm = _llvm()
    with _lock:
        module = llvm.parse_assembly(text)
        builder, passes = _passes(level)
        passes.run(module, builder)
        return str(module), str(_target_machine().emit_assembly(module))


def _dump(text: str, module: Any, machine: Any) -> None:
    folder = os.environ.get("VKJIT_CPU_DUMP")
    if not folder:
        return
    number = next(_numbers)
    for ending, content in (("in.ll", text), ("out.ll", str(module)), ("s", machine.emit_assembly(module))):
        with open(os.path.join(folder, f"kernel{number}.{ending}"), "w", encoding="utf-8") as file:
            file.write(content)


@dataclass(slots=True)
class Linked:
    """Object code made ready: the `addresses` of its entries; the code lives as long as this object."""

    addresses: dict[str, int]
    library: Any


@functools.lru_cache(maxsize=1)
def _linker() -> Any:
    return _llvm().create_lljit_compiler(_target_machine())


def link(code: bytes, *entries: str) -> Linked:
    """Loads object code into the process. Raises InternalError for what LLVM can't link."""
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
