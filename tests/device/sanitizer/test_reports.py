"""Sanitizer reports on every executor: every kind of fault, the lines reported, no reports for correct kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkjit as vk
from tests.device.sanitizer import kernels
from vkjit.launch.plan import LaunchPlan

N = 2 * kernels.SIZE


def arguments(kernel: Any, device: Any) -> dict[str, Any]:
    """Return arguments: 128 floats as x, and zeroed outputs of the same length or shorter."""
    x = np.arange(N, dtype=np.float32)
    given: dict[str, Any] = {"device": device}
    names = [p.name for p in kernel.spec.params]
    outputs = {p.name: p.dtype.storage for p in kernel.spec.params if p.name != "x"}
    few = {"counts_past_end": N - 1, "forgets_atomics": 3, "groups_write_one": 3, "counts_in_out": 3}
    for name in names:
        given[name] = x if name == "x" else np.zeros(few.get(kernel.name, N), outputs[name])
    if kernel.spec.over is None:
        given["groups"] = 2
    return given


def check(kernel: Any, device: Any, kind: str, checks: Any = None, **changed: Any) -> vk.SanitizerReport:
    """Sanitize a kernel and return its only report, after checking the kind and the line."""
    found = vk.testing.sanitize(kernel, checks=checks, **{**arguments(kernel, device), **changed})
    assert [report.kind for report in found] == [kind], "\n".join(map(str, found))
    (report,) = found
    here, there = kernels.line_of(kernel, "here"), kernels.line_of(kernel, "there")
    if report.other is None:
        assert report.line == here
    else:
        assert {report.line, report.other.line} == ({here, there} if there else {here})
        assert report.other.invocation != report.invocation
        assert report.other.loc.file == report.file == kernels.__file__
        assert f"line {here}" in report.message or f"{here} | " in report.message
    assert "^" in report.message
    return report


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("reads_past_end", (128, 128)),
        ("writes_past_end", (128, 128)),
        ("leaves_shared", None),
        ("leaves_local", (4, 4)),
        ("counts_past_end", (127, 127)),
        ("leaves_vectors", (3, 3)),
    ],
)
def test_out_of_bounds(device: Any, name: str, values: tuple[int, int] | None) -> None:
    report = check(getattr(kernels, name), device, "out_of_bounds")
    assert values is None or report.values == values
    assert report.invocation is not None
    group, local = report.invocation.group_id[0], report.invocation.local_id[0]
    assert report.invocation.global_id == (group * kernels.SIZE + local, 0, 0)


@pytest.mark.parametrize("name", ["reverses_unordered", "sums_unordered", "all_write_one", "clears_unordered"])
def test_races_in_shared_memory(device: Any, name: str) -> None:
    report = check(getattr(kernels, name), device, "race_shared")
    assert report.invocation is not None and report.other is not None
    assert report.invocation.group_id == report.other.invocation.group_id


@pytest.mark.parametrize("name", ["shifts_in_place", "forgets_atomics", "groups_write_one", "barrier_between_groups"])
def test_races_in_global_memory(device: Any, name: str) -> None:
    check(getattr(kernels, name), device, "race_global")


def test_races_between_arrays_that_overlap(device: Any) -> None:
    memory = np.zeros(N + 1, np.float32)
    found = vk.testing.sanitize(kernels.reads_neighbour, memory[1:], memory[:-1], device=device)
    assert [report.kind for report in found] == ["race_global"]
    assert found[0].line == kernels.line_of(kernels.reads_neighbour, "here")
    assert vk.testing.sanitize(kernels.reads_neighbour, memory, memory, device=device) == []


@pytest.mark.parametrize("name", ["reads_fresh_shared", "reads_fresh_local", "adds_to_out", "counts_in_out"])
def test_uninitialised_reads(device: Any, name: str) -> None:
    found = vk.testing.sanitize(
        getattr(kernels, name), **arguments(getattr(kernels, name), device), checks="uninitialised"
    )
    assert [report.kind for report in found] == ["uninitialised_read"]
    assert found[0].line == kernels.line_of(getattr(kernels, name), "here")


@pytest.mark.parametrize(
    ("name", "checks", "kind"),
    [
        ("breaks_promise", None, "divergent_barrier"),
        ("wraps", "overflow", "integer_overflow"),
        ("divides_by_zero", "division", "division_by_zero"),
        ("bears_nan", "nan", "nan_birth"),
        ("never_ends", "loops", "loop_limit"),
    ],
)
def test_other_kinds(device: Any, name: str, checks: str | None, kind: str) -> None:
    report = check(getattr(kernels, name), device, kind, checks)
    assert report.invocation is not None


def test_numbers_of_arithmetic_are_told(device: Any) -> None:
    assert check(kernels.bears_nan, device, "nan_birth", "nan").message.count("sqrt of -") == 1
    assert check(kernels.wraps, device, "integer_overflow", "overflow").values[1] == 40_000_000
    assert check(kernels.divides_by_zero, device, "division_by_zero", ("division",)).values == (7,)


@pytest.mark.parametrize(
    "name",
    ["reverses", "sums", "all_write_alike", "counts", "sums_row", "transposes", "keeps_promise", "last_group_sums"],
)
def test_right_kernels(device: Any, name: str) -> None:
    kernel = getattr(kernels, name)
    given = arguments(kernel, device)
    if name == "transposes":
        given |= {"x": np.ones((14, 10), np.float32), "y": np.zeros((10, 14), np.float32), "groups": (2, 2)}
    if name == "last_group_sums":
        given |= {"parts": np.zeros(2, np.float32), "done": np.zeros(1, np.int32), "y": np.zeros(1, np.float32)}
    assert vk.testing.sanitize(kernel, **given, checks="all") == []


def test_arrays_hold_what_the_launch_left(device: Any) -> None:
    given = arguments(kernels.reads_past_end, device)
    vk.testing.sanitize(kernels.reads_past_end, **given)
    assert (given["y"] == [*range(1, N), 0]).all()


def test_a_sanitized_launch_raises(device: Any) -> None:
    kernel = vk.kernel(local=kernels.SIZE, sanitize=True)(kernels.reverses_unordered.spec.fn)
    x = np.arange(N, dtype=np.float32)
    with pytest.raises(vk.SanitizerError, match="race_shared") as caught:
        kernel[2](x, np.zeros_like(x))
    assert [report.kind for report in caught.value.reports] == ["race_shared"]
    assert caught.value.loc.line == caught.value.reports[0].line
    right = vk.kernel(local=kernels.SIZE, sanitize="races,nan")(kernels.reverses.spec.fn)
    assert right[2](x)[0] == kernels.SIZE - 1


def test_the_environment_turns_it_on(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VKJIT_SANITIZE", "1")
    x = vk.tensor(np.arange(N, dtype=np.float32), device=device)
    kernel = vk.kernel(local=kernels.SIZE)(kernels.shifts_in_place.spec.fn)
    with pytest.raises(vk.SanitizerError, match="race_global"):
        kernel[2](x)
    monkeypatch.setenv("VKJIT_SANITIZE", "bounds")
    kernel[2](x)
    monkeypatch.setenv("VKJIT_SANITIZE", "rases")
    with pytest.raises(vk.ArgumentError, match="rases"):
        kernel[2](x)


def test_bytes_around_written_arrays(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    launched = LaunchPlan.launch

    def scribbling(byte: int) -> None:
        def launch(plan: LaunchPlan, groups: Any, values: Any) -> None:
            launched(plan, groups, values)
            device.write(values[1].buffer, values[1].offset + byte, np.full(4, 7, np.uint8))

        monkeypatch.setattr(LaunchPlan, "launch", launch)

    x = np.arange(N, dtype=np.float32)
    y = np.zeros(2 * N, np.float32)[::2]
    given = {"x": x, "y": y, "groups": 2, "device": device}
    assert vk.testing.sanitize(kernels.reverses, **given) == []
    scribbling(4 * 70)
    assert vk.testing.sanitize(kernels.reverses, **given) == []  # element access
    scribbling(4 * 71)
    (report,) = vk.testing.sanitize(kernels.reverses, **given)
    assert report.kind == "write_outside" and report.values == (4, 4 * 71)
    assert report.file == kernels.__file__
