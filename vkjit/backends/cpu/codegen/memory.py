"""Code generation for loads, stores and arrays.

An access is scalar if its index is uniform, a vector access if the elements of the lanes are contiguous, else a gather or
scatter. Inactive lanes don't access global or shared memory.

A global array is a pointer from the argument block. A shared array is an alloca, reused by one workgroup after the
other. A local array is an alloca with one vector per element and component; in kernels with barriers there is one such
array for each vector of the workgroup.
"""

from __future__ import annotations

import math

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.errors import InternalError
from vkjit.ir.core import Op, Value
from vkjit.ir.ops import OpName

from .context import Generator, Handler, dtype_of, lanes_of
from .elementwise import round_to_bf16
from .llvm_text import constant, intrinsic_suffix, memory_type
from .nontemporal_stores import store_past_caches
from .varying_strides import both_ways, steps_of

__all__ = ["HANDLERS", "alias_tags", "element_pointer", "from_memory", "place_index", "to_memory"]

_ROUNDED: frozenset[OpName] = frozenset({"cast", "load", "const", "bitcast", "atomic_load", "poison"})
"""Operations whose bf16 results are rounded already."""


# -- conversion between values and elements in memory


def to_memory(g: Generator, part: str, dtype: DType, varying: bool, *, rounded: bool = False) -> str:
    """Convert a component to its type in memory; `rounded` is True if a bf16 value is already rounded."""
    if dtype.kind == "bool":
        return g.text.op(f"zext {g.type(dtype, varying)} {part} to {_memory(g, dtype, varying)}")
    if dtype is not dtypes.bf16:
        return part
    if not rounded:
        part = round_to_bf16(g, part, varying)
    word = g.type(dtypes.u32, varying)
    bits = g.text.op(f"bitcast {g.type(dtype, varying)} {part} to {word}")
    high = g.text.op(f"lshr {word} {bits}, {g.number(16, dtypes.u32, varying)}")
    return g.text.op(f"trunc {word} {high} to {_memory(g, dtype, varying)}")


def from_memory(g: Generator, part: str, dtype: DType, varying: bool) -> str:
    """Convert a loaded element to a component."""
    stored = _memory(g, dtype, varying)
    if dtype.kind == "bool":
        return g.text.op(f"icmp ne {stored} {part}, {g.number(0, dtypes.u8, varying)}")
    if dtype is not dtypes.bf16:
        return part
    word = g.type(dtypes.u32, varying)
    wide = g.text.op(f"zext {stored} {part} to {word}")
    high = g.text.op(f"shl {word} {wide}, {g.number(16, dtypes.u32, varying)}")
    return g.text.op(f"bitcast {word} {high} to {g.type(dtype, varying)}")


def _memory(g: Generator, dtype: DType, varying: bool) -> str:
    name = memory_type(dtype)
    return f"<{g.width} x {name}>" if varying else name


def item_bytes(dtype: DType) -> int:
    return 1 if dtype.kind == "bool" else dtype.bits // 8


# -- addresses


def alias_tags(g: Generator, root: Value) -> str:
    """Return the metadata for accesses to a `restrict` array, which overlaps no other; empty for other arrays."""
    number = g.alias_scopes.get(root)
    return "" if number is None else f", !alias.scope !{100 + 2 * number}, !noalias !{101 + 2 * number}"


def _base(g: Generator, root: Value) -> str:
    base = g.bases.get(root)
    if base is None:
        raise InternalError(f"the array {root!r} has no memory")
    return base


def place_index(g: Generator, op: Op, varying: bool) -> tuple[str, str]:
    """Return the index of an access, in elements, and its LLVM type: i64, or a vector of i64 or signed i32."""
    value = op.operands[1]
    dtype = dtype_of(value.type)
    (part,) = g.converted(value, varying)
    kind = g.type(dtype, varying)
    if dtype.bits == 64 or (varying and dtype.is_signed and dtype.bits == 32):
        return part, kind
    wide = f"<{g.width} x i64>" if varying else "i64"
    if not part.startswith(("%", "<", "s")):
        return str(int(part) if dtype.is_signed else int(part) & ((1 << dtype.bits) - 1)), wide
    return g.text.op(f"{'sext' if dtype.is_signed else 'zext'} {kind} {part} to {wide}"), wide


def element_pointer(g: Generator, array: Value, index: str, kind: str, component: int = 0) -> str:
    """Emit the pointer to a component of an element; `index` has type `kind`. A vector of indices gives one of pointers."""
    element = g.array(array).element
    dtype, lanes = dtype_of(element), lanes_of(element)
    stored = memory_type(dtype)
    base = _base(g, g.root(array))
    if lanes > 1:
        base_kind = f"[{lanes} x {stored}]"
        return g.text.op(
            f"getelementptr {base_kind}, ptr {base}, {kind} {index}, {_like(g, kind)} {_splat_index(kind, component)}"
        )
    return g.text.op(f"getelementptr {stored}, ptr {base}, {kind} {index}")


def _like(g: Generator, kind: str) -> str:
    return f"<{g.width} x i32>" if kind.startswith("<") else "i32"


def _splat_index(kind: str, number: int) -> str:
    return f"splat (i32 {number})" if kind.startswith("<") else str(number)


# -- loads


def _load(g: Generator, op: Op) -> None:
    array = op.operands[0]
    if g.array(array).space == "local":
        _load_local(g, op)
        return
    dtype, lanes = dtype_of(op.result.type), lanes_of(op.result.type)
    shape = g.shapes.of_value(op.operands[1])
    tags = alias_tags(g, g.root(array))
    if not g.is_varying(op.result):
        index, kind = place_index(g, op, False)
        pointers = [element_pointer(g, array, index, kind, c) for c in range(lanes)]
        raw = [_scalar_load(g, dtype, p, tags) for p in pointers]
        g.define(op.result, [from_memory(g, part, dtype, False) for part in raw])
        return
    if shape is not None and shape.size == 1 and lanes == 1:
        index, kind = place_index(g, op, False)
        pointer = element_pointer(g, array, index, kind)
        g.define(op.result, [from_memory(g, _vector_load(g, dtype, pointer, tags), dtype, True)])
        return
    stepped = steps_of(g, op.operands[1]) if lanes == 1 and shape is None else None

    def gathered(component: int = 0) -> str:
        index, kind = place_index(g, op, True)
        return _gather(g, dtype, element_pointer(g, array, index, kind, component), tags)

    if stepped is None:
        parts = [gathered(component) for component in range(lanes)]
    else:
        first, near = stepped

        def whole() -> str:
            return _vector_load(g, dtype, element_pointer(g, array, first, "i64"), tags)

        parts = [both_ways(g, near, whole, gathered, _memory(g, dtype, True))]
    g.define(op.result, [from_memory(g, part, dtype, True) for part in parts])


def _scalar_load(g: Generator, dtype: DType, pointer: str, tags: str) -> str:
    return g.text.op(f"load {memory_type(dtype)}, ptr {pointer}, align {item_bytes(dtype)}{tags}")


def _vector_load(g: Generator, dtype: DType, pointer: str, tags: str) -> str:
    whole, align = _memory(g, dtype, True), item_bytes(dtype)
    if g.mask is None:
        return g.text.op(f"load {whole}, ptr {pointer}, align {align}{tags}")
    name = f"llvm.masked.load.{intrinsic_suffix(whole)}.p0"
    passed = (f"ptr {pointer}", f"i32 {align}", f"{g.mask_type} {g.mask}", f"{whole} zeroinitializer")
    return g.text.call(whole, name, *passed, tags=tags)


def _gather(g: Generator, dtype: DType, pointers: str, tags: str) -> str:
    whole, align = _memory(g, dtype, True), item_bytes(dtype)
    addresses = f"<{g.width} x ptr>"
    name = f"llvm.masked.gather.{intrinsic_suffix(whole)}.v{g.width}p0"
    mask = f"{g.mask_type} {g.mask_or_all()}"
    return g.text.call(
        whole, name, f"{addresses} {pointers}", f"i32 {align}", mask, f"{whole} zeroinitializer", tags=tags
    )


# -- stores


def _store(g: Generator, op: Op) -> None:
    array, value = op.operands[0], op.operands[-1]
    if g.array(array).space == "local":
        _store_local(g, op)
        return
    dtype, lanes = dtype_of(value.type), lanes_of(value.type)
    rounded = value.op is not None and value.op.name in _ROUNDED
    shape = g.shapes.of_value(op.operands[1])
    tags = alias_tags(g, g.root(array))
    if shape is not None and shape.size == 0:
        _store_one(g, op, dtype, rounded, tags)
        return
    parts = [to_memory(g, part, dtype, True, rounded=rounded) for part in g.vectors(value)]
    if shape is not None and shape.size == 1 and lanes == 1:
        index, kind = place_index(g, op, False)
        _vector_store(g, op, dtype, parts[0], element_pointer(g, array, index, kind), tags)
        return
    stepped = steps_of(g, op.operands[1]) if lanes == 1 and shape is None else None

    def scattered() -> None:
        index, kind = place_index(g, op, True)
        for component, part in enumerate(parts):
            _scatter(g, dtype, part, element_pointer(g, array, index, kind, component), tags)

    if stepped is None:
        scattered()
        return
    first, near = stepped

    def whole() -> None:
        _vector_store(g, op, dtype, parts[0], element_pointer(g, array, first, "i64"), tags)

    both_ways(g, near, whole, scattered, "")


def _store_one(g: Generator, op: Op, dtype: DType, rounded: bool, tags: str) -> None:
    """Emit a store to a uniform index: the value of the last active lane is stored."""
    array, value = op.operands[0], op.operands[-1]
    index, kind = place_index(g, op, False)
    if g.shapes.is_uniform(value):
        parts = g.scalars(value)
    else:
        whole, lane = g.type(dtype, True), _last_lane(g)
        parts = [g.text.op(f"extractelement {whole} {part}, i32 {lane}") for part in g.vectors(value)]
    for component, part in enumerate(parts):
        stored = to_memory(g, part, dtype, False, rounded=rounded)
        pointer = element_pointer(g, array, index, kind, component)
        g.text.do(f"store {memory_type(dtype)} {stored}, ptr {pointer}, align {item_bytes(dtype)}{tags}")


def _last_lane(g: Generator) -> str:
    if g.mask is None:
        return str(g.width - 1)
    kind = f"i{g.width}"
    zeros = g.text.call(kind, f"llvm.ctlz.{kind}", f"{kind} {g.bits(g.mask)}", "i1 true")
    return g.resized(g.text.op(f"sub {kind} {g.width - 1}, {zeros}"), kind, "i32")


def _vector_store(g: Generator, op: Op, dtype: DType, part: str, pointer: str, tags: str) -> None:
    whole, align = _memory(g, dtype, True), item_bytes(dtype)
    if g.mask is None:
        if not store_past_caches(g, op, whole, part, pointer, tags):
            g.text.do(f"store {whole} {part}, ptr {pointer}, align {align}{tags}")
        return
    name = f"llvm.masked.store.{intrinsic_suffix(whole)}.p0"
    g.text.run(name, f"{whole} {part}", f"ptr {pointer}", f"i32 {align}", f"{g.mask_type} {g.mask}", tags=tags)


def _scatter(g: Generator, dtype: DType, part: str, pointers: str, tags: str) -> None:
    whole, align = _memory(g, dtype, True), item_bytes(dtype)
    addresses = f"<{g.width} x ptr>"
    name = f"llvm.masked.scatter.{intrinsic_suffix(whole)}.v{g.width}p0"
    mask = f"{g.mask_type} {g.mask_or_all()}"
    g.text.run(name, f"{whole} {part}", f"{addresses} {pointers}", f"i32 {align}", mask, tags=tags)


# -- local arrays, indexed by [vector of the workgroup][element][component]; each entry is a vector


def _allocate(g: Generator, op: Op) -> None:
    array = g.array(op.result)
    dtype, lanes = dtype_of(array.element), lanes_of(array.element)
    if op.result in g.bases:
        return
    count = max(math.prod(array.shape or ()), 1) * lanes
    if array.space == "shared":
        g.bases[op.result] = g.text.variable(f"[{count} x {memory_type(dtype)}]", "shared", 64)
        return
    rows = count * (g.geometry.count if g.has_barrier_regions else 1)
    g.bases[op.result] = g.text.variable(f"[{rows} x {_memory(g, dtype, True)}]", "local", 64)


def _local_row(g: Generator, op: Op, component: int) -> str:
    """Emit the pointer to the vector of one component of the element at a uniform index."""
    index, kind = place_index(g, op, False)
    row = _row_number(g, op, index, kind, component)
    dtype = dtype_of(g.array(op.operands[0]).element)
    return g.text.op(f"getelementptr {_memory(g, dtype, True)}, ptr {_base(g, g.root(op.operands[0]))}, i64 {row}")


def _row_number(g: Generator, op: Op, index: str, kind: str, component: int) -> str:
    root = g.array(g.root(op.operands[0]))
    lanes = lanes_of(root.element)
    varying = kind.startswith("<")

    def number(n: int) -> str:
        text = constant(n, dtypes.i64)
        return f"splat ({'i32' if 'i32' in kind else 'i64'} {text})" if varying else text

    row = index if lanes == 1 else g.text.op(f"mul {kind} {index}, {number(lanes)}")
    if component:
        row = g.text.op(f"add {kind} {row}, {number(component)}")
    if not g.has_barrier_regions or g.geometry.count == 1:
        return row
    whole = max(math.prod(root.shape or ()), 1) * lanes
    first = g.text.op(f"mul i64 {g.vector_number}, {whole}")
    if varying:
        first = g.splat(first if "i64" in kind else g.text.op(f"trunc i64 {first} to i32"), kind[:-1].split(" x ")[1])
    return g.text.op(f"add {kind} {row}, {first}")


def _lane_pointers(g: Generator, op: Op, component: int) -> str:
    """Emit the vector of pointers to each lane's element of a local array at a varying index."""
    index, kind = place_index(g, op, True)
    row = _row_number(g, op, index, kind, component)
    element = kind[:-1].split(" x ")[1]
    place = g.text.op(f"mul {kind} {row}, splat ({element} {g.width})")
    place = g.text.op(f"add {kind} {place}, {g.lane_numbers(element)}")
    dtype = dtype_of(g.array(op.operands[0]).element)
    return g.text.op(f"getelementptr {memory_type(dtype)}, ptr {_base(g, g.root(op.operands[0]))}, {kind} {place}")


def _load_local(g: Generator, op: Op) -> None:
    dtype, lanes = dtype_of(op.result.type), lanes_of(op.result.type)
    uniform = g.shapes.is_uniform(op.operands[1])
    parts = []
    for component in range(lanes):
        if uniform:
            raw = g.text.op(f"load {_memory(g, dtype, True)}, ptr {_local_row(g, op, component)}")
        else:
            raw = _gather(g, dtype, _lane_pointers(g, op, component), "")
        parts.append(from_memory(g, raw, dtype, True))
    g.define(op.result, parts)


def _store_local(g: Generator, op: Op) -> None:
    value = op.operands[-1]
    dtype = dtype_of(value.type)
    whole = _memory(g, dtype, True)
    rounded = value.op is not None and value.op.name in _ROUNDED
    for component, part in enumerate(g.vectors(value)):
        stored = to_memory(g, part, dtype, True, rounded=rounded)
        if not g.shapes.is_uniform(op.operands[1]):
            _scatter(g, dtype, stored, _lane_pointers(g, op, component), "")
            continue
        pointer = _local_row(g, op, component)
        if g.mask is not None:
            old = g.text.op(f"load {whole}, ptr {pointer}")
            stored = g.select(g.mask, whole, stored, old)
        g.text.do(f"store {whole} {stored}, ptr {pointer}")


def _linear(g: Generator, op: Op) -> None:
    """Emit nothing: accesses through a view resolve the array that it views."""


HANDLERS: dict[OpName, Handler] = {
    "load": _load, "store": _store, "shared": _allocate, "local": _allocate, "linear": _linear,
}  # fmt: skip
