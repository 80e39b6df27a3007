"""What every device is to the layers above: buffers, copies, kernels, launches, synchronisation.

Implemented by the Vulkan device here, by the interpreter's device in `interp`, and by the CPU target.
"""

from __future__ import annotations

import functools
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ArgumentError
from .array import DeviceArray, contiguous_strides
from .artifact import KernelArtifact
from .capture import DeviceGraph, Entry
from .dispatch_cache import Table, new_table
from .host_copy import host_bytes
from .prepared_launch import CallPattern, Launcher, PreparedLaunch
from .streams import DeviceEvent, DeviceStream, ImmediateEvent, ImmediateStream, refuse

__all__ = ["Buffer", "Device", "DeviceArray", "DeviceCaps", "LoadedKernel", "MatrixShape", "contiguous_strides"]


@dataclass(frozen=True, slots=True)
class MatrixShape:
    """One cooperative matrix product that a device offers: result[m, n] = a[m, k] * b[k, n] + c[m, n].

    `a`, `b`, `c`, `result` are names of element types. `scope` is "subgroup" or "workgroup". With `flexible`, m, n and
    k are granularities: any multiple serves, in workgroups of `invocations`.
    """

    m: int
    n: int
    k: int
    a: str
    b: str
    c: str
    result: str
    scope: str = "subgroup"
    saturating: bool = False
    flexible: bool = False
    invocations: int = 0


@dataclass(frozen=True, slots=True)
class DeviceCaps:
    """What a device can do; all that compilers and library code may ask about it.

    `kind` is "discrete", "integrated", "cpu", "virtual", "other" or "interpreter"; `loop_cap` the number of iterations
    after which the driver stops loops silently (None: never); `quirks` names of faults from the quirk table.
    `dtypes` holds the names of the element types that have arithmetic, `features` other capabilities by name
    ("subgroup_arithmetic", "subgroup_shuffle", "memory_model_device_scope", "float32_atomic_add", "int64_atomics",
    "cooperative_matrix", "signed_zero_inf_nan_f32", ...). `matrices` lists the cooperative matrix products.
    """

    kind: str
    subgroup_sizes: tuple[int, ...]
    max_invocations: int
    max_local_size: tuple[int, int, int]
    max_groups: tuple[int, int, int]
    shared_bytes: int
    push_constant_bytes: int
    dtypes: frozenset[str]
    features: frozenset[str]
    loop_cap: int | None = None
    quirks: frozenset[str] = frozenset()
    unified_memory: bool = False
    driver: str = ""
    vendor: int = 0
    matrices: tuple[MatrixShape, ...] = ()

    @property
    def subgroup_size(self) -> int:
        """The size that kernels get when they don't ask for one."""
        return self.subgroup_sizes[-1]


class Buffer(ABC):
    """Memory of a device, owned by this object; `close()` may be called any number of times.

    `shared`: it is somebody else's memory, which other buffers may lie over, too.
    """

    __slots__ = ("__weakref__",)

    shared = False
    queue: Any = False
    """Where Vulkan's buffers are at home; launches ask each buffer that they are given, of whatever device."""
    device: Device
    nbytes: int
    address: int

    @abstractmethod
    def close(self) -> None: ...


class LoadedKernel(ABC):
    """An artifact made ready on a device."""

    __slots__ = ("__weakref__",)

    artifact: KernelArtifact


class Device(ABC):
    """A device: owns its memory and its queue."""

    name: str
    caps: DeviceCaps
    index: int

    @functools.cached_property
    def dispatch_cache(self) -> Table:
        """What the layers above remember of calls that they repeat on this device, by keys of theirs; see `dispatch_cache`."""
        return new_table(self)

    @abstractmethod
    def allocate(self, nbytes: int) -> Buffer:
        """A buffer of at least `nbytes` bytes (0 gives a valid buffer). Raises OutOfMemoryError."""

    @abstractmethod
    def write(self, buffer: Buffer, offset: int, data: npt.NDArray[np.uint8]) -> None:
        """Copies host bytes into the buffer, ordered after launches already made; `data` may be reused on return."""

    @abstractmethod
    def read(self, buffer: Buffer, offset: int, out: npt.NDArray[np.uint8]) -> None:
        """Copies from the buffer into `out`; waits for the launches that write it."""

    @abstractmethod
    def copy(self, source: Buffer, source_offset: int, target: Buffer, target_offset: int, nbytes: int) -> None:
        """Copies between two buffers of this device, in order with launches."""

    @abstractmethod
    def fill(self, buffer: Buffer, offset: int, nbytes: int, pattern: int) -> None:
        """Fills with a repeated u32 pattern (offset and nbytes multiples of 4), in order with launches."""

    @abstractmethod
    def load(self, artifact: KernelArtifact) -> LoadedKernel:
        """Makes an artifact ready. Raises FeatureError when the device lacks what it needs."""

    @abstractmethod
    def launch(
        self,
        kernel: LoadedKernel,
        groups: tuple[int, int, int],
        block: bytes,
        reads: Sequence[Buffer],
        writes: Sequence[Buffer],
    ) -> None:
        """Queues `groups` workgroups with the packed argument block. Buffers are kept alive until it has run."""

    def launcher(self, launch: PreparedLaunch) -> Launcher | None:
        """Return the launch as a function of buffers and values; None if the device has no fast path for it."""
        del launch
        return None

    def plan(self, launch: PreparedLaunch, pattern: CallPattern) -> Any:
        """Return the launch as a plan for `accelerated`; None if that isn't possible yet, False if it never is."""
        del launch, pattern
        return False

    def relaunch(self, call: Callable[..., bool], arguments: Sequence[Any]) -> bool:
        """Call machine code that refused a launch again, after other threads are done and a submission is open.

        Return False if Python must launch.
        """
        del call, arguments
        return False

    def accelerated(self, plans: Sequence[Any]) -> Callable[..., bool] | None:
        """Return a function of a call's arguments that launches by the first plan that matches them.

        It returns False, and nothing has happened, if none does or if Python must decide. None if there is no such function.
        """
        del plans
        return None

    def watch(self, watcher: object, watching: bool) -> None:
        """Notes who has put itself before `launch` and has to see each launch, or that it needn't any more."""
        del watcher, watching

    @abstractmethod
    def synchronize(self) -> None:
        """Waits for everything queued; raises the KernelErrors that kernels reported (the first of them)."""

    @abstractmethod
    def close(self) -> None:
        """Drains and destroys the device; may be called any number of times."""

    @property
    @abstractmethod
    def report_address(self) -> int:
        """Address of the report buffer, for the argument field of role "report"."""

    def open_stream(self, priority: int = 0, copies: bool = False) -> DeviceStream:
        """Another stream of the device. `priority`: above 0 before the others, below 0 after them, where it can tell.

        `copies`: one for copies alone, on hardware of its own where there is such.
        """
        self._has_copy_streams |= copies
        return ImmediateStream(self, priority, copies)

    def open_event(self, timing: bool = False) -> DeviceEvent:
        """An event, not recorded yet; with `timing` it notes the time at which the device reaches it."""
        return ImmediateEvent(self, timing)

    _has_copy_streams = False

    def check_stream(self, artifact: KernelArtifact) -> None:
        """ArgumentError where this thread's stream is for copies alone; for devices that launch at once."""
        if self._has_copy_streams and self.stream.copies:
            refuse(artifact)

    @property
    def stream(self) -> DeviceStream:
        """The stream that this thread's launches and copies go to; can be set."""
        here = self._this_thread()
        if not hasattr(here, "stream"):
            here.stream = self.__dict__.setdefault("_first_stream", self.open_stream())
        stream: DeviceStream = here.stream
        return stream

    @stream.setter
    def stream(self, stream: DeviceStream) -> None:
        if stream.device is not self:
            raise ArgumentError(f"a stream of another device was given to {self.name}")
        self._this_thread().stream = stream

    def _this_thread(self) -> threading.local:
        local: threading.local = self.__dict__.setdefault("_threads", threading.local())
        return local

    @abstractmethod
    def memory_stats(self) -> dict[str, int]:
        """Bytes `allocated` to buffers, `reserved` from the driver or system, the `peak` of allocated, and the `count` of
        buffers; devices with a memory of their own tell its `limit`, too.
        """

    @abstractmethod
    def reset_peak_memory(self) -> None:
        """Has the peak begin anew at what is allocated now."""

    def empty_cache(self) -> None:  # noqa: B027  # nothing to do where nothing is kept
        """Gives memory that no buffer uses back to the driver or system."""

    def make_graph(self, entries: list[Entry]) -> DeviceGraph:
        """Captured work made ready to be replayed; see `graph.Capture`."""
        return DeviceGraph(self, entries)

    def adopt(self, address: int, nbytes: int, owner: object) -> Buffer | None:
        """Host memory as a buffer of the device, without a copy, where kernels can work on it; None elsewhere.

        The buffer keeps `owner` alive, and with it the memory.
        """
        del address, nbytes, owner
        return None

    def host_array(self, nbytes: int) -> npt.NDArray[np.uint8]:
        """New bytes of the host's, not set to anything, from which and to which the device copies quickest."""
        return host_bytes(nbytes)

    def host_view(self, buffer: Buffer) -> npt.NDArray[np.uint8] | None:
        """The buffer's bytes as a NumPy view where the memory is shared with the host, else None.

        The caller synchronises before it reads or writes through the view.
        """
        return None
