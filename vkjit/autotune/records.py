"""What tuning has found, on disk: one file per problem and device, written whole or not at all.

Enters and leaves: `Record`s. Holds: a file is JSON, with a hash over what it says; one that is damaged, of another version,
or about another problem, device or driver counts as none. After each candidate the record is written anew, so that a run
that was killed goes on where it stood.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..cache import enabled as cache_enabled
from ..cache import read_file, read_files, remove_files, write_file
from ..errors import ArgumentError
from ..settings import switch

__all__ = ["Record", "Row", "clear", "enabled", "export", "load", "ship", "store", "stored"]

FORMAT = 1
FOLDER = "tuned"
SHIPPED_VARIABLE = "VKJIT_TUNED"
"""Names a file, as `export` writes it, whose records are taken where none has been made here."""


@dataclass(frozen=True, slots=True)
class Row:
    """One candidate: its choices in words, the seconds of a launch (None where it wasn't timed), and how it fared:
    "ok", "wrong" (another result than the default's), "failed" (it can't be compiled or launched) or "dropped" (the cost
    model expects nothing of it); `why` says more.
    """

    choice: str
    seconds: float | None
    verdict: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """What is known of a problem. `key` names the problem and everything that its answer depends on; the first of `rows`
    is the default; `complete` says that no candidate is left to try.
    """

    name: str
    key: str
    device: str
    driver: str
    rows: tuple[Row, ...] = ()
    complete: bool = False

    @property
    def best(self) -> Row | None:
        """The fastest right candidate; the default unless another is faster by `MARGIN`. None before anything was timed."""
        timed = [row for row in self.rows if row.verdict == "ok" and row.seconds is not None]
        if not timed:
            return None
        fastest = min(timed, key=lambda row: row.seconds or 0.0)
        default = self.rows[0]
        if default.verdict == "ok" and default.seconds is not None:
            return fastest if (fastest.seconds or 0.0) < default.seconds * (1 - MARGIN) else default
        return fastest

    @property
    def gain(self) -> float:
        """How many times as fast the best candidate is as the default."""
        best, default = self.best, self.rows[0] if self.rows else None
        if best is None or default is None or not best.seconds or not default.seconds:
            return 1.0
        return default.seconds / best.seconds

    def with_row(self, row: Row) -> Record:
        """The record with one more candidate."""
        return dataclasses.replace(self, rows=(*self.rows, row))


MARGIN = 0.03
"""What a candidate has to be faster by than the default, so that noise changes nothing."""


def enabled() -> bool:
    """Whether stored results are used: not with VKJIT_TUNE=0, or without the cache."""
    return switch("VKJIT_TUNE") is not False and cache_enabled()


def _file_name(key: str, device: str, driver: str) -> str:
    return hashlib.sha256(f"{key}\0{device}\0{driver}".encode()).hexdigest() + ".json"


def _encode(record: Record) -> bytes:
    text = json.dumps(dataclasses.asdict(record), sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return json.dumps(
        {"format": FORMAT, "sha256": digest, "record": json.loads(text)}, indent=1, sort_keys=True
    ).encode()


def _decode(data: bytes | str) -> Record | None:
    """None for anything but a whole, unaltered record of this version."""
    try:
        return _record(json.loads(data))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _record(held: Any) -> Record | None:
    text = json.dumps(held["record"], sort_keys=True)
    if held["format"] != FORMAT or hashlib.sha256(text.encode()).hexdigest() != held["sha256"]:
        return None
    found = dict(held["record"])
    rows = tuple(Row(**row) for row in found.pop("rows"))
    record = Record(rows=rows, **found)
    numbers = all(row.seconds is None or (type(row.seconds) is float and row.seconds > 0) for row in rows)
    texts = (record.name, record.key, record.device, record.driver, *(row.choice for row in rows))
    return record if numbers and all(isinstance(text, str) for text in texts) else None


def load(key: str, device: str, driver: str) -> Record | None:
    """What is known of a problem here, else what was shipped; None where nothing is."""
    name = _file_name(key, device, driver)
    record = _decode(read_file(FOLDER, name) or b"")
    if record is not None and (record.key, record.device, record.driver) == (key, device, driver):
        return record
    return _shipped().get((key, device, driver))


def store(record: Record) -> bool:
    """Writes a record, whole or not at all; whether that worked."""
    return write_file(FOLDER, _file_name(record.key, record.device, record.driver), _encode(record))


def stored() -> Iterator[Record]:
    """All good records of this machine, in the order of their names."""
    found = (_decode(data) for data in read_files(FOLDER, ".json"))
    yield from sorted((record for record in found if record is not None), key=lambda r: (r.device, r.name, r.key))


def clear() -> int:
    """Deletes all records; returns how many files."""
    return remove_files(FOLDER, ".json")


# -- files to ship


def export(path: Path, records: Iterable[Record]) -> int:
    """Writes records into one file, for other machines with the same devices and drivers; returns how many."""
    listed = [json.loads(_encode(record)) for record in records]
    path.write_text(json.dumps({"format": FORMAT, "records": listed}, indent=1), encoding="utf-8")
    return len(listed)


def ship(path: Path) -> list[Record]:
    """The good records of a file that `export` has written. ArgumentError where it can't be read as one, or none is good."""
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ArgumentError(f"{path} can't be read as tuned results: {error}") from None
    if not isinstance(held, dict) or "format" not in held or not isinstance(held.get("records"), list):
        raise ArgumentError(
            f"{path} can't be read as tuned results: found {_in_words(held)}, expected an object with 'format' and a list "
            "'records', as `python -m vkjit tune --export` writes it"
        )
    if held["format"] != FORMAT:
        raise ArgumentError(
            f"{path} holds tuned results of version {held['format']!r}, expected {FORMAT}: export them anew"
        )
    listed = held["records"]
    found = [record for item in listed if (record := _decode(json.dumps(item))) is not None]
    if listed and not found:
        raise ArgumentError(f"{path}: none of its {len(listed)} tuned results is whole: export them anew")
    return found


def _in_words(value: Any) -> str:
    """What kind of value of JSON's this is; an object with what it holds first."""
    kinds = {list: "a list", dict: "an object", str: "a text", bool: "a truth value", type(None): "null"}
    found = kinds.get(type(value), "a number")
    if not isinstance(value, dict):
        return found
    inside = [f"{name!r}: {kinds.get(type(part), 'a number')}" for name, part in list(value.items())[:4]]
    return f"{found} with {', '.join(inside) or 'nothing in it'}"


_Key = tuple[str, str, str]
_READ: dict[str, dict[_Key, Record]] = {}
"""Files named by the environment, read once each."""


def _shipped() -> dict[_Key, Record]:
    place = os.environ.get(SHIPPED_VARIABLE, "")
    if not place:
        return {}
    if place not in _READ:
        try:
            _READ[place] = {(r.key, r.device, r.driver): r for r in ship(Path(place))}
        except ArgumentError as error:
            raise ArgumentError(f"{SHIPPED_VARIABLE}: {error}") from None
    return _READ[place]
