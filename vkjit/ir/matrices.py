"""Verification of operations on cooperative matrices, beyond what their signatures state.

The checks return lists of errors, empty for valid operations. The shapes of a product have to match (m x k, k x n, m x
n), its operands have the uses a, b and acc, and elements are floats or integers.
"""

from __future__ import annotations

from collections.abc import Callable

from .core import Op, Value
from .ops import OpName
from .types import Array, Matrix, Scalar, Vector

__all__ = ["LAYOUTS", "MAPS", "USES", "matrix_errors", "units_of"]

USES = ("a", "b", "acc")
LAYOUTS = ("row", "column")
MAPS = {"add": 2, "sub": 2, "mul": 2, "neg": 1}
"""The operations of `mat_map`, with their number of operands."""


def units_of(op: Op) -> tuple[int, int]:
    """Return the number of rows in memory that a `mat_load` or `mat_store` covers, and of array elements in each."""
    array, matrix = op.operands[0].type, op.result.type if op.name == "mat_load" else op.operands[-1].type
    assert isinstance(array, Array)
    assert isinstance(matrix, Matrix)
    lanes = array.element.size if isinstance(array.element, Vector) else 1
    rows, columns = (matrix.rows, matrix.columns) if op.attrs["layout"] == "row" else (matrix.columns, matrix.rows)
    return rows, columns * matrix.dtype.itemsize // (lanes * array.dtype.itemsize)


def matrix_errors(op: Op) -> list[str]:
    """Return what is invalid about an operation on matrices."""
    errors = [error for value in (*op.operands, *op.results) for error in _type_errors(value)]
    if errors:
        return errors
    if op.name in ("mat_load", "mat_store"):
        return _access_errors(op)
    check: dict[OpName, Callable[[Op], list[str]]] = {
        "mat_fill": _fill_errors,
        "mat_mma": _product_errors,
        "mat_map": _map_errors,
        "mat_cast": _cast_errors,
    }
    return check[op.name](op)


def _type_errors(value: Value) -> list[str]:
    matrix = value.type
    if not isinstance(matrix, Matrix):
        return []
    if matrix.use not in USES:
        return [f"the use of {matrix} isn't one of {', '.join(USES)}"]
    if matrix.rows < 1 or matrix.columns < 1:
        return [f"{matrix} has no elements"]
    return (
        [] if matrix.dtype.kind in ("float", "int", "uint") else [f"{matrix} has elements of kind {matrix.dtype.kind}"]
    )


def _access_errors(op: Op) -> list[str]:
    array = op.operands[0].type
    if not isinstance(array, Array):
        return [f"operand 0 has type {array}, expected an array"]
    if array.space == "local":
        return ["a local array holds no matrix: each invocation has one of its own"]
    if op.attrs["layout"] not in LAYOUTS:
        return [f"attribute layout is {op.attrs['layout']!r}: expected one of {', '.join(LAYOUTS)}"]
    matrix = op.result.type if op.name == "mat_load" else op.operands[-1].type
    if not isinstance(matrix, Matrix):
        return [f"{matrix} isn't a matrix"]
    return ["an `in` array can't be written"] if op.name == "mat_store" and array.access == "in" else []


def _fill_errors(op: Op) -> list[str]:
    source, target = op.operands[0].type, op.attrs["type"]
    fits = isinstance(target, Matrix) and source == Scalar(target.dtype)
    return [] if fits else [f"{source} isn't an element of {target}"]


def _product_errors(op: Op) -> list[str]:
    a, b, acc = (value.type for value in op.operands)
    if not (isinstance(a, Matrix) and isinstance(b, Matrix) and isinstance(acc, Matrix)):
        return ["the operands of a product are matrices"]
    if (a.use, b.use, acc.use) != USES:
        return [f"the operands have uses {a.use}, {b.use}, {acc.use}: expected a, b, acc"]
    if (a.rows, b.columns, a.columns) != (acc.rows, acc.columns, b.rows):
        return [f"{a}, {b} and {acc} don't go together"]
    return [] if op.attrs["type"] == acc else [f"the result is {op.attrs['type']}, expected {acc}"]


def _map_errors(op: Op) -> list[str]:
    count = MAPS.get(op.attrs["op"])
    if count is None:
        return [f"attribute op is {op.attrs['op']!r}: expected one of {', '.join(MAPS)}"]
    if len(op.operands) != count:
        return [f"{op.attrs['op']} takes {count} operands, found {len(op.operands)}"]
    same = isinstance(op.attrs["type"], Matrix) and all(value.type == op.attrs["type"] for value in op.operands)
    return [] if same else ["operands and result have to be matrices of one type"]


def _cast_errors(op: Op) -> list[str]:
    source, target = op.operands[0].type, op.attrs["type"]
    if not (isinstance(source, Matrix) and isinstance(target, Matrix)):
        return [f"can't convert {source} to {target}"]
    same = (source.rows, source.columns, source.use) == (target.rows, target.columns, target.use)
    return [] if same else [f"can't convert {source} to {target}: not of one shape and use"]
