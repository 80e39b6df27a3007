"""Tuning results on disk: one file per tuning problem and device, written atomically.

A file holds one `Record` as JSON with a checksum, in the folder of the disk cache. A file that is damaged, of another
format version, or about another problem, device or driver is ignored. The record is rewritten after each candidate, so
a run that was killed can be resumed. Records can also be exported to a single file, for use on other machines.
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
from ..files import write_text
from ..settings import boolean_setting

__all__ = ["Record", "Row", "clear", "enabled", "export", "load", "read_exported", "store", "stored"]

FORMAT = 1
"""Version of the file format."""
FOLDER = "tuned"
"""Subfolder of the disk cache."""
SHIPPED_VARIABLE = "VKJIT_TUNED"
"""Environment variable that names a file written by `export`; its records are used where no local one exists."""


@dataclass(frozen=True, slots=True)
class Row:
    """The result of one candidate.

    `choice` identifies the candidate (`Candidate.text`); `seconds` is the time of a launch, None if it wasn't timed.
    `verdict` is "ok", "wrong" (other results than the first working candidate), "failed" (compilation or launch failed)
    or "dropped" (excluded by the cost model); `why` gives details.
    """

    choice: str
    seconds: float | None
    verdict: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """The tuning results of a problem on a device.

    `key` identifies the problem and everything that its result depends on, except `device` and `driver`. The first of
    `rows` is the default. `complete` is True if no candidate is left to measure.
    """

    name: str
    key: str
    device: str
    driver: str
    rows: tuple[Row, ...] = ()
    complete: bool = False

    @property
    def best(self) -> Row | None:
        """The fastest valid candidate; but the default, if it is valid and the fastest one saves less than `MIN_GAIN`.

        None before anything was timed.
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
        """The time of the default divided by that of the best candidate; 1 if one of them wasn't timed."""
        best, default = self.best, self.rows[0] if self.rows else None
        if best is None or default is None or not best.seconds or not default.seconds:
            return 1.0
        return default.seconds / best.seconds

    def with_row(self, row: Row) -> Record:
        """Return the record with the result of one more candidate."""
        return dataclasses.replace(self, rows=(*self.rows, row))


MIN_GAIN = 0.03
"""Minimum relative saving of time over the default, so that noise doesn't change the selection."""


def enabled() -> bool:
    """Return True if launches use stored results; False with VKJIT_TUNE=0 or if the disk cache is disabled."""
    return boolean_setting("VKJIT_TUNE") is not False and cache_enabled()


def _file_name(key: str, device: str, driver: str) -> str:
    return hashlib.sha256(f"{key}\0{device}\0{driver}".encode(errors="surrogatepass")).hexdigest() + ".json"


def _encode(record: Record) -> bytes:
    """Return the contents of a record's file: JSON with the format version and a checksum."""
    text = json.dumps(dataclasses.asdict(record), sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return json.dumps(
        {"format": FORMAT, "sha256": digest, "record": json.loads(text)}, indent=1, sort_keys=True
    ).encode()


def _decode(data: bytes | str) -> Record | None:
    """Decode the contents of a record's file; return None if they are damaged or of another format version."""
    try:
        return _parse_record(json.loads(data))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _parse_record(document: Any) -> Record | None:
    """Return the record in a parsed file; None if the version, the checksum or a value is wrong.

    May raise ValueError, KeyError, TypeError or AttributeError for documents of another structure.
    """
    text = json.dumps(document["record"], sort_keys=True)
    if document["format"] != FORMAT or hashlib.sha256(text.encode()).hexdigest() != document["sha256"]:
        return None
    fields = dict(document["record"])
    rows = tuple(Row(**row) for row in fields.pop("rows"))
    record = Record(rows=rows, **fields)
    valid_times = all(row.seconds is None or (type(row.seconds) is float and row.seconds > 0) for row in rows)
    texts = (record.name, record.key, record.device, record.driver, *(row.choice for row in rows))
    return record if valid_times and all(isinstance(text, str) for text in texts) else None


def load(key: str, device: str, driver: str) -> Record | None:
    """Return the record of a problem from this machine's cache, else from the VKJIT_TUNED file, else None."""
    name = _file_name(key, device, driver)
    record = _decode(read_file(FOLDER, name) or b"")
    if record is not None and (record.key, record.device, record.driver) == (key, device, driver):
        return record
    return _shipped().get((key, device, driver))


def store(record: Record) -> bool:
    """Write a record atomically. Return True on success."""
    return write_file(FOLDER, _file_name(record.key, record.device, record.driver), _encode(record))


def stored() -> Iterator[Record]:
    """Yield all valid records in this machine's cache, sorted by device, name and key."""
    decoded = (_decode(data) for data in read_files(FOLDER, ".json"))
    yield from sorted((record for record in decoded if record is not None), key=lambda r: (r.device, r.name, r.key))


def clear() -> int:
    """Delete all records in this machine's cache. Return the number of files deleted."""
    return remove_files(FOLDER, ".json")


# -- export and import


def export(path: Path, records: Iterable[Record]) -> int:
    """Write records to one file, for other machines with the same devices and drivers. Return their number."""
    listed = [json.loads(_encode(record)) for record in records]
    write_text(path, json.dumps({"format": FORMAT, "records": listed}, indent=1))
    return len(listed)


def read_exported(path: Path) -> list[Record]:
    """Return the valid records of a file written by `export`.

    Raises ArgumentError if the file can't be read, or if it has records but none is valid.
    """
    try:
        if path.exists() and not path.is_file():  # reading from a pipe could block forever
            raise OSError("it is no ordinary file")
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
    kinds = {list: "a list", dict: "an object", str: "a string", bool: "a boolean", type(None): "null"}
    text = kinds.get(type(value), "a number")
    if not isinstance(value, dict):
        return text
    inside = [f"{name!r}: {kinds.get(type(part), 'a number')}" for name, part in list(value.items())[:4]]
    return f"{text} with {', '.join(inside) or 'nothing in it'}"


_Key = tuple[str, str, str]
"""The key, device and driver of a record."""
_READ: dict[str, dict[_Key, Record]] = {}
"""Cached contents of the files named by VKJIT_TUNED, by path."""


def _shipped() -> dict[_Key, Record]:
    """Return the records of the file named by VKJIT_TUNED."""
    path = os.environ.get(SHIPPED_VARIABLE, "")
    if not path:
        return {}
    if path not in _READ:
        try:
            _READ[path] = {(r.key, r.device, r.driver): r for r in read_exported(Path(path))}
        except ArgumentError as error:
            raise ArgumentError(f"{SHIPPED_VARIABLE}: {error}") from None
    return _READ[path]
