"""Branches nested deeper than a driver supports: each form in which Python code nests them, on every device."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import vkjit as vk

X = np.arange(-5, 160, dtype=np.int32)
LEVELS = 100
HEAD = "import vkjit as vk\nfrom vkjit import i32\n"
KERNEL = "@vk.kernel(over='o'{options})\ndef k(x: vk.In[i32, 'N'], o: vk.Out[i32, 'N']):\n    i = vk.global_id(0)\n"


def module(source: str, folder: Path) -> ModuleType:
    path = folder / "deep_kernels.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("deep_kernels", path)
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def unrolled_returns(n: int) -> str:
    return KERNEL + (
        f"    o[i] = -1\n    for j in vk.unroll({n}):\n        if x[i] == j:\n            o[i] = j * 3\n"
        "            return\n    o[i] = 12345\n"
    )


def elif_chain(n: int) -> str:
    tests = "".join(f"    elif x[i] == {j}:\n        o[i] = {3 * j}\n" for j in range(1, n))
    return KERNEL + "    if x[i] == 0:\n        o[i] = 0\n" + tests + "    else:\n        o[i] = 12345\n"


def guard_returns(n: int) -> str:
    guards = "".join(f"    if x[i] == {j}:\n        o[i] = {3 * j}\n        return\n" for j in range(n))
    return KERNEL + guards + "    o[i] = 12345\n"


def returned_values(n: int) -> str:
    guards = "".join(f"    if v == {j}:\n        return {3 * j}\n" for j in range(n))
    return f"@vk.func\ndef f(v):\n{guards}    return 12345\n{KERNEL}    o[i] = f(x[i])\n"


def conditional_expressions(n: int) -> str:
    value = "12345"
    for j in reversed(range(n)):
        value = f"({3 * j} if x[i] == {j} else {value})"
    return f"{KERNEL}    o[i] = {value}\n"


def breaks(n: int) -> str:
    return _in_loop(n, "break")


def continues(n: int) -> str:
    return _in_loop(n, "continue")


def _in_loop(n: int, word: str) -> str:
    """Return a kernel that meets the guards in the last of several iterations, which isn't known when it compiles."""
    guards = "".join(f"        if v == {j}:\n            o[i] = {3 * j}\n            {word}\n" for j in range(n))
    loop = "    for q in range(x.shape[0] - 162, 0, -1):\n        v = x[i] + (q - 1) * 1000\n"
    return f"{KERNEL}    o[i] = -1\n{loop}{guards}        o[i] = 12345\n"


def chunked(n: int, level: Callable[[int], tuple[list[str], list[str]]], innermost: str, parameters: str) -> str:
    """Return functions f0, f40... that nest `n` levels together. `level` gives the lines before and after the inner
    level's, which is indented; Python limits the levels of one function.
    """
    functions = [f"@vk.func\ndef f{n}({parameters}):\n    {innermost}\n"]
    for first in reversed(range(0, n, 40)):
        end = min(first + 40, n)
        lines = [f"f{end}({parameters})"]
        for j in reversed(range(first, end)):
            before, after = level(j)
            lines = [*before, *("  " + line for line in lines), *("  " + line for line in after)]
        functions.append(f"@vk.func\ndef f{first}({parameters}):\n" + "".join(f"    {line}\n" for line in lines))
    return "".join(functions)


def nested_with_ends(n: int) -> str:
    def level(j: int) -> tuple[list[str], list[str]]:
        return [f"if v >= {j}:", "  o[i] += 1", f"  t{j} = o[i] * v"], [f"o[i] += 2 + t{j} - t{j}"]

    return f"{chunked(n, level, 'o[i] += 0', 'v, o, i')}{KERNEL}    o[i] = 0\n    f0(x[i], o, i)\n"


def thrice(x: Any, n: int) -> Any:
    return np.where((x >= 0) & (x < n), 3 * x, 12345)


def levels_reached(x: Any, n: int) -> Any:
    return 3 * np.clip(x + 1, 0, n)


FORMS: dict[Callable[[int], str], Callable[[Any, int], Any]] = {
    unrolled_returns: thrice, elif_chain: thrice, guard_returns: thrice, returned_values: thrice,
    conditional_expressions: thrice, breaks: thrice, continues: thrice, nested_with_ends: levels_reached,
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_deep_branches(device: Any, tmp_path: Path, form: Callable[[int], str]) -> None:
    kernel = module(HEAD + form(LEVELS).replace("{options}", ""), tmp_path).k
    with vk.use_device(device):
        found = kernel(X)
    np.testing.assert_array_equal(found, FORMS[form](X, LEVELS))


@pytest.mark.parametrize("options", [", debug=True", ", sanitize=True", ", strict=True"])
def test_deep_branches_with_checks(device: Any, tmp_path: Path, options: str) -> None:
    kernel = module(HEAD + guard_returns(90).replace("{options}", options), tmp_path).k
    with vk.use_device(device):
        np.testing.assert_array_equal(kernel(X), thrice(X, 90))


def test_barriers_in_deep_branches(device: Any, tmp_path: Path) -> None:
    """Uniform branches of 90 levels, the last of which exchanges values through shared memory."""
    exchange = "s[vk.local_id(0)] = i32(i); vk.barrier(); o[i] = s[31 - vk.local_id(0)]; vk.barrier()"
    functions = chunked(90, lambda j: ([f"if n != {j}:"], [f"o[i] += {j}"]), exchange, "n, s, o, i")
    source = (
        f"{HEAD}{functions}@vk.kernel(groups=2, local=32)\ndef k(n: i32, o: vk.InOut[i32, 'N']):\n"
        "    f0(n, vk.shared(i32, 32), o, vk.global_id(0))\n"
    )
    kernel = module(source, tmp_path).k
    for n, exchanged in ((200, True), (89, False), (40, False)):
        out = np.zeros(64, np.int32)
        with vk.use_device(device):
            kernel(n, out)
        start = np.array([*range(31, -1, -1), *range(63, 31, -1)]) if exchanged else 0
        np.testing.assert_array_equal(out, start + sum(range(min(n, 90))))


def test_deep_loops(device: Any, tmp_path: Path) -> None:
    """Loops can't be split: 90 levels of them are refused where the driver doesn't support them."""
    functions = "".join(
        f"@vk.func\ndef f{first}(x, o, i):\n"
        + "".join(f"{'  ' * j}  for q{j} in range(x.shape[0] - 164):\n" for j in range(15))
        + f"{'  ' * 16}f{first + 15}(x, o, i)\n"
        for first in range(75, -1, -15)
    )
    source = f"{HEAD}@vk.func\ndef f90(x, o, i):\n    o[i] += 1\n{functions}{KERNEL}    o[i] = 0\n    f0(x, o, i)\n"
    kernel = module(source.replace("{options}", ""), tmp_path).k
    with vk.use_device(device):
        if "shallow_nesting" in device.caps.quirks:
            with pytest.raises(vk.CompileError, match="loops are nested 9. deep .* the device's driver supports 72"):
                kernel(X)
        else:
            np.testing.assert_array_equal(kernel(X), np.ones(len(X)))


def test_the_length_of_a_chain_of_elifs(device: Any, tmp_path: Path) -> None:
    x = np.arange(-5, 260, dtype=np.int32)
    with vk.use_device(device):
        found = module(HEAD + elif_chain(200).replace("{options}", ""), tmp_path).k(x)
    np.testing.assert_array_equal(found, thrice(x, 200))
    for length in (201, 600):
        kernel = module(HEAD + elif_chain(length).replace("{options}", ""), tmp_path).k
        message = f"a chain of if and elif with {length} conditions: expected up to 200"
        with vk.use_device(device), pytest.raises(vk.CompileError, match=message):
            kernel(x)
