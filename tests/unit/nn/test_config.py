"""Tests of models as JSON: every module round-trips, and unsupported models and invalid configurations are errors."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit import nn
from vkjit.errors import ArgumentError


@pytest.fixture(autouse=True)
def on_interpreter() -> Iterator[None]:
    with vk.use_device("interpreter"):
        yield


def there_and_back(model: nn.Module, **options: Any) -> Any:
    """Rebuild a model from its configuration via JSON text; assert that the configuration is the same again."""
    config = json.loads(json.dumps(nn.to_config(model), allow_nan=False))
    made = nn.from_config(config, **options)
    assert nn.to_config(made) == config
    return made


ARGUMENTS: dict[str, Any] = {
    "Bilinear": (2, 3, 4, False), "ChannelShuffle": (2,), "Embedding": (5, 4, 1), "EmbeddingBag": (5, 4), "Fold": ((4, 4), 2),
    "GroupNorm": (2, 4), "LayerNorm": ((3, 4), 1e-3, True, False), "RMSNorm": (4,), "Linear": (3, 2, False),
    "LocalResponseNorm": (2,),
    "LSTM": (3, 4, 2, True, True, 0.25, True, 2), "GRU": (3, 4), "RNN": (3, 4, 1, "relu", False),
    "LSTMCell": (3, 4), "GRUCell": (3, 4, False), "RNNCell": (3, 4, True, "relu"),
    "MultiheadAttention": (8, 2, 0.5, False, True, True, 4, 6, True), "PixelShuffle": (2,), "PixelUnshuffle": (2,),
    "Threshold": (0.5, -1.0), "Unflatten": (1, (2, 3)), "Unfold": (2,), "TransformerEncoderLayer": (8, 2, 16, 0.0, "gelu"),
    "TransformerDecoderLayer": (8, 2, 16), "Transformer": (8, 2, 1, 1, 16), "PReLU": (3, 0.5), "Hardtanh": (-2.0, 0.5),
    "PairwiseDistance": (float("inf"),), "AdaptiveAvgPool2d": ((2, None),),
}  # fmt: skip
BY_FAMILY: dict[str, Callable[[int], Any]] = {
    "Conv": lambda n: (4, 6, (3,) * n, 2, 1, 1, 2, False, "reflect"), "ConvTranspose": lambda n: (4, 6, 3, 2, 1, 1, 2),
    "BatchNorm": lambda _: (4, 1e-3, None, False), "InstanceNorm": lambda _: (4,), "ReflectionPad": lambda _: (1,),
    "ReplicationPad": lambda _: (1,), "CircularPad": lambda _: (1,), "ZeroPad": lambda _: (1,), "MaxPool": lambda _: (3, 2),
    "ConstantPad": lambda _: (1, 0.5), "AvgPool": lambda _: (2,), "MaxUnpool": lambda _: (2,), "LPPool": lambda _: (2.0, 3),
    "AdaptiveAvgPool": lambda _: (2,), "AdaptiveMaxPool": lambda _: (2,),
}  # fmt: skip
WITH_MODULES: dict[str, Callable[[], nn.Module]] = {
    "Sequential": lambda: nn.Sequential(nn.Linear(2, 3), nn.ReLU()),
    "ModuleList": lambda: nn.ModuleList([nn.Linear(2, 3)]),
    "ModuleDict": lambda: nn.ModuleDict({"class": nn.Tanh(), "$b": nn.Linear(1, 1)}),
    "ParameterList": lambda: nn.ParameterList([nn.Parameter(vk.ones(2, 3, dtype=vk.f16))]),
    "ParameterDict": lambda: nn.ParameterDict({"a": nn.Parameter(vk.ones(2))}),
    "TransformerEncoder": lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2, nn.LayerNorm(8)),
    "TransformerDecoder": lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16), 2),
    "CrossEntropyLoss": lambda: nn.CrossEntropyLoss(vk.ones(4), label_smoothing=0.25),
    "TripletMarginWithDistanceLoss": lambda: nn.TripletMarginWithDistanceLoss(
        distance_function=nn.functional.pairwise_distance
    ),
}


def made(name: str) -> nn.Module:
    if name in WITH_MODULES:
        return WITH_MODULES[name]()
    family, digit = (name[:-2], int(name[-2])) if name[-1] == "d" and name[-2].isdigit() else (name, 0)
    arguments = ARGUMENTS.get(name) or (BY_FAMILY[family](digit) if family in BY_FAMILY else ())
    module: nn.Module = getattr(nn, name)(*arguments)
    return module


CLASSES = sorted(
    name
    for name in nn.__all__
    if isinstance(getattr(nn, name), type) and issubclass(getattr(nn, name), nn.Module) and name != "Module"
)


@pytest.mark.parametrize("name", CLASSES)
def test_every_module_goes_there_and_back(name: str) -> None:
    module = made(name)
    again = there_and_back(module)
    assert repr(again) == repr(module)
    assert {n: (t.shape, t.dtype) for n, t in again.state_dict().items()} == {
        n: (t.shape, t.dtype) for n, t in module.state_dict().items()
    }


class Residual(nn.Module):
    """A user-defined module."""

    def __init__(self, inner: nn.Module, scale: float = 0.5, *, tags: tuple[str, ...] = ()) -> None:
        self.inner, self.scale, self.tags = inner, scale, tags

    def forward(self, x: Any) -> Any:
        return x + self.scale * self.inner(x)


def test_a_model_of_a_users_classes_computes_the_same() -> None:
    model = nn.Sequential(
        {"first": nn.Linear(3, 4), "rest": Residual(nn.Sequential(nn.Linear(4, 4), nn.Tanh()), tags=("a",))}
    )
    again = there_and_back(model, classes={"Residual": Residual})
    again.load_state_dict(model.state_dict())
    assert again(vk.ones(2, 3)).tolist() == model(vk.ones(2, 3)).tolist()
    assert again.rest.tags == ("a",)


def test_changed_attributes_frozen_and_shared_tensors_are_kept() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 4), nn.BatchNorm1d(4).half())
    model[1].p = 0.125
    model[2].weight = model[0].weight
    model[0].bias.requires_grad_(False)
    again = there_and_back(model)
    assert again[1].p == 0.125
    assert again[2].weight is again[0].weight
    assert [p.requires_grad for p in (again[0].weight, again[0].bias, again[2].bias)] == [True, False, True]
    assert again[3].running_mean.dtype is vk.f16


def test_a_configuration_draws_nothing_and_takes_no_memory() -> None:
    before = vk.get_rng_state()
    model = nn.Linear(1 << 19, 1 << 19, device="meta")
    again = nn.from_config(nn.to_config(model), device="meta")
    assert again.weight.shape == model.weight.shape
    assert vk.get_rng_state() == before


class Forgetful(nn.Module):
    def __init__(self, width: int) -> None:
        self.inner = nn.Linear(width, width)


class Random(nn.Module):
    """A module with an attribute that isn't a constructor argument and so can be changed afterwards."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.extra = "none"


def test_what_a_configuration_can_not_tell_is_an_error() -> None:
    with pytest.raises(ArgumentError, match=r"Forgetful doesn't keep its argument 'width' as an attribute: assign it"):
        nn.to_config(Forgetful(3))
    model = Random(3)
    model.extra = "more"
    with pytest.raises(ArgumentError, match=r"extra is 'more', not 'none'"):
        nn.to_config(model)
    layer = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2)
    layer.layers[1].linear1 = nn.Linear(8, 16, bias=False)
    with pytest.raises(ArgumentError, match=r"layers\.1\.linear1\.bias is not there, not \(\(16,\), 'f32'\)"):
        nn.to_config(layer)
    with pytest.raises(ArgumentError, match=r"model\.distance_function: a configuration can't hold a function"):
        nn.to_config(nn.TripletMarginWithDistanceLoss(distance_function=lambda a, b: a))
    lost = Residual(nn.Tanh(), scale=vk.ones(1))
    with pytest.raises(ArgumentError, match=r"model\.scale: a tensor that is no parameter or persistent buffer"):
        nn.to_config(lost)


GOOD = {
    "format": "vkjit-module",
    "version": 1,
    "model": {"class": "Linear", "arguments": {"in_features": 2, "out_features": 3}},
}
BAD: list[tuple[Any, Any, str]] = [
    ((), {}, "no configuration of a model"),
    (("version",), 2, "version 2, expected 1"),
    (("extra",), 1, "found besides: .'extra'."),
    (("model",), 3, "model: expected a module"),
    (("model", "class"), "os.system", "vk.nn has no module 'os.system'"),
    (("model", "class"), "functional", "vk.nn has no module 'functional'"),
    (("model", "class"), ["Linear"], "vk.nn has no module"),
    (("model", "arguments", "more"), 1, "model: Linear can't be made of these arguments: got an unexpected keyword"),
    (("model", "arguments", "in_features"), "two", "model: Linear can't be made of these arguments"),
    (("model", "arguments", "dtype"), {"$type": "f99"}, "model.dtype: there is no element type 'f99'"),
    (("model", "arguments", "dtype"), {"$function": "__builtins__"}, "functional has no '__builtins__'"),
    (("model", "arguments", "dtype"), {"$what": 1}, "means nothing"),
    (("model", "arguments", "bias"), {"$tensor": {"shape": [-1], "dtype": "f32"}}, "model.bias: a tensor has a shape"),
    (("model", "rest"), 5, "model: a module has"),
    (("frozen",), ["weights"], "no such parameter"),
    (("shared",), [["weight", "bias"]], "aren't tensors of one kind"),
]


@pytest.mark.parametrize(("place", "value", "message"), BAD, ids=[m for _, _, m in BAD])
def test_bad_configurations_are_refused(place: tuple[str, ...], value: Any, message: str) -> None:
    config: Any = copy.deepcopy(GOOD)
    nn.from_config(config)
    if not place:
        config = value
    else:
        target = config
        for part in place[:-1]:
            target = target[part]
        target[place[-1]] = value
    with pytest.raises(ArgumentError, match=message):
        nn.from_config(config)


# -- files


class Places(nn.Module):
    """A module with a non-persistent buffer."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.register_buffer("table", vk.tensor(np.arange(length, dtype=np.float32)), persistent=False)
        self.scale = nn.Parameter(vk.ones(length))

    def forward(self, x: Any) -> Any:
        return x + self.scale * self.table  # type: ignore[attr-defined]


def test_a_model_goes_through_a_file(tmp_path: Path) -> None:
    vk.manual_seed(3)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.GELU("tanh"))
    model(vk.ones(5, 3))
    vk.io.save_model(tmp_path / "model.safetensors", model, {"made": "here"})
    found = vk.io.load_model(tmp_path / "model.safetensors")
    assert found.eval()(vk.ones(2, 3)).tolist() == model.eval()(vk.ones(2, 3)).tolist()
    assert vk.io.metadata(tmp_path / "model.safetensors")["made"] == "here"
    assert list(vk.io.load(tmp_path / "model.safetensors")) != []


def test_buffers_that_no_state_holds_get_their_values(tmp_path: Path) -> None:
    model = Places(4)
    vk.io.save_model(tmp_path / "model.safetensors", model)
    found = vk.io.load_model(tmp_path / "model.safetensors", classes={"Places": Places})
    assert found(vk.zeros(4)).tolist() == [0.0, 1.0, 2.0, 3.0]
    with pytest.raises(ArgumentError, match="vk.nn has no module 'Places'"):
        vk.io.load_model(tmp_path / "model.safetensors")


def test_other_files_are_told_apart(tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    vk.io.save({"a": vk.ones(1)}, file)
    with pytest.raises(ArgumentError, match="holds no model: vk.io.load reads tensors"):
        vk.io.load_model(file)
    vk.io.save({"a": vk.ones(1)}, file, {"format": "vkjit-model", "config": "{"})
    with pytest.raises(ArgumentError, match="is damaged: its model's configuration is no JSON"):
        vk.io.load_model(file)
    with pytest.raises(ArgumentError, match="can't have config"):
        vk.io.save_model(file, nn.Tanh(), {"config": "x"})
