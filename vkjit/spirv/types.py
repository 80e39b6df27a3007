"""Types, constants, global variables and decorations of a SPIR-V module.

`TypeTable`, the base class of `Module`, allocates ids and emits these declarations. It interns them by content: asking
twice for the same type or constant returns the same id. Two constants are the same if their types and bits are equal,
so 0.0 and -0.0 differ, and so do NaNs with different payloads. The table also records the capabilities that
declarations need.
"""

from __future__ import annotations

import operator
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InternalError
from .words import Operand, Use, encode_operands, enumerant, instruction, layout_of, pack_string

__all__ = ["TypeInfo", "TypeTable"]


@dataclass(frozen=True, slots=True)
class TypeInfo:
    """The description of a type id.

    `kind` is "void", "bool", "int", "float", "bfloat", "vector", "array", "runtime_array", "struct", "pointer",
    "function", "matrix" (cooperative) or "opaque". `bits` and `signed` describe scalars. `members` are the ids of the
    types that the type consists of (element, members, pointee, or result and parameters). `length` is the number of
    elements of a vector or array, `storage` the storage class of a pointer. `small_capabilities` are the capabilities that
    arithmetic on the contained 8- and 16-bit scalars needs.
    """

    kind: str
    bits: int = 0
    signed: bool = False
    members: tuple[int, ...] = ()
    length: int = 0
    storage: str = ""
    small_capabilities: frozenset[str] = frozenset()


_NO_NAMES: frozenset[str] = frozenset()
_SMALL = {("int", 8): "Int8", ("int", 16): "Int16", ("float", 16): "Float16"}
"""The capabilities for arithmetic on 8- and 16-bit scalars. Loads and stores need only a capability in `_ACCESS`."""
_WIDE = {("int", 64): "Int64", ("float", 64): "Float64"}
"""The capabilities for 64-bit scalars."""

# The capabilities for loads and stores of (8-bit, 16-bit) contents, by storage class. Other storage classes need the
# capability for arithmetic, and so do 8-bit inputs and outputs.
_ACCESS = {
    "PhysicalStorageBuffer": ("StorageBuffer8BitAccess", "StorageBuffer16BitAccess"),
    "StorageBuffer": ("StorageBuffer8BitAccess", "StorageBuffer16BitAccess"),
    "Uniform": ("UniformAndStorageBuffer8BitAccess", "UniformAndStorageBuffer16BitAccess"),
    "PushConstant": ("StoragePushConstant8", "StoragePushConstant16"),
    "Input": ("Int8", "StorageInputOutput16"),
    "Output": ("Int8", "StorageInputOutput16"),
}


class TypeTable:
    """Interned types, constants and global variables of one module.

    - `forward_pointers`: declare pointers to structures in buffers forward. spirv-val then accepts an OpBitcast to a
      pointer to 8- or 16-bit elements without a capability for arithmetic on them.
    - `bound`: the next free id. `uses`: the used instructions and enumerants.
    - `required`: capabilities that are required in addition to those derived from `uses`.
    - `types`: the description of each type id. `value_types`: the type id of each value.
    - `small_types`: maps the types with 8- or 16-bit contents to the capabilities that arithmetic on them needs.
    - `declared_small`: the union of these capabilities over all declared 8- and 16-bit scalar types.
    - `globals`: (id, storage class) of each global variable.
    - `declarations`, `names`, `annotations`: the words of these sections of the module.
    - `_interned`: the ids of types, constants etc. by content. `_annotated`: the decorations emitted so far.
    """

    def __init__(self, *, debug: bool = True) -> None:
        """Create an empty table. `debug=False` drops names and source lines."""
        self.debug = debug
        self.forward_pointers = False
        self.bound = 1
        self.uses: set[Use] = set()
        self.required: set[str] = set()
        self.types: dict[int, TypeInfo] = {}
        self.value_types: dict[int, int] = {}
        self.small_types: dict[int, frozenset[str]] = {}
        self.declared_small: set[str] = set()
        self.globals: list[tuple[int, str]] = []
        self.declarations: list[int] = []
        self.names: list[int] = []
        self.annotations: list[int] = []
        self._interned: dict[tuple[Any, ...], int] = {}
        self._annotated: set[tuple[Any, ...]] = set()

    def id(self) -> int:
        """Return a fresh id."""
        fresh = self.bound
        self.bound = fresh + 1
        return fresh

    def type_of(self, value: int) -> int:
        """Return the type id of a constant, variable, parameter or result. Raises InternalError if it has none."""
        type_id = self.value_types.get(value)
        if type_id is None:
            raise InternalError(f"%{value} isn't a value of this module")
        return type_id

    def info(self, type_id: int) -> TypeInfo:
        """Return the description of a type id. Raises InternalError if it isn't a type of this module."""
        description = self.types.get(type_id)
        if description is None:
            raise InternalError(f"%{type_id} isn't a type of this module")
        return description

    def require(self, capability: str) -> None:
        """Declare a capability that no emitted instruction implies. Raises InternalError for an unknown name."""
        _, names = enumerant("Capability", capability)
        self.required.update(names)

    # Types

    def type_void(self) -> int:
        return self._type("OpTypeVoid", (), TypeInfo("void"))

    def type_bool(self) -> int:
        return self._type("OpTypeBool", (), TypeInfo("bool", 1))

    def type_int(self, bits: int = 32, signed: bool = False) -> int:
        """Return an integer type of 8, 16, 32 or 64 bits. Most instructions ignore the signedness of types."""
        if bits not in (8, 16, 32, 64):
            raise InternalError(f"no integer type of {bits} bits: expected 8, 16, 32 or 64")
        return self._type("OpTypeInt", (bits, int(signed)), self._scalar("int", bits, signed))

    def type_float(self, bits: int = 32) -> int:
        """Return an IEEE float type of 16, 32 or 64 bits."""
        if bits not in (16, 32, 64):
            raise InternalError(f"no float type of {bits} bits: expected 16, 32 or 64")
        return self._type("OpTypeFloat", (bits,), self._scalar("float", bits, signed=True))

    def type_bfloat16(self) -> int:
        """Return the bf16 type of SPV_KHR_bfloat16. It is usable for conversions, dot products and cooperative matrices
        only.
        """
        info = TypeInfo("bfloat", 16, signed=True, small_capabilities=frozenset({"BFloat16TypeKHR"}))
        return self._type("OpTypeFloat", (16, "BFloat16KHR"), info)

    def type_vector(self, element: int, length: int) -> int:
        inner = self.info(element)
        info = TypeInfo(
            "vector", inner.bits, inner.signed, (element,), length, small_capabilities=inner.small_capabilities
        )
        return self._type("OpTypeVector", (element, length), info)

    def type_array(self, element: int, length: int, stride: int | None = None) -> int:
        """Return the type of arrays with `length` elements. `stride`, in bytes, makes the memory layout explicit."""
        if length < 1:
            raise InternalError(f"an array of {length} elements: SPIR-V arrays have at least one")
        info = TypeInfo(
            "array", members=(element,), length=length, small_capabilities=self.info(element).small_capabilities
        )
        operands = (element, self.constant(self.type_int(32), length))
        return self._type("OpTypeArray", operands, info, ("ArrayStride", stride))

    def type_runtime_array(self, element: int, stride: int | None = None) -> int:
        """Return the type of an array of unknown length, for the last member of a block. `stride` is in bytes."""
        info = TypeInfo("runtime_array", members=(element,), small_capabilities=self.info(element).small_capabilities)
        return self._type("OpTypeRuntimeArray", (element,), info, ("ArrayStride", stride))

    def type_struct(
        self,
        members: tuple[int, ...],
        offsets: tuple[int, ...] | None = None,
        *,
        name: str = "",
        member_names: tuple[str, ...] = (),
        block: bool = False,
    ) -> int:
        """Return a structure type. `offsets`, in bytes, make the layout explicit. `block` adds the decoration Block.

        Two structure types are the same if their members, offsets, names and `block` are equal.
        """
        key = ("struct", members, offsets, name, block)
        existing = self._interned.get(key)
        if existing is not None:
            return existing
        if offsets is not None and len(offsets) != len(members):
            raise InternalError(f"{len(offsets)} offsets for {len(members)} members of structure {name!r}")
        small = _NO_NAMES.union(*(self.info(member).small_capabilities for member in members))
        result = self._declare("OpTypeStruct", members, TypeInfo("struct", members=members, small_capabilities=small))
        self._interned[key] = result
        for index, offset in enumerate(offsets or ()):
            self.decorate_member(result, index, "Offset", offset)
        if block:
            self.decorate(result, "Block")
        self.name(result, name)
        for index, member_name in enumerate(member_names):
            self.name_member(result, index, member_name)
        return result

    def type_pointer(self, storage: str, pointee: int, stride: int | None = None) -> int:
        """Return a pointer type with the storage class `storage`. `stride`, in bytes, is for OpPtrAccessChain.

        Also requires the capabilities for loads and stores of the pointee's 8- and 16-bit contents.
        """
        bits = 64 if storage == "PhysicalStorageBuffer" else 0  # other pointers have no size
        info = TypeInfo("pointer", bits, members=(pointee,), storage=storage)
        result = self._type("OpTypePointer", (storage, pointee), info, ("ArrayStride", stride))
        access = _ACCESS.get(storage)
        for arithmetic in self.info(pointee).small_capabilities:
            if access is None:
                self.required.add(arithmetic)
            else:
                self.required.add(access[0 if arithmetic == "Int8" else 1])
        return result

    def type_function(self, result: int, parameters: tuple[int, ...] = ()) -> int:
        return self._type("OpTypeFunction", (result, *parameters), TypeInfo("function", members=(result, *parameters)))

    def type_cooperative_matrix(self, component: int, scope: str, rows: int, columns: int, use: str) -> int:
        """Return the type of KHR cooperative matrices with elements of type `component`.

        `scope` is "Subgroup" or "Workgroup"; `use` is "MatrixAKHR", "MatrixBKHR" or "MatrixAccumulatorKHR".
        """
        inner = self.info(component)
        if inner.kind == "bfloat":
            self.require("BFloat16CooperativeMatrixKHR")
        uint = self.type_int(32)
        # the numbers of the enumerants, since the operand is a constant
        uses = {"MatrixAKHR": 0, "MatrixBKHR": 1, "MatrixAccumulatorKHR": 2}
        operands = (
            component,
            self.scope(scope),
            self.constant(uint, rows),
            self.constant(uint, columns),
            self.constant(uint, uses[use]),
        )
        info = TypeInfo("matrix", inner.bits, inner.signed, (component,), small_capabilities=inner.small_capabilities)
        return self._type("OpTypeCooperativeMatrixKHR", operands, info)

    def type_opaque(self, opname: str, *operands: Operand) -> int:
        """Declare a type by any other type instruction, such as "OpTypeTensorLayoutNV", and return its id."""
        return self._type(opname, operands, TypeInfo("opaque"))

    def _scalar(self, kind: str, bits: int, signed: bool) -> TypeInfo:
        """Return the description of a scalar type, and record the capability that the type needs."""
        wide = _WIDE.get((kind, bits))
        if wide is not None:
            self.required.add(wide)
        small = _SMALL.get((kind, bits))
        if small is not None:
            self.declared_small.add(small)
        return TypeInfo(kind, bits, signed, small_capabilities=_NO_NAMES if small is None else frozenset({small}))

    def _type(
        self,
        opname: str,
        operands: tuple[Operand, ...],
        info: TypeInfo,
        decoration: tuple[str, int | None] = ("", None),
    ) -> int:
        """Intern a type and return its id. `decoration` is (name, value); a value of None stands for no decoration."""
        key = (opname, operands, decoration[1])
        existing = self._interned.get(key)
        if existing is not None:
            return existing
        result = self._declare(opname, operands, info)
        self._interned[key] = result
        if decoration[1] is not None:
            self.decorate(result, decoration[0], decoration[1])
        return result

    def _declare(self, opname: str, operands: tuple[Operand, ...], info: TypeInfo) -> int:
        """Emit a type declaration and return its id."""
        layout = layout_of(opname)
        result = self.id()
        if (
            self.forward_pointers
            and info.storage == "PhysicalStorageBuffer"
            and self.info(info.members[0]).kind == "struct"
        ):
            forward, forward_words = layout_of("OpTypeForwardPointer"), list[int]()
            encode_operands(forward, (result, info.storage), forward_words, self.uses)
            self.uses.add(forward.use)
            self.declarations += instruction(forward.name, forward_words)
        words = [result]
        encode_operands(layout, operands, words, self.uses)
        self.uses.add(layout.use)
        self.declarations += instruction(layout.name, words)
        self.types[result] = info
        if info.small_capabilities:
            self.small_types[result] = info.small_capabilities
        return result

    # Constants

    def constant(self, type_id: int, value: Any) -> int:
        """Return the constant `value` of a scalar type.

        Integers wrap to the type's width. Floats are rounded to nearest even.
        """
        info = self.info(type_id)
        if info.kind == "bool":
            return self._constant("OpConstantTrue" if value else "OpConstantFalse", type_id, ())
        return self.constant_bits(type_id, _bits_of(info, value))

    def constant_bits(self, type_id: int, bits: int) -> int:
        """Return the scalar constant with the bits `bits`, truncated to the type's width. NaNs may have a payload."""
        info = self.info(type_id)
        if info.kind not in ("int", "float", "bfloat"):
            raise InternalError(f"a constant needs a scalar type, found {info.kind}")
        bits &= (1 << info.bits) - 1
        # SPIR-V: literals narrower than a word are sign-extended if the type is signed
        if info.kind == "int" and info.signed and info.bits < 32 and bits >> (info.bits - 1):
            bits |= 0xFFFFFFFF ^ ((1 << info.bits) - 1)
        words = (bits,) if info.bits <= 32 else (bits & 0xFFFFFFFF, bits >> 32)  # the low word first
        return self._constant("OpConstant", type_id, words)

    def constant_composite(self, type_id: int, members: tuple[int, ...]) -> int:
        """Return a vector, array or structure of constants."""
        return self._constant("OpConstantComposite", type_id, members)

    def constant_null(self, type_id: int) -> int:
        return self._constant("OpConstantNull", type_id, ())

    def undef(self, type_id: int) -> int:
        """Return an undefined value, declared once per type."""
        return self._constant("OpUndef", type_id, ())

    def spec_constant(self, type_id: int, default: int | bool, number: int) -> int:
        """Return the specialization constant with the SpecId `number`. Pipelines may set its value.

        Later calls with the same number return the same constant, and ignore the type and the default.
        """
        key = ("spec", number)
        existing = self._interned.get(key)
        if existing is not None:
            return existing
        info = self.info(type_id)
        words: list[int] = []
        if info.kind == "bool":
            opname = "OpSpecConstantTrue" if default else "OpSpecConstantFalse"
        else:
            opname = "OpSpecConstant"
            bits = _bits_of(info, default)
            words = [bits] if info.bits <= 32 else [bits & 0xFFFFFFFF, bits >> 32]
        result = self._global_value(opname, type_id, words)
        self.decorate(result, "SpecId", number)
        self._interned[key] = result
        return result

    def _constant(self, opname: str, type_id: int, words: tuple[int, ...]) -> int:
        """Intern a constant and return its id. `words` are the operands of the instruction `opname`."""
        key = (opname, type_id, words)
        existing = self._interned.get(key)
        if existing is None:
            self.required.update(self.info(type_id).small_capabilities)
            existing = self._interned[key] = self._global_value(opname, type_id, list(words))
        return existing

    def _global_value(self, opname: str, type_id: int, words: list[int]) -> int:
        """Emit a constant or global variable and return its id."""
        result = self.id()
        self.declarations += instruction(opname, [type_id, result, *words])
        self.value_types[result] = type_id
        return result

    def scope(self, name: str) -> int:
        """Return the u32 constant of a scope: "Workgroup", "Subgroup", "Device", "Invocation" or "QueueFamily"."""
        return self._named_constant("Scope", name)

    def semantics(self, names: str) -> int:
        """Return the u32 constant of memory semantics. `names` are joined by "|": "AcquireRelease|WorkgroupMemory"."""
        return self._named_constant("MemorySemantics", names)

    def _named_constant(self, kind: str, names: str) -> int:
        """Return the u32 constant that is the number of an enumerant or mask of operand kind `kind`."""
        key = (kind, names)
        existing = self._interned.get(key)
        if existing is None:
            number, members = enumerant(kind, names)
            self.uses.update((kind, name) for name in members)
            existing = self._interned[key] = self.constant(self.type_int(32), number)
        return existing

    # Global variables and annotations

    def variable(self, storage: str, pointee: int, name: str = "", initializer: int | None = None) -> int:
        """Declare a global variable (Workgroup, Private, PushConstant, Input...) and return its pointer."""
        pointer = self.type_pointer(storage, pointee)
        layout = layout_of("OpVariable")
        words: list[int] = []
        encode_operands(layout, (storage,) if initializer is None else (storage, initializer), words, self.uses)
        result = self._global_value(layout.name, pointer, words)
        self.globals.append((result, storage))
        self.name(result, name)
        return result

    def builtin(self, name: str, type_id: int) -> int:
        """Return the pointer to the Input variable of a built-in such as "GlobalInvocationId". It is declared once."""
        key = ("builtin", name, type_id)
        existing = self._interned.get(key)
        if existing is None:
            existing = self._interned[key] = self.variable("Input", type_id, name)
            self.decorate(existing, "BuiltIn", name)
        return existing

    def name(self, target: int, text: str) -> None:
        """Name an id for disassembly; does nothing for an empty text."""
        if text and self.debug:
            self.names += instruction("OpName", [target, *_debug_name(text)])

    def name_member(self, target: int, member: int, text: str) -> None:
        """Name a member of a structure."""
        if text and self.debug:
            self.names += instruction("OpMemberName", [target, member, *_debug_name(text)])

    def decorate(self, target: int, decoration: str, *operands: Operand) -> None:
        """Decorate an id. Duplicates are emitted once."""
        self._annotate("OpDecorate", target, decoration, *operands)

    def decorate_member(self, target: int, member: int, decoration: str, *operands: Operand) -> None:
        """Decorate a member of a structure."""
        self._annotate("OpMemberDecorate", target, member, decoration, *operands)

    def _annotate(self, opname: str, *operands: Operand) -> None:
        """Emit a decoration, unless the same one has been emitted before."""
        key = (opname, *operands)
        if key in self._annotated:
            return
        self._annotated.add(key)
        layout = layout_of(opname)
        words: list[int] = []
        encode_operands(layout, operands, words, self.uses)
        self.annotations += instruction(layout.name, words)


def _bits_of(info: TypeInfo, value: Any) -> int:
    """Return the bits of a number in a scalar type; floats are rounded to nearest, ties to even."""
    if info.kind == "int":
        return operator.index(value) & ((1 << info.bits) - 1)
    if info.kind == "float" and info.bits == 64:
        return int(struct.unpack("<Q", struct.pack("<d", value))[0])
    if info.kind == "float":
        return _float_bits(value, info.bits)
    single = _float_bits(value, 32)  # bf16 is the upper half of an f32
    if single & 0x7FFFFFFF > 0x7F800000:  # NaN: set the quiet bit, as the remaining payload may be 0
        return single >> 16 | 0x40
    # round to even: add just under half a bf16 ULP, or exactly half to an odd value
    return (single + 0x7FFF + (single >> 16 & 1)) >> 16


def _float_bits(value: Any, bits: int) -> int:
    """Return the bits of a float, rounded to nearest even; overflow gives infinity."""
    float_dtype = np.float32 if bits == 32 else np.float16
    bits_dtype = np.uint32 if bits == 32 else np.uint16
    with np.errstate(all="ignore"):
        return int(np.asarray(value, dtype=float_dtype).view(bits_dtype))


def _debug_name(text: str) -> list[int]:
    """Encode a name for disassembly: shortened, as an instruction has at most 65535 words, and without zero bytes."""
    return pack_string(text[:1000].replace("\0", "\\0"))
