"""Run a case (the arguments of one launch) on all executors (the kernel on one device each) and look for errors.

`Examiner.examine` checks, in this order:

- errors that the kernel or the sanitizer reports. The first launch is in debug mode on the first executor, which is the
  interpreter if the user's devices include it. Launches on all executors follow;
- writes outside arrays, in each of these launches;
- elements of Outs (arrays that the kernel only writes) that it doesn't write. Before each launch, Outs are filled with
  poison, a known byte;
- differences of outputs from the user's reference or, without one, between executors and schedules. Outputs that depend
  on the poison are reported as such;
- the user's own properties: functions of the arguments and outputs that assert something.

The first failure is returned as a `Finding`.
"""

from __future__ import annotations

import inspect
import itertools
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vkjit.errors import ArgumentError, FeatureError, KernelError
from vkjit.ir.core import Module
from vkjit.ir.ops import OpName
from vkjit.launch.kernel import Kernel
from vkjit.runtime.sanitizer_reports import DEFAULT_CHECKS

from ..cases.case import ArrayInput, Case, decode
from ..cases.composites import assemble, parts_of_arrays
from ..cases.reference import call_by_name, expected_outputs, outputs_of, uncertainty, values_by_name
from ..cases.schedules import PLAIN, Schedule
from ..compare.outputs import Bounds, Difference, compare
from ..compare.tolerances import ErrorBudget, Tolerance, rounded_operations
from ..compare.unordered import Unordered, aligned, rows_of, unordered_of
from ..execution.run import POISONS, Executor, Outcome
from ..execution.shadow import Shadow
from .finding import Finding

__all__ = ["Examiner"]

EXACT_OPERATIONS: frozenset[OpName] = frozenset({
    "add", "sub", "mul", "div", "sqrt", "neg", "abs", "min", "max", "fmin", "fmax", "floor", "ceil", "trunc", "round",
    "sign", "select", "copysign", "cast", "const",
})  # fmt: skip
"""Operations whose results are bit-identical on all devices in strict mode."""


@dataclass(frozen=True, slots=True)
class _Run:
    """A launch that completed without errors."""

    executor: Executor
    schedule: Schedule
    outcome: Outcome


class Examiner:
    """An oracle for cases of one kernel: runs them on all executors and compares the results.

    groups: the user's grid. tolerance: the user's tolerance. precise: pass float64 to the reference. partial: the
    kernel need not write all elements of its Outs. properties: the user's properties. checks: the sanitizer's checks.
    unordered: outputs with unordered rows, as described at `unordered_of`.
    """

    def __init__(
        self,
        kernel: Kernel,
        reference: Callable[..., Any] | None,
        executors: Sequence[Executor],
        *,
        groups: Any = None,
        tolerance: Tolerance | None = None,
        precise: bool = True,
        partial: bool = False,
        properties: Sequence[Callable[..., Any]] = (),
        checks: Sequence[str] = DEFAULT_CHECKS,
        unordered: Any = (),
    ) -> None:
        self.kernel = kernel
        self.spec = kernel.expanded_spec
        self.checks = tuple(checks)
        self.reference = reference
        self.executors = list(executors)
        self.shadow = Shadow(kernel, groups)
        self.tolerance = tolerance
        self.precise = precise
        self.partial = partial
        self.properties = tuple(properties)
        self.outputs = outputs_of(self.spec)
        self.outs = [p.name for p in self.spec.params if p.kind == "array" and p.mode == "out"]
        self.unordered = unordered_of(kernel.spec, parts_of_arrays(self.spec), unordered)
        # groups of outputs with unordered rows, by output; `_loose` are those of them whose rows a counter counts
        self._group_of = {name: group for group in self.unordered for name in group.names}
        self._loose = frozenset(n for n, group in self._group_of.items() if group.counter is not None)
        self.skipped: dict[str, str] = {}  # why executors were removed, by name
        self.launches = 0
        # by id(module); the tuple keeps the module alive, so that its id isn't reused
        self._budgets: dict[int, tuple[Module, ErrorBudget]] = {}

    def examine(self, case: Case, schedules: Mapping[str, Schedule], like: Finding | None = None) -> Finding | None:
        """Return the first failure of a case; None if it passes.

        `schedules` are the launch settings by executor name. `like` is a finding to reproduce: if it is a report of the
        sanitizer, only the launch under the sanitizer is made. Raises CompileError for a kernel that doesn't compile,
        and any exception of the reference.
        """
        first = self.executors[0]
        debug_run = self._first_run(case, first)
        if isinstance(debug_run, Finding):
            return debug_run
        if like is not None and like.reports:
            return None
        runs: list[_Run] = [] if debug_run is None else [debug_run]
        # (executor, schedule, index in POISONS): the first run had POISONS[0], so both poisons occur
        plan = [(first, schedules.get(first.name, PLAIN), 1)]
        plan += [(e, schedules.get(e.name, PLAIN), number % 2) for number, e in enumerate(self.executors[1:])]
        for executor, schedule, poison_index in plan:
            run = self._run(case, executor, schedule, POISONS[poison_index])
            if isinstance(run, Finding):
                return run
            if run is not None:
                runs.append(run)
        expected = None
        # the reference is called after the kernel, which reports an index out of bounds more precisely
        if self.reference is not None:
            expected = self._expected(self.reference, case)
        return (
            self._find_unwritten(case, runs, expected)
            or self._find_differences(case, runs, expected)
            or self._check_properties(case, runs)
        )

    def _first_run(self, case: Case, executor: Executor) -> _Run | Finding | None:
        """Run the case in debug mode, with the sanitizer if enabled; None if the device can't run the kernel."""
        schedule = replace(PLAIN, debug=True)
        if not self.checks:
            return self._run(case, executor, schedule, POISONS[0])
        try:
            self.launches += 1
            outcome, reports = executor.sanitized(case, schedule, POISONS[0], self.checks)
        except KernelError as error:
            return Finding("report", case, executor.name, schedule, error=error)
        except FeatureError as error:
            self._skip(executor, error)
            return None
        if reports:
            return Finding("sanitizer", case, executor.name, schedule, reports=tuple(reports))
        return self._check_stray_writes(case, executor, schedule, POISONS[0], outcome)

    def _check_stray_writes(
        self, case: Case, executor: Executor, schedule: Schedule, poison: int, outcome: Outcome
    ) -> _Run | Finding:
        """Wrap the outcome of a launch in a `_Run`; return a finding instead if the kernel wrote outside its arrays."""
        if outcome.stray_writes:
            name, offsets = next(iter(outcome.stray_writes.items()))
            return Finding("outside", case, executor.name, schedule, name, offsets=tuple(offsets), poison=poison)
        return _Run(executor, schedule, outcome)

    def _expected(self, reference: Callable[..., Any], case: Case) -> Mapping[str, Any]:
        """Call the reference. If it raises, a note with the array shapes is added to its exception."""
        try:
            return expected_outputs(reference, self.spec, case, precise=self.precise, counted_rows=self._loose)
        except Exception as error:
            if hasattr(error, "add_note"):  # from Python 3.11 on
                shapes = ", ".join(f"{n}: {v.shape}" for n, v in case.arrays().items())
                error.add_note(f"raised by the reference of {self.kernel.name}, for arrays of shapes {shapes}")
            raise

    def _run(self, case: Case, executor: Executor, schedule: Schedule, poison: int) -> _Run | Finding | None:
        """Launch once; return the run or the failure, or None if the device can't run the kernel."""
        try:
            self.launches += 1
            outcome = executor.run(case, schedule, poison)
        except KernelError as error:
            return Finding("report", case, executor.name, schedule, error=error, poison=poison)
        except FeatureError as error:
            self._skip(executor, error)
            return None
        return self._check_stray_writes(case, executor, schedule, poison, outcome)

    def _skip(self, executor: Executor, error: FeatureError) -> None:
        """Remove an executor whose device can't run the kernel. Re-raises the error if it is the only executor."""
        if len(self.executors) == 1:
            raise error
        self.skipped[executor.name] = str(error).splitlines()[0]
        if executor in self.executors:
            self.executors.remove(executor)

    def _find_unwritten(self, case: Case, runs: Sequence[_Run], expected: Mapping[str, Any] | None) -> Finding | None:
        """Return a finding if elements of an Out still hold the poison after two runs with different poison.

        Outs that the reference omits aren't checked.
        """
        if self.partial or len({r.outcome.poison for r in runs}) < 2:
            return None
        for name in self.outs:
            if expected is not None and name not in expected:
                continue
            for previous, run in itertools.pairwise(runs):
                untouched = previous.outcome.untouched(name) & run.outcome.untouched(name)
                if name in self._loose:  # rows that aren't valid need not be written
                    untouched[self._rows(case, run, name) :] = False
                # with equal poisons, an element that the kernel sets to the poison's value would look unwritten
                if previous.outcome.poison == run.outcome.poison or not untouched.any():
                    continue
                untouched &= ~self.shadow.written(case, name)  # poison that was read and written back
                if untouched.any():
                    return Finding(
                        "unwritten", case, run.executor.name, run.schedule, name, wrong=untouched,
                        poison=run.outcome.poison,
                    )  # fmt: skip
        return None

    def _find_differences(self, case: Case, runs: Sequence[_Run], expected: Mapping[str, Any] | None) -> Finding | None:
        """Return a finding for the first output that differs from the reference or, without one, from the first run.

        Outputs that the reference omits aren't compared. `_has_to_agree` selects the outputs in which runs are
        compared.
        """
        # measured only if an output needs them, and once for all outputs
        spread = _Once(lambda: self.shadow.spread(case, PLAIN))
        wide_spread = _Once(lambda: self.shadow.wide_spread(case, PLAIN))
        expected_values: Mapping[str, Any]
        if expected is None:
            kind = "disagreement"
            compared_runs = list(runs[1:])
            expected_values = self._values(case, runs[0]) if runs else {}
        else:
            kind = "reference"
            # the first run, in debug mode, comes last, so that a finding preferably names a launch as users make it
            compared_runs = [*runs[1:], *runs[:1]]
            expected_values = expected
        for name in self.outputs:
            if name not in expected_values or (expected is None and not self._has_to_agree(name)):
                continue
            bounds = self._bounds(case, name, spread, wide_spread, expected)
            for run in compared_runs:
                difference = self._compare_output(case, run, name, expected_values, bounds)
                if difference is not None:
                    return self._difference(case, runs[0], run, kind, *difference, expected)
        return None

    def _has_to_agree(self, name: str) -> bool:
        """True if runs are compared with each other in this output when there is no reference.

        If the user gave properties, they decide if results are right, and runs are compared only in outputs with
        unordered rows and their counters. Otherwise all outputs are compared, except Outs of a kernel that need not
        write all elements (`partial`).
        """
        if self.properties and self.reference is None:
            return name in self._group_of or any(name == g.counter for g in self.unordered)
        return not (self.partial and name in self.outs)

    def _values(self, case: Case, run: _Run) -> dict[str, Any]:
        """Return the output values of a run by name, as carried values (see `cases.case`)."""
        arrays = case.arrays()
        return {n: decode(raw, arrays[n].dtype) for n, raw in run.outcome.raw.items()}

    def _rows(self, case: Case, run: _Run, name: str) -> int:
        """Return the number of valid rows that a run produced in an output with unordered rows."""
        return rows_of(self._group_of[name], self._values(case, run), case.arrays()[name].shape[0])

    def _compare_output(
        self, case: Case, run: _Run, name: str, expected: Mapping[str, Any], bounds: Bounds
    ) -> tuple[str, Difference] | None:
        """Compare an output of a run with the `expected` values, keyed by output name; None if they agree.

        Returns the name of the differing output and the difference. If an output with unordered rows has a wrong number
        of rows, this is reported as a difference of its counter, the output that holds the number.
        """
        dtype, group = case.arrays()[name].dtype, self._group_of.get(name)
        found = decode(run.outcome.raw[name], dtype)
        if group is None or not found.ndim:
            difference = compare(found, np.asarray(expected[name]), dtype, bounds)
            return None if difference is None else (name, difference)
        values, extent = self._values(case, run), found.shape[0]
        row_count = rows_of(group, values, extent)
        expected_row_count = len(expected[name])
        if expected_row_count == extent:
            # the reference returned all rows, so their number doesn't tell how many of them are valid
            expected_row_count = rows_of(group, expected, extent) if group.counter in expected else row_count
        if row_count != expected_row_count and group.counter is not None:
            counter = values[group.counter]
            return group.counter, _counter_difference(counter, expected_row_count, case.arrays()[group.counter].dtype)
        matched = self._match_rows(case, group, values, expected, row_count)[name]
        invalid_rows = found[row_count:].astype(matched.dtype)  # equal to themselves, so they aren't compared
        difference = compare(found, np.concatenate([matched, invalid_rows]), dtype, bounds.of_rows(found.shape))
        return None if difference is None else (name, difference)

    def _match_rows(
        self, case: Case, group: Unordered, values: Mapping[str, Any], expected: Mapping[str, Any], rows: int
    ) -> dict[str, Any]:
        """Return the expected outputs of a group of unordered outputs, their rows reordered to match those in `values`.

        `rows` is the number of valid rows. Outputs of the group that the reference omits are left out.
        """
        arrays = case.arrays()
        given = [n for n in group.names if n in expected]
        short = [n for n in given if len(expected[n]) < rows]
        if short:
            raise ArgumentError(f"the reference gives {len(expected[short[0]])} rows of {short[0]}, expected {rows}, as of "
                                f"{next(n for n in given if n not in short)}")  # fmt: skip
        expected_rows = [np.asarray(expected[n])[:rows] for n in given]
        matched = aligned([values[n][:rows] for n in given], expected_rows, [arrays[n].dtype for n in given])
        return dict(zip(given, matched, strict=True))

    def _difference(
        self, case: Case, first: _Run, run: _Run, kind: str, name: str, difference: Difference,
        expected: Mapping[str, Any] | None,
    ) -> Finding:  # fmt: skip
        """Return the finding for a difference in the output `name` of `run`.

        `kind` is "reference", or "disagreement" if the output was compared with that of the run `first`, for lack of a
        reference.
        """
        poison = run.outcome.poison
        if kind == "disagreement" and self._depends_on_poison(case, run, name):
            return Finding(
                "depends", case, run.executor.name, run.schedule, name, wrong=difference.wrong, poison=poison
            )
        other = f"{first.executor.name} (launched {first.schedule})" if kind == "disagreement" else ""
        return Finding(
            kind, case, run.executor.name, run.schedule, name, difference=difference, other=other, poison=poison,
            expected=expected, rows=self._rows(case, run, name) if name in self._group_of else None,
        )  # fmt: skip

    def _depends_on_poison(self, case: Case, run: _Run, name: str) -> bool:
        """True if the Out `name` differs between two launches that differ only in the poison.

        False for outputs with unordered rows, which may differ between any two launches.
        """
        if name not in self.outs or name in self._group_of:
            return False
        first, second = (run.executor.run(case, run.schedule, poison).raw[name] for poison in POISONS)
        return first.tobytes() != second.tobytes()

    def _check_properties(self, case: Case, runs: Sequence[_Run]) -> Finding | None:
        """Call the user's properties with the arguments and outputs of each run; return the first failure.

        A property fails if it raises AssertionError or returns False. Its parameter `before` receives the arguments as
        they were before the launch.
        """
        for prop, run in itertools.product(self.properties, runs):
            values = values_by_name(case, precise=False)
            before = assemble(self.spec, values)
            after = assemble(self.spec, {**values, **self._values(case, run)})
            names = inspect.signature(prop).parameters
            if "before" in names and "before" not in after:  # unless the kernel has a parameter of this name
                after["before"] = before
            try:
                failure = "it gives False" if call_by_name(prop, after, "the test") is False else ""
            except AssertionError as error:
                failure = str(error) or _line_of(error)
            if failure:
                violation = KernelError(f"{_name_of(prop)} doesn't hold: {failure}")
                return Finding(
                    "property", case, run.executor.name, run.schedule, error=violation, poison=run.outcome.poison
                )
        return None

    # -- error bounds

    def _bounds(
        self, case: Case, name: str, spread: Any, wide_spread: Any, expected: Mapping[str, Any] | None
    ) -> Bounds:
        """Return the error bounds of an output.

        `spread` and `wide_spread` return the results of the `Shadow` methods of these names for the case, computed on
        demand and only once. `expected` has the reference's outputs; it is None without a reference.
        """
        if self.reference is None and self.kernel._strict and self._strictly_exact(case):
            return Bounds(lambda: 0.0, None, self.tolerance, exact=True)
        reference_error = None
        if self.reference is not None and expected is not None and name in expected:
            reference, expected_output = self.reference, expected[name]

            def reference_error() -> Any:
                return uncertainty(
                    reference, self.spec, case, name, expected_output, precise=self.precise, loose=self._loose
                )

        return Bounds(
            lambda: self._budget(case),
            lambda: spread()[name],
            self.tolerance,
            reference_uncertainty=reference_error,
            wide_spread=lambda: wide_spread()[name],
        )

    def _strictly_exact(self, case: Case) -> bool:
        """True if strict mode makes all operations of the launched kernel bit-identical on all devices."""
        launch = self.shadow.launch(case)
        return launch is not None and rounded_operations(launch.module) <= EXACT_OPERATIONS

    def _budget(self, case: Case) -> float | None:
        """Return the relative rounding error along the longest path for the case's sizes; None if unknown."""
        launch = self.shadow.launch(case)
        if launch is None:  # an empty grid
            return 0.0
        module = launch.module
        if id(module) not in self._budgets:
            self._budgets[id(module)] = (module, ErrorBudget(module))
        values = list(case.arguments.values())
        extents = {i: v.shape for i, v in enumerate(values) if isinstance(v, ArrayInput)}
        scalars = {i: v for i, v in enumerate(values) if isinstance(v, int)}
        _, budget = self._budgets[id(module)]
        return budget.evaluate(extents, scalars, launch.groups)


def _name_of(prop: Callable[..., Any]) -> str:
    """Return the description of a property for error messages."""
    name = getattr(prop, "__name__", "")
    if name == "<lambda>":
        return f"the property at {prop.__code__.co_filename}:{prop.__code__.co_firstlineno}"
    return "the test's own assertion" if not name or name.startswith(("<", "test")) else f"the property {name}"


def _counter_difference(counter: Any, rows: int, dtype: Any) -> Difference:
    """Return the difference for a counter whose first element should be `rows`."""
    corrected, wrong = counter.copy(), np.zeros(counter.shape, bool)
    corrected.reshape(-1)[0] = rows
    wrong.reshape(-1)[0] = True
    return Difference(wrong, counter, corrected, np.zeros(counter.shape), dtype)


def _line_of(error: AssertionError) -> str:
    """Return the source line that raised an assertion without a message."""
    frames = traceback.extract_tb(error.__traceback__)
    return (frames[-1].line or "") if frames else "no message"


class _Once:
    """A lazily computed, cached value."""

    def __init__(self, compute: Callable[[], Any]) -> None:
        self._compute = compute
        self._value: Any = None
        self._done = False

    def __call__(self) -> Any:
        if not self._done:
            self._value, self._done = self._compute(), True
        return self._value
