"""Emulation of smaller hardware on an available device, by limiting the device's capabilities (caps).

A mask is a text with limits and names of predefined masks in `MASKS`, separated by spaces. The limits are:

- `shared=16384`: bytes of shared memory per workgroup;
- `invocations=128`: invocations per workgroup;
- `subgroup=4`: the subgroup size;
- `without=f64,i64,f16`: types that the device lacks. Without i64, kernels still have 64-bit integers, but compute with
  pairs of 32-bit words, and f64 is missing, too;
- `kind=discrete`: the kind of device, to lower kernels for a software driver as for a GPU.

Inside `with masked(...)`, the device has the limited caps. Kernels that need more raise FeatureError, as they would on
such hardware.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ..backends.interp import InterpreterDevice, InterpreterKernel
from ..backends.selection import device as open_device, use_device
from ..dtypes import ALL
from ..errors import ArgumentError, FeatureError
from ..ir.core import Module
from ..ir.types import Array
from ..runtime.artifact import KernelArtifact
from ..runtime.device import Device, DeviceCaps, without_int64
from ..runtime.dispatch_cache import forget
from ..runtime.open_blocks import block

__all__ = ["MASKS", "masked", "masked_caps"]

MASKS = {
    "mobile": "shared=16384 invocations=128 without=f64,i64,f16",
    "subgroup4": "subgroup=4",
    "subgroup64": "subgroup=64",
    "small": "shared=16384 invocations=128",
    "raspberry_pi_5": "shared=16384 invocations=256 without=f64,i64,f16,i16,i8",
    "phone": "kind=discrete shared=16384 invocations=128 without=f64,i64,f16",
}
"""Predefined masks by name."""

_FEATURES = {
    "f64": ("float64", "float64_atomics", "float64_atomic_add", "float64_atomic_min_max", "float64_shared_atomics",
            "float64_shared_atomic_add", "denorm_preserve_f64", "rte_f64", "signed_zero_inf_nan_f64"),
    "f16": ("float16", "denorm_preserve_f16", "rte_f16", "signed_zero_inf_nan_f16"),
    "i16": ("int16",),
    "i8": ("int8",),
    "bf16": ("bfloat16",),
}  # fmt: skip
"""The device features that `without=` removes along with a type."""
_ALSO = {"i16": ("u16",), "i8": ("u8",)}
"""The types that `without=` removes along with a type."""


def masked_caps(caps: DeviceCaps, mask: str) -> DeviceCaps:
    """Return the caps limited by a mask (see the module's docstring). Raises ArgumentError for an invalid mask."""
    for word in (limit for name in mask.split() for limit in MASKS.get(name, name).split()):
        name, separator, value = word.partition("=")
        if name == "without" and separator:
            caps = _without(caps, value.split(","))
        elif name == "kind" and value in ("discrete", "integrated") and caps.kind not in ("interpreter", "llvm-cpu"):
            caps = replace(caps, kind=value)
        elif name in ("shared", "invocations", "subgroup") and value.isdecimal():
            caps = _limited(caps, name, int(value))
        else:
            raise ArgumentError(
                f"mask {word!r}: expected {', '.join(MASKS)}, or shared=BYTES, invocations=N, subgroup=N, without=TYPE,..., "
                f"kind=discrete (a Vulkan device that is taken for a GPU)"
            )
    return caps


def _without(caps: DeviceCaps, types: list[str]) -> DeviceCaps:
    """Return the caps without these types, and without the features that only these types need."""
    for name in types:
        if name == "i64":
            caps = without_int64(caps)
            continue
        if name not in _FEATURES:
            raise ArgumentError(
                f"mask: no type {name!r} can be taken away: expected some of {', '.join(_FEATURES)}, i64"
            )
        removed = {name, *_ALSO.get(name, ())}
        caps = replace(caps, dtypes=caps.dtypes - removed, features=caps.features - set(_FEATURES[name]))
    return caps


def _limited(caps: DeviceCaps, name: str, value: int) -> DeviceCaps:
    """Return the caps with a numeric limit; `name` is "shared", "invocations" or "subgroup"."""
    if name == "shared":
        return replace(caps, shared_bytes=min(caps.shared_bytes, value))
    if name == "invocations":
        x, y, z = (min(n, value) for n in caps.max_local_size)
        return replace(caps, max_invocations=min(caps.max_invocations, value), max_local_size=(x, y, z))
    if value not in caps.subgroup_sizes:
        raise ArgumentError(f"mask: subgroup={value}: the device has {', '.join(map(str, caps.subgroup_sizes))}")
    return replace(caps, subgroup_sizes=(value,))


class _Masked(InterpreterDevice):
    """An interpreter that raises FeatureError for kernels that need more than its caps.

    `InterpreterDevice` doesn't check types and shared memory.
    """

    def load(self, artifact: KernelArtifact) -> InterpreterKernel:
        lacking = sorted(_types_of(artifact.code) - self.caps.dtypes)
        if lacking:
            raise FeatureError(f"kernel {artifact.name} needs {', '.join(lacking)}, which this device lacks")
        shared = _shared_bytes(artifact.code)
        if shared > self.caps.shared_bytes:
            raise FeatureError(
                f"kernel {artifact.name} needs {shared} bytes of shared memory, this device has {self.caps.shared_bytes}"
            )
        return super().load(artifact)


def _types_of(module: Module) -> set[str]:
    """Return the names of the element types of a module's values and arrays."""
    names = set()
    for function in module.all_functions():
        values = [*function.params, *(v for op in function.body.walk() for v in op.results)]
        names |= {getattr(getattr(v.type, "dtype", None), "name", "") for v in values}
    return (names & {t.name for t in ALL}) - {"bool"}


def _shared_bytes(module: Module) -> int:
    """Return the bytes of shared memory that a module uses."""
    arrays = [
        op.results[0].type
        for function in module.all_functions()
        for op in function.body.walk()
        if op.results and isinstance(op.results[0].type, Array) and op.results[0].type.space == "shared"
    ]
    return sum(math.prod(a.shape or ()) * a.dtype.itemsize for a in arrays)


@block
def masked(mask: str | None = None, device: Any = "interpreter") -> Iterator[Device]:
    """Context manager that limits a device's caps and makes it the default device inside the block.

    mask: names in `MASKS` and limits, separated by spaces, such as "shared=16384 without=f64,i64" (see the module
        docstring); None takes the environment variable VKJIT_CAPS.
    device: an index, a name or a device. If it is an interpreter, a new interpreter is limited instead. Any other
        device is modified in place until the block ends, so don't use it elsewhere in the meantime.

    Raises ArgumentError for an invalid mask.
    """
    chosen_mask = os.environ.get("VKJIT_CAPS", "") if mask is None else mask
    opened = open_device(device)
    target = _Masked() if isinstance(opened, InterpreterDevice) else opened
    original_caps = target.caps
    caps = masked_caps(original_caps, chosen_mask)
    try:
        _limit(target, caps)
        with use_device(target):
            yield target
    finally:
        try:
            _limit(target, original_caps)
        except BaseException:  # an interrupt
            _limit(target, original_caps)
            raise


def _limit(target: Any, caps: Any) -> None:
    """Give a device other caps, and drop what has been compiled and cached for the previous ones."""
    target.limit(caps)
    forget(target)
