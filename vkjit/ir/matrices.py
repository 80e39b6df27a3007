"""Verification of operations on cooperative matrices, beyond their signatures in the op table.

`signature` calls `matrix_errors`. The checks return lists of errors, empty for valid operations. The operands of a
product must have matching shapes (m x k, k x n and m x n) and the uses "a", "b" and "acc". Elements must be floats or
integers.
"""

from __future__ import annotations

from collections.abc import Callable

from .core import Op, Value
from .ops import OpName
from .types import Array, Matrix, Scalar, Vector

__all__ = ["LAYOUTS", "MAPS", "USES", "matrix_errors", "memory_rows"]

USES = ("a", "b", "acc")
"""The uses of matrices (see `Matrix`), in the order of the operands of `mat_mma`."""
LAYOUTS = ("row", "column")
"""The layouts of a matrix in memory: row-major and column-major."""
MAPS = {"add": 2, "sub": 2, "mul": 2, "neg": 1}
"""The elementwise operations of `mat_map`, with their number of operands."""


def memory_rows(op: Op) -> tuple[int, int]:
    """Return (number of memory rows, array elements per memory row) that a `mat_load` or `mat_store` accesses.

    A memory row is a row of the matrix or, with the layout "column", a column.
    """
    array = op.operands[0].type
    matrix = op.result.type if op.name == "mat_load" else op.operands[-1].type
    assert isinstance(array, Array)
    assert isinstance(matrix, Matrix)
    rows, columns = matrix.rows, matrix.columns
    if op.attrs["layout"] == "column":
        rows, columns = columns, rows
    # array elements may differ in size from the matrix's elements, and may be vectors
    lanes = array.element.size if isinstance(array.element, Vector) else 1
    return rows, columns * matrix.dtype.itemsize // (lanes * array.dtype.itemsize)


def matrix_errors(op: Op) -> list[str]:
    """Return the errors of an operation on matrices."""
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
    """Check that a value, if it is a matrix, has a valid type."""
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
    """Check a `mat_load` or `mat_store`."""
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
    """Check a `mat_fill`."""
    source, target = op.operands[0].type, op.attrs["type"]
    fits = isinstance(target, Matrix) and source == Scalar(target.dtype)
    return [] if fits else [f"{source} isn't an element of {target}"]


def _product_errors(op: Op) -> list[str]:
    """Check a `mat_mma`."""
    a, b, acc = (value.type for value in op.operands)
    if not (isinstance(a, Matrix) and isinstance(b, Matrix) and isinstance(acc, Matrix)):
        return ["the operands of a product are matrices"]
    if (a.use, b.use, acc.use) != USES:
        return [f"the operands have uses {a.use}, {b.use}, {acc.use}: expected a, b, acc"]
    if (a.rows, b.columns, a.columns) != (acc.rows, acc.columns, b.rows):
        return [f"{a}, {b} and {acc} don't go together"]
    return [] if op.attrs["type"] == acc else [f"the result is {op.attrs['type']}, expected {acc}"]


def _map_errors(op: Op) -> list[str]:
    """Check a `mat_map`."""
    count = MAPS.get(op.attrs["op"])
    if count is None:
        return [f"attribute op is {op.attrs['op']!r}: expected one of {', '.join(MAPS)}"]
    if len(op.operands) != count:
        return [f"{op.attrs['op']} takes {count} operands, found {len(op.operands)}"]
    same = isinstance(op.attrs["type"], Matrix) and all(value.type == op.attrs["type"] for value in op.operands)
    return [] if same else ["operands and result have to be matrices of one type"]


def _cast_errors(op: Op) -> list[str]:
    """Check a `mat_cast`."""
    source, target = op.operands[0].type, op.attrs["type"]
    if not (isinstance(source, Matrix) and isinstance(target, Matrix)):
        return [f"can't convert {source} to {target}"]
    same = (source.rows, source.columns, source.use) == (target.rows, target.columns, target.use)
    return [] if same else [f"can't convert {source} to {target}: not of one shape and use"]
