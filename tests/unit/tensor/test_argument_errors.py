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
from vkjit.errors import is_nested_too_deep
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


def _nested(item: Any, levels: int = 3000) -> Any:
    for level in range(levels):
        item = [item] if level % 2 else (item,)
    return item


_DEEP: dict[str, Callable[[Any, Any, Any], Any]] = {
    "tensor": lambda x, one, _: vk.tensor(one),
    "as_tensor": lambda x, one, _: vk.as_tensor(one),
    "array API": lambda x, one, _: vk.array_api.asarray(one),
    "cat": lambda x, _, ones: vk.cat(ones),
    "stack": lambda x, _, ones: vk.stack([x, ones]),
    "index": lambda x, one, _: x[one],
    "index by list": lambda x, one, _: x[[one]],
    "assignment": lambda x, one, _: x.__setitem__(0, one),
    "zeros": lambda x, one, _: vk.zeros(one),
    "zeros of sizes": lambda x, one, _: vk.zeros(2, one),
    "repeat": lambda x, one, _: x.repeat(one),
    "tile": lambda x, one, _: vk.tile(x, one),
    "view": lambda x, one, _: x.view(one),
    "expand": lambda x, one, _: x.expand(one),
    "sum": lambda x, one, _: x.sum(one),
    "operator": lambda x, one, _: x + one,
    "reflected": lambda x, one, _: one + x,
    "layer": lambda x, _, ones: nn.Linear(3, 2)(ones),
    "shape of a layer": lambda x, one, _: nn.LayerNorm(one),
    "conversion of a layer": lambda x, one, _: nn.Linear(3, 2).to(one),
    "gradients": lambda x, _, ones: vk.autograd.backward(ones),
    "seed": lambda x, one, _: vk.manual_seed(one),
    "device": lambda x, one, _: vk.device(one),
    "batch": lambda x, _, ones: list(vk.data.DataLoader([ones, ones], batch_size=2)),
    "batch of dictionaries": lambda x, _, ones: list(vk.data.DataLoader([{"a": ones}] * 2, batch_size=2)),
    "transform": lambda x, one, _: vk.data.transforms.Normalize(one, one),
    "state": lambda x, _, ones: nn.Linear(3, 2).load_state_dict({"weight": ones, "bias": ones}),
    "checkpoint": lambda x, _, ones: vk.io.save_checkpoint("never written", model=ones),
}


@pytest.mark.parametrize("name", _DEEP)
def test_deeply_nested_sequences_are_refused(name: str) -> None:
    with pytest.raises(vk.VkjitError) as caught:
        _DEEP[name](vk.ones(3), _nested(1), _nested(vk.ones(3)))
    assert not isinstance(caught.value, vk.InternalError) and len(str(caught.value)) < 400


def test_as_many_levels_as_an_array_has_dimensions() -> None:
    levels = 64 if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else 32
    assert vk.tensor(_nested(7, levels)).shape == (1,) * levels
    with pytest.raises(vk.ArgumentError, match="nested more than 64 deep.*flatten"):
        vk.cat(_nested(vk.ones(3)))
    itself: list[Any] = []
    itself.append(itself)
    with pytest.raises(vk.ArgumentError, match="nested more than 64 deep"):
        vk.stack(itself)
    wide: Any = (vk.ones(1),)
    for _ in range(30):  # 2**30 leaves, 30 objects
        wide = (wide, wide)
    assert (
        not is_nested_too_deep(wide) and is_nested_too_deep(_nested(1, 65)) and not is_nested_too_deep(_nested(1, 64))
    )


_HUGE: dict[str, Callable[[int], Any]] = {
    "Linear": lambda n: nn.Linear(n, n),
    "Embedding": lambda n: nn.Embedding(n, n),
    "MultiheadAttention": lambda n: nn.MultiheadAttention(n, n),
    "heads": lambda n: nn.MultiheadAttention(4, n),
    "RNN": lambda n: nn.RNN(2, 2, num_layers=n),
    "LSTM": lambda n: nn.LSTM(2, 2, n),
    "GRU": lambda n: nn.GRU(2, 2, num_layers=n, device="meta"),
    "encoder": lambda n: nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 4), n),
    "decoder": lambda n: nn.TransformerDecoder(nn.TransformerDecoderLayer(4, 2, 4), num_layers=n),
    "Transformer": lambda n: nn.Transformer(4, 2, n, 1, 4),
    "ModuleList": lambda n: nn.ModuleList(iter(range(n))),  # type: ignore[arg-type]
    "vander": lambda n: vk.linalg.vander(vk.ones(3), N=n),
    "combinations": lambda n: vk.combinations(vk.ones(3), n, with_replacement=True),
    "combinations of many": lambda n: vk.combinations(vk.ones(1000), min(n, 500)),
    "tril_indices": lambda n: vk.tril_indices(n, n),
    "triu_indices": lambda n: vk.triu_indices(4, n),
    "tensor_split": lambda n: vk.tensor_split(vk.ones(4), n),
    "chunk": lambda n: vk.ones(0).chunk(n),
    "split": lambda n: vk.ones(1).expand(min(n, 2**60)).split(1),
    "iteration": lambda n: list(vk.ones(1).expand(min(n, 2**60))),
    "tensordot": lambda n: vk.tensordot(vk.ones(3), vk.ones(3), n),
    "pad": lambda n: F.pad(vk.ones(1, 2, 3), (0, n), mode="replicate"),
    "interpolate": lambda n: F.interpolate(vk.ones(1, 1, 4), n),
    "one_hot": lambda n: F.one_hot(vk.tensor([0, 1]), n),
    "repeat_interleave": lambda n: vk.repeat_interleave(vk.ones(3), n),
    "copy of a view": lambda n: vk.ones(1).expand(min(n, 2**60)).numpy(),
    "RandomSampler": lambda n: list(vk.data.RandomSampler([1, 2], num_samples=n)),
    "WeightedRandomSampler": lambda n: list(vk.data.WeightedRandomSampler([1.0, 2.0], n)),
}


@pytest.mark.parametrize("size", [2**40, 2**62, 2**70])
@pytest.mark.parametrize("name", _HUGE)
def test_huge_sizes_are_refused_before_anything_is_made(name: str, size: int) -> None:
    with pytest.raises(vk.VkjitError) as caught:
        _HUGE[name](size)
    assert not isinstance(caught.value, vk.InternalError)


def test_stacks_of_layers_have_a_limit() -> None:
    with pytest.raises(vk.ArgumentError, match="num_layers of at most 4096, found 4097"):
        nn.LSTM(1, 1, num_layers=4097)
    assert len(list(nn.GRU(1, 1, num_layers=9, device="meta").parameters())) == 36


_MISPLACED: dict[str, tuple[Callable[[], Any], str]] = {
    "equation": (lambda: vk.einsum(None, vk.ones(3)), "expected an equation, or tensors"),
    "pairs of axes": (lambda: vk.tensordot(vk.ones(3), vk.ones(3), ()), "a pair of lists"),
    "index_put": (lambda: vk.index_put(vk.ones(3), vk.tensor(1), 2.0), "a tuple of index tensors"),
    "step": (lambda: vk.ones(3)[::0], "axis 0: slice step cannot be zero"),
    "bound": (lambda: vk.ones(3)["a":], "axis 0: slice indices must be integers"),
    "meshgrid": (lambda: vk.meshgrid(None), "takes tensors, found a NoneType"),
    "mean": (lambda: vk.normal((), 1.0, 3), "expected a number or a tensor"),
    "text": (lambda: vk.tensor(["a"], dtype=vk.f32), "holds other objects"),
    "number as text": (lambda: vk.ones(3).new_tensor(["1"]), "holds other objects"),
    "padding": (lambda: nn.ZeroPad2d(None), "an int or a sequence of ints"),  # type: ignore[arg-type]
    "fusion": (lambda: nn.utils.fuse_linear_bn_eval(vk.ones(3), nn.BatchNorm1d(3)), "found a Tensor"),
    "bilinear": (lambda: nn.Bilinear(2, 2, 1)(vk.tensor(1.0), vk.ones(2)), "at least one axis"),
    "mask": (lambda: nn.MultiheadAttention(2, 1)(*[vk.ones(3, 1, 2)] * 3, attn_mask=vk.tensor(1.0)), "attn_mask has"),
    "cell": (lambda: nn.LSTMCell(2, 3)(vk.ones(1, 2), ()), "two tensors"),
    "cell of another size": (lambda: nn.GRUCell(2, 3)(vk.ones(1, 2), vk.ones(1, 4)), r"of shape \(1, 3\)"),
    "protocol": (lambda: vk.ones(3).__dlpack__(max_version=()), "two ints"),
    "NumPy's type": (lambda: vk.ones(3).__array__([1]), "an element type"),
    "size of a convolution": (lambda: nn.ConvTranspose1d(1, 1, 2)(vk.ones(1, 1, 4), 99), "output_size"),
    "datasets": (lambda: vk.data.ConcatDataset(5), "takes datasets, found a int"),
    "dictionary of examples": (lambda: vk.data.describe({"a": 1}), "describe.. takes a dataset"),
    "factor": (lambda: optim.lr_scheduler.LambdaLR(optim.SGD([vk.ones(2)], 0.1), "a"), "a function of the epoch"),  # type: ignore[arg-type]
    "activation": (lambda: nn.Transformer(4, 2, activation=np.ones(2)), "activation is"),  # type: ignore[arg-type]
    "decimals": (lambda: vk.ones(3).round_(decimals=np.ones(2)), "decimals"),
}


@pytest.mark.parametrize("name", _MISPLACED)
def test_misplaced_arguments(name: str) -> None:
    call, message = _MISPLACED[name]
    with pytest.raises(vk.ArgumentError, match=message):
        call()


def test_padding_layers_take_integers_of_numpy() -> None:
    assert nn.ZeroPad1d(np.int64(2)).padding == (2, 2)


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
