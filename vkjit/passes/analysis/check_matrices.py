"""Check that the device supports the cooperative matrices that a kernel uses.

Supported shapes and types differ between devices, even of one vendor. If a matrix isn't supported, the pass raises a
FeatureError, which names the source line, the matrices that it needs, and those that the device has. The module stays
unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from vkjit.errors import FeatureError
from vkjit.ir.core import Module, Op
from vkjit.ir.types import Array, Matrix
from vkjit.runtime.device import MatrixShape
from vkjit.runtime.matrix_shapes import usable_shapes

__all__ = ["CheckMatrices"]


@dataclass(frozen=True, slots=True)
class CheckMatrices:
    """Raise FeatureError for unsupported matrix shapes and types, and for unaligned matrices in memory.

    `shapes` are the matrix shapes that the device supports. `any_address` is True if the device can load matrices from
    any address.
    """

    shapes: tuple[MatrixShape, ...]
    any_address: bool = True
    name: ClassVar[str] = "check_matrices"

    def run(self, module: Module) -> Module:
        ops = [op for f in module.all_functions() for op in f.body.walk() if op.name.startswith("mat_")]
        if not ops:
            return module
        if module.kernel.attrs.get("sanitize"):
            raise FeatureError(
                f"kernel {module.kernel.name} uses cooperative matrices ({ops[0].loc}), which the sanitizer doesn't look "
                "into: run it without, or a variant that computes element by element"
            )
        self._aligned(module, ops)
        supported = usable_shapes(self.shapes)
        supported_types = {matrix for shape in supported for matrix in _matrices(shape)}
        for op in ops:
            if op.name == "mat_mma":
                self._product(module, op, supported)
        for op in ops:
            for value in (*op.operands, *op.results):
                if isinstance(value.type, Matrix) and _key(value.type) not in supported_types:
                    raise self._error(module, op, f"{value.type}", supported)
        return module

    def _aligned(self, module: Module, ops: list[Op]) -> None:
        """Check the alignment of global arrays from or to which matrices are loaded or stored.

        Unless `any_address` is True, the device requires every row of such an array to start at a multiple of 16 bytes.
        The kernel's attribute `aligned` guarantees that.
        """
        if self.any_address or module.kernel.attrs.get("aligned"):
            return
        for op in ops:
            kind = op.operands[0].type
            if isinstance(kind, Array) and kind.space == "global":
                raise FeatureError(
                    f"kernel {module.kernel.name} reads or writes matrices in an array ({op.loc}), and an array of this launch, "
                    "or a row of one, doesn't begin at a multiple of 16 bytes: pad the rows, or copy to shared memory first"
                )

    def _product(self, module: Module, op: Op, supported: list[MatrixShape]) -> None:
        """Check that the device supports the shapes and types of a `mat_mma` together."""
        a, b, acc = (value.type for value in op.operands)
        assert isinstance(a, Matrix)
        assert isinstance(b, Matrix)
        assert isinstance(acc, Matrix)
        required = (a.rows, b.columns, a.columns, a.dtype.name, b.dtype.name, acc.dtype.name)
        # the result of a `mat_mma` has the type of its accumulators
        if any((s.m, s.n, s.k, s.a, s.b, s.c) == required and s.result == s.c for s in supported):
            return
        raise self._error(module, op, _text(*required), supported)

    @staticmethod
    def _error(module: Module, op: Op, required: str, supported: list[MatrixShape]) -> FeatureError:
        """Return the error at `op`, with the matrices that are required and those that the device supports."""
        offers = dict.fromkeys(_text(s.m, s.n, s.k, s.a, s.b, s.c) for s in supported)
        offered = "it has " + "; ".join(offers) if offers else "it has no cooperative matrices at all"
        return FeatureError(
            f"kernel {module.kernel.name} needs {required} ({op.loc}), which this device lacks: {offered}. "
            "vk.device().caps.matrices lists them; wg.mma of tiles runs everywhere"
        )


def _matrices(shape: MatrixShape) -> Iterator[tuple[int, int, str, str]]:
    """Yield the keys (see `_key`) of the matrices A and B and of the accumulators of a supported product."""
    yield (shape.m, shape.k, shape.a, "a")
    yield (shape.k, shape.n, shape.b, "b")
    yield (shape.m, shape.n, shape.c, "acc")


def _key(matrix: Matrix) -> tuple[int, int, str, str]:
    """Return a key of a matrix type: (rows, columns, dtype name, use), where the use is "a", "b" or "acc"."""
    return (matrix.rows, matrix.columns, matrix.dtype.name, matrix.use)


def _text(m: int, n: int, k: int, a: str, b: str, accumulator: str) -> str:
    """Return a product of matrices as text, for messages."""
    return f"{a} {m}x{k} @ {b} {k}x{n} -> {accumulator}"
