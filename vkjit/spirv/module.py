"""A SPIR-V module, written section by section.

Declarations and functions may be added in any order; `to_words` returns the words in the order that SPIR-V requires.
All ids come from one counter. Each type, constant and decoration is emitted once, even if it is added several times.
Only required capabilities and extensions are declared. See the package's docstring for an example.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..errors import InternalError
from ._gen_grammar import ENUMERANTS, GLSL_STD_450, MAGIC
from .function import FunctionWriter
from .requirements import resolve
from .types import TypeTable
from .words import Operand, encode_operands, instruction, layout_of, pack_string

__all__ = ["Module"]

# Storage access capabilities. With one of them, a module may declare an 8- or 16-bit type (for loads and stores)
# without the capability for arithmetic on it (Int8; Int16 and Float16).
_STORAGE_ACCESS_8 = frozenset({"StorageBuffer8BitAccess", "UniformAndStorageBuffer8BitAccess", "StoragePushConstant8"})
_STORAGE_ACCESS_16 = frozenset(
    {"StorageBuffer16BitAccess", "UniformAndStorageBuffer16BitAccess", "StoragePushConstant16", "StorageInputOutput16"}
)


class Module(TypeTable):
    """A module with one or more compute entry points.

    `version` is (major, minor), from (1, 3) to (1, 6). `memory_model` is "Vulkan" or "GLSL450". `debug=False` drops
    names and source lines. `generator` is the generator word of the module's header. The addressing model is
    PhysicalStorageBuffer64 if a pointer with the storage class PhysicalStorageBuffer is declared, else Logical.
    """

    def __init__(
        self, version: tuple[int, int] = (1, 5), *, memory_model: str = "Vulkan", debug: bool = True, generator: int = 0
    ) -> None:
        if not (1, 3) <= version <= (1, 6):
            raise InternalError(f"SPIR-V {version[0]}.{version[1]}: expected 1.3 to 1.6")
        super().__init__(debug=debug)
        self.version = version[0] << 16 | version[1] << 8
        self.memory_model = memory_model
        self.generator = generator
        self._functions: list[FunctionWriter] = []
        self._entries: list[tuple[int, str]] = []
        self._modes: list[int] = []
        self._imports: list[int] = []
        self._strings: list[int] = []
        self._sources: list[int] = []
        self._requested_extensions: set[str] = set()

    def function(
        self, return_type: int, parameters: tuple[int, ...] = (), *, name: str = "", control: Operand = "None"
    ) -> FunctionWriter:
        """Start a function and return its writer. `parameters` are type ids; `control` is e.g. "Inline"."""
        writer = FunctionWriter(self, return_type, parameters, control)
        self._functions.append(writer)
        self.name(writer.id, name)
        return writer

    def entry_point(
        self, function: FunctionWriter, name: str = "main", local_size: tuple[int, int, int] | None = (1, 1, 1)
    ) -> None:
        """Make a function a compute entry point with the workgroup size `local_size`.

        With `local_size=None`, the caller has to set the size by the execution mode LocalSizeId.
        """
        self._entries.append((function.id, name))
        if local_size is not None:
            self.execution_mode(function, "LocalSize", *local_size)

    def execution_mode(self, function: FunctionWriter, mode: str, *operands: int) -> None:
        """Add an execution mode to an entry point.

        `operands` are literals, such as 32 for SignedZeroInfNanPreserve, or ids, as for LocalSizeId.
        """
        opname = "OpExecutionModeId" if "IdRef" in ENUMERANTS["ExecutionMode"][mode][1] else "OpExecutionMode"
        layout = layout_of(opname)
        words: list[int] = []
        encode_operands(layout, (function.id, mode, *operands), words, self.uses)
        self.uses.add(layout.use)
        self._modes += instruction(opname, words)

    def import_set(self, name: str) -> int:
        """Import an extended instruction set, e.g. "GLSL.std.450" or "NonSemantic.DebugPrintf", and return its id."""
        key = ("import", name)
        existing = self._interned.get(key)
        if existing is None:
            existing = self._interned[key] = self.id()
            self._imports += instruction("OpExtInstImport", [existing, *pack_string(name)])
            if name.startswith("NonSemantic."):
                self.extension("SPV_KHR_non_semantic_info", since=(1, 6))
        return existing

    def glsl_std_450(self, name: str, count: int) -> int:
        """Return the id of the imported set GLSL.std.450.

        Raises InternalError unless the set has an instruction `name` with `count` operands.
        """
        row = GLSL_STD_450.get(name)
        if row is None or row[1] != count:
            expected = "no such instruction" if row is None else f"it takes {row[1]} operands"
            raise InternalError(f"GLSL.std.450 {name} with {count} operands: {expected}")
        return self.import_set("GLSL.std.450")

    def extension(self, name: str, since: tuple[int, int] | None = None) -> None:
        """Declare an extension that no emitted instruction implies.

        `since` is the first SPIR-V version that doesn't need the extension, if there is one. The extension isn't
        declared if the module has this version or a later one.
        """
        if since is None or self.version < since[0] << 16 | since[1] << 8:
            self._requested_extensions.add(name)

    def string(self, text: str) -> int:
        """Declare a text by OpString and return its id. Each text is declared once."""
        key = ("string", text)
        existing = self._interned.get(key)
        if existing is None:
            existing = self._interned[key] = self.id()
            self._strings += instruction("OpString", [existing, *pack_string(text)])
        return existing

    def source_file(self, path: str) -> int:
        """Return the id of a source file's name, for OpLine. The file is declared by OpSource on first use."""
        key = ("source", path)
        existing = self._interned.get(key)
        if existing is None:
            existing = self._interned[key] = self.string(path)
            self._sources += instruction("OpSource", [ENUMERANTS["SourceLanguage"]["Unknown"][0], 0, existing])
        return existing

    def requirements(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the (capabilities, extensions) that the module, as emitted so far, has to declare."""
        asked = set(self.required)
        asked |= self._unserved_small()
        uses = set(self.uses)
        uses.add(("MemoryModel", self.memory_model))
        if self._addressing() != "Logical":
            uses.add(("AddressingModel", self._addressing()))
        if self.memory_model == "Vulkan" and ("Scope", "Device") in uses:
            asked.add("VulkanMemoryModelDeviceScope")
        capabilities, extensions = resolve(uses, asked, self.version)
        return capabilities, tuple(sorted({*extensions, *self._requested_extensions}))

    def _unserved_small(self) -> set[str]:
        """Return the arithmetic capabilities that are needed only to declare 8- and 16-bit types.

        None is needed for types of a size for which the module has a storage access capability.
        """
        return {
            name
            for name in self.declared_small
            if not self.required & (_STORAGE_ACCESS_8 if name == "Int8" else _STORAGE_ACCESS_16)
        }

    def _addressing(self) -> str:
        physical = ("StorageClass", "PhysicalStorageBuffer") in self.uses
        return "PhysicalStorageBuffer64" if physical else "Logical"

    def to_words(self) -> npt.NDArray[np.uint32]:
        """Return the module's words. Raises InternalError if a function is unfinished or invalid."""
        body: list[int] = []
        for function in self._functions:
            body += function.finish()
        words = [MAGIC, self.version, self.generator, self.bound, 0]
        words += self._preamble()
        words += self._modes
        words += self._strings
        words += self._sources
        words += self.names
        words += self.annotations
        words += self.declarations
        words += body
        return np.array(words, dtype=np.uint32)

    def to_bytes(self) -> bytes:
        """Return the module's words as little-endian bytes."""
        return self.to_words().astype("<u4", copy=False).tobytes()

    def _preamble(self) -> list[int]:
        """Return the words of the first sections: capabilities, extensions, imports, memory model and entry points."""
        capabilities, extensions = self.requirements()
        words: list[int] = []
        for name in capabilities:
            words += instruction("OpCapability", [ENUMERANTS["Capability"][name][0]])
        for name in extensions:
            words += instruction("OpExtension", pack_string(name))
        words += self._imports
        addressing = ENUMERANTS["AddressingModel"][self._addressing()][0]
        words += instruction("OpMemoryModel", [addressing, ENUMERANTS["MemoryModel"][self.memory_model][0]])
        # from SPIR-V 1.4 on, the interface has variables of all storage classes
        all_storage_classes = self.version >= 0x10400
        interface = [value for value, storage in self.globals if all_storage_classes or storage in ("Input", "Output")]
        model = ENUMERANTS["ExecutionModel"]["GLCompute"][0]
        for function, name in self._entries:
            words += instruction("OpEntryPoint", [model, function, *pack_string(name), *interface])
        return words
