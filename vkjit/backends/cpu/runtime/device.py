"""The CPU device: buffers in host memory, kernels as object code, run synchronously.

Buffer addresses are host addresses, so host views cost nothing. A launch is complete when `launch` returns. Kernel
reports and printed text surface at `synchronize` and `read`, as on every device.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from vkjit import dtypes
from vkjit.backends.host import HostBuffer, ImmediateDevice
from vkjit.errors import FeatureError
from vkjit.runtime.artifact import REPORT_WORDS, KernelArtifact
from vkjit.runtime.device import Buffer, DeviceCaps
from vkjit.runtime.prepared_launch import CallPattern, Launcher, PreparedLaunch
from vkjit.runtime.reports import error_of_report
from vkjit.runtime.streams import DeviceStream

from . import llvm
from .buffer import CpuBuffer, new_buffer
from .host_features import has_scaling
from .kernel import CpuKernel
from .launch_code import cpu_code, short_plan
from .memory_pool import MemoryPool
from .print_buffer import PRINT_WORDS, clear_printed, printed_lines
from .replay import replayer
from .short_launch import is_short, launch_short
from .stacks import stack_of_thread
from .workers import SMALL_STACK, STACK_MARGIN, Pool, thread_count

__all__ = ["CpuBuffer", "CpuDevice", "CpuKernel", "cpu_caps"]

MAX_KEPT = 512 << 20
"""Maximum bytes of free memory that the device keeps for later buffers."""
_FEATURES = frozenset({
    "bfloat16", "buffer_device_address", "denorm_preserve_f16", "denorm_preserve_f32", "denorm_preserve_f64",
    "float16", "float32_atomic_add", "float32_atomic_min_max", "float32_atomics", "float32_shared_atomic_add",
    "float32_shared_atomic_min_max", "float32_shared_atomics", "float64", "float64_atomic_add",
    "float64_atomic_min_max", "float64_atomics", "float64_shared_atomic_add", "float64_shared_atomics",
    "full_subgroups", "int16", "int64", "int64_atomics", "int64_shared_atomics", "int8", "maximal_reconvergence",
    "memory_model", "memory_model_device_scope", "rte_f16", "rte_f32", "rte_f64", "signed_zero_inf_nan_f16",
    "signed_zero_inf_nan_f32", "signed_zero_inf_nan_f64", "storage_16bit", "storage_8bit", "subgroup_arithmetic",
    "subgroup_ballot", "subgroup_basic", "subgroup_extended_types", "subgroup_shuffle", "subgroup_size_control",
    "subgroup_uniform_control_flow", "subgroup_vote",
})  # fmt: skip


@functools.lru_cache(maxsize=1)
def cpu_caps() -> DeviceCaps:
    """Return the device's capabilities. A subgroup is one SIMD vector.

    The driver's name contains everything that object code depends on: LLVM's version, the CPU and its features.
    """
    host = llvm.host()
    version = ".".join(map(str, host.llvm))
    return DeviceCaps(
        kind="llvm-cpu",
        subgroup_sizes=(host.lanes,),
        max_invocations=1024,
        max_local_size=(1024, 1024, 1024),
        max_groups=(2**31 - 1, 2**31 - 1, 2**31 - 1),
        shared_bytes=64 << 10,
        push_constant_bytes=1 << 16,
        dtypes=frozenset(dtype.name for dtype in dtypes.ALL),
        features=_FEATURES | ({"native_exp"} if has_scaling(host.features) else frozenset()),
        unified_memory=True,
        driver=f"LLVM {version} {host.name} {host.flags}",
    )


def _report_buffer_kind(prints: bool) -> str:
    return "printing" if prints else "words"


class CpuDevice(ImmediateDevice):
    """Runs kernels synchronously, on the calling thread and helper threads."""

    kernel_type = CpuKernel

    def __init__(self, index: int = 0, threads: int | None = None) -> None:
        super().__init__("cpu", cpu_caps(), index)
        self.pool = Pool(threads if threads is not None else thread_count())
        self.blocks = MemoryPool(MAX_KEPT)
        self._local = threading.local()
        self.gate = (ctypes.c_int64 * 1)(1)
        """1 while machine code may launch without `launch`: not closed, not observed, without copy streams."""
        self._begun = time.perf_counter_ns()
        cpu_code.load()

    def forget_parent(self) -> None:
        """As in `ImmediateDevice`."""
        super().forget_parent()
        self.blocks.forget_lock()

    # -- memory

    new_buffer = new_buffer

    def adopt(self, address: int, nbytes: int, owner: object) -> CpuBuffer:
        self.check_open()
        return CpuBuffer.around(self, address, nbytes, owner)

    def host_view(self, buffer: Buffer) -> npt.NDArray[np.uint8] | None:
        own: Any = self.own(buffer)
        own.is_viewed = True  # a NumPy view may outlive the buffer
        data: npt.NDArray[np.uint8] = own.data
        return data

    def memory_stats(self) -> dict[str, int]:
        """As in `Device`. The memory kept for later buffers is reserved, too."""
        stats = super().memory_stats()
        return stats | {"reserved": stats["allocated"] + self.blocks.held}

    def empty_cache(self) -> None:
        """Return unused memory to the system."""
        self.blocks.trim()

    # -- kernels

    def allow_fast_paths(self, allowed: bool) -> None:
        """As in `Device`."""
        del allowed  # only if there are no observers
        self._set_gate()

    def open_stream(self, priority: int = 0, copies: bool = False) -> DeviceStream:
        stream = super().open_stream(priority, copies)
        self._set_gate()
        return stream

    def _set_gate(self) -> None:
        self.gate[0] = not (self.closed or self.observers or self.has_copy_streams)

    def launcher(self, launch: PreparedLaunch) -> Launcher | None:
        kernel = launch.kernel
        if not isinstance(kernel, CpuKernel) or kernel.prints:  # a buffer for what is printed is more than a report's
            return None
        return replayer(self, kernel, launch)

    def plan(self, launch: PreparedLaunch, pattern: CallPattern) -> Any:
        """As in `Device`."""
        kernel = launch.kernel
        if not isinstance(kernel, CpuKernel) or kernel.prints or min(pattern.groups) <= 0:
            return False
        if not cpu_code.is_ready():
            return None if cpu_code.is_possible() else False
        return short_plan(self, kernel, launch, pattern) or False

    def accelerated(self, plans: Sequence[Any]) -> Callable[..., bool] | None:
        """As in `Device`."""
        return cpu_code.compile_plans(plans)

    def load(self, artifact: KernelArtifact) -> CpuKernel:
        self.check_open()
        if not isinstance(artifact.code, bytes):
            raise FeatureError(f"kernel {artifact.name}: expected object code, found {type(artifact.code).__name__}")
        return CpuKernel(artifact)

    def run(
        self, kernel: CpuKernel, groups: tuple[int, int, int], block: bytes | bytearray, buffers: Sequence[HostBuffer]
    ) -> None:
        if kernel.report_offset is None:
            self._run(kernel, groups, block)
            return
        words = self._take_report_buffer(kernel.prints)
        passed = bytearray(block)
        struct.pack_into("<Q", passed, kernel.report_offset, int(words.ctypes.data))
        try:
            self._run(kernel, groups, passed)
        finally:
            self.collect(kernel, words)
            setattr(self._local, _report_buffer_kind(kernel.prints), words)

    def _run(self, kernel: CpuKernel, groups: tuple[int, int, int], block: bytes | bytearray) -> None:
        total = groups[0] * groups[1] * groups[2]
        if is_short(total, kernel):
            launch_short(kernel, total, groups, block)
        elif kernel.stack_bytes > SMALL_STACK and kernel.stack_bytes > stack_of_thread() - STACK_MARGIN:
            self.pool.run_apart(kernel.function, block, groups)
        else:
            self.pool.run(kernel.function, block, groups, kernel.pace)

    @property
    def has_copy_streams(self) -> bool:
        """True if copy-only streams exist, to which no kernel may be launched."""
        return self._has_copy_streams

    def collect(self, kernel: CpuKernel, words: npt.NDArray[np.uint32]) -> None:
        """Collect a launch's reports and prints from its buffer."""
        if words[0]:
            self.note(error=error_of_report(kernel.artifact, words[:REPORT_WORDS]))
            words[:REPORT_WORDS] = 0
        if kernel.prints:
            self.note(printed_lines(kernel.artifact, words))

    def _take_report_buffer(self, prints: bool) -> npt.NDArray[np.uint32]:
        """Return this thread's empty report buffer, with room for prints if needed.

        Allocates a new one if a launch of this thread is using it, as when a signal handler launches kernels.
        """
        name = _report_buffer_kind(prints)
        words: npt.NDArray[np.uint32] | None = getattr(self._local, name, None)
        setattr(self._local, name, None)
        if words is None:
            words = np.zeros(REPORT_WORDS + (PRINT_WORDS if prints else 0), dtype=np.uint32)
        if prints:
            clear_printed(words)
        return words

    def time_begin(self) -> None:
        """Start measuring time."""
        self._begun = time.perf_counter_ns()

    def time_end(self) -> int:
        """Return the nanoseconds since `time_begin()`. Launches made in between are complete."""
        return time.perf_counter_ns() - self._begun

    def clock_ready(self) -> bool:
        """Always True: the CPU needs no warm-up by this process."""
        return True

    def close(self) -> None:
        self.pool.close()
        self.blocks.clear()
        super().close()
        self._set_gate()
