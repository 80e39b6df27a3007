"""Mutation scores of the kernels in a Python file, measured with the tests in the same file.

Tests are those made by `vk.testing.check`, and functions `test_*` without parameters that use the kernel by its name in
the module; for them, the name is bound to the mutant. A kernel without tests is checked without a reference, for errors
and for disagreement between schedules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any
from unittest import mock

from vkjit.errors import ArgumentError, VkjitError
from vkjit.launch.kernel import Kernel

from ..checks import first_finding
from ..generate.strategies import Drawing
from .equivalence import Program
from .score import MutationResult, mutation_score

__all__ = ["score_of_file"]


def score_of_file(
    module: ModuleType, kernels: dict[str, Kernel], *, examples: int = 30, **settings: Any
) -> Iterator[tuple[MutationResult, str]]:
    """Yield the result for each kernel, with a description of the tests that were run.

    kernels: the kernels of the module by name. examples, settings: the number of inputs, and arguments of
    `check_kernel`, for kernels without tests. Raises ArgumentError if a test fails on the original kernel, since it
    would then kill every mutant.
    """
    for name, kernel in kernels.items():
        checked, plain = _tests(module, name, kernel)
        checks = [*(test.with_kernel for test in checked), *plain] or [_without_reference(examples, settings)]
        _check_baseline(kernel, checks, bool(checked or plain))
        count = len(checked) + len(plain)
        description = f"{count} test{'s' if count > 1 else ''}" if count else "no tests: schedules and sanitizer alone"
        yield (
            mutation_score(
                kernel, checks, same=_equivalence_test(kernel, checked[0].settings if checked else settings)
            ),
            description,
        )


def _check_baseline(kernel: Kernel, checks: list[Callable[[Kernel], Any]], tested: bool) -> None:
    """Run the checks on the original kernel. Raises ArgumentError if one fails. `tested`: the file has tests for it."""
    for check in checks:
        try:
            check(kernel)
        except Exception as error:
            failure = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            if not tested:
                raise ArgumentError(
                    f"{kernel.name} has no test in this file, and the check without a reference says {failure}: say with --dims, "
                    "--elements and --groups how to call it, or write a test with vk.testing.check"
                ) from error
            raise ArgumentError(
                f"a test of {kernel.name} fails without any change to the kernel ({failure}), and would take every mutant for "
                "noticed: run the tests without --mutate, and mend the kernel or the test first"
            ) from error


def _tests(module: ModuleType, name: str, kernel: Kernel) -> tuple[list[Any], list[Callable[[Kernel], Any]]]:
    """Return a kernel's tests: those made by `check`, and for each plain test a function that runs it on a kernel."""
    checked, plain = [], []
    for key, value in vars(module).items():
        if getattr(value, "kernel", None) is kernel and hasattr(value, "with_kernel"):
            checked.append(value)
        elif key.startswith("test_") and callable(value) and not hasattr(value, "kernel"):
            names = value.__code__.co_names if hasattr(value, "__code__") else ()
            if name in names and value.__code__.co_argcount == 0:
                plain.append(_replaced(module, name, value))
    return checked, plain


def _replaced(module: ModuleType, name: str, test: Callable[[], Any]) -> Callable[[Kernel], None]:
    """Return a function that runs a test with the module's `name` bound to a given kernel."""

    def run(kernel: Kernel) -> None:
        with mock.patch.object(module, name, kernel):
            test()

    return run


def _without_reference(examples: int, settings: dict[str, Any]) -> Callable[[Kernel], None]:
    """Return a function that checks a kernel without a reference and raises AssertionError if it fails."""

    def run(kernel: Kernel) -> None:
        found = first_finding(kernel, devices="interpreter", max_examples=examples, seed=1, **settings)
        assert found is None, found.kind

    return run


def _equivalence_test(kernel: Kernel, settings: dict[str, Any]) -> Callable[[Kernel], bool] | None:
    """Return a function that is True for mutants equivalent to the kernel; None if the kernel can't be compared."""
    from vkjit.backends.selection import device

    kept = {k: v for k, v in settings.items() if k in ("dims", "elements", "dtypes")}
    try:
        return Program(kernel, Drawing(kernel, [device("interpreter")], **kept)).same_as
    except VkjitError:
        return None
