"""Tests of neural-network functions on integers, as in PyTorch: exactly the results for floats of the same values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkjit as vk

F = vk.nn.functional
RNG = np.random.default_rng(4)


def whole(*shape: int) -> Any:
    return RNG.integers(-9, 10, shape)


CONVOLUTIONS: dict[str, tuple[str, tuple[int, ...], tuple[int, ...], bool, dict[str, Any]]] = {
    "plain": ("conv1d", (2, 3, 9), (4, 3, 3), True, {}),
    "strided": ("conv1d", (2, 4, 11), (6, 2, 3), False, {"stride": 2, "padding": 2, "dilation": 2, "groups": 2}),
    "without a batch": ("conv2d", (2, 5, 6), (3, 2, 2, 3), True, {"padding": "same"}),
    "padding as wide as the kernel": ("conv2d", (1, 1, 1, 2), (1, 1, 3, 3), False, {"padding": (2, 3), "stride": 3}),
    "three axes": ("conv3d", (1, 2, 3, 4, 4), (2, 1, 2, 2, 3), True, {"groups": 2, "stride": (1, 2, 1)}),
    "transposed": ("conv_transpose1d", (2, 4, 5), (4, 3, 3), True, {"stride": 3, "padding": 1, "output_padding": 2}),
    "transposed, grouped": ("conv_transpose2d", (4, 3, 3), (4, 2, 2, 3), False, {"groups": 2, "dilation": 2}),
    "transposed, three axes": ("conv_transpose3d", (1, 2, 2, 3, 2), (2, 2, 2, 1, 3), True, {"stride": 2}),
}


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_convolutions(device: Any, case: str) -> None:
    name, x_shape, w_shape, biased, options = CONVOLUTIONS[case]
    groups = options.get("groups", 1)
    filters = w_shape[1] * groups if "transpose" in name else w_shape[0]
    operands = [whole(*x_shape), whole(*w_shape), whole(filters) if biased else None]
    run = getattr(F, name)

    def given(dtype: Any) -> list[Any]:
        return [None if v is None else vk.tensor(v, dtype=dtype) for v in operands]

    found, expected = run(*given(vk.i64), **options), run(*given(vk.f32), **options)
    assert found.dtype is vk.i64
    np.testing.assert_array_equal(found.numpy(), expected.numpy().astype(np.int64))


def test_integers_wrap_and_types_must_agree(device: Any) -> None:
    x = vk.tensor([[100, 100, 100]], dtype=vk.i8)
    assert F.conv1d(x, vk.tensor([[[1, 1]]], dtype=vk.i8)).tolist() == [[-56, -56]]
    with pytest.raises(vk.DTypeError, match="convert one of them"):
        F.conv1d(x, vk.tensor([[[1, 1]]]))
    with pytest.raises(vk.DTypeError, match="bias"):
        F.conv1d(x, vk.tensor([[[1, 1]]], dtype=vk.i8), vk.tensor([1.0]))
    with pytest.raises(vk.DTypeError, match="floats"):
        F.conv1d(vk.tensor([[True, False]]), vk.tensor([[[True]]]))


def test_activations(device: Any) -> None:
    x = vk.tensor([-9, -1, 0, 1, 9])
    assert F.hardtanh(x).tolist() == [-1, -1, 0, 1, 1] and F.hardtanh(x).dtype is vk.i64
    assert F.relu6(x).tolist() == [0, 0, 0, 1, 6]
    assert F.hardtanh(x, 2, 2).tolist() == [2] * 5
    assert F.hardtanh(vk.tensor([1.0, 3.0]), 2.0, 2.0).tolist() == [2, 2]
    assert F.threshold(x, 0.5, 7).tolist() == [7, 7, 7, 1, 9]
    assert F.softsign(x).tolist() == pytest.approx([-0.9, -0.5, 0, 0.5, 0.9])
    np.testing.assert_allclose(F.tanhshrink(x).numpy(), x.numpy() - np.tanh(x.numpy().astype(float)), 1e-6, 1e-7)


def test_distances(device: Any) -> None:
    a, b = vk.tensor([[1, 2], [3, 4]]), vk.tensor([[1, 2], [0, 0]])
    assert F.pairwise_distance(a, b).tolist() == pytest.approx([2.0**0.5 * 1e-6, 5], rel=1e-5)
    target = vk.tensor([1, 1])
    assert F.cosine_embedding_loss(a[:1].expand(2, 2), b[:1].expand(2, 2), target).item() == pytest.approx(0, abs=1e-6)
    assert F.bilinear(a, b, vk.tensor([[[1, 2], [3, 4]]])).tolist() == [[1 + 4 + 6 + 16], [0]]
    assert F.multi_margin_loss(vk.tensor(2.0), vk.tensor(0)).item() == 0
    assert vk.tensor(True).sum_to_size(()).dtype is vk.i64


def test_similarity_of_long_halves(device: Any) -> None:
    x = vk.full((1, 4), 300.0, dtype=vk.f16)  # its square overflows f16
    assert F.cosine_similarity(x, -x).item() == -1


@pytest.mark.parametrize(
    ("dtype", "digits", "largest"), [(vk.f16, 11, 15), (vk.bf16, 8, 127), (vk.f32, 24, 127), (vk.f64, 53, 1023)]
)
def test_ldexp_is_exact_where_the_factor_is_out_of_range(device: Any, dtype: Any, digits: int, largest: int) -> None:
    if dtype is not vk.bf16 and dtype.name not in device.caps.dtypes:
        pytest.skip(f"the device lacks {dtype.name}")
    rng = np.random.default_rng(0)
    powers, target_powers = rng.integers(
        1 - largest, largest, (2, 1000)
    )  # of normal numbers: others may be flushed to 0
    significands = np.round(rng.uniform(1, 2, 1000) * 2.0 ** (digits - 1)) * 2.0 ** (1 - digits)
    values = np.concatenate([np.ldexp(significands, powers), [0.0, -0.0, 1.0, 1.0, -1.0, 1.0, np.inf, np.nan]])
    exponents = np.concatenate([target_powers - powers, [5000, 9000, largest + 1, 2**40, 9000, -9000, -5000, 3]])
    expected = np.concatenate(
        [np.ldexp(significands, target_powers), [0.0, -0.0, np.inf, np.inf, -np.inf, 0.0, np.inf, np.nan]]
    )
    for index_type in [vk.i64] if dtype.itemsize == 2 else [vk.i64, dtype]:
        made = vk.tensor(values, dtype=dtype).ldexp(vk.tensor(exponents, dtype=index_type))
        assert made.dtype is dtype
        np.testing.assert_array_equal(made.to(vk.f64).numpy(), expected)


def test_ldexp_by_a_number(device: Any) -> None:
    assert vk.ldexp(vk.tensor([3, -1]), -1).tolist() == [1.5, -0.5]
    halves = vk.tensor([1.5, np.inf], dtype=vk.f16).ldexp(3)
    assert halves.dtype is vk.f16 and halves.tolist() == [12.0, np.inf]
    assert vk.ldexp(vk.tensor([1.0, 0.0]), 2000).tolist() == [np.inf, 0.0]
    x, y = (vk.tensor(v, requires_grad=True) for v in ([0.0, 2.0, 2.0**-100], [1000.0, 0.5, 130.0]))
    of_x, of_y = vk.grad(x.ldexp(y).sum(), [x, y])
    assert of_x.tolist() == pytest.approx([np.inf, 2**0.5, np.inf])
    assert of_y.tolist() == pytest.approx([0.0, 2**1.5 * np.log(2), 2.0**30 * np.log(2)])


def test_what_is_not_finite_stays_where_it_is(device: Any) -> None:
    """Infinities and NaN don't spread: functions that select elements don't multiply the others by 0."""
    x = vk.tensor([[[[1.0, np.inf, 3.0], [4.0, 5.0, np.nan]]]])
    assert F.unfold(x, (1, 2)).isfinite().tolist() == [[[True, False, True, True], [False, True, True, False]]]
    folded = F.fold(vk.tensor([[[1.0, np.inf], [3.0, 4.0]]]), (1, 3), (1, 2))
    assert folded.tolist() == [[[[1.0, np.inf, 4.0]]]]
    assert F.prelu(vk.tensor([2.0, -1.0]), vk.tensor([np.inf])).tolist() == [2.0, -np.inf]
    nan = vk.tensor([np.nan])
    for found in (F.hardshrink(nan), F.softshrink(nan), F.threshold(nan, 0.0, 7.0)):
        assert found.isnan().item()
    assert vk.heaviside(nan, vk.ones(1)).item() == 0
    start, end = vk.tensor([-np.inf, 1.0, 1e8]), vk.tensor([1.0, np.inf, 1.0])
    assert vk.lerp(start, end, vk.tensor([0.75, 0.25, 1.0])).tolist() == [-np.inf, np.inf, 1.0]
    assert vk.linalg.vander(vk.tensor([np.inf]), N=2).tolist() == [[1.0, np.inf]]


def test_nothing_is_shared_out_and_averaged(device: Any) -> None:
    assert [part.shape for part in vk.zeros(0, 2).chunk(3)] == [(0, 2)] * 3
    assert F.local_response_norm(vk.zeros(1, 0, 2), 2).shape == (1, 0, 2)
    assert F.cross_entropy(vk.zeros(2, 0), vk.zeros(2, 0)).isnan().item()


@pytest.mark.parametrize("kind", ["u1", "i1", "i4", "u4", "i8", "u8"])
def test_bit_patterns_as_numbers(device: Any, kind: str) -> None:
    x = np.array([1, 100, 7, 0]).astype(kind)
    bits = x.dtype.itemsize * 8
    t = vk.tensor(x, device=device)
    for number in (-4, ~3, 0x55, 2**bits - 1, -(2 ** (bits - 1))):
        pattern = np.array(number & (2**bits - 1), f"u{bits // 8}").astype(kind)
        for _ in range(3):  # warm calls, too
            assert (t & number).tolist() == (x & pattern).tolist()
            assert (number | t).tolist() == (x | pattern).tolist()
            assert t.bitwise_xor(number).tolist() == (x ^ pattern).tolist()
    for number in (2**bits, -(2 ** (bits - 1)) - 1):
        with pytest.raises(vk.DTypeError, match="out of range for vk"):
            t & number


def test_shifts_and_positive_are_methods(device: Any) -> None:
    t = vk.tensor([1, -8], device=device)
    assert t.bitwise_left_shift(2).tolist() == [4, -32] and t.bitwise_right_shift(1).tolist() == [0, -4]
    assert t.positive().tolist() == [1, -8]


def test_where_of_a_condition_alone(device: Any) -> None:
    condition = vk.tensor([[True, False], [True, True]], device=device)
    assert [axis.tolist() for axis in vk.where(condition)] == [[0, 1, 1], [0, 0, 1]]
    with pytest.raises(vk.ArgumentError, match="where: an operand is a NoneType"):
        vk.where(condition, 1.0)


def test_formats(device: Any) -> None:
    assert f"{vk.tensor(1.5, device=device):.2f} {vk.tensor(7, device=device):04d}" == "1.50 0007"
    x = vk.tensor([1, 2], device=device)
    assert f"{x}" == str(x)
    with pytest.raises(vk.ArgumentError, match=r"shape \(2,\) takes no format '.2f'"):
        f"{x:.2f}"
