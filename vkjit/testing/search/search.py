"""Search for a failing case: first directed cases, then random ones.

Directed cases (`generate.directed`) cover in a fixed order what exposes most bugs, under the default schedule. Random
cases are drawn by hypothesis, with a schedule (settings of the launch and the compiler) for each device. `checks`
creates a `Search` per property test and then shrinks the case that it finds.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import random
import unittest
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from vkjit.errors import ArgumentError, CompileError, KernelError
from vkjit.launch.kernel import Kernel
from vkjit.runtime.sanitizer_reports import parse_checks

from ..cases.case import Case
from ..cases.schedules import FREE, PLAIN, Schedule, choices_for
from ..compare.tolerances import as_tolerance
from ..execution.run import Executor, executors
from ..generate.block_sizes import MAX_CASES
from ..generate.choices import Chooser, Drawn, Seeded
from ..generate.directed import directed_cases
from ..generate.load_hypothesis import load_hypothesis
from ..generate.strategies import Drawing
from ..generate.usable_types import module_of
from .examiner import Examiner
from .finding import Finding

__all__ = ["Search", "functions_of", "searched_checks"]


class _BrokenError(AssertionError):
    """The exception that a function under test by hypothesis raises for a failing case; it carries the finding."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.kind)
        self.finding = finding


class Search:
    """The search of one property test.

    `reference` computes the expected outputs; `assertion` is the test's own function of arguments and outputs, an
    additional property; `settings` are the keyword arguments of `check_kernel`. With `remembers`, failing cases are
    kept in hypothesis's example database and tried first next time.

    `larger` has failing cases larger than the shrunk one: the failure as the search found it, and larger variants of
    the shrunk one that `vkjit.testing.explain` adds. `examples` counts the cases tried. `seed` is the seed of the
    random cases, None if hypothesis chooses it.
    """

    def __init__(
        self, kernel: Kernel, reference: Callable[..., Any] | None, assertion: Callable[..., Any] | None,
        settings: Mapping[str, Any], *, remembers: bool = False,
    ) -> None:  # fmt: skip
        if not isinstance(kernel, Kernel):
            raise ArgumentError(f"expected a function decorated with @vk.kernel, found {kernel!r}")
        _check_settings(reference, settings)
        self.kernel = kernel
        self.settings = settings
        self.remembers = remembers
        self.groups = settings["groups"]
        self.executors = executors(kernel, settings["devices"], self.groups)
        inputs = {k: settings[k] for k in ("dims", "elements", "where", "dtypes", "special", "aliases", "groups")}
        self.drawing = Drawing(kernel, [e.device for e in self.executors], **inputs)
        self.reference = reference
        self.properties = (*functions_of(settings["properties"]), *([] if assertion is None else [assertion]))
        self.examiner = self.examiner_of(kernel, self.executors)
        self.choices = self._choices() if settings["schedules"] else {}
        self.larger: list[Finding] = []
        self.examples = 0
        self.seed: int | None = settings["seed"]

    def examiner_of(self, kernel: Kernel, on: list[Executor]) -> Examiner:
        """Return an examiner that applies this test's reference, properties and settings to a kernel.

        The kernel is the test's own or a modified one. `on` are its executors, one per device to run it on.
        """
        settings = self.settings
        return Examiner(
            kernel,
            self.reference,
            on,
            groups=self.groups,
            tolerance=as_tolerance(settings["tolerance"]),
            precise=settings["precise"],
            partial=settings["partial"],
            properties=self.properties,
            unordered=settings["unordered"],
            checks=searched_checks(settings["sanitize"]),
        )

    def _choices(self) -> dict[str, list[tuple[str, list[Any]]]]:
        """Return the fields of schedules to vary, with their values, by executor name."""
        uses_subgroups = self.uses_subgroups()
        # strict mode isn't varied for kernels that set a mode themselves: a strict kernel promises exact bits, which
        # hold only in strict mode, and a schedule that turns it on turns fast math off
        keeps_mode = self.kernel._fast_math or self.kernel._strict
        strict = (False, True) if self.settings["strict"] and not keeps_mode else ()
        return {
            e.name: choices_for(
                self.kernel, e.device, uses_subgroups=uses_subgroups, has_groups=self.groups is not None, strict=strict
            )
            for e in self.executors
        }

    def uses_subgroups(self) -> bool:
        """True if the kernel uses subgroup operations; False if it doesn't compile."""
        types = {n: choices[0] for n, choices in self.drawing.types.items()}
        ranks = {n: len(d.dims) for n, d in self.drawing.dimensions.of_array.items()}
        try:
            module = module_of(self.kernel, types, ranks, self.drawing._constants())
        except CompileError:
            return False  # the launch reports the error
        return bool(module.kernel.attrs.get("subgroups"))

    def first(self) -> Finding | None:
        """Return the first failure, not shrunk; None if there is none.

        Tries remembered cases, then directed ones, then random ones.
        """
        hypothesis = load_hypothesis()
        remembered = None
        if self.remembers and self.seed is None:
            remembered = self._search_drawn([hypothesis.Phase.explicit, hypothesis.Phase.reuse])
        return remembered or self._search_directed() or self._search_drawn([hypothesis.Phase.generate])

    def _search_directed(self) -> Finding | None:
        """Try directed cases under the default schedule and return the first failure; None if there is none.

        At most half of `max_examples` are directed cases, and `MAX_CASES` more if `max_examples` is large: those are
        meant for the large arrays of `generate.block_sizes`.
        """
        default_schedules = dict.fromkeys((e.name for e in self.executors), PLAIN)
        max_examples = self.settings["max_examples"]
        max_cases = max_examples // 2
        if max_examples > 2 * MAX_CASES:
            max_cases += MAX_CASES
        for case in itertools.islice(directed_cases(self.drawing), max(max_cases, 1)):
            self.examples += 1
            finding = self.examiner.examine(case, default_schedules)
            if finding is not None:
                self.larger = [finding]
                return finding
        return None

    def _search_drawn(self, phases: Sequence[Any]) -> Finding | None:
        """Try cases that hypothesis draws in the given phases of its own, and return the first failure, not shrunk."""
        if self.examples >= self.settings["max_examples"]:
            return None
        hypothesis = load_hypothesis()

        def property_holds(drawn: tuple[Case, Mapping[str, Schedule]]) -> None:
            case, schedules = drawn
            self.examples += 1
            finding = self.examiner.examine(case, schedules)
            if finding is not None:
                self.larger = [finding]
                raise _BrokenError(finding)

        property_holds.__name__ = f"{self.kernel.name}_holds"
        property_holds.__qualname__ = property_holds.__name__
        # hypothesis derives the database key from this attribute, besides the function, which is the same for all tests
        property_holds._hypothesis_internal_add_digest = self._digest()  # type: ignore[attr-defined]
        test = hypothesis.given(self._inputs())(property_holds)
        test = hypothesis.settings(**self._hypothesis_settings(hypothesis, phases))(test)
        # choose the seed here rather than in hypothesis, so that a failure's message can name it
        if self.seed is None and not self.remembers and not hypothesis.settings().derandomize:
            self.seed = random.SystemRandom().getrandbits(32)
        if self.seed is not None:  # without one, hypothesis uses its database
            test = hypothesis.seed(self.seed)(test)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", hypothesis.errors.HypothesisWarning)
            try:
                test()
            except _BrokenError as broken:
                return broken.finding
            except unittest.SkipTest:  # the database has no examples
                return None
            except hypothesis.errors.Unsatisfiable as error:
                raise ArgumentError(f"where= rejects nearly all inputs of {self.kernel.name}: {error}") from None
            except hypothesis.errors.Flaky:
                # the same input passes and fails: a race or a nondeterministic result
                if not self.larger:
                    raise
                return self.larger[0]
        return None

    def _hypothesis_settings(self, hypothesis: Any, phases: Sequence[Any]) -> dict[str, Any]:
        """Return the settings for a hypothesis test that draws the remaining examples in the given phases.

        `phases` don't include shrinking, since `vkjit.testing.shrink` shrinks failing cases.
        """
        settings = {
            "max_examples": self.settings["max_examples"] - self.examples,
            "deadline": None,
            "phases": phases,
            "print_blob": False,
            "report_multiple_bugs": False,
            "suppress_health_check": list(hypothesis.HealthCheck),
            "verbosity": hypothesis.Verbosity.quiet,
        }
        return settings if self.remembers else {**settings, "database": None}

    def _digest(self) -> bytes:
        """Return the key of the kernel's cases in hypothesis's example database."""
        function = self.kernel.spec.fn
        return hashlib.sha256(f"{function.__module__}.{function.__qualname__}".encode()).digest()

    def _inputs(self) -> Any:
        """Return a strategy of cases, each with a schedule per executor.

        In a fifth of the cases, each choice is a hypothesis draw; in the others, all choices come from one drawn seed.
        See `generate.choices` for the reason.
        """
        from hypothesis import strategies as st

        def inputs(draw: Callable[[Any], Any]) -> tuple[Case, dict[str, Schedule]]:
            seed = draw(st.integers(0, 2**48))
            chooser = Seeded(draw, seed) if seed % 5 else Drawn(draw)
            case = self.drawing.case(chooser)
            return case, {name: self._schedule(chooser, fields) for name, fields in self.choices.items()}

        return st.composite(inputs)()

    def _schedule(self, chooser: Chooser, fields: list[tuple[str, list[Any]]]) -> Schedule:
        """Choose a schedule; `fields` are its fields with the values to try, the default first.

        Fields that need no compilation vary independently. At most one of the others differs from its default, since
        each combination is compiled.
        """
        free = {name: chooser.pick(values) for name, values in fields if name in FREE}
        compiled_fields = [(name, values) for name, values in fields if name not in FREE]
        chosen = chooser.pick([None, *compiled_fields])
        if chosen is None:
            return Schedule(**free)
        name, (default, *others) = chosen
        distinct_others = [v for v in dict.fromkeys(others) if v != default]
        return Schedule(**free, **{name: chooser.pick(distinct_others)})

    def again(self, original: Finding, case: Case, schedule: Schedule) -> Finding | None:
        """Return the finding of another case if it fails in the same way as the original, else None.

        `schedule` is used on the device of the original finding, the default schedule on the others.
        """
        schedules = dict.fromkeys((e.name for e in self.examiner.executors), PLAIN)
        schedules[original.executor] = schedule
        with contextlib.suppress(CompileError, ArgumentError, KernelError):
            finding = self.examiner.examine(case, schedules, original)
            if finding is not None and finding.failure_key == original.failure_key:
                return finding
        return None


def searched_checks(sanitize: Any) -> tuple[str, ...]:
    """Return the sanitizer checks that the user's `sanitize=` selects; with True, also "division" and "loops"."""
    checks = parse_checks(sanitize)
    return (*checks, "division", "loops") if sanitize is True else checks


def _check_settings(reference: Any, settings: Mapping[str, Any]) -> None:
    """Raise ArgumentError for settings of wrong types. Their contents are checked where they are used."""
    number, seed = settings["max_examples"], settings["seed"]
    if isinstance(number, bool) or not isinstance(number, int | np.integer) or number < 1:
        raise ArgumentError(f"max_examples is the number of inputs to try, at least 1, found {number!r}")
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer | None):
        raise ArgumentError(f"seed is an integer, found {seed!r}")
    for name in ("dims", "elements"):
        if not isinstance(settings[name], Mapping | None):
            raise ArgumentError(f"{name} is a dictionary, found {settings[name]!r}")
    for name, function in (("the reference", reference), ("where", settings["where"])):
        if function is not None and not callable(function):
            raise ArgumentError(f"{name} is a function of the kernel's arguments, found {function!r}")
    for name in ("precise", "partial", "schedules", "strict"):
        if not isinstance(settings[name], bool):
            raise ArgumentError(f"{name} is True or False, found {settings[name]!r}")
    if not isinstance(settings["dtypes"], Mapping | Sequence | None) or isinstance(settings["dtypes"], str):
        raise ArgumentError(f"dtypes is a dictionary or a list of types, found {settings['dtypes']!r}")
    if not isinstance(settings["script"], str | os.PathLike | None):
        raise ArgumentError(f"script is the path of a file, found {settings['script']!r}")
    if not isinstance(settings["aliases"], Sequence) or not all(
        isinstance(p, tuple | list) for p in settings["aliases"]
    ):
        raise ArgumentError(f"aliases is a list of pairs of names, found {settings['aliases']!r}")


def functions_of(given: Any) -> tuple[Callable[..., Any], ...]:
    """Convert `properties=`, a function or several, to a tuple of functions."""
    functions = given if isinstance(given, tuple | list) else (given,)
    wrong = [f for f in functions if not callable(f)]
    if wrong:
        raise ArgumentError(f"properties: {wrong[0]!r} is no function: expected functions of the kernel's arguments")
    return tuple(functions)
