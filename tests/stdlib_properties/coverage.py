"""Which kernels of the standard library there are, and which a piece of work launches."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from vkjit.jit import Kernel
from vkjit.runtime.ways import repeating, set_repeating

__all__ = ["STDLIB", "all_kernels", "launched", "launching"]

STDLIB = Path(__file__).resolve().parents[2] / "stdlib"


def all_kernels() -> set[str]:
    """`file.name` of every kernel that is written in stdlib/."""
    found = set()
    for path in STDLIB.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and any(
                ast.unparse(d).startswith("vk.kernel") for d in node.decorator_list
            ):
                found.add(f"{path.stem}.{node.name}")
    return found


def name_of(kernel: Kernel) -> str:
    """`file.name` of a kernel."""
    return f"{Path(kernel.spec.fn.__code__.co_filename).stem}.{kernel.spec.fn.__name__}"


@contextlib.contextmanager
def launched() -> Iterator[dict[str, Kernel]]:
    """The kernels that are launched inside the block."""
    seen: dict[str, Kernel] = {}
    original = Kernel._launch

    def launch(self: Kernel, *args: Any, **kwargs: Any) -> Any:
        seen.setdefault(name_of(self), self)
        return original(self, *args, **kwargs)

    with launching(launch):
        yield seen


@contextlib.contextmanager
def launching(launch: Callable[..., Any]) -> Iterator[None]:
    """Inside the block all launches go through this function: none is made in a short way, or as part of a repeated call."""

    def call(self: Kernel, *args: Any, **kwargs: Any) -> Any:
        return self._launch(None, *args, **kwargs)

    before = repeating()
    set_repeating(False)
    try:
        with mock.patch.object(Kernel, "_launch", launch), mock.patch.object(Kernel, "__call__", call):
            yield
    finally:
        set_repeating(before)
