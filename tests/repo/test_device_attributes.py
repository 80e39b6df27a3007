"""Only a device changes its own attributes: what observes it is an `Observer`, and nothing replaces its methods."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.repo import checkout
from vkjit.runtime.observers import Observer

ALLOWED = frozenset({
    ("vkjit/backends/cpu/runtime/device.py", "self._local"),
    ("vkjit/backends/vulkan/runtime/features.py", "self.head.features"),
    ("vkjit/backends/vulkan/runtime/features.py", "structure"),
    ("vkjit/nn/config.py", "model.get_submodule(path)"),
    ("vkjit/nn/modules/container.py", "owner"),
    ("vkjit/runtime/machine_code/cpython.py", "made"),
    ("vkjit/tensor/methods.py", "Tensor"),
})  # fmt: skip
"""Objects other than `self` whose attributes a file sets by name; none is a device."""

METHODS = frozenset(name for name in vars(Observer) if callable(getattr(Observer, name)))
OWN = METHODS | {"caps", "dispatch_cache", "observers", "seeds"}
"""Attributes of devices whose names no other class has: nothing but `self` has them assigned."""

SETTABLE = frozenset({"order", "stream"})
"""Attributes of devices that may be assigned."""


def changes(source: str, file: str = "") -> Iterator[str]:
    """Yield the places that change, by name or through its dictionary, attributes of an object that isn't `self`."""
    for node in ast.walk(ast.parse(source)):
        changed: ast.expr | None = None
        if not isinstance(node, (ast.Call, ast.Attribute)):
            continue
        if isinstance(node, ast.Call):
            function = ast.unparse(node.func) if node.args else ""
            if function in ("setattr", "delattr", "object.__setattr__") or (
                function == "vars" and is_device(node.args[0])
            ):
                changed = node.args[0]
        elif (node.attr == "__dict__" and is_device(node.value)) or (
            not isinstance(node.ctx, ast.Load)
            and (node.attr in OWN or (is_device(node.value) and node.attr not in SETTABLE))
        ):
            changed = node.value
        if changed is not None and ast.unparse(changed) != "self" and (file, ast.unparse(changed)) not in ALLOWED:
            yield f"{file}:{node.lineno}: {ast.unparse(node)[:80]}"


def is_device(node: ast.expr) -> bool:
    """True if an expression is named like a device."""
    return ast.unparse(node).lower().endswith("device")


def test_no_module_changes_attributes_of_a_device() -> None:
    files = [path for path in checkout.python_files() if checkout.name_of(path).startswith(("vkjit/", "stdlib/"))]
    assert len(files) > 100
    assert [hit for path in files for hit in changes(checkout.text_of(path) or "", checkout.name_of(path))] == []


@pytest.mark.parametrize("text", [
    "setattr(self.device, name, shadow)", "delattr(device, 'launch')", "object.__setattr__(device, 'launch', f)",
    "vars(self.device).pop(name)", "self._device.__dict__['launch'] = f", "device.launch = f", "del device.launch",
    "target.synchronize = f", "uploaded = device.seeds = seeds", "self.device.index = 1", "target.caps = caps",
    "device.dispatch_cache = {}", "device.closed |= lost",
])  # fmt: skip
def test_changes_are_found(text: str) -> None:
    assert len(list(changes(text))) == 1


@pytest.mark.parametrize("text", [
    "setattr(self, name, call)", "delattr(self, name)", "self.__dict__.setdefault('_threads', local)", "vars(kernel)",
    "device.launch(request)", "device.stream = stream", "self.launch = launch", "device.order = 3", "self.caps = caps",
    "device.limit(caps)", "self.device = device",
])  # fmt: skip
def test_other_statements_are_accepted(text: str) -> None:
    assert list(changes(text)) == []
