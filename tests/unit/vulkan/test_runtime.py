"""Tests of runtime parts that need no driver: errors, quirks, handles, memory types, features, reports."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.device.runtime import runtime_kernels as kernels
from vkjit import errors
from vkjit.backends.vulkan.runtime import instance, loader, quirks
from vkjit.backends.vulkan.runtime.gpu_clock import CudaClock
from vkjit.backends.vulkan.runtime.memory import suballocator
from vkjit.backends.vulkan.runtime.pipeline import pipeline
from vkjit.runtime import handles
from vkjit.runtime.device import DeviceCaps
from vkjit.runtime.device_info import version_of
from vkjit.runtime.reports import error_of_report

CAPS = DeviceCaps(
    kind="cpu",
    subgroup_sizes=(8,),
    max_invocations=1024,
    max_local_size=(1024, 1024, 64),
    max_groups=(65535, 65535, 65535),
    shared_bytes=32768,
    push_constant_bytes=128,
    dtypes=frozenset({"f32"}),
    features=frozenset({"float16"}),
)


class _NoLibrary:
    """cffi object whose `dlopen` always fails."""

    def dlopen(self, name: str) -> Any:
        raise OSError(name)


@pytest.mark.parametrize(
    ("platform", "expected"),
    [
        ("linux", "sudo apt-get install mesa-vulkan-drivers libvulkan1"),
        ("win32", "driver from the GPU's vendor"),
        ("darwin", "brew install molten-vk"),
        ("freebsd14", "sudo apt-get install mesa-vulkan-drivers libvulkan1"),
    ],
)
def test_without_a_loader_the_error_says_what_to_install(
    platform: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    with pytest.raises(errors.DriverNotFoundError) as caught:
        loader._open_loader(_NoLibrary())
    assert expected in str(caught.value)
    assert loader.LOADER_NAMES.get(platform, loader.LOADER_NAMES["linux"])[0] in str(caught.value)


def test_without_the_package_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "vulkan._vulkancache", raising=False)
    monkeypatch.setattr(loader.importlib.util, "find_spec", lambda _name: None)  # type: ignore[attr-defined]
    with pytest.raises(errors.DriverNotFoundError, match="pip install vulkan"):
        loader._declarations()


def test_importing_the_runtime_opens_no_driver() -> None:
    code = (
        "import sys, vkjit.backends.vulkan.runtime.enumeration, vkjit.backends.vulkan.runtime.device\n"
        "from vkjit.backends.vulkan.runtime import loader\n"
        "assert not loader._loaded and 'vulkan' not in sys.modules and 'cffi' not in sys.modules, 'opened'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("VK_ERROR_OUT_OF_HOST_MEMORY", errors.OutOfMemoryError),
        ("VK_ERROR_OUT_OF_DEVICE_MEMORY", errors.OutOfMemoryError),
        ("VK_ERROR_DEVICE_LOST", errors.DeviceLostError),
        ("VK_ERROR_EXTENSION_NOT_PRESENT", errors.FeatureError),
        ("VK_ERROR_INITIALIZATION_FAILED", errors.DeviceError),
    ],
)
def test_failures_become_typed_exceptions(name: str, kind: type[Exception]) -> None:
    ffi = loader._declarations()
    vulkan = loader.Vulkan(ffi, _Library())
    with pytest.raises(kind, match=f"vkSomething failed with {name} \\(kernel k\\)") as caught:
        vulkan.check(vulkan.constant(name), "vkSomething", "kernel k")
    assert type(caught.value) is kind
    assert vulkan.check(0, "vkSomething") == 0
    assert vulkan.result_name(-987654) == "VkResult -987654"


class _Library:
    """Vulkan loader that has no functions."""

    def vkGetInstanceProcAddr(self, owner: Any, name: bytes) -> int:
        return 0


def test_a_missing_function_is_an_error_of_the_driver() -> None:
    vulkan = loader.Vulkan(loader._declarations(), _Library())
    with pytest.raises(errors.DeviceError, match="no function vkCreateInstance"):
        vulkan.functions.vkCreateInstance  # noqa: B018  the attribute access fails


def test_structures_keep_what_they_point_to_alive() -> None:
    vulkan = loader.Vulkan(loader._declarations(), _Library())
    info = vulkan.struct("VkApplicationInfo", pEngineName=vulkan.text("x" * 100))
    others = [vulkan.text("y" * 100) for _ in range(50)]
    assert vulkan.string(info.pEngineName) == "x" * 100
    assert len(others) == 50


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("Mesa 22.3.6 (LLVM 15.0.6)", (22, 3, 6)),
        ("580.65.06", (580, 65, 6)),
        ("Mesa 25.1.0-devel (git-abc)", (25, 1, 0)),
        ("a driver", ()),
    ],
)
def test_driver_versions(text: str, version: tuple[int, ...]) -> None:
    assert version_of(text) == version


def test_quirks_of_llvmpipe() -> None:
    found = quirks.quirks_of(quirks.MESA_LLVMPIPE, (22, 3, 6))
    assert found.loop_cap == 65535
    assert found.names == {
        "subgroup_broadcast_first_float",
        "shuffle_up_constant",
        "literal_float_zero",
        "far_whole_numbers",
        "minimum_trip_counts",
        "recomputed_results",
        "slow_subgroup_arithmetic",
        "scalar_loads",
        "widened_compare",
        "ordered_atomics",
        "shallow_nesting",
        "slow_timestamps",
    }


def test_quirk_rows_apply_to_their_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = (
        quirks._Row(99, (2, 0), (3, 0), frozenset({"a"}), 1000),
        quirks._Row(99, (2, 5), None, frozenset({"b"}), 500),
    )
    monkeypatch.setattr(quirks, "_ROWS", rows)
    assert quirks.quirks_of(99, (1, 9)) == quirks.Quirks()
    assert quirks.quirks_of(99, (2, 1)) == quirks.Quirks(frozenset({"a"}), 1000)
    assert quirks.quirks_of(99, (2, 5)) == quirks.Quirks(frozenset({"a", "b"}), 500)
    assert quirks.quirks_of(99, (3, 0)) == quirks.Quirks(frozenset({"b"}), 500)
    assert quirks.quirks_of(99, ()) == quirks.Quirks(frozenset({"a", "b"}), 500)
    assert quirks.quirks_of(1, (2, 5)) == quirks.Quirks()


def test_handles_close_once_and_are_counted() -> None:
    destroyed: list[int] = []
    first = handles.Handle("test kind", 1, destroyed.append)
    second = handles.Handle("test kind", 2, destroyed.append)
    assert handles.live_counts()["test kind"] == 2
    first.close()
    first.close()
    assert destroyed == [1]
    assert first.closed and not second.closed
    second.close()
    assert "test kind" not in handles.live_counts()


def test_exit_closes_once_in_reverse_and_silently() -> None:
    code = (
        "from vkjit.runtime import handles\n"
        "class Thing:\n"
        "    def __init__(self, name):\n"
        "        self.name = name\n"
        "        handles.close_at_exit(self)\n"
        "    def close(self):\n"
        "        print(self.name)\n"
        "        raise RuntimeError('no')\n"
        "kept = [Thing('first'), Thing('second')]\n"
        "Thing('gone')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["second", "first"]
    assert done.stderr == ""


LOCAL, VISIBLE, COHERENT, CACHED = (
    suballocator.DEVICE_LOCAL,
    suballocator.HOST_VISIBLE,
    suballocator.HOST_COHERENT,
    suballocator.HOST_CACHED,
)
HOST = VISIBLE | COHERENT
GIB = 1 << 30


@pytest.mark.parametrize(
    ("types", "sizes", "unified", "expected"),
    [
        pytest.param([LOCAL | HOST | CACHED], [2 * GIB], True, (0, 0, 0, 0), id="cpu"),
        pytest.param(
            [0, LOCAL, HOST, HOST | CACHED, LOCAL | HOST],
            [64 * GIB, 80 * GIB, 64 * GIB, 64 * GIB, 80 * GIB],
            False,
            (4, 2, 3, 4),
            id="discrete, all memory in the window",
        ),
        pytest.param(
            [LOCAL, HOST, HOST | CACHED, LOCAL | HOST],
            [8 * GIB, 16 * GIB, 16 * GIB, GIB // 4],
            False,
            (0, 1, 2, 3),
            id="discrete, small window",
        ),
        pytest.param([LOCAL, HOST], [8 * GIB, 16 * GIB], False, (0, 1, 1, 1), id="discrete, nothing cached"),
        pytest.param(
            [LOCAL | HOST, LOCAL | HOST | CACHED], [4 * GIB, 4 * GIB], True, (1, 1, 1, 1), id="integrated, cached"
        ),
        pytest.param(
            [LOCAL | HOST, HOST | CACHED], [4 * GIB, 4 * GIB], True, (0, 0, 1, 0), id="integrated, cached elsewhere"
        ),
    ],
)
def test_choice_of_memory_types(
    types: list[int], sizes: list[int], unified: bool, expected: tuple[int, int, int, int]
) -> None:
    chosen = suballocator._choose(types, sizes, unified)
    if not unified and not types[chosen[0].type_index] & VISIBLE:
        assert not chosen[0].mapped
    assert tuple(kind.type_index for kind in chosen) == expected


def test_no_host_visible_memory_is_an_error() -> None:
    with pytest.raises(errors.DeviceError, match="host-visible"):
        suballocator._choose([LOCAL], [GIB], False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": frozenset({"float64", "float16"})}, "lacks: float64"),
        ({"block_size": 200}, "pushes 200 bytes"),
        ({"shared_bytes": 40000}, "40000 bytes of shared memory, this device has 32768"),
        ({"local_size": (2048, 1, 1)}, "2048 x 1 x 1"),
        ({"local_size": (64, 64, 1)}, "1024 in all"),
        ({"subgroup_size": 32}, "subgroups of 32; this device has 8"),
    ],
)
def test_artifacts_that_a_device_cannot_run(change: dict[str, Any], message: str) -> None:
    artifact = kernels.add()
    pipeline.check_artifact(artifact, CAPS)
    with pytest.raises(errors.FeatureError, match=message):
        pipeline.check_artifact(replace(artifact, **change), CAPS)


def test_large_blocks_may_be_indirect() -> None:
    pipeline.check_artifact(replace(kernels.add(), block_size=5000, indirect=True), CAPS)


@pytest.mark.parametrize("code", [b"", b"\x03\x02\x23\x07", b"\x07\x23\x02\x03" + bytes(40), None])
def test_code_that_is_no_spirv(code: Any) -> None:
    with pytest.raises(errors.DeviceError, match="no SPIR-V"):
        pipeline.check_artifact(replace(kernels.add(), code=code), CAPS)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("loop_limit", errors.LoopLimitError),
        ("bounds", errors.BoundsError),
        ("assert", errors.KernelAssertionError),
        ("zero_division", errors.KernelZeroDivisionError),
    ],
)
def test_reports_become_errors(kind: str, expected: type[errors.KernelError]) -> None:
    words = np.zeros(64, np.uint32)
    words[:4] = 2, 3, 4, 5
    words[4:8].view(np.int64)[:] = -7, 1 << 40
    site = replace(kernels.SITE, kind=kind, message="found {0} and {1}")
    error = error_of_report(replace(kernels.report(), sites=(kernels.SITE, site)), words)
    assert type(error) is expected
    assert error.message == f"found -7 and {1 << 40}"
    assert (error.kernel, error.loc, error.invocation) == ("report", site.loc, (3, 4, 5))


def test_reported_values_are_shown_as_their_kind() -> None:
    words = np.zeros(64, np.uint32)
    words[0] = 1
    words[4:12].view(np.uint64)[:] = 2**64 - 1, 1, 2**64 - 1, np.float64(0.5).view(np.uint64)
    site = replace(kernels.SITE, message="{} {} {:#x} {}")
    artifact = replace(kernels.report(), sites=(site,), info={"report_values": {0: ("int", "bool", "uint", "float")}})
    assert error_of_report(artifact, words).message == "-1 True 0xffffffffffffffff 0.5"


def test_a_report_with_an_unknown_number_is_still_reported() -> None:
    words = np.zeros(64, np.uint32)
    words[0] = 9
    error = error_of_report(kernels.report(), words)
    assert "unknown report, number 9" in str(error)


def test_the_clock_never_fails() -> None:
    clock = CudaClock(bytes(16))
    assert not clock.wait()
    clock.close()
    clock.close()


def test_the_clock_is_for_nvidia_and_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VKJIT_CUDA_CLOCK", raising=False)
    assert CudaClock.wanted(0x10DE)
    assert not CudaClock.wanted(0x1002)
    monkeypatch.setenv("VKJIT_CUDA_CLOCK", "0")
    assert not CudaClock.wanted(0x10DE)


def test_an_inherited_instance_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance, "_inherited", True)
    with pytest.raises(errors.DeviceError, match="forked"):
        instance.get_instance()
