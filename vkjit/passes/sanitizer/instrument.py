"""Instrumentation of kernels with the sanitizer's checks.

Takes an inlined kernel in normal form whose attribute `sanitize` names checks and whose accesses are guarded
(see `bounds_checks`). Adds hidden parameters after the user's, and code around accesses, barriers and arithmetic. The
code writes a record for each source location at which a check fails. The attribute `sanitizer_plan` tells the launch
what to pass and how to read records. The kernel continues after a report, with the results that it would have without
the sanitizer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from vkjit.ir.builder import Builder
from vkjit.ir.core import Module, Op, Region

from .arithmetic import Arithmetic
from .deferred_reports import defer_records
from .loop_limit import LoopLimit
from .races import Races
from .report_records import write_records
from .shadow import ACCESSES, ShadowMemory
from .state import State
from .uniform_assumptions import Promises
from .uninitialized import UninitializedReads

__all__ = ["Sanitize"]


@dataclass(frozen=True, slots=True)
class Sanitize:
    """The sanitizer pass; kernels without the attribute `sanitize` are unchanged.

    `deferred`: write records at the end of the kernel (see the module `deferred_reports`). `one_thread`: see `State`.
    `shared_bytes`: the shared memory available to a workgroup.
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
        tracking = ShadowMemory(state)
        state.plan.stores = tracking.written()
        # Created even without the check "uniform": `finish` then has nothing to replace.
        promises = Promises(state)
        parts: list[Part] = []
        if state.has("uninitialised"):
            parts.append(UninitializedReads(state, tracking, self.shared_bytes))
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
            LoopLimit(state).run(module.kernel.body)
        (defer_records if self.deferred else write_records)(state)
        state.finish()
        return module


class Part(Protocol):
    """One kind of check."""

    def before_access(self, op: Op, builder: Builder) -> None:
        """Append code before a memory access."""

    def after(self, op: Op, builder: Builder) -> None:
        """Append code after an operation."""


def _instrument(region: Region, parts: list[Part]) -> None:
    """Call each part before each access and after each operation."""
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
