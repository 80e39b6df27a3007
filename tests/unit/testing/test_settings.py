"""Tests of the arguments of property tests: wrong types are refused in one sentence, before the search."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit.errors import ArgumentError

pytest.importorskip("hypothesis", reason="hypothesis isn't installed")


@vk.kernel(over="y")
def doubled(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]) -> None:
    y[vk.global_id(0)] = 2 * x[vk.global_id(0)]


QUICK: dict[str, Any] = {"max_examples": 1, "devices": "interpreter", "schedules": False, "sanitize": False}
WRONG = [
    ("max_examples", 0), ("max_examples", -1), ("max_examples", "x"), ("max_examples", True), ("max_examples", 2.5),
    ("dims", 5), ("dims", ["N"]), ("elements", 5), ("elements", "x"), ("where", 5), ("dtypes", 5), ("dtypes", "f32"),
    ("special", 5), ("special", ["zz"]), ("aliases", 5), ("aliases", ["xy"]), ("groups", "x"), ("tolerance", -1.0),
    ("tolerance", (0.1, "x")), ("tolerance", "x"), ("unordered", 5), ("properties", 5), ("properties", ["x"]),
    ("sanitize", 5), ("sanitize", [1]), ("seed", "x"), ("seed", 1.5), ("script", 5), ("precise", "x"), ("partial", None),
    ("schedules", 1), ("strict", "x"), ("devices", []),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), WRONG, ids=lambda v: str(v))
def test_settings_of_wrong_types_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ArgumentError):
        vk.testing.check_kernel(doubled, lambda x: 2 * x, **{**QUICK, name: value})


REFERENCES = {
    "no function": (5, "the reference is a function"),
    "objects": (lambda x: np.array([object() for _ in x]), "values of type object, expected real numbers"),
    "complex numbers": (lambda x: 2 * x + 1j, "values of type complex128, expected real numbers"),
    "texts": (lambda x: np.array(["a" for _ in x]), "values of type <U1, expected real numbers"),
    "rows": (lambda x: [[1], [1, 2]], "rows of different lengths"),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_references_that_return_no_numbers_are_refused(name: str) -> None:
    reference, message = REFERENCES[name]
    with pytest.raises(ArgumentError, match=re.escape(message)):
        vk.testing.check_kernel(doubled, reference, **QUICK)  # type: ignore[arg-type]


def test_preconditions_that_reject_everything_are_told() -> None:
    with pytest.raises(ArgumentError, match="where= rejects nearly all inputs of doubled"):
        vk.testing.check_kernel(doubled, lambda x: 2 * x, **QUICK, where=lambda x: False)
