"""Helpers that lower kernels with tiles through the front end and the passes, for tests without a device."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from vkjit import dtypes
from vkjit.backends.interp.runtime.device import INTERPRETER_CAPS
from vkjit.frontend import ArrayArg, ConstArg, ScalarArg, Signature, describe, lower_kernel
from vkjit.ir.core import Module
from vkjit.ir.verify import verify
from vkjit.passes.lowering.lower_exits import LowerExits
from vkjit.passes.tiles import LowerTiles
from vkjit.passes.tiles.tile_state import Options
from vkjit.passes.transforms.inline import Inline
from vkjit.runtime.device import DeviceCaps, MatrixShape

OPTIONS = Options(
    subgroup=8,
    shuffles=True,
    shared_bytes=48 << 10,
    vector=4,
    reads_global_memory=False,
    lane_bits=0,
    unroll=64,
    max_held=512,
)


def matrices(m: int, n: int, k: int) -> tuple[MatrixShape, ...]:
    """Return the matrix shapes of one size for all supported element types."""
    pairs = (("f16", "f32"), ("f16", "f16"), ("bf16", "f32"), ("i8", "i32"))
    return tuple(MatrixShape(m, n, k, a, a, c, c) for a, c in pairs)


def caps_with(shapes: tuple[MatrixShape, ...], subgroup: int) -> DeviceCaps:
    """Return the capabilities of a device with these matrix shapes and one subgroup size."""
    return dataclasses.replace(INTERPRETER_CAPS, matrices=shapes, subgroup_sizes=(subgroup,))


def high(kernel: Callable[..., Any], args: Sequence[Any], local: int, **traits: Any) -> Module:
    """Lower a kernel in the front end; `traits` apply to array arguments, `aligned` to the kernel."""
    aligned = traits.pop("aligned", False)
    spec = describe(getattr(kernel, "__wrapped__", kernel))
    found: list[Any] = []
    for value, param in zip(args, spec.params, strict=True):
        if param.kind == "const":
            found.append(ConstArg(value))
        elif isinstance(value, np.ndarray):
            kind = dtypes.bf16 if value.dtype == np.uint16 else dtypes.from_numpy(value.dtype)
            found.append(ArrayArg(kind, value.ndim, restrict=True, **traits))
        else:
            found.append(ScalarArg(dtypes.i32 if isinstance(value, np.integer) else dtypes.f32))
    module = lower_kernel(spec, Signature(tuple(found), (local, 1, 1)))
    verify(module)
    if aligned:
        module.kernel.attrs["aligned"] = True
    return module


def lowered(module: Module, caps: DeviceCaps | None = None, options: Options = OPTIONS) -> Module:
    """Lower a module's tiles and verify it; by default for a device without matrices."""
    module = Inline().run(LowerExits().run(module))
    caps = caps_with((), options.subgroup) if caps is None else caps
    module = LowerTiles(dataclasses.replace(options, subgroup=caps.subgroup_size), caps).run(module)
    verify(module, "normal")
    assert not any(op.name.startswith("tile_") for op in module.kernel.body.walk())
    return module
