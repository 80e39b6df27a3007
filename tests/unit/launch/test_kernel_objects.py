# mypy: disable-error-code="no-untyped-def, no-untyped-call, arg-type, misc, no-any-return, attr-defined, call-arg"
"""Kernels as objects of a program: methods of classes; pickled, copied, and sent to other processes as functions are."""

from __future__ import annotations

import copy
import enum
import importlib.util
import multiprocessing
import pickle
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pytest

import vkjit as vk
from tests.unit.launch import by_value

T = TypeVar("T", bound=vk.Element)
X = np.arange(1, 5, dtype=np.float32)
INTERPRETER = "interpreter"


@vk.func
def shifted(v: T) -> T:
    return v + 1


@vk.struct
class Pair:
    a: vk.f32
    b: vk.f32

    def total(self):
        return self.a + self.b


@vk.kernel(over="y")
def kernel(x: vk.In[T, "N"], y: vk.Out[T, "N"]):
    i = vk.global_id(0)
    y[i] = shifted(x[i]) + Pair(1.0, 2.0).total()


@dataclass(frozen=True)
class Filter:
    gain: float = 2.0
    OFFSET = 7

    def amplified(self, v):
        return self.gain * v

    @vk.kernel(over="y")
    def run(self, x: vk.In[T, "N"], y: vk.Out[T, "N"]):
        i = vk.global_id(0)
        y[i] = self.amplified(x[i]) + self.gain

    @vk.kernel(local=32)
    def groups(self, x: vk.In[T, "N"], y: vk.Out[T, "N"]):
        i = vk.global_id(0)
        if i < len(x):
            y[i] = x[i] * self.gain

    @staticmethod
    @vk.kernel(over="y")
    def static(x: vk.In[T, "N"], y: vk.Out[T, "N"]):
        y[vk.global_id(0)] = x[vk.global_id(0)] + 1

    @vk.kernel(over="y")
    @staticmethod
    def static_inside(x: vk.In[T, "N"], y: vk.Out[T, "N"]):
        y[vk.global_id(0)] = x[vk.global_id(0)] + 2

    @classmethod
    @vk.kernel(over="y")
    def of_class(cls, x: vk.In[T, "N"], y: vk.Out[T, "N"]):
        y[vk.global_id(0)] = x[vk.global_id(0)] + cls.OFFSET


class Named(NamedTuple):
    factor: int = 4

    @vk.kernel(over="y")
    def run(self, x: vk.In[T, "N"], y: vk.Out[T, "N"]):
        y[vk.global_id(0)] = x[vk.global_id(0)] * self.factor


class Member(enum.Enum):
    FIVE = 5

    @vk.kernel(over="y")
    def run(self, x: vk.In[T, "N"], y: vk.Out[T, "N"]):
        y[vk.global_id(0)] = x[vk.global_id(0)] * self.value


class Mutable:
    def __init__(self) -> None:
        self.factor = 1

    @vk.kernel(over="y")
    def run(self, x: vk.In[T, "N"], y: vk.Out[T, "N"]):
        y[vk.global_id(0)] = x[vk.global_id(0)] * self.factor


def test_methods() -> None:
    with vk.use_device(INTERPRETER):
        assert Filter().run(X).tolist() == (X * 2 + 2).tolist()
        assert Filter(3.0).run(x=X).tolist() == (X * 3 + 3).tolist()
        assert Filter.run(Filter(4.0), X).tolist() == (X * 4 + 4).tolist()
        assert Filter(5.0).groups[1](X).tolist() == (X * 5).tolist()
        out = np.zeros_like(X)
        Filter(5.0).run(X, out)
        assert out.tolist() == (X * 5 + 5).tolist()
        tensor, bound = vk.tensor(X), Filter(6.0).run
        assert [bound(tensor).tolist() for _ in range(6)] == [(X * 6 + 6).tolist()] * 6  # the fast paths, too
        assert Named().run(X).tolist() == (X * 4).tolist()
        assert Member.FIVE.run(X).tolist() == (X * 5).tolist()
        assert "stage" in dir(Filter(2.0).run.inspect(X))
    assert repr(Filter().run).startswith("<<vk.kernel run(self: Const, x: In")


def test_static_and_class_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    with vk.use_device(INTERPRETER):
        for owner in (Filter, Filter()):
            assert owner.static(X).tolist() == (X + 1).tolist()
            assert owner.static_inside(X).tolist() == (X + 2).tolist()
            assert owner.of_class(X).tolist() == (X + 7).tolist()
        monkeypatch.setattr(Filter, "OFFSET", 8)
        assert Filter.of_class(X).tolist() == (X + 8).tolist()


def test_self_that_may_change() -> None:
    with pytest.raises(vk.ArgumentError, match=r"run\(\): self is a Mutable, which may change.*frozen=True"):
        Mutable().run(X)


def test_pickled_and_copied_by_reference() -> None:
    for value in (kernel, shifted, Pair, Filter.run, Filter.static):
        assert pickle.loads(pickle.dumps(value)) is value  # noqa: S301
        assert copy.copy(value) is value
        assert copy.deepcopy([value])[0] is value
    bound = pickle.loads(pickle.dumps(Filter(9.0).run))  # noqa: S301
    with vk.use_device(INTERPRETER):
        assert bound(X).tolist() == (X * 9 + 9).tolist()


def nested(n: float) -> Any:
    square = lambda v: v * v

    @vk.kernel(over="y", local=8)
    def local_kernel(x: vk.In[T, "N"], y: vk.Out[T, "N"], add: vk.f32 = 1.0):
        i = vk.global_id(0)
        y[i] = square(x[i]) * n + shifted(x[i]) + add

    return local_kernel


def nested_with_struct(n: float) -> Any:
    @vk.kernel(over="y")
    def local_kernel(x: vk.In[T, "N"], y: vk.Out[T, "N"]):
        i = vk.global_id(0)
        y[i] = n * x[i] * x[i] + x[i] + Pair(1.0, 1.0).total()

    return local_kernel


def test_nested_kernels_aren_t_pickled_by_reference() -> None:
    value = nested(2.0)
    with pytest.raises((AttributeError, pickle.PicklingError), match="local_kernel"):
        pickle.dumps(value)
    assert copy.deepcopy(value) is value


def in_another_process(connection: Any, function: Any, bound: Any) -> None:
    with vk.use_device(INTERPRETER):
        connection.send((function(X), bound(X), function is kernel))


def test_kernels_in_spawned_processes() -> None:
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=in_another_process, args=(sender, kernel, Filter(3.0).run))
    process.start()
    sender.close()
    first, second, is_same = receiver.recv()
    process.join()
    assert first.tolist() == (X + 4).tolist()
    assert second.tolist() == (X * 3 + 3).tolist()
    assert is_same


PROGRAM = """
import pickle, sys
import numpy as np
import vkjit as vk

kernel = pickle.load(sys.stdin.buffer)
with vk.use_device("interpreter"):
    print(kernel(np.arange(1, 5, dtype=np.float32)).tolist())
"""


@pytest.mark.parametrize("pickler", ["by_value", "cloudpickle"])
def test_pickled_by_value_with_the_source(pickler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other process has neither the file nor the module; its functions are stored by value, too."""
    dumps = pytest.importorskip(pickler).dumps if pickler == "cloudpickle" else by_value.dumps
    path = tmp_path / "kernels.py"
    path.write_text(Path(__file__).read_text(encoding="utf-8").split("\nPROGRAM")[0], encoding="utf-8")
    spec = importlib.util.spec_from_file_location("kernels_of_a_test", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    monkeypatch.delitem(sys.modules, spec.name)  # nothing of it is found by name
    value = module.nested(2.0) if pickler == "by_value" else module.nested_with_struct(2.0)
    with vk.use_device(INTERPRETER):
        expected = value(X).tolist()
    assert expected == (X * X * 2 + X + 2).tolist()
    data = dumps(value)
    path.unlink()
    command = [sys.executable, "-c", PROGRAM]
    root = Path(vk.__file__).parents[1]
    done = subprocess.run(command, input=data, capture_output=True, check=False, cwd=root)
    assert done.stdout.decode().strip() == str(expected), done.stderr.decode()
