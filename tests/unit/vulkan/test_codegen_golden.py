"""Golden tests of SPIR-V: one file holds IR and the disassembly of the emitted module, which passes spirv-val.

A file under `golden/spirv` is IR text, with `// emit GPU`, `CPU` or `MATRICES` (the capabilities) in its first line,
and after the line `// expect` the disassembly as comments. `VKJIT_BLESS=1` rewrites the expectation.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from tests.device.language.codegen_kernels import GPU
from vkjit.backends.vulkan import codegen
from vkjit.ir.parser import parse_module
from vkjit.ir.verify import verify
from vkjit.spirv import tools
from vkjit.spirv.disassemble import disassemble

FOLDER = Path(__file__).resolve().parents[2] / "golden" / "spirv"
FILES = sorted(FOLDER.glob("*.ir"))
MARK = "// expect\n"

CPU = dataclasses.replace(
    GPU,
    kind="cpu",
    subgroup_sizes=(8,),
    push_constant_bytes=128,
    max_groups=(65535, 65535, 65535),
    quirks=frozenset({"slow_subgroup_arithmetic", "shuffle_up_constant"}),
    features=frozenset(name for name in GPU.features if "atomic_add" not in name and not name.startswith("denorm")),
)
"""A software rasterizer."""

MATRICES = dataclasses.replace(GPU, features=GPU.features | {"cooperative_matrix"})
"""A GPU with cooperative matrices."""

CAPS = {"GPU": GPU, "CPU": CPU, "MATRICES": MATRICES}


def test_there_are_goldens() -> None:
    assert len(FILES) >= 5


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_golden(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    source, _, wanted = text.partition(MARK)
    first = source.splitlines()[0].split()
    assert first[:2] == ["//", "emit"], f"{path.name} starts with '// emit GPU' or '// emit CPU'"
    module = parse_module(source, path.name)
    verify(module)
    artifact = codegen.emit(module, CAPS[first[2]])
    found = "".join(f"// {line}\n" for line in disassemble(artifact.code, header=False, indent=False).splitlines())
    if os.environ.get("VKJIT_BLESS", "0") not in ("", "0"):
        path.write_text(source + MARK + found, encoding="utf-8")
    else:
        assert found == wanted
    if tools.available():
        tools.validate(artifact.code, "vulkan1.2")
        tools.validate(artifact.code, "vulkan1.3")
