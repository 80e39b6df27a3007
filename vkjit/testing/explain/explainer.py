"""Turn a finding (a failing case, see `Finding`) into the `CheckFailure` that a property test raises.

`Explainer.failure` shrinks the case, looks for larger cases that fail in the same way, locates the bug in the source,
and looks for a small edit that repairs the kernel. It also looks for a precondition that the user may have forgotten to
state.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from vkjit.backends.interp import INTERPRETER_CAPS
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
"""Number of directed cases (see `generate.directed`) that a candidate repair has to pass, besides the failing cases,
before a search confirms the repair.
"""

_MAX_REPAIR_ELEMENTS = 1 << 12
"""Maximum number of elements of these directed cases, which keeps them fast."""

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
            write=provenance.writer(shadow, finding),
            stores=stores,
            guards=tuple(guards_of(self.kernel, stores)) if finding.kind == "unwritten" else (),
            repair=self._find_repair(finding) if _is_repairable(finding) else None,
            nan_losses=tuple(provenance.nan_losses(shadow, finding)),
            nonfinite_origins=tuple(provenance.nonfinite_origins(shadow, finding)),
        )
        hint = self._find_hint(finding) or self._subgroup_hint(finding)
        failure = CheckFailure(self.kernel, finding, origin, search.larger, search.groups, hint, search.seed)
        if self.settings["script"] is not None:
            failure.write_script(self.settings["script"])
        return failure

    def _find_repair(self, finding: Finding) -> Repair | None:
        """Find a small edit with which the kernel passes the failing cases, some directed cases, and a new search.

        All runs are in the interpreter. Without a reference or properties, only edits that preserve correct results are
        tried.
        """
        # optimization=None and debug=None: the defaults of the interpreter and of the kernel
        finding = replace(finding, schedule=replace(finding.schedule, optimization=None, debug=None))
        cases = [finding.case, *(f.case for f in self.search.larger)]
        # up to MAX_CASES of the directed cases may be large (see `block_sizes`) and are left out here
        directed = itertools.islice(directed_cases(self.drawing), _REPAIR_CASES + MAX_CASES)
        cases += [case for case in directed if case.size() <= _MAX_REPAIR_ELEMENTS][:_REPAIR_CASES]
        nonfinite = [case for case in cases if not case.is_finite()]
        finite = [case for case in cases if case.is_finite()]

        def passes(kernel: Kernel) -> str:
            """Return which cases an edited kernel passes: ALL, FINITE (only those without NaN and infinities) or ""."""
            interpreter_only = executors(kernel, "interpreter", self.search.groups)
            if still_fails(interpreter_only[0], finding):
                return ""
            examiner = self.search.examiner_of(kernel, interpreter_only)
            schedules = {e.name: finding.schedule for e in interpreter_only}

            def passes_all(subset: list[Case]) -> bool:
                return all(examiner.examine(case, schedules) is None for case in subset)

            if not finding.case.is_finite():  # to pass only finite cases wouldn't repair this failure
                return ALL if passes_all(cases) else ""
            if not passes_all(finite):
                return ""
            return ALL if passes_all(nonfinite) else FINITE

        def confirmed(kernel: Kernel, case_set: str) -> bool:
            """True if a new search finds no failure of an edited kernel. If `case_set` is FINITE, inputs are finite."""
            return self._search_with(kernel, {} if case_set == ALL else {"special": False}) is None

        with contextlib.suppress(CompileError, ArgumentError, KernelError):
            if passes(self.kernel):
                return None  # the failure doesn't occur in the interpreter
            # without expected results, a kernel that does nothing would pass, since its runs agree with each other
            has_expectation = self.search.reference is not None or bool(self.search.properties)
            return find_repair(self.kernel, passes, confirmed, preserving=not has_expectation)
        return None

    def _find_hint(self, finding: Finding) -> str:
        """Return a hint about a missing precondition (see `preconditions`); "" if there is none."""

        def examine(case: Case) -> Finding | None:
            schedules = dict.fromkeys((e.name for e in self.search.examiner.executors), PLAIN)
            return self.search.examiner.examine(case, {**schedules, finding.executor: finding.schedule})

        def search(changes: Mapping[str, Any]) -> Finding | None:
            return self._search_with(self.kernel, changes)

        return PreconditionHints(self.drawing, self.settings["elements"] or {}, examine, search).hint_for(finding)

    def _subgroup_hint(self, finding: Finding) -> str:
        """Return a hint if the failure depends on the subgroup size; "" otherwise.

        This is so if, in the interpreter, the case passes with the interpreter's default size, but fails with the size
        of the device on which the finding was made.
        """
        size, default = self._size_of_subgroups(finding), INTERPRETER_CAPS.subgroup_size
        # `flags` marks the wrong elements; it is None for failures other than wrong results
        if finding.flags is None or size in (None, default) or not self.search.uses_subgroups():
            return ""
        interpreter_only = executors(self.kernel, "interpreter", self.search.groups)
        examiner = self.search.examiner_of(self.kernel, interpreter_only)
        with contextlib.suppress(CompileError, ArgumentError, KernelError):
            with_default, with_device_size = (
                examiner.examine(finding.case, {interpreter_only[0].name: Schedule(subgroup_size=s)})
                for s in (default, size)
            )
            if (
                with_default is None
                and with_device_size is not None
                and with_device_size.failure_key == finding.failure_key
            ):
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
        scheduled_size = schedule.subgroup_size if device.caps.kind == "interpreter" else schedule.vector_width
        size = scheduled_size if scheduled_size is not None else device.caps.subgroup_size
        return size if size in INTERPRETER_CAPS.subgroup_sizes else None

    def _search_with(self, kernel: Kernel, changes: Mapping[str, Any]) -> Finding | None:
        """Run a short search on a kernel in the interpreter, with some of the user's settings changed.

        Returns its finding, or None.
        """
        limits = {"devices": "interpreter", "max_examples": _EVIDENCE_EXAMPLES, "seed": 1, "schedules": False}
        short_search = Search(kernel, self.search.reference, None, {**self.settings, **limits, **changes})
        short_search.examiner.properties = self.search.examiner.properties
        return short_search.first()

    def _look_for_larger(self, finding: Finding) -> None:
        """Collect larger cases that fail in the same way, since they show the pattern of the wrong elements."""
        if finding.flags is None:
            return
        for case in larger_cases(finding.case, self.drawing, self.kernel):
            larger_finding = self.search.again(finding, case, finding.schedule)
            if larger_finding is not None:
                self.search.larger.append(larger_finding)


def _is_repairable(finding: Finding) -> bool:
    """True if an edit of a single value may fix the failure: for wrong results and accesses out of bounds.

    Races and divergent barriers need larger edits, and a disagreement of two runs doesn't show which run is right.
    """
    kinds = {r.kind for r in finding.reports}
    return (
        (finding.flags is not None and finding.kind != "disagreement")
        or isinstance(finding.error, BoundsError)
        or (bool(kinds) and kinds <= {"out_of_bounds"})
    )
