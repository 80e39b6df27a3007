"""Stateful property test of a device: allocations, launches in streams, copies, graphs and events, in random order."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

import vkjit as vk
from tests.selection import examples

SIZES = st.sampled_from([1, 3, 64, 1000, 40_000])


@vk.kernel(over="y")
def mix(x: vk.In[vk.i64, "N"], y: vk.InOut[vk.i64, "N"], a: vk.i64):
    i = vk.global_id(0)
    y[i] = (x[i] * 31 + y[i] * 17 + a) % 1000003


class Held:
    """A tensor and its expected values."""

    def __init__(self, tensor: Any, values: np.ndarray[Any, Any]) -> None:
        self.tensor = tensor
        self.values = values


class Runtime(RuleBasedStateMachine):
    """State machine with NumPy as its model: the values of every tensor and the steps of every graph."""

    device: Any = None
    held = Bundle("held")
    graphs = Bundle("graphs")

    @initialize()
    def begin(self) -> None:
        self.using = vk.use_device(self.device)
        self.using.__enter__()
        self.streams = [vk.current_stream(), vk.Stream(self.device), vk.Stream(self.device, priority=1)]
        self.events: list[Any] = []
        gc.collect()
        vk.synchronize()
        self.count = vk.memory_stats()["count"]

    @rule(target=held, size=SIZES, value=st.integers(0, 1000))
    def make(self, size: int, value: int) -> Held:
        return Held(vk.full((size,), value, dtype=vk.i64), np.full(size, value))

    @rule(target=held, one=held, number=st.integers(0, 2))
    def copy(self, one: Held, number: int) -> Held:
        with self.streams[number]:
            return Held(one.tensor.clone(), one.values.copy())

    @rule(one=held, other=held, a=st.integers(0, 9), number=st.integers(0, 2))
    def launch(self, one: Held, other: Held, a: int, number: int) -> None:
        size = min(len(one.values), len(other.values))
        if one is other:
            return
        with self.streams[number]:
            mix(one.tensor[:size], other.tensor[:size], a)
        other.values[:size] = (one.values[:size] * 31 + other.values[:size] * 17 + a) % 1000003

    @rule(one=held)
    def read(self, one: Held) -> None:
        assert np.array_equal(one.tensor.numpy(), one.values)

    @rule(one=held, value=st.integers(0, 99))
    def write(self, one: Held, value: int) -> None:
        one.values[:] = value
        one.tensor.copy_(vk.tensor(one.values))

    @rule(one=consumes(held))
    def drop(self, one: Held) -> None:
        del one.tensor

    @rule(target=graphs, one=held, other=held, steps=st.lists(st.integers(0, 9), min_size=1, max_size=4))
    def capture(self, one: Held, other: Held, steps: list[int]) -> Any:
        size = min(len(one.values), len(other.values))
        with vk.capture(self.device) as graph:
            for a in steps:
                if one is not other:
                    mix(one.tensor[:size], other.tensor[:size], a)
        return graph, one, other, size, steps

    @rule(made=graphs, number=st.integers(0, 2))
    def replay(self, made: Any, number: int) -> None:
        graph, one, other, size, steps = made
        with self.streams[number]:
            graph.replay()
        if one is not other:
            for a in steps:
                other.values[:size] = (one.values[:size] * 31 + other.values[:size] * 17 + a) % 1000003

    @rule(made=consumes(graphs))
    def close(self, made: Any) -> None:
        made[0].close()

    @rule(number=st.integers(0, 2))
    def record(self, number: int) -> None:
        self.events.append(self.streams[number].record_event())

    @rule(number=st.integers(0, 2))
    def wait(self, number: int) -> None:
        if self.events:
            self.events.pop().wait(self.streams[number])

    @rule()
    def flush(self) -> None:
        vk.synchronize()
        vk.empty_cache()

    @invariant()
    def statistics_agree(self) -> None:
        if self.device is not None and hasattr(self, "count"):
            stats = vk.memory_stats()
            assert 0 <= stats["allocated"] <= stats["reserved"] and stats["allocated"] <= stats["peak"]

    def teardown(self) -> None:
        if hasattr(self, "using"):
            vk.synchronize()
            self.using.__exit__(None, None, None)


@pytest.mark.parametrize("steps", [30])
def test_any_order_of_calls_gives_what_numpy_gives(device: Any, steps: int) -> None:
    class OnDevice(Runtime):
        pass

    OnDevice.device = device
    gc.collect()
    gc.freeze()  # keeps objects of earlier tests out of each garbage collection
    run_state_machine_as_test(
        OnDevice,
        settings=settings(
            max_examples=examples(25),
            stateful_step_count=steps,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    gc.unfreeze()
    gc.collect()
    device.synchronize()
