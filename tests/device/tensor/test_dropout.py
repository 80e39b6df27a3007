"""Dropout's seeds: those of the stream, in replayed calls, captured graphs and backward passes."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from tests.stdlib_properties.philox import philox
from vkjit.backends.cpu.runtime.device import CpuDevice
from vkjit.nn import functional as F
from vkjit.runtime.device import Device
from vkjit.tensor.op_cache.replay import Replay
from vkjit.tensor.ops import random

SIZE = 30


@pytest.fixture(autouse=True)
def on(device: Device) -> Iterator[None]:
    with vk.use_device(device):
        yield


def kept(seed: int, counter: int) -> Any:
    """Return which elements the dropout that draws this counter value of a stream keeps."""
    key = int(np.random.Philox(key=seed, counter=[counter, 0, 0, 1]).random_raw()) >> 1
    words = philox(key, -(-SIZE // 4)).reshape(-1)[:SIZE]
    return (words >> np.uint64(8)).astype(np.float32) * np.float32(2.0**-24) >= 0.25


def ones(**options: Any) -> Any:
    return vk.tensor(np.ones(SIZE, np.float32), **options)


def test_each_call_takes_the_next_seed(device: Device) -> None:
    x = ones()
    for start in (0, random._SEEDS - 3, 5 * random._SEEDS):  # within a block of seeds, and across two
        vk.set_rng_state((17, start))
        for counter in range(start, start + 6):
            np.testing.assert_array_equal(F.dropout(x, 0.25).numpy() != 0, kept(17, counter))
    assert vk.get_rng_state() == (17, 5 * random._SEEDS + 6)
    if device.caps.kind != "interpreter":
        assert any(key[0] == "dropout" and isinstance(entry, Replay) for key, entry in device.dispatch_cache.items())


def test_single_seeds_are_those_of_blocks() -> None:
    vk.set_rng_state((3, random._SEEDS - 2))
    assert [random.next_seed() for _ in range(4)] == [
        int(np.random.Philox(key=3, counter=[c, 0, 0, 1]).random_raw()) >> 1
        for c in range(random._SEEDS - 2, random._SEEDS + 2)
    ]
    vk.set_rng_state((3, 9))
    seed = random.next_seed_tensor(vk.device(None)).numpy()
    vk.set_rng_state((3, 9))
    assert seed.item() == random.next_seed()


def test_gradients_use_the_mask_of_their_call() -> None:
    vk.manual_seed(5)
    for counter in range(0, 12, 3):
        x = ones(requires_grad=True)
        results = [F.dropout(x, 0.25) for _ in range(3)]
        for place, y in enumerate(results):
            (grad,) = vk.autograd.grad(y.sum(), [x])
            mask = kept(5, counter + place)
            np.testing.assert_array_equal(y.detach().numpy() != 0, mask)
            np.testing.assert_array_equal(grad.numpy(), mask * np.float32(1 / 0.75))


@pytest.mark.parametrize("uploaded", [True, False])
def test_each_replay_draws_the_next_mask(device: Device, uploaded: bool) -> None:
    x = ones()
    vk.manual_seed(11)
    F.dropout(x, 0.25)
    if not uploaded:
        vk.set_rng_state((11, 7 * random._SEEDS))
    _, counter = vk.get_rng_state()
    with vk.capture(device) as graph:
        y = F.dropout(x, 0.25)
    assert vk.get_rng_state() == (11, counter)  # nothing has been drawn
    for number in range(2):
        graph.replay()
        np.testing.assert_array_equal(y.numpy() != 0, kept(11, counter + number))
    np.testing.assert_array_equal(F.dropout(x, 0.25).numpy() != 0, kept(11, counter + 2))
    vk.manual_seed(4)
    graph.replay()
    np.testing.assert_array_equal(y.numpy() != 0, kept(4, 0))


def test_seeds_keep_no_device_alive() -> None:
    cpu = CpuDevice(0)
    random.next_seed_tensor(cpu)
    alive = weakref.ref(cpu)
    cpu.close()
    del cpu
    gc.collect()
    assert alive() is None
