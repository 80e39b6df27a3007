"""Puts broken kernels in the place of the standard library's, and holds its properties against them.

Enters: a kernel and its properties. Leaves: a verdict on each of its mutants. An operation's results are compared first;
then it runs again with the sanitizer built into the changed kernel. A mutant that survives is the same program where the
optimiser makes the same of it for every signature with which the properties launch the kernel; where already the front end
does, no property compiles the changed place, and it counts as missed.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import vkjit as vk
from tests.stdlib_properties.catalogue import KernelProperty
from tests.stdlib_properties.coverage import launching, name_of
from tests.stdlib_properties.operations import Operation, check_case, check_guarded
from vkjit import frontend
from vkjit.errors import CompileError, FeatureError, InternalError
from vkjit.frontend.source import source_of
from vkjit.interp.device import INTERPRETER_CAPS
from vkjit.ir.printer import print_module
from vkjit.jit import Kernel
from vkjit.testing.impatient import Clock
from vkjit.testing.mutate import Edit, mutant
from vkjit.testing.mutate.choices import without_idle_choices
from vkjit.testing.mutate.edits import replaced
from vkjit.testing.mutate.equivalence import more_barriers
from vkjit.testing.mutate.trials import CaseProperty, Trial, Trials

__all__ = ["Bench", "Place", "Verdict"]

CASES = 32
"""Cases per property of a kernel."""

_KEPT_TEXTS = 128
_MOST_ASSERTS = 16
_SEARCHED = ", sanitized"


@dataclass(frozen=True)
class Place:
    """Where an operation launches a kernel: the number of its case, and the kind of device."""

    operation: Operation
    number: int
    kind: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """`state`: "killed" (`by` which trial), "survived", "uncovered", "equivalent", "invalid" or "defect" (`by` what the
    compiler raised)."""

    state: str
    by: str
    seconds: float


class Bench:
    """One kernel, the trials that it passes, and the signatures that it is launched with."""

    def __init__(
        self, kernel: Kernel, properties: Sequence[KernelProperty], places: Sequence[Place], clock: Clock
    ) -> None:
        self.kernel = kernel
        self.device = vk.device()  # the clock's interpreter
        self._signatures: dict[tuple[Any, Any], Kernel] = {}
        self._functions: list[Any] = []  # of changed kernels
        self._edit: Edit | None = None
        self._made: dict[tuple[Kernel, Edit | None, str], Kernel] = {}
        trials = [t for p in properties for t in self._direct(p)]
        ordered = sorted(places, key=lambda p: p.seconds)
        trials += [self._launched(place, searched) for searched in (False, True) for place in ordered]
        self.trials = Trials(kernel, trials, clock, self._recover)

    def verdict(self, edit: Edit) -> Verdict:
        """What becomes of the kernel with this edit."""
        start = time.thread_time()
        try:
            with self._watched():
                state, by = self._judged(edit)
        except CompileError:
            state, by = "invalid", ""
        except InternalError as error:
            state, by = "defect", str(error)
        return Verdict(state, by, time.thread_time() - start)

    def _judged(self, edit: Edit) -> tuple[str, str]:
        self._edit = edit
        self._made = {k: v for k, v in self._made.items() if k[1] is None}
        changed = self._changed(self.kernel, edit, "as it is")
        by = self.trials.failed(changed, self.trials.known())
        if by:
            return "killed", by
        others = self.trials.others()
        by = self.trials.failed(changed, others[:2])
        if by:
            return "killed", by
        if self._means_the_same(edit):
            self._meet_all_signatures()
            if all(self._text(k, s, raw=True) == self._text(c, s, raw=True) for k, c, s in self._pairs(edit)):
                return "uncovered", ""
            if self._means_the_same(edit):
                return "equivalent", ""
        by = self.trials.failed(changed, others[2:])
        return ("killed" if by else "survived"), by

    def _meet_all_signatures(self) -> None:
        """Runs what hasn't run yet with the unchanged kernel: only then all signatures are known. Most mutants are noticed
        before anybody asks."""
        for trial in self.trials.trials:
            if math.isnan(trial.seconds) and not trial.name.endswith(_SEARCHED):
                self.trials.prove(trial)

    def _means_the_same(self, edit: Edit) -> bool:
        return bool(self._signatures) and all(
            any(more_barriers(self._text(k, s, raw=raw), self._text(c, s, raw=raw)) for raw in (False, True))
            for k, c, s in self._pairs(edit)
        )

    def _pairs(self, edit: Edit) -> Iterator[tuple[Kernel, Kernel, Any]]:
        """The unchanged kernel and the changed one, and a signature, for all that were met."""
        for (_, signature), kernel in self._signatures.items():
            yield kernel, self._changed(kernel, edit, "as it is"), signature

    @functools.lru_cache(maxsize=_KEPT_TEXTS)  # noqa: B019  benches live as long as the program
    def _text(self, kernel: Kernel, signature: Any, *, raw: bool) -> str:
        from vkjit.passes import pipeline

        module = frontend.lower_kernel(kernel.expanded_spec, signature)
        if not raw:
            with contextlib.suppress(FeatureError):  # what such a device can't run is compared as it was written
                module = pipeline.run(without_idle_choices(module), replace(INTERPRETER_CAPS, kind="discrete"), 2)
        return print_module(module)

    def _launched(self, place: Place, searched: bool) -> Trial:
        words = f"{place.operation.name} ({place.kind}) {list(place.operation.shapes[place.number])}"

        guarded = searched and place.operation.refused and place.kind in ("cpu", "gpu")

        def run(changed: Kernel) -> None:
            edit = None if changed is self.kernel else self._edit
            if guarded:  # a failed assert goes on: no access may follow from what it refused
                with _in_place(self.kernel, lambda found: self._changed(found, edit, "silent")):
                    check_guarded(place.operation, place.number, place.kind, self.device)
                return
            mode = "sanitized" if searched else "as it is" if place.kind in ("cpu", "gpu") else "checked"
            passed_over = (FeatureError,) if searched else ()  # what the sanitizer doesn't look into
            with (
                contextlib.suppress(*passed_over),
                _in_place(self.kernel, lambda found: self._changed(found, edit, mode)),
            ):
                check_case(place.operation, place.number, place.kind, self.device)

        return Trial(f"{words}{_SEARCHED if searched else ''}", run)

    def _changed(self, kernel: Kernel, edit: Edit | None, mode: str) -> Kernel:
        """One of the kernels made from the source (a factory makes several), with the edit; "sanitized", or "checked": in
        debug mode, since native code that writes anywhere would bring down more than itself; "silent": sanitized, no asserts.
        """
        key = (kernel, edit, mode)
        if key not in self._made:
            made = kernel if edit is None else mutant(kernel, edit)
            if edit is not None:
                self._functions.append(made.spec.fn)
            options: dict[str, Any] = {"as it is": {}, "checked": {"debug": True}}.get(mode, {"sanitize": True})
            if mode == "silent":
                made = _without_asserts(made)
                self._functions.append(made.spec.fn)
            self._made[key] = _with(made, options) if options else made
        return self._made[key]

    def _direct(self, item: KernelProperty) -> Iterator[Trial]:
        settings = {"max_examples": CASES, "seed": 1, **item.inputs}
        for trial in CaseProperty(item.kernel, item.reference, settings).trials(item.label):
            yield Trial(trial.name, self._with_kernel_of(item, trial.run))

    def _with_kernel_of(self, item: KernelProperty, run: Callable[[Kernel], None]) -> Callable[[Kernel], None]:
        """A factory makes several kernels of one source: each property is that of its own."""

        def run_own(changed: Kernel) -> None:
            run(item.kernel if changed is self.kernel else self._changed(item.kernel, self._edit, "as it is"))

        return run_own

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """Collects the signatures with which the unchanged kernel is launched inside the block."""
        wanted, original = name_of(self.kernel), Kernel._signature

        def signature(kernel: Kernel, *args: Any) -> Any:
            made = original(kernel, *args)
            function = kernel.spec.fn
            if name_of(kernel) == wanted and not any(function is f for f in self._functions):
                plain = dataclasses.replace(made, sanitize=(), debug=False, bounds=True, overlaps=())
                self._signatures.setdefault((function, plain), kernel)
            return made

        with mock.patch.object(Kernel, "_signature", signature):
            yield

    def _recover(self) -> None:
        """Takes what the devices still have to report."""
        for info in vk.devices():
            device = self.device if info.kind == "interpreter" else vk.device(info.index)
            for _ in range(100):
                try:
                    device.synchronize()
                except vk.VkjitError:
                    continue
                break


def _without_asserts(kernel: Kernel) -> Kernel:
    for _ in range(_MOST_ASSERTS):
        source = source_of(kernel.spec.fn)
        found = next((node for node in ast.walk(source.node) if isinstance(node, ast.Assert)), None)
        if found is None:
            return kernel
        kernel = mutant(kernel, replaced("dropped statement", found, source.lines, "pass"))
    raise AssertionError(f"{kernel.name} has more than {_MOST_ASSERTS} asserts")


def _with(kernel: Kernel, options: dict[str, Any]) -> Kernel:
    made = kernel.variant(**options)
    made.spec = kernel.spec
    made._forget()
    return made


@contextlib.contextmanager
def _in_place(kernel: Kernel, change: Callable[[Kernel], Kernel]) -> Iterator[None]:
    """Inside the block, whoever launches a kernel made from the same source launches the changed one."""
    wanted, original = name_of(kernel), Kernel._launch
    changed: list[Kernel] = []

    def launch(self: Kernel, *args: Any, **kwargs: Any) -> Any:
        if name_of(self) == wanted and self not in changed:
            self = change(self)
            changed.append(self)
        return original(self, *args, **kwargs)

    with launching(launch):
        yield
