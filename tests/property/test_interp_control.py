"""Property tests of the interpreter's masked control flow against sequential invocations, in every batch and order."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings, strategies as st

from tests.property.interp_programs import Evaluator, programs
from tests.selection import examples
from vkjit.backends.interp import run_module
from vkjit.ir import Module, verify

GROUPS, LOCAL = 5, 16
SETTINGS = settings(
    max_examples=examples(120), deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)


@SETTINGS
@given(module=programs((LOCAL, 1, 1)), seed=st.integers(0, 1000))
def test_masks_are_control_flow(module: Module, seed: int) -> None:
    verify(module)
    rng = np.random.default_rng(seed)
    x = rng.integers(-6, 12, GROUPS * LOCAL).astype(np.int32)
    x[:LOCAL] = x[0]  # one workgroup without divergence
    wanted = [7] * len(x)
    for invocation in range(len(x)):
        Evaluator(module, x.tolist(), wanted, invocation)
    for options in (
        {},
        {"lanes_per_batch": LOCAL},
        {"lanes_per_batch": 3 * LOCAL, "order": "reverse"},
        {"order": seed},
    ):
        y = np.full(len(x), 7, np.int32)
        run_module(module, GROUPS, [x, y], **options)
        assert y.tolist() == wanted
