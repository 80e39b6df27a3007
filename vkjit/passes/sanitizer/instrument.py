"""The sanitizer pass: instrument a kernel with checks that report errors to the host.

Takes an inlined kernel in normal form (see `ir.verify`), whose attribute `sanitize` lists the requested checks. The
pass `bounds_checks` has already guarded the kernel's accesses. `Sanitize` adds hidden parameters after the user's, and
code around accesses, barriers and arithmetic. This code writes a record to memory for each source location at which a
check fails. The kernel's new attribute `sanitizer_plan` tells the host which hidden arguments to pass and how to read
the records.

After a failed check, the kernel continues. Only two checks change what it computes then: "loops" exits the loop, and
"uniform" replaces the value by that of another invocation.
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
from .uniform_assumptions import UniformAssumptionChecks
from .uninitialized import UninitializedReads

__all__ = ["Sanitize"]


@dataclass(frozen=True, slots=True)
class Sanitize:
    """The sanitizer pass. Kernels without the attribute `sanitize` are left unchanged.

    `deferred`: True to write all records at the end of the kernel (see the module `deferred_reports`). `one_thread`:
    True if the device runs each workgroup in a single thread (see `State`). `shared_bytes`: the shared memory available
    to a workgroup, in bytes.
    """

    name: ClassVar[str] = "sanitize"
    deferred: bool = False
    one_thread: bool = False
    shared_bytes: int = 0

    def run(self, module: Module) -> Module:
        requested = tuple(module.kernel.attrs.get("sanitize", ()))
        if not requested:
            return module
        state = State.of(module, requested, one_thread=self.one_thread)
        tracking = ShadowMemory(state)
        state.plan.stores = tracking.written()
        # without the check "uniform" this instrumentation isn't in `checks`, and its `finish` does nothing
        uniform_assumptions = UniformAssumptionChecks(state)
        checks: list[Check] = []
        if state.has("uninitialised"):
            checks.append(UninitializedReads(state, tracking, self.shared_bytes))
        if state.has("races"):
            checks.append(Races(state, tracking))
        if state.has("uniform"):
            checks.append(uniform_assumptions)
        if state.has("overflow") or state.has("nan"):
            checks.append(Arithmetic(state, state.has("overflow"), state.has("nan")))
        if checks:
            _instrument(module.kernel.body, checks)
        uniform_assumptions.finish()
        if state.has("loops"):
            LoopLimit(state).run(module.kernel.body)
        (defer_records if self.deferred else write_records)(state)
        state.finish()
        return module


class Check(Protocol):
    """The interface of the instrumentation for one kind of check."""

    def before_access(self, op: Op, builder: Builder) -> None:
        """Append the code that belongs before the memory access `op`."""

    def after(self, op: Op, builder: Builder) -> None:
        """Append the code that belongs after the operation `op`; called for every operation of the kernel."""


def _instrument(region: Region, checks: list[Check]) -> None:
    """Rebuild a region with the code that each check emits before each access and after each operation."""
    source, region.ops = region.ops, []
    builder = Builder(region)
    for op in source:
        builder.loc = op.loc
        if op.name in ACCESSES:
            for check in checks:
                check.before_access(op, builder)
        region.ops.append(op)
        for check in checks:
            check.after(op, builder)
        for inner in op.regions:
            _instrument(inner, checks)
