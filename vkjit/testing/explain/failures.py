"""The exception that a failing property test raises, and its message.

`CheckFailure` is an AssertionError whose attributes describe the failure. Its message shows the first wrong element and
the source lines at fault, a hint if there is one, the smallest failing input, the pattern of wrong elements, and a
script that reproduces the failure. `explainer` creates it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vkjit.errors import Loc, render_caret
from vkjit.files import write_text
from vkjit.launch.kernel import Kernel

from ..cases.case import ArrayInput
from ..cases.composites import assemble
from ..compare.outputs import ulps_between
from ..execution.shadow import Write
from ..generate.dimensions import tiles_of
from ..search.finding import Finding
from .localize import Repair
from .patterns import pattern_of
from .script import constant_text, number_text, script_of

__all__ = ["CheckFailure"]

_MAX_SHOWN = 16
"""Maximum number of elements of an array that is printed in full."""

_SCRIPT_LINES = 60
"""Maximum number of lines of the script that the message shows."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """What is known about the cause of the first wrong element.

    - `write`: the store that wrote the element, None if unknown.
    - `stores`: all stores to the array of the element.
    - `guards`: conditions around these stores, if nothing wrote the element.
    - `repair`: an edit that makes the kernel pass, None if none was found.
    - `nan_losses`: comparisons that ignore a NaN.
    - `nonfinite_origins`: operations that create NaN or infinities from finite operands.
    """

    write: Write | None
    stores: tuple[Loc, ...]
    guards: tuple[Loc, ...] = ()
    repair: Repair | None = None
    nan_losses: tuple[Loc, ...] = ()
    nonfinite_origins: tuple[Loc, ...] = ()

    @property
    def lines(self) -> tuple[Loc, ...]:
        """Source locations, the most likely cause first.

        The order is: the line that `repair` edits, comparisons that ignore a NaN, operations that create NaN or
        infinities, the store that wrote the wrong element (if this store is unknown, all stores to the array), and the
        conditions around the stores.
        """
        repaired = () if self.repair is None else (self.repair.loc,)
        written = self.stores if self.write is None else (self.write.loc,)
        return tuple(dict.fromkeys((*repaired, *self.nan_losses, *self.nonfinite_origins, *written, *self.guards)))


class CheckFailure(AssertionError):  # noqa: N818  the kernel failed, not the check
    """Raised if a kernel fails its property test.

    kind: "sanitizer" (see `reports`), "reference" (a result differs from the reference), "disagreement" (results differ
        between devices or schedules), "unwritten" (an element of an Out isn't written), "depends" (a result depends on
        the previous contents of an Out), "outside" (a write outside an array), "report" (the kernel raised an error) or
        "property" (a property is violated).
    kernel: the name of the kernel. arguments: the smallest failing input by parameter name (NumPy arrays, structured
        arrays for structs; None for an Out). dims: sizes by dimension name. dtypes: element types by type variable.
    device, schedule: the launch that failed.
    array, index: the first wrong element. found, expected: its two values. ulps: their distance in ULPs. bad, total:
        the numbers of wrong elements and of all elements. pattern: what the wrong elements have in common.
    lines: source locations (`Loc`) of the likely cause, the most likely first. mend: an edit that repairs the kernel
        (`Repair`), None if none was found. hint: a precondition that may be missing. reports: the sanitizer's reports.
    script: a program that reproduces the failure. seed: the seed with which the search can be repeated, None if none
        was given. finding: the complete record.
    """

    def __init__(
        self, kernel: Kernel, finding: Finding, origin: Provenance, larger: Sequence[Finding], groups: Any, hint: str = "",
        seed: int | None = None,
    ) -> None:  # fmt: skip
        self._kernel_and_groups = kernel, groups  # for `write_artifacts`; the attribute `kernel` is only its name
        self.finding = finding
        self.kind = finding.kind
        self.kernel = kernel.name
        self.case = finding.case
        parts = {n: v.values if isinstance(v, ArrayInput) else v for n, v in finding.case.arguments.items()}
        self.arguments: dict[str, Any] = assemble(kernel.expanded_spec, parts)
        self.dims = dict(finding.case.dims)
        self.dtypes = dict(finding.case.dtypes)
        self.device = finding.executor
        self.schedule = finding.schedule
        self.array = finding.array
        self.error = finding.error
        self.write, self.mend = origin.write, origin.repair
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
        """Set the attributes for the first wrong element and the number of wrong elements."""
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
        """Write the script that reproduces the failure and return its path."""
        target = Path(path)
        write_text(target, self.script)
        return target

    def write_artifacts(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write the failure's files to a folder, creating it if needed, and return their paths.

        The files are the script, the message with a report on the machine's devices, the kernel's IR after each pass
        and its SPIR-V.
        """
        from .artifacts import write_files

        kernel, groups = self._kernel_and_groups
        return write_files(Path(folder), kernel, self.finding, groups, str(self), self.script)

    # -- the text

    def _text(self, kernel: Kernel) -> str:
        """Return the message."""
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
        """Return the first line of the message: the kernel and what is wrong."""
        element = f"{self.array}[{', '.join(map(str, self.index))}]" if self.index else self.array
        texts = {
            "unwritten": f"no invocation writes {element}, an element of an Out",
            "depends": f"{element} depends on what the Out held before the launch: it is read before it is written",
            "outside": f"writes outside of {self.array}, {self._offsets()} elements from its first one",
            "sanitizer": "\n".join(str(report) for report in self.reports),
            "report": f"{self.error}",
            "property": f"{self.error.message if self.error is not None else ''}",
        }
        if self.kind in texts:
            return f"{self.kernel}: {texts[self.kind]}"
        other = "the reference says" if self.kind == "reference" else f"{self.finding.other} says"
        text = f"{self.kernel}: {element} is {number_text(self.found)}, {other} {number_text(self.expected)}"
        if self.ulps is not None and np.isfinite(self.ulps):
            text += f" ({self.ulps:.3g} ULPs apart; difference allowed: {self.allowed:.3g})"
        return text

    def _offsets(self) -> str:
        """Return the first offsets of writes outside the array as text."""
        all_offsets = self.finding.offsets
        return ", ".join(map(str, all_offsets[:4])) + ("..." if len(all_offsets) > 4 else "")

    def _where(self) -> list[str]:
        """Return the part of the message that shows lines of the kernel's source, as lines of text."""
        repair = [] if self.mend is None else [f"{self.mend}:", _location_text(self.mend.loc)]
        if self.error is not None or self.reports:
            return repair
        if self.array and self.kind != "outside" and not self.origin.stores:
            return [f"nothing in the kernel writes {self.array}: it holds what it held before the launch", *repair]
        if not self.lines:
            return repair
        if self.write is not None:
            x, y, z = self.write.invocation
            headline = f"written by invocation ({x}, {y}, {z}) of workgroup {self.write.group} here:"
            parts = [headline, _location_text(self.write.loc)]
        else:
            parts = [f"{self.array} is written here:", *map(_location_text, self.origin.stores)]
        if self.origin.guards:
            parts += ["only where these let it:", *map(_location_text, self.origin.guards)]
        if self.origin.nan_losses:
            parts += ["NaN is taken for a number here:", *map(_location_text, self.origin.nan_losses)]
        if self.origin.nonfinite_origins:
            parts += [
                "what is finite becomes infinite or NaN here:",
                *map(_location_text, self.origin.nonfinite_origins),
            ]
        return parts + repair


def _location_text(loc: Loc) -> str:
    """Return a source location as text, with the source line and a caret below it."""
    return f"{loc}\n{render_caret(loc)}".rstrip()


def _lines(finding: Finding, origin: Provenance) -> tuple[Loc, ...]:
    """Return the source locations of the likely cause, the most likely first.

    For the sanitizer's reports, these are both accesses of each race; for an error, the line that raised it.
    """
    repaired = [] if origin.repair is None else [origin.repair.loc]
    if finding.reports:
        sides = [r.loc for r in finding.reports] + [r.other.loc for r in finding.reports if r.other is not None]
        return tuple(dict.fromkeys(loc for loc in sides + repaired if loc.line))
    if finding.error is not None and finding.error.loc.line:
        return tuple(dict.fromkeys([finding.error.loc, *repaired]))
    return origin.lines


def _input_lines(kernel: Kernel, finding: Finding) -> list[str]:
    """Describe the failing input: a line for sizes and types, and one per argument."""
    case = finding.case
    sizes = [f"{n} = {v}" for n, v in case.dims.items()] + [f"{n} = {t!r}" for n, t in case.dtypes.items()]
    lines = [f"    {', '.join(sizes)}"] if sizes else []
    for param in kernel.expanded_spec.params:
        value = case.arguments[param.name]
        if not isinstance(value, ArrayInput):
            lines.append(f"    {param.name} = {constant_text(value)}")
            continue
        # nothing is said about C order, nor about fields in an array of structs, whose layout has a pitch
        layout = "" if value.layout.pitch or str(value.layout) == "C order" else f", {value.layout}"
        contents = "an Out" if value.values is None else _array_summary(value.distinct)
        lines.append(f"    {param.name} = {contents}  ({value.dtype!r}, shape {value.shape}{layout})")
    return lines


def _array_summary(values: Any) -> str:
    """Describe an array: in full if it is short, else by a few elements that differ from the first, or by its ends."""
    if values.size <= _MAX_SHOWN:
        return " ".join(np.array2string(values, separator=", ", floatmode="unique").split())
    flat = values.reshape(-1)
    with np.errstate(all="ignore"):
        different = np.flatnonzero(flat != flat[0])
    if len(different) == 0:
        return f"all {number_text(flat[0])}"
    if len(different) <= 4:
        exceptions = ", ".join(f"{number_text(flat[i])} at {_index_text(i, values.shape)}" for i in different)
        return f"{number_text(flat[0])} everywhere but {exceptions}"
    return f"[{', '.join(number_text(v) for v in flat[:6])}, ... {number_text(flat[-1])}]"


def _index_text(flat: Any, shape: Sequence[int]) -> str:
    """Return the index of the element with the flat index `flat` as text."""
    index = tuple(int(i) for i in np.unravel_index(int(flat), tuple(shape)))
    return str(index[0]) if len(index) == 1 else str(index)


def _tiles(kernel: Kernel, finding: Finding) -> list[int]:
    """Return sizes of blocks that the kernel may use, the most likely first.

    They are the workgroup size of the launch, the candidates of `tiles_of`, and the case's Const arguments.
    """
    local = finding.schedule.local or ()
    constants = [
        v
        for p, v in zip(kernel.expanded_spec.params, finding.case.arguments.values(), strict=True)
        if p.kind == "const"
    ]
    return list(dict.fromkeys(t for t in (*local, *tiles_of(kernel), *constants) if type(t) is int and t > 1))


def _pattern(kernel: Kernel, finding: Finding) -> str:
    """Describe the pattern of the wrong elements; "" if there are none, or no pattern is recognized."""
    flags = finding.flags
    return "" if flags is None else pattern_of(flags, _tiles(kernel, finding))


def _larger(kernel: Kernel, finding: Finding, larger: Sequence[Finding]) -> str:
    """Describe the wrong elements of one of the larger failing cases; "" if there is none.

    Cases in which a pattern is recognized and some elements are right come first, then smaller cases.
    """
    flags = finding.flags
    best: tuple[bool, int, str] | None = None
    for other in larger:
        if flags is None or other.flags is None or other.flags.size <= flags.size:
            continue
        pattern = pattern_of(other.flags, _tiles(kernel, other))
        sizes = ", ".join(f"{n} = {v}" for n, v in other.case.dims.items()) or f"shape {other.flags.shape}"
        text = f"in a larger failing case ({sizes}): {int(other.flags.sum())} of {other.flags.size} wrong"
        informative = bool(pattern) and not other.flags.all()
        # the greatest tuple wins: informative, then small
        candidate = (informative, -other.flags.size, f"{text}: {pattern}" if pattern else text)
        best = candidate if best is None or candidate > best else best
    return "" if best is None else best[2]
