"""Data race detection: two invocations access one element, at least one of them writes, and nothing orders them.

Happens-before holds between accesses of one invocation, and between accesses of one workgroup with a barrier between
them. Workgroups are never ordered. Atomics don't race with each other, nor do writes of the same value.

Each watched cell has shadow words (see `layout`): one for the last writer, and three each for reads, for atomics that
write, and for atomics that only read, as far as the kernel has them. An access compares itself with the words that it
conflicts with, and records its own word::

    write          exchanges the writer's word; compares with that and all others
    read           records a word; compares with the writer and with atomics that write
    atomic write   records a word; compares with the writer and with reads
    atomic read    records a word; compares with the writer

Of the three words, the first belongs to an access that may still conflict with others, and stays. A further access from
the same workgroup takes the second word, one from another workgroup the third. So a later conflicting access finds at
least one conflict if there is any. Words are read and written by relaxed atomics of device scope, and an invocation
that has stored a first word reads it again: if two invocations in lockstep store it, the one that was overwritten takes
the second or third word.

A read that repeats a read of the same invocation, source location and epoch isn't instrumented (see `redundant_reads`), as
writers find the first one.

Kernels may synchronize by acquiring atomics, or by fences with atomics whose results are used; barriers don't show that
order. Then accesses within a workgroup aren't compared and, if such an atomic or fence has device scope, accesses of
different workgroups aren't either.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from vkjit import dtypes
from vkjit.errors import ReportSite
from vkjit.ir.attributes import Attrs
from vkjit.ir.builder import Builder
from vkjit.ir.core import Op, Value
from vkjit.ir.types import Array, Scalar, Vector

from ..analysis.alias import origin
from ..formulas.formula import Formula, Term
from .layout import EPOCH_BITS, HASH_BITS, LAST_EPOCH, LOCAL_BITS, SITE_BITS, AccessSite
from .redundant_reads import repeated_reads
from .shadow import ShadowMemory, array_of
from .state import State, hidden_array

__all__ = ["Races"]

WRITER = 0
"""The plane of shadow words for the last writers."""

WORDS = 3
"""Planes for each other kind of access."""

_BELOW_EPOCH = SITE_BITS + HASH_BITS
_FACTOR = 0x9E3779B1
"""2**32 over the golden ratio, odd: multiplication by it mixes bits into the high bits."""


@dataclass(slots=True)
class Races:
    """Instrumentation of accesses to watched arrays, with an epoch counter that barriers advance.

    `planes` maps each kind of access except "write" to its first plane; `repeated_reads` are the repeated reads.
    `ordered_groups` and `ordered_invocations` are True if atomics may order workgroups, or the invocations of one.
    """

    state: State
    tracking: ShadowMemory
    watched: set[Value] = field(default_factory=set)
    shared: bool = False
    planes: dict[str, int] = field(default_factory=dict)
    has_barriers: bool = False
    ordered_groups: bool = False
    ordered_invocations: bool = False
    epoch_array: Value | None = None
    sites: dict[AccessSite, int] = field(default_factory=dict)
    reported: dict[ReportSite, int] = field(default_factory=dict)
    repeated_reads: set[Op] = field(default_factory=set)

    def __post_init__(self) -> None:
        accesses = self.tracking.watched_for_races()
        self.watched = set(accesses)
        kinds = {_how(op) for a in accesses.values() for op in a.all} - {"write"}
        self.planes = {how: 1 + WORDS * number for number, how in enumerate(sorted(kinds))}
        ops = list(self.state.kernel.body.walk())
        self.has_barriers = any(op.name == "barrier" for op in ops)
        self.ordered_groups, self.ordered_invocations = _synchronized(ops)
        if self.watched:
            self.repeated_reads = repeated_reads(self.state.kernel.body)
            self.state.plan.planes = 1 + WORDS * len(self.planes)
            if self.has_barriers:
                self._count_epochs()

    def _count_epochs(self) -> None:
        """Allocate the epoch: the number of barriers so far, from 1, in a local array of one element."""
        prologue = self.state.prologue
        kind = Array(Scalar(dtypes.u32), 1, space="local", shape=(1,), contiguous=True)
        self.epoch_array = prologue.emit("local", type=kind)
        prologue.op("store", self.epoch_array, prologue.index(0), prologue.const(1, dtypes.u32))

    def after(self, op: Op, builder: Builder) -> None:
        """Advance the epoch after a barrier."""
        if op.name == "barrier" and self.epoch_array is not None:
            f = Formula(builder)
            following = f.call("min", self._epoch(f) + 1, f.term(LAST_EPOCH, dtypes.u32))
            builder.op("store", self.epoch_array, builder.index(0), following.value)

    def _epoch(self, f: Formula) -> Term:
        if self.epoch_array is None:
            return f.term(1, dtypes.u32)
        return f.term(f.builder.emit("load", self.epoch_array, f.builder.index(0)))

    def before_access(self, op: Op, builder: Builder) -> None:
        """Compare an access with earlier ones, and record its word."""
        root = origin(op.operands[0])
        if root not in self.watched or op in self.repeated_reads:
            return
        access = _Access(self, op, root, Formula(builder))
        if op.name == "store":
            access.write()
        else:
            access.other()

    def me(self) -> Term:
        """Return the upper half of the invocation's shadow words: the numbers of its workgroup and of itself in it."""
        cache = self.state.cached_terms
        if "me" not in cache:
            group, local = self.state.group.cast(dtypes.u32), self.state.local.cast(dtypes.u32)
            cache["me"] = (group << LOCAL_BITS) | local
        return cache["me"]

    def site(self, op: Op, how: str, root: Value) -> int:
        """Return the number of an access site. Sites beyond the available bits share the last number."""
        entry = AccessSite(op.loc, how, root.name or "")
        if entry not in self.sites and len(self.sites) < (1 << SITE_BITS):
            self.sites[entry] = len(self.sites)
            self.state.plan.sites.append(entry)
        return self.sites.get(entry, (1 << SITE_BITS) - 1)

    def report_site(self, entry: ReportSite) -> int:
        """Return the number of a report site, which all accesses at one source location share."""
        if entry not in self.reported:
            self.reported[entry] = self.state.module.add_site(entry)
        return self.reported[entry]


def _how(op: Op) -> str:
    """Return the kind of an access; each kind has its own shadow words."""
    return {"load": "read", "store": "write", "atomic_load": "atomic read"}.get(op.name, "atomic write")


_CONFLICTS = {"read": ("atomic write",), "atomic write": ("read",), "atomic read": ()}
"""The kinds of accesses that an access conflicts with, besides writes."""


class _Access:
    """The instrumentation of one access."""

    def __init__(self, races: Races, op: Op, root: Value, f: Formula) -> None:
        self.races, self.op, self.root, self.f, self.how = races, op, root, f, _how(op)
        self.cell = races.tracking.cell(op, f.builder)
        self.shadow = races.state.param("shadow", hidden_array(dtypes.u64))
        self.me = f.term(races.me().value)
        self.epoch = races._epoch(f)
        self.site = races.site(op, self.how, root)
        self.conflicts: list[tuple[Term, Term]] = []

    def write(self) -> None:
        """Instrument a plain write: it conflicts with all other accesses, except writes of the same value."""
        mark = _hash(self.f, self.op.operands[-1])
        for before in self.leave_write(self.word(mark)):
            self.compare(before, differs=before.cast(dtypes.u32) ^ mark)
        for how in self.races.planes:
            self.compare_all(how)
        self.report()

    def other(self) -> None:
        """Instrument a read or an atomic access."""
        self.leave(self.races.planes[self.how], self.word(self.f.term(0, dtypes.u32)))
        self.compare(self.look(WRITER))
        for how in _CONFLICTS[self.how]:
            self.compare_all(how)
        self.report()

    def compare_all(self, how: str) -> None:
        """Compare with the words of one kind, if the kernel has them."""
        first = self.races.planes.get(how)
        words = WORDS - 1 if self.space == "shared" else WORDS  # the third word is for other workgroups
        for number in range(0 if first is None else words):
            self.compare(self.look((first or 0) + number))

    @property
    def space(self) -> str:
        return array_of(self.root).space

    # -- shadow words

    def word(self, mark: Term) -> Term:
        low = (self.epoch << _BELOW_EPOCH) | (mark | (self.site << HASH_BITS))
        return (self.me.cast(dtypes.u64) << 32) | low.cast(dtypes.u64)

    def place(self, plane: int) -> Value:
        if plane == 0:
            return self.cell.value
        return (self.cell + self.races.state.scalar("cells") * plane).value

    @property
    def plain(self) -> bool:
        """True if only the lanes of one vector operation access the words at the same time, so that atomics aren't
        needed.
        """
        return self.races.state.one_thread and self.space == "shared"

    def leave_write(self, word: Term) -> list[Term]:
        """Record the writer's word; return the words of earlier writes, and of writes in the same vector operation."""
        if not self.plain:
            attrs: Attrs = {"op": "exchange", "order": "relaxed", "scope": "device"}
            place = self.place(WRITER)
            return [self.f.term(self.f.builder.emit("atomic", self.shadow, place, word.value, **attrs))]
        before = self.look(WRITER)
        self.store(WRITER, word)
        return [before, self.look_again(WRITER)]

    def look(self, plane: int) -> Term:
        if not self.plain:
            return self.look_again(plane)
        return self.f.term(self.f.builder.emit("load", self.shadow, self.place(plane)))

    def look_again(self, plane: int) -> Term:
        """Load a word from memory, even if this invocation has just stored to it.

        A plain load uses an offset that the compiler can't prove equal to that of the store, so the stored value isn't
        forwarded.
        """
        place = self.place(plane)
        if self.plain:
            again = self.f.term(place) + self.f.term(self.races.state.scalar("zero").value)
            return self.f.term(self.f.builder.emit("load", self.shadow, again.value))
        return self.f.term(self.f.builder.emit("atomic_load", self.shadow, place, order="relaxed", scope="device"))

    def put(self, plane: int, word: Term, condition: Term) -> None:
        """Store a word where the condition holds."""

        def store() -> list[Term]:
            self.store(plane, word)
            return []

        self.f.branch(condition, store, list)

    def store(self, plane: int, word: Term) -> None:
        place = self.place(plane)
        if self.plain:
            self.f.builder.op("store", self.shadow, place, word.value)
            return
        self.f.builder.op("atomic_store", self.shadow, place, word.value, order="relaxed", scope="device")

    def leave(self, plane: int, mine: Term) -> None:
        """Store a word as the first of its kind unless the one there may still conflict with other accesses; then as
        the second or third.
        """
        first = self.look(plane)
        epoch = first.cast(dtypes.u32) >> _BELOW_EPOCH
        stale = epoch.differs(self.epoch)
        if self.space == "global":
            stale = stale & self.same_group((first >> 32).cast(dtypes.u32))

        def replace() -> list[Term]:
            self.store(plane, mine)
            return [self.look_again(plane)]

        (now,) = self.f.branch(epoch.equals(0) | stale, replace, lambda: [first])
        who = (now >> 32).cast(dtypes.u32)
        if self.space == "shared":
            self.put(plane + 1, mine, who.differs(self.me))
            return
        together = self.same_group(who)
        self.put(plane + 1, mine, who.differs(self.me) & together)
        self.put(plane + 2, mine, ~together)

    def same_group(self, who: Term) -> Term:
        return ((who ^ self.me) >> LOCAL_BITS).equals(0)

    # -- conflicts

    def compare(self, word: Term, *, differs: Term | None = None) -> None:
        """Add the conflict with the access that a word describes, if there is one.

        `differs` is given if both accesses are writes: the low HASH_BITS bits are the XOR of the hashes of their values.
        They conflict only if it isn't 0.
        """
        who, low = (word >> 32).cast(dtypes.u32), word.cast(dtypes.u32)
        epoch = low >> _BELOW_EPOCH
        unordered = who.differs(self.me) & self._unordered(who, epoch)
        if differs is not None:
            unordered = unordered & (differs & ((1 << HASH_BITS) - 1)).differs(0)
        self.conflicts.append((unordered, word))

    def _unordered(self, who: Term, epoch: Term) -> Term:
        """Return the condition that the access by `who` in `epoch` isn't ordered before this one."""
        races = self.races
        together = epoch.equals(self.epoch)  # never equal for cells without an access: epochs begin at 1
        if races.has_barriers:
            together = together & self.epoch.differs(LAST_EPOCH)
        if races.ordered_invocations:
            together = self.f.term(False, dtypes.boolean)
        if array_of(self.root).space == "shared":
            return together
        same = self.same_group(who)
        inside = same & together
        if races.ordered_groups:
            return inside
        return inside | (~same & epoch.differs(0))

    def report(self) -> None:
        """Report the first conflict."""
        any_conflict, word = self.conflicts[0]
        for condition, other in self.conflicts[1:]:
            word = self.f.select(any_conflict, word, other)
            any_conflict = any_conflict | condition
        kind = array_of(self.root)
        indices = self.op.operands[1 : 1 + kind.rank]
        shown = ", ".join(f"{{{axis}}}" for axis in range(kind.rank))
        name = self.root.name or "memory of a collective"
        text = f"{kind.space} race: {self.how} of {name}[{shown}] isn't ordered with another invocation's access"
        site = self.races.report_site(ReportSite("race", self.op.loc, text))
        self.f.builder.op("report", any_conflict.value, *indices, word.value, site=site)


def _synchronized(ops: list[Op]) -> tuple[bool, bool]:
    """Return two booleans: atomics or fences may order accesses of different workgroups; the same within a workgroup."""
    used = {value for op in ops for value in op.operands}
    atomics = [op for op in ops if op.name.startswith("atomic")]
    seen = [op for op in atomics if op.results and op.result in used]
    fences = [op for op in ops if op.name == "fence"]
    acquiring = [op for op in seen if op.attrs["order"] in ("acquire", "acq_rel")]
    if not acquiring and not (fences and seen):
        return False, False
    marks = [*acquiring, *fences]
    wide = any(op.attrs["scope"] == "device" for op in marks)
    return wide, any(op.attrs["scope"] != "device" for op in marks) or wide


def _hash(f: Formula, value: Value) -> Term:
    """Return a hash of a value in HASH_BITS bits."""
    parts = [value]
    if isinstance(value.type, Vector):
        scalar = Scalar(value.type.dtype)
        parts = [f.builder.emit("vec_extract", value, lane=lane, type=scalar) for lane in range(value.type.size)]
    total = f.term(0, dtypes.u32)
    for part in parts:
        total = (total ^ _word(f, f.term(part))) * _FACTOR
    return total >> (32 - HASH_BITS)


def _word(f: Formula, term: Term) -> Term:
    """Return a scalar as 32 bits."""
    dtype = term.dtype
    if dtype.kind == "bool":
        return f.select(term, f.term(1, dtypes.u32), 0)
    if dtype is dtypes.index:
        term = term.cast(dtypes.i64)
    elif dtype in (dtypes.f16, dtypes.bf16):
        term = term.cast(dtypes.f32)
    bits = term.bits()
    if bits.dtype is dtypes.u64:
        return (bits >> 32).cast(dtypes.u32) ^ bits.cast(dtypes.u32)
    return bits.cast(dtypes.u32)


assert EPOCH_BITS + _BELOW_EPOCH == 32
