"""Edge cases of operations: no elements, one element, more than 2^31 elements by stride 0, results over operands,
NaN and infinities, any strides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit.tensor.ops.views import strided

RNG = np.random.default_rng(0)

SHAPED: list[tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = [
    ("exp", vk.exp, np.exp),
    ("add", lambda x: x + x, lambda x: x + x),
    ("sum", lambda x: vk.sum(x), lambda x: x.sum()),
    ("sum of rows", lambda x: vk.sum(x, 1), lambda x: x.sum(1)),
    ("cumsum", lambda x: vk.cumsum(x, 1), lambda x: np.cumsum(x, 1)),
    ("sort", lambda x: vk.sort(x, 1)[0], lambda x: np.sort(x, 1)),
    ("flip", lambda x: vk.flip(x, 0), lambda x: x[::-1]),
    ("tril", lambda x: vk.tril(x), np.tril),
    ("transpose", lambda x: x.t().contiguous(), lambda x: x.T),
    ("cat", lambda x: vk.cat([x, x], 1), lambda x: np.concatenate([x, x], 1)),
    ("positive", lambda x: x[x > 0], lambda x: x[x > 0]),
]


@pytest.mark.parametrize(("name", "ours", "theirs"), SHAPED, ids=[s[0] for s in SHAPED])
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (1, 1), (5, 4)])
def test_shapes_down_to_nothing(device: Any, name: str, ours: Any, theirs: Any, shape: tuple[int, int]) -> None:
    values = RNG.standard_normal(shape).astype(np.float32)
    found, expected = ours(vk.tensor(values)).numpy(), np.asarray(theirs(values))
    assert found.shape == expected.shape
    assert np.allclose(found, expected, 1e-5, 1e-6)


@pytest.mark.parametrize(("name", "ours", "theirs"), SHAPED, ids=[s[0] for s in SHAPED])
def test_any_strides(device: Any, name: str, ours: Any, theirs: Any) -> None:
    values = RNG.standard_normal((8, 12)).astype(np.float32)
    x = vk.tensor(values)
    for ours_view, view in ((x[::-2, 1::3], values[::-2, 1::3]), (x.t()[2:9, ::2], values.T[2:9, ::2])):
        assert np.allclose(ours(ours_view).numpy(), theirs(view), 1e-5, 1e-6)


def test_more_elements_than_32_bits_count(device: Any) -> None:
    """Indices past 2^31 of a tensor with stride 0: reads, slices, gathers."""
    if device.caps.kind == "interpreter":
        pytest.skip("the interpreter would need minutes for so many elements")
    count = 2**31 + 7
    x = strided(vk.tensor([2.0]), (count,), (0,))
    assert x.numel() == count
    part = x[2**31 + 1 :]
    assert part.tolist() == [2.0] * 6
    picked = vk.index_select(x, 0, vk.tensor([0, 2**31, count - 1, count - 2]))
    assert picked.tolist() == [2.0] * 4
    wide = strided(vk.tensor([1.0, 2.0, 3.0]), (2**31, 3), (0, 1))
    assert wide[2**31 - 1].tolist() == [1.0, 2.0, 3.0]
    assert vk.gather(wide[-2:], 1, vk.tensor([[2], [0]])).tolist() == [[3.0], [1.0]]


def test_results_over_operands(device: Any) -> None:
    values = np.arange(12, dtype=np.float32)
    for write, expected in (
        (lambda x: x[1:].copy_(x[:-1]), np.concatenate([values[:1], values[:-1]])),
        (lambda x: x[:-1].add_(x[1:]), np.concatenate([values[:-1] + values[1:], values[-1:]])),
        (lambda x: x.copy_(x.flip(0)), values[::-1]),
        (lambda x: x.view(3, 4)[:, 1:].mul_(x.view(3, 4)[:, :-1]), None),
    ):
        x = vk.tensor(values)
        write(x)  # type: ignore[no-untyped-call]
        if expected is None:
            grid = values.reshape(3, 4).copy()
            grid[:, 1:] = values.reshape(3, 4)[:, 1:] * values.reshape(3, 4)[:, :-1]
            expected = grid.reshape(-1)
        assert np.array_equal(x.numpy(), expected)


def test_nan_and_infinities(device: Any) -> None:
    values = np.array([1.0, np.nan, -np.inf, np.inf, -0.0, 0.0, -2.0], np.float32)
    x = vk.tensor(values)
    assert np.array_equal(vk.sort(x)[0].numpy(), np.sort(values), equal_nan=True)
    assert vk.argmax(x).item() == 1 and vk.argmin(x).item() == 1
    assert np.isnan(vk.amax(x).item()) and np.isnan(vk.sum(x).item())
    assert np.array_equal(vk.maximum(x, vk.zeros(7)).numpy(), np.maximum(values, 0), equal_nan=True)
    assert np.array_equal(vk.clamp(x, -1.0, 1.0).numpy(), np.clip(values, -1, 1), equal_nan=True)
    assert np.array_equal(vk.nan_to_num(x, 5.0).numpy(), np.nan_to_num(values, nan=5.0))
    assert vk.topk(x, 2)[1].tolist() == [1, 3]
    assert vk.cummax(x, 0)[1].tolist() == [0, 1, 1, 1, 1, 1, 1]
    assert vk.isinf(x).tolist() == [False, False, True, True, False, False, False]
    assert vk.unique(vk.tensor([np.inf, 1.0, np.inf])).tolist() == [1.0, np.inf]


def test_squares_that_overflow_leave_the_deviation_finite(device: Any) -> None:
    if "f64" not in device.caps.dtypes:
        pytest.skip("without f64 squares are summed in f32")
    assert np.isclose(vk.std(vk.tensor([1e30, 3e30])).item(), np.sqrt(2) * 1e30, 1e-6)


def test_numbers_past_the_type_are_compared_as_they_are(device: Any) -> None:
    x = vk.tensor([1, 200], dtype=vk.u8)
    assert not (x > 300).any().item() and not (x == 300).any().item()
    assert (x < 300).all().item() and (300 > x).all().item() and (x > -1).all().item()


@pytest.mark.parametrize("dtype", [vk.f16, vk.bf16])
def test_numbers_are_compared_in_the_16_bit_type(device: Any, dtype: Any) -> None:
    for number in (0.1, 257, 1 / 3, 1e-45, 70_000 if dtype is vk.bf16 else 2049):
        x = vk.full((2,), number, dtype=dtype, device=device)
        other = vk.tensor(float(number), device=device)
        for equal in (x == number, number == x, x <= number, x >= number, x == other, ~(x != number), ~(x < number)):
            assert equal.tolist() == [True, True], (number, dtype)
    assert (vk.full((2,), float("inf"), dtype=dtype, device=device) > 1e39).tolist() == [False, False]  # as in PyTorch
    assert (vk.ones(2, dtype=dtype, device=device) < 2**200).tolist() == [True, True]


def test_positions_out_of_range_are_reported_by_every_write(device: Any) -> None:
    if device.caps.kind not in ("llvm-cpu", "interpreter"):
        pytest.skip("positions are checked by default on processors' own devices")
    x, index = vk.zeros(4), vk.tensor([0, 4])
    for write in (vk.scatter_add, vk.scatter):
        with pytest.raises(vk.KernelError):
            write(x, 0, index, vk.ones(2)).numpy()


@pytest.mark.parametrize("largest", [False, True])
def test_the_first_few_of_long_lines(device: Any, largest: bool) -> None:
    """Rows longer than one search covers are split into segments."""
    length = 20000 if device.caps.kind != "interpreter" else 700
    values = RNG.integers(0, 1000, (2, length)).astype(np.float32)
    found, places = vk.topk(vk.tensor(values), 5, 1, largest=largest)
    order = np.argsort(-values if largest else values, 1, kind="stable")[:, :5]
    assert np.array_equal(places.numpy(), order)
    assert np.array_equal(found.numpy(), np.take_along_axis(values, order, 1))


def test_sums_have_one_order_and_streams_repeat(device: Any) -> None:
    vk.manual_seed(5)
    state = vk.get_rng_state()
    first = vk.randn(1000).numpy()
    vk.set_rng_state(state)
    assert np.array_equal(vk.randn(1000).numpy(), first)
    own = vk.Generator(5)
    assert np.array_equal(vk.rand(9, generator=own).numpy(), vk.rand(9, seed=5).numpy())
    assert sorted(vk.randperm(50).tolist()) == list(range(50))
    index = vk.tensor(RNG.integers(0, 7, 5000))
    sums = [vk.zeros(7).scatter_add(0, index, vk.tensor(np.resize(first, 5000))).numpy() for _ in range(2)]
    if device.caps.kind in ("cpu", "llvm-cpu", "interpreter"):
        assert np.array_equal(sums[0], sums[1])


def test_long_tensors_in_small(device: Any) -> None:
    """The operations of `python -m tests.huge`, which uses more than 2^31 elements, at a small size."""
    from tests.huge import main

    if device.caps.kind != "llvm-cpu":
        pytest.skip("the command takes a device; here the device cpu runs it")
    assert main(["--device", device.name, "--count", "1000"]) == 0


FAR = 2**31 + 7
PLACES = [0, 2**31, FAR - 1]


def _far(value: float, dtype: Any = vk.f32) -> Any:
    return strided(vk.tensor([value], dtype=dtype), (FAR,), (0,))


def _far_rows() -> Any:
    return strided(vk.tensor([1.0, 2.0, 3.0]), (FAR, 3), (0, 1))


BEYOND: dict[str, tuple[Callable[[], Any], Any]] = {
    "chunk": (lambda: vk.chunk(_far(2.0), 3)[2][-1:], [2.0]),
    "diagonal": (lambda: strided(vk.ones(1), (FAR, FAR), (0, 0)).diagonal(5)[-2:], [1.0, 1.0]),
    "expand": (lambda: vk.tensor([4.0]).expand(FAR)[2**31 :][:2], [4.0, 4.0]),
    "backwards": (lambda: _far_rows()[..., ::-1][2**31], [3.0, 2.0, 1.0]),
    "gather": (lambda: vk.gather(_far(2.0), 0, vk.tensor(PLACES)), [2.0] * 3),
    "index_select": (lambda: vk.index_select(_far_rows(), 0, vk.tensor(PLACES)), [[1.0, 2.0, 3.0]] * 3),
    "movedim": (lambda: _far_rows().movedim(0, 1)[:, -1], [1.0, 2.0, 3.0]),
    "narrow": (lambda: vk.narrow(_far(2.0), 0, 2**31, 3), [2.0] * 3),
    "select": (lambda: vk.select(_far_rows(), 0, -1), [1.0, 2.0, 3.0]),
    "split": (lambda: vk.split(_far(2.0), 2**31)[1], [2.0] * 7),
    "steps": (lambda: _far(2.0)[5 :: 2**30], [2.0, 2.0, 2.0]),
    "take": (lambda: vk.take(_far(2.0), vk.tensor(PLACES)), [2.0] * 3),
    "take_along_dim": (lambda: vk.take_along_dim(_far(2.0), vk.tensor(PLACES), 0), [2.0] * 3),
    "unflatten": (lambda: _far(2.0)[:-7].unflatten(0, (2**16, 2**15))[-1, -2:], [2.0, 2.0]),
    "unfold": (lambda: _far(2.0).unfold(0, 2**31, 7)[:, -1], [2.0, 2.0]),
    "unsqueeze": (lambda: _far(2.0).unsqueeze(0)[:, -1], [2.0]),
}
"""Operations that read little of a tensor of more than 2^31 elements; `python -m tests.huge` covers the others."""


@pytest.mark.parametrize("name", BEYOND)
def test_positions_past_32_bits(device: Any, name: str) -> None:
    if device.caps.kind == "interpreter":
        pytest.skip("the interpreter would need minutes for so many elements")
    call, expected = BEYOND[name]
    assert call().tolist() == expected


def test_steps_past_the_end(device: Any) -> None:
    x = vk.arange(10.0)
    for step in (10, 11, 2**31, 2**62, 2**63, 2**70):
        for part in (x[::step], x.reshape(5, 2)[::step], x[3::step], x.unfold(0, 3, step), x[:0:step], x[1:0:step]):
            expected = (part + 1).numpy() - 1
            np.testing.assert_array_equal(part.numpy(), expected)
        assert x[::step].tolist() == [0.0] and x[3::step].tolist() == [3.0]
        assert x.unfold(0, 3, step).tolist() == [[0.0, 1.0, 2.0]]
        assert x.unfold(0, 0, step).shape == (10 // step + 1, 0)
        y = x.clone()
        y[::step] = 5.0
        assert y.tolist() == [5.0, *range(1, 10)]
        z = x.clone().requires_grad_()
        z[::step].sum().backward()
        assert z.grad is not None and z.grad.tolist() == [1.0] + [0.0] * 9
    vectors = vk.ones(1, 1, 4, 4)
    assert vk.nn.functional.max_pool2d(vectors, 2, stride=2**62).tolist() == [[[[1.0]]]]
    assert vk.nn.functional.avg_pool2d(vectors, 2, stride=2**62, ceil_mode=True).tolist() == [[[[1.0]]]]


def test_sizes_past_any_memory_are_refused(device: Any) -> None:
    x = vk.ones(1, 1, 4, 4)
    for options in ({"size": (2**33, 2**33)}, {"scale_factor": 1e300}, {"size": (2**31, 1)}):
        for mode in ("nearest", "bilinear", "area"):
            with pytest.raises(vk.ShapeError, match=r"interpolate\(\) of shape .* expected sizes below"):
                vk.nn.functional.interpolate(x, mode=mode, **options)
    with pytest.raises(vk.ArgumentError, match="expected numbers below"):
        vk.nn.functional.avg_pool2d(x, 2**31, padding=2**30)
