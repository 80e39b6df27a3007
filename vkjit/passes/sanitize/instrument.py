"""Builds the sanitizer's checks into a kernel.

Before: a kernel in normal form, inlined, with the attribute `sanitize` (names of checks) and guarded accesses (`bounds`).
After: with hidden parameters behind the user's, and with code around accesses, barriers and arithmetic that writes a
record for each place where something is wrong; `sanitizer_plan` among its attributes says what the launch has to give
and how records are read. The kernel goes on after a finding, and computes what it would have computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from ...ir.builder import Builder
from ...ir.core import Module, Op, Region
from .arithmetic import Arithmetic
from .deferred import defer_records
from .endless import Endless
from .initialised import Initialised
from .promises import Promises
from .races import Races
from .records import write_records
from .state import State
from .tracking import ACCESSES, Tracking

__all__ = ["Sanitize"]


@dataclass(frozen=True, slots=True)
class Sanitize:
    """Does nothing to kernels without the attribute. See the module's docstring.

    `deferred`: see the module of that name. `one_thread`: see `state`. `shared_bytes`: what a workgroup may have of shared memory.
    """

    name: ClassVar[str] = "sanitize"
    deferred: bool = False
    one_thread: bool = False
    shared_bytes: int = 0

    def run(self, module: Module) -> Module:
        checks = tuple(module.kernel.attrs.get("sanitize", ()))
        if not checks:
            return module
        state = State.of(module, checks, one_thread=self.one_thread)
        tracking = Tracking(state)
        state.plan.stores = tracking.written()
        promises = Promises(state)
        parts: list[Part] = []
        if state.has("uninitialised"):
            parts.append(Initialised(state, tracking, self.shared_bytes))
        if state.has("races"):
            parts.append(Races(state, tracking))
        if state.has("uniform"):
            parts.append(promises)
        if state.has("overflow") or state.has("nan"):
            parts.append(Arithmetic(state, state.has("overflow"), state.has("nan")))
        if parts:
            _instrument(module.kernel.body, parts)
        promises.finish()
        if state.has("loops"):
            Endless(state).run(module.kernel.body)
        (defer_records if self.deferred else write_records)(state)
        state.finish()
        return module


class Part(Protocol):
    """One kind of check."""

    def before_access(self, op: Op, builder: Builder) -> None:
        """Appends what stands before an access to memory."""

    def after(self, op: Op, builder: Builder) -> None:
        """Appends what follows an operation."""


def _instrument(region: Region, parts: list[Part]) -> None:
    """Asks each part at each operation for what stands before and after it."""
    source, region.ops = region.ops, []
    builder = Builder(region)
    for op in source:
        builder.loc = op.loc
        if op.name in ACCESSES:
            for part in parts:
                part.before_access(op, builder)
        region.ops.append(op)
        for part in parts:
            part.after(op, builder)
        for inner in op.regions:
            _instrument(inner, parts)
