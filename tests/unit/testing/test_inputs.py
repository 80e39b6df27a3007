"""Tests of generated inputs: layouts, sizes, elements, types, and dictionaries of arguments."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import vkjit as vk
from tests.selection import examples
from vkjit.testing.cases.case import array, decode, encode
from vkjit.testing.cases.layouts import Layout, image, stray_writes, view_of
from vkjit.testing.generate.dimensions import Dimensions, size_table
from vkjit.testing.generate.directed import directed_cases
from vkjit.testing.generate.elements import PATTERNS, SPECIAL_KINDS, domain_of, fill, special_values
from vkjit.testing.generate.strategies import Drawing, layouts_for

T = TypeVar("T", bound=vk.Element)
TUNED = vk.tune(2, 4)
FAST = settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck), database=None)


@vk.kernel(over="y")
def scale(a: T, x: vk.In[T, "N"], y: vk.Out[T, "N"]):
    y[vk.global_id(0)] = a * x[vk.global_id(0)]


@vk.kernel(over="y")
def pairs(
    x: vk.In[vk.f32, "*batch 2*N"], y: vk.Out[vk.f32, "*batch N+1"], n: vk.i32, W: vk.Const[int] = TUNED
):  # fmt: skip
    y[vk.index()] = 0.0


@vk.kernel(over="y")
def outer(x: vk.In[vk.f32, "M"], y: vk.Out[vk.f32, "M N"]):
    y[vk.index()] = x[vk.index()[0]]


SHAPES = st.lists(st.integers(0, 5), max_size=3).map(tuple)


@FAST
@given(SHAPES, st.data())
def test_layouts_hold_every_element_once(shape: tuple[int, ...], data: Any) -> None:
    layout = data.draw(st.sampled_from([Layout(), *layouts_for(len(shape), "out")]))
    values = np.arange(np.prod(shape, dtype=int), dtype=np.int32).reshape(shape)
    memory = image(values, layout, shape, values.dtype, 0)
    if values.size:
        assert np.array_equal(view_of(memory, layout.place(shape), shape, values.dtype), values)
    assert stray_writes(memory, memory, layout, shape, values.dtype) == []
    assert 0 <= layout.place(shape).first < layout.place(shape).count


@FAST
@given(SHAPES, st.data())
def test_what_lies_beside_an_array_is_seen(shape: tuple[int, ...], data: Any) -> None:
    layout = data.draw(st.sampled_from([Layout(), *layouts_for(len(shape), "out")]))
    values = np.zeros(shape, np.int32)
    before = image(values, layout, shape, values.dtype, 0)
    after = before.copy()
    placement = layout.place(shape)
    own = np.zeros(placement.count, np.uint8)
    if values.size:
        view_of(own, placement, shape, np.dtype(np.uint8))[...] = 1
    place = data.draw(st.sampled_from(range(placement.count)))
    after.view(np.int32)[place] = 7
    assert stray_writes(after, before, layout, shape, values.dtype) == ([] if own[place] else [place - placement.first])


def test_a_size_table_is_in_order_and_holds_every_size() -> None:
    table = size_table(2, 300, [64, 65, 1000])
    assert table == sorted(table) and set(table) == set(range(2, 301))
    assert table.count(64) > table.count(70)


def test_sizes_know_the_tiles_of_the_kernel() -> None:
    table = Dimensions(scale, {}).table("N", long=True)
    for size in (127, 128, 129, 257):
        assert table.count(size) > 1, size


@pytest.mark.parametrize(
    ("given_sizes", "expected"),
    [({"N": 7}, {7}), ({"N": (3, 5)}, {3, 4, 5}), ({"N": [9, 4]}, {4, 9}), ({"N": range(2, 4)}, {2, 3})],
)
def test_sizes_can_be_chosen(given_sizes: dict[str, Any], expected: set[int]) -> None:
    assert set(Dimensions(scale, given_sizes).table("N", long=True)) == expected


@pytest.mark.parametrize(
    "given_sizes", [{"N": True}, {"N": (5, 3)}, {"N": []}, {"N": "M"}, {"Q": 3}], ids=lambda value: str(value)
)
def test_sizes_that_mean_nothing_are_refused(given_sizes: dict[str, Any]) -> None:
    with pytest.raises(vk.ArgumentError):
        Dimensions(scale, given_sizes)


def test_expressions_and_batches_are_solved() -> None:
    made = Dimensions(pairs, {}).shapes({"N": 3, "batch": (2, 5)}, {})
    assert made == {"x": (2, 5, 6), "y": (2, 5, 4)}


@FAST
@given(st.sampled_from(vk.dtypes.ALL), st.sampled_from(PATTERNS), SHAPES, st.integers(0, 1000))
def test_patterns_fill_arrays_of_every_type(dtype: Any, pattern: str, shape: tuple[int, ...], seed: int) -> None:
    values = fill(pattern, seed, shape, dtype)
    assert values.shape == shape and values.dtype == dtype.numpy
    assert dtype.kind != "float" or np.isfinite(values).all()


@FAST
@given(
    st.sampled_from([vk.i8, vk.u16, vk.i64, vk.f32]), st.sampled_from(PATTERNS), st.integers(-9, 9), st.integers(0, 9)
)
def test_patterns_stay_inside_bounds(dtype: Any, pattern: str, low: int, width: int) -> None:
    low = max(low, 0) if dtype is vk.u16 else low
    values = fill(pattern, 3, (50,), dtype, low, low + width)
    assert (values >= low).all() and (values <= low + width).all()


def test_special_values_are_those_of_the_type() -> None:
    found = special_values(vk.f16, SPECIAL_KINDS)
    assert any(np.isnan(v) for v in found) and np.inf in found and 65504.0 in found and 2.0**-24 in found
    assert special_values(vk.f32, ("negative_zero",)) == [0.0] and np.signbit(
        special_values(vk.f32, ("negative_zero",))[0]
    )
    assert special_values(vk.u8, ("extreme",)) == [255, 0, 254]
    assert special_values(vk.i8, ("nan", "inf")) == []


def test_bf16_is_rounded_as_memory_holds_it() -> None:
    values = np.array([1.0, 1.00390625, -3.3e38, np.inf], np.float32)
    raw = encode(values, vk.bf16)
    assert raw.dtype == np.uint16
    assert decode(raw, vk.bf16).tolist()[:2] == [1.0, 1.0]


@FAST
@given(vk.testing.strategies(scale, devices=["interpreter"]))
def test_drawn_arguments_fit_the_signature(arguments: dict[str, Any]) -> None:
    assert set(arguments) == {"a", "x"}
    if arguments["x"].dtype != np.uint16:  # u16 arrays may hold bf16
        with vk.use_device("interpreter"):
            result = scale(**arguments)
        assert result.shape == arguments["x"].shape and result.dtype == arguments["x"].dtype


@FAST
@given(vk.testing.strategies(pairs, devices=["interpreter"], elements={"n": "N"}, outs=True))
def test_texts_over_dimensions_are_evaluated(arguments: dict[str, Any]) -> None:
    assert arguments["n"] * 2 == arguments["x"].shape[-1]
    assert arguments["y"].shape == (*arguments["x"].shape[:-1], arguments["n"] + 1)
    assert arguments["W"] in (2, 4)


@FAST
@given(
    vk.testing.strategies(
        scale, devices=["interpreter"], dims={"N": (2, 6)}, dtypes=[vk.i32], where=lambda x: x[0] < x[-1],
        elements={"x": (-3, "N"), "a": st.integers(5, 6)},
    )
)  # fmt: skip
def test_assumptions_and_overrides_hold(arguments: dict[str, Any]) -> None:
    x = arguments["x"]
    assert 2 <= len(x) <= 6 and x.dtype == np.int32 and x[0] < x[-1] and arguments["a"] in (5, 6)
    assert (x >= -3).all() and (x <= len(x)).all()


@FAST
@given(st.data())
def test_sizes_made_equal_stay_within_their_bounds(data: st.DataObject) -> None:
    """Cases with `where` set all sizes to the first one's in one case of three; 0 is a bound like others."""
    drawing = Drawing(outer, [vk.device("interpreter")], dims={"M": (1, 3), "N": (0, 0)}, where=lambda x: True)
    assert data.draw(drawing.cases()).dims["N"] == 0


def test_types_are_those_that_the_kernel_compiles_for() -> None:
    @vk.kernel(over="y")
    def logarithm(x: vk.In[T, "N"], y: vk.Out[T, "N"]):
        y[vk.global_id(0)] = vk.exp(x[vk.global_id(0)]) * vk.rsqrt(x[vk.global_id(0)])

    result = vk.testing.check_kernel(logarithm, devices="interpreter", max_examples=examples(3))
    assert set(result.dtypes["T"]) <= {"f32", "f64", "f16", "bf16"} and "f32" in result.dtypes["T"]
    assert "T = vk.i32" in result.left_out


@pytest.mark.parametrize(
    ("settings_given", "text"),
    [
        ({"elements": {"z": 1}}, "no parameter 'z'"),
        ({"elements": {"x": object()}}, "expected a (low, high) pair"),
        ({"elements": {"x": (0, "M")}}, "can't be computed"),
        ({"dtypes": {"T": ["f99"]}}, "expected element types"),
        ({"dtypes": {"T": ["f32"], "S": ["f32"]}}, "scale has the type variables ['T'], found types for ['S']"),
        ({"special": "nans"}, "no kind is named 'nans'"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings_given: dict[str, Any], text: str) -> None:
    with pytest.raises(vk.ArgumentError) as caught:
        vk.testing.check_kernel(scale, devices="interpreter", max_examples=examples(2), **settings_given)
    assert text in str(caught.value)


@pytest.mark.parametrize("dtypes", [["f32"], [vk.f32, vk.f16], {"T": ["f32"]}])
def test_types_for_a_kernel_without_type_variables_are_refused(dtypes: Any) -> None:
    with pytest.raises(vk.ArgumentError, match="outer has no type variable, found types for .*: leave them out"):
        vk.testing.check_kernel(outer, devices="interpreter", max_examples=examples(2), dtypes=dtypes)


def test_a_parameter_without_annotation_is_refused() -> None:
    @vk.kernel
    def loose(x):
        x[0] = 1

    with pytest.raises(vk.ArgumentError, match="x has no annotation"):
        vk.testing.strategies(loose)


def test_arrays_for_single_runs_keep_their_layout() -> None:
    given_array = array(np.arange(4, dtype=np.float32), step=2, backwards=(0,))
    outputs = vk.testing.run(
        scale, {"a": 2.0, "x": given_array, "y": vk.testing.out(vk.f32, (4,))}, device="interpreter"
    )
    assert outputs["y"].tolist() == [0, 2, 4, 6]


def test_bounds_may_count_from_the_end() -> None:
    assert domain_of("index", ("-N", "N-1")).bounds({"N": 5}) == (-5, 4)
    assert domain_of("index", (" -2*N + 1", -1)).bounds({"N": 5}) == (-9, -1)


def test_first_cases_hold_numbers_far_below_zero() -> None:
    cases = list(directed_cases(Drawing(scale, [vk.device("interpreter")], dims={"N": (1, None)}, dtypes=[vk.f32])))
    assert any((case.arguments["x"].values < -4000).all() for case in cases if case.arguments["x"].dtype is vk.f32)


def test_first_cases_hold_the_ends_of_integers() -> None:
    cases = list(directed_cases(Drawing(scale, [vk.device("interpreter")], dims={"N": (1, None)}, dtypes=[vk.i64])))
    assert any((case.arguments["x"].values > 2**62).all() for case in cases)
    assert any((case.arguments["x"].values < -(2**62)).all() for case in cases)
    within = Drawing(
        scale, [vk.device("interpreter")], dims={"N": (1, None)}, dtypes=[vk.u32], elements={"x": (2, "N")}
    )
    for case in directed_cases(within):
        values = case.arguments["x"].values
        assert values is not None and ((values >= 2) & (values <= case.dims["N"])).all()
