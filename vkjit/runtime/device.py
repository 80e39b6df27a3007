"""The device interface: buffers, copies, kernels, launches, synchronization.

Implemented by the Vulkan, CPU and interpreter backends and by the meta device.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..errors import ArgumentError, DeviceError
from .array import DeviceArray, contiguous_strides
from .artifact import KernelArtifact
from .capture import DeviceGraph, Entry
from .dispatch_cache import Table, new_table
from .host_copy import host_bytes
from .observers import LaunchFields, Observable
from .open_blocks import while_set
from .prepared_launch import CallPattern, Launcher, PreparedLaunch
from .streams import DeviceEvent, DeviceStream, ImmediateEvent, ImmediateStream, refuse

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "Buffer",
    "Device",
    "DeviceArray",
    "DeviceCaps",
    "LoadedKernel",
    "MatrixShape",
    "contiguous_strides",
    "without_int64",
]


@dataclass(frozen=True, slots=True)
class MatrixShape:
    """A cooperative matrix shape that a device supports: result[m, n] = a[m, k] * b[k, n] + c[m, n].

    `a`, `b`, `c`, `result` are names of element types. `scope` is "subgroup" or "workgroup". With `flexible`, m, n and
    k are granularities: any multiples are supported, in workgroups of `invocations`.
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
    """The capabilities and limits of a device: all that the compiler and library code may depend on.

    `kind` determines the back end: a row of the table of back ends names it. `loop_cap` is the number of iterations
    after which the driver silently stops loops (None: never). `quirks` has names of driver bugs from the quirk table.
    `dtypes` has the names of the element types with arithmetic, `features` other capabilities by name
    ("subgroup_arithmetic", "subgroup_shuffle", "memory_model_device_scope", "float32_atomic_add", "int64_atomics",
    "cooperative_matrix", "signed_zero_inf_nan_f32", ...). `matrices` lists the cooperative matrix shapes.
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
        """The default subgroup size of kernels."""
        return self.subgroup_sizes[-1]


def without_int64(caps: DeviceCaps) -> DeviceCaps:
    """Return the caps without 64-bit integer instructions, and without the features whose lowering needs them.

    The types i64 and u64 stay: they are computed with pairs of 32-bit words.
    """
    lost = ("int64", "float64", "cooperative_matrix")
    features = frozenset(name for name in caps.features if not name.startswith(lost) and not name.endswith("_f64"))
    return replace(caps, dtypes=caps.dtypes - {"f64"}, features=features, matrices=())


class Buffer(ABC):
    """Memory of a device, owned by this object. `close()` may be called any number of times.

    `shared` is True for external memory, which other buffers may cover too.
    """

    __slots__ = ("__weakref__",)

    shared = False
    queue: Any = False
    """The queue that owns a Vulkan buffer, None if it is closed; False for buffers of other devices. Launches check it on
    each buffer."""
    device: Device
    nbytes: int
    address: int

    @abstractmethod
    def close(self) -> None: ...


class LoadedKernel(ABC):
    """An artifact loaded on a device."""

    __slots__ = ("__weakref__",)

    artifact: KernelArtifact


class Device(Observable, ABC):
    """A device, which owns its memory and its queues."""

    name: str
    caps: DeviceCaps
    index: int
    _spec = ""
    _has_copy_streams = False
    _entered_stream: ContextVar[DeviceStream | None]
    """The stream entered in the current context. None is the first stream, which isn't stored, since the context would keep
    its device alive."""
    seeds: Any = None
    """Random seeds in the device's memory, for `tensor.ops.random`. A global table of them would keep the device alive."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        self = super().__new__(cls, *args, **kwargs)
        self._entered_stream = ContextVar("stream", default=None)
        return self

    def __str__(self) -> str:
        """Return what `vk.device` takes for this device."""
        return self._spec or self.name

    def __repr__(self) -> str:
        return f"<device {self.index}: {self}>"

    def set_spec(self, spec: str) -> None:
        """Set what `str(device)` returns, if it isn't the name."""
        self._spec = spec

    def limit(self, caps: DeviceCaps) -> None:
        """Replace the capabilities that kernels are compiled for.

        The caller must then discard cached calls, by `dispatch_cache.forget` or `dispatch_cache.renew`.
        """
        self.caps = caps

    def keep_seeds(self, seeds: Any) -> None:
        """Replace `seeds`."""
        self.seeds = seeds

    @functools.cached_property
    def dispatch_cache(self) -> Table:
        """The cache of repeated calls on this device, keyed by the upper layers; see `runtime.dispatch_cache`."""
        return new_table(self)

    def renew_dispatch_cache(self, table: Table | None = None) -> None:
        """Replace the cache, by an empty one unless a table is given; see `runtime.dispatch_cache.renew`."""
        self.dispatch_cache = {} if table is None else table

    @property
    def closed(self) -> bool:
        """True if the device can't be used any more."""
        return False

    def check_open(self) -> None:
        """Raise DeviceError if the device can't be used any more."""
        if self.closed:
            raise DeviceError(f"the device {self.name} was closed: open it again to use it")

    @abstractmethod
    def allocate(self, nbytes: int) -> Buffer:
        """Return a buffer of at least `nbytes` bytes; 0 is valid. Raises OutOfMemoryError.

        Its address must be a multiple of `array.LAYOUT_ALIGNMENT`; calls with less aligned arrays aren't cached. While
        `memory_ledger.tracing` is set, the method must pass the buffer to `memory_ledger.note`.
        """

    @abstractmethod
    def write(self, buffer: Buffer, offset: int, data: npt.NDArray[np.uint8]) -> None:
        """Copy host bytes into the buffer, ordered after earlier launches. `data` may be reused on return."""

    @abstractmethod
    def read(self, buffer: Buffer, offset: int, out: npt.NDArray[np.uint8]) -> None:
        """Copy from the buffer into `out`. Waits for the launches that write the buffer."""

    @abstractmethod
    def copy(self, source: Buffer, source_offset: int, target: Buffer, target_offset: int, nbytes: int) -> None:
        """Copy between two buffers of this device, in order with launches."""

    @abstractmethod
    def fill(self, buffer: Buffer, offset: int, nbytes: int, pattern: int) -> None:
        """Fill with a repeated u32 pattern, in order with launches. `offset` and `nbytes` are multiples of 4."""

    @abstractmethod
    def load(self, artifact: KernelArtifact) -> LoadedKernel:
        """Load an artifact. Raises FeatureError if the device lacks a feature that it needs."""

    @abstractmethod
    def launch(self, request: LaunchFields) -> None:
        """Queue a launch; see `LaunchRequest`. Its buffers are kept alive until it has completed.

        Raises DeviceError if the device or a buffer is closed, or is another device's; see also `check_stream`.
        """

    def launcher(self, launch: PreparedLaunch) -> Launcher | None:
        """Return the launch as a function of buffers and values; None if the device has no fast path for it."""
        del launch
        return None

    def plan(self, launch: PreparedLaunch, pattern: CallPattern) -> Any:
        """Return a plan for `accelerated` of the launch, for calls that match the pattern.

        None: that isn't possible yet. False: it never is.
        """
        del launch, pattern
        return False

    def relaunch(self, call: Callable[..., bool], arguments: Sequence[Any]) -> bool:
        """Retry a call of a function returned by `accelerated` that has returned False, with the same arguments.

        First wait until no other thread is submitting, and open a submission. Return False if the call must take the
        slow path.
        """
        del call, arguments
        return False

    def accelerated(self, plans: Sequence[Any]) -> Callable[..., bool] | None:
        """Return a function of a call's arguments that launches by the first matching plan; None if unsupported.

        The function returns False and has no effect if no plan matches or if the slow path must handle the call.
        """
        del plans
        return None

    @abstractmethod
    def synchronize(self) -> None:
        """Wait for all queued work. Raises the first KernelError that kernels reported."""

    @abstractmethod
    def close(self) -> None:
        """Wait for outstanding work and destroy the device. May be called any number of times."""

    @property
    @abstractmethod
    def report_address(self) -> int:
        """The address of the report buffer, for the argument field of role "report"."""

    def open_stream(self, priority: int = 0, copies: bool = False) -> DeviceStream:
        """Open another stream.

        `priority` above 0 means before other streams, below 0 after them, if the device supports it. With `copies`, the
        stream takes copies only, and uses a hardware copy engine if there is one.
        """
        self.check_open()
        self._has_copy_streams |= copies
        return ImmediateStream(self, priority, copies)

    def open_event(self, timing: bool = False) -> DeviceEvent:
        """Return an unrecorded event. With `timing`, it records the time at which the device reaches it."""
        self.check_open()
        return ImmediateEvent(self, timing)

    def keep_together(self, commands: int) -> None:
        """Submit the recorded work of the current stream unless `commands` more commands fit into its submission.

        The next `commands` commands, at most 8, are then sent in one submission, so that the device doesn't wait for
        the host between them. A device that runs on the host's cores may collect more commands first, so that kernels
        don't compete with the host for the cores.
        """
        del commands

    def check_stream(self, artifact: KernelArtifact) -> None:
        """Raise ArgumentError if the current stream takes copies only. Called by devices that launch synchronously."""
        if self._has_copy_streams and self.stream.copies:
            refuse(artifact)

    @property
    def stream(self) -> DeviceStream:
        """The stream of the launches and copies of this thread or asyncio task. Settable."""
        entered = self._entered_stream.get()
        if entered is not None:
            return entered
        first: DeviceStream | None = self.__dict__.get("_first_stream")
        return self.__dict__.setdefault("_first_stream", self.open_stream()) if first is None else first

    @stream.setter
    def stream(self, stream: DeviceStream) -> None:
        if stream.device is not self:
            raise ArgumentError(f"a stream of another device was given to {self.name}")
        self._entered_stream.set(stream)

    def while_in_stream(self, stream: DeviceStream) -> Iterator[Any]:
        """Generator for blocks (see `open_blocks`) in which the stream is the current one."""
        self.check_open()
        return while_set(self._entered_stream, stream)

    @abstractmethod
    def memory_stats(self) -> dict[str, int]:
        """Return memory statistics: bytes `allocated` to buffers, bytes `reserved` from the driver or system, the
        `peak` of allocated, and the `count` of buffers; for devices with dedicated memory also its `limit`.
        """

    @abstractmethod
    def reset_peak_memory(self) -> None:
        """Reset the peak to the bytes that are allocated now."""

    def flush(self) -> None:  # a no-op for devices that queue no work
        """Send all recorded work to the device without waiting."""

    def empty_cache(self) -> None:  # a no-op for devices without a cache
        """Return unused memory to the driver or system."""

    def make_graph(self, entries: list[Entry]) -> DeviceGraph:
        """Return a graph that replays captured work; see `capture.Capture`."""
        return DeviceGraph(self, entries)

    def adopt(self, address: int, nbytes: int, owner: object) -> Buffer | None:
        """Return host memory as a buffer without a copy; None if the device's kernels can't access it.

        The buffer keeps `owner`, and thereby the memory, alive.
        """
        del address, nbytes, owner
        return None

    def host_array(self, nbytes: int) -> npt.NDArray[np.uint8]:
        """Return new uninitialized host memory of the kind that the device copies from and to fastest."""
        return host_bytes(nbytes)

    def host_view(self, buffer: Buffer) -> npt.NDArray[np.uint8] | None:
        """Return a NumPy view of the buffer's bytes if the memory is shared with the host, else None.

        Callers must synchronize before they read or write through the view.
        """
        return None
