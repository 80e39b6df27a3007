"""Tests of writing users' files: an error leaves the file that was there, and nothing else."""

from __future__ import annotations

import ast
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import vkjit as vk
from vkjit.autotune import storage
from vkjit.errors import ArgumentError
from vkjit.files import replacing, write_text

PACKAGE = Path(vk.__file__).parent
DIRECT = {
    "files.py",
    "compiler/cache.py",
    "backends/vulkan/runtime/instance.py",
    "testing/fuzz/worker.py",
    "testing/fuzz/sources/check.py",
}
"""Modules that write otherwise: the helper, the cache, a log, a pipe, and a temporary folder of its own."""


def _profile(path: Path) -> None:
    with vk.profile("interpreter") as profile:
        pass
    profile.save(path)


WRITERS: dict[str, Callable[[Any], Any]] = {
    "text": lambda path: write_text(path, "new"),
    "tensors": lambda path: vk.io.save({"a": vk.ones(3, device="interpreter")}, path),
    "profile": _profile,
    "tuned records": lambda path: storage.export(path, []),
}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize(
    "failure", [OSError("No space left on device"), KeyboardInterrupt()], ids=["full", "interrupt"]
)
def test_a_failure_leaves_the_old_file(
    tmp_path: Path, writer: str, failure: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "file"
    target.write_text("precious", encoding="utf-8")

    def fail(handle: int) -> None:
        raise failure

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(type(failure)):
        WRITERS[writer](target)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert target.read_text(encoding="utf-8") == "precious"


def test_all_files_are_written_through_the_helper() -> None:
    found = []
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        if name in DIRECT:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                modes = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
                opened = function in ("open", "fdopen") and any(set(m) & set("wxa") and len(m) < 4 for m in modes)
                if opened or function in ("write_text", "write_bytes") and isinstance(node.func, ast.Attribute):
                    found.append(f"{name}:{node.lineno}")
    assert found == []


@pytest.mark.skipif(sys.platform == "win32", reason="symbolic links need a privilege there")
def test_links_permissions_and_devices(tmp_path: Path) -> None:
    target, link, loop = tmp_path / "target", tmp_path / "link", tmp_path / "loop"
    link.symlink_to("target")
    loop.symlink_to("loop")
    write_text(link, "through the link")
    assert link.is_symlink()
    assert target.read_text(encoding="utf-8") == "through the link"
    for mode in (0o600, 0o664):
        target.chmod(mode)
        write_text(target, "again")
        assert stat.S_IMODE(target.stat().st_mode) == mode
    write_text(os.devnull, "discarded")
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
    for writer in ("text", "tensors"):
        with pytest.raises(ArgumentError, match="is a symbolic link that leads to itself"):
            WRITERS[writer](loop)


@pytest.mark.parametrize("path", [None, 5, b"name", "a\0b"], ids=repr)
def test_what_is_no_file_name_is_refused(path: Any) -> None:
    with pytest.raises(ArgumentError, match="is no file name"):
        vk.io.save({}, path)


def test_temporary_files_are_private_if_the_target_is(tmp_path: Path) -> None:
    target = tmp_path / ("n" * 250)
    target.touch(0o600)
    with replacing(target) as file:
        (temporary,) = (p for p in tmp_path.iterdir() if p != target)
        assert sys.platform == "win32" or stat.S_IMODE(temporary.stat().st_mode) == 0o600
        file.write(b"new")
    assert [p.name for p in tmp_path.iterdir()] == [target.name]
    assert target.read_bytes() == b"new"
