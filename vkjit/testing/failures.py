"""What a failing property test says.

Enters: a kernel, a `Finding` at its smallest, and larger cases that fail in the same way. Leaves: `CheckFailure`, an
AssertionError with these as attributes, whose text shows the input, the first wrong element, the pattern of the
wrong ones, the line that wrote it, and a script that reproduces it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import Loc, render_caret
from ..jit import Kernel
from .case import ArrayInput
from .compare import ulps_between
from .composites import whole
from .dimensions import tiles_of
from .finding import Finding
from .localise import Mend
from .patterns import pattern_of
from .script import constant_text, number_text, script_of
from .shadow import Write

__all__ = ["CheckFailure"]

_SHOWN = 16
"""Elements of an array that are printed."""

_SCRIPT_LINES = 60


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the first wrong element comes from: its last writer, else the places that write the array."""

    write: Write | None
    stores: tuple[Loc, ...]
    guards: tuple[Loc, ...] = ()
    mend: Mend | None = None
    nan_losses: tuple[Loc, ...] = ()
    births: tuple[Loc, ...] = ()

    @property
    def lines(self) -> tuple[Loc, ...]:
        """The places: what would mend it, where a NaN is lost or a number becomes infinite, the writer (the stores where
        nobody wrote), what guards them."""
        mended = () if self.mend is None else (self.mend.loc,)
        written = self.stores if self.write is None else (self.write.loc,)
        return tuple(dict.fromkeys((*mended, *self.nan_losses, *self.births, *written, *self.guards)))


class CheckFailure(AssertionError):  # noqa: N818  the kernel failed, not the check
    """A kernel that doesn't do what it should.

    kind: "sanitizer", "reference", "disagreement", "unwritten", "depends", "outside", "report" or "property".
    kernel: its name. arguments: the smallest failing input by name (arrays as NumPy arrays, structured ones for structs;
    None for an Out).
    dims: sizes by name. dtypes: element types by type variable. device, schedule: where it fails.
    array, index: the first wrong element. found, expected, ulps: its values. bad, total: how many are wrong, of all.
    pattern: what they have in common. lines: places in the source (file, line) that wrote it.
    reports: what the sanitizer says.
    script: a program that reproduces it. seed: what repeats the search, where there is one. finding: all of it.
    """

    def __init__(
        self, kernel: Kernel, finding: Finding, origin: Origin, larger: Sequence[Finding], groups: Any, hint: str = "",
        seed: int | None = None,
    ) -> None:  # fmt: skip
        self._origin = kernel, groups
        self.finding = finding
        self.kind = finding.kind
        self.kernel = kernel.name
        self.case = finding.case
        parts = {n: v.values if isinstance(v, ArrayInput) else v for n, v in finding.case.arguments.items()}
        self.arguments: dict[str, Any] = whole(kernel.expanded_spec, parts)
        self.dims = dict(finding.case.dims)
        self.dtypes = dict(finding.case.dtypes)
        self.device = finding.executor
        self.schedule = finding.schedule
        self.array = finding.array
        self.error = finding.error
        self.write, self.mend = origin.write, origin.mend
        self.origin = origin
        self.reports = finding.reports
        self.lines = _lines(finding, origin)
        self.script = script_of(kernel, finding, groups)
        self._measure(finding)
        self.pattern = _pattern(kernel, finding)
        self.hint = hint
        self.seed = seed
        self.larger = _larger(kernel, finding, larger)
        super().__init__(self._text(kernel))

    def _measure(self, finding: Finding) -> None:
        flags = finding.flags
        self.index: tuple[int, ...] | None = None
        self.bad = self.total = 0
        self.found: Any = None
        self.expected: Any = None
        self.ulps: float | None = None
        self.allowed: float | None = None
        if flags is None:
            return
        self.bad, self.total = int(flags.sum()), int(flags.size)
        self.index = tuple(int(i) for i in np.unravel_index(int(np.flatnonzero(flags)[0]), flags.shape))
        difference = finding.difference
        if difference is None:
            return
        self.found, self.expected = difference.found[self.index].item(), difference.expected[self.index].item()
        if difference.dtype.is_float:
            self.ulps = ulps_between(float(self.found), float(self.expected), difference.dtype)
            self.allowed = float(np.broadcast_to(difference.allowed, difference.found.shape)[self.index])

    def write_script(self, path: str | os.PathLike[str]) -> Path:
        """Writes the script that reproduces the failure; gives its path."""
        target = Path(path)
        target.write_text(self.script, encoding="utf-8")
        return target

    def write_artifacts(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Writes files about the failure into a folder (made where it is missing): the script, this text with a report of
        the machine's devices, what the compiler made of the kernel, its SPIR-V. Gives their paths."""
        from .artifacts import write_files

        kernel, groups = self._origin
        return write_files(Path(folder), kernel, self.finding, groups, str(self), self.script)

    # -- the text

    def _text(self, kernel: Kernel) -> str:
        parts = [
            self._headline(),
            *self._where(),
            *([f"help: {self.hint}"] if self.hint else []),
            "smallest failing input:",
            *_input_lines(kernel, self.finding),
        ]
        if self.bad:
            count = f"{self.bad} of {self.total} elements of {self.array} wrong"
            parts.append(count + (f": {self.pattern}" if self.pattern else ""))
        if self.larger:
            parts.append(self.larger)
        found_with = "" if self.seed is None else f"; found with seed={self.seed}"
        parts.append(f"on {self.device}, launched {self.schedule}{found_with}")
        lines = self.script.rstrip().splitlines()
        parts.append("as a program (also in .script, or .write_script(path)):")
        parts += [f"    {line}".rstrip() for line in lines[:_SCRIPT_LINES]]
        if len(lines) > _SCRIPT_LINES:
            parts.append(f"    ... {len(lines) - _SCRIPT_LINES} more lines")
        return "\n".join(parts)

    def _headline(self) -> str:
        place = f"{self.array}[{', '.join(map(str, self.index))}]" if self.index else self.array
        texts = {
            "unwritten": f"no invocation writes {place}, an element of an Out",
            "depends": f"{place} depends on what the Out held before the launch: it is read before it is written",
            "outside": f"writes outside of {self.array}, {self._offsets()} elements from its first one",
            "sanitizer": "\n".join(str(report) for report in self.reports),
            "report": f"{self.error}",
            "property": f"{self.error.message if self.error is not None else ''}",
        }
        if self.kind in texts:
            return f"{self.kernel}: {texts[self.kind]}"
        other = "the reference says" if self.kind == "reference" else f"{self.finding.other} says"
        text = f"{self.kernel}: {place} is {number_text(self.found)}, {other} {number_text(self.expected)}"
        if self.ulps is not None and np.isfinite(self.ulps):
            text += f" ({self.ulps:.3g} ULPs apart; difference allowed: {self.allowed:.3g})"
        return text

    def _offsets(self) -> str:
        places = self.finding.offsets
        return ", ".join(map(str, places[:4])) + ("..." if len(places) > 4 else "")

    def _where(self) -> list[str]:
        """The lines of the kernel's source."""
        mended = [] if self.mend is None else [f"{self.mend}:", _place(self.mend.loc)]
        if self.error is not None or self.reports:
            return mended
        if self.array and self.kind != "outside" and not self.origin.stores:
            return [f"nothing in the kernel writes {self.array}: it holds what it held before the launch", *mended]
        if not self.lines:
            return mended
        if self.write is not None:
            x, y, z = self.write.invocation
            head = f"written by invocation ({x}, {y}, {z}) of workgroup {self.write.group} here:"
            parts = [head, _place(self.write.loc)]
        else:
            parts = [f"{self.array} is written here:", *map(_place, self.origin.stores)]
        if self.origin.guards:
            parts += ["only where these let it:", *map(_place, self.origin.guards)]
        if self.origin.nan_losses:
            parts += ["NaN is taken for a number here:", *map(_place, self.origin.nan_losses)]
        if self.origin.births:
            parts += ["what is finite becomes infinite or NaN here:", *map(_place, self.origin.births)]
        return parts + mended


def _place(loc: Loc) -> str:
    return f"{loc}\n{render_caret(loc)}".rstrip()


def _lines(finding: Finding, origin: Origin) -> tuple[Loc, ...]:
    """The places in the source that the finding names, the most likely one first."""
    mended = [] if origin.mend is None else [origin.mend.loc]
    if finding.reports:
        sides = [r.loc for r in finding.reports] + [r.other.loc for r in finding.reports if r.other is not None]
        return tuple(dict.fromkeys(loc for loc in sides + mended if loc.line))
    if finding.error is not None and finding.error.loc.line:
        return tuple(dict.fromkeys([finding.error.loc, *mended]))
    return origin.lines


def _input_lines(kernel: Kernel, finding: Finding) -> list[str]:
    case = finding.case
    sizes = [f"{n} = {v}" for n, v in case.dims.items()] + [f"{n} = {t!r}" for n, t in case.dtypes.items()]
    lines = [f"    {', '.join(sizes)}"] if sizes else []
    for param in kernel.expanded_spec.params:
        value = case.arguments[param.name]
        if not isinstance(value, ArrayInput):
            lines.append(f"    {param.name} = {constant_text(value)}")
            continue
        layout = "" if value.layout.pitch or str(value.layout) == "C order" else f", {value.layout}"
        held = "an Out" if value.values is None else _shown(value.distinct)
        lines.append(f"    {param.name} = {held}  ({value.dtype!r}, shape {value.shape}{layout})")
    return lines


def _shown(values: Any) -> str:
    if values.size <= _SHOWN:
        return " ".join(np.array2string(values, separator=", ", floatmode="unique").split())
    flat = values.reshape(-1)
    with np.errstate(all="ignore"):
        odd = np.flatnonzero(flat != flat[0])
    if len(odd) == 0:
        return f"all {number_text(flat[0])}"
    if len(odd) <= 4:
        places = ", ".join(f"{number_text(flat[i])} at {_index_text(i, values.shape)}" for i in odd)
        return f"{number_text(flat[0])} everywhere but {places}"
    return f"[{', '.join(number_text(v) for v in flat[:6])}, ... {number_text(flat[-1])}]"


def _index_text(flat: Any, shape: Sequence[int]) -> str:
    index = tuple(int(i) for i in np.unravel_index(int(flat), tuple(shape)))
    return str(index[0]) if len(index) == 1 else str(index)


def _tiles(kernel: Kernel, finding: Finding) -> list[int]:
    """Lengths in which the work may be cut, the likely ones first."""
    local = finding.schedule.local or ()
    constants = [
        v
        for p, v in zip(kernel.expanded_spec.params, finding.case.arguments.values(), strict=True)
        if p.kind == "const"
    ]
    return list(dict.fromkeys(t for t in (*local, *tiles_of(kernel), *constants) if type(t) is int and t > 1))


def _pattern(kernel: Kernel, finding: Finding) -> str:
    flags = finding.flags
    return "" if flags is None else pattern_of(flags, _tiles(kernel, finding))


def _larger(kernel: Kernel, finding: Finding, larger: Sequence[Finding]) -> str:
    """The pattern in a larger case, where it says more than that of the smallest one."""
    flags = finding.flags
    best: tuple[bool, int, str] | None = None
    for other in larger:
        if flags is None or other.flags is None or other.flags.size <= flags.size:
            continue
        words = pattern_of(other.flags, _tiles(kernel, other))
        sizes = ", ".join(f"{n} = {v}" for n, v in other.case.dims.items()) or f"shape {other.flags.shape}"
        text = f"in a larger failing case ({sizes}): {int(other.flags.sum())} of {other.flags.size} wrong"
        telling = bool(words) and not other.flags.all()
        candidate = (telling, -other.flags.size, f"{text}: {words}" if words else text)
        best = candidate if best is None or candidate > best else best
    return "" if best is None else best[2]
