"""The disk cache: round trip, damage, ownership, keys."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from vkjit import cache, dtypes
from vkjit.errors import Loc, ReportSite
from vkjit.passes.trip_bound import TripBound
from vkjit.runtime.artifact import ArgField, KernelArtifact

KEY = "ab" * 32


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VKJIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("VKJIT_CACHE", "1")
    cache._checked_directory.cache_clear()
    return tmp_path / "cache"


def artifact() -> KernelArtifact:
    return KernelArtifact(
        name="k",
        code=bytes(range(256)) * 3,
        entry="main",
        local_size=(8, 2, 1),
        fields=(ArgField("address", 0, 0, dtypes.u64, 0, 8), ArgField("scalar", 1, 0, dtypes.f16, 8, 2)),
        block_size=16,
        indirect=False,
        reads=frozenset({0}),
        writes=frozenset({0, 2}),
        features=frozenset({"float16"}),
        shared_bytes=64,
        subgroup_size=8,
        sites=(ReportSite("bounds", Loc("f.py", 3, 1, 9), "index {0}"),),
        info={"trip_bound": TripBound("extent", (0, 1)), "report_values": {0: ("int", "float")}},
    )


def test_round_trip(folder: Path) -> None:
    cache.store(KEY, artifact())
    found = cache.load(KEY)
    assert found == artifact()
    assert found is not None and found.info == artifact().info
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert cache.statistics()["entries"] == 1


def test_absent_entry_is_a_miss(folder: Path) -> None:
    assert cache.load(KEY) is None


@pytest.mark.parametrize("position", [0, 20, 60, 200, -1])
def test_a_flipped_byte_is_a_miss(folder: Path, position: int) -> None:
    cache.store(KEY, artifact())
    (path,) = folder.glob("*.vkjit")
    data = bytearray(path.read_bytes())
    data[position] ^= 0x40
    path.write_bytes(data)
    assert cache.load(KEY) is None


@pytest.mark.parametrize("length", [0, 5, 17, 40, 60, 300])
def test_a_truncated_entry_is_a_miss(folder: Path, length: int) -> None:
    cache.store(KEY, artifact())
    (path,) = folder.glob("*.vkjit")
    path.write_bytes(path.read_bytes()[:length])
    assert cache.load(KEY) is None


def test_no_temporary_file_is_left(folder: Path) -> None:
    cache.store(KEY, artifact())
    assert [p.suffix for p in folder.iterdir()] == [".vkjit"]


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs POSIX owners")
def test_a_directory_of_somebody_else_is_not_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    cache._checked_directory.cache_clear()
    monkeypatch.setattr(os, "getuid", lambda: folder.stat().st_uid + 1)
    assert not cache.enabled()
    cache.store(KEY, artifact())
    assert list(folder.iterdir()) == []


def test_a_directory_that_others_may_write_is_closed_to_them(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    cache._checked_directory.cache_clear()
    assert cache.enabled()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_place_that_cannot_be_made_switches_the_cache_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("VKJIT_CACHE_DIR", str(tmp_path / "file" / "below"))
    cache._checked_directory.cache_clear()
    assert not cache.enabled()


def test_the_oldest_entries_go_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "urandom", lambda n: b"\0" * n)
    size = len(cache._encode(artifact()))
    monkeypatch.setattr(cache, "SIZE_CAP", 3 * size)
    for number in range(5):
        key = f"{number:064x}"
        cache.store(key, artifact())
        if (folder / f"{key}.vkjit").exists():
            os.utime(folder / f"{key}.vkjit", (number, number))
    left = sorted(int(p.stem, 16) for p in folder.glob("*.vkjit"))
    assert left == [2, 3, 4]


def test_clear(folder: Path) -> None:
    cache.store(KEY, artifact())
    assert cache.clear() == 1
    assert cache.load(KEY) is None
