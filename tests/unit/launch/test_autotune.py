# mypy: disable-error-code="arg-type, call-arg, index, misc, no-untyped-call, no-untyped-def, operator, valid-type"
"""Tests of autotuning: measuring, rejected candidates, records on disk, and the choices of later launches."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit.autotune import problem as problems, storage
from vkjit.autotune.problem import Candidate, Problem, tune
from vkjit.autotune.storage import Record, Row
from vkjit.cli.main import main
from vkjit.errors import ArgumentError, FeatureError
from vkjit.stdlib.matmul import tuning, tuning_lookup
from vkjit.stdlib.matmul.variants import variants_of


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Use an empty cache for the test."""
    monkeypatch.setenv("VKJIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("VKJIT_TUNE", raising=False)
    monkeypatch.delenv(storage.SHIPPED_VARIABLE, raising=False)
    yield
    with vk.use_device("interpreter") as device:
        tuning_lookup.invalidate(device)


COUNTS: Any = vk.tune(1, 2, 4)


@vk.kernel(groups=lambda y, EACH: vk.cdiv(y.shape[0], 32 * EACH), local=32)
def scale(x: vk.In[vk.f32, "N"], y: vk.InOut[vk.f32, "N"], a: vk.f32, EACH: vk.Const[int] = COUNTS):
    for e in vk.unroll(EACH):
        i = vk.group_id(0) * (32 * EACH) + e * 32 + vk.local_id(0)
        y.put(i, x.get(i) * a + y.get(i))


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], 64), local=vk.tune(64, 4096, 32))
def squares(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    for i in range(vk.group_id(0) * 64 + vk.local_id(0), vk.group_id(0) * 64 + 64, vk.local_size(0)):
        y.put(i, x.get(i) * x.get(i))


class Clock:
    """Fake launches that take the time given in `costs` for their choice."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, costs: dict[str, float]) -> None:
        self.costs, self.now = costs, 0.0
        self.launched: list[str] = []
        monkeypatch.setattr("vkjit.autotune.problem.time.perf_counter", lambda: self.now)
        self.last = ""

    def launch(self, choice: str) -> None:
        if choice == "broken":
            raise FeatureError("it needs what nobody has")
        self.now += self.costs[choice]
        self.last = choice
        self.launched.append(choice)

    def results(self) -> list[Any]:
        return [np.array([2.0 if self.last == "wrong" else 1.0, np.nan])]

    def problem(self, words: str = "default fast slow wrong broken", **more: Any) -> Problem:
        candidates = [Candidate(word, word) for word in words.split()]
        device = vk.device("interpreter")
        return Problem("p", "key", device, candidates, self.launch, self.results, 1e-3, **more)


COSTS = {"default": 1e-3, "fast": 4e-4, "slow": 1.0, "wrong": 1e-6, "near": 9.9e-4}


def test_the_fastest_right_candidate_is_best(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, COSTS)
    record = tune(clock.problem(), 1e9)
    assert [row.verdict for row in record.rows] == ["ok", "ok", "ok", "wrong", "failed"]
    assert record.complete
    assert record.best is not None
    assert record.best.choice == "fast"
    assert record.gain == pytest.approx(2.5)
    assert record.rows[-1].why == "it needs what nobody has"
    assert clock.launched.count("wrong") == 1  # not timed


def test_a_default_that_fails_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, COSTS)
    first = tune(clock.problem("broken default fast wrong"), 1e-9)  # goes on until one works
    assert [row.verdict for row in first.rows] == ["failed", "ok"]
    record = tune(clock.problem("broken default fast wrong"), 1e9)
    assert [row.verdict for row in record.rows] == ["failed", "ok", "ok", "wrong"]
    assert record.complete and record.best is not None
    assert record.best.choice == "fast"
    assert tune(clock.problem("broken default fast wrong"), 1e9) == record


def test_it_is_an_error_if_all_candidates_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Clock(monkeypatch, COSTS).problem("broken default")
    broken = dataclasses.replace(made, candidates=[made.candidates[0], Candidate("broken", "broken too")])
    for _ in range(2):  # failures aren't remembered
        with pytest.raises(vk.VkjitError, match="all candidates of p fail; the default: it needs what nobody has"):
            tune(broken, 1e9)


def test_noise_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    record = tune(Clock(monkeypatch, COSTS).problem("default near"), 1e9)
    assert record.best == record.rows[0]
    assert record.gain == 1.0


def test_what_was_measured_is_not_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, COSTS)
    first = tune(clock.problem(), 1e-9)  # the budget suffices for the default only
    assert [row.choice for row in first.rows] == ["default"]
    assert not first.complete
    clock.launched.clear()
    rest = tune(clock.problem(), 1e9)
    assert rest.complete
    assert len(rest.rows) == 5
    clock.launched.clear()
    assert tune(clock.problem(), 1e9) == rest
    assert not clock.launched


def test_candidates_without_hope_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, COSTS)
    made = clock.problem("default fast")
    late = [made.candidates[0], dataclasses.replace(made.candidates[1], cost=float("inf"))]
    record = tune(dataclasses.replace(made, candidates=late), 1e9)
    assert [row.verdict for row in record.rows] == ["ok", "dropped"]
    assert "fast" not in clock.launched


@pytest.mark.parametrize(
    ("found", "expected", "tolerance", "same"),
    [
        ([1.0, 2.0], [1.0, 2.0 + 1e-6], 1e-5, True),
        ([1.0, 2.0], [1.0, 2.1], 1e-5, False),
        ([np.nan, 2.0], [np.nan, 2.0], 1e-5, True),
        ([np.nan, 2.0], [1.0, 2.0], 1e-5, False),
        ([np.inf, 2.0], [-np.inf, 2.0], 1e-5, False),
        ([1, 2], [1, 2], 1e-5, True),
        ([1, 2], [1, 3], 1e5, False),
        ([0.0], [-0.0], 0.0, False),
        ([], [], 1e-5, True),
    ],
)
def test_results_are_compared(found: Any, expected: Any, tolerance: float, same: bool) -> None:
    assert problems._agree([np.array(found)], [np.array(expected)], tolerance) is same
    assert not problems._agree([np.array(found)], [], tolerance)
    assert not problems._agree([np.array(found)], [np.array([*expected, 1])], tolerance)


# -- on disk

RECORD = Record("p", "key", "device", "driver 1", (Row("a", 2e-3, "ok"), Row("b", 1e-3, "ok")), complete=True)


def test_records_are_kept_for_one_device_and_driver() -> None:
    assert storage.load("key", "device", "driver 1") is None
    assert storage.store(RECORD)
    assert storage.load("key", "device", "driver 1") == RECORD
    for other in (("key 2", "device", "driver 1"), ("key", "other", "driver 1"), ("key", "device", "driver 2")):
        assert storage.load(*other) is None
    assert list(storage.stored()) == [RECORD]
    assert storage.clear() == 1
    assert storage.load("key", "device", "driver 1") is None


def test_damaged_records_count_as_none(tmp_path: Path) -> None:
    storage.store(RECORD)
    (path,) = (tmp_path / "cache" / "tuned").glob("*.json")
    whole = path.read_bytes()
    for damaged in (
        whole[:-20],
        whole.replace(b"0.001", b"0.0001"),
        b"",
        b"[]",
        whole.replace(b'"format": 1', b'"format": 0'),
    ):
        path.write_bytes(damaged)
        assert storage.load("key", "device", "driver 1") is None
        assert not list(storage.stored())
    path.write_bytes(whole)
    assert storage.load("key", "device", "driver 1") == RECORD


def test_results_are_shipped_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    storage.store(RECORD)
    path = tmp_path / "shipped.json"
    assert main(["tune", "--export", str(path)]) == 0
    assert main(["tune", "--clear"]) == 0
    assert storage.load("key", "device", "driver 1") is None
    monkeypatch.setenv(storage.SHIPPED_VARIABLE, str(path))
    assert storage.load("key", "device", "driver 1") == RECORD
    monkeypatch.delenv(storage.SHIPPED_VARIABLE)
    assert main(["tune", "--import", str(path)]) == 0
    assert storage.load("key", "device", "driver 1") == RECORD
    path.write_text("{}")
    assert main(["tune", "--import", str(path)]) == 1
    assert "can't be read as tuned results" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[1, 2]", "found a list, expected an object with 'format' and a list 'records'"),
        ("3", "found a number, expected an object"),
        ("null", "found null, expected an object"),
        ("{}", "found an object with nothing in it, expected"),
        ('{"format": 1}', "found an object with 'format': a number, expected"),
        ('{"records": []}', "found an object with 'records': a list, expected"),
        ('{"format": 1, "records": {}}', "with 'format': a number, 'records': an object, expected"),
        ('{"format": 7, "records": []}', "results of version 7, expected 1: export them anew"),
        ('{"format": 1, "records": [1, {"record": []}, null]}', "none of its 3 tuned results is whole"),
        ("[" * 100_000, "can't be read as tuned results"),
        ("not JSON", "can't be read as tuned results"),
        (None, "can't be read as tuned results"),
    ],
)
def test_files_that_hold_no_results(
    content: str | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "shipped.json"
    if content is not None:
        path.write_text(content)
    monkeypatch.setenv(storage.SHIPPED_VARIABLE, str(path))
    with pytest.raises(vk.ArgumentError) as caught:
        storage.load("key", "device", "driver 1")
    assert str(caught.value).startswith(f"VKJIT_TUNED: {path}") and said in str(caught.value)


def test_shipped_records_with_names_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "shipped.json"
    storage.export(path, [RECORD, dataclasses.replace(RECORD, device=["a", "list"])])
    assert storage.read_exported(path) == [RECORD]


def test_the_command_shows_what_was_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "--show"]) == 0
    assert "nothing has been tuned yet" in capsys.readouterr().out
    storage.store(RECORD.with_row(Row("c", None, "wrong", "other results than the default's")))
    assert main(["tune", "--show"]) == 0
    shown = capsys.readouterr().out
    assert "2000.0 us  a  <- default" in shown
    assert "1000.0 us  b  <- best" in shown
    assert "wrong  c  other results" in shown
    assert main(["tune", "--show", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["rows"][1]["choice"] == "b"


# -- kernels


def test_a_kernel_is_tuned_on_scratch_memory_and_launched_with_the_best() -> None:
    x, y = np.arange(1000, dtype=np.float32), np.ones(1000, np.float32)
    with vk.use_device("interpreter") as device:
        record = scale.tune(x, y, 2.0)
        assert (y == 1).all()
        assert [row.choice for row in record.rows] == ["EACH=1", "EACH=2", "EACH=4"]
        assert {row.verdict for row in record.rows} == {"ok"}
        faster = dataclasses.replace(record, rows=(*record.rows[:2], dataclasses.replace(record.rows[2], seconds=1e-9)))
        storage.store(faster)
        scale.tuned.clear()
        scale(x, y, 2.0)
        assert np.array_equal(y, 2 * x + 1)
        (settings,) = scale.tuned.values()
        assert settings.constants == {"EACH": 4}
        tensors = vk.tensor(x, device=device), vk.tensor(y, device=device)
        assert scale.tune(*tensors, 2.0) == faster  # the tuned settings apply to the same types and shapes
        scale(x, y, 2.0, EACH=2)  # explicit constants aren't tuned
        assert np.array_equal(y, 4 * x + 1)


def test_local_sizes_are_tuned_and_what_does_not_fit_is_dropped() -> None:
    x = np.arange(100, dtype=np.float32)
    with vk.use_device("interpreter"):
        for arguments, verdict in (((x, np.zeros(100, np.float32)), "dropped"), ((x,), "failed")):
            record = squares.tune(*arguments)
            found = {row.choice: row.verdict for row in record.rows}
            assert found == {"local=64": "ok", "local=32": "ok", "local=4096": verdict}
        assert np.array_equal(squares(x), x * x)


SUMMANDS: Any = vk.tune(1, 2)


@vk.kernel(over="y")
def offset(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"], A: vk.Const[int] = SUMMANDS):
    y[vk.global_id(0)] = x[vk.global_id(0)] + vk.f32(A)


def _offsets(pairs: list[tuple[Any, Any]]) -> list[float]:
    """Launch with each pair of arrays, and return what was added."""
    for x, y in pairs:
        offset(x, y)
    return [float(y[0].item()) for _, y in pairs]


def test_inspecting_a_tuned_kernel_launches_nothing() -> None:
    with vk.use_device("interpreter"):
        x, y = np.ones(256, np.float32), np.zeros(256, np.float32)
        scale.tune(x, y, 2.0, budget=20)
        before = y.copy()
        inspection = vk.inspect(scale, x, y, 2.0)
        np.testing.assert_array_equal(y, before)
        chosen = scale.tuned_settings((x, y, 2.0), {})
        assert chosen is not None
        expected = vk.inspect(scale, x, y, 2.0, **chosen.constants)
        assert [stage.text for stage in inspection.stages] == [stage.text for stage in expected.stages]
        with pytest.raises(ArgumentError):
            scale(x, y, 2.0, 1, 7)


def test_settings_of_one_shape_are_not_those_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    with vk.use_device("interpreter") as device:
        pairs = [(vk.zeros(n, device=device), vk.zeros(n, device=device)) for n in (64, 128)]
        record = Record.__new__(Record)
        monkeypatch.setattr(Record, "best", Row("A=2", 1e-9, "ok"))
        monkeypatch.setattr(storage, "load", lambda key, *_: record if "(128,)" in key else None)
        assert _offsets(pairs * 5) == [1, 2] * 5


def test_a_call_from_before_tuning_uses_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with vk.use_device("interpreter") as device:
        pairs = [(vk.zeros(32, device=device), vk.zeros(32, device=device))]
        assert _offsets(pairs * 3) == [1] * 3
        record = offset.tune(*pairs[0])
        monkeypatch.setattr(Record, "best", Row("A=2", 1e-9, "ok"))
        monkeypatch.setattr(storage, "load", lambda *_: record)
        assert _offsets(pairs * 3) == [2] * 3


def test_tuning_is_off_where_the_environment_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    with vk.use_device("interpreter"):
        record = scale.tune(x, y, 2.0)
        storage.store(
            dataclasses.replace(record, rows=(record.rows[0], dataclasses.replace(record.rows[1], seconds=1e-9)))
        )
        scale.tuned.clear()
        monkeypatch.setenv("VKJIT_TUNE", "0")
        scale(x, y, 2.0)
        assert not scale.tuned
        monkeypatch.delenv("VKJIT_TUNE")
        scale(x, y, 2.0)
        assert next(iter(scale.tuned.values())).constants == {"EACH": 2}


def test_a_call_that_leaves_nothing_open_is_told_how() -> None:
    x = np.zeros(8, np.float32)
    with vk.use_device("interpreter"), pytest.raises(ArgumentError, match="leaves nothing to tune in this call"):
        scale.tune(x, x.copy(), 2.0, EACH=1)


# -- matrix products


def test_every_variant_of_a_product_gives_the_same() -> None:
    from vkjit.stdlib.registry import forcing_class

    rng = np.random.default_rng(0)
    with vk.use_device("interpreter") as device, forcing_class("gpu"):
        a, b = (
            vk.tensor(rng.standard_normal((1, 64, 64)).astype(np.float32), dtype=vk.f16, device=device)
            for _ in range(2)
        )
        want = np.matmul(a.to(vk.f32).numpy(), b.to(vk.f32).numpy())
        found = variants_of(a._array, b._array, vk.zeros((1, 64, 64), dtype=vk.f16)._array, vk.f32)
        assert len({words for words, _ in found}) == len(found) >= 10
        for number in (0, 1, len(found) - 1):
            c = vk.zeros((1, 64, 64), dtype=vk.f16)
            variants_of(a._array, b._array, c._array, vk.f32)[number][1]()
            assert np.abs(c.to(vk.f32).numpy() - want).max() < 0.05


def test_products_take_the_variant_that_was_found_best(monkeypatch: pytest.MonkeyPatch) -> None:
    with vk.use_device("interpreter") as device:
        a, b = vk.ones((8, 8)), vk.ones((8, 8))
        launched: list[str] = []
        variants = [("by rule", lambda: launched.append("by rule")), ("other", lambda: launched.append("other"))]
        monkeypatch.setattr("vkjit.stdlib.matmul.dispatch.variants_of", lambda *_: variants)
        key = tuning_lookup.product_key(*(x.reshape(1, 8, 8)._array for x in (a, b, a)))
        rows = (Row("by rule", 2.0, "ok"), Row("other", 1.0, "ok"))
        storage.store(Record("p", key, device.name, device.caps.driver, rows, complete=True))
        tuning_lookup.invalidate(device)
        vk.matmul(a, b)
        assert launched == ["other"]
        monkeypatch.setenv("VKJIT_TUNE", "0")
        tuning_lookup.invalidate(device)
        assert (vk.matmul(a, b).numpy() == 8).all()
    assert tuning.tune_product(device, 8, vk.f32, 1.0) is None  # the device has only one implementation


SCRIPT = """
import sys, time
import numpy as np
import vkjit as vk
from vkjit.autotune.problem import Candidate, Problem, tune
device = vk.device("interpreter")
def launch(choice):
    time.sleep(0.05)
    print(choice, flush=True)
problem = Problem("p", "killed", device, [Candidate(i, str(i)) for i in range(40)], launch, lambda: [np.zeros(1)])
tune(problem, 1e9)
"""


@pytest.mark.skipif(os.name == "nt", reason="there is no SIGKILL")
def test_a_run_that_is_killed_goes_on_where_it_stood(tmp_path: Path) -> None:
    environment = dict(os.environ)
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip() == "3":
                break
        time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
    device = vk.device("interpreter")
    record = storage.load("killed", device.name, device.caps.driver)
    assert record is not None
    assert [row.choice for row in record.rows] == ["0", "1", "2"]
    assert not record.complete
    launched: list[int] = []
    candidates = [Candidate(i, str(i)) for i in range(5)]
    rest = tune(Problem("p", "killed", device, candidates, launched.append, lambda: [np.zeros(1)]), 1e9)
    assert rest.complete
    assert [row.choice for row in rest.rows] == ["0", "1", "2", "3", "4"]
    assert 1 not in launched  # already measured; 0 runs again for its results, to which others are compared
    assert not list((tmp_path / "cache" / "tuned").glob("*.tmp"))
