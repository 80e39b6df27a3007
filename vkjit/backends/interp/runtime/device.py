"""The interpreter as a device: buffers in host memory, kernels run synchronously.

Artifacts have an `ir.Module` as their code. Kernel errors and printed lines surface at `synchronize` and `read`, as on
every device.
"""

from __future__ import annotations

import bisect
import os
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from vkjit import dtypes
from vkjit.backends.host import HostBuffer, ImmediateDevice
from vkjit.errors import DeviceError, FeatureError, KernelError
from vkjit.ir.core import Module
from vkjit.runtime.artifact import REPORT_WORDS, KernelArtifact
from vkjit.runtime.device import DeviceCaps, LoadedKernel

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


class InterpreterBuffer(HostBuffer):
    """Host memory under a synthetic address; addresses are never reused.

    New memory is all ones, which is NaN in every float type, so that reads of uninitialized memory show.
    """

    __slots__ = ()

    device: InterpreterDevice

    def __init__(self, device: InterpreterDevice, nbytes: int) -> None:
        self.data = np.full(nbytes, 0xFF, dtype=np.uint8)
        self.register(device, nbytes, device.place(self, nbytes))

    def close(self) -> None:
        address = getattr(self, "address", 0)
        super().close()
        if address:
            self.device.forget(address)

    __del__ = close


class InterpreterKernel(LoadedKernel):
    """A kernel as threaded code.

    Other back ends can use it, too: a device whose artifacts contain IR modules may load them with `load` and execute
    them with `run`.
    """

    __slots__ = ("arguments", "artifact", "program")

    def __init__(self, artifact: KernelArtifact, program: Program) -> None:
        self.artifact = artifact
        self.program = program
        self.arguments = Arguments(artifact, program.module.kernel)

    @classmethod
    def load(cls, artifact: KernelArtifact) -> InterpreterKernel:
        """Return the kernel of an artifact whose code is a module of the IR. Raises FeatureError for other code."""
        if not isinstance(artifact.code, Module):
            raise FeatureError(f"kernel {artifact.name}: the interpreter runs IR, found {type(artifact.code).__name__}")
        return cls(artifact, Program(artifact.code))

    def run(
        self, groups: Triple, block: bytes, find: Callable[[int], tuple[npt.NDArray[np.uint8], int]],
        subgroup_size: int = INTERPRETER_CAPS.subgroup_size, order: Order = "forward",
    ) -> tuple[list[str], KernelError | None]:  # fmt: skip
        """Run the workgroups. Return the printed text, and the first error that they reported.

        `find` returns the bytes of the buffer that contains an address, and the offset in them. `subgroup_size` is used
        for kernels that don't require one. `order` is the order in which workgroups run.
        """
        values, base, total = self.arguments.decode(block, find)
        size = self.artifact.subgroup_size or subgroup_size
        log = Log(self.artifact.name, tuple(self.program.module.sites))
        error: KernelError | None = None
        try:
            self.program.run(Grid(groups, self.program.local_size, size, base, total or groups), values, log, order)
        except KernelError as raised:
            error = raised
        return log.text(), log.first[1] if log.first else error  # what the kernel reported comes first


class InterpreterDevice(ImmediateDevice):
    """Runs kernels synchronously, on the calling thread. `order` is the execution order of workgroups; settable."""

    kernel_type = InterpreterKernel

    def __init__(self, index: int = 0, order: Order = "forward") -> None:
        has_own_shapes = os.environ.get(VARIABLE, "")
        caps = replace(INTERPRETER_CAPS, matrices=interpreter_matrices()) if has_own_shapes else INTERPRETER_CAPS
        super().__init__("interpreter", caps, index)
        self.order = order
        self._next = _FIRST_ADDRESS
        self._bases: list[int] = []
        self._buffers: dict[int, weakref.ref[InterpreterBuffer]] = {}
        self._report: HostBuffer | None = None

    def new_buffer(self, nbytes: int) -> InterpreterBuffer:
        return InterpreterBuffer(self, nbytes)

    def place(self, buffer: InterpreterBuffer, nbytes: int) -> int:
        """Return an address for a buffer, and add it to the table. Raises MemoryError if there are no more."""
        with self._lock:
            address = self._next
            end = address + -(-(nbytes + 1) // _ALIGNMENT) * _ALIGNMENT + _ALIGNMENT  # with a gap: no buffer's
            if end > _ADDRESS_END:
                raise MemoryError("no addresses are left")
            self._next = end
            self._bases.append(address)
            self._buffers[address] = weakref.ref(buffer)
        return address

    def forget(self, address: int) -> None:
        """Remove a buffer's address from the table. Unknown addresses are ignored."""
        with self._lock:
            if self._buffers.pop(address, None) is not None:
                self._bases.remove(address)  # no function of a module, such as bisect's: at exit those may be gone

    def find(self, address: int) -> tuple[npt.NDArray[np.uint8], int]:
        """Return the bytes of the buffer that contains `address`, and the offset in it. Raises DeviceError."""
        with self._lock:
            place = bisect.bisect_right(self._bases, address) - 1
            buffer = self._buffers[self._bases[place]]() if place >= 0 else None
        if buffer is None or address > buffer.address + buffer.nbytes:
            raise DeviceError(f"address {address:#x} lies in no buffer")
        return buffer.data, address - buffer.address

    def load(self, artifact: KernelArtifact) -> InterpreterKernel:
        self.check_open()
        return InterpreterKernel.load(artifact)

    def run(self, kernel: InterpreterKernel, groups: Triple, block: bytes, buffers: Sequence[HostBuffer]) -> None:
        with self._lock:
            self.check_open()  # again: another thread may have closed it
            self.note(*kernel.run(groups, block, self.find, self.caps.subgroup_size, self.order))

    def close(self) -> None:
        with self._lock:
            for reference in list(self._buffers.values()):
                buffer = reference()
                if buffer is not None:
                    buffer.close()
            super().close()

    @property
    def report_address(self) -> int:
        if self._report is None:
            self._report = self.allocate(4 * REPORT_WORDS)
        return self._report.address
