# mypy: disable-error-code="arg-type, assignment, index, no-untyped-def, operator, valid-type"
"""Tests of scripts that reproduce failures: of kernels in classes, under decorators, in closures; of properties."""

from __future__ import annotations

import functools
import math
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vkjit as vk

SIGNS = (1, -1)


def counted(kernel: vk.Kernel) -> Callable[..., Any]:
    @functools.wraps(kernel)
    def run(*arguments: Any) -> Any:
        return kernel(*arguments)

    return run


@counted
@vk.kernel(over="y")
def below_a_decorator(x: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "N"]):
    y[vk.global_id(0)] = x[vk.global_id(0)] if vk.global_id(0) != 2 else 0


class Holder:
    @staticmethod
    @vk.kernel(over="y")
    def in_a_class(x: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "N"]):
        y[vk.global_id(0)] = x[vk.global_id(0)] if vk.global_id(0) != 2 else 0


@vk.func
def transposed(value: Any) -> Any:
    return value * SIGNS[1]


def closure(function: Any, count: int) -> Any:
    @vk.kernel(over="y")
    def made(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
        i = vk.global_id(0)
        y[i] = function(x[i]) if i != count else vk.f32(math.pi)

    return made


UNDER_ANOTHER_NAME = closure(transposed, 3)


def script_of(kernel: Any, reference: Any = None, **settings: Any) -> str:
    with pytest.raises(vk.testing.CheckFailure) as caught:
        vk.testing.check_kernel(kernel, reference, devices="interpreter", seed=1, special=False, **settings)
    return caught.value.script


def raised_by(script: str, folder: Path) -> BaseException:
    path = folder / "failure.py"
    path.write_text(script, encoding="utf-8")
    with pytest.raises(BaseException) as caught:  # noqa: PT011  SystemExit too
        runpy.run_path(str(path))
    return caught.value


@pytest.mark.parametrize(
    ("kernel", "place"),
    [
        (below_a_decorator.__wrapped__, "import below_a_decorator as kernel\nkernel = kernel.__wrapped__"),  # type: ignore[attr-defined]
        (Holder.in_a_class, "import Holder as kernel\nkernel = kernel.in_a_class"),
    ],
    ids=["decorated", "class"],
)
def test_kernels_are_found_where_the_module_holds_them(kernel: Any, place: str, tmp_path: Path) -> None:
    script = script_of(kernel, lambda x: x)
    assert place in script
    assert isinstance(raised_by(script, tmp_path), AssertionError)


def test_a_kernel_under_another_name_is_found() -> None:
    assert "import UNDER_ANOTHER_NAME as kernel" in script_of(UNDER_ANOTHER_NAME, lambda x: -x)


def test_closures_are_written_out_with_their_functions(tmp_path: Path) -> None:
    script = script_of(closure(transposed, 2), lambda x: -x)
    assert "SIGNS = (1, -1)" in script and "function = transposed" in script and "import math as math" in script
    error = raised_by(script, tmp_path)
    assert isinstance(error, AssertionError) and "3.14" in str(error)


def test_scripts_of_properties_say_what_they_leave_open(tmp_path: Path) -> None:
    script = script_of(Holder.in_a_class, properties=lambda y: bool((y != np.arange(len(y))).all()))
    error = raised_by(script, tmp_path)
    assert isinstance(error, SystemExit) and "test_scripts.py" in str(error.code)
