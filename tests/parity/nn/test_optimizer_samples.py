"""A few of PyTorch's optimizer samples; `python tests/parity/nn/optimizers.py` runs all of them."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="PyTorch isn't installed: nothing to compare with")
pytest.importorskip("expecttest", reason="expecttest isn't installed: PyTorch's lists of samples need it")

import vkjit as vk  # noqa: E402  # after importorskip
from tests.parity.nn import optimizers  # noqa: E402
from vkjit.stdlib.registry import forcing_class  # noqa: E402


@pytest.mark.parametrize("kind", ["gpu", "cpu"])
def test_every_8th_sample_of_pytorchs_optimisers_agrees(kind: str) -> None:
    with vk.use_device("interpreter"), forcing_class(kind):
        chosen = list(optimizers.samples([]))[::8]
        assert len(chosen) >= 5, "PyTorch's list of samples has become short: the command would check nothing"
        for sample in chosen:
            optimizers.check(sample)


def test_a_sample_that_differs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = next(optimizers.samples(["SGD"]))
    original = vk.optim.SGD.step
    monkeypatch.setattr(vk.optim.SGD, "step", lambda self: (original(self), original(self))[0])
    with vk.use_device("interpreter"), pytest.raises(AssertionError, match="parameter 0"):
        optimizers.check(sample)
