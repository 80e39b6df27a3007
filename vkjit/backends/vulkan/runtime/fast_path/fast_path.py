"""The shortest way of a call: from positional arguments into a command buffer, without anything but what differs between calls.

Enters: what the calls of one form have in common (`CallShape`), and per key a description of the launch (`FastLaunch`). Leaves:
a function of the arguments, which records the launch into the open submission of this thread's queue. Holds: what is
recorded is what `Queue.dispatch` would record; where a launch needs more than that (another queue's buffers, a capture or a
profile that watches, a device that failed, shapes that disagree) it says False, and nothing has happened.

The functions are written out in `_gen_launch` and `_gen_replay`. Everything that stays the same lies prepared in a record (see
`native`), and a launch fills the rest by one `pack_into`.
"""

from __future__ import annotations

import struct
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from vkjit.dtypes import DType
from vkjit.runtime.array import DeviceArray

from .. import trampoline as native
from . import launch_plan
from ._gen_launch import MAKERS
from ._gen_replay import MAKING, RECORDING, RECORDING_FEW, WRITING

if TYPE_CHECKING:
    from vkjit.runtime.launch_recorder import RecordedLaunch

    from ..pipeline.pipeline import VulkanKernel
    from ..queue.queue import Queue

__all__ = [
    "ARRAYS",
    "CallShape",
    "DirectEntry",
    "FastLaunch",
    "FastPath",
    "FastPathRecorder",
    "Made",
    "Maker",
    "Repeater",
]

ARRAYS = frozenset(MAKERS)
"""The numbers of arrays of launches that have a short way."""

GIVEN = frozenset(MAKING)
"""The numbers of arrays that operations with a `Maker` are given."""

DirectEntry = tuple[Any, ...]
"""A `FastLaunch` made ready by its device."""

Picker = Callable[[Any], tuple[Any, ...]]

Repeater = Callable[[Sequence[Any], tuple[int, ...]], bool]
"""Records a launch with these buffers, by number, and the addresses of arrays in them; False where that is left to others."""

Made = tuple[Any, Callable[..., Any], int, DType, Any]
"""An array that an operation makes: its device, what gives kept buffers, the bytes of its own, its type, and what `layout_of` says
of it."""

Maker = Callable[..., Any]
"""Runs an operation of one launch on these arrays: the array that it made, or True where it wrote into the first of them; None or
False where that is left to others, and nothing has happened.
"""

_NATIVE_AFTER = 8
"""Submissions by this way after which the native recorder is compiled: short programs do without."""

_MAX_PLANS = 4
"""Plans that machine code tries for a call."""


@dataclass(frozen=True, slots=True)
class CallShape:
    """Calls of one form, whose number of arrays is one of `ARRAYS`.

    `arrays` are the places of the arrays among the arguments, `written` whether the kernel may write each; `others` takes the
    other arguments, `kinds` says what of these counts for the key. Nothing may have changed since the key's code was
    compiled: `names` are look-ups that must find the same objects (`missing`: nothing), `more` what must be True besides; `blocks`
    is filled while every launch has to go the long way. `overlap` adds to the key of arrays in the same buffers. `told` are the
    places of what learns that it was written. `entries` may grow later; a key is the device, the forms of the arrays, what
    `overlap` and `kinds` say. For machine code, `other_places` are those of arguments that are no arrays, `by_value` says whether
    their values count, and `cells`, with what they must hold, are all that `more` looks at, or it is None.
    """

    arrays: tuple[int, ...]
    written: tuple[bool, ...]
    others: Picker | None
    kinds: Picker
    names: tuple[tuple[dict[str, Any], str, Any], ...]
    more: Callable[[], bool] | None
    blocks: list[Any]
    overlap: Callable[[tuple[DeviceArray, ...]], tuple[Any, ...]]
    told: tuple[int, ...]
    other_places: tuple[int, ...] = ()
    by_value: tuple[bool, ...] = ()
    cells: tuple[tuple[Any, Any], ...] | None = ()
    missing: object = None
    entries: dict[Any, DirectEntry] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FastLaunch:
    """What is launched for a key, as long as `fresh` says True. Words are those of the arrays, one after another, then the
    other arguments, then `constants`, then, where the kernel reports, the address of the launch's slot.

    `left` and `right` take words that must be equal, those of `pairs`, unless not `mixed` and all shapes are equal; `pick` those
    that the argument block holds, at `places`, in its struct format `block` (without byte order). The grid is `groups`, or what
    `grid` finds (None: it doesn't know), or, with `over`, follows from the words there (the extents along x, and y
    if there are two) and the workgroup's size `local`.
    """

    block: str
    constants: tuple[Any, ...]
    left: Picker | None
    right: Picker | None
    mixed: bool
    pick: Picker
    groups: tuple[int, int, int] = (1, 1, 1)
    grid: Callable[[tuple[Any, ...]], tuple[int, int, int] | None] | None = None
    over: tuple[int, ...] = ()
    local: tuple[int, int, int] = (1, 1, 1)
    fresh: Callable[[], bool] | None = None
    places: tuple[int, ...] = ()
    pairs: tuple[tuple[int, int], ...] = ()


class FastPath:
    """The short way of one form of calls: `short(args)` in Python, and, where there is some, machine code (see `machine_code`)
    that is asked first: `call(current.queue, args)`. Both say whether they have launched.
    """

    __slots__ = ("__weakref__", "_plans", "_recorder", "call", "current", "python_launch", "shape")

    def __init__(self, calls: CallShape) -> None:
        self.shape = calls
        self.python_launch = MAKERS[len(calls.arrays)](calls)
        self._reset()

    def _reset(self) -> None:
        self.call: launch_plan.Launcher | None = None
        self.current: Any = None
        self._recorder: FastPathRecorder | None = None
        self._plans: list[launch_plan.Plan] = []

    def add_entry(self, key: Any, entry: DirectEntry, launch: FastLaunch, args: Sequence[Any]) -> None:
        """Takes the entry of a launch that has these arguments."""
        self.shape.entries[key] = entry
        recorder: FastPathRecorder = entry[1]
        plan = launch_plan.plan(self.shape, launch, args, entry)
        if plan is not None:
            self._add(recorder, plan)

    def forget(self, key: Any = None) -> None:
        """Drops an entry, or all of them."""
        if key is None:
            self.shape.entries.clear()
        else:
            self.shape.entries.pop(key, None)
        self._reset()

    def _add(self, recorder: FastPathRecorder, plan: launch_plan.Plan) -> None:
        """Has machine code try a plan before the others; those of another device, and the oldest of many, are dropped."""
        if recorder is not self._recorder:
            self._reset()
            self._recorder, self.current = recorder, recorder.current
        self._plans = [plan, *self._plans[: _MAX_PLANS - 1]]
        for one, following in zip(self._plans, [*self._plans[1:], None], strict=True):
            one.follow(following)
        recorder.enable(self)

    def launch(self, args: tuple[Any, ...]) -> bool:
        """Launches with these positional arguments; False where that is left to the long way."""
        native = self.call
        return (native is not None and native(self.current.queue, args)) or self.python_launch(args)

    def enable(self) -> None:
        """Asks machine code from now on."""
        if self._plans:
            self.call = launch_plan.launcher(self._plans[0])


@dataclass(frozen=True, slots=True)
class Prepared:
    """A launch with a record, for the functions of `_gen_replay`. `parts` are the recorder, the kernel, the record, its address
    with each of the flags, and where the argument block begins in it; `plain`: `pack` takes nothing but the addresses, in order.
    """

    parts: tuple[FastPathRecorder, VulkanKernel, bytearray, tuple[int, ...], Any]
    claim: Callable[[], int] | None
    pack: Callable[..., None]
    x: int
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    values: Callable[..., tuple[Any, ...]]
    pick: Picker
    pieces: tuple[Any, ...]
    plain: bool
    made: Made | None


class FastPathRecorder:
    """What the kernels of a device share. `call` is the native recorder once there is one."""

    def __init__(self, queue: Queue, current: Any, limits: tuple[int, int, int]) -> None:
        """`current.queue` is the queue of the thread that asks, `limits` are the most workgroups along each axis."""
        self.queue = queue
        self.current = current
        self.limits = limits
        self._submissions = 0
        self._at_once = native.at_once()
        self._ffi = queue.vulkan.ffi
        self.call: Callable[[int], None] | None = None
        self._launches = False
        self._fast_paths: weakref.WeakSet[FastPath] = weakref.WeakSet()
        self._table: Any = None

    def submitted(self) -> None:
        """Counts submissions, and has native code compiled when that begins to be worth it."""
        self._submissions += 1
        if self._submissions == _NATIVE_AFTER:
            self._use_native_code()

    def _use_native_code(self) -> None:
        if self.call is None and self._make_table():
            self.call, self._launches = native.recorder(), launch_plan.available()
            for way in list(self._fast_paths):
                self.enable(way)

    def enable(self, way: FastPath) -> None:
        """Has a way ask machine code, at once or as soon as there is some."""
        self._fast_paths.add(way)
        if self._launches:
            way.enable()

    def entry(self, kernel: VulkanKernel, launch: FastLaunch, claim: Callable[[], int] | None = None) -> DirectEntry:
        """The launch made ready; its order of fields is that of the generated functions. `claim` gives each launch a slot."""
        self._make_table()
        if self._at_once:
            self._use_native_code()
        size = kernel.artifact.block_size
        memory = native.Record(native.BLOCK + size)
        place = self._ffi.from_buffer(memory)  # never resized, so it stays where it is
        x, y, z = launch.groups
        fixed = (self._table, kernel.pipeline, kernel.layout)
        native.RECORD.pack_into(memory, 0, *map(self._address, fixed), size, y, z)
        address = self._address(place)
        kernel.records[address] = memory
        flat = launch.grid is None and len(launch.over) < 2  # y and z stay
        packer = struct.Struct((native.FLAT if flat else native.DEEP) + launch.block)
        deep = (launch.over[1], launch.local[1], self.limits[1]) if len(launch.over) > 1 else None
        return (
            self.current, self, kernel, launch.constants, launch.left, launch.right, launch.mixed, launch.pick,
            launch.over[0] if launch.over else None, launch.local[0], self.limits[0], launch.grid, deep, x,
            packer.pack_into, native.FLAT_PLACE if flat else 0, memory,
            tuple(address | flags for flags in range(4)), place + native.BLOCK, launch.fresh, claim,
        )  # fmt: skip

    def repeater(self, kernel: VulkanKernel, launch: RecordedLaunch, claim: Callable[[], int] | None) -> Repeater:
        """A function that records this launch with the buffers and addresses it is given, or says False: as the functions of
        `CallShape`, for a launch of which everything is known but these.
        """
        few = len(launch.writes) == 1 and len(launch.reads) in (1, 2) and not launch.shifted
        return (RECORDING_FEW if few else RECORDING)(self._prepared(kernel, launch, claim))

    def maker(
        self,
        kernel: VulkanKernel,
        launch: RecordedLaunch,
        claim: Callable[[], int] | None,
        given: int,
        made: Made | None,
    ) -> Maker | None:
        """See `Device.maker`."""
        written, count = (0, given) if made is None else (given, given + 1)
        if given not in GIVEN or launch.shifted or launch.writes != (written,) or max(launch.used) >= count:
            return None
        prepared = self._prepared(kernel, launch, claim, made)
        picked = launch.pick(tuple(range(count + len(launch.pieces) + 1)))
        if claim is None and picked == (*range(given), written, *range(count, count + len(launch.pieces))):
            # the addresses come first, in order: what follows them is the same for all launches, and already there
            pack = struct.Struct(native.FLAT + "Q" * (given + 1)).pack_into
            prepared.parts[2][native.BLOCK + 8 * (given + 1) :] = b"".join(launch.pieces)
            prepared = replace(prepared, pack=pack, plain=True)
        return (WRITING if made is None else MAKING)[given](prepared)

    def _prepared(
        self, kernel: VulkanKernel, launch: RecordedLaunch, claim: Callable[[], int] | None, made: Made | None = None
    ) -> Prepared:
        """The launch with a record of its own."""
        self._make_table()
        size = kernel.artifact.block_size
        memory = native.Record(native.BLOCK + size)
        place = self._ffi.from_buffer(memory)
        fixed, (x, y, z) = (self._table, kernel.pipeline, kernel.layout), launch.groups
        native.RECORD.pack_into(memory, 0, *map(self._address, fixed), size, y, z)
        address = self._address(place)
        kernel.records[address] = memory
        parts = self, kernel, memory, tuple(address | flags for flags in range(4)), place + native.BLOCK
        pack = struct.Struct(native.FLAT + launch.packer.format[1:]).pack_into
        # without a report nobody asks for its address
        pieces: tuple[Any, ...] = launch.pieces if claim is not None else (*launch.pieces, 0)
        return Prepared(
            parts, claim, pack, x, launch.reads, launch.writes, launch.packed_values, launch.pick, pieces, False, made
        )

    def _make_table(self) -> bool:
        """Fills the table of the driver's functions; False where they aren't the driver's own, as in tests."""
        if self._table is None:
            self._table = self._ffi.new("char[]", native.TABLE.size)
        f, (stages, barrier) = self.queue.functions, self.queue.barriers[0]
        calls = (f.vkCmdBindPipeline, f.vkCmdPushConstants, f.vkCmdDispatch, f.vkCmdPipelineBarrier)
        if not all(isinstance(call, self._ffi.CData) for call in calls):
            return False
        addresses = map(self._address, (*calls, barrier))
        self._ffi.buffer(self._table)[:] = native.TABLE.pack(*addresses, stages)
        return True

    def _address(self, value: Any) -> int:
        return int(self._ffi.cast("uintptr_t", value))
