"""Short runs of the stress tests; `python tests/faults/stress.py` is the long form."""

from __future__ import annotations

from typing import Any

from tests.faults import stress, thread_stress


def test_processes_end_cleanly(device: Any) -> None:
    assert stress.exits(device.name, 3, 2) == []


def test_threads_get_their_own_results(device: Any) -> None:
    assert stress.threads(device.name, 8, 60) == []


def test_random_actions_of_threads(device: Any) -> None:
    assert thread_stress.stress(device.name, 4, 4, max_growth=2) == []  # caches still fill in so short a time


def test_objects_in_a_module_outlive_the_runtime_silently(device: Any) -> None:
    end = next(end for end in stress.ENDS if ".kept =" in end)
    end += "\nvkjit.dtypes.kept = vkjit.dtypes.kept, graph, event, stream, x"
    assert stress.run_program(stress.HEAD.format(device=device.name) + end, 0) is None
