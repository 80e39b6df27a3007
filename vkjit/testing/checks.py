"""Property tests of kernels: `check_kernel` runs one, `check` makes a test that pytest collects.

Enters: a kernel, a reference (or none), what may vary. Leaves: a `CheckResult`, or a `CheckFailure` with the
smallest input that `minimise` reaches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import ArgumentError
from ..jit import Kernel
from .case import Case
from .examine import Examiner
from .explain import Explainer
from .finding import Finding
from .schedules import Schedule
from .search import Search

__all__ = ["CheckResult", "check", "check_kernel", "collected_cases", "first_finding"]

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
    return _run(Search(kernel, reference, None, settings))


def first_finding(kernel: Kernel, reference: Callable[..., Any] | None = None, **settings: Any) -> Finding | None:
    """What `check_kernel` finds, as it finds it: not made smaller, not explained; None for nothing."""
    defaults: dict[str, Any] = check_kernel.__kwdefaults__ or {}
    return Search(kernel, reference, None, {**defaults, **settings}).first()


def collected_cases(
    kernel: Kernel, reference: Callable[..., Any] | None, settings: Mapping[str, Any]
) -> tuple[dict[str, Any], list[tuple[Case, Mapping[str, Schedule]]]]:
    """All settings of a check, and the cases and schedules that it would try in the interpreter; nothing is launched."""
    defaults: dict[str, Any] = check_kernel.__kwdefaults__ or {}
    made = {**defaults, **settings, "devices": "interpreter"}
    search = Search(kernel, reference, None, made)
    cases: list[tuple[Case, Mapping[str, Schedule]]] = []

    class Collector(Examiner):
        def examine(self, case: Case, schedules: Mapping[str, Schedule], like: Finding | None = None) -> None:
            cases.append((case, schedules))

    search.examiner = Collector(kernel, reference, search.executors)
    search.first()
    return made, cases


def _run(search: Search) -> CheckResult:
    """What a search that finds nothing did. Raises CheckFailure for what it finds."""
    start = time.perf_counter()
    finding = search.first()
    if finding is not None:
        raise Explainer(search).failure(finding)
    return CheckResult(
        search.kernel.name, search.examples, search.examiner.launches, time.perf_counter() - start,
        tuple(e.name for e in search.examiner.executors),
        {n: tuple(t.name for t in kinds) for n, kinds in search.drawing.types.items()},
        {**search.drawing.left_out, **search.examiner.skipped},
    )  # fmt: skip


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
        _run(Search(kernel, reference, judge, settings, remembers=True))

    test.__name__, test.__qualname__ = named.__name__, named.__qualname__
    test.__module__, test.__doc__ = named.__module__, named.__doc__

    def with_kernel(other: Kernel) -> None:
        found = Search(other, reference, judge, {**settings, "devices": "interpreter"}).first()
        assert found is None, found.kind

    test.kernel = kernel  # type: ignore[attr-defined]
    test.with_kernel = with_kernel  # type: ignore[attr-defined]  # the same property of another kernel
    test.settings = settings  # type: ignore[attr-defined]
    return test
