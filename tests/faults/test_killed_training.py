"""Test that a killed training process resumes from its last checkpoint with the same bits as an uninterrupted one.

The long form is `python -m tests.faults.killed_training`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.killed_training import WRITING, digest_of, follow, start
from vkjit import io

STEPS, EVERY = 9, 3


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest of a training that nothing stopped."""
    path = tmp_path_factory.mktemp("unbroken") / "unbroken.safetensors"
    return digest_of(follow(start(path, "interpreter", STEPS, EVERY)))


@pytest.mark.parametrize("after", [5, 3000], ids=["header", "tensors"])
def test_a_killed_training_goes_on_to_the_same_bits(unbroken: str, tmp_path: Path, after: int) -> None:
    path = tmp_path / "killed.safetensors"
    said = follow(start(path, "interpreter", STEPS, EVERY), until="step 5")
    assert said[-1] == "step 5"
    assert io.load_checkpoint(path, "interpreter")["done"] == 3

    said = follow(start(path, "interpreter", STEPS, EVERY, 6, after), until=WRITING)
    assert said[0] == "step 4"  # resumed, not restarted
    assert io.load_checkpoint(path, "interpreter")["done"] == 3  # step 6 didn't replace the file

    assert digest_of(follow(start(path, "interpreter", STEPS, EVERY))) == unbroken
