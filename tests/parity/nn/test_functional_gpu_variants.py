"""GPU variants of kernels, with workgroups and shared memory, on every executor: same results as the other variants."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.parity.nn import (
    test_functional_conv as conv,
    test_functional_loss as loss,
    test_functional_norm as norm,
    test_functional_softmax as softmax,
)
from tests.parity.nn.nn_functions import functional, normal, run
from tests.parity.reference import LAYOUTS
from vkjit.nn import functional as F
from vkjit.stdlib import registry


@pytest.fixture(autouse=True)
def _as_gpu(device: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Treat the interpreter and hardware as GPUs; clear cached dispatches before and after."""
    if device.caps.kind == "cpu":
        pytest.skip("software drivers take seconds to compile kernels of this size; the interpreter runs them")
    for module in [m for name, m in sys.modules.items() if name.startswith("vkjit.stdlib")]:
        if hasattr(module, "device_class"):
            monkeypatch.setattr(module, "device_class", lambda _device: "gpu")
    assert registry.device_class(None) == "gpu"
    device.dispatch_cache.clear()
    yield
    device.dispatch_cache.clear()


CONVOLUTIONS = [conv.CASES[i] for i in (0, 1, 2, 3, 5, 6, 7, 8, 9, 11, 15, 16, 21, 22, 25)]


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_convolution(device: Any, case: tuple[Any, ...]) -> None:
    conv.test_convolution_and_gradients(device, case)


@pytest.mark.parametrize("case", conv.TRANSPOSED[:3], ids=str)
def test_transposed_convolution(device: Any, case: tuple[Any, ...]) -> None:
    conv.test_transposed_convolution_and_gradients(device, case)


def test_convolution_with_large_tiles(device: Any) -> None:
    """Enough filters and pixels that each invocation computes 8 by 8 results in some product."""
    conv.test_convolution_and_gradients(device, (2, 3, (40, 41), 70, (3, 3), 1, 1, 1, 1, True))


SHAPES: list[tuple[int, ...]] = [
    (1,),
    (3, 5),
    (7, 33),
    (2, 300),
    (3, 2000),
    (1, 9000),
    (2, 5, 3),
    (0, 4),
    (2, 20_000),
    (5, 64),
]


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax(device: Any, name: str) -> None:
    for number, shape in enumerate(SHAPES):
        for dim in {0, len(shape) - 1}:
            softmax.compare(name, normal(number, *shape) * 3, dim)
    for _tag, shape, view in LAYOUTS[:2]:
        softmax.compare(name, normal(7, *shape), 1, view)
    softmax.test_special_values(device, name)


@pytest.mark.parametrize("affine", [False, True])
def test_layer_and_rms_norm(device: Any, affine: bool) -> None:
    for number, shape in enumerate(s for s in SHAPES if 0 not in s and len(s) < 3):
        x, last = normal(number, *shape) + 1, shape[-1:]
        w, b = (normal(1, *last), normal(2, *last)) if affine else (None, None)
        outcome = run(
            lambda x, w, b, n=last: F.layer_norm(x, n, w, b),
            lambda x, w, b, n=last: functional.layer_norm(x, n, w, b),
            [x, w, b],
        )
        norm.inspect(outcome, f"layer_norm {shape}", x, (len(shape) - 1,), last[0])
        outcome = run(
            lambda x, w, n=last: F.rms_norm(x, n, w, eps=norm.EPS),
            lambda x, w, n=last: functional.rms_norm(x, n, w, eps=norm.EPS),
            [x, w],
        )
        norm.inspect(outcome, f"rms_norm {shape}", x, (len(shape) - 1,), last[0], center=False)


def test_norms_of_channels(device: Any) -> None:
    for number, shape in enumerate([(2, 3, 5, 4), (300, 4), (3, 4, 40, 41), (2, 2, 9001)]):
        x, c = normal(number, *shape) + 2, shape[1]
        arrays = [x, normal(1, c), normal(2, c)]
        outcome = run(
            lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
            lambda x, w, b: functional.batch_norm(x, None, None, w, b, True),
            arrays,
        )
        norm.inspect(outcome, f"batch_norm {shape}", x, (0, *range(2, len(shape))), x.size // c)
        if len(shape) > 2:
            outcome = run(
                lambda *a: F.group_norm(a[0], 1, *a[1:]), lambda *a: functional.group_norm(a[0], 1, *a[1:]), arrays
            )
            rows = x.reshape(shape[0], 1, -1)
            norm.inspect(outcome, f"group_norm {shape}", rows, (2,), rows.shape[2])


def test_cross_entropy(device: Any) -> None:
    for number, shape in enumerate([(4, 5), (3, 70), (2, 5000), (2, 3, 4), (1, 20_000)]):
        classes = shape[1]
        t = loss.targets_for(shape, True)
        for w, smoothing in ((None, 0.0), (loss.probabilities(1, classes), 0.2)):
            outcome = run(
                lambda *a, s=smoothing: F.cross_entropy(*a, label_smoothing=s),  # type: ignore[misc]  # bound here
                lambda *a, s=smoothing: functional.cross_entropy(*a, label_smoothing=s),
                [normal(number, *shape) * 3, t, w],
                needs=[0],
            )
            loss.inspect(outcome, f"{shape} {smoothing}", 64.0, 16.0)
    assert np.isfinite(float(outcome.found.detach()))
