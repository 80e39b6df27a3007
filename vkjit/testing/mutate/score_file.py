"""Mutation scores of the kernels in a Python file, measured with the tests in the same file.

Two kinds of tests are used: those made by `vk.testing.check`, and functions `test_*` without parameters that use the
kernel by its name in the module (plain tests). While a plain test runs on a mutant, the name is bound to the mutant. A
kernel without tests is checked without a reference, for errors and for disagreement between schedules.
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

    kernels: the kernels of the module by name.
    examples, settings: for kernels without tests, the number of inputs and the arguments of `check_kernel`.

    Raises ArgumentError if a test fails on the original kernel, since it would then kill every mutant.
    """
    for name, kernel in kernels.items():
        check_tests, plain_tests = _tests(module, name, kernel)
        checks = [*(test.with_kernel for test in check_tests), *plain_tests] or [_without_reference(examples, settings)]
        _check_baseline(kernel, checks, bool(check_tests or plain_tests))
        count = len(check_tests) + len(plain_tests)
        description = f"{count} test{'s' if count > 1 else ''}" if count else "no tests: schedules and sanitizer alone"
        yield (
            mutation_score(
                kernel, checks, same=_equivalence_test(kernel, check_tests[0].settings if check_tests else settings)
            ),
            description,
        )


def _check_baseline(kernel: Kernel, checks: list[Callable[[Kernel], Any]], tested: bool) -> None:
    """Run the checks on the original kernel. Raises ArgumentError if one fails.

    `tested` is True if the file has tests for the kernel; it selects the error text.
    """
    for check in checks:
        try:
            check(kernel)
        except Exception as error:
            first_line = str(error).partition("\n")[0]
            failure = f"{type(error).__name__}: {first_line}"
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
    """Return a kernel's tests: those made by `check`, and for each plain test a function that runs it on a mutant.

    `name` is the kernel's name in the module.
    """
    check_tests, plain_tests = [], []
    for key, value in vars(module).items():
        if getattr(value, "kernel", None) is kernel and hasattr(value, "with_kernel"):
            check_tests.append(value)
        elif key.startswith("test_") and callable(value) and not hasattr(value, "kernel"):
            names = value.__code__.co_names if hasattr(value, "__code__") else ()
            if name in names and value.__code__.co_argcount == 0:
                plain_tests.append(_rebound(module, name, value))
    return check_tests, plain_tests


def _rebound(module: ModuleType, name: str, test: Callable[[], Any]) -> Callable[[Kernel], None]:
    """Return a function that takes a kernel and runs the test while `name` is bound to this kernel in the module."""

    def run(kernel: Kernel) -> None:
        with mock.patch.object(module, name, kernel):
            test()

    return run


def _without_reference(examples: int, settings: dict[str, Any]) -> Callable[[Kernel], None]:
    """Return a function that checks a kernel without a reference and raises AssertionError if it fails."""

    def run(kernel: Kernel) -> None:
        finding = first_finding(kernel, devices="interpreter", max_examples=examples, seed=1, **settings)
        assert finding is None, finding.kind

    return run


def _equivalence_test(kernel: Kernel, settings: dict[str, Any]) -> Callable[[Kernel], bool] | None:
    """Return a function that returns True for mutants equivalent to the kernel; None if the kernel can't be compared.

    `settings` are arguments of `check_kernel`; those that constrain types and sizes are used.
    """
    from vkjit.backends.selection import device

    kept = {k: v for k, v in settings.items() if k in ("dims", "elements", "dtypes")}
    try:
        return Program(kernel, Drawing(kernel, [device("interpreter")], **kept)).same_as
    except VkjitError:
        return None
