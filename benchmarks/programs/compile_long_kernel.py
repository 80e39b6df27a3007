"""Print the milliseconds from source to SPIR-V of generated kernels of 500, 1,000 and 2,000 lines.

Another kernel is compiled first. By default the kernels are straight-line code in which each line depends on earlier
results. With `branches` as an argument, they contain branches and loops. Numeric arguments replace the line counts;
`profile` prints a profile of the largest kernel instead.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ["VKJIT_CACHE"] = "0"
os.environ["VKJIT_SPIRV_VAL"] = "0"

import vkjit as vk
from vkjit.compiler import driver
from vkjit.frontend import ArrayArg, Signature

HEAD = """
import vkjit as vk

@vk.kernel(over="y")
def long(x: vk.In[vk.f32, "N"], y: vk.InOut[vk.f32, "N"], count: vk.i32):
    i = vk.global_id(0)
    v0 = x[i]
    v1 = v0 * 0.5
    v2 = v1 + 1.0
"""


def straight(lines: int) -> str:
    """Return the source of a kernel with `lines` lines of straight-line code."""
    forms = ("v{0} * 0.75 + v{1}", "v{0} - v{1} * v{2}", "max(v{0}, v{1})", "abs(v{0}) + v{2}", "v{0} * v{1} + x[i]")
    body = []
    for line in range(3, lines - 10):
        near = (line - 1, line - 2, max(0, line - 3 - line % 97))
        body.append(f"    v{line} = {forms[line % len(forms)].format(*near)}\n")
    last = " + ".join(f"v{lines - 11 - k}" for k in range(4))
    return HEAD + "".join(body) + f"    y[i] = {last}\n"


def branching(lines: int) -> str:
    """Return the source of a kernel with `lines` lines, with branches and loops."""
    body = ["    total = v2\n", "    other = v1\n"]
    while len(body) < lines - 12:
        number = len(body)
        if number % 4 == 0:
            body += [f"    for k in range(count + {number}):\n", f"        total += other * {number}.0\n",
                     "        if total > 100.0:\n", "            break\n"]  # fmt: skip
        body += [f"    if total > {number}.0:\n", f"        total = total * 0.5 - {number}.0\n", "    else:\n",
                 "        other = other + total\n"]  # fmt: skip
        body += [f"    other = other * 0.{number}5 + total\n", f"    total = max(total, other - {number}.5)\n"] * 3
    return HEAD + "".join(body[: lines - 12]) + "    y[i] = total + other\n"


def load(source: str) -> Any:
    """Return the kernel `long` of a module with the given source."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "long_kernel.py"
        path.write_text(source, encoding="utf-8")
        spec = importlib.util.spec_from_file_location("long_kernel", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        driver.fingerprint.fingerprint(module.long.spec.fn)  # reads the source file, which is deleted below
        return module.long


def milliseconds(kernel: Any, caps: Any) -> float:
    """Return the milliseconds of one compilation."""
    array = ArrayArg(vk.f32, 1, contiguous=True, restrict=True)
    scalar = driver.frontend.ScalarArg(vk.i32)
    signature = Signature((array, array, scalar), (64, 1, 1), narrow=True, bounds=True)
    start = time.perf_counter()
    driver.compile_kernel(kernel.spec, signature, caps)
    return (time.perf_counter() - start) * 1e3


def main() -> int:
    make = branching if "branches" in sys.argv else straight
    found = [info for info in vk.devices() if info.kind not in ("llvm-cpu", "interpreter") and not info.missing]
    if not found:
        print("no device of a Vulkan driver on this machine")
        return 3
    caps = found[0].caps
    milliseconds(load(make(60)), caps)
    sizes = [int(word) for word in sys.argv[1:] if word.isdigit()] or [500, 1000, 2000]
    kernels = [load(make(size)) for size in sizes]
    if "profile" in sys.argv:
        import cProfile
        import pstats

        profile = cProfile.Profile()
        profile.runcall(milliseconds, kernels[-1], caps)
        pstats.Stats(profile).sort_stats("tottime").print_stats(30)
        return 0
    print(*(min(milliseconds(kernel, caps) for _ in range(3)) for kernel in kernels))
    return 0


if __name__ == "__main__":
    sys.exit(main())
