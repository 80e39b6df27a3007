"""Tests of error messages: each function of tests/golden/errors fails with the expected text stored next to it.

A function with parameters is compiled as a kernel; one without is called, and launches kernels on the interpreter.
VKJIT_BLESS=1 rewrites the texts.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import re
import sys
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TypeVar

import pytest

import vkjit as vk
from vkjit import dtypes
from vkjit.errors import CompileError
from vkjit.frontend import ArrayArg, ConstArg, ParamSpec, ScalarArg, Signature, describe, lower_kernel
from vkjit.passes.analysis.check_written import CheckWritten
from vkjit.passes.analysis.uniformity import CheckUniformity

FOLDER = Path(__file__).parents[2] / "golden" / "errors"
FILES = sorted(FOLDER.glob("*.py"))


def load(path: Path) -> ModuleType:
    name = f"golden_errors_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def argument(param: ParamSpec) -> ArrayArg | ScalarArg | ConstArg:
    dtype = dtypes.f32 if param.dtype is None or isinstance(param.dtype, TypeVar) else param.dtype
    if param.kind == "const":
        return ConstArg(param.default)
    if param.kind == "array":
        return ArrayArg(dtype, len(param.dims.dims) if param.dims else 1)
    return ScalarArg(dtype)


def compiled(fn: FunctionType, over: str | None) -> None:
    """Compile a kernel up to the last stage that reports user errors."""
    spec = describe(fn, over=over)
    module = lower_kernel(spec, Signature(tuple(map(argument, spec.params)), (64, 1, 1)))
    CheckWritten().run(CheckUniformity().run(module))


def message(fn: FunctionType, over: str | None) -> str:
    """Return the error message of the function, with paths reduced to file names."""
    if inspect.signature(fn).parameters:
        with pytest.raises(CompileError) as caught:
            compiled(fn, over)
        return str(caught.value).replace(f"{FOLDER}{os.sep}", "")
    with vk.use_device("interpreter"), pytest.raises(vk.VkjitError) as raised:
        fn()
    return f"{type(raised.value).__name__}: {raised.value}".replace(f"{FOLDER}{os.sep}", "")


def test_there_are_goldens() -> None:
    """There are at least 120 cases, including the 40 most common mistakes of newcomers."""
    counts = {path.stem: path.with_suffix(".txt").read_text(encoding="utf-8").count("== ") for path in FILES}
    assert sum(counts.values()) >= 120
    assert counts["newcomers"] >= 40


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_messages(path: Path) -> None:
    module = load(path)
    kernels = [f for n, f in vars(module).items() if isinstance(f, FunctionType) and f.__module__ == module.__name__]
    kernels = [f for f in kernels if f.__name__ != "helper" and not f.__name__.startswith("_")]
    found = "\n".join(f"== {f.__name__}\n{message(f, getattr(module, 'OVER', None))}\n" for f in kernels)
    golden = path.with_suffix(".txt")
    if os.environ.get("VKJIT_BLESS") == "1":
        golden.write_text(found, encoding="utf-8")
    assert found == golden.read_text(encoding="utf-8")


SELF_EVIDENT = {"unknown_order", "unknown_scan", "bits_of_floats", "modular_power", "static_assertion"}
"""Errors that need no hint: the message lists the valid choices or is the user's own text."""


@pytest.mark.parametrize("path", [p for p in FILES if p.stem != "launches"], ids=lambda p: p.stem)
def test_messages_show_the_place_and_say_what_to_do(path: Path) -> None:
    text = path.with_suffix(".txt").read_text(encoding="utf-8")
    for block in re.split(r"^== (?=\w+$)", text, flags=re.MULTILINE)[1:]:
        name = block.split("\n")[0]
        assert re.search(r"^ +\^+$", block, re.MULTILINE), name
        assert "\nhelp: " in block or name in SELF_EVIDENT, name
