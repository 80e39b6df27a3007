"""Tests of control flow: the same function run by Python and through the front end."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.frontend.harness import apply
from tests.unit.interp.control_samples import SAMPLES

A, B = (c.ravel().astype(np.int32) for c in np.meshgrid(np.arange(-4, 6), np.arange(-4, 6)))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda f: f.__name__)
def test_gives_what_python_gives(sample) -> None:
    expected = [int(sample(int(a), int(b))) for a, b in zip(A, B, strict=True)]
    np.testing.assert_array_equal(apply(sample, np.int32, A, B), expected)
