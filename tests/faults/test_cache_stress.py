"""A short run of `cache_stress.py`, and a test that it detects wrong results."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.faults import cache_stress


@pytest.fixture
def devices() -> list[str]:
    found = cache_stress.present_devices()
    if not found:
        pytest.skip("no device here caches code: neither a Vulkan driver nor llvmlite is installed")
    return found


@pytest.mark.slow
def test_damage_kills_and_edits_change_no_result(devices: list[str]) -> None:
    report = cache_stress.stress(seconds=4, workers=2, kernels=8, devices=devices, seed=random.randrange(1000))
    assert not report.failures, report.text()
    assert report.launches >= 16 * len(devices), report.text()  # at least those of the final workers


def test_a_wrong_element_is_noticed(devices: list[str], tmp_path: Path) -> None:
    cache_stress.write_sources(tmp_path, kernels=2)
    source = tmp_path / "stress_kernels.py"
    source.write_text(source.read_text().replace("y[i] = total", "y[i] = total + (1 if i == 99 else 0)"))
    report = cache_stress.Report()
    cache_stress.Worker(tmp_path, devices[-1], 0, rounds=1).finish(report)
    assert len(report.failures) == 1
    assert "ended with 3" in report.failures[0] and '"wrong"' in report.failures[0]
