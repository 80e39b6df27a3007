"""Settings of blocks belong to the asyncio task or thread that entered them: recording, default device, stream, autocast."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any, NamedTuple

import numpy as np
import pytest

import vkjit as vk
from tests.faults.thread_stress import another_device
from vkjit.tensor.autograd import tape


@vk.kernel(over="y")
def double(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    y[vk.global_id(0)] = x[vk.global_id(0)] * 2


class Seen(NamedTuple):
    """The settings that code sees."""

    recorded: bool
    device: str
    stream: vk.Stream
    product: Any
    anomaly: bool


def seen(device: Any) -> Seen:
    x = vk.ones(2, 2, device=device, requires_grad=True)
    return Seen(
        (x * 2).requires_grad, vk.ones(1).device.name, vk.current_stream(device),
        (x.detach() @ x.detach()).dtype, vk.autograd.is_anomaly_enabled(),
    )  # fmt: skip


@pytest.fixture
def usual(device: Any) -> Iterator[Seen]:
    with vk.use_device(device):
        before = seen(device)
        yield before
        assert seen(device) == before


def other_than(device: Any) -> Any:
    return vk.device("cpu" if device.caps.kind == "interpreter" else "interpreter")


def blocks(device: Any, stream: vk.Stream) -> AbstractContextManager[Any]:
    stack = ExitStack()
    for block in (
        vk.no_grad(), vk.use_device(other_than(device)), stream, vk.autocast(vk.bf16), vk.autograd.detect_anomaly()
    ):  # fmt: skip
        stack.enter_context(block)
    return stack


@pytest.mark.parametrize("how", ["use_device", "set_default_device"])
def test_a_closed_default_device_is_not_replaced(device: Any, how: str) -> None:
    own = another_device(device.name)

    def close_and_use() -> None:
        x = vk.ones(3)
        assert x.device is own
        own.close()
        uses: list[Any] = [
            lambda: vk.ones(3), lambda: vk.tensor(np.ones(3)), vk.device, vk.Stream, vk.synchronize, vk.memory_stats,
            lambda: double(np.ones(3, np.float32), np.ones(3, np.float32)), lambda: vk.Event().record(),
            lambda: vk.capture().__enter__(), lambda: x + 1, lambda: contextvars.copy_context().run(vk.ones, 3),
        ]  # fmt: skip
        for use in uses:
            with pytest.raises(vk.DeviceError, match="was closed"):
                use()
        with vk.use_device(device):
            assert vk.ones(3).device is device

    if how == "use_device":
        with vk.use_device(own):
            close_and_use()
    else:
        before = vk.set_default_device(own)
        try:
            contextvars.Context().run(close_and_use)
        finally:
            vk.set_default_device(before)
    assert not vk.ones(3).device.closed


def test_tasks_see_their_own_blocks_and_those_of_their_creator(device: Any, usual: Seen) -> None:
    stream = vk.Stream(device)
    inside = Seen(False, other_than(device).name, stream, vk.bf16, True)

    async def after(event: asyncio.Event) -> Seen:
        await event.wait()
        return seen(device)

    async def main() -> None:
        event = asyncio.Event()
        sibling = asyncio.create_task(after(event))
        await asyncio.sleep(0)
        with blocks(device, stream):
            event.set()
            assert await sibling == usual
            assert seen(device) == inside
            assert await asyncio.create_task(after(event)) == inside
            assert await asyncio.to_thread(seen, device) == inside
        assert seen(device) == usual

    asyncio.run(main())


def test_a_block_object_is_shared_by_tasks(device: Any, usual: Seen) -> None:
    stream, shared = vk.Stream(device), (vk.no_grad(), vk.use_device(other_than(device)), vk.autocast(vk.bf16))

    async def work(before: float, within: float) -> Seen:
        await asyncio.sleep(before)
        with ExitStack() as stack:
            for block in (*shared, stream):
                stack.enter_context(block)
            await asyncio.sleep(within)
            found = seen(device)
        assert seen(device) == usual
        return found

    async def main() -> list[Seen]:
        return list(await asyncio.gather(work(0, 0.02), work(0.005, 0.005), work(0.01, 0.02)))

    assert asyncio.run(main()) == [Seen(False, other_than(device).name, stream, vk.bf16, False)] * 3


def test_threads_begin_without_blocks(device: Any, usual: Seen) -> None:
    stream, found = vk.Stream(device), []
    with vk.no_grad(), stream:
        thread = threading.Thread(target=lambda: found.append(seen(device)))
        thread.start()
        thread.join()
    assert (found[0].recorded, found[0].stream) == (True, usual.stream)


def test_blocks_that_a_thread_leaves_open_end_with_it(
    device: Any, usual: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later threads get the same ident: they aren't captured."""
    unraisable: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", unraisable.append)
    held: list[Any] = []
    x, total, found = vk.ones(4), vk.zeros(4), []

    def leave_open() -> None:
        held.append(vk.capture(device))
        held[-1].__enter__()
        blocks(device, vk.Stream(device))

    def work() -> None:
        with vk.use_device(device):
            found.append(seen(device))
            total.add_(x)

    try:
        for count in range(1, 6):
            for target in (leave_open, work):
                thread = threading.Thread(target=target)
                thread.start()
                thread.join()
            assert total.tolist() == [count] * 4
    finally:
        for capture in held:
            capture.__exit__(None, None, None)
    assert found == [usual._replace(device=device.name)] * 5
    gc.collect()  # a context and the tokens that its blocks hold refer to each other
    assert not unraisable and not device.observers and tape.NodeClass is tape.Node


def test_decorated_coroutines_and_generators_run_in_the_block(device: Any, usual: Seen) -> None:
    @vk.no_grad()
    async def coroutine() -> bool:
        await asyncio.sleep(0)
        return seen(device).recorded

    @vk.no_grad()
    async def items() -> AsyncIterator[bool]:
        for _ in range(2):
            await asyncio.sleep(0)
            yield seen(device).recorded

    @vk.autocast(vk.bf16)
    @vk.no_grad()
    def generator() -> Any:
        sent = yield seen(device)[::3]
        try:
            yield sent, *seen(device)[::3]
        except KeyError:
            yield seen(device)[::3]
        return seen(device)[::3]

    async def main() -> None:
        assert await coroutine() is False
        async for inside in items():
            assert (inside, seen(device).recorded) == (False, True)

    asyncio.run(main())
    inside, iterator = (False, vk.bf16), generator()
    assert next(iterator) == inside and seen(device) == usual
    assert iterator.send(7) == (7, *inside)
    assert iterator.throw(KeyError()) == inside and seen(device) == usual
    with pytest.raises(StopIteration) as ended:
        next(iterator)
    assert ended.value.value == inside


def test_a_block_is_left_where_it_was_entered(device: Any, usual: Seen) -> None:
    for block in (vk.no_grad(), vk.use_device(other_than(device)), vk.autocast(vk.bf16), vk.Stream(device)):
        with block:
            within = seen(device)
            with pytest.raises(vk.ArgumentError, match="leave it in the thread and asyncio task that entered it"):
                contextvars.Context().run(block.__exit__, None, None, None)
            assert seen(device) == within
    for block in (vk.no_grad(), vk.use_device(other_than(device)), vk.autocast(vk.bf16), vk.Stream(device)):

        def leave_in_copy(block: Any = block) -> None:
            with block, pytest.raises(vk.ArgumentError, match="leave it in the thread and asyncio task"):
                contextvars.copy_context().run(block.__exit__, None, None, None)

        contextvars.copy_context().run(leave_in_copy)


def test_launches_of_tasks_in_streams_of_their_own(device: Any, usual: Seen) -> None:
    async def work(number: int) -> Any:
        x = vk.zeros(100)
        for _ in range(150):  # until machine code launches
            with vk.Stream(device) if number % 2 else vk.no_grad():
                await asyncio.sleep(0)
                x = x + number
        return x.tolist()

    async def main() -> Any:
        return await asyncio.gather(*map(work, range(1, 5)))

    assert asyncio.run(main()) == [[150.0 * number] * 100 for number in range(1, 5)]
