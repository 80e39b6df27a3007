# mypy: disable-error-code="arg-type, attr-defined, call-arg, call-overload, index, misc, no-untyped-call, no-untyped-def"
# mypy: disable-error-code="operator, valid-type"
"""Captured values: kernels see every rebinding, for any kind of scope and any number of changes."""

from __future__ import annotations

import linecache
import multiprocessing
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vkjit as vk

SCALE: Any = 2


@vk.func
def scaled(v):
    return v * SCALE


@vk.struct
class Held(vk.Struct):
    a: vk.f32

    def scaled(self):
        return self.a * SCALE


@vk.kernel(over="x")
def directly(x: vk.InOut[vk.f32, "N"]):
    i = vk.global_id(0)
    x[i] = x[i] * SCALE


@vk.kernel(over="x")
def by_function(x: vk.InOut[vk.f32, "N"]):
    i = vk.global_id(0)
    x[i] = scaled(x[i])


@vk.kernel(over="x")
def by_constant(x: vk.InOut[vk.f32, "N"], f: vk.Const[Any] = scaled):
    i = vk.global_id(0)
    x[i] = f(x[i])


@vk.kernel(over="x")
def by_tuple(x: vk.InOut[vk.f32, "N"], f: vk.Const[Any] = (1, scaled)):
    i = vk.global_id(0)
    x[i] = f[1](x[i])


@vk.kernel(over="x")
def by_struct(x: vk.InOut[vk.f32, "N"], kind: vk.Const[Any] = Held):
    i = vk.global_id(0)
    x[i] = kind(x[i]).scaled()


@vk.kernel(over="p")
def by_element(p: vk.InOut[Held, "N"]):
    i = vk.global_id(0)
    p[i].a = p[i].scaled()


KERNELS = [directly, by_function, by_constant, by_tuple, by_struct]


@pytest.mark.parametrize("tensors", [False, True], ids=["numpy", "tensors"])
def test_each_rebinding_compiles_anew(device: Any, tensors: bool) -> None:
    global SCALE  # noqa: PLW0603  (it is what kernels capture)
    try:
        for SCALE in (2, 5, 7, 2, 2.5):  # noqa: B020
            for kernel in KERNELS:
                x = np.ones(1, np.float32)
                if tensors:
                    held = vk.tensor(x, device=device)
                    kernel(held)
                    x = held.numpy()
                else:
                    kernel(x)
                assert x[0] == SCALE, kernel.name
            p = np.ones(1, vk.struct_dtype(Held))
            by_element(p)
            assert p["a"][0] == SCALE
    finally:
        SCALE = 2


def test_a_shadowed_builtin_comes_back(device: Any) -> None:
    def value() -> float:
        x = np.full(1, -3, np.float32)
        shadowed(x)
        return float(x[0])

    @vk.kernel(over="x")
    def shadowed(x: vk.InOut[vk.f32, "N"]):
        x[vk.global_id(0)] = abs(x[vk.global_id(0)])  # noqa: F821

    assert value() == 3
    globals()["abs"] = scaled
    try:
        assert value() == -6
    finally:
        del globals()["abs"]
    assert value() == 3


def test_closures_and_loops(device: Any) -> None:
    def make(n: int) -> tuple[Any, Callable[[int], None]]:
        @vk.kernel(over="x")
        def added(x: vk.InOut[vk.i32, "N"]):
            x[vk.global_id(0)] += n

        def rebind(value: int) -> None:
            nonlocal n
            n = value

        return added, rebind

    kernels = [make(n) for n in (1, 10, 100)]
    x = np.zeros(1, np.int32)
    for kernel, _ in kernels:
        kernel(x)
    assert x[0] == 111
    for kernel, rebind in kernels:
        for n in (2000, 3000):
            rebind(n)
            kernel(x)
    assert x[0] == 111 + 3 * 5000


def _cell(name: str, source: str, names: dict[str, Any]) -> None:
    """Run the source of a notebook cell, registered in linecache."""
    source = textwrap.dedent(source)
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    exec(compile(source, name, "exec"), names)  # noqa: S102


def test_cells_of_notebooks(device: Any) -> None:
    names: dict[str, Any] = {"vk": vk, "__name__": "__main__"}
    kernel = """
        @vk.kernel(over="x")
        def f(x: vk.InOut[vk.f32, "N"]):
            x[vk.global_id(0)] OPERATION
    """

    def value() -> float:
        x = np.ones(1, np.float32)
        names["f"](x)
        return float(x[0])

    _cell("<ipython-input-1-aa>", "K = 2", names)
    _cell("<ipython-input-2-aa>", kernel.replace("OPERATION", "*= K"), names)
    assert value() == 2
    _cell("<ipython-input-3-aa>", "K = 5", names)
    assert value() == 5
    _cell("<ipython-input-4-aa>", kernel.replace("OPERATION", "+= K"), names)
    assert value() == 6
    _cell("<ipython-input-2-aa>", kernel.replace("OPERATION", "-= K"), names)
    assert value() == -4


def test_functions_without_source_say_what_to_do() -> None:
    names: dict[str, Any] = {"vk": vk}
    exec('@vk.kernel(over="x")\ndef f(x: vk.InOut[vk.f32, "N"]):\n    x[vk.global_id(0)] = 1\n', names)  # noqa: S102
    with pytest.raises(vk.CompileError, match="put the kernel into a file"):
        names["f"](np.ones(1, np.float32))


class Namespace:
    SCALE = 3

    @vk.kernel(over="x")
    def kernel(x: vk.InOut[vk.f32, "N"]):  # noqa: N805
        x[vk.global_id(0)] = Namespace.plus_one(x[vk.global_id(0)]) * Namespace.SCALE

    @staticmethod
    @vk.func
    def plus_one(v):
        return v + 1


def test_kernels_in_classes(device: Any) -> None:
    for Namespace.SCALE in (3, 4, 5):  # noqa: B020
        x = np.ones(1, np.float32)
        Namespace.kernel(x)
        assert x[0] == 2 * Namespace.SCALE


def _launch(queue: Any) -> None:
    with vk.use_device("interpreter"):
        x = np.ones(2, np.float32)
        directly(x)
        queue.put(x.tolist())


def test_kernels_in_a_spawned_process() -> None:
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_launch, args=(queue,))
    process.start()
    try:
        assert queue.get(timeout=120) == [2, 2]
    finally:
        process.join()


def test_what_can_not_be_captured() -> None:
    with pytest.raises(vk.ArgumentError, match=r"argument f of by_constant\(\) is a list: .* pass a tuple"):
        by_constant(np.ones(1, np.float32), f=[1])
    with pytest.raises(vk.ArgumentError, match="annotate the parameter as an array"):
        by_constant(np.ones(1, np.float32), f=np.ones(2))
    with pytest.raises(vk.CompileError, match="decorated already"):
        vk.func(scaled)
