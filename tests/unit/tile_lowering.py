"""Kernels with tiles through the front end and the passes, for tests without a device."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from vkjit import dtypes
from vkjit.frontend import ArrayArg, ConstArg, ScalarArg, Signature, describe, lower_kernel
from vkjit.interp.device import INTERPRETER_CAPS
from vkjit.ir.core import Module
from vkjit.ir.verify import verify
from vkjit.passes.inline import Inline
from vkjit.passes.lower_exits import LowerExits
from vkjit.passes.tiles import LowerTiles
from vkjit.passes.tiles.held import Options
from vkjit.runtime.interface import DeviceCaps, MatrixShape

OPTIONS = Options(
    subgroup=8, shuffles=True, shared_bytes=48 << 10, vector=4, direct=False, lanes=0, unroll=64, most_held=512
)


def matrices(m: int, n: int, k: int) -> tuple[MatrixShape, ...]:
    """Products of one shape."""
    pairs = (("f16", "f32"), ("f16", "f16"), ("bf16", "f32"), ("i8", "i32"))
    return tuple(MatrixShape(m, n, k, a, a, c, c) for a, c in pairs)


def caps_with(shapes: tuple[MatrixShape, ...], subgroup: int) -> DeviceCaps:
    """A device with these products."""
    return dataclasses.replace(INTERPRETER_CAPS, matrices=shapes, subgroup_sizes=(subgroup,))


def high(kernel: Callable[..., Any], args: Sequence[Any], local: int, **traits: Any) -> Module:
    """The front end's module; `traits` are those of array arguments, `aligned` the kernel's."""
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
    """The module without tiles, verified; for a device without matrices unless some is given."""
    module = Inline().run(LowerExits().run(module))
    caps = caps_with((), options.subgroup) if caps is None else caps
    module = LowerTiles(dataclasses.replace(options, subgroup=caps.subgroup_size), caps).run(module)
    verify(module, "normal")
    assert not any(op.name.startswith("tile_") for op in module.kernel.body.walk())
    return module
