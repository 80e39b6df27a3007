"""Mutation testing of standard library kernels: replace a kernel by a mutant and test its properties.

Each mutant of a kernel gets a verdict. Results of operations are compared first; then the operations run again with a
sanitized mutant. A surviving mutant is equivalent if the optimizer gives the same program for every signature that the
properties use. If the front end's output is already the same, no property compiles the mutated code, and the mutant
counts as missed.
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
from vkjit.backends.interp.runtime.device import INTERPRETER_CAPS
from vkjit.errors import CompileError, FeatureError, InternalError
from vkjit.frontend.source import source_of
from vkjit.ir.printer import print_module
from vkjit.launch.kernel import Kernel
from vkjit.testing.edits.edit import replaced
from vkjit.testing.execution.time_limited import Clock
from vkjit.testing.mutate import Edit, mutant
from vkjit.testing.mutate.equivalence import more_barriers
from vkjit.testing.mutate.redundant_choices import without_redundant_choices
from vkjit.testing.mutate.trials import CaseProperty, Trial, Trials

__all__ = ["Bench", "Place", "Verdict"]

CASES = 32
"""Examples per property of a kernel."""

_KEPT_TEXTS = 128
_MAX_ASSERTS = 16
_SEARCHED = ", sanitized"


@dataclass(frozen=True)
class Place:
    """A launch site: an operation, the number of its case, and the kind of device."""

    operation: Operation
    number: int
    kind: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result for a mutant.

    `state` is "killed" (`by` the named trial), "survived", "uncovered", "equivalent", "invalid" or "defect" (`by` a
    compiler error)."""

    state: str
    by: str
    seconds: float


class Bench:
    """A kernel with the trials that it passes and the signatures that it is launched with."""

    def __init__(
        self, kernel: Kernel, properties: Sequence[KernelProperty], places: Sequence[Place], clock: Clock
    ) -> None:
        self.kernel = kernel
        self.device = vk.device()  # the interpreter from `clock`
        self._signatures: dict[tuple[Any, Any], Kernel] = {}
        self._functions: list[Any] = []  # functions of mutants
        self._edit: Edit | None = None
        self._made: dict[tuple[Kernel, Edit | None, str], Kernel] = {}
        trials = [t for p in properties for t in self._direct(p)]
        ordered = sorted(places, key=lambda p: p.seconds)
        trials += [self._launched(place, searched) for searched in (False, True) for place in ordered]
        self.trials = Trials(kernel, trials, clock, self._recover)

    def verdict(self, edit: Edit) -> Verdict:
        """Return the verdict on a mutant."""
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
        by = self.trials.failed(changed, self.trials.proven_killers())
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
        """Run the remaining trials on the original kernel to collect all signatures.

        Most mutants are killed before this is necessary.
        """
        for trial in self.trials.trials:
            if math.isnan(trial.seconds) and not trial.name.endswith(_SEARCHED):
                self.trials.run_on_original(trial)

    def _means_the_same(self, edit: Edit) -> bool:
        return bool(self._signatures) and all(
            any(more_barriers(self._text(k, s, raw=raw), self._text(c, s, raw=raw)) for raw in (False, True))
            for k, c, s in self._pairs(edit)
        )

    def _pairs(self, edit: Edit) -> Iterator[tuple[Kernel, Kernel, Any]]:
        """Yield the original kernel, the mutant and a signature, for all collected signatures."""
        for (_, signature), kernel in self._signatures.items():
            yield kernel, self._changed(kernel, edit, "as it is"), signature

    @functools.lru_cache(maxsize=_KEPT_TEXTS)  # noqa: B019  instances live as long as the program
    def _text(self, kernel: Kernel, signature: Any, *, raw: bool) -> str:
        from vkjit.passes import pipeline

        module = frontend.lower_kernel(kernel.expanded_spec, signature)
        if not raw:
            with contextlib.suppress(FeatureError):  # a program that the device can't run is compared unoptimized
                module = pipeline.run(without_redundant_choices(module), replace(INTERPRETER_CAPS, kind="discrete"), 2)
        return print_module(module)

    def _launched(self, place: Place, searched: bool) -> Trial:
        words = f"{place.operation.name} ({place.kind}) {list(place.operation.shapes[place.number])}"

        guarded = searched and place.operation.refused and place.kind in ("cpu", "gpu")

        def run(changed: Kernel) -> None:
            edit = None if changed is self.kernel else self._edit
            if guarded:  # without asserts, wrong inputs must not cause invalid accesses
                with _in_place(self.kernel, lambda found: self._changed(found, edit, "silent")):
                    check_guarded(place.operation, place.number, place.kind, self.device)
                return
            mode = "sanitized" if searched else "as it is" if place.kind in ("cpu", "gpu") else "checked"
            passed_over = (FeatureError,) if searched else ()  # features that the sanitizer doesn't support
            with (
                contextlib.suppress(*passed_over),
                _in_place(self.kernel, lambda found: self._changed(found, edit, mode)),
            ):
                check_case(place.operation, place.number, place.kind, self.device)

        return Trial(f"{words}{_SEARCHED if searched else ''}", run)

    def _changed(self, kernel: Kernel, edit: Edit | None, mode: str) -> Kernel:
        """Return a mutant of a kernel (a factory makes several from one source) in a mode.

        "as it is"; "sanitized"; "checked": debug mode, since out-of-bounds writes of native code could crash the
        process; "silent": sanitized without asserts.
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
        """Bind a property to its own kernel, since a factory makes several kernels from one source."""

        def run_own(changed: Kernel) -> None:
            run(item.kernel if changed is self.kernel else self._changed(item.kernel, self._edit, "as it is"))

        return run_own

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """Collect the signatures with which the original kernel is launched inside the block."""
        wanted, original = name_of(self.kernel), Kernel._code

        def code(kernel: Kernel, *args: Any) -> Any:
            made = original(kernel, *args)
            function = kernel.spec.fn
            if name_of(kernel) == wanted and not any(function is f for f in self._functions):
                plain = dataclasses.replace(made.signature, sanitize=(), debug=False, bounds=True, overlaps=())
                self._signatures.setdefault((function, plain), kernel)
            return made

        with mock.patch.object(Kernel, "_code", code):
            yield

    def _recover(self) -> None:
        """Consume pending reports of all devices."""
        for info in vk.devices():
            device = self.device if info.kind == "interpreter" else vk.device(info.index)
            for _ in range(100):
                try:
                    device.synchronize()
                except vk.VkjitError:
                    continue
                break


def _without_asserts(kernel: Kernel) -> Kernel:
    for _ in range(_MAX_ASSERTS):
        source = source_of(kernel.spec.fn)
        found = next((node for node in ast.walk(source.node) if isinstance(node, ast.Assert)), None)
        if found is None:
            return kernel
        kernel = mutant(kernel, replaced("dropped statement", found, source.lines, "pass"))
    raise AssertionError(f"{kernel.name} has more than {_MAX_ASSERTS} asserts")


def _with(kernel: Kernel, options: dict[str, Any]) -> Kernel:
    made = kernel.variant(**options)
    made.spec = kernel.spec
    made._forget()
    return made


@contextlib.contextmanager
def _in_place(kernel: Kernel, change: Callable[[Kernel], Kernel]) -> Iterator[None]:
    """Replace launches of kernels with the same source by launches of the changed kernel, inside the block."""
    wanted, original = name_of(kernel), Kernel._launch
    changed: list[Kernel] = []

    def launch(self: Kernel, *args: Any, **kwargs: Any) -> Any:
        if name_of(self) == wanted and self not in changed:
            self = change(self)
            changed.append(self)
        return original(self, *args, **kwargs)

    with launching(launch):
        yield
