"""Random kernels through the whole pass pipeline at each level; devices match the interpreter on the high-level form.

The kernels are strict, so that floats match bit for bit.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tests.device.language.codegen_kernels import expected, on_device, same
from tests.property.programs import GROUPS, arguments, generate
from vkjit.ir import F32, Array, Builder, Function, Module, Region
from vkjit.ir.ops import OpName
from vkjit.ir.rewrite import clone_module
from vkjit.passes import pipeline


@pytest.mark.parametrize("seed", range(24))
def test_generated_kernels(device: Any, seed: int) -> None:
    module = generate(seed, 10 + 2 * seed)
    module.kernel.attrs["strict"] = True
    args = [np.ascontiguousarray(a) if isinstance(a, np.ndarray) else a for a in arguments()]
    wanted = expected(module, GROUPS, args)
    for level in (0, 1, 2):
        lowered = pipeline.run(clone_module(module), device.caps, level)
        same(on_device(device, lowered, GROUPS, args), wanted)


SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 2.0, -1.0, 1e-3], np.float32)


@pytest.mark.parametrize("zero", [0.0, -0.0])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
def test_literal_zeros(device: Any, name: OpName, zero: float) -> None:
    """Driver optimizations must preserve NaN, infinities and signed zeros."""
    region = Region([Array(F32, 1, access="in"), Array(F32, 2, access="out")], ["x", "y"])
    builder = Builder(region)
    i = builder.emit("global_id", dim=0)
    x, literal = builder.emit("load", region.args[0], i), builder.const(zero, F32)
    for column, (a, b) in enumerate([(x, literal), (literal, x)]):
        builder.op("store", region.args[1], i, builder.index(column), builder.emit(name, a, b))
    builder.op("return")
    module = Module(Function("k", region, [], {"local_size": (8, 1, 1), "arg_index": (0, 1), "strict": True}))
    check_columns(device, module, 2)


def check_columns(device: Any, module: Module, columns: int) -> None:
    args = [SPECIAL, np.zeros((8, columns), np.float32)]
    lowered = pipeline.run(clone_module(module), device.caps)
    same(on_device(device, lowered, 1, args), expected(module, 1, args))


def test_choices_between_literals(device: Any) -> None:
    region = Region([Array(F32, 1, access="in"), Array(F32, 2, access="out")], ["x", "y"])
    builder = Builder(region)
    i = builder.emit("global_id", dim=0)
    positive = builder.emit("gt", builder.emit("load", region.args[0], i), builder.const(0.0, F32))
    literals = [builder.const(number, F32) for number in (0.0, -0.0, 1.0, -1.0)]
    for column, (a, b) in enumerate(itertools.product(literals, literals)):
        chosen = builder.emit("select", positive, a, b)
        builder.op("store", region.args[1], i, builder.index(column), chosen)
    builder.op("return")
    check_columns(device, Module(Function("k", region, [], {"local_size": (8, 1, 1), "arg_index": (0, 1)})), 16)
