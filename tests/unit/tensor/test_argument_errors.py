"""Arguments of the wrong kind: an error of vkjit's that names the parameter, what it takes and what was found."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from tests.faults import wrong_arguments
from vkjit import nn, optim
from vkjit.nn import functional as F


@pytest.fixture(autouse=True)
def on_interpreter() -> Iterator[None]:
    with vk.use_device("interpreter"):
        yield


CASES: dict[str, tuple[Callable[[Any], Any], list[str]]] = {
    "number as text": (lambda x: F.leaky_relu(x, "a"), ["leaky_relu()", "a number as negative_slope", "str 'a'"]),  # type: ignore[arg-type]
    "keyword": (lambda x: x.add(1, alpha="a"), ["add()", "a number as alpha"]),
    "in place": (lambda x: x.normal_("a"), ["normal_()", "a number as mean"]),
    "in place, kernel": (lambda x: x.add_(1, alpha="a"), ["number", "str"]),
    "fmax": (lambda x: vk.fmax(x, "a"), ["tensor or a number", "str"]),
    "lerp_": (lambda x: x.lerp_("a", 1), ["tensor or a number", "str"]),
    "masked_fill_": (lambda x: x.masked_fill_(x > 0, "a"), ["masked_fill_", "str"]),
    "expand": (lambda x: x.expand("a"), ["a shape", "'a'"]),
    "method": (lambda x: x.shares_memory_with(3), ["a tensor as other", "found 3"]),
    "list for a tensor": (lambda x: F.linear(x, [[1.0]]), ["a tensor as weight", "list", "vk.tensor"]),  # type: ignore[arg-type]
    "matrix_norm": (lambda x: vk.linalg.matrix_norm("a"), ["matrix_norm()", "as x", "str 'a'"]),
    "matrix_power": (lambda x: vk.linalg.matrix_power(vk.ones(2, 2), "a"), ["an int as n", "str 'a'"]),  # type: ignore[arg-type]
    "vander": (lambda x: vk.linalg.vander(x, N="a"), ["vander()", "as N", "str 'a'"]),  # type: ignore[arg-type]
    "local_response_norm": (lambda x: F.local_response_norm(vk.ones(1, 2, 3), "a"), ["an int as size", "'a'"]),  # type: ignore[arg-type]
    "no tensors": (lambda x: vk.block_diag(), ["block_diag()", "at least one tensor"]),
    "norm 0": (lambda x: F.lp_pool1d(vk.ones(1, 1, 4), 0, 2), ["norm_type", "found 0"]),
    "huge": (lambda x: F.interpolate(vk.ones(1, 1, 4), 2**62), ["interpolate()", "sizes below 2**31"]),
    "dtype": (lambda x: vk.ones(2, dtype=[1]), ["dtype"]),
    "out": (lambda x: vk.add(x, x, out=()), ["out=", "an empty sequence"]),
    "layer": (lambda x: nn.Linear(2, 3)("a"), ["a tensor as x", "str 'a'"]),
    "constructor": (lambda x: nn.Conv1d(2, "a", 1), ["Conv1d", "str 'a'"]),  # type: ignore[arg-type]
    "states": (lambda x: nn.LSTM(2, 3)(vk.ones(4, 2), x), ["LSTM", "tuple of two tensors"]),
    "optimizer": (lambda x: optim.lr_scheduler.StepLR(5, 1), ["optimi"]),  # type: ignore[arg-type]
    "path": (lambda x: vk.data.csv(3), ["the path of a file", "found 3"]),
    "array of two axes": (lambda x: F.layer_norm(vk.ones(2, 2), np.ones((2, 2))), ["as normalized_shape", "ndarray"]),
}


@pytest.mark.parametrize("name", CASES)
def test_the_message_names_the_parameter(name: str) -> None:
    call, parts = CASES[name]
    with pytest.raises(vk.VkjitError) as caught:
        call(vk.ones(3))
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message, message


def test_errors_of_users_functions_are_left_alone() -> None:
    def distance(a: Any, b: Any) -> Any:
        return a.no_such_attribute - b

    x = vk.ones(2, 3)
    with pytest.raises(AttributeError, match="no_such_attribute"):
        F.triplet_margin_with_distance_loss(x, x, x, distance_function=distance)

    class Mine(nn.Module):
        def forward(self, x: vk.Tensor) -> Any:
            return dict[str, Any]()["missing"]

    with pytest.raises(KeyError, match="missing"):
        Mine()(5)


def test_binding_errors_are_those_of_python() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'dim'"):
        vk.cumsum(vk.ones(3))


@functools.cache
def _calls() -> dict[str, wrong_arguments.Call]:
    names = (
        "vk.fmax vk.block_diag vk.cumsum vk.broadcast_shapes F.leaky_relu F.lp_pool1d linalg.matrix_norm linalg.vander "
        "Tensor.stride Tensor.add_ Tensor.lerp_ nn.LeakyReLU optim.SGD lr_scheduler.StepLR init.normal_"
    ).split()
    return {call.name: call for call in wrong_arguments.calls(tuple(names)) if call.name in names}


@pytest.mark.filterwarnings("ignore:Data type alias")  # of NumPy's for the type 'a'
def test_no_wrong_argument_gives_a_raw_error() -> None:
    """A part of `python -m tests.faults.wrong_arguments`."""
    assert len(_calls()) == 15 and all(call.known for call in _calls().values())
    failures = [str(failure) for call in _calls().values() for failure in wrong_arguments.probe(call, small=True)]
    assert not failures, "\n".join(failures)
