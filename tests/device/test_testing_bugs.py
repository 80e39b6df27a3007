"""Property tests find the mistake of each buggy kernel, its line, the smallest input, and nothing in its twin."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import vkjit as vk
from tests.device.buggy_kernels import PAIRS, Pair

SEED = 20


def lines_with(kernel: Any, text: str) -> list[int]:
    lines, first = inspect.getsourcelines(kernel.spec.fn)
    return [first + i for i, line in enumerate(lines) if text in line]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair.sort}-{pair.bad.name}")
def test_mistake_is_found(device: Any, pair: Pair) -> None:
    with pytest.raises(vk.testing.CheckFailure) as caught:
        vk.testing.check_kernel(pair.bad, pair.reference, devices=["interpreter", device], seed=SEED, **pair.settings)
    failure = caught.value
    assert set(lines_with(pair.bad, pair.line)) & {loc.line for loc in failure.lines}, failure
    assert all(loc.file == __file__.replace("test_testing_bugs", "buggy_kernels") for loc in failure.lines)
    if pair.minimal is not None:
        assert failure.dims == pair.minimal, failure


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair.sort}-{pair.good.name}")
def test_nothing_is_found_in_its_twin(device: Any, pair: Pair) -> None:
    result = vk.testing.check_kernel(
        pair.good, pair.reference, devices=["interpreter", device], max_examples=40, seed=SEED, **pair.settings
    )
    assert result.examples >= 40


@pytest.mark.parametrize("pair", [PAIRS[1], PAIRS[4], PAIRS[8], PAIRS[9], PAIRS[12]], ids=lambda pair: pair.bad.name)
def test_script_reproduces_the_failure(pair: Pair, tmp_path: Path) -> None:
    with pytest.raises(vk.testing.CheckFailure) as caught:
        vk.testing.check_kernel(
            pair.bad, pair.reference, devices="interpreter", seed=SEED, script=tmp_path / "failure.py", **pair.settings
        )
    text = (tmp_path / "failure.py").read_text(encoding="utf-8")
    assert text == caught.value.script
    done = subprocess.run(
        [sys.executable, str(tmp_path / "failure.py")], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode != 0 and ("AssertionError" in done.stderr or "BoundsError" in done.stderr), done.stderr
    mended = tmp_path / "mended.py"
    mended.write_text(text.replace(f"module.{pair.bad.name}", f"module.{pair.good.name}").replace(
        f"import {pair.bad.name} as", f"import {pair.good.name} as"), encoding="utf-8")  # fmt: skip
    done = subprocess.run([sys.executable, str(mended)], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_seed_makes_the_search_repeatable() -> None:
    found = []
    for _ in range(2):
        with pytest.raises(vk.testing.CheckFailure) as caught:
            vk.testing.check_kernel(PAIRS[4].bad, PAIRS[4].reference, devices="interpreter", seed=3)
        found.append(str(caught.value))
    assert found[0] == found[1]
