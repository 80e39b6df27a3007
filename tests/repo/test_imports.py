"""Tests of imports: importing vkjit loads no driver, parser or optional package, and layers are respected."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

import vkjit as vk
from tests.repo import checkout

# Loaded on first use, or never.
NOT_AT_IMPORT = {
    "vulkan",
    "lark",
    "torch",
    "rich",
    "sklearn",
    "scipy",
    "PIL",
    "matplotlib",
    "safetensors",
    "llvmlite",
    "asyncio",
    "multiprocessing",
    "hypothesis",
    "pytest",
}


def _run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=checkout.ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_vkjit_loads_neither_driver_nor_parser_nor_optional_packages() -> None:
    # modules that numpy loads don't count
    loaded = set(
        _run("import numpy, sys; before = set(sys.modules); import vkjit; print(*set(sys.modules) - before)").split()
    )
    assert "vkjit" in loaded
    assert not loaded & NOT_AT_IMPORT


def test_importing_vkjit_opens_no_driver() -> None:
    maps = "open('/proc/self/maps').read() if sys.platform == 'linux' else ''"
    assert _run(f"import sys, vkjit; print('libvulkan' in ({maps}))").strip() == "False"


def test_a_handler_that_interrupts_the_import_of_tensors_is_told_so() -> None:
    """A module that is imported in between stands for a signal handler: both run within the import, in its thread."""
    code = """
import sys
import vkjit as vk

class Handler:
    def find_spec(self, name, path, target=None):
        if name == "vkjit.tensor.methods":
            sys.meta_path.remove(self)
            try:
                vk.ones(3)
            except vk.VkjitError as error:
                print(type(error).__name__, error)

sys.meta_path.insert(0, Handler())
print(vk.ones(3, device="interpreter").tolist())
"""
    told, result = _run(code).splitlines()
    assert told.startswith("VkjitError vkjit.ones isn't there yet: a signal handler") and result == "[1.0, 1.0, 1.0]"


def test_the_standard_library_is_importable_under_one_name_only() -> None:
    assert _run("import vkjit.stdlib; print(vkjit.stdlib.__name__)").strip() == "vkjit.stdlib"
    refused = "\ntry:\n    import stdlib\nexcept ImportError as error:\n    print(error)"
    assert "vkjit.stdlib" in _run(refused)


def test_the_layers_hold() -> None:
    pytest.importorskip("importlinter", reason="import-linter isn't installed (extra: test)")
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    done = subprocess.run([sys.executable, "-c", code], cwd=checkout.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_dir_lists_the_public_names() -> None:
    names = dir(vk)
    lazy = {"tensor", "nn", "optim", "capture", "profile", "inspect", "testing", "matmul", "no_grad", "f32", "kernel"}
    assert lazy <= set(names) and all(hasattr(vk, name) for name in names)
    modules = {name for name in names if isinstance(getattr(vk, name), ModuleType)}
    assert modules == set(vk._MODULES) and not {"Any", "TYPE_CHECKING", "annotations"} & set(names)
