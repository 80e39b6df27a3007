"""A newcomer's first hour in a notebook: typical mistakes, each repaired using its error message only.

test_newcomer.py runs this in a separate process, as IPython's shell changes the interpreter. Each `Mistake` is a cell
that fails; `repaired` edits the cell at the location in the error and as it suggests. The cell then runs again, and its
result is compared with NumPy.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from IPython.core.interactiveshell import InteractiveShell

import vkjit as vk

SETUP = """
import numpy as np
import vkjit as vk

x = np.array([1.5, -2.25, 3.75, 8.0], np.float32)
n = np.array([7, -3, 5, 250], np.int32)
u = np.array([1, 2, 3, 4], np.uint32)
"""


@dataclass(frozen=True)
class Mistake:
    """A cell that fails with `error`; after the repair, the variable `result` has the value that `expected` returns."""

    title: str
    cell: str
    error: type[Exception]
    expected: Callable[[], object]


MISTAKES = (
    Mistake(
        "a function without its module",
        """
@vk.kernel(over="y")
def floors(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = floor(x[i])

result = floors(x)
""",
        vk.CompileError,
        lambda: np.array([1, -3, 3, 8], np.float32),
    ),
    Mistake(
        "a quotient as an index",
        """
@vk.kernel(over="y")
def pairs(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = x[i / 2]

result = pairs(x)
""",
        vk.CompileError,
        lambda: np.array([1.5, 1.5, -2.25, -2.25], np.float32),
    ),
    Mistake(
        "a float stored into integers",
        """
@vk.kernel(over="y")
def halves(n: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "N"]):
    i = vk.global_id(0)
    y[i] = n[i] * 0.5

result = halves(n)
""",
        vk.CompileError,
        lambda: np.array([3, -1, 2, 125], np.int32),
    ),
    Mistake(
        "signed with unsigned",
        """
@vk.kernel(over="y")
def sums(n: vk.In[vk.i32, "N"], u: vk.In[vk.u32, "N"], y: vk.Out[vk.i32, "N"]):
    i = vk.global_id(0)
    y[i] = n[i] + u[i]

result = sums(n, u)
""",
        vk.CompileError,
        lambda: np.array([8, -1, 8, 254], np.int32),
    ),
    Mistake(
        "a misspelt name",
        """
@vk.kernel(over="y")
def scaled(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"], factor: vk.f32):
    i = vk.global_id(0)
    y[i] = x[i] * facter

result = scaled(x, factor=2)
""",
        vk.CompileError,
        lambda: np.array([3, -4.5, 7.5, 16], np.float32),
    ),
    Mistake(
        "NumPy's float64 for a kernel of f32",
        """
@vk.kernel(over="y")
def negated(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = -x[i]

data = np.array([1.5, -2.0])
result = negated(data)
""",
        vk.DTypeError,
        lambda: np.array([-1.5, 2.0], np.float32),
    ),
    Mistake(
        "a kernel launched without a number of workgroups",
        """
@vk.kernel(local=4)
def counted(y: vk.InOut[vk.i32, "N"]):
    y[vk.global_id(0)] = vk.group_id(0)

result = np.zeros(8, np.int32)
groups = 2
counted(result)
""",
        vk.ArgumentError,
        lambda: np.array([0, 0, 0, 0, 1, 1, 1, 1], np.int32),
    ),
)


def repaired(cell: str, error: BaseException) -> str:
    """Return the cell after following the error message."""
    if isinstance(error, vk.CompileError):
        return _at_the_caret(cell, error)
    text = str(error)
    conversion = re.search(r"argument (\w+) of (\w+)\(\) .*convert it with (\.astype\('\w+'\))", text)
    if conversion:
        return re.sub(rf"({conversion[2]}\(\w+)\)$", rf"\1{conversion[3]})", cell.rstrip(), flags=re.MULTILINE)
    launch = re.search(r"launch it as (\w+)(\[\w+\])\(", text)
    assert launch, text
    return re.sub(rf"^{launch[1]}\(", f"{launch[1]}{launch[2]}(", cell, flags=re.MULTILINE)


def _at_the_caret(cell: str, error: vk.CompileError) -> str:
    lines = cell.split("\n")
    line, start, end = error.loc.line - 1, error.loc.col, error.loc.end
    marked, hint = lines[line][start:end], error.hint
    choice = re.fullmatch(r"cast one of them: (.+) or (vk\.\w+\((.+)\))", hint)
    if choice:
        replacement = marked.replace(choice[3], choice[2])
    else:
        simple = re.fullmatch(r"(?:write |did you mean |[^:]+: )(.+?)\??", hint)
        assert simple, hint
        replacement = simple[1]
    lines[line] = lines[line][:start] + replacement + lines[line][end:]
    return "\n".join(lines)


def main() -> int:
    shell = InteractiveShell.instance(history_load_length=0)
    shell.history_manager.enabled = False
    vk.set_default_device("interpreter")
    assert shell.run_cell(SETUP, store_history=True).success
    for mistake in MISTAKES:
        cell = mistake.cell.lstrip("\n")
        failed = shell.run_cell(cell, store_history=True, silent=False).error_in_exec
        assert isinstance(failed, mistake.error), f"{mistake.title}: {failed!r}"
        better = repaired(cell, failed)
        assert better != cell, mistake.title
        again = shell.run_cell(better, store_history=True)
        assert again.success, f"{mistake.title}: {again.error_in_exec}\n{better}"
        np.testing.assert_array_equal(shell.user_ns["result"], mistake.expected(), err_msg=mistake.title, strict=True)
        sys.__stdout__.write(f"repaired: {mistake.title}\n")  # type: ignore[union-attr]
    return 0


if __name__ == "__main__":
    sys.exit(main())
