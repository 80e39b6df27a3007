"""What is left of a failure for those who look into it elsewhere: files in a folder.

Enters: a kernel, a `Finding`, texts. Leaves: `NAME.py`, the program that reproduces it; `NAME.txt`, what the failure says, and
the machine it happened on; `NAME.ir.txt`, what the compiler made of the kernel, pass by pass; `NAME.spv`, its SPIR-V.
"""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..devices import device as open_device
from ..devices import devices
from ..errors import VkjitError
from ..inspection import Inspection, inspect
from ..jit import Kernel
from ..runtime.interface import DeviceCaps
from .finding import Finding
from .run import Executor
from .schedules import variant

__all__ = ["write_files"]


def write_files(folder: Path, kernel: Kernel, finding: Finding, groups: Any, text: str, script: str) -> list[Path]:
    """Writes the files; gives their paths. What can't be made (code for a device without the kernel's types, say) is left
    out, with the reason in the text."""
    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"\W+", "_", kernel.name)
    paths = [folder / f"{name}.py"]
    paths[0].write_text(script, encoding="utf-8")
    notes = []
    try:
        inspected = _inspected(kernel, finding, groups)
        paths.append(folder / f"{name}.ir.txt")
        paths[-1].write_text(str(inspected), encoding="utf-8")
        title, caps = _target(finding)
        code = _spirv(kernel, inspected.signature, caps)
        paths.append(folder / f"{name}.spv")
        paths[-1].write_bytes(code)
        notes.append(f"{name}.spv: {len(code)} bytes for {title}; spirv-dis shows it")
    except VkjitError as error:
        notes.append(f"no code: {error}")
    paths.append(folder / f"{name}.txt")
    paths[-1].write_text("\n".join([text, "", *notes, "", _machine()]), encoding="utf-8")
    return paths


def _inspected(kernel: Kernel, finding: Finding, groups: Any) -> Inspection:
    """The kernel as it was launched, without a debug variant that the search chose by itself."""
    schedule = replace(finding.schedule, debug=None)
    executor = Executor(kernel, open_device(finding.executor), groups)
    with executor.placed(finding.case, executor.device) as placed:
        return inspect(variant(kernel, schedule), **placed.values)


def _target(finding: Finding) -> tuple[str, DeviceCaps]:
    """A Vulkan device: the one of the failure, else the first one, else one that has what most have."""
    found = [info for info in devices() if info.kind not in ("interpreter", "llvm-cpu") and not info.missing]
    chosen = next((info for info in found if info.name == finding.executor), found[0] if found else None)
    if chosen is not None and chosen.caps is not None:
        return chosen.name, chosen.caps
    from ..tools.opt import PLAIN_DEVICE

    return "a device as most are", PLAIN_DEVICE


def _spirv(kernel: Kernel, signature: Any, caps: DeviceCaps) -> bytes:
    from .. import compiler

    code = compiler.compile_kernel(kernel.expanded_spec, signature, caps).code
    return bytes(code)


def _machine() -> str:
    """What `python -m vkjit info` prints."""
    import argparse

    from ..cli import info

    text = io.StringIO()
    with redirect_stdout(text):
        info.run(argparse.Namespace(json=False))
    return text.getvalue()
