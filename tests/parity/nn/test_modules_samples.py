"""A few of PyTorch's module samples; `python tests/parity/nn/modules.py` runs all of them."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="PyTorch isn't installed: nothing to compare with")
pytest.importorskip("expecttest", reason="expecttest isn't installed: PyTorch's lists of samples need it")

import vkjit as vk
from tests.parity.nn import modules

EACH = 89


def test_every_89th_sample_of_pytorchs_modules_agrees() -> None:
    with vk.use_device("interpreter"):
        chosen = [sample for number, sample in enumerate(modules.samples([])) if number % EACH == 0]
        assert len(chosen) > 15, "PyTorch's list of samples has become short: the command would check nothing"
        for sample in chosen:
            modules.check(sample)


def test_a_sample_that_differs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = next(modules.samples(["Tanh"]))
    monkeypatch.setattr(vk.nn.Tanh, "forward", lambda _, x: x.sin())
    with vk.use_device("interpreter"), pytest.raises(AssertionError, match="result 0"):
        modules.check(sample)


def test_modules_that_are_not_offered_are_listed() -> None:
    assert "FractionalMaxPool2d" in modules.missing()
    assert "Conv2d" not in modules.missing()
