"""A training step as a captured graph (forward, backward, optimizer step), replayed with new data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit import nn, optim

STEPS = 4


def model_of(device: Any) -> Any:
    vk.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 8, device=device), nn.ReLU(), nn.Linear(8, 3, device=device))


def batches(device: Any) -> list[tuple[Any, Any]]:
    random = np.random.default_rng(1)
    return [
        (
            vk.tensor(random.standard_normal((6, 5), dtype=np.float32), device=device),
            vk.tensor(random.integers(0, 3, 6), device=device),
        )
        for _ in range(STEPS)
    ]


def make(kind: str, model: Any) -> Any:
    if kind == "sgd":
        return optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    if kind == "lamb":
        return optim.LAMB(model.parameters(), lr=0.05)
    return optim.Adam(model.parameters(), lr=0.05, weight_decay=0.01)


def step(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach()


@pytest.mark.parametrize("kind", ["sgd", "adam", "lamb"])
def test_replays_are_steps(device: Any, kind: str) -> None:
    data = batches(device)
    with vk.use_device(device):
        eager, captured = model_of(device), model_of(device)
        first, second = make(kind, eager), make(kind, captured)
        expected = []
        for number, (x, y) in enumerate(data):
            first.param_groups[0]["lr"] *= 0.5 if number == 2 else 1
            expected.append(step(eager, first, x, y).item())
        found = [step(captured, second, *data[0]).item()]  # creates the optimizer state and compiles
        second.capturable = True
        x, y = data[1]
        with vk.capture(device, x=x, y=y) as graph:
            loss = step(captured, second, x, y)
        for number, (x, y) in enumerate(data[1:], start=1):
            second.param_groups[0]["lr"] *= 0.5 if number == 2 else 1
            graph.replay(x=x, y=y, **second.advance(graph))
            found.append(loss.item())
    assert found == expected
    for ours, theirs in zip(captured.parameters(), eager.parameters(), strict=True):
        np.testing.assert_array_equal(ours.detach().numpy(), theirs.detach().numpy())
    assert second.state[next(captured.parameters())].get("step") == first.state[next(eager.parameters())].get("step")


def test_each_group_of_a_captured_lamb_step_has_its_own_learning_rate(device: Any) -> None:
    data = batches(device)
    with vk.use_device(device):
        eager, captured = model_of(device), model_of(device)
        first, second = (
            optim.LAMB([{"params": m[0].parameters()}, {"params": m[2].parameters(), "lr": 0.3}], lr=0.01)
            for m in (eager, captured)
        )
        step(eager, first, *data[0])
        step(captured, second, *data[0])
        second.capturable = True
        x, y = data[1]
        with vk.capture(device, x=x, y=y) as graph:
            step(captured, second, x, y)
        for number, (x, y) in enumerate(data[1:]):
            first.param_groups[1]["lr"] = second.param_groups[1]["lr"] = 0.3 / (number + 1)
            step(eager, first, x, y)
            graph.replay(x=x, y=y, **second.advance(graph))
    for ours, theirs in zip(captured.parameters(), eager.parameters(), strict=True):
        np.testing.assert_array_equal(ours.detach().numpy(), theirs.detach().numpy())


def test_what_a_graph_cannot_repeat_is_an_error(device: Any) -> None:
    (x, y), *_ = batches(device)
    with vk.use_device(device):
        model = model_of(device)
        optimizer = make("adam", model)
        with pytest.raises(vk.ArgumentError, match="without a captured step"):
            optimizer.advance(None)
        step(model, optimizer, x, y)
        with pytest.raises(vk.ArgumentError, match="capturable"), vk.capture(device):
            step(model, optimizer, x, y)
        parameters = list(model.parameters())
        optimizer = optim.Adam([{"params": parameters[:2]}, {"params": parameters[2:], "lr": 0.5}])
        step(model, optimizer, x, y)
        optimizer.capturable = True
        with pytest.raises(vk.ArgumentError, match="different sets of numbers"), vk.capture(device):
            step(model, optimizer, x, y)


@pytest.mark.parametrize("kind", ["sgd", "adam", "lamb"])
def test_the_first_replay_follows_options_changed_after_the_capture(device: Any, kind: str) -> None:
    (x, y), *_ = batches(device)
    with vk.use_device(device):
        eager, captured = model_of(device), model_of(device)
        first, second = make(kind, eager), make(kind, captured)
        step(eager, first, x, y)
        step(captured, second, x, y)
        second.capturable = True
        with vk.capture(device, x=x, y=y) as graph:
            step(captured, second, x, y)
        for optimizer in (first, second):
            optimizer.param_groups[0]["lr"] *= 3
        graph.replay(**second.advance(graph))
        step(eager, first, x, y)
    for ours, theirs in zip(captured.parameters(), eager.parameters(), strict=True):
        np.testing.assert_array_equal(ours.detach().numpy(), theirs.detach().numpy())
    assert second.state[next(captured.parameters())].get("step") == first.state[next(eager.parameters())].get("step")


def test_replays_count_the_batches_of_a_norm(device: Any) -> None:
    norm = nn.BatchNorm1d(3, device=device)
    x = vk.tensor(np.arange(12, dtype=np.float32).reshape(4, 3), device=device)
    norm(x)
    with vk.capture(device, x=x) as graph:
        norm(x)
    for _ in range(3):
        graph.replay()
    norm(x)
    assert norm.num_batches_tracked is not None and norm.num_batches_tracked.item() == 5
    norm.momentum = None
    with pytest.raises(vk.ArgumentError, match="counts batches on the host"), vk.capture(device, x=x):
        norm(x)


def test_state_is_made_by_an_ordinary_step(device: Any) -> None:
    data = batches(device)
    with vk.use_device(device):
        model = model_of(device)
        optimizer = make("adam", model)
        optimizer.capturable = True
        with pytest.raises(vk.ArgumentError, match="ordinary step before"), vk.capture(device):
            step(model, optimizer, *data[0])
        assert optimizer.state == {}
        step(model, optimizer, *data[0])
        assert {state["step"] for state in optimizer.state.values()} == {1}


def test_state_is_not_moved_inside_a_graph(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    data = batches(device)
    monkeypatch.setattr("vkjit.stdlib.optim.optimizers.prefers_multi_tensor", lambda *_: True)
    with vk.use_device(device):
        model = model_of(device)
        optimizer = make("adam", model)
        step(model, optimizer, *data[0])
        optimizer.load_state_dict(optimizer.state_dict())  # copies, no longer contiguous
        optimizer.capturable = True
        with pytest.raises(vk.ArgumentError, match="would move the optimiser's state"), vk.capture(device):
            step(model, optimizer, *data[0])
        assert {state["step"] for state in optimizer.state.values()} == {1}


class _Transformer(nn.Module):
    """A causal language model of one layer, which makes its positions and its mask as it runs."""

    def __init__(self, device: Any) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(11, 8, device=device), nn.Embedding(6, 8, device=device)
        self.dropout = nn.Dropout(0.1)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True, norm_first=True, device=device)
        self.head = nn.Linear(8, 11, device=device)

    def forward(self, tokens: Any) -> Any:
        length = tokens.shape[1]
        x = self.dropout(self.tokens(tokens) + self.positions(vk.arange(length)))
        return self.head(self.layer(x, nn.Transformer.generate_square_subsequent_mask(length)))


def test_a_step_of_a_transformer(device: Any) -> None:
    """The replays draw other masks of dropout than the captured block, those of eager steps."""
    random = np.random.default_rng(0)
    data = [tuple(vk.tensor(random.integers(0, 11, (2, 6)), device=device) for _ in range(2)) for _ in range(STEPS)]

    def build() -> tuple[Any, Any]:
        vk.manual_seed(1)
        model = _Transformer(device)
        vk.manual_seed(2)
        return model, optim.AdamW(model.parameters(), lr=0.01)

    def train(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x).reshape(-1, 11), y.reshape(-1), label_smoothing=0.1)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    with vk.use_device(device):
        eager, first = build()
        expected = [train(eager, first, *batch).item() for batch in data]
        captured, second = build()
        found = [train(captured, second, *data[0]).item()]
        second.capturable = True
        x, y = data[1]
        with vk.capture(x=x, y=y) as graph:
            loss = train(captured, second, x, y)
        for x, y in data[1:]:
            graph.replay(x=x, y=y, **second.advance(graph))
            found.append(loss.item())
    assert found == expected
    for ours, theirs in zip(captured.parameters(), eager.parameters(), strict=True):
        np.testing.assert_array_equal(ours.detach().numpy(), theirs.detach().numpy())
