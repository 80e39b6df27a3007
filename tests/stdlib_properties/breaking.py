"""Puts broken kernels in the place of the standard library's, and runs the properties that launch them.

Enters: a kernel, its properties, the first ones quickest. Leaves: its mutation score.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

from tests.stdlib_properties.catalogue import KernelProperty
from tests.stdlib_properties.coverage import name_of
from tests.stdlib_properties.operations import check_operation
from vkjit.jit import Kernel
from vkjit.testing.checks import first_finding
from vkjit.testing.drawing import Drawing
from vkjit.testing.mutate import MutationResult, mutation_score, mutations
from vkjit.testing.mutate.equivalence import Program

__all__ = ["score_of"]


def score_of(kernel: Kernel, properties: Sequence[Any], seconds: float = 20.0, every: int = 1) -> MutationResult:
    """The score of the properties on the kernel."""
    direct = [p for p in properties if isinstance(p, KernelProperty)]

    def check(changed: Kernel) -> None:
        for item in properties:
            if isinstance(item, KernelProperty):
                if item.kernel.spec.fn.__code__ is not kernel.spec.fn.__code__:
                    continue
                found = first_finding(
                    changed, item.reference, devices="interpreter", max_examples=16, seed=1, **item.inputs
                )
                assert found is None, found.kind
                continue
            with _in_place(kernel, changed):
                check_operation(item)

    return mutation_score(
        kernel, [check], same=_sameness(kernel, direct), seconds=seconds, edits=mutations(kernel)[::every]
    )


def _sameness(kernel: Kernel, direct: Sequence[KernelProperty]) -> Any:
    """Tells whether a changed kernel is the same program; for kernels whose signatures a property gives."""
    if not direct:
        return None
    kept = {k: direct[0].inputs[k] for k in ("dims", "elements", "dtypes") if k in direct[0].inputs}
    import vkjit as vk

    program = Program(kernel, Drawing(kernel, [vk.device("interpreter")], **kept))
    return program.same_as


@contextlib.contextmanager
def _in_place(kernel: Kernel, changed: Kernel) -> Iterator[None]:
    """The changed kernel wherever modules of the library hold the original, factories of kernels among them."""
    wanted = name_of(kernel)
    with contextlib.ExitStack() as stack:
        for name, module in list(sys.modules.items()):
            if not name.startswith("vkjit.stdlib"):
                continue
            for attribute, value in list(vars(module).items()):
                if isinstance(value, Kernel) and name_of(value) == wanted:
                    stack.enter_context(mock.patch.object(module, attribute, changed))
                elif hasattr(value, "cache_info") and attribute == kernel.spec.fn.__name__:
                    stack.enter_context(mock.patch.object(module, attribute, _factory(value, kernel, changed)))
        yield


def _factory(original: Any, kernel: Kernel, changed: Kernel) -> Any:
    known = inspect.getclosurevars(kernel.spec.fn).nonlocals
    return lambda S: changed if known.get("S") is S else original(S)
