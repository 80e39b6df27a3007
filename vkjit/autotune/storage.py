"""Tuning results on disk: one file per problem and device, written atomically.

A file is JSON with a checksum. A file that is damaged, of another version, or about another problem, device or driver
is ignored. The record is rewritten after each candidate, so a run that was killed can be resumed.
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

from ..compiler.cache import enabled as cache_enabled, read_file, read_files, remove_files, write_file
from ..errors import ArgumentError
from ..settings import boolean_setting

__all__ = ["Record", "Row", "clear", "enabled", "export", "load", "read_exported", "store", "stored"]

FORMAT = 1
FOLDER = "tuned"
SHIPPED_VARIABLE = "VKJIT_TUNED"
"""Names a file written by `export`; its records are used where no local one exists."""


@dataclass(frozen=True, slots=True)
class Row:
    """The result of one candidate.

    `choice` is the choice as text, `seconds` the time of a launch (None if it wasn't timed). `verdict` is "ok", "wrong"
    (results differ from the default's), "failed" (compilation or launch failed) or "dropped" (excluded by the cost
    model); `why` gives details.
    """

    choice: str
    seconds: float | None
    verdict: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """The tuning results of a problem. `key` identifies the problem and everything that its result depends on. The
    first of `rows` is the default. `complete` is True if no candidate is left to measure.
    """

    name: str
    key: str
    device: str
    driver: str
    rows: tuple[Row, ...] = ()
    complete: bool = False

    @property
    def best(self) -> Row | None:
        """The fastest valid candidate; the default unless another is faster by `MIN_GAIN`. None before anything was
        timed.
        """
        timed = [row for row in self.rows if row.verdict == "ok" and row.seconds is not None]
        if not timed:
            return None
        fastest = min(timed, key=lambda row: row.seconds or 0.0)
        default = self.rows[0]
        if default.verdict == "ok" and default.seconds is not None:
            return fastest if (fastest.seconds or 0.0) < default.seconds * (1 - MIN_GAIN) else default
        return fastest

    @property
    def gain(self) -> float:
        """The speedup of the best candidate over the default."""
        best, default = self.best, self.rows[0] if self.rows else None
        if best is None or default is None or not best.seconds or not default.seconds:
            return 1.0
        return default.seconds / best.seconds

    def with_row(self, row: Row) -> Record:
        """Return the record with one more candidate."""
        return dataclasses.replace(self, rows=(*self.rows, row))


MIN_GAIN = 0.03
"""Minimum relative speedup over the default, so that noise doesn't change the selection."""


def enabled() -> bool:
    """True if stored results are used: not with VKJIT_TUNE=0, or without the cache."""
    return boolean_setting("VKJIT_TUNE") is not False and cache_enabled()


def _file_name(key: str, device: str, driver: str) -> str:
    return hashlib.sha256(f"{key}\0{device}\0{driver}".encode()).hexdigest() + ".json"


def _encode(record: Record) -> bytes:
    text = json.dumps(dataclasses.asdict(record), sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return json.dumps(
        {"format": FORMAT, "sha256": digest, "record": json.loads(text)}, indent=1, sort_keys=True
    ).encode()


def _decode(data: bytes | str) -> Record | None:
    """Decode a record; None unless it is complete, unaltered and of this version."""
    try:
        return _record(json.loads(data))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _record(document: Any) -> Record | None:
    text = json.dumps(document["record"], sort_keys=True)
    if document["format"] != FORMAT or hashlib.sha256(text.encode()).hexdigest() != document["sha256"]:
        return None
    fields = dict(document["record"])
    rows = tuple(Row(**row) for row in fields.pop("rows"))
    record = Record(rows=rows, **fields)
    numbers = all(row.seconds is None or (type(row.seconds) is float and row.seconds > 0) for row in rows)
    texts = (record.name, record.key, record.device, record.driver, *(row.choice for row in rows))
    return record if numbers and all(isinstance(text, str) for text in texts) else None


def load(key: str, device: str, driver: str) -> Record | None:
    """Return the local record of a problem, else the one in the VKJIT_TUNED file, else None."""
    name = _file_name(key, device, driver)
    record = _decode(read_file(FOLDER, name) or b"")
    if record is not None and (record.key, record.device, record.driver) == (key, device, driver):
        return record
    return _shipped().get((key, device, driver))


def store(record: Record) -> bool:
    """Write a record atomically. Return True on success."""
    return write_file(FOLDER, _file_name(record.key, record.device, record.driver), _encode(record))


def stored() -> Iterator[Record]:
    """Yield all valid records of this machine, sorted by device, name and key."""
    decoded = (_decode(data) for data in read_files(FOLDER, ".json"))
    yield from sorted((record for record in decoded if record is not None), key=lambda r: (r.device, r.name, r.key))


def clear() -> int:
    """Delete all records. Return the number of files."""
    return remove_files(FOLDER, ".json")


# -- export and import


def export(path: Path, records: Iterable[Record]) -> int:
    """Write records into one file for other machines with the same devices and drivers. Return their number."""
    listed = [json.loads(_encode(record)) for record in records]
    path.write_text(json.dumps({"format": FORMAT, "records": listed}, indent=1), encoding="utf-8")
    return len(listed)


def read_exported(path: Path) -> list[Record]:
    """Return the valid records of a file written by `export`. Raises ArgumentError if the file can't be read or has
    none.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ArgumentError(f"{path} can't be read as tuned results: {error}") from None
    if not isinstance(document, dict) or "format" not in document or not isinstance(document.get("records"), list):
        raise ArgumentError(
            f"{path} can't be read as tuned results: found {_json_kind(document)}, expected an object with 'format' and a list "
            "'records', as `python -m vkjit tune --export` writes it"
        )
    if document["format"] != FORMAT:
        raise ArgumentError(
            f"{path} holds tuned results of version {document['format']!r}, expected {FORMAT}: export them anew"
        )
    listed = document["records"]
    valid = [record for item in listed if (record := _decode(json.dumps(item))) is not None]
    if listed and not valid:
        raise ArgumentError(f"{path}: none of its {len(listed)} tuned results is whole: export them anew")
    return valid


def _json_kind(value: Any) -> str:
    """Describe the JSON type of a value, for messages; for an object also its first members."""
    kinds = {list: "a list", dict: "an object", str: "a text", bool: "a truth value", type(None): "null"}
    text = kinds.get(type(value), "a number")
    if not isinstance(value, dict):
        return text
    inside = [f"{name!r}: {kinds.get(type(part), 'a number')}" for name, part in list(value.items())[:4]]
    return f"{text} with {', '.join(inside) or 'nothing in it'}"


_Key = tuple[str, str, str]
_READ: dict[str, dict[_Key, Record]] = {}
"""Cached contents of the files named by VKJIT_TUNED."""


def _shipped() -> dict[_Key, Record]:
    place = os.environ.get(SHIPPED_VARIABLE, "")
    if not place:
        return {}
    if place not in _READ:
        try:
            _READ[place] = {(r.key, r.device, r.driver): r for r in read_exported(Path(place))}
        except ArgumentError as error:
            raise ArgumentError(f"{SHIPPED_VARIABLE}: {error}") from None
    return _READ[place]
