"""Property tests of kernels, the public interface: `check_kernel` runs one, `check` makes a test function for pytest.

Both search for a failing case (see `vkjit.testing.search`). If there is none, `check_kernel` returns a `CheckResult`.
Otherwise, the case is shrunk and explained (see `vkjit.testing.explain`), and `CheckFailure` is raised.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import ArgumentError
from ..launch.kernel import Kernel
from .cases.case import Case
from .cases.schedules import Schedule
from .explain.explainer import Explainer
from .search.examiner import Examiner
from .search.finding import Finding
from .search.search import Search

__all__ = ["CheckResult", "check", "check_kernel", "collected_cases", "first_finding"]

EXAMPLES = 100
"""Default number of inputs of a check."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Statistics of a check that found no failure.

    `examples` is the number of inputs. `dtypes` maps each type variable to the types tried. `left_out` maps what wasn't
    tried, such as "T = vk.f16", to the reason.
    """

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
    """Search for inputs and schedules on which the kernel is wrong.

    Raises CheckFailure with the smallest failing input. The arguments are:

    reference: a function that takes the arguments that it names and returns the outputs (one array, a tuple in the
        order of Outs and InOuts, or a dictionary), or returns None after writing into the output arrays that it names.
        Outputs that a dictionary omits, or for which a tuple has None, aren't checked. Without a reference, devices and
        schedules are compared with each other, unless `properties` are given.
    devices: indices, names or devices (default: the interpreter and the default device).
    dims, elements, where, dtypes, special, aliases: constrain the inputs; see `strategies`. Floats include NaN and
        infinities unless `special=False` or `elements` gives a range.
    groups: the number of workgroups, or a function of arguments that it names, for kernels without over= and groups=.
    tolerance: a relative bound, a (relative, absolute) pair or a Tolerance (default: derived from the kernel's
        operations).
    precise: pass floats to the reference as float64, so that its own rounding errors don't matter.
    partial: allow elements of Outs that no invocation writes.
    unordered: outputs whose rows (along the first axis) may come in any order: a name, several names, tuples of names
        whose rows belong together, or a dictionary that maps a name or tuple to the output whose first element is the
        number of rows: {"y": "count"}. The reference may return just these rows.
    properties: functions whose parameters have names of arguments. They get outputs as they are after the launch; a
        parameter `before` gets a dictionary of all arguments before the launch. They assert, or return False on
        failure. They may replace a reference.
    schedules: vary workgroup sizes, orders and optimization levels.
    strict: also vary strict mode, unless the kernel sets it.
    sanitize: names of the sanitizer's checks, as for `vk.testing.sanitize` (True: the default checks; False: none).
    seed: makes the search repeatable. script: path for a program that reproduces a failure.

    Always checked: index bounds, integer division by zero and asserts (debug mode); races, uninitialized reads and
    divergent barriers (sanitizer); writes outside arrays; elements of Outs that nobody writes; results that depend on
    the previous contents of an Out.
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
    """Return the first failure that `check_kernel` would find, neither shrunk nor explained; None if there is none."""
    defaults: dict[str, Any] = check_kernel.__kwdefaults__ or {}
    return Search(kernel, reference, None, {**defaults, **settings}).first()


def collected_cases(
    kernel: Kernel, reference: Callable[..., Any] | None, settings: Mapping[str, Any]
) -> tuple[dict[str, Any], list[tuple[Case, Mapping[str, Schedule]]]]:
    """Return the settings of a check, including defaults, and the cases that it would try in the interpreter.

    Each case comes with its schedules, by the name of the executor. Nothing is launched.
    """
    defaults: dict[str, Any] = check_kernel.__kwdefaults__ or {}
    chosen = {**defaults, **settings, "devices": "interpreter"}
    search = Search(kernel, reference, None, chosen)
    cases: list[tuple[Case, Mapping[str, Schedule]]] = []

    class Collector(Examiner):
        """Records the cases of a search instead of running them; since none fails, the search tries all its cases."""

        def examine(self, case: Case, schedules: Mapping[str, Schedule], like: Finding | None = None) -> None:
            cases.append((case, schedules))

    search.examiner = Collector(kernel, reference, search.executors)
    search.first()
    return chosen, cases


def _run(search: Search) -> CheckResult:
    """Run the search and return its statistics. Raises CheckFailure if it finds a failure."""
    start = time.perf_counter()
    finding = search.first()
    if finding is not None:
        raise Explainer(search).failure(finding)
    return CheckResult(
        search.kernel.name, search.examples, search.examiner.launches, time.perf_counter() - start,
        tuple(e.name for e in search.examiner.executors),
        {n: tuple(t.name for t in types) for n, types in search.drawing.types.items()},
        {**search.drawing.left_out, **search.examiner.skipped},
    )  # fmt: skip


def check(
    kernel: Kernel | None = None, *, reference: Callable[..., Any] | None = None, **settings: Any
) -> Callable[[Any], Callable[[], None]]:
    """Make a property test for pytest, as a decorator.

    If it decorates a function, this function is the reference, and the test gets its name::

        @vk.testing.check(saxpy, dims={"N": (0, 1000)})
        def test_saxpy(a, x, y):
            return a * x + y

    With `reference=`, the decorated function makes additional assertions instead. It is called with the arguments that
    it names; outputs are as they are after the launch::

        @vk.testing.check(softmax, reference=numpy_softmax)
        def test_softmax(x, y):
            assert (y >= 0).all()

    If it decorates a kernel, with `reference=`, the result is a test with the kernel's name, whose attribute `kernel`
    is the kernel. All other arguments are those of `check_kernel`. The test raises CheckFailure. Failing inputs are
    saved in hypothesis' database and tried first in the next run.
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
    """Return the test function. `judge` makes additional assertions; `named` has the name and docstring of the test."""

    def test() -> None:
        _run(Search(kernel, reference, judge, settings, remembers=True))

    test.__name__, test.__qualname__ = named.__name__, named.__qualname__
    test.__module__, test.__doc__ = named.__module__, named.__doc__

    def with_kernel(other: Kernel) -> None:
        finding = Search(other, reference, judge, {**settings, "devices": "interpreter"}).first()
        assert finding is None, finding.kind

    test.kernel = kernel  # type: ignore[attr-defined]
    test.with_kernel = with_kernel  # type: ignore[attr-defined]  # checks the same property of another kernel
    test.settings = settings  # type: ignore[attr-defined]
    return test
