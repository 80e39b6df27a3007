"""Tests of SPIR-V modules with added address checks: valid, complete, and only for pointers that can be traced."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path

import pytest

from tests.device.language.codegen_kernels import GPU
from vkjit.backends.vulkan import codegen
from vkjit.errors import InternalError
from vkjit.ir.parser import parse_module
from vkjit.runtime.artifact import KernelArtifact
from vkjit.spirv import tools
from vkjit.testing.fuzz.watch import watched
from vkjit.testing.fuzz.watch.instrument import Watched
from vkjit.testing.fuzz.watch.reader import Instruction, Reader

FILES = sorted((Path(__file__).resolve().parents[2] / "golden" / "spirv").glob("*.ir"))
MATRICES = dataclasses.replace(GPU, features=GPU.features | {"cooperative_matrix"})
SMALL_BLOCK = dataclasses.replace(MATRICES, push_constant_bytes=8)
ACCESSES = ("OpLoad", "OpStore", "OpAtomic", "OpCooperativeMatrixLoadKHR", "OpCooperativeMatrixStoreKHR")


def artifact_of(path: Path, indirect: bool = False) -> KernelArtifact:
    source = path.read_text(encoding="utf-8").partition("// expect\n")[0]
    caps = SMALL_BLOCK if indirect else MATRICES
    if source.startswith("// emit CPU"):
        caps = dataclasses.replace(caps, subgroup_sizes=(8,))
    return codegen.emit(parse_module(source, path.name), caps)


def watch(artifact: KernelArtifact) -> Watched:
    spans = {(item.role, item.arg): (-16, 64) for item in artifact.fields}
    return watched(artifact.code, artifact.fields, spans, 1 << 40, indirect=artifact.indirect)


@pytest.mark.parametrize("indirect", [False, True])
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_access_to_a_buffer_is_checked(path: Path, indirect: bool) -> None:
    artifact = artifact_of(path, indirect)
    reader = Reader.of(artifact.code)
    assert reader.to_bytes() == artifact.code
    wanted: Counter[str] = Counter()
    for made in reader.instructions:
        pointer = made.operands[0] if made.operands else 0
        if made.name.startswith(ACCESSES) and pointer in reader.definitions:
            is_block = made.name == "OpLoad" and reader.definitions[pointer].operands[0] in blocks(reader, artifact)
            wanted[made.name] += reader.storage(pointer) == "PhysicalStorageBuffer" and not is_block
    result = watch(artifact)
    found = Counter(site.name for site in result.sites if "array" not in site.target)
    assert found.total() > 0
    assert {name: found[name] for name in wanted if wanted[name]} == {name: n for name, n in wanted.items() if n}
    if tools.available():
        tools.validate(result.code)


def blocks(reader: Reader, artifact: KernelArtifact) -> set[int]:
    """Return the pointer to the argument block if the block is in a buffer."""
    found = [
        made.result
        for made in reader.instructions
        if made.name == "OpConvertUToPtr" and reader.definitions[made.operands[0]].name == "OpLoad"
    ]
    return set(found[:1]) if artifact.indirect else set()


def test_matrices_have_checks_in_both_kinds_of_memory() -> None:
    sites = watch(artifact_of(next(path for path in FILES if path.stem == "matrices"))).sites
    matrices = [site for site in sites if site.name.startswith("OpCooperative")]
    assert {site.target.split()[0] for site in matrices} == {"parameter", "workgroup"}
    assert all(site.align in (4, 8, 16) for site in matrices)


def test_pointers_that_cannot_be_followed() -> None:
    artifact = artifact_of(next(path for path in FILES if path.stem == "saxpy"))
    with pytest.raises(InternalError, match="no address of the argument block"):
        watched(artifact.code, [], {}, 1 << 40)
    with pytest.raises(InternalError, match="isn't given"):
        watched(artifact.code, artifact.fields, {}, 1 << 40)


def test_an_unknown_use_of_a_pointer() -> None:
    artifact = artifact_of(next(path for path in FILES if path.stem == "saxpy"))
    reader = Reader.of(artifact.code)
    place = next(n for n, made in enumerate(reader.instructions) if made.name == "OpStore")
    pointer = reader.instructions[place].operands[0]
    reader.instructions.insert(place, Instruction("OpCopyMemory", 0, 0, (pointer, pointer, 2, 4)))
    spans = {(item.role, item.arg): (0, 64) for item in artifact.fields}
    with pytest.raises(InternalError, match="OpCopyMemory takes a pointer into a buffer"):
        watched(reader.to_bytes(), artifact.fields, spans, 1 << 40)
    with pytest.raises(InternalError, match="magic number"):
        Reader.of(b"\0" * 64)
