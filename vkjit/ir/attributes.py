"""Names and types of the attributes of operations and functions, for type checkers.

At run time, the attributes of an operation or function are a plain dict. `tools.mypy_plugin` makes mypy check the keys
of `get` and `in`, too.
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict, get_args

from .types import Type

__all__ = ["LAUNCH_FLAGS", "Attrs", "FunctionAttrs", "LaunchFlag"]

LaunchFlag = Literal["narrow", "aligned", "backward", "cut", "strict", "fast_math", "debug", "bounds"]
LAUNCH_FLAGS: tuple[LaunchFlag, ...] = get_args(LaunchFlag)
"""The attributes of kernels that are boolean fields of their `Signature`, which documents them."""


class Attrs(TypedDict, total=False):
    """The attributes of operations. An attribute has the same type in all operations.

    The op table (`ops`) lists the attributes that an operation requires, in the column `attrs`. The attributes at the
    end of this class are optional. Their comments begin with the operations that have them.
    """

    type: Type  # of the result
    value: bool | int | float  # of a constant
    op: str  # combining operation of an atomic, a reduction, a scan or a matrix map: "add", "min", ...
    order: str  # memory order: "relaxed", "acquire", "release" or "acq_rel"
    scope: str  # memory scope: "subgroup", "workgroup" or "device"
    dim: int  # of the grid: 0 to 2
    axis: int  # of an array or a tile
    axes: tuple[int | None, ...]  # see `tile_load` and `tile_transpose`
    lane: int  # component of a vector; word of a 64-bit integer
    mask: int  # xor mask for lane ids
    exclusive: bool  # scan without the invocation's own value
    layout: str  # of a matrix in memory: "row" or "column"
    callee: str  # name of a device function
    site: int  # index into `Module.sites`

    # optional
    raw: bool  # cast: the operand is in the target's range
    exact: bool  # each float result is rounded: no contraction
    partial: bool  # sg_reduce: some invocations of the subgroup may be inactive
    prefetch: str  # tile_mma: the kind of software pipelining, see `WorkgroupTiles.mma` in `lang.tiles`
    align: int  # linear, load, store: alignment of the address in bytes
    rounds: bool  # for: created by the CPU back end's loop interchange
    doubted: bool  # assume_uniform: to be checked by the sanitizer
    note: Any  # not used by the compiler


class FunctionAttrs(TypedDict, total=False):
    """The attributes of functions. Device functions have `param_names` only, kernels require `local_size`."""

    local_size: tuple[int, int, int]
    param_names: tuple[str, ...]
    arg_index: tuple[int, ...]  # position of each parameter in the launch arguments
    arg_count: int  # number of launch arguments
    dims: tuple[str, ...]  # names or constant sizes of each parameter's dimensions; equal names mean equal extents
    over: str  # the parameter whose elements the grid covers
    subgroups: bool  # uses subgroup operations
    full_subgroups: bool  # requires the workgroup size to be a multiple of the subgroup size
    padded: bool  # invocations that do nothing complete the last subgroup, see `passes.lowering.pad_subgroups`
    subgroup_size: int  # overrides the device's
    tiles: tuple[str, ...]  # remarks of the tile lowering: what it chose and why
    bound_checked: bool  # before a launch, the host compares a bound on the trip counts with the driver's limit

    # properties of the launch, see `frontend.signature.signature.Signature`
    narrow: bool
    aligned: bool
    backward: bool
    cut: bool
    strict: bool
    fast_math: bool
    debug: bool
    bounds: bool
    sanitize: tuple[str, ...]
    overlaps: tuple[tuple[int, int, bool], ...]
    sanitizer_plan: Any  # `vkjit.passes.sanitizer.layout.SanitizerPlan`
