"""Tests of optimizers against PyTorch: the same steps from the same parameters and gradients, also when resumed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit import optim
from vkjit.errors import ArgumentError
from vkjit.stdlib.optim import optimizers, rules
from vkjit.stdlib.registry import forcing_class

STEPS = 6


@pytest.fixture(autouse=True)
def on_interpreter() -> Iterator[None]:
    with vk.use_device("interpreter"):
        yield


def parameters() -> list[Any]:
    rng = np.random.default_rng(5)
    return [rng.standard_normal(shape).astype(np.float32) for shape in ((3, 4), (5,), ())]


def gradients(step: int) -> list[Any]:
    rng = np.random.default_rng(100 + step)
    return [rng.standard_normal(shape).astype(np.float32) for shape in ((3, 4), (5,), ())]


def run(tensors: list[vk.Tensor], optimizer: optim.Optimizer, steps: range) -> None:
    for step in steps:
        for tensor, gradient in zip(tensors, gradients(step), strict=True):
            tensor.grad = vk.tensor(gradient)
        optimizer.step()


OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.2}),
    ("SGD", {"lr": 0.1, "momentum": 0.8, "nesterov": True, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.8, "weight_decay": 0.1, "maximize": True}),
    ("Adam", {"lr": 0.1}),
    ("Adam", {"lr": 0.05, "betas": (0.8, 0.95), "eps": 1e-4, "weight_decay": 0.1}),
    ("Adam", {"lr": 0.05, "amsgrad": True}),
    ("AdamW", {"lr": 0.1}),
    ("AdamW", {"lr": 0.1, "weight_decay": 0.3, "amsgrad": True, "maximize": True}),
    ("Adamax", {"lr": 0.05, "weight_decay": 0.1}),
    ("NAdam", {"lr": 0.05, "weight_decay": 0.1}),
    ("NAdam", {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {"lr": 0.05, "betas": (0.9, 0.5)}),
    ("RAdam", {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.5, "weight_decay": 0.1}),
    ("Adadelta", {"lr": 0.5, "rho": 0.8, "weight_decay": 0.1}),
    ("RMSprop", {"lr": 0.05}),
    ("RMSprop", {"lr": 0.05, "alpha": 0.8, "momentum": 0.5, "centered": True, "weight_decay": 0.1}),
]
NAMES = [f"{name}-{'-'.join(options)}" for name, options in OPTIONS]


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
@pytest.mark.parametrize(("name", "options"), OPTIONS, ids=NAMES)
def test_steps_are_pytorchs(name: str, options: dict[str, Any], kind: str) -> None:
    torch = pytest.importorskip("torch")
    ours = [vk.tensor(p, requires_grad=True) for p in parameters()]
    theirs = [torch.tensor(p, requires_grad=True) for p in parameters()]
    with forcing_class(kind):
        run(ours, getattr(optim, name)(ours, **options), range(STEPS))
    reference = getattr(torch.optim, name)(theirs, **options)
    for step in range(STEPS):
        for tensor, gradient in zip(theirs, gradients(step), strict=True):
            tensor.grad = torch.tensor(gradient)
        reference.step()
    for mine, other in zip(ours, theirs, strict=True):
        # a step has about 16 roundings of values up to 4, and Adam's first steps divide by such values
        bound = STEPS * 16 * 2.0**-24 * 4
        np.testing.assert_allclose(mine.detach().numpy(), other.detach().numpy(), rtol=0, atol=bound)


MORE = [("Lion", {"lr": 0.05, "weight_decay": 0.1}), ("LAMB", {"lr": 0.05, "weight_decay": 0.1})]


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
@pytest.mark.parametrize(("name", "options"), [*OPTIONS, *MORE], ids=[*NAMES, "Lion", "LAMB"])
def test_a_resumed_optimiser_goes_on_bit_by_bit(name: str, options: dict[str, Any], kind: str) -> None:
    with forcing_class(kind):
        resume(name, options)


def resume(name: str, options: dict[str, Any]) -> None:
    unbroken = [vk.tensor(p, requires_grad=True) for p in parameters()]
    optimizer = getattr(optim, name)(unbroken, **options)
    run(unbroken, optimizer, range(3))
    resumed = [vk.tensor(p.detach(), requires_grad=True) for p in unbroken]
    state = optimizer.state_dict()
    second = getattr(optim, name)(resumed, lr=7.0)
    second.load_state_dict(state)
    run(unbroken, optimizer, range(3, STEPS))
    run(resumed, second, range(3, STEPS))
    for one, other in zip(unbroken, resumed, strict=True):
        np.testing.assert_array_equal(one.detach().numpy(), other.detach().numpy())


def test_a_state_of_pytorch_is_taken_over() -> None:
    torch = pytest.importorskip("torch")
    theirs = [torch.tensor(p, requires_grad=True) for p in parameters()]
    reference = torch.optim.Adam(theirs, lr=0.1)
    for tensor, gradient in zip(theirs, gradients(0), strict=True):
        tensor.grad = torch.tensor(gradient)
    reference.step()
    ours = [vk.tensor(p.detach().numpy(), requires_grad=True) for p in theirs]
    optimizer = optim.Adam(ours)
    state = reference.state_dict()
    optimizer.load_state_dict(state)
    assert optimizer.state[ours[0]]["step"] == 1
    assert optimizer.param_groups[0]["lr"] == 0.1
    assert "fused" not in optimizer.param_groups[0]  # an option that only PyTorch has
    np.testing.assert_array_equal(optimizer.state[ours[0]]["exp_avg"].numpy(), state["state"][0]["exp_avg"].numpy())


def test_groups_have_options_of_their_own() -> None:
    first, second = vk.ones(1, requires_grad=True), vk.ones(1, requires_grad=True)
    optimizer = optim.SGD([{"params": [first]}, {"params": second, "lr": 0.5}], lr=0.1)
    for tensor in (first, second):
        tensor.grad = vk.ones(1)
    optimizer.step()
    assert first.item() == pytest.approx(0.9)
    assert second.item() == pytest.approx(0.5)
    optimizer.add_param_group({"params": [vk.zeros(1)]})
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.5, 0.1]
    assert "Parameter Group 1\n    dampening: 0.0\n    lr: 0.5" in repr(optimizer)


def test_parameters_without_gradients_stay() -> None:
    tensor = vk.ones(2, requires_grad=True)
    optimizer = optim.SGD([tensor], lr=0.1)
    optimizer.step()
    assert tensor.tolist() == [1, 1]
    tensor.grad = vk.ones(2)
    optimizer.zero_grad(set_to_none=False)
    assert tensor.grad is not None and tensor.grad.tolist() == [0, 0]
    optimizer.zero_grad()
    assert tensor.grad is None


def test_a_closure_computes_the_loss() -> None:
    tensor = vk.tensor([3.0], requires_grad=True)
    optimizer = optim.SGD([tensor], lr=0.5)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (tensor * tensor).sum()
        loss.backward()
        return loss

    with vk.no_grad():
        loss = optimizer.step(closure)
    assert loss.item() == 9
    assert tensor.item() == 0


def test_16_bit_parameters_are_stepped_in_f32() -> None:
    for dtype in (vk.f16, vk.bf16):
        tensor = vk.ones(3, dtype=dtype, requires_grad=True)
        tensor.grad = vk.full((3,), 0.5, dtype=dtype)
        optim.Adam([tensor], lr=0.25).step()
        assert tensor.dtype is dtype and tensor.tolist() == [0.75, 0.75, 0.75]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda _: optim.SGD([]), "at least one parameter"),
        (lambda p: optim.SGD(p), r"pass \[tensor\]"),
        (lambda p: optim.SGD([p, p]), "more than once"),
        (lambda p: optim.SGD([p * 2]), "expected a leaf"),
        (lambda _: optim.SGD([np.ones(2)]), "parameter 0 is a ndarray"),
        (lambda p: optim.SGD([p], lr=-1), "lr is at least 0"),
        (lambda p: optim.SGD([p], nesterov=True), "nesterov=True needs momentum"),
        (lambda p: optim.Adam([p], betas=(1.0, 0.9)), r"betas lie in \[0, 1\)"),
        (lambda p: optim.Adam([{"params": [p], "momentum": 0.1}]), "no option 'momentum'"),
    ],
)
def test_what_cannot_be_optimised_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        make(vk.ones(2, requires_grad=True))


def test_a_state_that_does_not_fit_changes_nothing() -> None:
    tensor = vk.ones(2, requires_grad=True)
    optimizer = optim.SGD([tensor], momentum=0.9)
    run_state = {"momentum_buffer": vk.zeros(3)}
    group = optimizer.state_dict()["param_groups"][0]
    cases: list[tuple[dict[str, Any], str]] = [
        ({"state": {}}, '"state" and "param_groups"'),
        ({"state": {}, "param_groups": []}, "0 parameter groups, the optimiser has 1"),
        ({"state": {}, "param_groups": [{**group, "params": [0, 1]}]}, "has 2 parameters"),
        ({"state": {5: {}}, "param_groups": [group]}, "parameter 5"),
        ({"state": {0: run_state}, "param_groups": [group]}, r"shape \(3,\), expected the parameter's \(2,\)"),
    ]
    for state, message in cases:
        with pytest.raises(ArgumentError, match=message):
            optimizer.load_state_dict(state)
        assert optimizer.state == {}


# -- clipping


@pytest.mark.parametrize("norm_type", [1.0, 2.0, 3.0, float("inf")])
@pytest.mark.parametrize("max_norm", [0.5, 100.0])
def test_norms_are_clipped_as_pytorch_does(norm_type: float, max_norm: float) -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = [], []
    for value, gradient in zip(parameters(), gradients(0), strict=True):
        ours.append(vk.tensor(value, requires_grad=True))
        ours[-1].grad = vk.tensor(gradient)
        theirs.append(torch.tensor(value, requires_grad=True))
        theirs[-1].grad = torch.tensor(gradient)
    norm = optim.clip_grad_norm_(ours, max_norm, norm_type)
    expected = torch.nn.utils.clip_grad_norm_(theirs, max_norm, norm_type)
    assert norm.item() == pytest.approx(expected.item(), rel=1e-6)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.grad is not None
        np.testing.assert_allclose(mine.grad.numpy(), other.grad.numpy(), rtol=1e-5)


def test_a_gradient_that_two_parameters_share_is_scaled_once() -> None:
    a, b = vk.ones(2, requires_grad=True), vk.ones(2, requires_grad=True)
    a.grad = b.grad = vk.tensor([3.0, 4.0])
    optim.clip_grad_norm_([a, b], 1.0)
    np.testing.assert_allclose(a.grad.numpy(), np.array([3, 4]) / np.sqrt(50), rtol=1e-5)


def test_infinite_norms_are_an_error_where_that_is_asked_for() -> None:
    tensor = vk.ones(2, requires_grad=True)
    tensor.grad = vk.tensor([float("inf"), 1.0])
    with pytest.raises(ArgumentError, match="total norm of the gradients is inf"):
        optim.clip_grad_norm_(tensor, 1.0, error_if_nonfinite=True)
    with pytest.raises(ArgumentError, match="norm_type is above 0"):
        optim.clip_grad_norm_(tensor, 1.0, norm_type=0)
    assert optim.clip_grad_norm_([vk.ones(1)], 1.0).item() == 0


def test_values_are_clipped() -> None:
    tensor = vk.ones(3, requires_grad=True)
    tensor.grad = vk.tensor([-3.0, 0.1, 2.0])
    optim.clip_grad_value_(tensor, 0.5)
    np.testing.assert_array_equal(tensor.grad.numpy(), np.array([-0.5, 0.1, 0.5], np.float32))
    with pytest.raises(ArgumentError, match="at least 0"):
        optim.clip_grad_value_(tensor, -1)


# -- without a counterpart in PyTorch


def test_lion_follows_the_sign() -> None:
    p, g = parameters()[0], gradients(0)[0]
    tensor = vk.tensor(p, requires_grad=True)
    optimizer = optim.Lion([tensor], lr=0.1, betas=(0.9, 0.99), weight_decay=0.2)
    tensor.grad = vk.tensor(g)
    optimizer.step()
    np.testing.assert_allclose(tensor.detach().numpy(), p * (1 - 0.02) - 0.1 * np.sign(g), rtol=0, atol=1e-6)
    np.testing.assert_allclose(optimizer.state[tensor]["exp_avg"].numpy(), 0.01 * g, rtol=1e-5)


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_lamb_steps_in_proportion_to_the_parameter(kind: str) -> None:
    values = [*parameters()[:2], np.zeros(3, np.float32)]
    slopes = [*gradients(0)[:2], np.ones(3, np.float32)]
    tensors = [vk.tensor(v, requires_grad=True) for v in values]
    for tensor, slope in zip(tensors, slopes, strict=True):
        tensor.grad = vk.tensor(slope)
    with forcing_class(kind):
        optim.LAMB(tensors, lr=0.1, weight_decay=0.2).step()
    for tensor, value, slope in zip(tensors, values, slopes, strict=True):
        update = slope / (np.abs(slope) + 1e-6) + 0.2 * value
        ratio = np.linalg.norm(value) / np.linalg.norm(update) if value.any() else 1.0
        np.testing.assert_allclose(tensor.detach().numpy(), value - 0.1 * ratio * update, rtol=0, atol=1e-5)


def test_lookahead_follows_every_k_steps_and_resumes() -> None:
    fast, slow = parameters()[0].astype(np.float64), parameters()[0].astype(np.float64)
    unbroken = [vk.tensor(p, requires_grad=True) for p in parameters()]
    optimizer = optim.Lookahead(optim.SGD(unbroken, lr=0.1), k=2, alpha=0.25)
    run(unbroken, optimizer, range(3))
    resumed = [vk.tensor(p.detach(), requires_grad=True) for p in unbroken]
    second = optim.Lookahead(optim.SGD(resumed, lr=3.0), k=2, alpha=0.25)
    second.load_state_dict(optimizer.state_dict())
    run(unbroken, optimizer, range(3, STEPS))
    run(resumed, second, range(3, STEPS))
    for step in range(STEPS):
        fast = fast - 0.1 * gradients(step)[0]
        if step % 2:
            slow = slow + 0.25 * (fast - slow)
            fast = slow
    np.testing.assert_allclose(unbroken[0].detach().numpy(), fast, rtol=0, atol=1e-5)
    for one, other in zip(unbroken, resumed, strict=True):
        np.testing.assert_array_equal(one.detach().numpy(), other.detach().numpy())


def test_averages_follow_and_are_lent_to_the_parameters() -> None:
    tensor = vk.tensor([0.0, 8.0], requires_grad=True)
    ema = optim.EMA([tensor], decay=0.75)
    with vk.no_grad():
        tensor.add_(4.0)
    ema.update()
    with ema.averaged():
        assert tensor.tolist() == [1, 9]
    assert tensor.tolist() == [4, 12]
    other = optim.EMA([tensor], decay=0.75)
    other.load_state_dict(ema.state_dict())
    assert other.averages[0].tolist() == [1, 9] and other.updates == 1


def test_tensors_of_one_plan_are_stepped_in_one_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    step_many = optimizers.step_many

    def counted(*args: Any, **kwargs: Any) -> Any:
        counts.append(1)
        return step_many(*args, **kwargs)

    monkeypatch.setattr(optimizers, "step_many", counted)
    tensors = [vk.ones(3, requires_grad=True) for _ in range(11)]
    for tensor in tensors:
        tensor.grad = vk.ones(3)
    with forcing_class("gpu"):
        optim.Adam(tensors).step()
    assert len(counts) == 2  # eleven tensors: launches of eight and three


def test_arrays_that_are_not_dense_are_stepped_in_place() -> None:
    whole = vk.ones(4, 3)
    optimizers.step(rules.sgd, whole.t()._array, vk.ones(3, 4)._array, (), (0.5, 0, 0, 0), (False,) * 3)
    assert whole.tolist() == [[0.5] * 3] * 4
    tensor = vk.ones(3, 4).t().detach().requires_grad_()
    other = vk.ones(2, requires_grad=True)
    for leaf in (tensor, other):
        leaf.grad = vk.ones(leaf.shape)
    with forcing_class("gpu"):
        optim.SGD([tensor, other], lr=0.5).step()
    assert tensor.tolist() == [[0.5] * 3] * 4 and other.tolist() == [0.5, 0.5]


def test_a_parameter_that_gets_other_memory_is_stepped_there() -> None:
    layers = [vk.nn.Parameter(vk.ones(2)), vk.nn.Parameter(vk.ones(3))]
    with forcing_class("gpu"):
        optimizer = optim.SGD(layers, lr=0.5, momentum=0.5)
        for _ in range(2):
            for parameter in layers:
                parameter.grad = vk.ones(parameter.shape)
            optimizer.step()
            layers[0].data = vk.full((2,), 10.0)
    assert layers[0].tolist() == [10, 10]  # replaced after the last step
    assert layers[1].tolist() == [1 - 0.5 - 0.75] * 3


def test_groups_may_have_names() -> None:
    groups = [{"params": [vk.zeros(1)], "name": "body"}, {"params": [vk.zeros(1)], "name": "head", "lr": 0.2}]
    optimizer = optim.SGD(groups, lr=0.1)
    assert [group["name"] for group in optimizer.state_dict()["param_groups"]] == ["body", "head"]
    with pytest.raises(ArgumentError, match="has no option 'weight_decy'; there are: lr, .*, name, initial_lr"):
        optim.SGD([{"params": [vk.zeros(1)], "weight_decy": 0.1}])
    with pytest.raises(ArgumentError, match=r"found a Linear: pass its parameters\(\)"):
        optim.SGD(vk.nn.Linear(1, 1), lr=0.1)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="lr is a number, found the string '1e-3'"):
        optim.SGD([vk.zeros(1)], lr="1e-3")  # type: ignore[arg-type]


@pytest.mark.parametrize("group", [5, True, [1], None, "x", (0.9, 0.99)], ids=repr)
def test_groups_of_parameters_are_mappings(group: Any) -> None:
    optimizer = optim.SGD([vk.nn.Parameter(vk.ones(3))], lr=0.1)
    with pytest.raises(ArgumentError, match="a group of parameters is a mapping"):
        optimizer.add_param_group(group)


def test_options_are_numbers() -> None:
    value: Any
    for value in ((2, 3), [0.9], None, {}):
        with pytest.raises(ArgumentError, match="weight_decay is a number, found a"):
            optim.AdamW([vk.nn.Parameter(vk.ones(3))], weight_decay=value)


def test_clipping_takes_parameters_and_numbers() -> None:
    parameter = vk.nn.Parameter(vk.ones(3))
    parameter.grad = vk.ones(3)
    parameters: Any
    number: Any
    for parameters in ({"a": parameter}, np.ones(3), [None], 5, [np.ones(3)]):
        for clip in (optim.clip_grad_norm_, optim.clip_grad_value_):
            with pytest.raises(ArgumentError, match="expected parameters, found a"):
                clip(parameters, 1.0)
    for number in (10**400, "1", None, [1]):
        for clip in (optim.clip_grad_norm_, optim.clip_grad_value_):
            with pytest.raises(ArgumentError, match="is a number that fits a float"):
                clip([parameter], number)
    assert parameter.grad.tolist() == [1, 1, 1]


def test_schedules_of_other_things_are_refused() -> None:
    optimizer = optim.SGD([vk.nn.Parameter(vk.ones(3))], lr=0.1)
    schedules = optim.lr_scheduler
    others: Any
    state: Any
    for others in ((0.9, 0.99), [None], ["x"]):
        with pytest.raises(ArgumentError, match="schedule 0 is a"):
            schedules.ChainedScheduler(others)
    for others in (None, 5, optimizer):
        with pytest.raises(ArgumentError, match="schedulers is a list or tuple"):
            schedules.ChainedScheduler(others)
        with pytest.raises(ArgumentError, match="schedulers is a list or tuple"):
            schedules.SequentialLR(optimizer, others, [1])
    for state in (None, 5, "x", np.ones(3)):
        with pytest.raises(ArgumentError, match="the state of a schedule is a mapping"):
            schedules.StepLR(optimizer, 3).load_state_dict(state)


STATES = [
    {"state": 5, "param_groups": [{"params": [0]}]},
    {"state": {}, "param_groups": 5},
    {"state": {}, "param_groups": [{}]},
    {"state": {0: {"exp_avg": "x"}}, "param_groups": [{"params": [0]}]},
    {"state": {0: 5}, "param_groups": [{"params": [0]}]},
    {"state": {"a": {}}, "param_groups": [{"params": [0]}]},
]


@pytest.mark.parametrize("state", STATES, ids=str)
def test_states_of_another_form_are_refused(state: Any) -> None:
    optimizer = optim.Adam([vk.nn.Parameter(vk.ones(3))])
    with pytest.raises(ArgumentError):
        optimizer.load_state_dict(state)
