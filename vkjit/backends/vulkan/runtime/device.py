"""The Vulkan device: memory, queue, kernels and sanitizer reports behind the interface that all devices share.

`VulkanDevice` is opened from a physical device. Everything that it owns is destroyed exactly once, by `close()` or at
interpreter exit. Any call on a device that is closed, lost or inherited through a fork raises DeviceError. All methods
are thread-safe.
"""

from __future__ import annotations

import contextlib
import functools
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np
import numpy.typing as npt

from vkjit.errors import ArgumentError, DeviceError, DeviceLostError, FeatureError, OutOfMemoryError
from vkjit.runtime.artifact import KernelArtifact
from vkjit.runtime.capture import Entry
from vkjit.runtime.device import Buffer, Device, LoadedKernel
from vkjit.runtime.device_info import DeviceInfo
from vkjit.runtime.handles import Handle, close_at_exit, on_fork
from vkjit.runtime.machine_code.loader import Accelerated
from vkjit.runtime.observers import LaunchFields
from vkjit.runtime.prepared_launch import CallPattern, Launcher, PreparedLaunch
from vkjit.runtime.streams import DeviceStream

from .cuda.share import CudaShare
from .fast_path import accelerator
from .fast_path.launcher import FastPath
from .features import enabling_chain, extensions_for
from .gpu_clock import NVIDIA, CudaClock
from .graph import QueueGraph
from .memory.buffer import HostView, Storage, VulkanBuffer
from .memory.suballocator import Memory
from .memory.transfer import Transfer
from .physical_device import Physical
from .pipeline.disk_cache import Identity
from .pipeline.pipeline import Pipelines, VulkanKernel
from .printing import Prints
from .queue.budgeted import DISPATCH_BASE, BudgetedQueue, time_budget
from .queue.families import HardwareQueues
from .queue.group import QueueGroup, Use
from .queue.queue import BUDGET, Queue
from .queue.streams import QueueEvent, QueueStream, Timestamps
from .queue.transfer_queue import CopyQueue
from .reports import Reports

__all__ = ["VulkanDevice"]

_ARGUMENT_CHUNK = 64 << 10
_ARGUMENT_ALIGNMENT = 64
_SPIN_NS = 100_000
"""Nanoseconds for which waits poll a GPU before they sleep. CPU devices aren't polled, as they need the CPU."""

_NAP, _MAX_NAPS = 3e-5, 50
"""Seconds to sleep while another thread submits, and how often."""

_open_devices: weakref.WeakSet[VulkanDevice] = weakref.WeakSet()


class VulkanDevice(Device):
    """An open Vulkan device. Raises FeatureError if it lacks a feature that all kernels need."""

    def __init__(self, physical: Physical) -> None:
        caps, info = physical.info.caps, physical.info
        if info.missing or caps is None:
            raise FeatureError(f"{info.name} can't run kernels: it lacks {', '.join(info.missing)}")
        self.info: DeviceInfo = info
        self.name, self.caps, self.index = info.name, caps, info.index
        self._physical = physical
        self._vulkan = physical.instance.vulkan
        self._queues = HardwareQueues(physical)
        self._time_budget = time_budget(caps)
        self._handle = self._create()
        device = self._handle.value
        self._functions = self._vulkan.device_functions(physical.instance.functions, device)
        self._group = QueueGroup()
        self._group.exports = info.vendor == NVIDIA and "external_semaphore_fd" in physical.features
        with contextlib.ExitStack() as undo:
            undo.callback(self._handle.close)
            self._queue = self._open_queue(0)
            undo.callback(self._queue.close)
            identity = Identity.of(physical.properties)
            self._pipelines = Pipelines(self._vulkan, self._functions, device, caps, identity)
            self._pipelines.flags = DISPATCH_BASE if self._time_budget else 0
            undo.pop_all()
        memory = Memory(physical, self._functions, device, self._queues.indices)
        self._storage = Storage(memory, self._queue, reuses=not caps.unified_memory)
        self._first = QueueStream(self, self._queue, 0)
        self._entered_queue: ContextVar[Queue] = ContextVar("queue")
        self._current: Callable[[], Queue] = functools.partial(self._entered_queue.get, self._queue)
        """Returns the queue of the current stream."""
        self._fast_path = FastPath(self._queue, self._current, self)
        self._timestamps: Timestamps | None = None
        self._copying: Queue | None = None
        self._transfer = Transfer(self._current, self._storage, caps.unified_memory, self._copying_queue)
        self._reports = Reports(self._queue, self._storage)
        self._prints = Prints(self.allocate, self._transfer.fill, self._transfer.read)
        self._arguments: dict[Queue, tuple[VulkanBuffer, int]] = {}
        self._measured: QueueEvent | None = None
        self._cuda: CudaShare | None = None
        self._closing = False
        self._clock = CudaClock(bytes.fromhex(info.uuid)) if CudaClock.wanted(info.vendor) else None
        _open_devices.add(self)
        close_at_exit(self)

    def allocate(self, nbytes: int) -> VulkanBuffer:
        if nbytes < 0:
            raise DeviceError(f"a buffer of {nbytes} bytes: expected zero or more")
        queue = self._current()
        kept = queue.kept.get(nbytes)
        if kept is not None and kept[0] and self._group.failure is None:
            buffer = VulkanBuffer.again(self, queue, nbytes)
            if buffer is not None:
                return buffer
        self._group.enter()
        return self._storage.buffer(self, self._storage.memory.main, nbytes, queue)

    def write(self, buffer: Buffer, offset: int, data: npt.NDArray[np.uint8]) -> None:
        with self._group.use():
            self._transfer.write(self._own(buffer), offset, data)

    def read(self, buffer: Buffer, offset: int, out: npt.NDArray[np.uint8]) -> None:
        """As in `Device`. Raises errors that kernels reported since the last check."""
        with self._group.use():
            self._prints.flush()
            if self._reports.outstanding:
                self._reports.check()
            self._transfer.read(self._own(buffer), offset, out)

    def copy(self, source: Buffer, source_offset: int, target: Buffer, target_offset: int, nbytes: int) -> None:
        self._group.enter()
        self._transfer.copy(self._own(source), source_offset, self._own(target), target_offset, nbytes)

    def fill(self, buffer: Buffer, offset: int, nbytes: int, pattern: int) -> None:
        self._group.enter()
        self._transfer.fill(self._own(buffer), offset, nbytes, pattern)

    def load(self, artifact: KernelArtifact) -> VulkanKernel:
        with self._group.use():
            return self._pipelines.load(self._queue, artifact)

    def launch(self, request: LaunchFields) -> None:
        """As in `Device`. Report and print fields in the block are overwritten with addresses for this launch."""
        kernel, groups, block, reads, writes, _ = request
        if kernel.__class__ is not VulkanKernel or kernel.queue is not self._queue:
            raise self._not_ours(kernel)
        queue = self._current()
        self._group.enter()
        x, y, z = groups
        limit = self.caps.max_groups
        if x > limit[0] or y > limit[1] or z > limit[2] or x <= 0 or y <= 0 or z <= 0:
            if self._is_empty(kernel, groups):
                return
        artifact = kernel.artifact
        if len(block) != artifact.block_size:
            raise DeviceError(
                f"kernel {artifact.name} takes {artifact.block_size} bytes of arguments, {len(block)} were given"
            )
        if kernel.print_offset < 0:
            self._record(queue, kernel, request)
            return
        printed, place = self._prints.begin(), kernel.print_offset
        block = block[:place] + printed.address.to_bytes(8, "little") + block[place + 8 :]
        try:
            self._record(queue, kernel, (kernel, groups, block, reads, [*writes, printed], None))
        finally:  # an interruption may come after it was recorded
            self._prints.pending.append((artifact, printed))

    def _record(self, queue: Queue, kernel: VulkanKernel, request: LaunchFields) -> None:
        """Record a launch. If the kernel needs them, allocate a report slot and memory for its arguments."""
        indirect = kernel.artifact.indirect
        if kernel.report_offset < 0 and not indirect:
            queue.dispatch(request)
            return
        _, groups, block, reads, writes, _ = request
        with queue.lock:
            queue.check()
            if kernel.report_offset >= 0:
                block = self._reports.patch(kernel, block)
            if not indirect:
                queue.dispatch((kernel, groups, block, reads, writes, None))
                return
            address = self._placed(queue, block)
            try:
                queue.dispatch((kernel, groups, address, reads, writes, None))
            finally:  # the launch may be in a later submission than the one that was open before
                chunk = self._arguments[queue][0]
                if kernel.user is queue:
                    chunk.last_use = max(chunk.last_use, kernel.last_use)

    def launcher(self, launch: PreparedLaunch) -> Launcher | None:
        """As in `Device`."""
        kernel = self._fast_kernel(launch)
        if kernel is None:
            return None
        claim = functools.partial(self._reports.claim, kernel) if kernel.report_offset >= 0 else None
        return self._fast_path.launcher(kernel, launch, claim)

    def plan(self, launch: PreparedLaunch, pattern: CallPattern) -> Any:
        """As in `Device`."""
        kernel = self._fast_kernel(launch)
        if kernel is None or kernel.report_offset >= 0:
            return False
        return self._fast_path.plan(kernel, launch, pattern)

    def relaunch(self, call: Callable[..., bool], arguments: Sequence[Any]) -> bool:
        """As in `Device`.

        Avoids a lock convoy: a thread that blocks on the lock acquires it before it gets the GIL back, so that the
        other threads block in turn, and so on at each launch. While another thread is submitting, this one sleeps
        instead.
        """
        group = self._group
        if group.lock._is_owned():  # as conditions ask: a signal handler or finalizer interrupted this thread's command
            return False
        for _ in range(_MAX_NAPS):
            if not group.busy:
                break
            time.sleep(_NAP)
        with group.lock:
            queue = self._current()
            group.busy = True
            try:
                if not (queue.command_handle or queue.open_command_handle()):
                    return False
                is_last = queue.recorded + 1 >= queue.budget
                queue.budget += is_last  # machine code leaves the last command of a submission to us
                try:
                    launched = call(*arguments)
                finally:
                    queue.budget -= is_last
                if launched and queue.recorded >= queue.budget:
                    queue.full()
                    self._fast_path.submitted()
                return launched
            finally:
                group.busy = False

    def accelerated(self, plans: Sequence[Any]) -> Accelerated | None:
        """As in `Device`."""
        return accelerator.queue_code.compile_plans(plans)

    def _fast_kernel(self, launch: PreparedLaunch) -> VulkanKernel | None:
        """Return the kernel of a launch; None if its launches need a print buffer or memory for arguments."""
        kernel = launch.kernel
        if not isinstance(kernel, VulkanKernel) or kernel.queue is not self._queue:
            raise self._not_ours(kernel)
        return None if kernel.print_offset >= 0 or kernel.artifact.indirect else kernel

    def allow_fast_paths(self, allowed: bool) -> None:
        """As in `Device`."""
        self._group.allow_fast_paths(allowed)

    def synchronize(self) -> None:
        self._group.enter()
        self._prints.flush()
        if self._reports.outstanding:
            self._reports.check()
        else:
            self._group.wait_all()

    def flush(self) -> None:
        self._group.enter()
        for queue in list(self._group.queues):
            queue.flush()

    def close(self) -> None:
        """As in `Device`. Waits for other threads that read or write.

        What the device owns is destroyed when nothing uses it any more: NumPy views of its memory stay valid. A signal
        handler or finalizer that interrupts this thread's launch leaves that to the next call, or to interpreter exit.
        """
        if self._handle.closed or self._group.abandoned:
            return
        self._closing = True  # stays True if Ctrl-C interrupts; then the next call or interpreter exit does the rest
        group = self._group
        is_inside = group.lock._is_owned()
        if group.failure is None and not is_inside:
            with contextlib.suppress(DeviceError), group.use():
                group.wait_all()
                self._pipelines.save()
        with group.lock:
            group.fail(group.failure or DeviceError(f"{self.name} was closed: open it again to use it"))
        group.destroy = self._destroy
        if not is_inside:
            group.wait_unused()
            self._destroy()

    def _destroy(self) -> None:
        """Destroy what the device owns, unless something uses it or this thread is in the midst of a command."""
        group = self._group
        if self._handle.closed or group.abandoned or group.lock._is_owned():
            return
        with group.lock:
            if self._handle.closed or group.uses:
                return
            self._functions.vkDeviceWaitIdle(self._handle.value)
            if self._timestamps is not None:
                self._timestamps.close()
            self._pipelines.close()
            for queue in (*self._group.queues, *self._group.idle):
                queue.close()
            self._storage.memory.close()
            self._handle.close()
        if self._cuda is not None:
            self._cuda.close()
        if self._clock is not None:
            self._clock.close()

    @property
    def cuda(self) -> CudaShare:
        """Sharing of the device's memory with CUDA. Raises FeatureError if that isn't possible."""
        with self._group.lock:
            self._group.check()
            if self._cuda is None:
                self._cuda = CudaShare(self)
            return self._cuda

    @property
    def closed(self) -> bool:
        """True if the device can't be used any more because it was closed or lost."""
        return (
            self._handle.closed or self._closing or isinstance(self._group.failure, (DeviceLostError, OutOfMemoryError))
        )

    def check_open(self) -> None:
        """As in `Device`. Raises the failure of a device that was lost."""
        self._group.check()
        super().check_open()

    @property
    def report_address(self) -> int:
        """The address of the first report slot. Each launch overwrites the field with the address of its own slot."""
        with self._queue.lock:
            self._queue.check()
            return self._reports.address

    def host_array(self, nbytes: int) -> npt.NDArray[np.uint8]:
        """As in `Device`. Large arrays use pinned memory if available, which is copied at the full bus speed."""
        return self._transfer.host_array(nbytes)

    def host_view(self, buffer: Buffer) -> npt.NDArray[np.uint8] | None:
        """As in `Device`. The view keeps the memory alive, also past `close()` of the device, but not of the buffer."""
        own = self._own(buffer)
        if not self.caps.unified_memory:
            return None
        use = self._group.use(of_thread=False)
        return None if own.bytes is None else np.asarray(HostView(own, use))

    def memory_stats(self) -> dict[str, int]:
        """As in `Device`. Also the reserved bytes that are `free`, and the `largest_free` range of these."""
        if self._group.failure is None:
            self._group.enter()
        return self._storage.stats()

    def reset_peak_memory(self) -> None:
        with self._group.lock:
            self._storage.let_go()
            self._group.poll()
            self._storage.memory.reset_peak()

    def empty_cache(self) -> None:
        """Return unused memory to the driver."""
        self._storage.trim()

    def pipeline_cache_data(self) -> bytes:
        """Return the driver's pipeline cache with our own header, for `restore_pipeline_cache` in a later process."""
        with self._group.use():
            return self._pipelines.cache_data()

    def restore_pipeline_cache(self, data: bytes) -> bool:
        """Load the pipeline cache of an earlier process.

        Returns False and has no effect if the data is damaged or belongs to another device or driver.
        """
        with self._queue.lock:
            self._queue.check()
            return self._pipelines.restore_cache(data)

    def kernel_statistics(self, artifact: KernelArtifact) -> dict[str, int | float]:
        """Return the driver's statistics of the compiled kernel (registers, spills, code size), under its names.

        Compiles the kernel again. Empty if the device lacks "pipeline_executable_properties".
        """
        with self._group.use():
            return self._pipelines.statistics(artifact)

    def open_stream(self, priority: int = 0, copies: bool = False) -> QueueStream:
        """As in `Device`."""
        return QueueStream(self, self._open_queue(priority, copies), priority)

    def open_event(self, timing: bool = False) -> QueueEvent:
        """As in `Device`."""
        self.check_open()
        return QueueEvent(self, timing)

    @property
    def stream(self) -> QueueStream:
        """As in `Device`."""
        return self._entered_stream.get() or self._first  # type: ignore[return-value]  # the setter takes no others

    @stream.setter
    def stream(self, stream: DeviceStream) -> None:
        if not isinstance(stream, QueueStream) or stream.device is not self:
            raise ArgumentError(f"a stream of another device was given to {self.name}")
        self._entered_stream.set(stream)
        self._entered_queue.set(stream.queue)

    def while_in_stream(self, stream: DeviceStream) -> Iterator[Any]:
        """As in `Device`."""
        self.check_open()
        former, token = self._entered_stream.get(), self._entered_queue.set(self._current())
        try:
            self.stream = stream
            yield stream
        finally:
            try:
                self._entered_stream.set(former)
            finally:  # also if an interrupt comes in between
                with contextlib.suppress(ValueError):  # dropped in another context
                    self._entered_queue.reset(token)

    def check_reports_of(self, queue: Queue) -> None:
        """Wait for one queue, or for all if reports are outstanding, and raise errors that kernels reported."""
        self._group.enter()
        self._prints.flush()
        if self._reports.outstanding:
            self._reports.check()
        else:
            queue.wait_all()

    @property
    def timestamps(self) -> Timestamps:
        """The device's timestamp queries. Raises FeatureError if it doesn't support them."""
        with self._group.lock:
            if self._timestamps is None:
                self._group.check()
                period = float(self._physical.properties.base.limits.timestampPeriod)
                self._timestamps = Timestamps(
                    self._vulkan, self._functions, self._handle.value, period, self._queues.compute.timestamp_bits,
                    "host_query_reset" in self.caps.features, "slow_timestamps" in self.caps.quirks,
                )  # fmt: skip
            return self._timestamps

    def keep_together(self, commands: int) -> None:
        """As in `Device`."""
        queue = self._current()
        with queue.lock:
            if self.caps.kind == "cpu":  # kernels that run while the host records would compete with it for cores
                queue.budget = max(queue.budget, BUDGET)
            if queue.recorded + commands > queue.budget:
                queue.submit()

    def make_graph(self, entries: list[Entry]) -> QueueGraph:
        """As in `Device`."""
        return QueueGraph(self, entries)

    def argument_memory(self, nbytes: int, queue: Queue) -> VulkanBuffer:
        """Return memory, owned by a queue, for an argument block that outlives a launch."""
        return self._storage.buffer(None, self._storage.memory.arguments, nbytes, queue)

    def report_memory(self, nbytes: int) -> VulkanBuffer:
        """See `Reports.memory`."""
        return self._reports.memory(nbytes)

    def watch_reports(self, slots: VulkanBuffer, owners: list[KernelArtifact]) -> None:
        """See `Reports.watch`."""
        self._reports.watch(slots, owners)

    def use(self) -> Use:
        """Return a use of the device's objects by this thread. Raises DeviceError if the device can't be used."""
        return self._group.use()

    def time_begin(self) -> None:
        """Start measuring device time, ordered after the launches made so far."""
        self._measured = self.open_event(timing=True)
        self._measured.record(self.stream)

    def time_end(self) -> int:
        """Return the device time in nanoseconds from `time_begin()` to the end of the launches made so far.

        Waits for them.
        """
        start, self._measured = self._measured, None
        if start is None:
            raise DeviceError("time_end() without time_begin()")
        end = self.open_event(timing=True)
        end.record(self.stream)
        return end.nanoseconds_since(start)

    def clock_ready(self) -> bool:
        """Wait until the GPU's clock is held at its working rate, if needed. Return False if it can't be held."""
        return self._clock is None or self._clock.wait()

    def _own(self, buffer: Buffer) -> VulkanBuffer:
        home = buffer.queue if isinstance(buffer, VulkanBuffer) else None
        if not isinstance(buffer, VulkanBuffer) or home is None or home.group is not self._group:
            self._queue.check()
            closed = isinstance(buffer, VulkanBuffer) and buffer.queue is None
            what = "was used after it was closed" if closed else "belongs to another device: copy it over first"
            raise DeviceError(f"a buffer given to {self.name} {what}")
        return buffer

    def _not_ours(self, kernel: LoadedKernel) -> DeviceError:
        self._queue.check()
        closed = isinstance(kernel, VulkanKernel) and kernel.queue is None
        what = "was closed" if closed else "was loaded on another device"
        return DeviceError(f"kernel {kernel.artifact.name} {what}: load it on {self.name}")

    def _is_empty(self, kernel: VulkanKernel, groups: tuple[int, int, int]) -> bool:
        if min(groups) < 0 or any(n > limit for n, limit in zip(groups, self.caps.max_groups, strict=True)):
            raise DeviceError(
                f"kernel {kernel.artifact.name}: a grid of {groups} workgroups; {self.name} takes 0 to "
                f"{self.caps.max_groups} per launch: cut it into several launches"
            )
        return min(groups) == 0

    def _placed(self, queue: Queue, block: bytes) -> bytes:
        """Copy an argument block to device-readable memory, and return its address as bytes."""
        size = (len(block) + _ARGUMENT_ALIGNMENT - 1) & -_ARGUMENT_ALIGNMENT
        chunk, used = self._arguments.get(queue, (None, 0))
        if chunk is None or used + size > chunk.nbytes:
            if chunk is not None:
                chunk.close()
            pool = self._storage.memory.arguments
            chunk, used = self._storage.buffer(None, pool, max(_ARGUMENT_CHUNK, size), queue), 0
        self._arguments[queue] = chunk, used + size
        chunk.last_use = queue.serial
        chunk.chunk.bytes[used : used + len(block)] = np.frombuffer(block, dtype=np.uint8)
        return (chunk.address + used).to_bytes(8, "little")

    def _open_queue(self, priority: int, copying: bool = False) -> Queue:
        device, spin = self._handle.value, 0 if self.caps.kind == "cpu" else _SPIN_NS
        with self._group.lock:
            self._group.check()
            kind = priority, copying
            known = self._group.take_idle(kind)
            if known is not None:
                return known
            handle, family = self._queues.next(self._functions, device, priority, copying)
            parts = self._group, self._vulkan, self._functions, device, family.index, handle, spin
            if copying:  # also without a copy engine, so that programs fail in the same way on all devices
                queue: Queue = CopyQueue(*parts)
            else:
                queue = BudgetedQueue(*parts, seconds=self._time_budget) if self._time_budget else Queue(*parts)
            queue.kind = kind
            return queue

    def _copying_queue(self) -> Queue | None:
        """Return the queue for large uploads concurrent with kernels; None if the hardware has no copy engine."""
        if self._queues.copying is None:
            return None
        with self._group.lock:
            if self._copying is None:
                self._copying = self._open_queue(0, copying=True)
            return self._copying

    def _create(self) -> Handle:
        physical, vulkan, functions = self._physical, self._vulkan, self._physical.instance.functions
        version = physical.info.api_version[:2]
        chain = enabling_chain(vulkan, physical.features, physical.extensions, version)
        names = [vulkan.text(name) for name in extensions_for(physical.features, physical.extensions, version)]
        queues, owners = self._queues.create_infos()
        info = vulkan.struct(
            "VkDeviceCreateInfo",
            pNext=chain[0],
            queueCreateInfoCount=len(owners),
            pQueueCreateInfos=queues,
            enabledExtensionCount=len(names),
            ppEnabledExtensionNames=vulkan.array("char *", names),
        )
        out = vulkan.ffi.new("VkDevice *")
        result = functions.vkCreateDevice(physical.handle, info, vulkan.null, out)
        vulkan.check(result, "vkCreateDevice", self.name)
        device = out[0]
        destroy = vulkan.device_functions(functions, device).vkDestroyDevice
        owner = Handle("device", device, lambda handle: destroy(handle, vulkan.null))
        known = physical.instance.devices
        known[:] = [other for other in known if not other.closed] + [owner]
        return owner


def _forget() -> None:
    for device in list(_open_devices):
        device._group.abandon(
            f"{device.name} was opened before this process was forked, and drivers don't survive a fork: "
            "start processes with multiprocessing's 'spawn' method, or open devices only after the fork"
        )


on_fork(_forget)
