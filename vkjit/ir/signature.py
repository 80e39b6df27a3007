"""Verification of an operation against its row of the op table (see `ops`): operands, results, attributes.

`verify` calls `signature_errors` for each operation, and itself checks the operation's context: visibility of values,
regions, terminators. All checks here return lists of errors, empty for valid operations. A word is an item of the
column `signature`, such as "index", "array" or "T"; the docstring of `ops` lists the words. The words T and S are
called letters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..dtypes import DType
from .core import Op, Value
from .matrices import matrix_errors
from .ops import KINDS, OpInfo
from .tiles import tile_errors
from .types import BOOL, I32, INDEX, U32, Array, Scalar, Tile, Type, Vector

__all__ = ["constant_fits", "signature_errors"]

_FIXED: dict[str, Scalar] = {"index": INDEX, "i32": I32, "u32": U32}
"""The words that stand for one type."""
_REDUCE = frozenset({"add", "mul", "min", "max", "and", "or", "xor"})
_ATOMIC = frozenset({"add", "sub", "min", "max", "and", "or", "xor", "exchange"})
"""Values of the attribute `op`: of reductions and scans, and of atomics."""
_ORDERS = frozenset({"relaxed", "acquire", "release", "acq_rel"})
_SCOPES = frozenset({"subgroup", "workgroup", "device"})

_MAX_VALID = 1 << 16
_valid: set[tuple[Any, ...]] = set()
"""Cache of valid operations without attributes and regions, as (name, operand types..., None, result types...). Most
operations repeat an earlier combination. The cache is cleared when it has `_MAX_VALID` entries.
"""


def signature_errors(op: Op, row: OpInfo) -> list[str]:
    """Return the errors of an operation against `row`, its row of the op table."""
    if op.attrs or op.regions:
        return _errors(op, row)
    key = (op.name, *[v.type for v in op.operands], None, *[r.type for r in op.results])
    if key in _valid:
        return []
    errors = _errors(op, row)
    if not errors:
        if len(_valid) >= _MAX_VALID:
            _valid.clear()
        _valid.add(key)
    return errors


def _errors(op: Op, row: OpInfo) -> list[str]:
    """Return the errors of an operation, computed without the cache of `signature_errors`."""
    errors = [f"attribute {name} is missing" for name in row.attrs if name not in op.attrs]
    if len(op.regions) != row.regions:
        errors.append(f"expected {row.regions} regions, found {len(op.regions)}")
    if errors:
        return errors
    errors += _operand_errors(op, row)
    errors += _attribute_errors(op)
    if not errors:
        errors += _result_errors(op, row)
        errors += _specific_errors(op)
    return errors


def constant_fits(value: Any, dtype: DType) -> bool:
    """True if a Python number is a valid constant of the dtype."""
    if dtype.kind == "bool":
        return type(value) is bool
    if dtype.is_float:
        return type(value) in (int, float)
    low = -(1 << (dtype.bits - 1)) if dtype.is_signed else 0
    return type(value) is int and low <= value < low + (1 << dtype.bits)


def _expand(op: Op, row: OpInfo) -> tuple[str, ...]:
    """Return the signature's words, one per operand: `*index` and `*any` are repeated as needed.

    The index of a linear array gets the additional word "offset", since it may also be an i32.
    """
    words: list[str] = []
    for word in row.operands:
        if word == "*index":
            array = op.operands[0].type if op.operands else None
            if isinstance(array, Array):
                words += ["offset" if array.linear else "index"] * array.rank
        elif word == "*any":
            words += ["any"] * (len(op.operands) - len(row.operands) + 1)  # all operands without a word of their own
        else:
            words.append(word)
    return tuple(words)


def _operand_errors(op: Op, row: OpInfo) -> list[str]:
    """Check the number and types of the operands."""
    words = _expand(op, row)
    if len(words) != len(op.operands):
        return [f"expected {len(words)} operands ({' '.join(words)}), found {len(op.operands)}"]
    errors: list[str] = []
    # the types that the letters T and S stand for; reversed, so that the first operand with a letter determines it
    letter_types = {w: v.type for w, v in reversed(list(zip(words, op.operands, strict=True))) if w in ("T", "S")}
    for position, (word, value) in enumerate(zip(words, op.operands, strict=True)):
        expected = _expected(word, letter_types, op.operands, value.type)
        if expected is not None and expected != value.type:
            errors.append(f"operand {position} has type {value.type}, expected {expected}")
    errors += _kind_errors(letter_types, row)
    return errors


def _expected(word: str, letter_types: dict[str, Type], operands: Sequence[Value], actual: Type) -> Type | None:
    """Return the type that the operand with the word `word` must have; None if any type is valid.

    `letter_types` has the types of the letters. `operands` are all operands of the operation, and `actual` is the
    actual type of this one.
    """
    if word in _FIXED:
        return _FIXED[word]
    if word == "offset":
        return actual if actual in (INDEX, I32) else INDEX
    if word in ("T", "S"):
        return letter_types[word]
    if word == "bool":
        type_of_t = letter_types.get("T")
        return Vector(BOOL.dtype, type_of_t.size) if isinstance(type_of_t, Vector) else BOOL
    if word == "element":
        return getattr(operands[0].type, "element", None)
    return None


def _kind_errors(letter_types: dict[str, Type], row: OpInfo) -> list[str]:
    """Check that the types of the letters are scalars or vectors, and that the column `of` allows the kind of T."""
    errors = []
    for word, operand_type in letter_types.items():
        if not isinstance(operand_type, (Scalar, Vector)):
            errors.append(f"{operand_type} isn't a scalar or vector, as {word} has to be")
        elif word == "T" and operand_type.dtype.kind not in KINDS[row.of]:
            errors.append(f"{operand_type} isn't one of: {', '.join(sorted(KINDS[row.of]))}")
    return errors


def _result_errors(op: Op, row: OpInfo) -> list[str]:
    """Check the types of the results."""
    if row.result == "*":
        return []
    expected = _result_types(op, row)
    actual = [r.type for r in op.results]
    if expected == actual:
        return []
    return [f"results have types ({_types(actual)}), expected ({_types(expected)})"]


def _types(types: Sequence[Type]) -> str:
    return ", ".join(map(str, types))


def _result_types(op: Op, row: OpInfo) -> list[Type]:
    """Return the result types according to the op table, for an operation that has passed `_operand_errors`."""
    word = row.result
    if not word:
        return []
    if word == "type":
        return [op.attrs["type"]]
    if word in _FIXED:
        return [_FIXED[word]]
    if word == "element":
        return [getattr(op.operands[0].type, "element", INDEX)]
    if word == "bool":
        source = op.operands[0].type
        return [Vector(BOOL.dtype, source.size) if isinstance(source, Vector) else BOOL]
    return [op.operands[row.operands.index(word)].type]  # a letter: the type of the first operand with it


def _attribute_errors(op: Op) -> list[str]:
    """Return an error for each attribute that has an invalid value. (`_errors` reports missing attributes.)"""
    errors = []
    for name, value in op.attrs.items():
        problem = _attribute_error(op, name, value)
        if problem:
            errors.append(f"attribute {name} is {value!r}: {problem}")
    return errors


def _attribute_error(op: Op, name: str, value: Any) -> str:
    """Return a text that says what is wrong with the value of attribute `name`; "" if it is valid."""
    if name == "type":
        return "" if isinstance(value, Type) else "expected a type"
    if name in ("dim", "axis", "lane", "mask", "site"):
        if type(value) is not int or value < 0:
            return "expected a number from 0"
        limit = _limit(op, name)
        return "" if limit is None or value < limit else f"expected a number below {limit}"
    allowed = _choices(op, name)
    if allowed is not None and value not in allowed:
        return f"expected one of {', '.join(sorted(map(str, allowed)))}"
    if name == "callee" and not isinstance(value, str):
        return "expected a name"
    return ""


def _limit(op: Op, name: str) -> int | None:
    """Return the exclusive upper bound of the int attribute `name`; None if it has no upper bound."""
    if name == "dim":
        return 3
    if not op.operands:
        return None
    first = op.operands[0].type
    if name == "axis" and isinstance(first, Array):
        return first.rank
    if name == "axis" and isinstance(first, Tile):
        return len(first.shape)
    if op.name == "extract_word":
        return 2
    if name == "lane":
        return first.size if isinstance(first, Vector) else 0
    return None


def _choices(op: Op, name: str) -> frozenset[Any] | None:
    """Return the set of valid values of the attribute `name`; None if its values aren't limited to a set."""
    if name == "op" and op.name != "mat_map":
        return _ATOMIC if op.name == "atomic" else _REDUCE
    if name == "order" and op.name.startswith("atomic"):
        return _ORDERS
    if name == "scope" and (op.name.startswith("atomic") or op.name == "fence"):
        return _SCOPES
    if name == "exclusive":
        return frozenset({True, False})
    return None


def _specific_errors(op: Op) -> list[str]:
    """Check the rules that only concern certain operations, and that a signature can't express."""
    if op.name.startswith("mat_"):
        return matrix_errors(op)
    if op.name.startswith("tile_"):
        return tile_errors(op)
    if op.name in ("extent", "stride", "linear", "load", "store") or op.name.startswith("atomic"):
        return _array_errors(op)
    if op.name in ("shared", "local"):
        return _allocation_errors(op)
    if op.name == "const":
        target = op.attrs["type"]
        fits = isinstance(target, (Scalar, Vector)) and constant_fits(op.attrs["value"], target.dtype)
        return [] if fits else [f"{op.attrs['value']!r} is no constant of type {target}"]
    if op.name in ("cast", "bitcast"):
        return _conversion_errors(op)
    if op.name.startswith("vec_"):
        return _vector_errors(op)
    if op.name in ("extract_word", "join_words"):
        return _word_errors(op)
    if op.name == "for" and not isinstance(op.operands[0].type, Scalar):
        return [f"{op.operands[0].type} isn't a scalar"]
    return []


def _array_errors(op: Op) -> list[str]:
    """Check an operation on an array."""
    array = op.operands[0].type
    if not isinstance(array, Array):
        return [f"operand 0 has type {array}, expected an array"]
    if op.name in ("extent", "stride") and array.linear:
        return ["a linear array has neither extents nor strides"]
    if op.name == "linear":
        target = op.attrs["type"]
        if isinstance(target, Array) and target.linear and _views(target, array):
            return []
        size = "its size or a multiple of it" if array.space == "global" else "its size"
        return [f"expected a linear array of {array.element}, or of elements of {size}, in {array.space} memory"]
    writes = op.name in ("store", "atomic", "atomic_cas", "atomic_store")
    return ["an `in` array can't be written"] if writes and array.access == "in" else []


def _views(target: Array, array: Array) -> bool:
    """True if `target` can be the type of a linear view of `array`.

    Both must be in the same memory space. An element of the view must have the size of an element of `array` or, in
    global memory, a multiple of it.
    """
    if target.space != array.space:
        return False
    size, array_size = _element_bytes(target), _element_bytes(array)
    return size == array_size or (array.space == "global" and size % array_size == 0)


def _element_bytes(array: Array) -> int:
    """Return the size of one element in bytes."""
    lanes = array.element.size if isinstance(array.element, Vector) else 1
    return lanes * array.dtype.itemsize


def _allocation_errors(op: Op) -> list[str]:
    """Check a `shared` or `local`."""
    array = op.attrs["type"]
    if not isinstance(array, Array) or array.space != op.name or array.shape is None:
        return [f"expected the type of a {op.name} array with a shape, found {array}"]
    if array.rank != len(array.shape) or (array.linear and array.rank != 1) or any(e < 0 for e in array.shape):
        return [f"rank and shape of {array} don't agree"]
    return []


def _conversion_errors(op: Op) -> list[str]:
    """Check a `cast` or `bitcast`."""
    source, target = op.operands[0].type, op.attrs["type"]
    if not (isinstance(source, (Scalar, Vector)) and isinstance(target, (Scalar, Vector))):
        return [f"can't convert {source} to {target}"]
    if getattr(source, "size", 1) != getattr(target, "size", 1):
        return [f"can't convert {source} to {target}: not of one shape"]
    if op.name == "bitcast" and source.dtype.bits != target.dtype.bits:
        return [f"can't bitcast {source} to {target}: not of one width"]
    return []


def _word_errors(op: Op) -> list[str]:
    """Check an `extract_word` or `join_words`."""
    wide = op.operands[0].type if op.name == "extract_word" else op.attrs["type"]
    if not (isinstance(wide, Scalar) and wide.dtype.is_integer and wide.dtype.bits == 64):
        return [f"expected a 64-bit integer, found {wide}"]
    return []


def _vector_errors(op: Op) -> list[str]:
    """Check a `vec_make`, `vec_extract` or `vec_insert`."""
    if op.name == "vec_make":
        target = op.attrs["type"]
        expected = [Scalar(target.dtype)] * target.size if isinstance(target, Vector) else []
        fits = bool(expected) and [v.type for v in op.operands] == expected
        return [] if fits else [f"components don't make a {target}"]
    vector = op.operands[0].type
    if not isinstance(vector, Vector):
        return [f"{vector} isn't a vector"]
    other = op.attrs["type"] if op.name == "vec_extract" else op.operands[1].type
    return (
        []
        if other == Scalar(vector.dtype)
        else [f"a component of {vector} has type {vector.dtype.name}, found {other}"]
    )
