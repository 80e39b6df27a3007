"""Property tests of standard library kernels: inputs drawn from their signatures, references of a line or two.

`dims=` and `elements=` state what the tensor layer guarantees to its kernels (sizes that aren't empty).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit.stdlib.elementwise import functions, maps
from vkjit.stdlib.matmul import registers, shared_tiles
from vkjit.stdlib.rows import reduce

SETTINGS: dict[str, Any] = {"max_examples": 12, "seed": 11}


def check(device: Any, kernel: Any, reference: Any, **settings: Any) -> None:
    vk.testing.check_kernel(kernel, reference, devices=["interpreter", device], **{**SETTINGS, **settings})


UNARY = {"relu": lambda a: np.maximum(a, 0), "square": np.square, "neg": np.negative, "cube": lambda a: a**3}


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one(device: Any, name: str) -> None:
    given = {"F": [getattr(functions, name)], "C": [vk.f32]}
    check(device, maps.map1, UNARY[name], elements=given, dtypes=[vk.f32, vk.f16])


BINARY = {"add": np.add, "sub": np.subtract, "mul": np.multiply}


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("kind", ["f32", "i32"])
def test_functions_of_two(device: Any, name: str, kind: str) -> None:
    dtype = getattr(vk, kind)
    given = {"F": [getattr(functions, name)], "C": [dtype]}
    check(device, maps.map2, BINARY[name], elements=given, dtypes=[dtype], special=kind == "f32")


@pytest.mark.parametrize(
    ("form", "load", "combine", "finish", "start", "reference"),
    [
        ("per_workgroup", "value", "add", "value", 0, lambda x: x.sum(axis=2)),
        ("per_workgroup", "square", "add", "root", 0, lambda x: np.sqrt((x**2).sum(axis=2))),
        ("per_invocation", "value", "product", "value", 1, lambda x: x.prod(axis=2)),
        ("per_invocation", "absolute", "add", "mean", 0, lambda x: np.abs(x).mean(axis=2)),
    ],
    ids=["sum", "norm", "product", "mean"],
)  # fmt: skip
def test_reductions(
    device: Any, form: str, load: str, combine: str, finish: str, start: int, reference: Any
) -> None:  # fmt: skip
    kernel = getattr(reduce, f"reduce_{form}")
    given = {
        "LOAD": [getattr(reduce, f"load_{load}")], "COMBINE": [getattr(reduce, combine)], "INIT": [start],
        "FINISH": [getattr(reduce, f"finish_{finish}")], "IN": [vk.f32], "ACC": [vk.f32], "total": "R",
        "LIMIT": [65536], "x": (-2.0, 2.0),
    }  # fmt: skip
    given = {name: value for name, value in given.items() if name in {p.name for p in kernel.spec.params}}
    check(device, kernel, reference, elements=given, dtypes=[vk.f32], dims={"R": (1, 600)})


@pytest.mark.slow
@pytest.mark.parametrize("rows", [False, True], ids=["columns", "rows"])
def test_tiles_of_products(device: Any, rows: bool) -> None:
    given = {"ACC": [vk.f32], "A_ROWS": [rows], "B_ROWS": [rows]}
    sizes = {"G": (0, 2), "M": (0, 70), "N": (0, 70), "K": (0, 40)}
    check(
        device, shared_tiles.multiply_tiles, np.matmul, elements=given, dtypes=[vk.f32], dims=sizes, max_examples=6
    )  # fmt: skip


@pytest.mark.parametrize("shape", [(1, 1), (4, 2)], ids=["single", "block"])
def test_products_in_registers(device: Any, shape: tuple[int, int]) -> None:
    given = {"ACC": [vk.f32], "ROWS": [shape[0]], "COLUMNS": [shape[1]], "LANES": [8]}
    sizes = {"G": (0, 2), "M": (1, 20), "N": (1, 40), "K": (0, 40)}
    check(device, registers.multiply_registers, np.matmul, elements=given, dtypes=[vk.f32], dims=sizes, max_examples=6)
