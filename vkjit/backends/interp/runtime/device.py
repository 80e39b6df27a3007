"""The interpreter as a device: buffers in host memory, kernels run synchronously.

Artifacts have an `ir.Module` as their code. Kernel errors and printed lines surface at `synchronize` and `read`, as on
every device.
"""

from __future__ import annotations

import bisect
import os
import weakref
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from vkjit import dtypes
from vkjit.backends.host import ImmediateDevice
from vkjit.errors import ArgumentError, DeviceError, FeatureError, KernelError, OutOfMemoryError
from vkjit.ir.core import Module
from vkjit.runtime import memory_ledger
from vkjit.runtime.artifact import REPORT_WORDS, KernelArtifact
from vkjit.runtime.device import Buffer, DeviceCaps, LoadedKernel
from vkjit.runtime.handles import new_lock
from vkjit.runtime.observers import LaunchFields

from ..codegen.batch import Grid, Log, Triple
from ..codegen.engine import Order, Program
from .arguments import Arguments
from .matrix_shapes import VARIABLE, common_matrices, interpreter_matrices

__all__ = ["INTERPRETER_CAPS", "InterpreterBuffer", "InterpreterDevice", "InterpreterKernel"]

_FEATURES = frozenset({
    "bfloat16", "bfloat16_cooperative_matrix", "buffer_device_address", "cooperative_matrix",
    "denorm_preserve_f16", "denorm_preserve_f32", "denorm_preserve_f64",
    "float16", "float32_atomic_add", "float32_atomic_min_max", "float32_atomics", "float32_shared_atomic_add",
    "float32_shared_atomic_min_max", "float32_shared_atomics", "float64", "float64_atomic_add",
    "float64_atomic_min_max", "float64_atomics", "float64_shared_atomic_add", "float64_shared_atomics",
    "full_subgroups", "int16", "int64", "int64_atomics", "int64_shared_atomics", "int8", "maximal_reconvergence",
    "memory_model", "memory_model_device_scope", "rte_f16", "rte_f32", "rte_f64", "signed_zero_inf_nan_f16",
    "signed_zero_inf_nan_f32", "signed_zero_inf_nan_f64", "storage_16bit", "storage_8bit", "subgroup_arithmetic",
    "subgroup_ballot", "subgroup_basic", "subgroup_extended_types", "subgroup_shuffle", "subgroup_size_control",
    "subgroup_uniform_control_flow", "subgroup_vote",
})  # fmt: skip

INTERPRETER_CAPS = DeviceCaps(
    kind="interpreter",
    # the last one is the default
    subgroup_sizes=(4, 8, 16, 64, 128, 32),
    max_invocations=1024,
    max_local_size=(1024, 1024, 1024),
    max_groups=(2**31 - 1, 2**31 - 1, 2**31 - 1),
    shared_bytes=64 << 10,
    push_constant_bytes=1 << 16,
    dtypes=frozenset(dtype.name for dtype in dtypes.ALL),
    features=_FEATURES,
    unified_memory=True,
    driver="vkjit",
    matrices=common_matrices(),
)

_ALIGNMENT = 256
_FIRST_ADDRESS = 1 << 32
_ADDRESS_END = 1 << 63


class InterpreterBuffer(Buffer):
    """Host memory under a synthetic address; addresses are never reused.

    New memory is all ones, which is NaN in every float type, so that reads of uninitialized memory show.
    """

    __slots__ = ("address", "data", "device", "nbytes")

    device: InterpreterDevice

    def __init__(self, device: InterpreterDevice, nbytes: int, address: int) -> None:
        self.data: npt.NDArray[np.uint8] = np.full(nbytes, 0xFF, dtype=np.uint8)
        self.device = device  # set after the allocation: a buffer without memory isn't the device's
        self.nbytes = nbytes
        self.address = address

    def close(self) -> None:
        self.device.forget(self.address, self.nbytes)
        self.data = np.zeros(0, dtype=np.uint8)


class InterpreterKernel(LoadedKernel):
    """A kernel as threaded code."""

    __slots__ = ("arguments", "artifact", "program")

    def __init__(self, artifact: KernelArtifact, program: Program) -> None:
        self.artifact = artifact
        self.program = program
        self.arguments = Arguments(artifact, program.module.kernel)


class InterpreterDevice(ImmediateDevice):
    """Runs kernels synchronously, on the calling thread. `order` is the execution order of workgroups."""

    def __init__(self, index: int = 0, order: Order = "forward") -> None:
        self.name = "interpreter"
        own = os.environ.get(VARIABLE, "")
        self.caps = replace(INTERPRETER_CAPS, matrices=interpreter_matrices()) if own else INTERPRETER_CAPS
        self.index = index
        self.order = order
        self.closed = False
        self._lock = new_lock()
        self._next = _FIRST_ADDRESS
        self._bases: list[int] = []
        self._buffers: dict[int, weakref.ref[InterpreterBuffer]] = {}
        self._errors: list[KernelError] = []
        self._lines: list[str] = []
        self._report: InterpreterBuffer | None = None
        self._allocated = self._peak = 0

    def __repr__(self) -> str:
        return f"<InterpreterDevice {self.index}>"

    def allocate(self, nbytes: int) -> InterpreterBuffer:
        self._check()
        if nbytes < 0:
            raise DeviceError(f"a buffer of {nbytes} bytes: expected zero or more")
        with self._lock:
            address = self._next
            behind = address + -(-(nbytes + 1) // _ALIGNMENT) * _ALIGNMENT + _ALIGNMENT
            if behind > _ADDRESS_END:
                raise OutOfMemoryError(f"no addresses for a buffer of {nbytes} bytes\n{memory_ledger.holders(self)}")
            try:
                buffer = InterpreterBuffer(self, nbytes, address)
            except MemoryError as error:
                raise OutOfMemoryError(
                    f"no memory for a buffer of {nbytes} bytes\n{memory_ledger.holders(self)}"
                ) from error
            self._next = behind
            if memory_ledger.tracing:
                memory_ledger.note(buffer)
            self._bases.append(address)
            self._buffers[address] = weakref.ref(buffer)
            self._allocated += nbytes
            self._peak = max(self._peak, self._allocated)
            weakref.finalize(buffer, self.forget, address, nbytes).atexit = False
            return buffer

    def forget(self, address: int, nbytes: int) -> None:
        """Remove a buffer's address from the table. Unknown addresses are ignored."""
        with self._lock:
            if self._buffers.pop(address, None) is not None:
                self._allocated -= nbytes
                del self._bases[bisect.bisect_left(self._bases, address)]

    def memory_stats(self) -> dict[str, int]:
        with self._lock:
            bytes_now = self._allocated
            return {"allocated": bytes_now, "reserved": bytes_now, "peak": self._peak, "count": len(self._buffers)}

    def reset_peak_memory(self) -> None:
        with self._lock:
            self._peak = self._allocated

    def find(self, address: int) -> tuple[npt.NDArray[np.uint8], int]:
        """Return the bytes of the buffer that contains `address`, and the offset in it. Raises DeviceError."""
        with self._lock:
            place = bisect.bisect_right(self._bases, address) - 1
            buffer = self._buffers[self._bases[place]]() if place >= 0 else None
        if buffer is None or address > buffer.address + buffer.nbytes:
            raise DeviceError(f"address {address:#x} lies in no buffer")
        return buffer.data, address - buffer.address

    def write(self, buffer: Buffer, offset: int, data: npt.NDArray[np.uint8]) -> None:
        self._part(buffer, offset, len(data))[:] = data

    def read(self, buffer: Buffer, offset: int, out: npt.NDArray[np.uint8]) -> None:
        self._surface()
        out[:] = self._part(buffer, offset, len(out))

    def copy(self, source: Buffer, source_offset: int, target: Buffer, target_offset: int, nbytes: int) -> None:
        self._part(target, target_offset, nbytes)[:] = self._part(source, source_offset, nbytes)

    def fill(self, buffer: Buffer, offset: int, nbytes: int, pattern: int) -> None:
        if offset % 4 or nbytes % 4:
            raise DeviceError(f"fill: expected multiples of 4, found offset {offset} and {nbytes} bytes")
        self._part(buffer, offset, nbytes).view(np.uint32)[:] = np.uint32(pattern & 0xFFFFFFFF)

    def load(self, artifact: KernelArtifact) -> InterpreterKernel:
        self._check()
        if not isinstance(artifact.code, Module):
            raise FeatureError(f"kernel {artifact.name}: the interpreter runs IR, found {type(artifact.code).__name__}")
        return InterpreterKernel(artifact, Program(artifact.code))

    def launch(self, request: LaunchFields) -> None:
        """Run the kernel. Its reports are kept for the next `synchronize` or `read`; other errors are raised here."""
        kernel, groups, block = request[:3]  # nothing is queued, so that buffers needn't be kept
        self._check()
        self.check_stream(kernel.artifact)
        if not isinstance(kernel, InterpreterKernel):
            raise DeviceError(f"kernel {kernel.artifact.name} was loaded on another device")
        if min(groups) <= 0:
            return
        with self._lock:
            self._run(kernel, groups, block)

    def _run(self, kernel: InterpreterKernel, groups: Triple, block: bytes) -> None:
        artifact, program = kernel.artifact, kernel.program
        values, base, total = kernel.arguments.decode(block, self.find)
        size = artifact.subgroup_size or self.caps.subgroup_size
        grid = Grid(groups, program.local_size, size, base, total or groups)
        log = Log(artifact.name, tuple(program.module.sites))
        try:
            program.run(grid, values, log, self.order)
        except KernelError as error:
            self._errors.append(log.first[1] if log.first else error)
        else:
            if log.first:
                self._errors.append(log.first[1])
        self._lines += log.text()

    def synchronize(self) -> None:
        self._check()
        self._surface()

    def close(self) -> None:
        with self._lock:
            for reference in list(self._buffers.values()):
                buffer = reference()
                if buffer is not None:
                    buffer.close()
            self.closed = True

    @property
    def report_address(self) -> int:
        if self._report is None:
            self._report = self.allocate(4 * REPORT_WORDS)
        return self._report.address

    def host_view(self, buffer: Buffer) -> npt.NDArray[np.uint8] | None:
        return self._own(buffer).data

    def _part(self, buffer: Buffer, offset: int, nbytes: int) -> npt.NDArray[np.uint8]:
        self._check()
        own = self._own(buffer)
        if offset < 0 or nbytes < 0 or offset + nbytes > own.nbytes:
            raise ArgumentError(f"bytes {offset} to {offset + nbytes} lie outside a buffer of {own.nbytes} bytes")
        return own.data[offset : offset + nbytes]

    def _own(self, buffer: Buffer) -> InterpreterBuffer:
        if not isinstance(buffer, InterpreterBuffer) or buffer.device is not self:
            raise DeviceError("the buffer belongs to another device")
        if len(buffer.data) != buffer.nbytes:
            raise DeviceError("the buffer was closed")
        return buffer

    def _check(self) -> None:
        if self.closed:
            raise DeviceError("the interpreter's device was closed: open it again to use it")
