# mypy: disable-error-code="arg-type, attr-defined, call-arg, misc, no-any-return, no-untyped-call, no-untyped-def, operator"
"""Names of any script, and scalars given as NumPy scalars, arrays and tensors of one element."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import pytest

import vkjit as vk

T = TypeVar("T", bound=vk.Element)
X = np.arange(1, 5, dtype=np.float32)


@vk.struct
class Größe:
    höhe: vk.f32
    β: vk.i32


@vk.func
def größer(α):  # noqa: PLC2403
    return α + 1


@vk.kernel(over="ö")
def Messung_é(x: vk.In[vk.f32, "Ñ"], ö: vk.Out[vk.f32, "Ñ"], Δt: vk.f32, Ñ: vk.Const[int]):
    日本 = vk.global_id(0)
    g = Größe(x[日本], 2)

    def λ(σ):
        return σ * g.höhe

    held = vk.local(vk.f32, 2)
    held[0] = 1
    assert x[日本] < 100, f"zu groß: {x[日本]}"
    ö[日本] = größer(g.höhe) * Δt + vk.f32(g.β) + λ(2.0) + vk.f32(Ñ) + held[0]


@vk.kernel(groups=lambda µ: µ.shape[0], local=32)
def Summen_ß(µ: vk.In[T, "Zeilen 2*Spälten"], σ: vk.Out[T, "Zeilen"]):
    wg = vk.workgroup()
    σ[vk.group_id(0)] = wg.sum(µ[vk.group_id(0), :])


@vk.kernel(over="ﬁ")
def normalized(x: vk.In[vk.f32, "Ⅳ *ñ"], fi: vk.Out[vk.f32, "IV *ñ"]):
    """Python takes the ligature and the Roman number in names for the letters."""
    fi[vk.index()] = x[vk.index()]


def test_names_of_any_script(device: Any) -> None:
    for _ in range(3):
        assert Messung_é(X, Δt=2.0).tolist() == ((X + 1) * 2 + 2 + 2 * X + 4 + 1).tolist()
    a = np.ones((3, 40), np.float32)
    assert Summen_ß(a).tolist() == [40, 40, 40]
    assert normalized(X).tolist() == X.tolist()
    with pytest.raises(vk.ShapeError, match=r"Ñ is 4, found 5"):
        Messung_é(X, np.zeros(5, np.float32), Δt=2.0)
    with pytest.raises(vk.KernelAssertionError, match="zu groß: 201"):
        Messung_é(X + 200, Δt=2.0)


@vk.kernel(over="y")
def scaled(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"], a: vk.f32, n: vk.i32 = 1, flag: vk.boolean = False):
    i = vk.global_id(0)
    y[i] = x[i] * a + vk.f32(n)
    if flag:
        y[i] = 0


def host_tensors(device: Any) -> bool:
    return bool(device.caps.unified_memory)


def test_scalars_of_one_element(device: Any) -> None:
    if not host_tensors(device):
        pytest.skip("tensors don't lie on the host")
    values = [
        np.float32(2), np.float64(2), np.int64(2), np.bool_(True), np.array(2.0), np.array([2.0], np.float32),
        np.array([[2]]), vk.tensor(2.0), vk.tensor([2.0]), vk.tensor([[2]]),
    ]  # fmt: skip
    for a in values:
        expected = (X * float(np.asarray(a).reshape(())) + 1).tolist()
        assert scaled(X, a=a).tolist() == expected
        x = vk.tensor(X)
        assert [scaled(x, a=a).tolist() for _ in range(8)] == [expected] * 8  # the fast paths, too
    assert scaled(X, a=1.0, n=vk.tensor([3])).tolist() == (X + 3).tolist()
    assert scaled(X, a=1.0, flag=vk.tensor(True)).tolist() == [0] * 4


def test_a_tensor_is_read_at_each_launch(device: Any) -> None:
    if not host_tensors(device):
        pytest.skip("tensors don't lie on the host")
    x, a = vk.tensor(X), vk.tensor(2.0)
    for value in (2.0, 5.0, -1.0, 0.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0):
        a.fill_(value)
        assert scaled(x, a=a).tolist() == (X * value + 1).tolist()


def test_tensors_that_aren_t_one_number(device: Any) -> None:
    if not host_tensors(device):
        pytest.skip("tensors don't lie on the host")
    with pytest.raises(vk.ArgumentError, match="argument a is a Tensor: expected a number"):
        scaled(X, a=vk.ones(2))
    with pytest.raises(vk.ArgumentError, match="argument a is a ndarray of float32: expected a number"):
        scaled(X, a=X)
    with pytest.raises(vk.DTypeError, match="argument n is 3.0: expected an integer"):
        scaled(X, a=1.0, n=vk.tensor(3.0))
    with pytest.raises(vk.ArgumentError, match=r"argument a requires a gradient.*a\.detach\(\)"):
        scaled(X, a=vk.tensor(2.0, requires_grad=True))


def test_a_captured_launch_doesn_t_read_a_tensor(device: Any) -> None:
    x, a = vk.tensor(X), vk.tensor(2.0)
    with pytest.raises(vk.VkjitError), vk.capture(x=x):
        scaled(x, a=a)


def test_a_tensor_of_another_memory(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import dataclasses

    a = vk.tensor(2.0)
    monkeypatch.setattr(device, "caps", dataclasses.replace(device.caps, unified_memory=False))
    with pytest.raises(vk.ArgumentError, match=r"argument a lies on .*: pass a\.item\(\)"):
        scaled(X, a=a)
