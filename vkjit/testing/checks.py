"""Property tests of kernels: `check_kernel` runs one, `check` makes a test that pytest collects.

Enters: a kernel, a reference (or none), what may vary. Leaves: a `CheckResult`, or a `CheckFailure` with the
smallest input that `minimise` reaches.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import random
import time
import unittest
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import ArgumentError, BoundsError, CompileError, KernelError
from ..findings import checks_of
from ..jit import Kernel
from ._extra import load_hypothesis
from .blocks import MOST_CASES
from .case import Case
from .choosing import Chooser, Drawn, Seeded
from .directed import directed_cases
from .drawing import Drawing
from .examine import Examiner, Finding
from .failures import CheckFailure, Origin
from .hints import Hints
from .localise import Mend, guards_of, mend
from .minimise import grown, minimise
from .probing import module_of
from .run import Executor, executors
from .schedules import FREE, PLAIN, Schedule, choices_for
from .tolerances import as_tolerance

__all__ = ["CheckResult", "check", "check_kernel", "collected_cases", "first_finding", "functions_of"]

EXAMPLES = 100

_CASES_TO_MEND = 24
"""Directed cases that a change has to pass beside the failing ones, before the search that confirms it."""

_LARGEST_TO_MEND = 1 << 12

_EXAMPLES_OF_EVIDENCE = 40
"""Inputs of a search that confirms a change or a hint."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What a check that found nothing did."""

    kernel: str
    examples: int
    launches: int
    seconds: float
    devices: tuple[str, ...]
    dtypes: Mapping[str, tuple[str, ...]]
    left_out: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        types = "; ".join(f"{n}: {', '.join(t)}" for n, t in self.dtypes.items())
        text = f"{self.kernel}: {self.examples} inputs, {self.launches} launches on {', '.join(self.devices)}"
        return f"{text}{f', {types}' if types else ''}, {self.seconds:.1f} s"


class _BrokenError(AssertionError):
    """What hypothesis shrinks on; carries the finding."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.kind)
        self.finding = finding


def check_kernel(
    kernel: Kernel,
    reference: Callable[..., Any] | None = None,
    *,
    devices: Any = None,
    max_examples: int = EXAMPLES,
    dims: Mapping[str, Any] | None = None,
    elements: Mapping[str, Any] | None = None,
    where: Callable[..., bool] | None = None,
    dtypes: Mapping[str, Any] | Sequence[Any] | None = None,
    special: bool | Sequence[str] | None = None,
    aliases: Sequence[tuple[str, str]] = (),
    groups: Any = None,
    tolerance: Any = None,
    precise: bool = True,
    partial: bool = False,
    unordered: Any = (),
    properties: Callable[..., Any] | Sequence[Callable[..., Any]] = (),
    schedules: bool = True,
    strict: bool = True,
    sanitize: bool | str | Sequence[str] = True,
    seed: int | None = None,
    script: Any = None,
) -> CheckResult:
    """Looks for inputs and schedules for which the kernel is wrong. Raises CheckFailure with the smallest one found.

    reference: a function of the arguments that it names, which returns the outputs (one array, or a tuple in order
    of Outs
        and InOuts, or a dictionary), or None after writing into the output arrays that it names. Nothing is asked of outputs
        that a dictionary leaves out, or for which a tuple holds None. Without a reference, devices and schedules are compared
        with each other, unless `properties` says what holds.
    devices: numbers, names or devices (default: the interpreter and the default device).
    dims, elements, where, dtypes, special, aliases: what the inputs may be; see `strategies`. NaN and infinities are
        among the floats unless `special=False`, or `elements` gives a range.
    groups: the number of workgroups, or a function of arguments that it names, for kernels without over= and groups=.
    tolerance: a relative bound, a (relative, absolute) pair or a Tolerance, in place of the derived one.
    precise: hands floats to the reference as float64, so that its own roundings don't count.
    partial: allows elements of Outs that no invocation writes.
    unordered: outputs whose rows (of the first axis) may come in any order: a name, names, tuples of names whose rows belong
        together, or a dictionary of these to the output whose first element says how many rows there are: {"y": "count"}.
        The reference may give these rows alone.
    properties: functions of the arguments that they name, outputs as they are after the launch (`before`: a dictionary of all as
        they were), which assert, or return False where something is wrong. They may stand in for a reference.
    schedules: varies workgroup sizes, orders and optimisation levels; strict: also with and without strict mode.
    sanitize: names of the sanitizer's checks, as for `vk.testing.sanitize` (True: the usual ones; False: none).
    seed: makes the search repeatable. script: a path to which the program that reproduces a failure is written.

    Always checked: index bounds, integer division by zero and asserts (debug mode), races, uninitialised reads and
    divergent barriers (the sanitizer), writes outside of arrays, elements of Outs that nobody writes, results that depend
    on what an Out held before.
    """
    settings = {
        "devices": devices, "max_examples": max_examples, "dims": dims, "elements": elements, "where": where,
        "dtypes": dtypes, "special": special, "aliases": aliases, "groups": groups, "tolerance": tolerance,
        "precise": precise, "partial": partial, "unordered": unordered, "properties": properties,
        "schedules": schedules, "strict": strict, "sanitize": sanitize,
        "seed": seed, "script": script,
    }  # fmt: skip
    return _Check(kernel, reference, None, settings).run()


def first_finding(kernel: Kernel, reference: Callable[..., Any] | None = None, **settings: Any) -> Finding | None:
    """What `check_kernel` finds, as it finds it: not made smaller, not explained; None for nothing."""
    defaults: dict[str, Any] = check_kernel.__kwdefaults__ or {}
    return _Check(kernel, reference, None, {**defaults, **settings})._search()


def collected_cases(
    kernel: Kernel, reference: Callable[..., Any] | None, settings: Mapping[str, Any]
) -> tuple[dict[str, Any], list[tuple[Case, Mapping[str, Schedule]]]]:
    """All settings of a check, and the cases and schedules that it would try in the interpreter; nothing is launched."""
    defaults: dict[str, Any] = check_kernel.__kwdefaults__ or {}
    made = {**defaults, **settings, "devices": "interpreter"}
    check = _Check(kernel, reference, None, made)
    cases: list[tuple[Case, Mapping[str, Schedule]]] = []

    class Collector(Examiner):
        def examine(self, case: Case, schedules: Mapping[str, Schedule], like: Finding | None = None) -> None:
            cases.append((case, schedules))

    check.examiner = Collector(kernel, reference, check.executors)
    check._search()
    return made, cases


class _Check:
    """One property test."""

    def __init__(
        self, kernel: Kernel, reference: Callable[..., Any] | None, judge: Callable[..., Any] | None,
        settings: Mapping[str, Any], *, remembers: bool = False,
    ) -> None:  # fmt: skip
        if not isinstance(kernel, Kernel):
            raise ArgumentError(f"expected a function decorated with @vk.kernel, found {kernel!r}")
        self.kernel = kernel
        self.settings = settings
        self.remembers = remembers
        self.groups = settings["groups"]
        self.executors = executors(kernel, settings["devices"], self.groups)
        inputs = {k: settings[k] for k in ("dims", "elements", "where", "dtypes", "special", "aliases", "groups")}
        self.drawing = Drawing(kernel, [e.device for e in self.executors], **inputs)
        self.reference = reference
        self.judges = (*functions_of(settings["properties"]), *([] if judge is None else [judge]))
        self.examiner = self._examiner(kernel, self.executors)
        self.choices = self._choices() if settings["schedules"] else {}
        self.larger: list[Finding] = []
        self.examples = 0
        self.seed: int | None = settings["seed"]

    def _examiner(self, kernel: Kernel, on: list[Executor]) -> Examiner:
        settings = self.settings
        checks = checks_of(settings["sanitize"])
        return Examiner(
            kernel, self.reference, on, groups=self.groups, tolerance=as_tolerance(settings["tolerance"]),
            precise=settings["precise"], partial=settings["partial"], judges=self.judges,
            unordered=settings["unordered"],
            checks=(*checks, "division") if settings["sanitize"] is True else checks,
        )  # fmt: skip

    def _choices(self) -> dict[str, list[tuple[str, list[Any]]]]:
        uses_subgroups = self._uses_subgroups()
        # a strict kernel's results are bit for bit those of strict ones: without the mode it is another kernel
        settled = self.kernel._fast_math or self.kernel._strict
        strict = (False, True) if self.settings["strict"] and not settled else ()
        return {
            e.name: choices_for(
                self.kernel, e.device, uses_subgroups=uses_subgroups, has_groups=self.groups is not None, strict=strict
            )
            for e in self.executors
        }

    def _uses_subgroups(self) -> bool:
        types = {n: t[0] for n, t in self.drawing.types.items()}
        ranks = {n: len(d.dims) for n, d in self.drawing.dimensions.of_array.items()}
        try:
            module = module_of(self.kernel, types, ranks, self.drawing._constants())
        except CompileError:
            return False  # the launch says what is wrong
        return bool(module.kernel.attrs.get("subgroups"))

    # -- the search

    def run(self) -> CheckResult:
        start = time.perf_counter()
        finding = self._search()
        if finding is None:
            return CheckResult(
                self.kernel.name, self.examples, self.examiner.launches, time.perf_counter() - start,
                tuple(e.name for e in self.examiner.executors),
                {n: tuple(t.name for t in kinds) for n, kinds in self.drawing.types.items()},
                {**self.drawing.left_out, **self.examiner.skipped},
            )  # fmt: skip
        raise self._failure(finding)

    def _failure(self, finding: Finding) -> CheckFailure:
        finding = minimise(finding, self.drawing, lambda case, schedule: self._again(finding, case, schedule))
        self._look_for_larger(finding)
        write = self.examiner.writer(finding)
        stores = tuple(self.examiner.stores(finding))
        guards = tuple(guards_of(self.kernel, stores)) if finding.kind == "unwritten" else ()
        mended = self._mend(finding) if _can_be_mended(finding) else None
        origin = Origin(write, stores, guards, mended, tuple(self.examiner.nan_losses(finding)))
        failure = CheckFailure(self.kernel, finding, origin, self.larger, self.groups, self._hint(finding), self.seed)
        if self.settings["script"] is not None:
            failure.write_script(self.settings["script"])
        return failure

    def _mend(self, finding: Finding) -> Mend | None:
        """A small change to the kernel with which all cases at hand come out right, and those of another search. Where nothing
        says what is right, one that leaves right results as they are."""
        cases = [finding.case, *(f.case for f in self.larger)]
        directed = itertools.islice(directed_cases(self.drawing), _CASES_TO_MEND + MOST_CASES)
        cases += [case for case in directed if case.size() <= _LARGEST_TO_MEND][:_CASES_TO_MEND]

        def passes(kernel: Kernel) -> bool:
            only = executors(kernel, "interpreter", self.groups)
            examiner = self._examiner(kernel, only)
            schedules = {e.name: finding.schedule for e in only}
            return all(examiner.examine(case, schedules) is None for case in cases)

        def confirmed(kernel: Kernel) -> bool:
            return self._searched(kernel, {}) is None

        schedule = replace(finding.schedule, optimisation=None, debug=None)
        finding = replace(finding, schedule=schedule)
        with contextlib.suppress(CompileError, ArgumentError, KernelError):
            if passes(self.kernel):
                return None
            knows = self.reference is not None or bool(self.judges)  # a kernel that does nothing agrees with itself
            return mend(self.kernel, passes, confirmed, preserving=not knows)
        return None

    def _hint(self, finding: Finding) -> str:
        """What to say of the inputs where they are to blame."""

        def examine(case: Case) -> Finding | None:
            schedules = dict.fromkeys((e.name for e in self.examiner.executors), PLAIN)
            return self.examiner.examine(case, {**schedules, finding.executor: finding.schedule})

        def search(changes: Mapping[str, Any]) -> Finding | None:
            return self._searched(self.kernel, changes)

        return Hints(self.drawing, self.settings["elements"] or {}, examine, search).of(finding)

    def _searched(self, kernel: Kernel, changes: Mapping[str, Any]) -> Finding | None:
        """What a short search finds in a kernel with some settings changed."""
        few = {"devices": "interpreter", "max_examples": _EXAMPLES_OF_EVIDENCE, "seed": 1, "schedules": False}
        check = _Check(kernel, self.reference, None, {**self.settings, **few, **changes})
        check.examiner.judges = self.examiner.judges
        return check._search()

    def _look_for_larger(self, finding: Finding) -> None:
        """A larger case that fails in the same way shows the pattern of the wrong elements."""
        if finding.flags is None:
            return
        for case in grown(finding.case, self.drawing, self.kernel):
            found = self._again(finding, case, finding.schedule)
            if found is not None:
                self.larger.append(found)

    def _search(self) -> Finding | None:
        hypothesis = load_hypothesis()
        before, now = [hypothesis.Phase.explicit, hypothesis.Phase.reuse], [hypothesis.Phase.generate]
        remembered = self._search_drawn(before) if self.remembers and self.seed is None else None
        return remembered or self._search_directed() or self._search_drawn(now)

    def _search_directed(self) -> Finding | None:
        """The cases that most mistakes fail on, at most half of the examples, and some more that are long."""
        plain = dict.fromkeys((e.name for e in self.executors), PLAIN)
        most = self.settings["max_examples"] // 2 + (
            MOST_CASES if self.settings["max_examples"] > 2 * MOST_CASES else 0
        )
        for case in itertools.islice(directed_cases(self.drawing), max(most, 1)):
            self.examples += 1
            finding = self.examiner.examine(case, plain)
            if finding is not None:
                self.larger = [finding]
                return finding
        return None

    def _search_drawn(self, phases: Sequence[Any]) -> Finding | None:
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
        # the example database tells tests apart by this
        property_holds._hypothesis_internal_add_digest = self._digest()  # type: ignore[attr-defined]
        test = hypothesis.given(self._inputs())(property_holds)
        test = hypothesis.settings(**self._hypothesis_settings(hypothesis, phases))(test)
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
            except unittest.SkipTest:  # nothing is remembered
                return None
            except hypothesis.errors.Flaky:
                # the same input passes and fails: a race, or a result left to chance
                if not self.larger:
                    raise
                return self.larger[0]
        return None

    def _hypothesis_settings(self, hypothesis: Any, phases: Sequence[Any]) -> dict[str, Any]:
        # shrinking is left to `minimise`
        settings = {
            "max_examples": self.settings["max_examples"] - self.examples, "deadline": None, "phases": phases, "print_blob": False,
            "report_multiple_bugs": False, "suppress_health_check": list(hypothesis.HealthCheck),
            "verbosity": hypothesis.Verbosity.quiet,
        }  # fmt: skip
        return settings if self.remembers else {**settings, "database": None}

    def _digest(self) -> bytes:
        function = self.kernel.spec.fn
        return hashlib.sha256(f"{function.__module__}.{function.__qualname__}".encode()).digest()

    def _inputs(self) -> Any:
        """A strategy of cases with a schedule for each device: a fifth draw by draw, the others from a seed."""
        from hypothesis import strategies as st

        def inputs(draw: Callable[[Any], Any]) -> tuple[Case, dict[str, Schedule]]:
            seed = draw(st.integers(0, 2**48))
            chooser = Seeded(draw, seed) if seed % 5 else Drawn(draw)
            case = self.drawing.case(chooser)
            return case, {name: self._schedule(chooser, fields) for name, fields in self.choices.items()}

        return st.composite(inputs)()

    def _schedule(self, chooser: Chooser, fields: list[tuple[str, list[Any]]]) -> Schedule:
        """What costs no compilation is varied freely, else one matter at a time: each combination is compiled for
        itself."""
        free = {name: chooser.pick(values) for name, values in fields if name in FREE}
        chosen = chooser.pick([None, *(f for f in fields if f[0] not in FREE)])
        if chosen is None:
            return Schedule(**free)
        name, (usual, *others) = chosen
        return Schedule(**free, **{name: chooser.pick([v for v in dict.fromkeys(others) if v != usual])})

    def _again(self, original: Finding, case: Case, schedule: Schedule) -> Finding | None:
        """The finding of another case where it fails in the same way as the first one."""
        schedules = dict.fromkeys((e.name for e in self.examiner.executors), PLAIN)
        schedules[original.executor] = schedule
        with contextlib.suppress(CompileError, ArgumentError, KernelError):
            found = self.examiner.examine(case, schedules, original)
            if found is not None and found.sort == original.sort:
                return found
        return None


def functions_of(given: Any) -> tuple[Callable[..., Any], ...]:
    """What `properties=` means: a function, or several."""
    made = (given,) if callable(given) else tuple(given)
    wrong = [f for f in made if not callable(f)]
    if wrong:
        raise ArgumentError(f"properties: {wrong[0]!r} is no function: expected functions of the kernel's arguments")
    return made


def _can_be_mended(finding: Finding) -> bool:
    """Whether a change to a value may mend it: races and barriers ask for more, and two runs that disagree don't tell which one
    is right."""
    kinds = {r.kind for r in finding.reports}
    return (
        (finding.flags is not None and finding.kind != "disagreement")
        or isinstance(finding.error, BoundsError)
        or (bool(kinds) and kinds <= {"out_of_bounds"})
    )


def check(
    kernel: Kernel | None = None, *, reference: Callable[..., Any] | None = None, **settings: Any
) -> Callable[[Any], Callable[[], None]]:
    """Makes a property test for pytest.

    Over a function, that function is the reference, named as tests are::

        @vk.testing.check(saxpy, dims={"N": (0, 1000)})
        def test_saxpy(a, x, y):
            return a * x + y

    With `reference=`, the function may assert more: it is called with the arguments that it names, outputs as they
    are after the launch::

        @vk.testing.check(softmax, reference=numpy_softmax)
        def test_softmax(x, y):
            assert (y >= 0).all()

    Right above a kernel, with `reference=`, the kernel's name becomes that of a test (the kernel is its attribute
    `kernel`). All other arguments are those of `check_kernel`. Failures are CheckFailures; hypothesis remembers them
    in its database.
    """
    defaults: dict[str, Any] = check_kernel.__kwdefaults__ or {}
    unknown = [k for k in settings if k not in defaults]
    if unknown:
        raise ArgumentError(f"check() has no argument {unknown[0]!r}; it takes those of check_kernel")
    given = {**defaults, **settings}
    if kernel is not None and not isinstance(kernel, Kernel):
        raise ArgumentError(f"check() takes a kernel, found {kernel!r}: use it as @vk.testing.check(kernel)")

    def decorate(target: Any) -> Callable[[], None]:
        if isinstance(target, Kernel):
            return _test_of(target, reference, None, given, target.spec.fn)
        if kernel is None:
            raise ArgumentError(f"@vk.testing.check over {target.__name__}: name the kernel, as in check(kernel)")
        if reference is None:
            return _test_of(kernel, target, None, given, target)
        return _test_of(kernel, reference, target, given, target)

    return decorate


def _test_of(
    kernel: Kernel, reference: Callable[..., Any] | None, judge: Callable[..., Any] | None, settings: Mapping[str, Any],
    named: Any,
) -> Callable[[], None]:  # fmt: skip
    def test() -> None:
        _Check(kernel, reference, judge, settings, remembers=True).run()

    test.__name__, test.__qualname__ = named.__name__, named.__qualname__
    test.__module__, test.__doc__ = named.__module__, named.__doc__

    def with_kernel(other: Kernel) -> None:
        found = _Check(other, reference, judge, {**settings, "devices": "interpreter"})._search()
        assert found is None, found.kind

    test.kernel = kernel  # type: ignore[attr-defined]
    test.with_kernel = with_kernel  # type: ignore[attr-defined]  # the same property of another kernel
    return test
