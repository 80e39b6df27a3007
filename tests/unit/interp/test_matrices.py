# mypy: disable-error-code="arg-type, index, misc, no-untyped-call, no-untyped-def, operator, valid-type"
"""Tests of cooperative matrices: the interpreter's emulation against NumPy, device requirements, emitted SPIR-V."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

import vkjit as vk
from tests.device.language.codegen_kernels import GPU
from vkjit.api import inspection
from vkjit.backends.interp.runtime import matrix_shapes
from vkjit.backends.interp.runtime.device import InterpreterDevice
from vkjit.compiler import driver
from vkjit.errors import BoundsError, DeviceError, FeatureError, KernelError
from vkjit.ir.parser import parse_module
from vkjit.ir.printer import print_module
from vkjit.ir.verify import violations
from vkjit.passes.analysis.check_matrices import CheckMatrices
from vkjit.runtime.device import MatrixShape
from vkjit.runtime.matrix_shapes import native_shape
from vkjit.spirv import tools

A = TypeVar("A", bound=vk.Element)
C = TypeVar("C", bound=vk.Element)

SHAPES = [
    *((m, n, k, "f16", c) for m, n, k in ((16, 16, 16), (16, 8, 16), (16, 8, 8), (8, 16, 16)) for c in ("f16", "f32")),
    (16, 16, 16, "bf16", "f32"),
    *((16, n, 32, kind, c) for n in (16, 8) for kind, c in (("i8", "i32"), ("u8", "u32"))),
]
ALL = dataclasses.replace(
    GPU,
    features=GPU.features | {"cooperative_matrix", "bfloat16", "bfloat16_cooperative_matrix"},
    dtypes=GPU.dtypes | {"bf16"},
    matrices=matrix_shapes.common_matrices(),
)
"""Capabilities of a GPU that supports everything the interpreter does."""


@vk.kernel(groups=1, local=64)
def product(
    a: vk.In[A, "I D"], b: vk.In[A, "D J"], c: vk.Out[C, "I J"], M: vk.Const[int], N: vk.Const[int], K: vk.Const[int]
):
    """Two subgroups, each with its own rows; c = 2 (a @ b) - 1."""
    sg = vk.subgroup()
    i = sg.id() * M
    acc = sg.matrix((M, N), c.dtype)
    for k in range(0, a.shape[1], K):
        acc = sg.mma(sg.load(a[i : i + M, k : k + K], "a"), sg.load(b[k : k + K, 0:N], "b"), acc)
    sg.store(c[i : i + M, 0:N], acc + acc - 1)


@vk.kernel(groups=1, local=32)
def through_shared_vectors(a: vk.In[vk.u32, "X"], b: vk.In[vk.u32, "Y"], c: vk.Out[C, "16 16"], T: vk.Const[Any]):
    """Load both operands from shared memory as vectors of 16 bytes, b transposed; 16 rows of two vectors."""
    V, sg = vk.vec(vk.u32, 4), vk.subgroup()
    left, right, sums = vk.shared(V, (16, 3)), vk.shared(V, (16, 2)), vk.shared(V, (16, 5))
    lane = vk.i32(vk.local_id(0))
    left[lane // 2, lane % 2] = V(a[lane * 4], a[lane * 4 + 1], a[lane * 4 + 2], a[lane * 4 + 3])
    right[lane // 2, lane % 2] = V(b[lane * 4], b[lane * 4 + 1], b[lane * 4 + 2], b[lane * 4 + 3])
    vk.barrier()
    acc = sg.matrix((16, 16), c.dtype)
    acc = sg.mma(sg.load(left[0:16, 0:2], "a", dtype=T), sg.load(right[0:16, 0:2], "b", "column", dtype=T), acc)
    sg.store(sums[0:16, 1:5], acc)
    vk.barrier()
    sg.store(c[0:16, 0:16], -sg.load(sums[0:16, 1:5], "acc", dtype=c.dtype))


@vk.kernel(groups=1, local=32)
def copied(a: vk.In[A, "2 M N"], c: vk.Out[C, "M N"], FROM: vk.Const[int]):
    sg = vk.subgroup()
    m = sg.load(a[1, FROM : FROM + 16, 0:16], "acc")
    if a[0, 0, 0] > 0:
        m = m * 2
    sg.store(c[0:16, 0:16], c.dtype(m))


def numbers(shape: tuple[int, ...], kind: str) -> Any:
    rng = np.random.default_rng(len(kind) + sum(shape))
    if kind[0] in "iu":
        return rng.integers(-100 if kind[0] == "i" else 0, 100, shape).astype(np.int8 if kind == "i8" else np.uint8)
    return rng.standard_normal(shape).astype(np.float32)


def wide(tensor: Any) -> Any:
    return tensor.to(vk.f64).numpy()


def stored(tensor: Any, kind: str) -> bytes:
    """Return a tensor's elements in their memory format."""
    if kind != "bf16":
        return bytes(tensor.numpy().tobytes())
    return bytes((tensor.to(vk.f32).numpy().view(np.uint32) >> 16).astype(np.uint16).tobytes())


def bound(kind: str, depth: int, scale: float) -> float:
    """Return the error bound of `depth` additions in the accumulator's type and the operations after them."""
    if kind[0] in "iu":
        return 0.0
    return (depth + 4) * scale * (2.0**-11 if kind == "f16" else 2.0**-24)


@pytest.mark.parametrize(("m", "n", "k", "kind", "out"), SHAPES)
def test_products_of_every_shape_and_type(m: int, n: int, k: int, kind: str, out: str) -> None:
    with vk.use_device("interpreter"):
        a, b = (vk.tensor(numbers(s, kind), dtype=getattr(vk, kind)) for s in ((2 * m, 3 * k), (3 * k, n)))
        c = vk.zeros((2 * m, n), dtype=getattr(vk, out))
        product(a, b, c, M=m, N=n, K=k)
        want = 2 * (wide(a) @ wide(b)) - 1
        if out == "u32":
            want = want.astype(np.int64) % 2**32
        scale = float(np.abs(wide(a)).max() * np.abs(wide(b)).max())
        assert np.abs(wide(c) - want).max() <= bound(out, 3 * k, scale * k)


@pytest.mark.parametrize(("kind", "out"), [("f16", "f32"), ("bf16", "f32"), ("i8", "i32"), ("u8", "u32")])
def test_vectors_in_shared_memory_hold_matrices(kind: str, out: str) -> None:
    k = 32 if kind[1:] == "8" else 16
    with vk.use_device("interpreter"):
        a, b = (vk.tensor(numbers((16, k), kind), dtype=getattr(vk, kind)) for _ in range(2))
        words = [vk.tensor(np.frombuffer(stored(x, kind), np.uint32)) for x in (a, b)]
        c = vk.zeros((16, 16), dtype=getattr(vk, out))
        through_shared_vectors(*words, c, T=getattr(vk, kind))
        want = -(wide(a) @ wide(b).T)
        want = want.astype(np.int64) % 2**32 if out == "u32" else want
        assert np.abs(wide(c) - want).max() <= bound(out, k, float(np.abs(want).max()))


@pytest.mark.parametrize("target", ["f16", "f32"])
def test_matrices_are_chosen_scaled_and_converted(target: str) -> None:
    a = np.arange(2 * 24 * 16, dtype=np.float16).reshape(2, 24, 16)
    for first in (0, 1):
        a[0, 0, 0] = first
        c = np.zeros((24, 16), dtype=np.float16 if target == "f16" else np.float32)
        with vk.use_device("interpreter"):
            copied(a, c, FROM=8)
        assert np.array_equal(c[:16], a[1, 8:] * (2 if first else 1))
        assert not c[16:].any()


def test_a_matrix_past_the_end_is_told() -> None:
    a, c = np.zeros((2, 24, 16), np.float16), np.zeros((24, 16), np.float16)
    with vk.use_device("interpreter"), pytest.raises(BoundsError, match=r"index 24 of a matrix is outside a.*axis 1"):
        copied(a, c, FROM=9)


def test_every_layout_is_a_permutation() -> None:
    """For every subgroup size, each element has exactly one slot."""
    from vkjit.backends.interp.codegen.batch import Batch, Grid, Log
    from vkjit.backends.interp.codegen.matrices import _Subgroups, components_of
    from vkjit.ir.types import Matrix

    for size in (4, 8, 16, 32, 64):
        batch = Batch(Grid((3, 1, 1), (2 * size, 1, 1), size), np.arange(3), Log("k"))
        for rows, columns in ((16, 16), (3, 5), (1, 1), (16, 8)):
            matrix = Matrix(vk.f32, rows, columns, "acc")
            elements = np.arange(3 * 2 * rows * columns, dtype=np.float32).reshape(3, 2, rows, columns)
            lanes = _Subgroups(batch).scatter(elements, matrix)
            assert lanes.shape == (components_of(matrix, size), 3, 2 * size)
            assert np.array_equal(_Subgroups(batch).gather(lanes, matrix), elements)


@vk.kernel(groups=1, local=32)
def shifted(a: vk.In[vk.f16, "M K"], c: vk.Out[vk.f16, "16 16"], FROM: vk.Const[int]):
    sg = vk.subgroup()
    sg.store(c[0:16, 0:16], sg.load(a[0:16, FROM : FROM + 16], "acc"))


def test_rows_begin_at_multiples_of_sixteen_bytes() -> None:
    """Rows must begin at multiples of 16 bytes: the interpreter raises an error, the compiler refuses the arrays."""
    c = np.zeros((16, 16), np.float16)
    with vk.use_device("interpreter"):
        shifted(np.zeros((16, 32), np.float16), c, FROM=8)
        for columns, first in ((32, 4), (36, 8)):
            with pytest.raises(KernelError, match="multiples of 16 bytes"):
                shifted(np.zeros((16, columns), np.float16), c, FROM=first)
    signature = inspection.guess_signature(shifted, ALL, {"FROM": 0})
    with pytest.raises(FeatureError, match="doesn't begin at a multiple of 16 bytes: pad the rows"):
        driver.compile_kernel(shifted._expanded, dataclasses.replace(signature, aligned=False), ALL)


# -- device capabilities


def test_a_file_says_what_the_interpreter_offers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "matrices.json"
    path.write_text(json.dumps([{"m": 5, "n": 4, "k": 3, "a": "f32", "b": "f32", "c": "f32"}]))
    monkeypatch.setenv(matrix_shapes.VARIABLE, str(path))
    device = InterpreterDevice()
    assert device.caps.matrices == (MatrixShape(5, 4, 3, "f32", "f32", "f32", "f32"),)
    a, b = (vk.tensor(numbers(s, "f32"), device=device) for s in ((10, 9), (9, 4)))
    c = vk.zeros((10, 4), device=device)
    product(a, b, c, M=5, N=4, K=3)
    assert np.abs(wide(c) - (2 * (wide(a) @ wide(b)) - 1)).max() < 1e-4
    square = vk.zeros((32, 16), device=device)
    with pytest.raises(FeatureError, match=r"needs f32 16x16 @ f32 16x16 -> f32.*it has f32 5x3 @ f32 3x4 -> f32"):
        product(square, square[:16], square, M=16, N=16, K=16)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[{"m": 0, "n": 1, "k": 1, "a": "f32", "b": "f32", "c": "f32"}]'])
def test_files_that_list_no_shapes_are_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "matrices.json"
    path.write_text(text)
    with pytest.raises(DeviceError, match="VKJIT_INTERPRETER_MATRICES"):
        matrix_shapes.read_matrices(path)


def test_the_best_shape_is_the_largest_and_deepest() -> None:
    shapes = matrix_shapes.common_matrices()
    found = native_shape(shapes, "f16", "f16", "f32")
    assert found is not None
    assert (found.m, found.n, found.k) == (16, 16, 16)
    assert native_shape(shapes, "f16", "f16", "f64") is None
    flexible = dataclasses.replace(found, flexible=True)
    assert native_shape((flexible,), "f16", "f16", "f32") is None


def test_devices_without_matrices_say_so() -> None:
    module = parse_module(TEXT)
    with pytest.raises(FeatureError, match="it has no cooperative matrices at all"):
        CheckMatrices(()).run(module)
    module.kernel.attrs["sanitize"] = ("races",)
    with pytest.raises(FeatureError, match="which the sanitizer doesn't look into"):
        CheckMatrices(matrix_shapes.common_matrices()).run(module)


# -- IR

TEXT = """kernel @k(%a: array<f16, 2, in, contiguous, restrict>) attrs {local_size = (32, 1, 1), subgroups = true} {
  %0 = const 0 : index
  %1 = const 1.0 : f32
  %2 = stride %a {axis = 0} : index
  %3 = mat_load %a, %0, %0, %2 {layout = "row"} : matrix<f16, 16x16, a>
  %4 = mat_load %a, %0, %0, %2 {layout = "column"} : matrix<f16, 16x16, b>
  %5 = mat_fill %1 : matrix<f32, 16x16, acc>
  %6 = mat_mma %3, %4, %5 : matrix<f32, 16x16, acc>
  %7 = mat_map %6 {op = "neg"} : matrix<f32, 16x16, acc>
  %8 = mat_cast %7 : matrix<f16, 16x16, acc>
  %s = shared : shared<f16, 16x16>
  mat_store %s, %0, %0, %2, %8 {layout = "row"}
  return
}
"""


def test_the_text_form_keeps_matrices() -> None:
    module = parse_module(TEXT)
    assert not violations(module)
    assert print_module(module) == TEXT


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("%3, %4, %5", "%4, %3, %5", "have uses b, a, acc"),
        ("16x16, b", "8x16, b", "don't go together"),
        ('"row"} : matrix<f16, 16x16, a>', '"diagonal"} : matrix<f16, 16x16, a>', "expected one of row, column"),
        ("mat_fill %1", "mat_fill %0", "isn't an element of"),
        ('op = "neg"', 'op = "exp"', "expected one of add, sub, mul, neg"),
        ('op = "neg"', 'op = "add"', "add takes 2 operands, found 1"),
        ("%8 = mat_cast %7 : matrix<f16, 16x16, acc>", "%8 = mat_cast %7 : matrix<f16, 8x8, acc>", "not of one shape"),
        ("matrix<f16, 16x16, a>", "matrix<bool, 16x16, a>", "elements of kind bool"),
        ("matrix<f16, 16x16, a>", "matrix<f16, 16x16, left>", "isn't one of a, b, acc"),
        ("%s = shared : shared<f16, 16x16>", "%s = local : local<f16, 16x16>", "a local array holds no matrix"),
        ("mat_store %s", "mat_store %a", "an `in` array can't be written"),
    ],
)
def test_the_verifier_knows_the_rules(old: str, new: str, complaint: str) -> None:
    assert TEXT.count(old)
    assert any(complaint in line for line in violations(parse_module(TEXT.replace(old, new))))


# -- compiled code


def compiled(kernel: Any, **choices: Any) -> Any:
    """Compile a kernel for the GPU `ALL`, validate the code if spirv-val is installed, and return the artifact."""
    signature = inspection.guess_signature(kernel, ALL, choices)
    artifact = driver.compile_kernel(kernel._expanded, dataclasses.replace(signature, bounds=False, aligned=True), ALL)
    if tools.available():
        tools.validate(artifact.code, "vulkan1.3")
    return artifact


@pytest.mark.parametrize(("m", "n", "k", "kind", "out"), SHAPES)
def test_spirv_of_every_shape_and_type(m: int, n: int, k: int, kind: str, out: str) -> None:
    artifact = compiled(product, A=kind, C=out, M=m, N=n, K=k)
    assert artifact.subgroup_size == 32
    assert "cooperative_matrix" in artifact.features
    assert ("bfloat16_cooperative_matrix" in artifact.features) == (kind == "bf16")


def test_bounds_of_matrices_are_checked_in_debug_launches() -> None:
    signature = inspection.guess_signature(copied, ALL, {"A": "f16", "C": "f16", "FROM": 0})
    artifact = driver.compile_kernel(copied._expanded, dataclasses.replace(signature, bounds=True, aligned=True), ALL)
    if tools.available():
        tools.validate(artifact.code, "vulkan1.3")
    assert {site.kind for site in artifact.sites} == {"bounds"}


def test_an_operation_that_part_of_a_subgroup_reaches_is_an_error_of_the_launch() -> None:
    """The compiler trusts `assume_uniform`; the interpreter detects that the promise is broken."""

    @vk.kernel(groups=1, local=32)
    def parted(x: vk.In[vk.f32, "N"], c: vk.Out[vk.f32, "16 16"]):
        sg = vk.subgroup()
        if vk.assume_uniform(x[vk.local_id(0)]) > 0:
            sg.store(c[0:16, 0:16], sg.matrix((16, 16), vk.f32))

    x = np.zeros(32, np.float32)
    with vk.use_device("interpreter"):
        parted(x, np.zeros((16, 16), np.float32))
        x[3] = 1
        with pytest.raises(KernelError):
            parted(x, np.zeros((16, 16), np.float32))
