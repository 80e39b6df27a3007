"""Makes a failure of a finding: the smallest case, larger ones like it, where the mistake is, what would mend it.

Enters: a `Search` and what it found. Leaves: a `CheckFailure`.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..errors import ArgumentError, BoundsError, CompileError, KernelError
from ..interp.device import INTERPRETER_CAPS
from ..jit import Kernel
from . import origins
from .blocks import MOST_CASES
from .case import Case
from .directed import directed_cases
from .failures import CheckFailure, Origin
from .finding import Finding
from .hints import Hints
from .localise import ALL, FINITE, Mend, guards_of, mend
from .minimise import grown, minimise
from .run import executors
from .schedules import PLAIN, Schedule
from .screening import is_still_wrong
from .search import Search

__all__ = ["Explainer"]

_CASES_TO_MEND = 24
"""Directed cases that a change has to pass beside the failing ones, before the search that confirms it."""

_LARGEST_TO_MEND = 1 << 12

_EXAMPLES_OF_EVIDENCE = 40
"""Inputs of a search that confirms a change or a hint."""


class Explainer:
    """Explains what a search found."""

    def __init__(self, search: Search) -> None:
        self.search = search
        self.kernel = search.kernel
        self.drawing = search.drawing
        self.settings = search.settings

    def failure(self, finding: Finding) -> CheckFailure:
        """The failure, with the smallest case that is reached."""
        search, shadow = self.search, self.search.examiner.shadow
        finding = minimise(finding, self.drawing, lambda case, schedule: search.again(finding, case, schedule))
        self._look_for_larger(finding)
        stores = tuple(origins.stores(self.kernel, shadow, finding))
        origin = Origin(
            origins.writer(shadow, finding),
            stores,
            tuple(guards_of(self.kernel, stores)) if finding.kind == "unwritten" else (),
            self._mend(finding) if _can_be_mended(finding) else None,
            tuple(origins.nan_losses(shadow, finding)),
            tuple(origins.births(shadow, finding)),
        )
        hint = self._hint(finding) or self._subgroups(finding)
        failure = CheckFailure(self.kernel, finding, origin, search.larger, search.groups, hint, search.seed)
        if self.settings["script"] is not None:
            failure.write_script(self.settings["script"])
        return failure

    def _mend(self, finding: Finding) -> Mend | None:
        """A small change to the kernel with which all cases at hand come out right, and those of another search. Where nothing
        says what is right, one that leaves right results as they are."""
        cases = [finding.case, *(f.case for f in self.search.larger)]
        directed = itertools.islice(directed_cases(self.drawing), _CASES_TO_MEND + MOST_CASES)
        cases += [case for case in directed if case.size() <= _LARGEST_TO_MEND][:_CASES_TO_MEND]
        odd = [case for case in cases if not case.is_finite()]
        finite = [case for case in cases if case.is_finite()]

        def passes(kernel: Kernel) -> str:
            only = executors(kernel, "interpreter", self.search.groups)
            if is_still_wrong(only[0], finding):
                return ""
            examiner = self.search.examiner_of(kernel, only)
            schedules = {e.name: finding.schedule for e in only}

            def right(some: list[Case]) -> bool:
                return all(examiner.examine(case, schedules) is None for case in some)

            if finding.case.is_finite():
                return "" if not right(finite) else ALL if right(odd) else FINITE
            return ALL if right(cases) else ""

        def confirmed(kernel: Kernel, which: str) -> bool:
            return self._searched(kernel, {} if which == ALL else {"special": False}) is None

        schedule = replace(finding.schedule, optimisation=None, debug=None)
        finding = replace(finding, schedule=schedule)
        with contextlib.suppress(CompileError, ArgumentError, KernelError):
            if passes(self.kernel):
                return None
            knows = self.search.reference is not None or bool(
                self.search.judges
            )  # a kernel that does nothing agrees with itself
            return mend(self.kernel, passes, confirmed, preserving=not knows)
        return None

    def _hint(self, finding: Finding) -> str:
        """What to say of the inputs where they are to blame."""

        def examine(case: Case) -> Finding | None:
            schedules = dict.fromkeys((e.name for e in self.search.examiner.executors), PLAIN)
            return self.search.examiner.examine(case, {**schedules, finding.executor: finding.schedule})

        def searched(changes: Mapping[str, Any]) -> Finding | None:
            return self._searched(self.kernel, changes)

        return Hints(self.drawing, self.settings["elements"] or {}, examine, searched).of(finding)

    def _subgroups(self, finding: Finding) -> str:
        """Whether the size of subgroups makes the difference: in the interpreter the case is right with the usual one, and wrong
        with that of the device at hand."""
        size, usual = self._size_of_subgroups(finding), INTERPRETER_CAPS.subgroup_size
        if finding.flags is None or size in (None, usual) or not self.search.uses_subgroups():
            return ""
        only = executors(self.kernel, "interpreter", self.search.groups)
        examiner = self.search.examiner_of(self.kernel, only)
        with contextlib.suppress(CompileError, ArgumentError, KernelError):
            right, wrong = (
                examiner.examine(finding.case, {only[0].name: Schedule(subgroup_size=s)}) for s in (usual, size)
            )
            if right is None and wrong is not None and wrong.sort == finding.sort:
                return (
                    f"subgroups have {size} invocations here, and with {usual} the same input comes out right: sizes differ from "
                    "device to device, ask for vk.subgroup().size()"
                )
        return ""

    def _size_of_subgroups(self, finding: Finding) -> int | None:
        """The size with which it was found, if the interpreter has it."""
        device = next((e.device for e in self.search.executors if e.name == finding.executor), None)
        if device is None:
            return None
        schedule = finding.schedule
        own = schedule.subgroup_size if device.caps.kind == "interpreter" else schedule.vector_width
        size = own if own is not None else device.caps.subgroup_size
        return size if size in INTERPRETER_CAPS.subgroup_sizes else None

    def _searched(self, kernel: Kernel, changes: Mapping[str, Any]) -> Finding | None:
        """What a short search finds in a kernel with some settings changed."""
        few = {"devices": "interpreter", "max_examples": _EXAMPLES_OF_EVIDENCE, "seed": 1, "schedules": False}
        check = Search(kernel, self.search.reference, None, {**self.settings, **few, **changes})
        check.examiner.judges = self.search.examiner.judges
        return check.first()

    def _look_for_larger(self, finding: Finding) -> None:
        """A larger case that fails in the same way shows the pattern of the wrong elements."""
        if finding.flags is None:
            return
        for case in grown(finding.case, self.drawing, self.kernel):
            found = self.search.again(finding, case, finding.schedule)
            if found is not None:
                self.search.larger.append(found)


def _can_be_mended(finding: Finding) -> bool:
    """Whether a change to a value may mend it: races and barriers ask for more, and two runs that disagree don't tell which one
    is right."""
    kinds = {r.kind for r in finding.reports}
    return (
        (finding.flags is not None and finding.kind != "disagreement")
        or isinstance(finding.error, BoundsError)
        or (bool(kinds) and kinds <= {"out_of_bounds"})
    )
