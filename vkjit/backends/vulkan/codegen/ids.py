"""Lowering of ids and sizes (of invocations, workgroups and subgroups), and of extents and strides.

The results are `index` values (64 bits), emitted in the entry block. Each id is also available in 32 bits
(`ctx.narrow`), for casts to 32 bits and for offsets in narrow kernels.

A kernel that uses subgroups has a one-dimensional LocalSize, and its local ids are computed from the linear id
SubgroupId * size + lane, because Vulkan doesn't define which lanes have which local ids. If the grid may be split over
several dispatches (`cut`), the field `base` of the argument block is added to the workgroup id.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from vkjit.backends.codegen.usage import root_of
from vkjit.errors import InternalError
from vkjit.ir.core import Op, Value
from vkjit.ir.ops import OpName
from vkjit.ir.types import BOOL, Array
from vkjit.spirv import OpenBlock

from .arguments import field_of, load_field, load_word
from .context import Context
from .wide import low_word, product, total, zero_extended

__all__ = ["HANDLERS", "emitted_local_size", "global_id_word", "has_partner", "lane_word", "local_size_of"]


def local_size_of(ctx: Context) -> tuple[int, int, int]:
    """Return the workgroup size that the program sees."""
    x, y, z = ctx.kernel.attrs["local_size"]
    return int(x), int(y), int(z)


def emitted_local_size(ctx: Context) -> tuple[int, int, int]:
    """Return the LocalSize of the entry point: one-dimensional if the kernel uses subgroups, and full with `padded`."""
    size = local_size_of(ctx)
    if not ctx.kernel.attrs.get("subgroups"):
        return size
    count = math.prod(size)
    return (count + (-count % ctx.subgroup_size if ctx.kernel.attrs.get("padded") else 0), 1, 1)


def _builtin(ctx: Context, name: str, axis: int) -> int:
    """Return a component of a three-component built-in variable (32 bits)."""
    vector = ctx.writer.type_vector(ctx.uint, 3)
    whole = ctx.once(name, lambda entry: entry.emit("OpLoad", vector, ctx.writer.builtin(name, vector)))
    return ctx.once((name, axis), lambda entry: entry.emit("OpCompositeExtract", ctx.uint, whole, axis))


def _scalar_builtin(ctx: Context, name: str) -> int:
    return ctx.once(name, lambda entry: entry.emit("OpLoad", ctx.uint, ctx.writer.builtin(name, ctx.uint)))


def lane_word(ctx: Context) -> int:
    """Return the invocation's lane id (32 bits)."""
    return _scalar_builtin(ctx, "SubgroupLocalInvocationId")


def _linear_local(ctx: Context) -> int:
    """Return the linear local id (32 bits) in a kernel that uses subgroups."""

    def make(entry: OpenBlock) -> int:
        lane = lane_word(ctx)
        if math.prod(local_size_of(ctx)) <= ctx.subgroup_size:
            return lane
        first = entry.emit("OpIMul", ctx.uint, _scalar_builtin(ctx, "SubgroupId"), ctx.word(ctx.subgroup_size))
        return entry.emit("OpIAdd", ctx.uint, first, lane)

    return ctx.once("linear_local", make)


def has_partner(ctx: Context, mask: int) -> int:
    """Return a boolean: True if the invocation whose lane id is the own one xor `mask` is one of the program's."""
    block = ctx.block
    partner = block.emit("OpBitwiseXor", ctx.uint, _linear_local(ctx), ctx.word(mask))
    count = ctx.word(math.prod(local_size_of(ctx)))
    return block.emit("OpULessThan", ctx.type(BOOL), partner, count)


def _local_word(ctx: Context, axis: int) -> int:
    if not ctx.kernel.attrs.get("subgroups"):
        return _builtin(ctx, "LocalInvocationId", axis)
    size = local_size_of(ctx)
    if size[axis] == 1:
        return ctx.word(0)
    below, above = math.prod(size[:axis]), math.prod(size[axis + 1 :])

    def make(entry: OpenBlock) -> int:
        value = _linear_local(ctx)
        if below > 1:
            value = entry.emit("OpUDiv", ctx.uint, value, ctx.word(below))
        return value if above == 1 else entry.emit("OpUMod", ctx.uint, value, ctx.word(size[axis]))

    return ctx.once(("local", axis), make)


def _group_word(ctx: Context, axis: int) -> int:
    """Return the low 32 bits of the workgroup id."""
    own = _builtin(ctx, "WorkgroupId", axis)
    if not ctx.kernel.attrs.get("cut"):
        return own

    def make(entry: OpenBlock) -> int:
        base = low_word(ctx, entry, load_field(ctx, field_of(ctx, "base", -1, axis)))
        return entry.emit("OpIAdd", ctx.uint, own, base)

    return ctx.once(("group", axis), make)


def _group_wide(ctx: Context, axis: int) -> int:
    def make(entry: OpenBlock) -> int:
        own = zero_extended(ctx, entry, _builtin(ctx, "WorkgroupId", axis))
        if not ctx.kernel.attrs.get("cut"):
            return own
        return total(ctx, entry, own, load_field(ctx, field_of(ctx, "base", -1, axis)))

    return ctx.once(("group_wide", axis), make)


def global_id_word(ctx: Context, axis: int) -> int:
    """Return the low 32 bits of the global id."""
    if not ctx.kernel.attrs.get("cut") and not ctx.kernel.attrs.get("subgroups"):
        return _builtin(ctx, "GlobalInvocationId", axis)
    size = local_size_of(ctx)[axis]

    def make(entry: OpenBlock) -> int:
        first = entry.emit("OpIMul", ctx.uint, _group_word(ctx, axis), ctx.word(size))
        return entry.emit("OpIAdd", ctx.uint, first, _local_word(ctx, axis))

    return ctx.once(("global", axis), make)


def _global_wide(ctx: Context, axis: int) -> int:
    size = local_size_of(ctx)[axis]
    fits = size * ctx.caps.max_groups[axis] < 1 << 32 and not ctx.kernel.attrs.get("cut")

    def make(entry: OpenBlock) -> int:
        if fits:
            return zero_extended(ctx, entry, global_id_word(ctx, axis))
        first = product(ctx, entry, _group_wide(ctx, axis), size)
        local = zero_extended(ctx, entry, _local_word(ctx, axis))
        return total(ctx, entry, first, local)

    return ctx.once(("global_wide", axis), make)


def _zero_extended(ctx: Context, key: object, word: int) -> int:
    return ctx.once(("zext", key), lambda entry: zero_extended(ctx, entry, word))


def _global_id(ctx: Context, op: Op) -> None:
    axis = op.attrs["dim"]
    _define(ctx, op.result, _global_wide(ctx, axis), global_id_word(ctx, axis))


def _local_id(ctx: Context, op: Op) -> None:
    axis = op.attrs["dim"]
    word = _local_word(ctx, axis)
    _define(ctx, op.result, _zero_extended(ctx, ("local_id", axis), word), word)


def _group_id(ctx: Context, op: Op) -> None:
    axis = op.attrs["dim"]
    _define(ctx, op.result, _group_wide(ctx, axis), _group_word(ctx, axis))


def _num_groups(ctx: Context, op: Op) -> None:
    axis = op.attrs["dim"]
    if not ctx.kernel.attrs.get("cut"):
        word = _builtin(ctx, "NumWorkgroups", axis)
        _define(ctx, op.result, _zero_extended(ctx, ("num_groups", axis), word), word)
        return
    wide = load_field(ctx, field_of(ctx, "groups", -1, axis))
    _define(ctx, op.result, wide, ctx.once(("groups", axis), lambda entry: low_word(ctx, entry, wide)))


def _local_size(ctx: Context, op: Op) -> None:
    _constant(ctx, op.result, local_size_of(ctx)[op.attrs["dim"]])


def _lane_id(ctx: Context, op: Op) -> None:
    word = lane_word(ctx)
    _define(ctx, op.result, _zero_extended(ctx, "lane", word), word)


def _subgroup_id(ctx: Context, op: Op) -> None:
    if math.prod(local_size_of(ctx)) <= ctx.subgroup_size:
        _constant(ctx, op.result, 0)
        return
    word = _scalar_builtin(ctx, "SubgroupId")
    _define(ctx, op.result, _zero_extended(ctx, "subgroup_id", word), word)


def _subgroup_size(ctx: Context, op: Op) -> None:
    _constant(ctx, op.result, ctx.subgroup_size)


def _num_subgroups(ctx: Context, op: Op) -> None:
    _constant(ctx, op.result, -(-math.prod(local_size_of(ctx)) // ctx.subgroup_size))


def _extent(ctx: Context, op: Op) -> None:
    _extent_or_stride(ctx, op, "extent")


def _stride(ctx: Context, op: Op) -> None:
    _extent_or_stride(ctx, op, "stride")


def _extent_or_stride(ctx: Context, op: Op, role: str) -> None:
    root, axis = root_of(op.operands[0]), op.attrs["axis"]
    array = root.type
    if root in ctx.positions:
        field = field_of(ctx, role, ctx.args[ctx.positions[root]], axis)
        ctx.values[op.result] = load_word(ctx, field)
        if field.size == 4:
            ctx.narrow[op.result] = (load_field(ctx, field), True)
        return
    if not isinstance(array, Array) or array.shape is None:
        raise InternalError(f"{role} at {op.loc}: the array has no static shape")
    _constant(ctx, op.result, array.shape[axis] if role == "extent" else math.prod(array.shape[axis + 1 :]))


def _constant(ctx: Context, value: Value, number: int) -> None:
    _define(ctx, value, ctx.long(number), ctx.word(number))


def _define(ctx: Context, value: Value, wide: int, word: int) -> None:
    """Define an id by its 64-bit value and its low 32 bits.

    In a narrow kernel, the 32 bits can serve as an offset into an array, because valid offsets are below 2^31.
    """
    ctx.values[value] = wide
    ctx.narrow[value] = (word, bool(ctx.kernel.attrs.get("narrow")))


HANDLERS: dict[OpName, Callable[[Context, Op], None]] = {
    "global_id": _global_id,
    "local_id": _local_id,
    "group_id": _group_id,
    "num_groups": _num_groups,
    "local_size": _local_size,
    "lane_id": _lane_id,
    "subgroup_id": _subgroup_id,
    "subgroup_size": _subgroup_size,
    "num_subgroups": _num_subgroups,
    "extent": _extent,
    "stride": _stride,
}
