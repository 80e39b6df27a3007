"""A mixed workload on one Vulkan device that covers the calls that can fail in a driver and checks its own results.

It allocates small and large buffers, uploads, launches in chains over several submissions (direct and indirect argument
blocks), fills, copies, reads a kernel's report, measures time, reads back, and returns memory to the driver. Raises
AssertionError for a wrong result.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.device.runtime import runtime_kernels as kernels
from tests.device.runtime.runtime_kernels import BLOCK, download, groups, upload
from vkjit import errors
from vkjit.runtime.observers import LaunchRequest

COUNT, STEPS = 5000, 30


def run(device: Any) -> None:
    first = np.arange(COUNT, dtype=np.uint32)
    current, three = upload(device, first), upload(device, np.full(COUNT, 3, np.uint32))
    add, indirect, report = device.load(kernels.add()), device.load(kernels.add(True)), device.load(kernels.report())
    for step in range(STEPS):
        target = device.allocate(4 * COUNT)
        block = BLOCK.pack(current.address, three.address, target.address, COUNT)
        device.launch(
            LaunchRequest(indirect if step % 3 == 0 else add, groups(COUNT), block, (current, three), (target,))
        )
        current = target
    large = device.allocate(9 << 20)
    device.fill(large, 0, 1 << 20, 7)
    device.copy(current, 0, large, 1 << 20, 4 * COUNT)
    device.launch(LaunchRequest(report, groups(64), BLOCK.pack(three.address, three.address, 0, 64), (), ()))
    try:
        device.synchronize()
        raise AssertionError("the kernel's report got lost")
    except errors.BoundsError:
        pass
    assert np.array_equal(download(device, current, np.uint32), first + 3 * STEPS)
    copied = np.empty(4 * COUNT, np.uint8)
    device.read(large, 1 << 20, copied)
    assert np.array_equal(copied.view(np.uint32), first + 3 * STEPS)
    device.time_begin()
    block = BLOCK.pack(current.address, three.address, large.address, COUNT)
    device.launch(LaunchRequest(add, groups(COUNT), block, (current, three), (large,)))
    assert device.time_end() > 0
    assert device.memory_stats()["count"] >= 3
    large.close()
    device.empty_cache()
    device.flush()
    device.synchronize()
