"""Tests of the disk cache: round trip, corrupt files, ownership, keys."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import struct
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.threads import run_in_threads
from vkjit import dtypes
from vkjit.cli.main import main
from vkjit.compiler import cache
from vkjit.errors import ArgumentError, InternalError, Loc, ReportSite
from vkjit.passes.analysis.trip_bound import TripBound
from vkjit.runtime.artifact import ArgField, KernelArtifact

KEY = "ab" * 32


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VKJIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("VKJIT_CACHE", "1")
    cache._unusable_reason.cache_clear()
    return tmp_path / "cache" / "kernels"


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
        info={
            "trip_bound": TripBound("extent", (0, 1)),
            "report_values": {0: ("int", "float")},
            "grid_axes": (0, 2),
            "print_values": {1: (("int", 1), ("float", 3))},
            "print_local": (8, 2, 1),
        },
    )


def test_round_trip(folder: Path) -> None:
    cache.store(KEY, artifact())
    found = cache.load(KEY)
    assert found == artifact()
    assert found is not None and found.info == artifact().info
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert cache.statistics()["entries"] == 1


def test_what_could_not_be_read_back_is_not_stored(folder: Path) -> None:
    with pytest.raises(InternalError, match="doesn't know how to keep colour of kernel k"):
        cache.store(KEY, replace(artifact(), info={"colour": 3}))
    assert cache.load(KEY) is None


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
    assert sorted(p.name for p in folder.iterdir()) == [cache.MARK, f"{KEY}.vkjit"]


POSIX = pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs POSIX owners")


def test_an_entry_under_another_key_is_a_miss(folder: Path) -> None:
    cache.store(KEY, artifact())
    other = "cd" * 32
    os.rename(folder / f"{KEY}.vkjit", folder / f"{other}.vkjit")
    assert cache.load(other) is None


@pytest.mark.parametrize("header", [b"[]", b"{}", b"nonsense", b'{"key": "KEY", "name": 3, "fields": [[]]}'])
def test_a_whole_entry_of_another_form_is_a_miss(folder: Path, header: bytes) -> None:
    body = struct.pack("<I", len(header)) + header.replace(b"KEY", KEY.encode())
    cache.store(KEY, artifact())
    (folder / f"{KEY}.vkjit").write_bytes(cache.MAGIC + hashlib.sha256(body).digest() + body)
    assert cache.load(KEY) is None


@POSIX
def test_a_directory_of_somebody_else_is_not_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(parents=True)
    cache._unusable_reason.cache_clear()
    monkeypatch.setattr(os, "getuid", lambda: folder.stat().st_uid + 1)
    assert not cache.enabled()
    assert "another user" in cache.problem()
    cache.store(KEY, artifact())
    assert list(folder.iterdir()) == []


@POSIX
def test_symlink_of_another_user_is_not_followed(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The link belongs to another user, though its target is ours."""
    (tmp_path / "real").mkdir()
    folder.parent.mkdir()
    folder.symlink_to(tmp_path / "real")
    user = os.getuid()
    lstat = Path.lstat

    def planted(path: Path) -> os.stat_result:
        found = lstat(path)
        return os.stat_result([*found[:4], user + 1, *found[5:10]]) if path == folder else found

    monkeypatch.setattr(Path, "lstat", planted)
    cache._unusable_reason.cache_clear()
    assert not cache.enabled()


@POSIX
def test_an_entry_that_is_a_link_or_of_somebody_else_is_a_miss(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.store(KEY, artifact())
    path = folder / f"{KEY}.vkjit"
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert cache.load(KEY) is None
    cache.store(KEY, artifact())  # replaces the link itself, not its target
    assert not path.is_symlink() and cache.load(KEY) == artifact()
    user = os.getuid()
    assert cache.enabled()
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    assert cache.load(KEY) is None


@POSIX
def test_a_directory_that_others_may_read_is_closed_to_them(folder: Path) -> None:
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    cache._unusable_reason.cache_clear()
    assert cache.enabled()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_place_that_cannot_be_made_switches_the_cache_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("VKJIT_CACHE_DIR", str(tmp_path / "file" / "below"))
    cache._unusable_reason.cache_clear()
    assert not cache.enabled()
    assert "VKJIT_CACHE_DIR" in cache.problem()
    cache.store(KEY, artifact())
    assert cache.load(KEY) is None and cache.clear() == 0


def test_a_user_without_a_home_has_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise RuntimeError("no home directory")

    monkeypatch.delenv("VKJIT_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setattr(Path, "home", nowhere)
    monkeypatch.setattr(sys, "platform", "linux")
    assert not cache.enabled() and "no home" in cache.problem()
    assert cache.statistics()["directory"] == "none"


def test_a_folder_that_is_deleted_meanwhile_is_made_again(folder: Path) -> None:
    cache.store(KEY, artifact())
    shutil.rmtree(folder)
    assert cache.load(KEY) is None
    cache.store(KEY, artifact())
    cache.store(KEY, artifact())
    assert cache.load(KEY) == artifact()


def test_the_oldest_entries_go_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "urandom", lambda n: b"\0" * n)
    size = len(cache._encode(artifact(), KEY))
    monkeypatch.setenv("VKJIT_CACHE_SIZE", str(3 * size))
    for number in range(5):
        key = f"{number:064x}"
        cache.store(key, artifact())
        if (folder / f"{key}.vkjit").exists():
            os.utime(folder / f"{key}.vkjit", (number, number))
    left = sorted(int(p.stem, 16) for p in folder.glob("*.vkjit"))
    assert left == [2, 3, 4]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_pipes_and_folders_in_place_of_entries_are_misses(folder: Path) -> None:
    cache.store(KEY, artifact())
    path = folder / f"{KEY}.vkjit"
    path.unlink()
    os.mkfifo(path)
    assert cache.load(KEY) is None  # at once: opening a pipe waits for its other end
    path.unlink()
    path.mkdir()
    before = os.open(os.devnull, os.O_RDONLY)
    os.close(before)
    assert all(cache.load(KEY) is None for _ in range(5))
    after = os.open(os.devnull, os.O_RDONLY)
    os.close(after)
    assert after == before  # the lowest free number: no descriptor is left open


@pytest.mark.parametrize(
    ("name", "text"),
    [("VKJIT_CACHE", "off"), ("VKJIT_CACHE", "2"), ("VKJIT_CACHE_SIZE", "1GB"), ("VKJIT_CACHE_SIZE", "-1"),
     ("VKJIT_CACHE_SIZE", "1.5"), ("VKJIT_CACHE_SIZE", "\u0661"),
     ("VKJIT_CACHE_SIZE", "9" * 5000)],
)  # fmt: skip
def test_settings_that_are_none_are_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(ArgumentError, match=f"{name} is .*: expected"):
        cache.enabled()
    assert cache.problem().startswith(f"{name} is ")


def test_empty_settings_are_the_usual_ones(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VKJIT_CACHE", "")
    monkeypatch.setenv("VKJIT_CACHE_SIZE", "")
    assert cache.enabled() and cache.problem() == "" and cache._size_cap() == cache.SIZE_CAP


@pytest.mark.parametrize("name", ["kernels", "pipelines", "machine", "tuning"])
def test_what_killed_writers_left_is_deleted_after_an_hour(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def store() -> None:
        if name == "kernels":
            cache.store(KEY, artifact())
        elif name == "pipelines":
            cache.store_pipelines("device", b"data")
        else:
            cache.write_file(name, "file.bin", b"data")

    monkeypatch.setattr(os, "urandom", lambda n: b"\0" * n)
    store()
    path = folder.parent / name
    for file, age in (("vkjit-old.tmp", 4000), ("vkjit-young.tmp", 10), ("mine.tmp", 4000)):
        (path / file).write_bytes(b"part")
        os.utime(path / file, (time.time() - age,) * 2)
    store()
    assert sorted(p.name for p in path.glob("*.tmp")) == ["mine.tmp", "vkjit-young.tmp"]


def test_a_writer_that_fails_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError("no space left on device")

    assert cache.enabled()
    monkeypatch.setattr(os, "replace", full)
    cache.store(KEY, artifact())
    assert [path.name for path in folder.iterdir()] == [cache.MARK]


def test_readers_and_writers_at_once(folder: Path) -> None:
    wrong: list[str] = []

    def work(number: int) -> None:
        for turn in range(60):
            key = f"{(number + turn) % 3:064x}"
            found = cache.load(key)
            if found is not None and found != artifact():
                wrong.append(key)
            cache.store(key, artifact())
            if turn % 20 == number:
                cache.clear()

    run_in_threads(work, 6)
    assert wrong == []


def test_clear(folder: Path) -> None:
    cache.store(KEY, artifact())
    cache.store_pipelines("device", b"data")
    assert cache.load_pipelines("device") == b"data"
    assert cache.clear() == 2
    assert cache.load(KEY) is None
    assert cache.load_pipelines("device") == b""


@pytest.mark.parametrize("name", ["kernels", "pipelines", "machine"])
def test_a_folder_of_the_users_is_neither_used_nor_changed(folder: Path, name: str) -> None:
    mine = folder.parent / name
    mine.mkdir(parents=True)
    mine.chmod(0o755)
    files = [mine / n for n in ("saxpy.bin", "notes.tmp", "a.vkjit")]
    for file in files:
        file.write_bytes(b"mine")
    cache.store(KEY, artifact())
    cache.store_pipelines("device", b"data")
    cache.clear()
    cache.verify()
    assert sorted(mine.iterdir()) == sorted(files) and stat.S_IMODE(mine.stat().st_mode) == 0o755
    if name == "kernels":
        assert "a.vkjit, which vkjit hasn't written" in cache.problem() and not cache.enabled()


def test_a_cache_without_marks_is_taken_over(folder: Path) -> None:
    cache.store(KEY, artifact())
    (folder / cache.MARK).unlink()
    cache._unusable_reason.cache_clear()
    assert cache.load(KEY) == artifact() and (folder / cache.MARK).exists()


@POSIX
def test_clear_leaves_links_alone(folder: Path, tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    folder.parent.mkdir()
    folder.symlink_to(real)
    cache.store(KEY, artifact())
    assert cache.load(KEY) == artifact()
    assert cache.clear() == 0 and cache.load(KEY) == artifact()


def test_verify_deletes_what_is_damaged(folder: Path) -> None:
    cache.store(KEY, artifact())
    (folder / f"{'cd' * 32}.vkjit").write_bytes(b"nonsense")
    assert [entry.name for entry in cache.entries() if entry.name] == ["k"]
    good, damaged = cache.verify()
    assert (good, [p.stem for p in damaged]) == (1, ["cd" * 32])
    assert cache.verify() == (1, [])


def test_the_command(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    cache.store(KEY, artifact())
    (folder / f"{'cd' * 32}.vkjit").write_bytes(b"nonsense")

    def said(*words: str) -> tuple[int, str]:
        code = main(["cache", *words])
        return code, capsys.readouterr().out

    assert said("path") == (0, f"{folder.parent}\n")
    code, text = said()
    assert code == 0 and "2 kernels" in text and "(damaged)" in text and "  k  " in text
    code, text = said("info", "--json")
    assert code == 0 and {e["name"] for e in json.loads(text)["kernels"]} == {"k", ""}
    assert said("verify")[0] == 1
    assert said("verify") == (0, "1 kernels are good, 0 were damaged\n")
    assert said("clear") == (0, f"deleted 1 files in {folder.parent}\n")
    monkeypatch.setenv("VKJIT_CACHE", "0")
    code, text = said("info")
    assert code == 1 and "VKJIT_CACHE=0" in text


def test_the_command_says_why_the_cache_cannot_be_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("VKJIT_CACHE_DIR", str(tmp_path / "file"))
    cache._unusable_reason.cache_clear()
    for action in ("clear", "verify"):
        assert main(["cache", action]) == 1
        assert "the cache can't be used" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["cache", "burn"])
    assert "invalid choice: 'burn'" in capsys.readouterr().err
