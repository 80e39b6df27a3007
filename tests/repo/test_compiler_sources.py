"""A test that cached kernels are invalidated by changes of all modules that generate code."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import vkjit
from vkjit.backends.table import BACKENDS, Backend
from vkjit.compiler.cache import COMPILER

PACKAGE = Path(vkjit.__file__).parent
GENERATORS = frozenset({"codegen", "frontend", "ir", "lang", "passes", "spirv"})
"""Folders whose modules generate code."""
NO_CODE = frozenset({"vkjit.backends.table", "vkjit.backends.selection"})
"""Modules that the compiler imports to find a back end."""


def files(sources: tuple[str, ...]) -> set[Path]:
    """Return the modules that the digest of `sources` covers."""
    found: set[Path] = set()
    for source in sources:
        path = PACKAGE / source
        found |= {path} if path.is_file() else set(path.glob("*.py") if source == "." else path.rglob("*.py"))
    return found


def imported(file: Path) -> set[str]:
    """Return the modules of the package that a module imports, except for type checkers."""
    package = ["vkjit", *file.relative_to(PACKAGE).parts[:-1]]
    found: set[str] = set()
    pending: list[ast.AST] = [ast.parse(file.read_text(encoding="utf-8"))]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            name = ".".join([*base, *([node.module] if node.module else [])])
            found |= {f"{name}.{alias.name}" for alias in node.names} | {name}
        pending += ast.iter_child_nodes(node)
    return {name for name in found if name.startswith("vkjit.")}


@pytest.mark.parametrize("backend", [backend for backend in BACKENDS if backend.target.cached], ids=lambda b: b.name)
def test_the_digest_covers_what_code_generators_import(backend: Backend) -> None:
    sources = (*COMPILER, *backend.target.sources)
    covered = files(sources)
    assert len(covered) > 100
    for file in covered:
        if GENERATORS.isdisjoint(file.relative_to(PACKAGE).parts):
            continue
        for name in imported(file) - NO_CODE:
            path = PACKAGE.joinpath(*name.split(".")[1:])
            module = path.with_suffix(".py")
            assert not module.is_file() or module in covered, f"{file}: {name} isn't among the sources"
