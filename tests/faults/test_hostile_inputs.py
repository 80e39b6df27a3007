"""A small version of `python -m tests.faults.hostile_inputs`, which docs of that module describe."""

from __future__ import annotations

import sys

import pytest

from tests.faults.hostile_inputs import KINDS, search

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are bounded through /proc and setrlimit")


@pytest.mark.parametrize("name", KINDS)
def test_damaged_files_are_refused(name: str) -> None:
    found = search(name, 60, seed=1)
    assert not found.failures and found.accepted + found.refused == 60


@pytest.mark.slow
def test_hostile_kernels_are_compiled_or_refused() -> None:
    found = search("kernels", 30, seed=0)
    assert not found.failures and found.accepted and found.refused
