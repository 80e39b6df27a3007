"""Edge cases of every operation: strides, stride 0, results over operands, NaN and infinities, one element, none.

PyTorch's results are in `edge_cases.json` (written by `python -m tests.parity.ops.edges`); results for other strides
and for shared memory are compared with those of plain tensors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from tests.device.tensor import edge_cases
from tests.device.tensor.edge_cases import Array, Case
from tests.parity.ops.function_names import function_of
from vkjit.tensor import outputs

CASES: dict[str, list[Case]] = {}
for _case in edge_cases.cases():
    CASES.setdefault(_case.name, []).append(_case)

UNDEFINED = frozenset({"empty", "empty_like", "new_empty"})
RANDOM = frozenset(
    {"bernoulli", "nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d", "normal", "rand_like"}
    | {"randint", "randint_like", "randn", "randn_like", "uniform"}
)
TIES = frozenset({"argsort", "kthvalue", "median", "msort", "nanmedian", "sort", "topk"})
"""Operations that may select any of several equal elements: their indices aren't compared with PyTorch's."""

KNOWN: dict[tuple[str, str], str] = {
    ("bucketize", "nan"): "boundaries that are in no order",
    ("int", "nan"): "floats past an integer's ends become its ends, and NaN 0; PyTorch's results are undefined",
    ("long", "nan"): "as int",
    ("nn.functional.adaptive_avg_pool2d", "empty1"): "an image without channels is refused",
    ("nn.functional.conv2d", "empty1"): "weights without channels are refused",
    ("nn.functional.conv_transpose1d", "nan"): "infinite weights meet the zeros between an input's elements",
    ("nn.functional.layer_norm", "nan"): "squares past the type's range; PyTorch's f32 and f64 differ there too",
    ("take_along_dim", "one"): "a position out of range, which is reported",
}
"""Reasons for results that differ from PyTorch's, by operation and kind."""


@pytest.fixture(autouse=True)
def _on_the_processor() -> Iterator[None]:
    """Run on the device cpu; other tests compare its kernels with those of other devices."""
    pytest.importorskip("llvmlite", reason="the device cpu needs llvmlite, which isn't installed")
    with vk.use_device(vk.device("cpu")):
        yield


def plain(value: Any) -> Any:
    """Return a result as NumPy arrays and scalars in lists."""
    if isinstance(value, vk.Tensor):
        return value._fetch()
    if isinstance(value, Array):
        return value.values
    return [plain(v) for v in value] if isinstance(value, (list, tuple)) else value


def run(name: str, arguments: Any) -> Any:
    args, kwargs = arguments
    function = function_of(name)
    assert function is not None
    return function(*args, **kwargs)


def assert_agrees(found: Any, expected: Any, exact: Any, places: bool, what: str) -> None:
    """Check shapes, types and values; floats may be off by 1e-5, or twice the error of PyTorch's f32 result."""
    if isinstance(expected, list):
        assert isinstance(found, list) and len(found) == len(expected), what
        truths = exact if isinstance(exact, list) else [None] * len(expected)
        for f, e, t in zip(found, expected, truths, strict=True):
            assert_agrees(f, e, t, places, what)
        return
    if not isinstance(expected, np.ndarray):
        assert found == expected or (found != found and expected != expected), f"{what}: {found}, expected {expected}"
        return
    assert isinstance(found, np.ndarray), f"{what}: {type(found).__name__}, expected a tensor"
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype), f"{what}: {found.shape} {found.dtype}"
    if expected.dtype.kind != "f":
        assert places or found.dtype.kind == "b" or np.array_equal(found, expected), (
            f"{what}: {found}, expected {expected}"
        )
        return
    ours, theirs = found.astype(np.float64), expected.astype(np.float64)
    good = np.isclose(ours, theirs, 1e-5, 1e-5, equal_nan=True)
    if isinstance(exact, np.ndarray):
        with np.errstate(over="ignore", invalid="ignore"):
            rounded = exact.astype(expected.dtype).astype(np.float64)
            good |= np.isclose(ours, rounded, 1e-5, 1e-5, equal_nan=True)
            good |= np.abs(ours - exact) <= 2 * np.abs(theirs - exact)
    assert good.all(), f"{what}: {ours[~good][:4]}, expected {theirs[~good][:4]}"


def close(found: Any, expected: Any, what: str) -> None:
    """Compare two vkjit results, which may differ in summation order."""
    assert_agrees(plain(found), plain(expected), None, False, what)


@pytest.mark.parametrize("name", CASES)
def test_results_are_pytorchs(name: str) -> None:
    for number, case in enumerate(CASES[name]):
        for kind, result in case.expected.items():
            what = f"{name} case {number} {kind}"
            arguments = edge_cases.tensors(edge_cases.changed((case.args, case.kwargs), kind))
            expected, exact = (plain(edge_cases.decode(result.get(key))) for key in ("found", "exact"))
            if (name, kind) in KNOWN:
                continue
            found = plain(run(name, arguments))
            assert_agrees(found, expected, exact, name in TIES, what)


@pytest.mark.parametrize("name", [n for n in CASES if n not in UNDEFINED | RANDOM])
def test_strides_make_no_difference(name: str) -> None:
    for number, case in enumerate(CASES[name]):
        arguments = (case.args, case.kwargs)
        if not edge_cases.arrays(arguments):
            continue
        try:
            expected = run(name, edge_cases.tensors(arguments))
        except vk.VkjitError:
            continue
        close(run(name, edge_cases.noncontiguous(arguments)), expected, f"{name} case {number} with gaps")
        views, copies = edge_cases.expanded(arguments)
        try:
            expected = run(name, copies)
        except (vk.VkjitError, IndexError):
            continue
        close(run(name, views), expected, f"{name} case {number} with stride 0")


WITH_OUT = [n for n in CASES if n in outputs.NAMES and n not in UNDEFINED | RANDOM and n not in outputs.CREATING]


@pytest.mark.parametrize("name", WITH_OUT)
def test_results_may_lie_over_operands(name: str) -> None:
    for case in CASES[name]:
        (args, kwargs) = edge_cases.tensors((case.args, case.kwargs))
        first = args[0] if args and isinstance(args[0], vk.Tensor) else None
        expected = run(name, (args, kwargs))
        if not isinstance(expected, vk.Tensor):
            continue
        fresh = vk.empty(expected.shape, dtype=expected.dtype)
        assert run(name, (args, {**kwargs, "out": fresh})) is fresh
        close(fresh, expected, f"{name} into memory of its own")
        if first is None or (first.shape, first.dtype) != (expected.shape, expected.dtype) or not first.numel():
            continue
        for offset in (0, 1):
            memory = vk.zeros(first.numel() + 1, dtype=first.dtype)
            source, target = (memory[n : n + first.numel()].view(first.shape) for n in (0, offset))
            source.copy_(first)
            run(name, ((source, *args[1:]), {**kwargs, "out": target}))
            close(target, expected, f"{name} over its operand, {offset} on")


IN_PLACE = [n for n in CASES if "." not in n and hasattr(vk.Tensor, f"{n}_") and n not in RANDOM and n != "zero_"]


@pytest.mark.parametrize("name", IN_PLACE)
def test_forms_in_place_are_those_that_make_new_tensors(name: str) -> None:
    for case in CASES[name]:
        ((first, *rest), kwargs) = edge_cases.tensors((case.args, case.kwargs))
        if not isinstance(first, vk.Tensor):
            continue
        expected = run(name, ((first, *rest), kwargs))
        if expected.shape != first.shape or (expected.dtype.is_float and not first.dtype.is_float):
            continue
        target = first.clone()
        assert getattr(target, f"{name}_")(*rest, **kwargs) is target
        close(target, expected.to(first.dtype), f"{name}_")
        if (
            not rest
            or not isinstance(rest[0], vk.Tensor)
            or (rest[0].shape, rest[0].dtype) != (first.shape, first.dtype)
        ):
            continue
        count = first.numel()
        memory = vk.cat([first.reshape(count), rest[0].reshape(count)[-1:]])
        target, other = memory[1:].view(first.shape), memory[:-1].view(first.shape)
        expected = run(name, ((target.clone(), other.clone(), *rest[1:]), kwargs))
        getattr(target, f"{name}_")(other, *rest[1:], **kwargs)
        close(target, expected.to(first.dtype), f"{name}_ over its operand")


def test_every_operation_of_the_list_has_a_case() -> None:
    listed = (edge_cases.FILE.parents[2] / "parity" / "ops" / "ops.txt").read_text(encoding="utf-8").split("\n")
    names = {line.strip() for line in listed if line.strip() and not line.startswith("#")}
    assert CASES.keys() <= names
    assert len(CASES) >= 0.8 * len(names)
    assert all(any(kind in case.expected for case in CASES[name]) for name, kind in KNOWN)
