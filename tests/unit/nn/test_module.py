"""Tests of modules on the interpreter: contents, names, moving, copying, hooks, printing."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit import nn
from vkjit.errors import ArgumentError, DTypeError, ShapeError


@pytest.fixture(autouse=True)
def on_interpreter() -> Iterator[None]:
    with vk.use_device("interpreter"):
        yield


class Net(nn.Module):
    """A module whose `__init__` doesn't call super().__init__(), which isn't required."""

    def __init__(self) -> None:
        self.body = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2, bias=False))
        self.scale = nn.Parameter(vk.ones(2))
        self.register_buffer("offset", vk.zeros(2))
        self.register_buffer("scratch", vk.zeros(1), persistent=False)

    def forward(self, x: vk.Tensor) -> Any:
        return self.body(x) * self.scale + self.offset

    offset: vk.Tensor


def names(pairs: Any) -> list[str]:
    return [name for name, _ in pairs]


def test_parameters_and_modules_are_named_by_their_place() -> None:
    net = Net()
    assert names(net.named_parameters()) == ["scale", "body.0.weight", "body.0.bias", "body.2.weight"]
    assert names(net.named_buffers()) == ["offset", "scratch"]
    assert names(net.named_modules()) == ["", "body", "body.0", "body.1", "body.2"]
    assert names(net.named_children()) == ["body"]
    assert len(list(net.parameters())) == 4
    assert len(list(net.parameters(recurse=False))) == 1
    assert list(net.state_dict()) == ["scale", "offset", "body.0.weight", "body.0.bias", "body.2.weight"]


def test_a_shared_parameter_is_listed_once_and_saved_under_both_names() -> None:
    net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    net[1].weight = net[0].weight
    assert names(net.named_parameters()) == ["0.weight"]
    assert list(net.state_dict()) == ["0.weight", "1.weight"]


def test_submodules_and_parameters_are_found_by_name() -> None:
    net = Net()
    assert net.get_submodule("body.2") is net.body[2]
    assert net.get_parameter("body.0.bias") is net.body[0].bias
    with pytest.raises(ArgumentError, match="has no child 'tail'"):
        net.get_submodule("body.tail")
    with pytest.raises(ArgumentError, match="no such parameter"):
        net.get_parameter("body.2.bias")


def test_assignment_and_deletion_keep_the_registries_in_step() -> None:
    net = Net()
    net.scale = None  # type: ignore[assignment]
    assert "scale" not in dict(net.named_parameters())
    net.scale = nn.Parameter(vk.zeros(2))
    assert "scale" in dict(net.named_parameters())
    net.offset = vk.ones(2)
    assert dict(net.named_buffers())["offset"] is net.offset
    with pytest.raises(ArgumentError, match="wrap it in vk.nn.Parameter"):
        net.scale = vk.ones(2)
    del net.body
    assert names(net.named_parameters()) == ["scale"]
    with pytest.raises(ArgumentError, match="offset is a buffer, a tensor or None, found int"):
        net.offset = 3  # type: ignore[assignment]
    del net.offset
    net.offset = 3  # type: ignore[assignment]  # no longer a buffer: an ordinary attribute
    assert "offset" not in dict(net.named_buffers())


@pytest.mark.parametrize("name", ["a.b", "", "forward"])
def test_names_that_cannot_be_used_are_refused(name: str) -> None:
    with pytest.raises(ArgumentError):
        nn.Module().register_buffer(name, vk.zeros(1))
    with pytest.raises(ArgumentError):
        nn.Module().add_module(name, nn.Identity())


def test_train_and_eval_reach_all_modules() -> None:
    net = Net()
    assert net.eval() is net
    assert not any(m.training for m in net.modules())
    net.train()
    assert all(m.training for m in net.modules())


def test_freezing_and_forgetting_gradients() -> None:
    net = Net()
    net.body.requires_grad_(False)
    net(vk.ones(1, 3)).sum().backward()
    assert net.body[0].weight.grad is None
    assert net.scale.grad is not None
    net.zero_grad(set_to_none=False)
    assert net.scale.grad.numpy().tolist() == [0, 0]
    net.zero_grad()
    assert net.scale.grad is None


def test_apply_visits_children_before_their_parent() -> None:
    seen: list[str] = []
    Net().apply(lambda module: seen.append(type(module).__name__))
    assert seen == ["Linear", "ReLU", "Linear", "Sequential", "Net"]


def test_a_module_without_forward_says_so() -> None:
    with pytest.raises(NotImplementedError, match="Module has no forward"):
        nn.Module()()


def test_moving_to_a_type_keeps_the_parameters_themselves() -> None:
    net = Net()
    weight = net.body[0].weight
    before = weight.detach().numpy()
    assert net.to(vk.f16) is net
    assert net.body[0].weight is weight
    assert weight.dtype is vk.f16
    assert weight.requires_grad and weight.is_leaf
    assert net.offset.dtype is vk.f16
    np.testing.assert_array_equal(weight.detach().numpy(), before.astype(np.float16))
    assert {p.dtype for p in net.bfloat16().parameters()} == {vk.bf16}
    assert {p.dtype for p in net.float().parameters()} == {vk.f32}
    with pytest.raises(DTypeError, match="of a float type"):
        net.to(vk.i32)


def test_a_deep_copy_has_memory_of_its_own_and_keeps_sharing() -> None:
    net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False), nn.BatchNorm1d(2))
    net[1].weight = net[0].weight
    copied = copy.deepcopy(net)
    assert copied[0].weight is copied[1].weight
    assert copied[0].weight is not net[0].weight
    nn.init.zeros_(net[0].weight)
    nn.init.zeros_(net[2].running_var)
    assert copied[0].weight.detach().numpy().any()
    assert copied[2].running_var.numpy().tolist() == [1, 1]


# -- state


def test_a_state_goes_over_to_another_module() -> None:
    vk.manual_seed(1)
    first, second = Net(), Net()
    result = second.load_state_dict(first.state_dict())
    assert result == ([], [])
    for name, value in first.state_dict().items():
        np.testing.assert_array_equal(second.state_dict()[name].numpy(), value.numpy())


def test_numpy_arrays_are_loaded_and_converted() -> None:
    layer = nn.Linear(2, 1)
    layer.load_state_dict({"weight": np.array([[1, 2]]), "bias": [3.0]})
    assert layer(vk.tensor([[1.0, 1.0]])).tolist() == [[6.0]]


def test_everything_that_does_not_fit_is_listed_and_nothing_is_changed() -> None:
    net = Net()
    before = net.scale.detach().numpy()
    state: dict[str, Any] = {
        "scale": np.full(2, 7.0),
        "offset": np.zeros(3),
        "body.0.weight": np.zeros((4, 3)),
        "extra": np.zeros(1),
    }
    with pytest.raises(ArgumentError) as caught:
        net.load_state_dict(state)
    text = str(caught.value)
    assert "2 missing from the state:\n    body.0.bias\n    body.2.weight" in text
    assert "1 unexpected in the state:\n    extra" in text
    assert "offset: the module has (2,), the state has (3,)" in text
    np.testing.assert_array_equal(net.scale.detach().numpy(), before)


def test_a_part_of_a_state_is_loaded_where_that_is_asked_for() -> None:
    net = Net()
    missing, unexpected = net.load_state_dict({"scale": np.full(2, 7.0), "extra": np.zeros(1)}, strict=False)
    assert missing == ["offset", "body.0.weight", "body.0.bias", "body.2.weight"]
    assert unexpected == ["extra"]
    assert net.scale.detach().tolist() == [7, 7]
    with pytest.raises(ArgumentError, match="1 of another shape"):
        net.load_state_dict({"scale": np.zeros(3)}, strict=False)


def test_what_is_no_state_is_refused() -> None:
    with pytest.raises(ArgumentError, match="a mapping of names to arrays, found list"):
        nn.Linear(1, 1).load_state_dict([])  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="weight: expected an array of numbers"):
        nn.Linear(1, 1, bias=False).load_state_dict({"weight": object()})


# -- hooks


def test_hooks_see_and_replace_arguments_and_results() -> None:
    layer = nn.Identity()
    seen: list[Any] = []
    first = layer.register_forward_pre_hook(lambda _module, args: (args[0] + 1,))
    second = layer.register_forward_hook(lambda _module, args, _output: seen.append(args[0].item()))
    third = layer.register_forward_hook(lambda _module, _args, output: output * 10)
    assert layer(vk.tensor(1.0)).item() == 20
    assert seen == [2]
    first.remove()
    third.remove()
    third.remove()
    with second:
        assert layer(vk.tensor(1.0)).item() == 1
    assert layer(vk.tensor(1.0)).item() == 1
    assert seen == [2, 1]


def test_backward_hooks_see_the_gradients_of_one_call() -> None:
    layer = nn.Linear(2, 1, bias=False)
    layer.load_state_dict({"weight": [[2.0, 3.0]]})
    seen: list[Any] = []
    layer.register_full_backward_hook(lambda _module, inputs, outputs: seen.append((inputs[0], outputs[0].tolist())))
    x = vk.tensor([[1.0, 1.0]], requires_grad=True)
    ((layer(x) * 5).sum() + (x * 100).sum()).backward()
    ((inputs, outputs),) = seen
    assert inputs.tolist() == [[10.0, 15.0]]  # the gradient of this call only, not of all uses of x
    assert outputs == [[5.0]]
    assert x.grad is not None and x.grad.tolist() == [[110.0, 115.0]]


def test_a_backward_hook_without_a_differentiable_input_is_called_too() -> None:
    layer = nn.Linear(2, 1)
    seen: list[Any] = []
    layer.register_full_backward_hook(lambda _module, inputs, outputs: seen.append((inputs, outputs[0].tolist())))
    layer(vk.ones(1, 2)).sum().backward()
    assert seen == [((None,), [[1.0]])]


# -- containers


def test_sequential_is_a_list_of_modules() -> None:
    net = nn.Sequential({"one": nn.Identity(), "two": nn.ReLU()})
    assert names(net.named_children()) == ["one", "two"]
    net.append(nn.Tanh())
    assert len(net) == 3 and isinstance(net[-1], nn.Tanh)
    assert len(net[1:]) == 2
    net[0] = nn.Sigmoid()
    assert isinstance(net.get_submodule("one"), nn.Sigmoid)
    with pytest.raises(IndexError, match="out of range for 3"):
        net[3]


def test_lists_and_dictionaries_of_modules_are_registered() -> None:
    layers = nn.ModuleList([nn.Linear(1, 1), nn.Linear(1, 2)])
    layers.insert(0, nn.Linear(2, 1))
    assert [layer.in_features for layer in layers] == [2, 1, 1]
    assert names(layers.named_parameters())[0] == "0.weight"
    assert len(layers[1:]) == 2
    named = nn.ModuleDict({"a": nn.Linear(1, 1)})
    named["b"] = nn.ReLU()
    assert "b" in named and list(named) == ["a", "b"] and list(named.keys()) == ["a", "b"]
    del named["b"]
    assert len(named) == 1
    with pytest.raises(KeyError, match="no module 'b'"):
        named["b"]
    values = nn.ParameterList([nn.Parameter(vk.ones(1))])
    assert names(values.named_parameters()) == ["0"] and values[0].item() == 1


def test_a_parameter_can_be_given_other_memory() -> None:
    parameter = nn.Parameter(vk.ones(2))
    (parameter * 2).sum().backward()
    parameter.data = vk.tensor([3.0, 4.0])
    assert parameter.tolist() == [3, 4] and parameter.requires_grad
    assert parameter.grad is not None and parameter.grad.tolist() == [2, 2]
    assert not parameter.data.requires_grad
    with pytest.raises(ArgumentError, match="made of a tensor"):
        nn.Parameter(np.ones(2))  # type: ignore[arg-type]


def test_a_module_is_shown_as_a_tree() -> None:
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.Sequential(nn.ReLU(), nn.Flatten()), nn.Dropout(0.25)
    )
    assert repr(net) == (
        "Sequential(\n"
        "  (0): Conv2d(1, 4, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1), bias=False)\n"
        "  (1): Sequential(\n"
        "    (0): ReLU()\n"
        "    (1): Flatten(start_dim=1, end_dim=-1)\n"
        "  )\n"
        "  (2): Dropout(p=0.25, inplace=False)\n"
        ")"
    )
    assert repr(nn.Module()) == "Module()"
    assert repr(nn.Parameter(vk.ones(1))).startswith("Parameter containing:\ntensor([1.]")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.Conv2d(3, 4, 3, groups=2), "multiples of groups 2"),
        (lambda: nn.Conv2d(1, 1, (3, 3, 3)), "kernel_size is an int or 2 ints"),
        (lambda: nn.Conv2d(1, 1, 3, stride=0), "stride is an int or 2 ints of at least 1"),
        (lambda: nn.Conv2d(1, 1, 3, stride=2, padding="same"), 'padding="same" needs a stride of 1'),
        (lambda: nn.Conv2d(1, 1, 3, padding="full"), "padding is"),
        (lambda: nn.Conv2d(1, 1, 3, padding_mode="mirror"), "padding_mode is one of zeros, reflect"),
        (lambda: nn.GroupNorm(2, 5), "multiple of num_groups"),
        (lambda: nn.Dropout(1.5), r"lies in \[0, 1\]"),
        (lambda: nn.Embedding(3, 2, padding_idx=3), "no row of a table with 3 rows"),
        (lambda: nn.MSELoss(reduction="average"), "reduction is"),
        (lambda: nn.MultiheadAttention(6, 4), "multiple of num_heads"),
    ],
)
def test_options_out_of_range_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        make()


def test_batch_norm_refuses_other_shapes() -> None:
    with pytest.raises(ShapeError, match=r"BatchNorm2d\(3\) takes 4 axes with 3 channels"):
        nn.BatchNorm2d(3)(vk.zeros(2, 4, 5, 5))
    with pytest.raises(ShapeError, match="2 or 3 axes"):
        nn.BatchNorm1d(3)(vk.zeros(2, 3, 5, 5))


def test_batches_are_counted_when_the_state_is_read() -> None:
    layer = nn.BatchNorm1d(2)
    x = vk.randn(4, 2)
    layer(x)
    layer(x)
    assert layer.num_batches_tracked is not None and layer.num_batches_tracked.item() == 2
    layer(x)
    state = layer.state_dict()
    assert state["num_batches_tracked"].item() == 3
    other = nn.BatchNorm1d(2)
    other(x)
    other.load_state_dict(state)
    assert other.state_dict()["num_batches_tracked"].item() == 3
    other.reset_running_stats()
    assert other.state_dict()["num_batches_tracked"].item() == 0


def test_dropout_does_nothing_in_inference() -> None:
    layer = nn.Dropout(0.5)
    x = vk.ones(1000)
    kept = layer(x).numpy()
    assert set(np.unique(kept)) == {0.0, 2.0}
    assert layer.eval()(x) is x


def test_an_embedding_can_be_made_of_a_table() -> None:
    table = vk.tensor([[1.0, 2.0], [3.0, 4.0]])
    layer = nn.Embedding.from_pretrained(table)
    assert not layer.weight.requires_grad
    assert layer(vk.tensor([1, 0, 1])).tolist() == [[3, 4], [1, 2], [3, 4]]
    padded = nn.Embedding(4, 2, padding_idx=-1)
    assert padded.weight.detach().numpy()[3].tolist() == [0, 0]


def test_buffers_are_found_by_name_and_states_may_stay_on_the_tape() -> None:
    model = nn.Sequential(nn.BatchNorm1d(2))
    model(vk.randn(3, 2))
    assert model.get_buffer("0.num_batches_tracked").item() == 1
    with pytest.raises(
        ArgumentError, match=r"get_buffer\('0.weight'\): there is no such buffer, only \['num_batches_tracked'"
    ):
        model.get_buffer("0.weight")
    assert model.state_dict(keep_vars=True)["0.weight"] is model[0].weight
    assert model.state_dict()["0.weight"].requires_grad is False


def test_hooks_take_keyword_arguments_and_a_place_before_the_others() -> None:
    class Scaled(nn.Module):
        def forward(self, x: Any, factor: float = 1.0) -> Any:
            return x * factor

    module, calls = Scaled(), []
    module.register_forward_pre_hook(lambda *_: calls.append("second"))
    before = module.register_forward_pre_hook(
        lambda _, args, kwargs: (args, {"factor": kwargs["factor"] + 1}), prepend=True, with_kwargs=True
    )

    def after(_: Any, args: Any, kwargs: dict[str, Any], result: Any) -> Any:
        calls.append(kwargs["factor"])
        return result + len(args)

    module.register_forward_hook(after, with_kwargs=True)
    module.register_forward_pre_hook(lambda *_: calls.append("first"), prepend=True)
    assert module(vk.ones(1), factor=2.0).tolist() == [4.0]
    assert copy.deepcopy(module)(vk.ones(1), factor=2.0).tolist() == [4.0]
    assert calls == ["first", "second", 3.0] * 2
    before.remove()
    module.register_forward_pre_hook(lambda *_: 3, with_kwargs=True)
    with pytest.raises(ArgumentError, match=r"returns None or \(args, kwargs\).*found int"):
        module(vk.ones(1), factor=2.0)


def test_a_backward_hook_replaces_the_gradient_of_the_input() -> None:
    torch = pytest.importorskip("torch")
    found = []
    for library in (vk, torch):
        layer = library.nn.Sequential(library.nn.Tanh())
        layer.register_full_backward_hook(lambda _, inputs, outputs: (inputs[0] * 3 + outputs[0],))
        layer.register_full_backward_hook(lambda _, inputs, outputs: (inputs[0] * 2,))
        x = library.ones(2, 3, requires_grad=True)
        y = layer(x).sum()
        y.backward(retain_graph=True)
        y.backward()
        found.append(x.grad.numpy())
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)


def test_what_a_backward_hook_cannot_replace_is_refused() -> None:
    both = nn.CosineSimilarity()
    both.register_full_backward_hook(lambda _, inputs, outputs: tuple(g * 2 for g in inputs))
    a, b = vk.randn(2, 3, requires_grad=True), vk.randn(2, 3, requires_grad=True)
    with pytest.raises(
        ArgumentError, match="can replace the gradient of one input, this call of CosineSimilarity has 2"
    ):
        both(a, b).sum().backward()
    layer = nn.Tanh()
    layer.register_full_backward_hook(lambda *_: (None, None))
    with pytest.raises(ArgumentError, match="returned 2 gradients for 1 inputs"):
        layer(a).sum().backward()
