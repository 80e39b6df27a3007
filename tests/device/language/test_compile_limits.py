"""Kernels that could take minutes or gigabytes to compile: they compile within seconds or are refused in one sentence."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import vkjit as vk
from vkjit.errors import ArgumentError, CompileError

ROOT = Path(__file__).parents[3]
HEAD = "import vkjit as vk\nfrom vkjit import i32\n"
KERNEL = "@vk.kernel(over='o')\ndef k(o: vk.InOut[i32, 'N']):\n    i = i32(vk.global_id(0))\n"


@vk.kernel(over="o")
def lengths(o: vk.InOut[vk.i32, "N"], t: vk.Const[tuple[int, ...]]) -> None:
    o[vk.global_id(0)] = len(t)


def built(folder: Path, text: str) -> Any:
    """Return the kernel `k` of a module with this text."""
    path = folder / "kernels.py"
    path.write_text(HEAD + text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("kernels", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.k


def chain(count: int, body: str) -> str:
    functions = "".join(f"@vk.func\ndef f{n}(x): return {body.format(n - 1)}\n" for n in range(1, count + 1))
    return f"@vk.func\ndef f0(x): return x + 1\n{functions}{KERNEL}    o[i] = f{count}(i)\n"


def unrolled(statement: str) -> str:
    return KERNEL + f"    t = (1, i)\n    for n in vk.unroll(100):\n        {statement}\n    o[i] = len(t)\n"


SELF_CONTAINED = """
import dataclasses
@dataclasses.dataclass(frozen=True)
class C:
    a: object
c = C(None)
object.__setattr__(c, "a", (c,))
"""
REFUSED = {
    "10**10**10": (KERNEL + "    o[i] = 10**10**10\n", "more than 65536 bits"),
    "negative base": (KERNEL + "    o[i] = (-7)**10**9\n", "more than 65536 bits"),
    "shift": (KERNEL + "    o[i] = 1 << 10**12\n", "more than 65536 bits"),
    "squares": (
        KERNEL + "    c = 3\n    for n in vk.unroll(40):\n        c = c * c\n    o[i] = c\n",
        "more than 65536 bits",
    ),
    "factorial": (
        KERNEL.replace("@", "import math\n@", 1) + "    o[i] = math.factorial(10**7)\n",
        "more than 65536 bits",
    ),
    "tuple": (KERNEL + "    t = (1, 2) * 10**9\n    o[i] = t[0]\n", "items are too many"),
    "doubled tuple": (
        KERNEL + "    t = (1,)\n    for n in vk.unroll(40):\n        t = t + t\n    o[i] = t[0]\n",
        "items are too",
    ),
    "unrolled loops": (
        KERNEL + "    for a in vk.unroll(900):\n        for b in vk.unroll(900):\n            o[i] += a * b\n",
        "evaluates more than 100000",
    ),
    "inlining": (chain(24, "f{0}(x) + f{0}(x)"), "operations with all loops unrolled and functions inlined"),
    "chain of calls": (chain(500, "f{0}(x) + 1"), "nested too deeply for Python's recursion limit"),
    "minus signs": (KERNEL + f"    o[i] = {'-' * 2000}i\n", "nested too deeply|can't be read"),
    "local array": (KERNEL + "    t = vk.local(i32, 10**30)\n    o[i] = t[0]\n", "elements are too many"),
    "large local array": (
        KERNEL + "    t = vk.local(i32, 6000000)\n    o[i] = t[0]\n",
        "6000000 elements are too many",
    ),
    "unrolled range": (KERNEL + "    for n in vk.unroll(10**30):\n        o[i] += 1\n", "0 copies of the body"),
    "unrolled range of a range": (
        KERNEL + "    for n in vk.unroll(range(-(10**30), 10**30)):\n        o[i] += 1\n",
        "0 copies of the body",
    ),
    "long range": (KERNEL + "    for n in range(10**30):\n        o[i] += 1\n", "10{30} doesn't fit vk.i32"),
    "pair of pairs": (unrolled("t = (t, t)"), "this tuple has more than 65536 parts"),
    "pair of sums": (unrolled("t = t + (t,)"), "this tuple has more than 65536 parts"),
    "pair of products": (unrolled("t = (t,) * 2"), "this tuple has more than 65536 parts"),
    "pair of zips": (unrolled("t = zip(t, t)"), "this tuple has more than 65536 parts"),
    "nested tuple": (unrolled("t = (t,)"), "this tuple is nested more than 64 levels deep"),
    "nested enumerations": (unrolled("t = enumerate(t)"), "this tuple is nested more than 64 levels deep"),
    "captured tuple": (
        f"t = (1,)\nfor _ in range(5000): t = (t,)\n{KERNEL}    o[i] = len(t)\n",
        "the constant t is nested more than 64 levels deep, or contains itself",
    ),
    "captured pairs": (
        f"t = (1,)\nfor _ in range(50): t = (t, t)\n{KERNEL}    o[i] = len(t)\n",
        "the constant t has more than 1048576 parts",
    ),
    "default": (
        f"t = (1,)\nfor _ in range(50): t = (t, t)\n@vk.func\ndef f(a, u=t): return a + len(u)\n{KERNEL}    o[i] = f(i)\n",
        "has more than 1048576 parts",
    ),
    "dataclass that contains itself": (
        f"{SELF_CONTAINED}{KERNEL}    o[i] = c.a[0].b\n",
        "the constant c is nested more than 64 levels deep, or contains itself",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_take_forever_is_refused(device: Any, tmp_path: Path, name: str) -> None:
    text, message = REFUSED[name]
    start = time.process_time()
    try:
        kernel = built(tmp_path, text)
    except (SyntaxError, RecursionError, MemoryError):
        pytest.skip("this Python's own compiler refuses it")
    with pytest.raises(CompileError, match=message):
        kernel(vk.ones(8, dtype=vk.i32))
    assert time.process_time() - start < 20


def test_large_constants_are_refused_as_arguments(device: Any) -> None:
    nested: Any = (1,)
    pairs: Any = (1,)
    for _ in range(100):
        nested, pairs = (nested,), (pairs, pairs)
    o = vk.zeros(1, dtype=vk.i32, device=device)
    for value in (nested, pairs):
        with pytest.raises(ArgumentError, match="argument t of lengths.. (is nested|has more than 1048576 parts)"):
            lengths(o, value)
    lengths(o, tuple(range(3000)))
    assert o.tolist() == [3000]


INDICES = (
    "x[{}]",
    "x.get({}, pad=7)",
    "x[{}:][0]",
    "x[0:{}][0]",
    "vk.local(i32, 3)[{}]",
    "(1, 2, 3)[{}]",
    "x.shape[{}]",
)


@pytest.mark.parametrize("index", [-(2**64) - 1, -(2**63) - 2, 10**30], ids=str)
@pytest.mark.parametrize("expression", INDICES)
def test_indices_of_more_than_64_bits_are_refused_as_written(
    device: Any, tmp_path: Path, expression: str, index: int
) -> None:
    if expression == "x[{}:][0]" and index > 0:
        pytest.skip("a slice without elements")
    kernel = built(
        tmp_path, KERNEL.replace("o:", "x: vk.In[i32, 'M'], o:") + f"    o[i] = {expression.format(index)}\n"
    )
    with pytest.raises(CompileError, match=re.escape(f" {index} ")):
        kernel(vk.ones(3, dtype=vk.i32, device=device), vk.ones(1, dtype=vk.i32, device=device))


@pytest.mark.parametrize("statement", ["o[{}] = 5", "o[{}] += 5", "o.put({}, 5)", "vk.atomic.add(o, {}, 5)"])
def test_stores_beyond_64_bits_are_refused_as_written(device: Any, tmp_path: Path, statement: str) -> None:
    for index in (-(2**64) - 1, 2**64):
        kernel = built(tmp_path, KERNEL + f"    {statement.format(index)}\n")
        with pytest.raises(CompileError, match=f"the literal {index} doesn't fit vk.index"):
            kernel(vk.ones(3, dtype=vk.i32, device=device))


def test_long_sums_and_many_returns_compile(device: Any, tmp_path: Path) -> None:
    o = vk.zeros(8, dtype=vk.i32)
    built(tmp_path, KERNEL + f"    o[i] = {' + '.join(['i'] * 1500)}\n")(o)
    assert o.tolist() == [1500 * i for i in range(8)]
    returns = "    for n in vk.unroll(40):\n        if x == n: return x * n\n        if x == n * 3 + 1: return x + n\n"
    start = time.process_time()
    built(tmp_path, f"@vk.func\ndef f(x):\n{returns}    return x\n{KERNEL}    o[i] = f(i) + f(i + 1)\n")(o)
    assert o.tolist() == expected(8)
    assert time.process_time() - start < 20


def expected(count: int) -> list[int]:
    def f(x: int) -> int:
        for n in range(40):
            if x == n:
                return x * n
            if x == n * 3 + 1:
                return x + n
        return x

    return [f(i) + f(i + 1) for i in range(count)]


def test_a_large_local_array_names_the_drivers_limit(device: Any, tmp_path: Path) -> None:
    """llvmpipe takes 2 ms to compile each element."""
    kernel = built(tmp_path, KERNEL + "    t = vk.local(i32, 20000)\n    t[i] = i\n    o[i] = t[i]\n")
    o = vk.zeros(8, dtype=vk.i32)
    if device.caps.kind == "cpu":
        with pytest.raises(CompileError, match="20000 elements is too large for this driver"):
            kernel(o)
    else:
        kernel(o)
        assert o.tolist() == list(range(8))


@pytest.mark.skipif(sys.platform != "linux", reason="needs names of files that aren't UTF-8")
def test_paths_need_not_be_utf8_and_homes_need_not_exist(device: Any, tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/f\xff"
    os.mkdir(folder)
    program = HEAD + KERNEL + f"    o[i] = i + 1\nwith vk.use_device({device.index}):\n    o = vk.zeros(3, dtype=i32)\n"
    with open(folder + b"/program.py", "w", encoding="utf-8") as file:
        file.write(program + "    k(o)\n    print(o.tolist(), (o + 1).tolist())\n")
    for home, cache_folder in (
        (b"/nonexistent", b""),
        (folder + b"/program.py", b""),
        (folder, folder + b"/cache\xfe"),
    ):
        variables = {k: v for k, v in os.environb.items() if not k.startswith((b"VKJIT_CACHE", b"XDG_"))}
        variables |= {
            b"HOME": home,
            b"PYTHONPATH": os.pathsep.encode().join([os.fsencode(p) for p in (str(ROOT), *sys.path) if p]),
            b"VKJIT_CACHE_DIR": cache_folder,
        }
        done = subprocess.run(
            [sys.executable.encode(), folder + b"/program.py"], env=variables, capture_output=True, check=False
        )
        assert done.stdout == b"[1, 2, 3] [2, 3, 4]\n", done.stderr.decode(errors="replace")


def test_returned_tuples_name_the_item_that_differs(device: Any, tmp_path: Path) -> None:
    function = "@vk.func\ndef f(x):\n    if x > 0:\n        return x, (x, vk.f32(1))\n    return x, (x, x)\n"
    with pytest.raises(CompileError, match=r"returns vk.i32 as item \[1\]\[1\] here and vk.f32 elsewhere"):
        built(tmp_path, f"{function}{KERNEL}    o[i] = f(i)[0]\n")(vk.ones(4, dtype=vk.i32))


def test_operands_out_of_range_raise_our_errors(device: Any) -> None:
    x = vk.ones(2, 3)
    for call, message in (
        (lambda: vk.nn.functional.linear(x, [[1.0]]), "takes a tensor as weight, found list"),  # type: ignore[arg-type]
        (lambda: vk.set_rng_state(x), "a state is"),
        (lambda: vk.eye(-1), r"eye\(n=\) is -1: expected an int of at least 0"),
        (lambda: vk.full((2,), 2**64, dtype=vk.u64), "range"),
        (lambda: vk.ones(3, dtype=vk.i64).uniform_(), "float"),
        (lambda: vk.ones(3, dtype=vk.i64).normal_(), "float"),
    ):
        with pytest.raises((ArgumentError, vk.DTypeError), match=message):
            call()
