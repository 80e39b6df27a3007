"""Training curves compared with PyTorch's for a few steps; `python tests/parity/nn/curves.py` runs 200."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="PyTorch isn't installed: nothing to compare with")

import vkjit as vk  # noqa: E402  # after importorskip
from tests.parity.nn import curves  # noqa: E402


@pytest.mark.parametrize("name", list(curves.MODELS))
def test_curves_are_pytorchs_and_bits_are_the_same_twice(name: str) -> None:
    with vk.use_device("interpreter"):
        curves.compare(name, 4)


def test_memory_in_use_stays() -> None:
    with vk.use_device("interpreter"):
        _, peak = curves.check_memory("MLP", 14)
    assert peak > 0
