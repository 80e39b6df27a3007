"""A few of PyTorch's OpInfo samples for operations of each kind; `opinfo.py` runs all of them."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch isn't installed: nothing to compare with")
pytest.importorskip("expecttest", reason="PyTorch's own tests need expecttest, which isn't installed")

from tests.parity.ops.opinfo import names, run_operation  # noqa: E402  # after importorskip

OPERATIONS = [
    "add", "addcmul", "cumprod", "einsum", "gather", "index_put", "kthvalue", "logcumsumexp", "masked_scatter",
    "nn.functional.pad", "quantile", "scatter_reduce", "sort", "tensordot", "topk", "unfold", "where",
]  # fmt: skip


def test_enough_operations_are_named_once_each() -> None:
    named = names()
    assert len(named) >= 250
    assert len(set(named)) == len(named)


@pytest.mark.parametrize("name", OPERATIONS)
def test_samples_agree(device: Any, name: str) -> None:
    if device.caps.kind != "llvm-cpu" and name not in ("sort", "gather", "einsum"):
        pytest.skip("the device cpu runs these samples; here three operations do")
    outcome = run_operation(name, device.name, limit=2)
    assert outcome.passed
    assert not outcome.failed, outcome.failures
