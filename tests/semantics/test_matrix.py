"""Tests of each row of the table of semantics, on each element type and each executor."""

from __future__ import annotations

from typing import Any

import pytest

import vkjit as vk
from tests.semantics import generate, numbers
from tests.semantics.generate import CASES, EXEMPT
from tests.semantics.table import COLUMNS, ROWS, Case, Raised, Refused
from tests.semantics.values import agree
from tools.ulp import measure
from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.frontend import ArrayArg, Signature, describe, lower_kernel
from vkjit.ir.types import Scalar

CELLS = [(case, dtype) for case in CASES for dtype in case.types]


def name_of(cell: tuple[Case, DType]) -> str:
    case, dtype = cell
    made = case.kernel.name if isinstance(case.kernel, vk.Kernel) else case.kernel.__qualname__
    return f"{case.row}-{made}-{dtype.name}"


def kernel_of(case: Case, dtype: DType) -> Any:
    return case.kernel if isinstance(case.kernel, vk.Kernel) else case.kernel(dtype)


def launched(case: Case, dtype: DType, operands: tuple[Any, ...]) -> Any:
    kernel = kernel_of(case, dtype)
    return case.launch(kernel, *operands) if case.launch is not None else kernel(*operands)


def launched_to_the_end(case: Case, dtype: DType, operands: tuple[Any, ...]) -> None:
    launched(case, dtype, operands)
    vk.synchronize()


@pytest.mark.parametrize("cell", CELLS, ids=name_of)
def test_cell(device: Any, cell: tuple[Case, DType]) -> None:
    case, dtype = cell
    if dtypes.bf16 in (dtype, *numbers.JOINS.get(dtype, ())):
        pytest.importorskip("ml_dtypes", reason="bf16 is passed as an array of ml_dtypes")
    if not measure.supports(device.caps, dtype) or not measure.supports(device.caps, dtypes.f64):
        pytest.skip(f"{device.name} has no arithmetic of this type")
    operands = case.operands(dtype)
    if isinstance(case.expected, Refused):
        with pytest.raises(vk.CompileError) as refused:
            launched(case, dtype, operands)
        assert all(word in str(refused.value) for word in case.expected.words), str(refused.value)
        return
    if isinstance(case.expected, Raised):
        with pytest.raises(case.expected.error) as raised:
            launched_to_the_end(case, dtype, operands)
        assert all(word in str(raised.value) for word in case.expected.words), str(raised.value)
        return
    kept = tuple(o.copy() if hasattr(o, "copy") else o for o in operands)
    results = launched(case, dtype, operands)
    expected = case.expected(*kept)
    if expected is None:  # the kernel writes in place
        results, expected = operands, kept
    found = results if isinstance(results, tuple) else (results,)
    wanted = expected if isinstance(expected, tuple) else (expected,)
    assert len(found) == len(wanted)
    for f, e in zip(found, wanted, strict=True):
        if hasattr(e, "dtype"):
            assert agree(f, e, case.ulp), f"found {f}, expected {e}"


def test_there_is_no_hole() -> None:
    """Each row has a case or an exemption for each type."""
    exempt = {(e.row, t) for e in EXEMPT for t in e.types}
    shown = {(case.row, dtype) for case, dtype in CELLS}
    assert not exempt & shown
    holes = [f"{row.key}: {t.name}" for row in ROWS for t in COLUMNS if (row.key, t) not in exempt | shown]
    assert not holes, holes
    rows = {row.key for row in ROWS}
    assert {row for row, _ in exempt | shown} == rows


def test_the_page_is_current() -> None:
    assert generate.main(["--check"]) == 0, "run: python -m tests.semantics.generate"


def combined(a: DType, b: DType) -> DType | None:
    """Return the type of `x + z` by the documented rule, or None if it is an error."""
    if vk.boolean in (a, b):
        return b if a is vk.boolean and b is not vk.boolean else a if b is vk.boolean and a is not b else vk.i32
    floats = [t for t in (a, b) if t.is_float]
    if len(floats) == 2:
        return vk.f32 if {a, b} == {vk.f16, vk.bf16} else max(a, b, key=lambda t: t.bits)
    if floats:
        return floats[0]
    if a.kind == b.kind:
        return max(a, b, key=lambda t: t.bits)
    signed, unsigned = (a, b) if a.kind == "int" else (b, a)
    return signed if signed.bits > unsigned.bits else None


@pytest.mark.parametrize("a", dtypes.ALL, ids=lambda t: t.name)
def test_mixed_types(a: DType) -> None:
    """Check the type of a sum for all pairs of types in the front end, before any executor is involved."""

    def kernel(x, z):
        v = x[0] + z[0]

    for b in dtypes.ALL:
        signature = Signature((ArrayArg(a, 1), ArrayArg(b, 1)), (1, 1, 1))
        expected = combined(a, b)
        if expected is None:
            with pytest.raises(vk.CompileError, match="have no common type"):
                lower_kernel(describe(kernel), signature)
            continue
        module = lower_kernel(describe(kernel), signature)
        (total,) = (op for op in module.kernel.body.walk() if op.name == "add")
        assert total.result.type == Scalar(expected), f"{a!r} + {b!r}"
