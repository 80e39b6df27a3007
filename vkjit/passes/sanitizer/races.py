"""Data race detection: find two unordered accesses of different invocations to one element, at least one a write.

Two accesses are ordered if they belong to the same invocation, or to the same workgroup with a barrier between them.
Accesses of different workgroups are never ordered. Atomics don't race with each other, nor do writes of the same value.

The check sees accesses in the order in which the device happens to execute them. Each element has a shadow cell of
several shadow words (see `layout`). Each access is compared with the words of earlier accesses in the element's cell,
and leaves a word of its own there. It has one of four kinds: "read" and "write" for plain accesses, "atomic read" for
atomic loads, and "atomic write" for all other atomics. A cell has one word for the last write, and three words for each
other kind that occurs in the kernel::

    write          replaces the word of the last write; compares with that word and with those of all other kinds
    read           records a word; compares with the last write and with atomic writes
    atomic write   records a word; compares with the last write and with reads
    atomic read    records a word; compares with the last write

The first of the three words stays in place as long as its access may still conflict with a later one. While it does,
another access of the same kind goes into the second word if it is from the same workgroup as the first, else into the
third. A later conflicting access therefore finds at least one conflict if there is any.

Words are loaded and stored by relaxed atomics of device scope. An invocation that has stored a first word loads it
again: if two invocations stored it at the same time, the one whose word was overwritten uses the second or third word.

A load isn't instrumented if the same invocation has already loaded the element at the same source location since the
last barrier (see `redundant_reads`). Writes are compared with the word of the first load, which is enough.

Kernels may also synchronize by acquiring atomics, or by fences together with atomics whose results are used. Shadow
words don't record such an order. In these kernels, accesses within a workgroup aren't compared; if such an atomic or
fence has device scope, accesses of different workgroups aren't compared either.
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

LAST_WRITE_PLANE = 0
"""The number of the plane with the words of the last writes. A plane consists of the words with the same number in all
cells.
"""

WORDS_PER_KIND = 3
"""The number of words per cell, and so of planes, for each kind of access except "write"."""

_BELOW_EPOCH = SITE_BITS + HASH_BITS
"""The number of bits below the epoch in a shadow word."""
_FACTOR = 0x9E3779B1
"""2**32 divided by the golden ratio, rounded to an odd number: multiplication by it mixes low bits into high bits."""


@dataclass(slots=True)
class Races:
    """Instrumentation of the accesses to watched arrays of one kernel.

    `watched` are the arrays. `planes` maps each kind of access except "write" to the first of its planes.
    `ordered_groups` is True if atomics or fences may order different workgroups, `ordered_invocations` if they may
    order invocations of one workgroup. `epoch_array` is a local array that holds the invocation's epoch; None if the
    kernel has no barriers. `sites` maps the access sites so far to their numbers, `reported` maps the report sites to
    theirs. `repeated_reads` are the loads that aren't instrumented.
    """

    state: State
    tracking: ShadowMemory
    watched: set[Value] = field(default_factory=set)
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
        kinds = {_access_kind(op) for a in accesses.values() for op in a.all} - {"write"}
        # after the plane of the last writes
        self.planes = {kind: 1 + WORDS_PER_KIND * number for number, kind in enumerate(sorted(kinds))}
        ops = list(self.state.kernel.body.walk())
        self.has_barriers = any(op.name == "barrier" for op in ops)
        self.ordered_groups, self.ordered_invocations = _synchronized(ops)
        if self.watched:
            self.repeated_reads = repeated_reads(self.state.kernel.body)
            self.state.plan.planes = 1 + WORDS_PER_KIND * len(self.planes)
            if self.has_barriers:
                self._count_epochs()

    def _count_epochs(self) -> None:
        """Allocate the epoch counter, a local array with one element that is 1 at the start of the kernel."""
        prologue = self.state.prologue
        counter_type = Array(Scalar(dtypes.u32), 1, space="local", shape=(1,), contiguous=True)
        self.epoch_array = prologue.emit("local", type=counter_type)
        prologue.op("store", self.epoch_array, prologue.index(0), prologue.const(1, dtypes.u32))

    def after(self, op: Op, builder: Builder) -> None:
        """Emit the increment of the epoch after a barrier; the epoch saturates at LAST_EPOCH."""
        if op.name == "barrier" and self.epoch_array is not None:
            f = Formula(builder)
            following = f.call("min", self._epoch(f) + 1, f.term(LAST_EPOCH, dtypes.u32))
            builder.op("store", self.epoch_array, builder.index(0), following.value)

    def _epoch(self, f: Formula) -> Term:
        """Return this invocation's current epoch."""
        if self.epoch_array is None:
            return f.term(1, dtypes.u32)
        return f.term(f.builder.emit("load", self.epoch_array, f.builder.index(0)))

    def before_access(self, op: Op, builder: Builder) -> None:
        """Emit code that compares the access `op` with earlier accesses and stores its shadow word."""
        root = origin(op.operands[0])
        if root not in self.watched or op in self.repeated_reads:
            return
        access = _Access(self, op, root, Formula(builder))
        if op.name == "store":
            access.write()
        else:
            access.read_or_atomic()

    def own_id(self) -> Term:
        """Return the upper 32 bits of this invocation's shadow words: its workgroup's linear id and its local id."""
        cache = self.state.cached_terms
        if "own_id" not in cache:
            group, local = self.state.group.cast(dtypes.u32), self.state.local.cast(dtypes.u32)
            cache["own_id"] = (group << LOCAL_BITS) | local
        return cache["own_id"]

    def site(self, op: Op, kind: str, root: Value) -> int:
        """Return the number of an access site. Sites beyond the available bits share the last number."""
        entry = AccessSite(op.loc, kind, root.name or "")
        if entry not in self.sites and len(self.sites) < (1 << SITE_BITS):
            self.sites[entry] = len(self.sites)
            self.state.plan.sites.append(entry)
        return self.sites.get(entry, (1 << SITE_BITS) - 1)

    def report_site(self, entry: ReportSite) -> int:
        """Return the number of a report site, which all accesses at one source location share."""
        if entry not in self.reported:
            self.reported[entry] = self.state.module.add_site(entry)
        return self.reported[entry]


def _access_kind(op: Op) -> str:
    """Return the kind of an access (see the module docstring)."""
    return {"load": "read", "store": "write", "atomic_load": "atomic read"}.get(op.name, "atomic write")


_CONFLICTS = {"read": ("atomic write",), "atomic write": ("read",), "atomic read": ()}
"""Maps the kind of an access to the kinds that it conflicts with, besides "write"."""


class _Access:
    """Emitter of the instrumentation of one access.

    `kind` is the kind of the access, `cell` the number of the element's shadow cell, and `shadow` the hidden array of
    shadow words. `own_id` is the upper half of this invocation's shadow words. `conflicts` collects a pair for each
    shadow word that the access is compared with: the condition that there is a conflict, and the word.
    """

    def __init__(self, races: Races, op: Op, root: Value, f: Formula) -> None:
        self.races = races
        self.op = op
        self.root = root
        self.f = f
        self.kind = _access_kind(op)
        self.cell = races.tracking.cell(op, f.builder)
        self.shadow = races.state.param("shadow", hidden_array(dtypes.u64))
        self.own_id = f.term(races.own_id().value)  # computed in the prologue; as a term that emits code here
        self.epoch = races._epoch(f)
        self.site = races.site(op, self.kind, root)
        self.conflicts: list[tuple[Term, Term]] = []

    def write(self) -> None:
        """Instrument a plain write. It conflicts with accesses of all kinds, except writes of the same value."""
        value_hash = _hash(self.f, self.op.operands[-1])
        for before in self.exchange_last_write(self.word(value_hash)):
            self.compare(before, hash_difference=before.cast(dtypes.u32) ^ value_hash)
        for kind in self.races.planes:
            self.compare_all(kind)
        self.report()

    def read_or_atomic(self) -> None:
        """Instrument a read or an atomic access."""
        self.record(self.races.planes[self.kind], self.word(self.f.term(0, dtypes.u32)))
        self.compare(self.load_word(LAST_WRITE_PLANE))
        for kind in _CONFLICTS[self.kind]:
            self.compare_all(kind)
        self.report()

    def compare_all(self, kind: str) -> None:
        """Compare this access with all words of the kind `kind`, if the kernel has accesses of that kind."""
        first = self.races.planes.get(kind)
        if first is None:
            return
        words = WORDS_PER_KIND
        if self.space == "shared":
            words -= 1  # the third word is only for other workgroups
        for plane in range(first, first + words):
            self.compare(self.load_word(plane))

    @property
    def space(self) -> str:
        return array_of(self.root).space

    # -- shadow words

    def word(self, value_hash: Term) -> Term:
        """Return this access's shadow word. `value_hash` is the hash of the written value, 0 for other accesses."""
        low = (self.epoch << _BELOW_EPOCH) | (value_hash | (self.site << HASH_BITS))
        return (self.own_id.cast(dtypes.u64) << 32) | low.cast(dtypes.u64)

    def word_index(self, plane: int) -> Value:
        """Return the index of the cell's word in a plane."""
        if plane == LAST_WRITE_PLANE:  # plane 0, whose words come first
            return self.cell.value
        return (self.cell + self.races.state.scalar("cells") * plane).value

    @property
    def without_atomics(self) -> bool:
        """True if shadow words can be accessed without atomics.

        That is so for shared arrays on devices that run a workgroup in one thread. Only the lanes of one vector
        operation can then access a word at the same time.
        """
        return self.races.state.one_thread and self.space == "shared"

    def exchange_last_write(self, word: Term) -> list[Term]:
        """Replace the word of the last write by `word`. Return the words that this write is to be compared with.

        One is the previous word. If the exchange isn't atomic, the word in memory after the store is returned as well,
        since it may be from another lane of the same vector operation.
        """
        if not self.without_atomics:
            attrs: Attrs = {"op": "exchange", "order": "relaxed", "scope": "device"}
            index = self.word_index(LAST_WRITE_PLANE)
            return [self.f.term(self.f.builder.emit("atomic", self.shadow, index, word.value, **attrs))]
        before = self.load_word(LAST_WRITE_PLANE)
        self.store(LAST_WRITE_PLANE, word)
        return [before, self.reload_word(LAST_WRITE_PLANE)]

    def load_word(self, plane: int) -> Term:
        """Load the cell's word in a plane."""
        if not self.without_atomics:
            return self.reload_word(plane)
        return self.f.term(self.f.builder.emit("load", self.shadow, self.word_index(plane)))

    def reload_word(self, plane: int) -> Term:
        """Load a word after this invocation has stored to it: another invocation may have overwritten it.

        If the load isn't atomic, the hidden parameter "zero" is added to the index. The compiler then can't prove that
        the load and the store have the same address, so it doesn't replace the load by the stored value.
        """
        index = self.word_index(plane)
        if self.without_atomics:
            again = self.f.term(index) + self.f.term(self.races.state.scalar("zero").value)
            return self.f.term(self.f.builder.emit("load", self.shadow, again.value))
        return self.f.term(self.f.builder.emit("atomic_load", self.shadow, index, order="relaxed", scope="device"))

    def store_if(self, plane: int, word: Term, condition: Term) -> None:
        """Store a word in invocations where the condition holds."""

        def store() -> list[Term]:
            self.store(plane, word)
            return []

        self.f.branch(condition, store, list)  # `list` emits nothing and returns no values

    def store(self, plane: int, word: Term) -> None:
        """Store a word in a plane of the cell."""
        index = self.word_index(plane)
        if self.without_atomics:
            self.f.builder.op("store", self.shadow, index, word.value)
            return
        self.f.builder.op("atomic_store", self.shadow, index, word.value, order="relaxed", scope="device")

    def record(self, plane: int, own_word: Term) -> None:
        """Store `own_word` in one of the three planes that begin at `plane` (see the module docstring).

        The first word is replaced if it is unused or if it is from an earlier epoch of this workgroup. In the second
        case no race is missed: a later access that conflicts with the replaced one conflicts with this one, too.
        """
        first = self.load_word(plane)
        epoch = first.cast(dtypes.u32) >> _BELOW_EPOCH
        stale = epoch.differs(self.epoch)
        if self.space == "global":
            stale = stale & self.same_group((first >> 32).cast(dtypes.u32))

        def replace() -> list[Term]:
            self.store(plane, own_word)
            return [self.reload_word(plane)]

        (current_word,) = self.f.branch(epoch.equals(0) | stale, replace, lambda: [first])
        # if the first word is now that of another invocation, use the second or third word
        owner = (current_word >> 32).cast(dtypes.u32)
        if self.space == "shared":
            self.store_if(plane + 1, own_word, owner.differs(self.own_id))
            return
        in_same_group = self.same_group(owner)
        self.store_if(plane + 1, own_word, owner.differs(self.own_id) & in_same_group)
        self.store_if(plane + 2, own_word, ~in_same_group)

    def same_group(self, other_id: Term) -> Term:
        """Return the condition that the invocation `other_id` (upper half of a shadow word) is in this workgroup."""
        return ((other_id ^ self.own_id) >> LOCAL_BITS).equals(0)

    # -- conflicts

    def compare(self, word: Term, *, hash_difference: Term | None = None) -> None:
        """Add the condition that this access conflicts with the one that a shadow word describes.

        `hash_difference` is given if both accesses are writes. Its low HASH_BITS bits are the XOR of the hashes of the
        written values. If they are 0, the values are considered equal and there is no conflict.
        """
        other_id, low = (word >> 32).cast(dtypes.u32), word.cast(dtypes.u32)
        epoch = low >> _BELOW_EPOCH
        unordered = other_id.differs(self.own_id) & self._unordered(other_id, epoch)
        if hash_difference is not None:
            unordered = unordered & (hash_difference & ((1 << HASH_BITS) - 1)).differs(0)
        self.conflicts.append((unordered, word))

    def _unordered(self, other_id: Term, epoch: Term) -> Term:
        """Return the condition that the access by invocation `other_id` in `epoch` isn't ordered before this one.

        Two accesses of one workgroup are unordered if they are in the same epoch. Accesses of different workgroups are
        always unordered. For kernels with synchronizing atomics or fences, see `Races`.
        """
        races = self.races
        same_epoch = epoch.equals(self.epoch)  # never true for an unused word: its epoch is 0, and epochs begin at 1
        if races.has_barriers:  # in the last epoch the counter is saturated, so barriers can't be seen
            same_epoch = same_epoch & self.epoch.differs(LAST_EPOCH)
        if races.ordered_invocations:
            same_epoch = self.f.term(False, dtypes.boolean)
        if array_of(self.root).space == "shared":
            return same_epoch
        in_same_group = self.same_group(other_id)
        unordered_in_group = in_same_group & same_epoch
        if races.ordered_groups:
            return unordered_in_group
        return unordered_in_group | (~in_same_group & epoch.differs(0))  # epoch 0: an unused word

    def report(self) -> None:
        """Emit a report that fires if there is a conflict.

        Its values are the indices of the element and the first of the `conflicts` words that is in conflict.
        """
        any_conflict, word = self.conflicts[0]
        for condition, other in self.conflicts[1:]:
            word = self.f.select(any_conflict, word, other)
            any_conflict = any_conflict | condition
        array_type = array_of(self.root)
        indices = self.op.operands[1 : 1 + array_type.rank]
        shown = ", ".join(f"{{{axis}}}" for axis in range(array_type.rank))
        name = self.root.name or "memory of a collective"
        text = f"{array_type.space} race: {self.kind} of {name}[{shown}] isn't ordered with another invocation's access"
        site = self.races.report_site(ReportSite("race", self.op.loc, text))
        self.f.builder.op("report", any_conflict.value, *indices, word.value, site=site)


def _synchronized(ops: list[Op]) -> tuple[bool, bool]:
    """Return (`ordered_groups`, `ordered_invocations`) of `Races`: what atomics and fences may order.

    A fence orders nothing by itself. It needs an atomic whose result tells an invocation about another one's progress.
    """
    used = {value for op in ops for value in op.operands}
    atomics = [op for op in ops if op.name.startswith("atomic")]
    used_atomics = [op for op in atomics if op.results and op.result in used]
    fences = [op for op in ops if op.name == "fence"]
    acquiring = [op for op in used_atomics if op.attrs["order"] in ("acquire", "acq_rel")]
    if not acquiring and not (fences and used_atomics):
        return False, False
    # an order at any scope, workgroup or device, holds within a workgroup
    device_wide = any(op.attrs["scope"] == "device" for op in (*acquiring, *fences))
    return device_wide, True


def _hash(f: Formula, value: Value) -> Term:
    """Return a hash of a scalar or vector value in the low HASH_BITS bits of a u32."""
    parts = [value]
    if isinstance(value.type, Vector):
        scalar = Scalar(value.type.dtype)
        parts = [f.builder.emit("vec_extract", value, lane=lane, type=scalar) for lane in range(value.type.size)]
    total = f.term(0, dtypes.u32)
    for part in parts:
        total = (total ^ _word(f, f.term(part))) * _FACTOR
    return total >> (32 - HASH_BITS)


def _word(f: Formula, term: Term) -> Term:
    """Return the bits of a scalar as a u32; the halves of a 64-bit scalar are combined by XOR."""
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
