"""`memory_fuzz` on a few operations, and minimal cases of the bugs it has found."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch isn't installed: nothing to compare with")

import vkjit as vk  # noqa: E402  # after importorskip
from vkjit.errors import VkjitError  # noqa: E402

INF, NAN = math.inf, math.nan


@pytest.fixture(autouse=True)
def _here(device: Any) -> Iterator[None]:
    with vk.use_device(device):
        yield


@pytest.mark.parametrize("name", ["masked_fill"])
def test_a_few_operations(device: Any, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("expecttest", reason="PyTorch's own tests need expecttest, which isn't installed")
    if device.caps.kind != "llvm-cpu":
        pytest.skip("the command takes a device; here the device cpu runs it")
    from tests.parity.memory_fuzz.__main__ import examine

    count = examine(name, 3, device, None)
    assert count["checks"] > count["inapplicable"]
    assert '"finding"' not in capsys.readouterr().out


COPIES: dict[str, Callable[[Any], Any]] = {
    "flip": lambda x: x.flip(0),
    "flip of one": lambda x: x[:1, :1].flip(0, 1),
    "fliplr": lambda x: x.fliplr(),
    "pixel_shuffle": lambda x: vk.nn.functional.pixel_shuffle(x[None], 1),
    "pixel_unshuffle": lambda x: vk.nn.functional.pixel_unshuffle(x[None], 1),
    "repeat_interleave": lambda x: x[:1].repeat_interleave(1, 0),
    "roll": lambda x: x.roll(2, 0),
    "rot90": lambda x: x.rot90(),
    "rot90 by nothing": lambda x: x.rot90(4),
}


@pytest.mark.parametrize("name", COPIES)
def test_results_that_are_copies(name: str) -> None:
    x = vk.tensor([[1.0, 2.0], [3.0, 4.0]])
    COPIES[name](x).fill_(9.0)
    assert x.tolist() == [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize("name", ["median", "nanmedian"])
@pytest.mark.parametrize("values", [[1.0, 1.0, 0.0], [3.0, 1.0, 3.0, 3.0], [NAN, 1.0, NAN]])
def test_equal_elements_share_the_gradient_of_a_median(name: str, values: list[float]) -> None:
    ours, theirs = vk.tensor(values).requires_grad_(), torch.tensor(values).requires_grad_()
    getattr(vk, name)(ours).backward()
    getattr(torch, name)(theirs).backward()
    assert ours.grad is not None and theirs.grad is not None
    assert torch.equal(torch.tensor(ours.grad.tolist()), theirs.grad)


def test_the_sign_of_nan() -> None:
    x = vk.tensor([NAN, -2.0, INF])
    assert vk.sign(x).tolist() == [0.0, -1.0, 1.0]
    assert math.isnan(vk.array_api.sign(x).tolist()[0])


@pytest.mark.parametrize("weight", [None, 2.0])
@pytest.mark.parametrize("target", [0.0, 0.5, 1.0, INF])
def test_entropy_of_infinite_logits(target: float, weight: float | None) -> None:
    for x in (INF, -INF, 1.0):
        _compare_entropies(x, target, weight)


def _compare_entropies(x: float, target: float, weight: float | None) -> None:
    ours = vk.nn.functional.binary_cross_entropy_with_logits(
        vk.tensor([x]), vk.tensor([target]), pos_weight=None if weight is None else vk.tensor([weight])
    )
    theirs = torch.nn.functional.binary_cross_entropy_with_logits(
        torch.tensor([x]), torch.tensor([target]), pos_weight=None if weight is None else torch.tensor([weight])
    )
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-5, nan_ok=True)


@pytest.mark.parametrize("mode", [None, "floor", "trunc"])
def test_quotients_in_place_are_rounded(mode: Any) -> None:
    values, by = [7.0, -7.0, 5.5], [2.0, 2.0, -2.0]
    found = vk.tensor(values).div_(vk.tensor(by), rounding_mode=mode)
    assert found.tolist() == torch.tensor(values).div_(torch.tensor(by), rounding_mode=mode).tolist()
    with pytest.raises(VkjitError, match="rounding_mode"):
        found.div_(2.0, rounding_mode="up")


@pytest.mark.parametrize("name", ["i8", "u8", "i16", "i32", "i64"])
def test_shifts_by_more_bits_than_there_are(device: Any, name: str) -> None:
    theirs = {"i8": torch.int8, "u8": torch.uint8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64}[name]
    if name != "i32" and name not in device.caps.dtypes:
        pytest.skip(f"the device has no {name}")
    values = [a for a in (-8, 100) if a >= 0 or name != "u8"]
    by = [b for b in (-3, -1, 0, 1, 7, 8, 15, 16, 31, 32, 63, 64, 100) if b >= 0 or name != "u8"]
    ours = vk.tensor(values, dtype=getattr(vk, name))[:, None], vk.tensor(by, dtype=getattr(vk, name))
    right = torch.tensor(values, dtype=theirs)[:, None], torch.tensor(by, dtype=theirs)
    assert (ours[0] >> ours[1]).tolist() == (right[0] >> right[1]).tolist()
    assert (ours[0] << ours[1]).tolist() == (right[0] << right[1]).tolist()


def test_empty_vectors_count_for_the_type_of_a_cat() -> None:
    nothing, some = vk.empty(0, dtype=vk.f16), vk.ones((2, 2), dtype=vk.u8)
    assert vk.cat([nothing, some]).dtype is vk.f16
    assert vk.cat([nothing.to(vk.u8), some]).dtype is vk.u8


@pytest.mark.parametrize("values", [[INF, 1.0, 2.0, 3.0], [1.0, -INF, 2.0, 3.0]])
def test_infinite_neighbours_in_between(values: list[float]) -> None:
    ours = vk.nn.functional.interpolate(vk.tensor(values)[None, None], size=8, mode="linear").tolist()
    theirs = torch.nn.functional.interpolate(torch.tensor(values)[None, None], size=8, mode="linear").tolist()
    assert ours[0][0] == pytest.approx(theirs[0][0], nan_ok=True)


def test_counts_of_nothing_are_whole() -> None:
    assert vk.bincount(vk.empty(0, dtype=vk.i64), vk.empty(0), 3).dtype is vk.i64


def test_types_of_products() -> None:
    whole = [vk.ones(shape, dtype=vk.i32) for shape in ((2, 3), (2, 4), (5, 3, 4))]
    assert vk.nn.functional.bilinear(*whole).dtype is vk.i32
    one, pair = vk.tensor(1.0), vk.ones(2, dtype=vk.f16)
    assert vk.addr(one, pair, pair).dtype is vk.f32


def test_positions_in_a_shape_are_i64() -> None:
    assert [p.dtype for p in vk.unravel_index(vk.tensor([3], dtype=vk.i32), (2, 2))] == [vk.i64, vk.i64]


@pytest.mark.parametrize("arguments", [(3.1,), (2.1, -2.9, -1.0), (1.0, 5.000001, 2.0), (-0.9, 2.1, 2.0)])
@pytest.mark.parametrize("name", ["u8", "i32", "i64"])
def test_ranges_of_integers_between_floats(arguments: tuple[float, ...], name: str) -> None:
    ours, theirs = getattr(vk, name), {"u8": torch.uint8, "i32": torch.int32, "i64": torch.int64}[name]
    assert vk.arange(*arguments, dtype=ours).tolist() == torch.arange(*arguments, dtype=theirs).tolist()


@pytest.mark.parametrize("name", ["all", "ceil", "float_power", "neg", "sign", "signbit", "where"])
def test_out_of_a_type_that_pytorch_refuses(device: Any, name: str) -> None:
    if "f64" not in device.caps.dtypes:
        pytest.skip("without f64 there is no type to narrow from")
    x = vk.ones(3, dtype=vk.f64)
    arguments = {"float_power": (x, 2.0), "where": (x > 0, x, x)}.get(name, (x,))
    with pytest.raises(VkjitError, match="expected the same type"):
        getattr(vk, name)(*arguments, out=vk.ones(() if name == "all" else 3))
