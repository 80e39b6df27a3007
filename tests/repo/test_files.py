"""Tests of rules for every file: maximum length, and no paths specific to one machine."""

from __future__ import annotations

import re

from tests.repo import checkout

LONGEST = 600
# A user's or machine's own folder at the start of a path.
LOCAL_PATH = re.compile(r"(?<![\w.~}$/-])/(?:home|root|Users|work|tmp|farm)/\w[\w./-]*")
MARKER = re.compile(r"\b(?:T[O]DO|F[I]XME|X[X]X)\b")


def test_no_source_file_is_longer_than_600_lines() -> None:
    lengths = {
        checkout.name_of(path): len((checkout.text_of(path) or "").splitlines()) for path in checkout.python_files()
    }
    assert len(lengths) > 10, "the list of files came out empty"
    too_long = {name: length for name, length in lengths.items() if length > LONGEST}
    assert not too_long, f"split these files: {too_long}"


def _lines_with(pattern: re.Pattern[str]) -> list[str]:
    hits = []
    for path in checkout.files():
        for number, line in enumerate((checkout.text_of(path) or "").splitlines(), 1):
            if pattern.search(line):
                hits.append(f"{checkout.name_of(path)}:{number}: {line.strip()[:100]}")
    return hits


def test_no_file_names_a_folder_of_one_machine() -> None:
    assert _lines_with(LOCAL_PATH) == []


def test_the_pattern_for_local_paths_finds_them_and_only_them() -> None:
    assert LOCAL_PATH.search("open('/" + "home/me/data.bin')")
    assert LOCAL_PATH.search("see /" + "tmp/build/x")
    assert not LOCAL_PATH.search("docs/work/notes.md and https://example.org/home/page")
    assert not LOCAL_PATH.search("/usr/share/vulkan/icd.d")


def test_nothing_is_left_marked_as_unfinished() -> None:
    assert _lines_with(MARKER) == []


def test_the_link_to_the_standard_library_is_committed() -> None:
    link = checkout.ROOT / "vkjit" / "stdlib"
    assert (link / "__init__.py").is_file()
    if link.is_symlink():
        assert link.resolve() == checkout.ROOT / "stdlib"
