"""Helpers for code generation tests: hand-built kernels, capabilities of a model device, and executors.

`Build` creates kernels in the lowered form that code generation takes. `on_device` runs a kernel on a device,
`expected` on the reference interpreter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from vkjit import dtypes
from vkjit.backends.interp import run_module
from vkjit.compiler import driver
from vkjit.dtypes import DType
from vkjit.ir.attributes import FunctionAttrs
from vkjit.ir.builder import Builder
from vkjit.ir.core import Function, Module, Region, Value
from vkjit.ir.ops import OpName
from vkjit.ir.rewrite import clone_module
from vkjit.ir.types import INDEX, Array, Scalar, Type, Vector
from vkjit.ir.verify import verify
from vkjit.launch import plan
from vkjit.passes.lowering.split_int64 import SplitInt64
from vkjit.runtime.artifact import KernelArtifact
from vkjit.runtime.device import Device, DeviceArray, DeviceCaps

if TYPE_CHECKING:
    from typing_extensions import Unpack

NAMES = frozenset(dtype.name for dtype in dtypes.ALL) - {"bf16"}
FEATURES = frozenset(
    {
        "int8",
        "int16",
        "int64",
        "float16",
        "float64",
        "storage_8bit",
        "storage_16bit",
        "buffer_device_address",
        "memory_model",
        "memory_model_device_scope",
        "subgroup_basic",
        "subgroup_vote",
        "subgroup_arithmetic",
        "subgroup_ballot",
        "subgroup_shuffle",
        "float32_atomic_add",
        "float32_shared_atomic_add",
        "int64_atomics",
        "int64_shared_atomics",
        *(f"{name}_f{width}" for name in ("signed_zero_inf_nan", "rte", "denorm_preserve") for width in (16, 32, 64)),
    }
)

GPU = DeviceCaps(
    kind="discrete",
    subgroup_sizes=(32,),
    max_invocations=1024,
    max_local_size=(1024, 1024, 64),
    max_groups=(2**31 - 1, 65535, 65535),
    shared_bytes=49152,
    push_constant_bytes=256,
    dtypes=NAMES,
    features=FEATURES,
)
"""Capabilities of a typical GPU."""


class Build(Builder):
    """A builder for a kernel: `p` holds its parameters by name; the methods are shorthands for operations."""

    def __init__(
        self,
        name: str,
        params: dict[str, Type | DType],
        local: int | tuple[int, int, int] = 64,
        **attrs: Unpack[FunctionAttrs],
    ) -> None:
        types = [kind if isinstance(kind, Type) else Scalar(kind) for kind in params.values()]
        body = Region(types, list(params))
        super().__init__(body)
        size = (local, 1, 1) if isinstance(local, int) else local
        layout: FunctionAttrs = {"local_size": size, "param_names": tuple(params)}
        self.function = Function(name, body, attrs={**layout, **attrs})
        self.module = Module(self.function)
        self.p = dict(zip(params, body.args, strict=True))

    def finish(self, *, verified: bool = True) -> Module:
        """End the kernel and return its module; `verified=False` is for modules that only the verifier rejects."""
        self.op("return")
        if verified:
            verify(self.module)
        return self.module

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """Emit the operations of the `with` block under a condition."""
        yes, no = Region(), Region()
        self.op("if", condition, types=[], regions=[yes, no])
        Builder(no).op("yield")
        with self.at(yes):
            yield
            self.op("yield")

    def leave_when(self, condition: Value, exit_name: OpName, *values: Value) -> None:
        """Break out of or continue the innermost loop if the condition holds; `exit_name` is "break" or "continue"."""
        yes, no = Region(), Region()
        self.op("if", condition, types=[], regions=[yes, no])
        Builder(no).op("yield")
        Builder(yes).op(exit_name, *values)

    def choose(self, condition: Value, types: list[Type]) -> tuple[Region, Region, list[Value]]:
        """Emit an `if` whose regions the caller fills in."""
        yes, no = Region(), Region()
        made = self.op("if", condition, types=types, regions=[yes, no])
        return yes, no, made.results

    def repeat(self, low: Value, high: Value, step: Value, carried: Sequence[Value]) -> tuple[Region, list[Value]]:
        """Emit a `for` whose body the caller fills in."""
        body = Region([low.type, *(value.type for value in carried)])
        made = self.op("for", low, high, step, *carried, types=[value.type for value in carried], regions=[body])
        return body, made.results

    def i32(self, value: int) -> Value:
        return self.const(value, dtypes.i32)

    def gid(self, axis: int = 0) -> Value:
        return self.emit("global_id", dim=axis)

    def gid32(self, axis: int = 0) -> Value:
        return self.cast(self.gid(axis), dtypes.i32)


def linear(element: DType | Type, access: str = "inout", **flags: Any) -> Array:
    """Return the type of a linear global array."""
    kind = element if isinstance(element, (Scalar, Vector)) else Scalar(element)  # type: ignore[arg-type]  # a DType
    return Array(kind, 1, "global", access, linear=True, **flags)


def block(element: DType, count: int, space: str = "shared") -> Array:
    """Return the type of a linear shared or local array."""
    return Array(Scalar(element), 1, space, shape=(count,), linear=True)


def artifact_for(device: Device, module: Module) -> KernelArtifact:
    """Emit a kernel for a device; without 64-bit integers, they are split first."""
    if "int64" not in device.caps.features:
        module = SplitInt64(subgroup_size=device.caps.subgroup_size).run(clone_module(module))
    return driver.emit_module(module, device.caps)


def on_device(
    device: Device,
    module: Module,
    groups: int | tuple[int, int, int],
    args: Sequence[Any],
    artifact: KernelArtifact | None = None,
) -> list[Any]:
    """Return the arrays after running the kernel on a device; `args` holds an array or scalar for each parameter."""
    prepared = plan.LaunchPlan(device, artifact or artifact_for(device, module))
    values: list[Any] = []
    for param, arg in zip(module.kernel.params, args, strict=True):
        values.append(upload(device, param, np.asarray(arg)) if isinstance(param.type, Array) else arg)
    prepared.launch((groups, 1, 1) if isinstance(groups, int) else groups, values)
    device.synchronize()
    results: list[Any] = []
    for value, arg in zip(values, args, strict=True):
        if isinstance(value, DeviceArray):
            out = np.empty_like(np.ascontiguousarray(arg))
            device.read(value.buffer, 0, out.reshape(-1).view(np.uint8))
            value.buffer.close()
            results.append(out)
        else:
            results.append(arg)
    return results


def upload(device: Device, param: Value, array: Any) -> DeviceArray:
    data = np.ascontiguousarray(array)
    buffer = device.allocate(data.nbytes)
    device.write(buffer, 0, data.reshape(-1).view(np.uint8))
    kind = param.type
    assert isinstance(kind, Array)
    strides = tuple(step // data.itemsize for step in data.strides)
    return DeviceArray(buffer, 0, kind.dtype, data.shape, strides)


def expected(module: Module, groups: int | tuple[int, int, int], args: Sequence[Any], **options: Any) -> list[Any]:
    """Return the arrays after running the kernel on the reference interpreter."""
    copies = [np.array(arg) if isinstance(arg, np.ndarray) else arg for arg in args]
    run_module(module, groups, copies, **options)
    return copies


def bits(array: Any) -> Any:
    """Return the bits of an array, so that NaNs and signed zeros compare."""
    array = np.asarray(array)
    return array.view(f"u{array.itemsize}") if array.dtype.kind == "f" else array


def same(found: Sequence[Any], wanted: Sequence[Any]) -> None:
    """Check for bit equality, except that all NaNs are equal."""
    for a, b in zip(found, wanted, strict=True):
        if isinstance(a, np.ndarray) and a.dtype.kind == "f":
            np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
            a, b = np.where(np.isnan(a), 0, a), np.where(np.isnan(b), 0, b)
        np.testing.assert_array_equal(bits(a), bits(b))


__all__ = ["GPU", "INDEX", "Build", "artifact_for", "bits", "block", "expected", "linear", "on_device", "same"]
