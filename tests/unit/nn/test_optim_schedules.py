"""Tests of learning-rate schedules and their states, against PyTorch."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import vkjit as vk
from vkjit import optim
from vkjit.errors import ArgumentError
from vkjit.optim import lr_scheduler

EPOCHS = 15


@pytest.fixture(autouse=True)
def on_interpreter() -> Iterator[None]:
    with vk.use_device("interpreter"):
        yield


def make_optimizer() -> optim.SGD:
    return optim.SGD([{"params": [vk.zeros(1)], "lr": 0.5}, {"params": [vk.zeros(1)]}], lr=0.1)


SCHEDULES: list[tuple[str, dict[str, Any]]] = [
    ("StepLR", {"step_size": 4, "gamma": 0.5}),
    ("MultiStepLR", {"milestones": [3, 4, 9], "gamma": 0.3}),
    ("ExponentialLR", {"gamma": 0.9}),
    ("LinearLR", {"start_factor": 0.25, "end_factor": 0.75, "total_iters": 6}),
    ("ConstantLR", {"factor": 0.5, "total_iters": 4}),
    ("CosineAnnealingLR", {"T_max": 10, "eta_min": 0.01}),
    ("LambdaLR", {"lr_lambda": lambda epoch: 1 / (1 + epoch)}),
    ("LambdaLR", {"lr_lambda": [lambda epoch: 1 / (1 + epoch), lambda epoch: 0.5**epoch]}),
    ("MultiplicativeLR", {"lr_lambda": [lambda _: 0.9, lambda _: 0.5]}),
    ("MultiplicativeLR", {"lr_lambda": lambda epoch: 1 - 0.1 / epoch}),
    ("PolynomialLR", {"total_iters": 7, "power": 1.5}),
    ("CosineAnnealingWarmRestarts", {"T_0": 2, "T_mult": 2, "eta_min": 0.01}),
    ("CyclicLR", {"base_lr": 0.1, "max_lr": 0.4, "step_size_up": 3, "step_size_down": 2}),
    ("CyclicLR", {"base_lr": 0.1, "max_lr": 0.4, "step_size_up": 2, "mode": "triangular2"}),
    ("CyclicLR", {"base_lr": 0.1, "max_lr": 0.4, "step_size_up": 2, "mode": "exp_range", "gamma": 0.9}),
    ("OneCycleLR", {"max_lr": 0.7, "total_steps": EPOCHS}),
    ("OneCycleLR", {"max_lr": [0.7, 0.3], "epochs": 5, "steps_per_epoch": 3, "base_momentum": 0.5}),
    ("OneCycleLR", {"max_lr": 0.7, "total_steps": EPOCHS, "cycle_momentum": False}),
    ("OneCycleLR", {"max_lr": 0.7, "total_steps": EPOCHS, "three_phase": True, "anneal_strategy": "linear"}),
]


@pytest.mark.parametrize(("name", "options"), SCHEDULES, ids=[s[0] for s in SCHEDULES])
def test_rates_are_pytorchs(name: str, options: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    ours = getattr(lr_scheduler, name)(make_optimizer(), **options)
    reference = torch.optim.SGD([{"params": [torch.zeros(1)], "lr": 0.5}, {"params": [torch.zeros(1)]}], lr=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns of schedule steps without optimizer steps
        theirs = getattr(torch.optim.lr_scheduler, name)(reference, **options)
        for _ in range(EPOCHS):
            assert ours.get_last_lr() == pytest.approx(theirs.get_last_lr(), rel=1e-9)
            for group, other in zip(ours.optimizer.param_groups, reference.param_groups, strict=True):
                assert group["momentum"] == pytest.approx(other["momentum"], rel=1e-9)
            ours.step()
            theirs.step()


@pytest.mark.parametrize(("name", "options"), SCHEDULES, ids=[s[0] for s in SCHEDULES])
def test_a_resumed_schedule_goes_on(name: str, options: dict[str, Any]) -> None:
    first = getattr(lr_scheduler, name)(make_optimizer(), **options)
    for _ in range(5):
        first.step()
    second = getattr(lr_scheduler, name)(make_optimizer(), **options)
    second.load_state_dict(first.state_dict())
    for _ in range(EPOCHS - 5):
        assert second.get_last_lr() == first.get_last_lr()
        first.step()
        second.step()


METRICS = [1.0, 0.8, 0.79999, 0.8, 0.9, 0.8, 0.7, 0.75, 0.72, 0.71, 0.9, 0.5, 0.6, 0.6, 0.6, 0.6, 0.6]


@pytest.mark.parametrize(
    "options",
    [
        {"patience": 1},
        {"patience": 0, "cooldown": 2, "min_lr": 0.02, "factor": 0.5},
        {"patience": 1, "mode": "max", "threshold_mode": "abs", "threshold": 0.05},
        {"patience": 2, "threshold": 0.2},
        {"patience": 1, "mode": "max", "threshold": 0.1},
    ],
    ids=str,
)
def test_plateaus_are_pytorchs(options: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    ours = lr_scheduler.ReduceLROnPlateau(make_optimizer(), **options)
    reference = torch.optim.SGD([{"params": [torch.zeros(1)], "lr": 0.5}, {"params": [torch.zeros(1)]}], lr=0.1)
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(reference, **options)
    for metric in METRICS:
        ours.step(metric)
        theirs.step(metric)
        assert ours.get_last_lr() == pytest.approx([g["lr"] for g in reference.param_groups], rel=1e-9)


def test_a_plateau_takes_a_tensor_and_resumes() -> None:
    first = lr_scheduler.ReduceLROnPlateau(make_optimizer(), patience=0, factor=0.5)
    first.step(vk.tensor(1.0))
    first.step(vk.tensor(2.0))
    assert first.get_last_lr() == [0.25, 0.05]
    with pytest.raises(ArgumentError, match="takes the metric"):
        first.step()
    second = lr_scheduler.ReduceLROnPlateau(make_optimizer(), patience=0, factor=0.5)
    second.load_state_dict(first.state_dict())
    assert second.best == 1.0


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ArgumentError, match="takes a vk.optim optimiser, found list"):
        lr_scheduler.StepLR([], 1)  # type: ignore[arg-type]
    schedule = lr_scheduler.StepLR(make_optimizer(), 2)
    with pytest.raises(ArgumentError, match="no 'T_max' in its state"):
        schedule.load_state_dict({"T_max": 3})
    with pytest.raises(ArgumentError, match="1 rates, the optimiser 2 groups"):
        schedule.load_state_dict({"base_lrs": [0.1]})
    with pytest.raises(ArgumentError, match=r"\[0, 1\)"):
        lr_scheduler.ReduceLROnPlateau(make_optimizer(), factor=1.5)
    with pytest.raises(ArgumentError, match='"min" or "max"'):
        lr_scheduler.ReduceLROnPlateau(make_optimizer(), mode="best")


def sequence(library: Any, optimizer: Any) -> Any:
    parts = [library.ConstantLR(optimizer, factor=0.5, total_iters=2), library.ExponentialLR(optimizer, gamma=0.9)]
    return library.SequentialLR(optimizer, parts, milestones=[4])


def chain(library: Any, optimizer: Any) -> Any:
    parts = [library.ConstantLR(optimizer, factor=0.5, total_iters=3), library.ExponentialLR(optimizer, gamma=0.9)]
    return library.ChainedScheduler(parts, optimizer=optimizer)


@pytest.mark.parametrize("make", [sequence, chain])
def test_schedules_made_of_others_are_pytorchs_and_resume(make: Any) -> None:
    torch = pytest.importorskip("torch")
    ours = make(lr_scheduler, make_optimizer())
    reference = torch.optim.SGD([{"params": [torch.zeros(1)], "lr": 0.5}, {"params": [torch.zeros(1)]}], lr=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = make(torch.optim.lr_scheduler, reference)
        for step in range(EPOCHS):
            if step == 6:
                resumed = make(lr_scheduler, make_optimizer())
                resumed.load_state_dict(ours.state_dict())
                ours = resumed
            assert ours.get_last_lr() == pytest.approx(theirs.get_last_lr(), rel=1e-9)
            ours.step()
            theirs.step()


def warm_cosine(library: Any, optimizer: Any) -> list[Any]:
    return [
        library.LinearLR(optimizer, 0.1, total_iters=4),
        library.CosineAnnealingLR(optimizer, T_max=7, eta_min=0.01),
    ]


def exponential_steps(library: Any, optimizer: Any) -> list[Any]:
    return [library.ExponentialLR(optimizer, 0.9), library.MultiStepLR(optimizer, [3, 8], 0.1)]


def constant_polynomial(library: Any, optimizer: Any) -> list[Any]:
    return [
        library.PolynomialLR(optimizer, 9, 2.0),
        library.ConstantLR(optimizer, 0.3, 3),
        library.StepLR(optimizer, 5, 0.5),
    ]


def multiplied(library: Any, optimizer: Any) -> list[Any]:
    return [library.MultiplicativeLR(optimizer, lambda _: 0.95), library.StepLR(optimizer, 2, 0.5)]


def set_last(library: Any, optimizer: Any) -> list[Any]:
    return [library.ExponentialLR(optimizer, 0.9), library.LambdaLR(optimizer, lambda epoch: 1 / (1 + epoch))]


@pytest.mark.parametrize("make", [warm_cosine, exponential_steps, constant_polynomial, multiplied, set_last])
@pytest.mark.parametrize("touched", [False, True], ids=["", "touched"])
def test_schedules_side_by_side_are_pytorchs_and_resume(make: Any, touched: bool) -> None:
    torch = pytest.importorskip("torch")
    optimizer = make_optimizer()
    ours = make(lr_scheduler, optimizer)
    reference = torch.optim.SGD([{"params": [torch.zeros(1)], "lr": 0.5}, {"params": [torch.zeros(1)]}], lr=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = make(torch.optim.lr_scheduler, reference)
        for step in range(EPOCHS):
            if step == 6:
                optimizer = make_optimizer()
                resumed = make(lr_scheduler, optimizer)
                for one, other in zip(resumed, ours, strict=True):
                    one.load_state_dict(other.state_dict())
                ours = resumed
            if touched and step in (2, 9):  # the program itself changes the rates
                for group in (*optimizer.param_groups, *reference.param_groups):
                    group["lr"] *= 0.7
            rates = [group["lr"] for group in optimizer.param_groups]
            assert rates == pytest.approx([group["lr"] for group in reference.param_groups], rel=1e-9), step
            for schedule in (*ours, *theirs):
                schedule.step()


def test_groups_may_be_added_later() -> None:
    torch = pytest.importorskip("torch")
    optimizer = make_optimizer()
    reference = torch.optim.SGD([{"params": [torch.zeros(1)], "lr": 0.5}, {"params": [torch.zeros(1)]}], lr=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = lr_scheduler.StepLR(optimizer, 2, 0.5)
        theirs = torch.optim.lr_scheduler.StepLR(reference, 2, 0.5)
        for step in range(8):
            if step == 3:
                optimizer.add_param_group({"params": [vk.zeros(1)], "lr": 0.3})
                reference.add_param_group({"params": [torch.zeros(1)], "lr": 0.3})
            ours.step()
            theirs.step()
            rates = [group["lr"] for group in optimizer.param_groups]
            assert rates == pytest.approx([group["lr"] for group in reference.param_groups], rel=1e-9)
    schedule = lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch)
    optimizer.add_param_group({"params": [vk.zeros(1)], "lr": 0.3})
    schedule.step()
    assert optimizer.param_groups[3]["lr"] == 0.3  # a schedule that sets rates ignores groups added later


def test_cycles_move_the_first_beta_of_adam_and_resume() -> None:
    torch = pytest.importorskip("torch")
    for name, options in (
        ("OneCycleLR", {"max_lr": 0.1, "total_steps": 12}),
        ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.1}),
    ):
        optimizer, reference = optim.AdamW([vk.zeros(1)]), torch.optim.AdamW([torch.zeros(1)])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ours = getattr(lr_scheduler, name)(optimizer, **options)
            theirs = getattr(torch.optim.lr_scheduler, name)(reference, **options)
            for step in range(11):
                assert optimizer.param_groups[0]["betas"] == pytest.approx(reference.param_groups[0]["betas"], rel=1e-9)
                ours.step()
                theirs.step()
                if step == 4:
                    optimizer = optim.AdamW([vk.zeros(1)])
                    resumed = getattr(lr_scheduler, name)(optimizer, **options)
                    resumed.load_state_dict(ours.state_dict())
                    ours = resumed
    with pytest.raises(ArgumentError, match="moves momentum, which Adagrad hasn't"):
        lr_scheduler.OneCycleLR(optim.Adagrad([vk.zeros(1)]), 0.1, 3)


def test_restarts_take_parts_of_epochs() -> None:
    torch = pytest.importorskip("torch")
    ours = lr_scheduler.CosineAnnealingWarmRestarts(make_optimizer(), 2, 2)
    reference = torch.optim.SGD([{"params": [torch.zeros(1)], "lr": 0.5}, {"params": [torch.zeros(1)]}], lr=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(reference, 2, 2)
        for part in range(30):
            ours.step(part / 4)
            theirs.step(part / 4)
            assert ours.get_last_lr() == pytest.approx(theirs.get_last_lr(), rel=1e-9)


def test_factors_are_asked_for_once_per_step() -> None:
    asked = []
    schedule = lr_scheduler.MultiplicativeLR(make_optimizer(), lambda epoch: asked.append(epoch) or 0.9)  # type: ignore[func-returns-value]
    for _ in range(50):
        schedule.step()
    assert asked == [epoch for epoch in range(1, 51) for _ in range(2)]


def test_schedules_that_do_not_fit_are_refused() -> None:
    optimizer = make_optimizer()
    one = lr_scheduler.ExponentialLR(optimizer, 0.9)
    with pytest.raises(ArgumentError, match="1 schedules need 0 rising milestones"):
        lr_scheduler.SequentialLR(optimizer, [one], [3])
    with pytest.raises(ArgumentError, match="belongs to another optimiser"):
        lr_scheduler.ChainedScheduler([one], make_optimizer())
    schedule = lr_scheduler.OneCycleLR(optimizer, 0.1, 2)
    schedule.step()
    schedule.step()
    with pytest.raises(ArgumentError, match="was made for 2 steps"):
        schedule.step()
