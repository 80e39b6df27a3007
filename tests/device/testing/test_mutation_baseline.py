"""Mutation scores of files require tests that pass on the unmodified kernel."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

import vkjit as vk
from vkjit.testing.mutate.score_file import score_of_file


@vk.kernel(over="y")
def successor(x: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "N"]):
    i = vk.global_id(0)
    y[i] = x[i] + 1


def module_with(step: int) -> ModuleType:
    """Return a module with the kernel and one property, which expects it to add `step`."""
    module = ModuleType("kernels")

    def reference(x: np.ndarray) -> np.ndarray:
        return x + step

    test = vk.testing.check(successor, max_examples=5, devices="interpreter")(reference)
    vars(module).update(successor=successor, test_successor=test)
    return module


def test_tests_that_hold_are_scored() -> None:
    ((result, words),) = score_of_file(module_with(1), {"successor": successor})
    assert result.mutants > 0 and result.score == 1 and words == "1 test"


def test_tests_that_fail_as_it_is_are_refused() -> None:
    with pytest.raises(vk.ArgumentError, match="successor fails without any change"):
        list(score_of_file(module_with(2), {"successor": successor}))


@vk.kernel
def ungrouped(x: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "N"]):
    i = vk.global_id(0)
    if i < y.shape[0]:
        y[i] = x[i] + 1


def test_kernels_without_a_test_take_settings() -> None:
    module = ModuleType("kernels")
    vars(module).update(ungrouped=ungrouped)
    with pytest.raises(vk.ArgumentError, match="ungrouped has no test in this file, .* say with --dims"):
        list(score_of_file(module, {"ungrouped": ungrouped}))
    ((result, words),) = score_of_file(module, {"ungrouped": ungrouped}, examples=5, groups=(2,))
    assert result.count("killed") > 0 and words.startswith("no tests")


def test_constants_of_a_test_tell_equal_programs() -> None:
    """Equivalence of mutants is decided for the constants that the test passes."""

    @vk.kernel(over="y")
    def scaled(x: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "N"], BITS: vk.Const[int]):
        y[vk.global_id(0)] = x[vk.global_id(0)] * (65 // BITS)

    module = ModuleType("kernels")
    test = vk.testing.check(scaled, max_examples=5, devices="interpreter", elements={"BITS": [8, 16]})(
        lambda x, BITS: x * (64 // BITS)
    )
    vars(module).update(scaled=scaled, test_scaled=test)
    ((result, _),) = score_of_file(module, {"scaled": scaled})
    same = {str(v.edit) for v in result.verdicts if v.state == "equivalent"}
    assert same == {"off by one: 65 -> 66", "off by one: 65 -> 64"}
