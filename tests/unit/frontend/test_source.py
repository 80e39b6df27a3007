"""Tests of locating a function's definition in its file: the result equals that of parsing the whole file."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np
import pytest

import vkjit as vk
import vkjit.stdlib
from vkjit.frontend import source

ODD = '''
import functools

def decorate(*_):
    return lambda fn: fn

@decorate(
    1,
    2,
)
def decorated(a,
              b=(1,
  2)):
    """Text
at the margin
    """
    x = """
also at the margin""" + str(a)
# a comment at the margin

    return (
b,
x)

def outer():
    def inner(a):
        return a \\
+ 1
    # after it
    return inner

if True:
	def tabs(a):
		return a
else:
    pass

def bare(a): return a
def empty():
    """Only this."""

class Class:
    def method(self):
        if self:
            pass
        # the end

    def other(self): pass
'''


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _same(code: CodeType, text: str) -> bool:
    """Return True if the definition is found without parsing the whole file; assert that it then equals the file's."""
    found = source._parse_definition(code, text.splitlines(keepends=True))
    known = source._parse_file(code.co_filename, text).get((code.co_firstlineno, code.co_name))
    if found is not None:
        assert known is not None
        assert ast.dump(found, include_attributes=True) == ast.dump(known, include_attributes=True)
    return found is not None


def test_odd_layouts() -> None:
    codes = {code.co_name: code for code in _codes(compile(ODD, "odd.py", "exec")) if code.co_name[0] != "<"}
    alone = {name: _same(code, ODD) for name, code in codes.items()}
    assert not alone["Class"]
    assert all(alone[name] for name in ("outer", "inner", "tabs", "bare", "empty", "method", "other"))


def _modules() -> list[str]:
    return [
        module.name.removeprefix("vkjit.stdlib.")
        for module in pkgutil.walk_packages(vkjit.stdlib.__path__, "vkjit.stdlib.")
    ]


@pytest.mark.parametrize("name", _modules())
def test_functions_of_the_standard_library(name: str) -> None:
    module = importlib.import_module(f"vkjit.stdlib.{name}")
    found = [
        getattr(value, "fn", None) or getattr(getattr(value, "spec", None), "fn", None)
        for value in vars(module).values()
    ]
    functions = [fn for fn in found if isinstance(fn, FunctionType)]
    for fn in functions:
        assert _same(fn.__code__, Path(fn.__code__.co_filename).read_text(encoding="utf-8")), fn


def test_places_of_nested_functions_are_those_of_the_file() -> None:
    @vk.func
    def helper(x: Any) -> Any:
        return x

    function: FunctionType = helper.fn  # type: ignore[attr-defined]  # type checkers see the plain function
    found = source.source_of(function)
    assert found.node.lineno == function.__code__.co_firstlineno + 1
    assert found.text().lstrip().startswith("@vk.func")


def test_kernels_of_a_namespace_without_a_name(tmp_path: Path) -> None:
    text = (
        "@vk.func\ndef f(v):\n    return v * 3\n@vk.struct\nclass P(vk.Struct):\n    a: vk.i32\n"
        "@vk.kernel(over='x')\ndef k(x: vk.In[vk.i32, 'N'], o: vk.Out[vk.i32, 'N']):\n"
        "    i = vk.global_id(0)\n    o[i] = f(x[i]) + P(x[i]).a\n"
    )
    path = tmp_path / "kernels_of_no_module.py"
    path.write_text(text, encoding="utf-8")
    namespace: dict[str, Any] = {"vk": vk}
    FunctionType(compile(text, path, "exec", dont_inherit=True), namespace)()  # as exec() runs it
    kernel = namespace["k"]
    x = np.arange(3, dtype=np.int32)
    for name in ("interpreter", "cpu"):
        with vk.use_device(vk.device(name)):
            for _ in range(3):
                np.testing.assert_array_equal(kernel(x), x * 4)
