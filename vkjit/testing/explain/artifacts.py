"""The files that `CheckFailure.write_artifacts` writes, to investigate a failure on another machine.

The files are `NAME.py`, a script that reproduces the failure; `NAME.txt`, its message and a description of the machine;
`NAME.ir.txt`, the IR after each pass; and `NAME.spv`, the SPIR-V. NAME is the name of the kernel.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from vkjit.api.inspection import Inspection, inspect
from vkjit.backends.selection import device as open_device, devices
from vkjit.errors import VkjitError
from vkjit.files import replacing, write_text
from vkjit.launch.kernel import Kernel
from vkjit.runtime.device import DeviceCaps

from ..cases.schedules import variant
from ..execution.run import Executor
from ..search.finding import Finding

__all__ = ["write_files"]


def write_files(folder: Path, kernel: Kernel, finding: Finding, groups: Any, text: str, script: str) -> list[Path]:
    """Write the files to `folder`, creating it if needed, and return their paths.

    `groups` is the user's number of workgroups, or a function that computes it. `text` is the message of the failure,
    and `script` the program that reproduces the failure. Files that can't be produced, for example because no device
    supports the kernel's types, are left out; `NAME.txt` says why.
    """
    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"\W+", "_", kernel.name)
    paths = [folder / f"{name}.py"]
    write_text(paths[0], script)
    notes = []
    try:
        inspected = _inspected(kernel, finding, groups)
        paths.append(folder / f"{name}.ir.txt")
        write_text(paths[-1], str(inspected))
        title, caps = _target(finding)
        code = _spirv(kernel, inspected.signature, caps)
        paths.append(folder / f"{name}.spv")
        with replacing(paths[-1]) as file:
            file.write(code)
        notes.append(f"{name}.spv: {len(code)} bytes for {title}; spirv-dis shows it")
    except VkjitError as error:
        notes.append(f"no code: {error}")
    paths.append(folder / f"{name}.txt")
    write_text(paths[-1], "\n".join([text, "", *notes, "", _machine()]))
    return paths


def _inspected(kernel: Kernel, finding: Finding, groups: Any) -> Inspection:
    """Compile the kernel for the failing schedule and arguments, and return the inspection (the IR after each pass).

    The kernel's own setting of debug mode is used, since the check may have enabled it only to find errors.
    """
    schedule = replace(finding.schedule, debug=None)
    executor = Executor(kernel, open_device(finding.executor), groups)
    with executor.placed(finding.case, executor.device) as placed:
        return inspect(variant(kernel, schedule), **placed.values)


def _target(finding: Finding) -> tuple[str, DeviceCaps]:
    """Return the name and capabilities (caps) of the device for which to emit SPIR-V.

    This is the device on which the kernel failed if it is a Vulkan device, else the first Vulkan device of the machine.
    Without Vulkan devices, it is a generic device without optional features.
    """
    candidates = [info for info in devices() if info.kind not in ("interpreter", "llvm-cpu") and not info.missing]
    chosen = next((info for info in candidates if info.name == finding.executor), candidates[0] if candidates else None)
    if chosen is not None and chosen.caps is not None:
        return chosen.name, chosen.caps
    from vkjit.passes.registry import PLAIN_DEVICE

    return "a generic device", PLAIN_DEVICE


def _spirv(kernel: Kernel, signature: Any, caps: DeviceCaps) -> bytes:
    """Compile the kernel to SPIR-V for a device with these caps."""
    from vkjit.compiler import driver

    code = driver.compile_kernel(kernel.expanded_spec, signature, caps).code
    return bytes(code)


def _machine() -> str:
    """Describe the machine and its devices, as `python -m vkjit info` does."""
    from vkjit.api import environment

    return environment.describe(environment.gather()) + "\n"
