"""Tests of the pipeline cache on disk: data returns unaltered to the same device and driver, or not at all."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import vkjit as vk
from tests.device.runtime import runtime_kernels as kernels
from vkjit.backends.selection import driver_error
from vkjit.backends.vulkan.pipeline_store import Keeper, keep_with, keeper
from vkjit.backends.vulkan.runtime import enumeration
from vkjit.backends.vulkan.runtime.device import VulkanDevice
from vkjit.backends.vulkan.runtime.pipeline import disk_cache
from vkjit.backends.vulkan.runtime.pipeline.disk_cache import Identity, unwrap, wrap
from vkjit.backends.vulkan.runtime.pipeline.pipeline import Pipelines
from vkjit.compiler import cache

HERE = Identity(0x10005, 7, 3, b"d" * 16, b"v" * 16, b"c" * 16)


def drivers(identity: Identity = HERE, version: int = 1, size: int = 32, body: bytes = b"pipelines") -> bytes:
    """Return pipeline cache data as a driver returns it."""
    return struct.pack("<IIII16s", size, version, identity.vendor, identity.device, identity.cache_uuid) + body


def test_round_trip() -> None:
    assert unwrap(HERE, wrap(HERE, drivers())) == drivers()


@pytest.mark.parametrize("field", ["vendor", "device", "driver_version", "device_uuid", "driver_uuid", "cache_uuid"])
def test_another_device_or_driver_gets_nothing(field: str) -> None:
    changed: Any = 99 if isinstance(getattr(HERE, field), int) else b"x" * 16
    other = replace(HERE, **{field: changed})
    assert other.name != HERE.name
    assert unwrap(other, wrap(HERE, drivers())) == b""


def test_every_flipped_byte_is_noticed() -> None:
    kept = wrap(HERE, drivers())
    for position in range(len(kept)):
        altered = bytearray(kept)
        altered[position] ^= 0x10
        assert unwrap(HERE, bytes(altered)) == b"", position


def test_every_truncation_is_noticed() -> None:
    kept = wrap(HERE, drivers())
    for length in range(len(kept)):
        assert unwrap(HERE, kept[:length]) == b"", length
    assert unwrap(HERE, kept + b"\0") == b""


def test_a_wrong_length_under_a_right_checksum_is_noticed() -> None:
    rest = HERE.packed() + struct.pack("<Q", 5) + drivers()
    assert unwrap(HERE, disk_cache._MAGIC + hashlib.sha256(rest).digest() + rest) == b""
    short = HERE.packed()[:20]
    assert unwrap(HERE, disk_cache._MAGIC + hashlib.sha256(short).digest() + short) == b""


@pytest.mark.parametrize(
    "data",
    [
        b"",
        drivers()[:31],
        drivers(version=2),
        drivers(size=31),
        drivers(size=4000),
        drivers(replace(HERE, vendor=1)),
        drivers(replace(HERE, device=1)),
        drivers(replace(HERE, cache_uuid=b"o" * 16)),
    ],
)
def test_what_the_driver_would_not_know_as_its_own_is_kept_from_it(data: bytes) -> None:
    assert unwrap(HERE, wrap(HERE, data)) == b""


@pytest.fixture
def opened() -> Iterator[Any]:
    """Yield a function that reopens the Vulkan device, with an in-memory store of pipeline caches."""
    error = driver_error()
    if error is not None:
        pytest.skip(f"no Vulkan driver: {error}")
    physical = enumeration._devices()[0]
    former, kept = keeper(), dict[str, bytes]()
    keep_with(Keeper(lambda name: kept.get(name, b""), kept.__setitem__))
    yield lambda: (VulkanDevice(physical), kept)
    keep_with(former)


def test_a_device_keeps_what_is_new_and_starts_with_it(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver may return no cached pipelines, so the test replaces its data."""
    given: list[bytes] = []
    create, real = Pipelines._create_cache, Pipelines._drivers_data

    def created(self: Pipelines, data: bytes) -> Any:
        given.append(data)
        return create(self, b"")

    monkeypatch.setattr(Pipelines, "_create_cache", created)
    monkeypatch.setattr(Pipelines, "_drivers_data", lambda self: real(self)[:32] + b"pipelines")
    device, kept = opened()
    device.close()
    assert kept == {}, "there was nothing new"
    device, kept = opened()
    device.load(kernels.add())
    device.close()
    assert len(kept) == 1
    device, kept = opened()
    assert given[-1].endswith(b"pipelines")
    device.close()
    name = next(iter(kept))
    kept[name] = kept[name][:-1] + b"x"
    device, kept = opened()
    assert given[-1] == b""
    assert not device.restore_pipeline_cache(kept[name])
    assert device.restore_pipeline_cache(device.pipeline_cache_data())
    device.close()


def test_devices_keep_their_pipelines_in_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    vk.devices()
    monkeypatch.setenv("VKJIT_CACHE_DIR", str(tmp_path))
    keeper().save("name", b"data")
    assert (tmp_path / "pipelines" / "name.bin").read_bytes() == b"data"
    assert keeper().load("name") == b"data"
    assert cache.statistics()["pipeline_bytes"] == 4
    monkeypatch.setenv("VKJIT_CACHE", "0")
    assert keeper().load("name") == b""


@pytest.mark.parametrize("kind", ["interpreter"])
def test_a_device_is_opened_by_what_devices_lists(kind: str) -> None:
    info = next(info for info in vk.devices() if info.kind == kind)
    assert vk.device(info) is vk.device(kind)
    with vk.use_device(info) as current:
        assert current is vk.device(kind)
    before = vk.set_default_device(info)
    assert vk.set_default_device(before) is vk.device(kind)
    with pytest.raises(vk.ArgumentError, match=r"an item of vk\.devices\(\), found 1\.5"):
        vk.device(1.5)  # type: ignore[arg-type]
