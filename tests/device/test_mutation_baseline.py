"""Mutation scores of files are of tests that hold for the kernel as it is."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

import vkjit as vk
from vkjit.testing.mutate.file import score_of_file


@vk.kernel(over="y")
def successor(x: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "N"]):
    i = vk.global_id(0)
    y[i] = x[i] + 1


def module_with(step: int) -> ModuleType:
    """A file with the kernel and one property, which wants it to add `step`."""
    module = ModuleType("kernels")

    def reference(x: np.ndarray) -> np.ndarray:
        return x + step

    test = vk.testing.check(successor, max_examples=5, devices="interpreter")(reference)
    vars(module).update(successor=successor, test_successor=test)
    return module


def test_tests_that_hold_are_scored() -> None:
    ((result, words),) = score_of_file(module_with(1), {"successor": successor})
    assert result.mutants > 0 and result.score == 1 and words == "1 tests"


def test_tests_that_fail_as_it_is_are_refused() -> None:
    with pytest.raises(vk.ArgumentError, match="successor fails without any change"):
        list(score_of_file(module_with(2), {"successor": successor}))
