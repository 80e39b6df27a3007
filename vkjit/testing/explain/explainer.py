"""Turn a finding (a failing case, see `Finding`) into the `CheckFailure` that a property test raises.

Shrinks the case, looks for larger cases that fail in the same way, locates the bug in the source, and looks for a small
edit that repairs the kernel and for a precondition that the user may have forgotten to state.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from vkjit.backends.interp.runtime.device import INTERPRETER_CAPS
from vkjit.errors import ArgumentError, BoundsError, CompileError, KernelError
from vkjit.launch.kernel import Kernel

from ..cases.case import Case
from ..cases.schedules import PLAIN, Schedule
from ..execution.run import executors
from ..generate.block_sizes import MAX_CASES
from ..generate.directed import directed_cases
from ..search.finding import Finding
from ..search.search import Search
from ..shrink.shrinker import larger_cases, shrink
from . import provenance
from .failures import CheckFailure, Provenance
from .localize import ALL, FINITE, Repair, find_repair, guards_of
from .preconditions import PreconditionHints
from .screening import still_fails

__all__ = ["Explainer"]

_REPAIR_CASES = 24
"""Number of directed cases (see `generate.directed`) that a candidate repair has to pass besides the failing ones,
before a search confirms it.
"""

_MAX_REPAIR_ELEMENTS = 1 << 12
"""Maximum number of elements of these cases, which keeps them fast."""

_EVIDENCE_EXAMPLES = 40
"""Number of inputs of a search that confirms a repair or a hint."""


class Explainer:
    """Builds the `CheckFailure` for a finding of a search."""

    def __init__(self, search: Search) -> None:
        self.search = search
        self.kernel = search.kernel
        self.drawing = search.drawing
        self.settings = search.settings

    def failure(self, finding: Finding) -> CheckFailure:
        """Shrink a finding and return the failure that describes it."""
        search, shadow = self.search, self.search.examiner.shadow
        finding = shrink(finding, self.drawing, lambda case, schedule: search.again(finding, case, schedule))
        self._look_for_larger(finding)
        stores = tuple(provenance.stores_to(self.kernel, shadow, finding))
        origin = Provenance(
            provenance.writer(shadow, finding),
            stores,
            tuple(guards_of(self.kernel, stores)) if finding.kind == "unwritten" else (),
            self._find_repair(finding) if _is_repairable(finding) else None,
            tuple(provenance.nan_losses(shadow, finding)),
            tuple(provenance.nonfinite_origins(shadow, finding)),
        )
        hint = self._find_hint(finding) or self._subgroups(finding)
        failure = CheckFailure(self.kernel, finding, origin, search.larger, search.groups, hint, search.seed)
        if self.settings["script"] is not None:
            failure.write_script(self.settings["script"])
        return failure

    def _find_repair(self, finding: Finding) -> Repair | None:
        """Find a small edit of the kernel that makes it pass the failing cases, some directed ones, and a new search.

        All runs are in the interpreter. Without a reference or properties, only edits that preserve correct results are
        tried.
        """
        cases = [finding.case, *(f.case for f in self.search.larger)]
        directed = itertools.islice(directed_cases(self.drawing), _REPAIR_CASES + MAX_CASES)
        cases += [case for case in directed if case.size() <= _MAX_REPAIR_ELEMENTS][:_REPAIR_CASES]
        nonfinite = [case for case in cases if not case.is_finite()]
        finite = [case for case in cases if case.is_finite()]

        def passes(kernel: Kernel) -> str:
            """Return which cases an edited kernel passes: ALL, FINITE (those without NaN and infinities) or ""."""
            only = executors(kernel, "interpreter", self.search.groups)
            if still_fails(only[0], finding):
                return ""
            examiner = self.search.examiner_of(kernel, only)
            schedules = {e.name: finding.schedule for e in only}

            def passes_all(some: list[Case]) -> bool:
                return all(examiner.examine(case, schedules) is None for case in some)

            if finding.case.is_finite():
                return "" if not passes_all(finite) else ALL if passes_all(nonfinite) else FINITE
            return ALL if passes_all(cases) else ""

        def confirmed(kernel: Kernel, which: str) -> bool:
            """True if a new search finds no failure of an edited kernel. `which` is ALL or FINITE."""
            return self._search_with(kernel, {} if which == ALL else {"special": False}) is None

        schedule = replace(finding.schedule, optimization=None, debug=None)
        finding = replace(finding, schedule=schedule)
        with contextlib.suppress(CompileError, ArgumentError, KernelError):
            if passes(self.kernel):
                return None  # the failure doesn't occur in the interpreter
            # without expected results, a kernel that does nothing would pass, since its runs agree with each other
            has_expectation = self.search.reference is not None or bool(self.search.judges)
            return find_repair(self.kernel, passes, confirmed, preserving=not has_expectation)
        return None

    def _find_hint(self, finding: Finding) -> str:
        """Return a hint about a missing precondition (see `preconditions`); "" if there is none."""

        def examine(case: Case) -> Finding | None:
            schedules = dict.fromkeys((e.name for e in self.search.examiner.executors), PLAIN)
            return self.search.examiner.examine(case, {**schedules, finding.executor: finding.schedule})

        def searched(changes: Mapping[str, Any]) -> Finding | None:
            return self._search_with(self.kernel, changes)

        return PreconditionHints(self.drawing, self.settings["elements"] or {}, examine, searched).hint_for(finding)

    def _subgroups(self, finding: Finding) -> str:
        """Return a hint if the failure depends on the subgroup size; "" otherwise.

        The failure depends on it if, in the interpreter, the case passes with the default size and fails with the size
        of the device on which it failed.
        """
        size, default = self._size_of_subgroups(finding), INTERPRETER_CAPS.subgroup_size
        if finding.flags is None or size in (None, default) or not self.search.uses_subgroups():
            return ""
        only = executors(self.kernel, "interpreter", self.search.groups)
        examiner = self.search.examiner_of(self.kernel, only)
        with contextlib.suppress(CompileError, ArgumentError, KernelError):
            right, wrong = (
                examiner.examine(finding.case, {only[0].name: Schedule(subgroup_size=s)}) for s in (default, size)
            )
            if right is None and wrong is not None and wrong.failure_key == finding.failure_key:
                return (
                    f"subgroups have {size} invocations here, and with {default} the same input comes out right: sizes differ from "
                    "device to device, ask for vk.subgroup().size()"
                )
        return ""

    def _size_of_subgroups(self, finding: Finding) -> int | None:
        """Return the subgroup size of the failing launch; None if the interpreter doesn't support it.

        On the CPU, the subgroup size is the vector width.
        """
        device = next((e.device for e in self.search.executors if e.name == finding.executor), None)
        if device is None:
            return None
        schedule = finding.schedule
        own = schedule.subgroup_size if device.caps.kind == "interpreter" else schedule.vector_width
        size = own if own is not None else device.caps.subgroup_size
        return size if size in INTERPRETER_CAPS.subgroup_sizes else None

    def _search_with(self, kernel: Kernel, changes: Mapping[str, Any]) -> Finding | None:
        """Run a short search on a kernel in the interpreter, with some of the user's settings changed.

        Returns its finding, or None.
        """
        few = {"devices": "interpreter", "max_examples": _EVIDENCE_EXAMPLES, "seed": 1, "schedules": False}
        check = Search(kernel, self.search.reference, None, {**self.settings, **few, **changes})
        check.examiner.judges = self.search.examiner.judges
        return check.first()

    def _look_for_larger(self, finding: Finding) -> None:
        """Collect larger cases that fail in the same way, since they show the pattern of the wrong elements."""
        if finding.flags is None:
            return
        for case in larger_cases(finding.case, self.drawing, self.kernel):
            found = self.search.again(finding, case, finding.schedule)
            if found is not None:
                self.search.larger.append(found)


def _is_repairable(finding: Finding) -> bool:
    """True if editing a single value may fix the failure.

    Races and divergent barriers need more than that, and a disagreement of two runs doesn't show which one is right.
    """
    kinds = {r.kind for r in finding.reports}
    return (
        (finding.flags is not None and finding.kind != "disagreement")
        or isinstance(finding.error, BoundsError)
        or (bool(kinds) and kinds <= {"out_of_bounds"})
    )
