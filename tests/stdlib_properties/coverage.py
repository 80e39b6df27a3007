"""List the kernels of the standard library, and record which ones are launched."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from vkjit.launch.kernel import Kernel
from vkjit.runtime.dispatch_cache import repeating, set_repeating

__all__ = ["STDLIB", "all_kernels", "launched", "launching", "name_of"]

STDLIB = Path(__file__).resolve().parents[2] / "stdlib"


def all_kernels() -> set[str]:
    """Return `file.name` of every kernel defined in stdlib/."""
    found = set()
    for path in STDLIB.rglob("*.py"):
        module = ".".join(path.relative_to(STDLIB).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and any(
                ast.unparse(d).startswith("vk.kernel") for d in node.decorator_list
            ):
                found.add(f"{module}.{node.name}")
    return found


def name_of(kernel: Kernel) -> str:
    """Return the module below `vkjit.stdlib` and the name of a kernel, such as "rows.softmax.statistics"."""
    return f"{kernel.spec.fn.__module__.removeprefix('vkjit.stdlib.')}.{kernel.spec.fn.__name__}"


@contextlib.contextmanager
def launched() -> Iterator[dict[str, Kernel]]:
    """Collect the kernels launched inside the block."""
    seen: dict[str, Kernel] = {}
    original = Kernel._launch

    def launch(self: Kernel, *args: Any, **kwargs: Any) -> Any:
        seen.setdefault(name_of(self), self)
        return original(self, *args, **kwargs)

    with launching(launch):
        yield seen


@contextlib.contextmanager
def launching(launch: Callable[..., Any]) -> Iterator[None]:
    """Route all launches inside the block through a function, without fast paths and cached dispatches."""

    def call(self: Kernel, *args: Any, **kwargs: Any) -> Any:
        return self._launch(None, *args, **kwargs)

    before = repeating()
    set_repeating(False)
    try:
        with mock.patch.object(Kernel, "_launch", launch), mock.patch.object(Kernel, "__call__", call):
            yield
    finally:
        set_repeating(before)
