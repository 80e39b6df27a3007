"""Inspection of a kernel's compilation: its code at each stage, from Python source to device code.

`inspect` takes a kernel and the arguments of a launch, `inspect_signature` a signature. Both return an `Inspection`
with the Python source, the IR after each pass with diffs, the device code, and the driver's statistics. It renders as
text, as a self-contained HTML page and in notebooks. Nothing is launched, and the caches are neither read nor written.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import Any, TypeVar

from .. import dtypes
from ..backends.selection import default_device
from ..backends.table import target_of
from ..dtypes import DType
from ..errors import ArgumentError
from ..frontend import REQUIRED, ArrayArg, ConstArg, ParamSpec, ScalarArg, Signature, tune_choice
from ..launch import grid
from ..launch.kernel import Kernel
from ..runtime.artifact import KernelArtifact
from ..runtime.device import Device, DeviceCaps

__all__ = ["Inspection", "Stage", "guess_signature", "inspect", "inspect_signature"]

KINDS = ("python", "ir", "llvm", "assembly", "spirv")
"""Kinds of stages in compilation order; not every device has all of them."""
_NUMBER = re.compile(r"%\d+")  # a value of the IR
_CONTEXT = 2  # unchanged lines around each change


@dataclass(frozen=True, slots=True)
class Stage:
    """The kernel at one stage of compilation.

    `name` is the pass or back end, `kind` one of `KINDS`, `title` a heading for people. `text` is the code after this
    stage. `changed` holds the lines of a unified diff against the previous IR stage; it is empty if nothing changed.
    `milliseconds` is the time the stage took, including the verifier's if it is enabled.
    """

    name: str
    kind: str
    title: str
    text: str
    changed: tuple[str, ...] = ()
    milliseconds: float = 0.0

    @property
    def added(self) -> int:
        """Number of added lines."""
        return sum(line.startswith("+") for line in self.changed)

    @property
    def removed(self) -> int:
        """Number of removed lines."""
        return sum(line.startswith("-") for line in self.changed)


@dataclass(frozen=True, slots=True)
class Inspection:
    """The stages of a kernel compiled for one signature and device.

    `stages` are in compilation order. `facts` describe the code by label: size, workgroup, argument block, shared
    memory, features. `statistics` are the driver's, under its own names, and empty if it provides none. `print()` shows
    everything; notebooks show it folded.
    """

    kernel: str
    device: str
    signature: Signature
    stages: tuple[Stage, ...]
    facts: dict[str, str] = field(default_factory=dict)
    statistics: dict[str, int | float] = field(default_factory=dict)

    def stage(self, name: str) -> Stage:
        """Return the last stage with this name or kind: "python", "ir", "spirv", "cse", ...

        Raises ArgumentError, which lists the existing names, if there is none.
        """
        matches = [s for s in self.stages if name in (s.name, s.kind)]
        if not matches:
            available = dict.fromkeys([s.kind for s in self.stages] + [s.name for s in self.stages])
            raise ArgumentError(f"{self.kernel} has no stage {name!r} on {self.device}; it has {', '.join(available)}")
        return matches[-1]

    def text(self, which: str = "all", *, diff: bool = False) -> str:
        """Return stages as text; IR passes that changed nothing take one line.

        `which` is "all", "statistics" (facts and statistics only), or the kind or name of stages. With `diff`, only the
        changed lines of the IR after each pass are shown.
        """
        if which not in ("all", "statistics"):
            self.stage(which)
        shown = [s for s in self.stages if which in ("all", s.kind, s.name)]
        parts = [_stage_text(s, diff and s.kind == "ir" and s.name != "frontend") for s in shown]
        if which in ("all", "statistics"):
            parts += [_table("Code", self.facts), _table("Statistics of the driver", self.statistics)]
        return "\n".join(part for part in parts if part)

    def __str__(self) -> str:
        return self.text()

    def html(self) -> str:
        """Return a complete HTML page with inline style and no scripts."""
        title = _escaped(f"{self.kernel} on {self.device}")
        head = f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>'
        return f"{head}\n<body>\n{self._repr_html_()}\n</body></html>\n"

    def _repr_html_(self) -> str:
        """Return the HTML for notebooks, with all stages folded."""
        parts = [f"<style>{_STYLE}</style>", f"<h3>{_escaped(self.kernel)} on {_escaped(self.device)}</h3>"]
        parts += [_stage_html(stage) for stage in self.stages]
        parts += [_table_html("Code", self.facts), _table_html("Statistics of the driver", self.statistics)]
        return f'<div class="vkjit">\n{chr(10).join(part for part in parts if part)}\n</div>'


# -- entry points


def inspect(kernel: Any, *args: Any, **kwargs: Any) -> Inspection:
    """Return the compilation stages of the code that a launch with these arguments would run.

    The device is the one that the launch would use. Without arguments, the kernel is compiled on the default device for
    contiguous arrays that fit the annotations, with f32 for free type variables. Raises ArgumentError and CompileError
    as the launch would.
    """
    if not isinstance(kernel, Kernel):
        raise ArgumentError(f"vk.inspect takes a kernel, found {kernel!r}: decorate the function with @vk.kernel")
    if not args and not kwargs:
        device = default_device()
        return inspect_signature(kernel, guess_signature(kernel, device), device)
    tuned = kernel.tuned_settings(args, kwargs) if kernel._tunable else None
    if tuned is not None:  # a launch runs that kernel
        kernel, kwargs = tuned.kernel, {**kwargs, **tuned.constants}
    probe = _SignatureProbe.__new__(_SignatureProbe)
    vars(probe).update(vars(kernel))  # it has the kernel's state, but stops before compilation
    probe._plans, probe._forms, probe._tunable = {}, {}, False  # no launch is known, so that none is made
    try:
        probe(*args, **kwargs)
    except _SignatureFound as signal:
        return inspect_signature(kernel, signal.signature, signal.device)
    raise ArgumentError(f"{kernel.name} wasn't compiled for these arguments")


class _SignatureFound(Exception):  # noqa: N818  control flow, not an error
    """Carries the device and signature of a launch out of `_SignatureProbe`."""

    def __init__(self, device: Device, signature: Signature) -> None:
        super().__init__()
        self.device, self.signature = device, signature


class _SignatureProbe(Kernel):
    """A kernel that performs a launch up to the point of compilation, then raises `_SignatureFound`."""

    def _launch_anew(self, groups: grid.Grid | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if groups is None and self.spec.over is None and self._groups is None:
            groups = (1, 1, 1)  # a launch needs kernel[groups], but the code doesn't depend on the number of workgroups
        return self._launch_fully(groups, args, kwargs)

    def _compile(self, key: Any, device: Device, signature: Signature, values: list[Any]) -> Any:
        raise _SignatureFound(device, signature)


def guess_signature(
    kernel: Kernel, device: Device | DeviceCaps, choices: dict[str, Any] | None = None, local: tuple[int, ...] = ()
) -> Signature:
    """Return a signature of contiguous arrays that fits the annotations.

    `choices` maps the name of a type variable or unannotated parameter to an element type (default f32), and the name
    of a Const parameter to its value. `local` is the workgroup size; by default, the kernel's own or the device's
    default. Raises ArgumentError for a Const parameter without a value.
    """
    choices, rank = choices or {}, 1
    caps = device if isinstance(device, DeviceCaps) else device.caps
    args: list[ArrayArg | ScalarArg | ConstArg] = []
    typevars: dict[str, DType] = {}
    spec = kernel._expanded
    for param in spec.params:
        if param.kind == "const":
            args.append(ConstArg(_const_value(param, choices)))
            continue
        dtype = _element_type(param, choices)
        if isinstance(param.dtype, TypeVar):
            typevars[param.dtype.__name__] = dtype
        if param.kind == "scalar":
            args.append(ScalarArg(dtype))
            continue
        dims = len(str(param.dims).split()) if param.dims is not None else 1
        rank = dims if param.name == kernel.spec.over else rank  # the grid has the axes of the array `over`
        args.append(ArrayArg(dtype, dims, contiguous=True, restrict=True))
    size = local or kernel.declared_local() or grid.default_local_size(rank, caps)
    padded = (*size, 1, 1)  # with at least three axes
    bounds = caps.kind in ("cpu", "llvm-cpu", "interpreter")  # where launches check bounds by default
    return Signature(
        tuple(args),
        local_size=(padded[0], padded[1], padded[2]),
        narrow=True,
        bounds=bounds,
        typevars=tuple(sorted(typevars.items())),
    )


def _element_type(param: ParamSpec, choices: dict[str, Any]) -> DType:
    """Return a parameter's element type: annotated, chosen by name, or f32."""
    if isinstance(param.dtype, DType):
        return param.dtype
    name = param.dtype.__name__ if isinstance(param.dtype, TypeVar) else param.name
    chosen = choices.get(name, "f32")
    result = chosen if isinstance(chosen, DType) else dtypes.by_name.get(chosen)
    if result is None:
        raise ArgumentError(f"no element type is named {chosen!r}: expected one of {', '.join(dtypes.by_name)}")
    return result


def _const_value(param: ParamSpec, choices: dict[str, Any]) -> Any:
    """Return the value of a Const parameter: chosen, or its default."""
    if param.name in choices:
        return choices[param.name]
    if param.default is REQUIRED:
        raise ArgumentError(f"the Const parameter {param.name} has no value: give {param.name}=...")
    return tune_choice(param.default)


# -- compilation


def inspect_signature(kernel: Kernel, signature: Signature, device: Device) -> Inspection:
    """Compile the kernel for a signature and device, and return all stages. Raises CompileError, FeatureError."""
    from ..compiler import driver
    from ..frontend.source import source_of
    from ..ir.printer import print_module
    from ..ir.rewrite import clone_module

    spec, caps = kernel._expanded, device.caps
    stages = [Stage("python", "python", f"Python: {kernel.name}", source_of(kernel.spec.fn).text())]
    clock = _Stopwatch()

    def after_pass(name: str, module: Any) -> None:
        spent = clock.stop()
        text = print_module(module)
        previous = stages[-1].text if stages[-1].kind == "ir" else None
        title = "IR of the front end" if name == "frontend" else f"IR after {name}"
        changed = () if previous is None else _changed(previous, text)
        stages.append(Stage(name, "ir", title, text, changed, spent))
        clock.start()

    module = driver.lower_for(spec, signature, caps, after_pass=after_pass)
    target = target_of(caps)
    artifact = target.emit(clone_module(module), caps)
    spent = clock.stop()
    listings = target.listings(module, caps, artifact)
    for name, kind, title, text in listings:
        stages.append(Stage(name, kind, title.format(device=device.name), text, (), spent))
        spent = 0.0
    query = getattr(device, "kernel_statistics", None)
    statistics: dict[str, int | float] = query(artifact) if query is not None else {}
    return Inspection(kernel.name, device.name, signature, tuple(stages), _facts(artifact), statistics)


class _Stopwatch:
    """A stopwatch: milliseconds between the last `start` (or construction) and `stop`."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        self._begun = time.perf_counter()

    def stop(self) -> float:
        return (time.perf_counter() - self._begun) * 1e3


def _changed(before: str, after: str) -> tuple[str, ...]:
    """Return the lines of a unified diff of two IR texts, without its header.

    Values are numbered in order of appearance, so a single new operation renumbers all that follow. Lines that differ
    only in value numbers therefore count as equal, unless there is no other difference.
    """
    if before == after:
        return ()
    old, new = before.splitlines(), after.splitlines()
    without_numbers = _diff(old, new, [_NUMBER.sub("%", x) for x in old], [_NUMBER.sub("%", x) for x in new])
    return without_numbers or _diff(old, new, old, new)


def _diff(old: list[str], new: list[str], old_keys: list[str], new_keys: list[str]) -> tuple[str, ...]:
    """Return a unified diff of two lists of lines, which are compared by their keys."""
    import difflib

    lines: list[str] = []
    for group in difflib.SequenceMatcher(None, old_keys, new_keys, autojunk=False).get_grouped_opcodes(_CONTEXT):
        first_new_line = group[0][3]  # j1 of the first opcode
        lines.append(f"@@ line {first_new_line + 1}")
        for tag, i1, i2, j1, j2 in group:  # old[i1:i2] became new[j1:j2]
            if tag == "equal":
                lines += [f" {line}" for line in new[j1:j2]]
                continue
            lines += [f"-{line}" for line in old[i1:i2]] + [f"+{line}" for line in new[j1:j2]]
    return tuple(lines)


def _facts(artifact: KernelArtifact) -> dict[str, str]:
    """Describe the compiled kernel: label -> text. See `Inspection.facts`."""
    facts = {
        "workgroup": " x ".join(map(str, artifact.local_size)),
        "argument block": f"{artifact.block_size} bytes{', in memory' if artifact.indirect else ''}",
        "fields": ", ".join(f"{f.role} of {f.arg}" if f.arg >= 0 else f.role for f in artifact.fields),
        "shared memory": f"{artifact.shared_bytes} bytes",
        "places that report errors": str(len(artifact.sites)),
        "features": ", ".join(sorted(artifact.features)) or "none beyond what every device has",
    }
    if isinstance(artifact.code, bytes):
        facts = {"code": f"{len(artifact.code)} bytes", **facts}
    if artifact.subgroup_size is not None:
        facts["subgroup size"] = str(artifact.subgroup_size)
    return facts


# -- rendering


def _stage_text(stage: Stage, diff: bool) -> str:
    """Render a stage as text: its code, or with `diff` its changed lines. IR without changes takes one line."""
    if stage.kind == "ir" and stage.name != "frontend" and not stage.changed:
        return f"\n==== {stage.title}: nothing changed ({stage.milliseconds:.1f} ms)"
    note = f" ({_summary(stage)})" if stage.kind == "ir" else ""
    body = "\n".join(stage.changed) if diff else stage.text.rstrip("\n")
    return f"\n==== {stage.title}{note}\n{body}"


def _summary(stage: Stage) -> str:
    """Return the number of changed lines and the time of a stage."""
    lines = f"+{stage.added} -{stage.removed} lines, " if stage.changed else ""
    return f"{lines}{stage.milliseconds:.1f} ms"


def _table(title: str, rows: dict[str, Any]) -> str:
    """Render names and values as a text table; "" if there are none."""
    if not rows:
        return ""
    width = max(map(len, rows))
    return f"\n==== {title}\n" + "\n".join(f"{name:{width}}  {value}" for name, value in rows.items())


_STYLE = (
    ".vkjit pre{margin:0;padding:.5em;overflow:auto;max-height:40em;font:12px/1.4 monospace;background:#f6f6f6;color:#222}"
    ".vkjit summary{cursor:pointer;padding:.2em 0}.vkjit .same{color:#888;padding:.2em 0 .2em 1em}"
    ".vkjit ins{background:#d8f5d8;text-decoration:none}.vkjit del{background:#f9d9d9;text-decoration:none}"
    ".vkjit td{padding:0 1em 0 0;text-align:left}.vkjit small{color:#666}"
)


def _stage_html(stage: Stage) -> str:
    """Render a stage as a folded HTML element: its changed lines if there are any, and its code."""
    title = _escaped(stage.title)
    if stage.kind == "ir" and stage.name != "frontend" and not stage.changed:
        return f'<div class="same">{title}: nothing changed</div>'
    note = f" <small>{_summary(stage)}</small>" if stage.kind == "ir" else ""
    body = f"<pre>{_escaped(stage.text)}</pre>"
    if stage.changed:
        diff = "\n".join(map(_line_html, stage.changed))
        body = f"<pre>{diff}</pre><details><summary>complete code</summary>{body}</details>"
    return f"<details><summary>{title}{note}</summary>{body}</details>"


def _escaped(text: str) -> str:
    """Escape text for HTML."""
    import html  # deferred, because `import vkjit` imports this module

    return html.escape(text)


def _line_html(line: str) -> str:
    """Render a line of a diff, marked as inserted or deleted."""
    text = _escaped(line)
    tag = {"+": "ins", "-": "del"}.get(line[:1])
    return f"<{tag}>{text}</{tag}>" if tag else text


def _table_html(title: str, rows: dict[str, Any]) -> str:
    """Render names and values as an HTML table; "" if there are none."""
    if not rows:
        return ""
    cells = "".join(
        f"<tr><td>{_escaped(name)}</td><td>{_escaped(str(value))}</td></tr>" for name, value in rows.items()
    )
    return f"<details open><summary>{_escaped(title)}</summary><table>{cells}</table></details>"
