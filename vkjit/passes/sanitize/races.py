"""Races: two invocations at one element, one of them writes, and nothing orders them.

Ordered are accesses of one invocation, and accesses of one workgroup with a barrier between; nothing orders workgroups,
and atomics don't race with each other. Writes of one value are no race among themselves.

Each watched cell has shadow words (see `plan`): the last writer, and three words each for readers, for atomics that write
and for atomics that read, as far as the kernel has them. An access compares itself with those that it conflicts with and
leaves its own word::

    write          exchanges the writer's word; looks at that and at all others
    read           leaves a word; looks at the writer and at atomics that write
    atomic write   leaves a word; looks at the writer and at readers
    atomic read    leaves a word; looks at the writer

Of three words, the first is of an access that could still conflict with somebody, and stays; one that comes to it from
the same workgroup takes the second, one from another workgroup the third. Whoever has to look then finds somebody to
conflict with, if there ever was one. Words are read and written by relaxed atomics on device scope, and who stored a first
word looks again: of two invocations in lockstep, the one that lost it takes the second or third.

A read that repeats one of the same invocation, place in the source and epoch leaves nothing new (see `repeated`): whoever
writes there finds the first.

Kernels that pass on data with acquiring atomics, or with fences and atomics whose result is used, order accesses in ways
that barriers don't show. There, accesses within a workgroup aren't compared, nor, where such an atomic or fence is of
device scope, accesses of different workgroups.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ... import dtypes
from ...errors import ReportSite
from ...ir.builder import Builder
from ...ir.core import Op, Value
from ...ir.types import Array, Scalar, Vector
from ..formula import Formula, Term
from ..memory import origin
from .plan import EPOCH_BITS, HASH_BITS, LAST_EPOCH, LOCAL_BITS, SITE_BITS, AccessSite
from .repeated import repeated_reads
from .state import State, hidden_array
from .tracking import Tracking, array_of

__all__ = ["Races"]

WRITER = 0
"""The plane of shadow words of the last writers."""

WORDS = 3
"""Planes for accesses of each other kind."""

_BELOW_EPOCH = SITE_BITS + HASH_BITS
_FACTOR = 0x9E3779B1
"""2**32 over the golden ratio, odd: products spread their information to the high bits."""


@dataclass(slots=True)
class Races:
    """Instruments accesses to watched arrays, and counts barriers."""

    state: State
    tracking: Tracking
    watched: set[Value] = field(default_factory=set)
    shared: bool = False
    planes: dict[str, int] = field(default_factory=dict)
    barriers: bool = False
    ordered_groups: bool = False
    ordered_invocations: bool = False
    epoch_array: Value | None = None
    sites: dict[AccessSite, int] = field(default_factory=dict)
    reported: dict[ReportSite, int] = field(default_factory=dict)
    known: set[Op] = field(default_factory=set)

    def __post_init__(self) -> None:
        found = self.tracking.racing()
        self.watched = set(found)
        kinds = {_how(op) for a in found.values() for op in a.all} - {"write"}
        self.planes = {how: 1 + WORDS * number for number, how in enumerate(sorted(kinds))}
        ops = list(self.state.kernel.body.walk())
        self.barriers = any(op.name == "barrier" for op in ops)
        self.ordered_groups, self.ordered_invocations = _passed_on(ops)
        if self.watched:
            self.known = repeated_reads(self.state.kernel.body)
            self.state.plan.planes = 1 + WORDS * len(self.planes)
            if self.barriers:
                self._count_epochs()

    def _count_epochs(self) -> None:
        """A local array of one element: the number of barriers so far, from 1."""
        prologue = self.state.prologue
        kind = Array(Scalar(dtypes.u32), 1, space="local", shape=(1,), contiguous=True)
        self.epoch_array = prologue.emit("local", type=kind)
        prologue.op("store", self.epoch_array, prologue.index(0), prologue.const(1, dtypes.u32))

    def after(self, op: Op, builder: Builder) -> None:
        """After a barrier the next epoch begins."""
        if op.name == "barrier" and self.epoch_array is not None:
            f = Formula(builder)
            following = f.call("min", self._epoch(f) + 1, f.term(LAST_EPOCH, dtypes.u32))
            builder.op("store", self.epoch_array, builder.index(0), following.value)

    def _epoch(self, f: Formula) -> Term:
        if self.epoch_array is None:
            return f.term(1, dtypes.u32)
        return f.term(f.builder.emit("load", self.epoch_array, f.builder.index(0)))

    def before_access(self, op: Op, builder: Builder) -> None:
        """Compares an access with others, and leaves its word."""
        root = origin(op.operands[0])
        if root not in self.watched or op in self.known:
            return
        access = _Access(self, op, root, Formula(builder))
        if op.name == "store":
            access.write()
        else:
            access.other()

    def me(self) -> Term:
        """The invocation as the upper half of its words."""
        known = self.state.known
        if "me" not in known:
            group, local = self.state.group.cast(dtypes.u32), self.state.local.cast(dtypes.u32)
            known["me"] = (group << LOCAL_BITS) | local
        return known["me"]

    def site(self, op: Op, how: str, root: Value) -> int:
        """The number of a place in the source; places past the room for them share the last number."""
        entry = AccessSite(op.loc, how, root.name or "")
        if entry not in self.sites and len(self.sites) < (1 << SITE_BITS):
            self.sites[entry] = len(self.sites)
            self.state.plan.sites.append(entry)
        return self.sites.get(entry, (1 << SITE_BITS) - 1)

    def report_site(self, entry: ReportSite) -> int:
        """The number of a report site, which all accesses of a place in the source share."""
        if entry not in self.reported:
            self.reported[entry] = self.state.module.add_site(entry)
        return self.reported[entry]


def _how(op: Op) -> str:
    """How an operation accesses memory: the kind of its words."""
    return {"load": "read", "store": "write", "atomic_load": "atomic read"}.get(op.name, "atomic write")


_CONFLICTS = {"read": ("atomic write",), "atomic write": ("read",), "atomic read": ()}
"""With whom an access conflicts, beside writers."""


class _Access:
    """One access on its way to being instrumented."""

    def __init__(self, races: Races, op: Op, root: Value, f: Formula) -> None:
        self.races, self.op, self.root, self.f, self.how = races, op, root, f, _how(op)
        self.cell = races.tracking.cell(op, f.builder)
        self.shadow = races.state.param("shadow", hidden_array(dtypes.u64))
        self.me = f.term(races.me().value)
        self.epoch = races._epoch(f)
        self.site = races.site(op, self.how, root)
        self.conflicts: list[tuple[Term, Term]] = []

    def write(self) -> None:
        """A plain write conflicts with everybody; writes of one value don't."""
        mark = _hash(self.f, self.op.operands[-1])
        for before in self.leave_write(self.word(mark)):
            self.compare(before, differs=before.cast(dtypes.u32) ^ mark)
        for how in self.races.planes:
            self.compare_all(how)
        self.report()

    def other(self) -> None:
        """Any other access."""
        self.leave(self.races.planes[self.how], self.word(self.f.term(0, dtypes.u32)))
        self.compare(self.look(WRITER))
        for how in _CONFLICTS[self.how]:
            self.compare_all(how)
        self.report()

    def compare_all(self, how: str) -> None:
        """Compares with the words of one kind, where the kernel has them."""
        first = self.races.planes.get(how)
        words = WORDS - 1 if self.space == "shared" else WORDS  # the third is for other workgroups
        for number in range(0 if first is None else words):
            self.compare(self.look((first or 0) + number))

    @property
    def space(self) -> str:
        return array_of(self.root).space

    # -- words

    def word(self, mark: Term) -> Term:
        low = (self.epoch << _BELOW_EPOCH) | (mark | (self.site << HASH_BITS))
        return (self.me.cast(dtypes.u64) << 32) | low.cast(dtypes.u64)

    def place(self, plane: int) -> Value:
        if plane == 0:
            return self.cell.value
        return (self.cell + self.races.state.scalar("cells") * plane).value

    @property
    def plain(self) -> bool:
        """Whether nobody changes words at the same time, but lanes of one vector in one operation."""
        return self.races.state.one_thread and self.space == "shared"

    def leave_write(self, word: Term) -> list[Term]:
        """Leaves the writer's word; the words of those that wrote before, and in the same operation."""
        if not self.plain:
            attrs = {"op": "exchange", "order": "relaxed", "scope": "device"}
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
        """The word as it is now, whatever this invocation stored. A plain load is at a place of which compilers don't know
        that it is the one stored to."""
        place = self.place(plane)
        if self.plain:
            again = self.f.term(place) + self.f.term(self.races.state.scalar("zero").value)
            return self.f.term(self.f.builder.emit("load", self.shadow, again.value))
        return self.f.term(self.f.builder.emit("atomic_load", self.shadow, place, order="relaxed", scope="device"))

    def put(self, plane: int, word: Term, condition: Term) -> None:
        """Stores a word where the condition holds."""

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
        """Puts a word into the first of its places unless the one there may still conflict with somebody; else beside."""
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
        """Notes a conflict with the access of a word. `differs`: bits by which the values differ."""
        who, low = (word >> 32).cast(dtypes.u32), word.cast(dtypes.u32)
        epoch = low >> _BELOW_EPOCH
        unordered = who.differs(self.me) & self._unordered(who, epoch)
        if differs is not None:
            unordered = unordered & (differs & ((1 << HASH_BITS) - 1)).differs(0)
        self.conflicts.append((unordered, word))

    def _unordered(self, who: Term, epoch: Term) -> Term:
        races = self.races
        together = epoch.equals(self.epoch)  # never with a cell that nobody touched: epochs begin at 1
        if races.barriers:
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
        """One report of the first conflict found."""
        found, word = self.conflicts[0]
        for condition, other in self.conflicts[1:]:
            word = self.f.select(found, word, other)
            found = found | condition
        kind = array_of(self.root)
        indices = self.op.operands[1 : 1 + kind.rank]
        shown = ", ".join(f"{{{axis}}}" for axis in range(kind.rank))
        name = self.root.name or "memory of a collective"
        text = f"{kind.space} race: {self.how} of {name}[{shown}] isn't ordered with another invocation's access"
        site = self.races.report_site(ReportSite("race", self.op.loc, text))
        self.f.builder.op("report", found.value, *indices, word.value, site=site)


def _passed_on(ops: list[Op]) -> tuple[bool, bool]:
    """Whether atomics and fences may order accesses of different workgroups, and those of one workgroup."""
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
    """A value in HASH_BITS bits."""
    parts = [value]
    if isinstance(value.type, Vector):
        scalar = Scalar(value.type.dtype)
        parts = [f.builder.emit("vec_extract", value, lane=lane, type=scalar) for lane in range(value.type.size)]
    total = f.term(0, dtypes.u32)
    for part in parts:
        total = (total ^ _word(f, f.term(part))) * _FACTOR
    return total >> (32 - HASH_BITS)


def _word(f: Formula, term: Term) -> Term:
    """A scalar as 32 bits."""
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
