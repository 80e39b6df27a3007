"""Property tests on a sample of `tests/buggy`: with default settings, they find each bug, its line and the smallest
input, and report nothing for the correct twins. `python -m tests.buggy` runs all of them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import vkjit as vk
from tests.buggy.catalogue import ALL, every
from tests.buggy.pair import Pair, marked_lines

pytestmark = pytest.mark.usefixtures("long_repair_search")

SEED = 20
SAMPLE = [pairs[0] for pairs in ALL.values()] + [ALL["index_overflow"][2], ALL["nan"][1], ALL["aliasing"][4]]
BY_NAME = {pair.name: pair for _, pair in every()}
SCRIPTS = ["unguarded", "max_from_zero", "writes_positive", "adds_reversed", "reversed_tile"]


def failure_of(pair: Pair, **settings: Any) -> vk.testing.CheckFailure:
    with pytest.raises(vk.testing.CheckFailure) as caught:
        vk.testing.check_kernel(pair.bad, pair.reference, seed=SEED, **pair.inputs, **settings)
    return caught.value


def test_there_are_enough_pairs_of_each_class() -> None:
    assert len(every()) >= 60
    assert all(len(pairs) >= 5 for name, pairs in ALL.items() if name != "arithmetic")
    assert all(len(marked_lines(pair.bad)) == 1 and not marked_lines(pair.good) for _, pair in every())


@pytest.mark.parametrize("pair", SAMPLE, ids=lambda pair: pair.name)
def test_mistake_is_found(device: Any, pair: Pair) -> None:
    failure = failure_of(pair, devices=["interpreter", device])
    assert set(marked_lines(pair.bad)) & {loc.line for loc in failure.lines}, failure
    assert len({loc.line for loc in failure.lines}) <= 4, failure
    if pair.minimal is not None:
        assert failure.dims == pair.minimal, failure


@pytest.mark.parametrize("pair", SAMPLE, ids=lambda pair: pair.name)
def test_nothing_is_found_in_its_twin(device: Any, pair: Pair) -> None:
    result = vk.testing.check_kernel(
        pair.good, pair.reference, devices=["interpreter", device], max_examples=20, seed=SEED, **pair.inputs
    )
    assert result.examples >= 20


@pytest.mark.parametrize("name", SCRIPTS)
def test_script_reproduces_the_failure(name: str, tmp_path: Path) -> None:
    pair = BY_NAME[name]
    failure = failure_of(pair, devices="interpreter", script=tmp_path / "failure.py")
    text = (tmp_path / "failure.py").read_text(encoding="utf-8")
    assert text == failure.script
    done = subprocess.run(
        [sys.executable, str(tmp_path / "failure.py")], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode != 0 and ("AssertionError" in done.stderr or "BoundsError" in done.stderr), done.stderr
    mended = tmp_path / "mended.py"
    mended.write_text(text.replace(f"import {name} as", f"import {pair.good.name} as"), encoding="utf-8")
    done = subprocess.run([sys.executable, str(mended)], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_seed_makes_the_search_repeatable() -> None:
    pair = BY_NAME["only_hundred"]
    found = [str(failure_of(pair, devices="interpreter")) for _ in range(2)]
    assert found[0] == found[1]


def test_a_change_that_mends_the_kernel_is_named() -> None:
    failure = failure_of(BY_NAME["product_from_zero"], devices="interpreter")
    assert failure.mend is not None and failure.mend.edit.before == "0" and failure.mend.edit.after == "1"
    assert "all inputs that were tried come out right" in str(failure)


def test_the_line_that_loses_a_nan_is_named() -> None:
    failure = failure_of(BY_NAME["row_max"], devices="interpreter")
    assert marked_lines(BY_NAME["row_max"].bad)[0] in {loc.line for loc in failure.lines}
    assert "NaN is taken for a number here" in str(failure)
