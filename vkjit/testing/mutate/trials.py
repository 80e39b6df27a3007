"""Trials for mutants (kernels broken on purpose), for mutation testing of the library's tests.

A trial is a small test: a function that takes a kernel and raises if the kernel is wrong. It must pass on the original
kernel. On a mutant, it may take ten times as long as on the original, plus `_EXTRA_SECONDS`. The caller,
tests/stdlib_properties, first runs the trials that have killed (detected) other mutants, since they are the most likely
to kill the next one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vkjit.errors import CompileError, InternalError, VkjitError
from vkjit.launch.kernel import Kernel
from vkjit.runtime.sanitizer_reports import parse_checks

from ..cases.case import Case
from ..cases.schedules import Schedule
from ..checks import collected_cases
from ..compare.tolerances import as_tolerance
from ..execution.run import executors
from ..execution.time_limited import Clock
from ..search.examiner import Examiner
from ..search.search import functions_of

__all__ = ["DETECTIONS", "CaseProperty", "Trial", "Trials"]

DETECTIONS = (AssertionError, VkjitError, ArithmeticError, MemoryError, ValueError, IndexError)
"""Exceptions of a trial that count as a detection of the mutant.

Besides failed comparisons and vkjit's errors, these are errors in Python code that a mutant may cause. TimeLimitError
is a VkjitError. InternalError and CompileError are VkjitErrors, too, but don't count (see `Trials.failed`).
"""

_EXTRA_SECONDS = 2.0
"""Additional time for each trial on a mutant, in seconds."""

_UNLIMITED = 1e9
"""Time limit for a trial on the original kernel, in seconds: effectively none."""


@dataclass(slots=True)
class Trial:
    """A trial: `run` takes a kernel and raises one of `DETECTIONS` if the kernel is wrong.

    `seconds` is the trial's CPU time on the original kernel; NaN if it hasn't run yet. `kills` is the number of mutants
    that the trial has killed.
    """

    name: str
    run: Callable[[Kernel], None]
    seconds: float = math.nan
    kills: int = 0


class Trials:
    """The trials of one kernel.

    `kernel` is the original kernel. `clock` enforces the time limits of trials, which must run inside the block `with
    time_limited(...) as clock`. `recover` is called after a mutant fails a trial, to clear pending errors of devices.
    """

    def __init__(self, kernel: Kernel, trials: Sequence[Trial], clock: Clock, recover: Callable[[], None]) -> None:
        self.kernel = kernel
        self.trials = list(trials)
        self.clock = clock
        self.recover = recover

    def proven_killers(self) -> list[Trial]:
        """Return the trials that have killed mutants, by decreasing number of kills."""
        return sorted((t for t in self.trials if t.kills), key=lambda t: -t.kills)

    def others(self) -> list[Trial]:
        """Return the trials that haven't killed a mutant, in the original order."""
        return [t for t in self.trials if not t.kills]

    def failed(self, changed: Kernel, trials: Sequence[Trial]) -> str:
        """Run trials on the mutant `changed`. Return the name of the first trial that fails; "" if all pass.

        Raises CompileError if the mutant doesn't compile, and InternalError for an error in the compiler.
        """
        for trial in trials:
            if math.isnan(trial.seconds):
                self.run_on_original(trial)
            if not self._passes(trial, changed):
                trial.kills += 1
                return trial.name
        return ""

    def run_on_original(self, trial: Trial) -> None:
        """Run a trial on the original kernel and measure its time. Raises the trial's exception if it fails."""
        self.clock.restart(_UNLIMITED)
        start = time.thread_time()
        trial.run(self.kernel)
        trial.seconds = time.thread_time() - start

    def _passes(self, trial: Trial, changed: Kernel) -> bool:
        """True if the mutant passes the trial within the time limit."""
        self.clock.restart(10 * trial.seconds + _EXTRA_SECONDS)
        try:
            trial.run(changed)
        except InternalError:
            raise  # a compiler bug, not an error of the mutant
        except CompileError:
            raise  # an invalid mutant, which doesn't count as killed
        except DETECTIONS:
            self.recover()
            return False
        return True


class CaseProperty:
    """Makes trials that compare a kernel with a reference, one for each case that `check_kernel` would try.

    If the sanitizer is enabled in `settings`, there is a second trial for each case that runs with the sanitizer.
    `settings` are arguments of `check_kernel`; after construction they include the defaults.
    """

    def __init__(self, kernel: Kernel, reference: Callable[..., Any] | None, settings: Mapping[str, Any]) -> None:
        self.kernel = kernel
        self.reference = reference
        self.settings, self.cases = collected_cases(kernel, reference, settings)
        self._answers: dict[int, Any] = {}  # the reference's results, by id of the case
        # the last kernel examined, and its examiners: by False without the sanitizer, by True with it
        self._cached_examiners: tuple[Kernel | None, dict[bool, Examiner]] = (None, {})

    def trials(self, name: str) -> Iterator[Trial]:
        """Yield the trials without the sanitizer for all cases, then those with it."""
        modes = (False, True) if self.settings["sanitize"] else (False,)
        for sanitized in modes:
            for number, (case, schedules) in enumerate(self.cases):
                title = f"{name}, case {number}{', sanitized' if sanitized else ''}"
                yield Trial(title, self._trial(case, schedules, sanitized))

    def _trial(self, case: Case, schedules: Mapping[str, Schedule], sanitized: bool) -> Callable[[Kernel], None]:
        """Return the `run` function of the trial for one case. `sanitized` is True for the trial with the sanitizer."""

        def run(changed: Kernel) -> None:
            finding = self._examiner(changed, sanitized).examine(case, schedules)
            assert finding is None, finding.kind

        return run

    def _examiner(self, kernel: Kernel, sanitized: bool) -> Examiner:
        """Return the examiner of a kernel; if `sanitized` is True, one that runs the kernel with the sanitizer.

        The examiners of the last kernel are cached, so that this kernel is compiled only once for all cases.
        """
        if self._cached_examiners[0] is not kernel:
            self._cached_examiners = (kernel, {})
        examiners = self._cached_examiners[1]
        if sanitized not in examiners:
            settings = self.settings
            groups = settings["groups"]
            # the default checks don't include division by zero
            checks = (*parse_checks(settings["sanitize"]), "division") if sanitized else ()
            examiners[sanitized] = _CachingExaminer(
                self._answers, kernel, self.reference, executors(kernel, "interpreter", groups), groups=groups,
                tolerance=as_tolerance(settings["tolerance"]), precise=settings["precise"],
                partial=settings["partial"], checks=checks, unordered=settings["unordered"],
                properties=functions_of(settings["properties"]),
            )  # fmt: skip
        return examiners[sanitized]


class _CachingExaminer(Examiner):
    """An examiner that calls the reference once per case, although a case is run on many mutants.

    `answers` caches the reference's results by the id of the case. All examiners of a `CaseProperty` share it.
    """

    def __init__(self, answers: dict[int, Any], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.answers = answers

    def _expected(self, reference: Callable[..., Any], case: Case) -> Mapping[str, Any]:
        if id(case) not in self.answers:  # ids are unique, since the property keeps its cases alive
            self.answers[id(case)] = super()._expected(reference, case)
        answer: Mapping[str, Any] = self.answers[id(case)]
        return answer
