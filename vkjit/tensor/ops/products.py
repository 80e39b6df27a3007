"""Tensor products beyond matmul: einsum, tensordot, inner, Kronecker and cross products, and fused additions.

einsum contracts its operands from left to right, each pair by one batched matrix product. It names axes by *labels*:
the letters of the equation, and "0.", "1." and so on for the axes that `...` stands for.
"""

from __future__ import annotations

import functools
import math
import string
from collections.abc import Sequence
from typing import Any

from vkjit.errors import ArgumentError, ShapeError, shown

from ..argument_errors import described
from ..memory import as_int
from ..precision import computed_in_f32
from ..promotion import result_type
from ..tensor import Tensor
from . import matmul as linalg
from .arithmetic import mul
from .broadcast import broadcast_shapes
from .copies import stack
from .matmul import matmul
from .views import axis_of, broadcast_tensors, diagonal, expand, movedim, permute, reshape, select

__all__ = ["addbmm", "addmv", "addr", "cross", "einsum", "inner", "kron", "tensordot", "vdot"]


@computed_in_f32
def addbmm(c: Any, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """Return beta * c + alpha * (the sum of the matrix products a[i] @ b[i]), for a (B, M, K) and b (B, K, N)."""
    if a.ndim != 3 or b.ndim != 3 or a.shape[0] != b.shape[0]:
        raise ShapeError(f"addbmm() takes two batches of matrices of one size, found {a.shape} and {b.shape}")
    rows, columns = a.shape[1], b.shape[2]
    left = reshape(movedim(a, 0, 1), (rows, a.shape[0] * a.shape[2]))
    right = reshape(b, (b.shape[0] * b.shape[1], columns))
    return linalg.addmm(c, left, right, beta=beta, alpha=alpha)


@computed_in_f32
def addmv(c: Any, a: Tensor, x: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """Return beta * c + alpha * (a @ x) for a matrix a and a vector x."""
    return linalg.plus_scaled(c, linalg.mv(a, x), beta, alpha)


@computed_in_f32
def addr(c: Any, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """Return beta * c + alpha * outer(a, b) for vectors a and b."""
    if c.dtype.kind == "bool":
        outer: Any = linalg.outer(a, b)
        scaled = outer & bool(alpha)
        return scaled | c if beta else scaled  # type: ignore[no-any-return]
    shape = (*a.shape, *b.shape)
    c = c.expand(shape) if c.ndim == 0 else c
    dtype = result_type(c, a, b)
    return linalg.plus_scaled(c, linalg.outer(a.to(dtype), b.to(dtype)), beta, alpha)


def inner(a: Tensor, b: Tensor) -> Tensor:
    """Return the products of a and b summed over their last axes."""
    if a.ndim == 0 or b.ndim == 0:
        return mul(a, b)
    if a.shape[-1] != b.shape[-1]:
        raise ShapeError(f"inner(): the last axes of {a.shape} and {b.shape} differ")
    return tensordot(a, b, ([-1], [-1]))


def vdot(a: Tensor, b: Tensor) -> Tensor:
    """Return the dot product of two vectors."""
    return linalg.dot(a, b)


def tensordot(a: Tensor, b: Tensor, dims: Any = 2) -> Tensor:
    """Contract a and b over pairs of axes.

    `dims` is the number of last axes of a to contract with as many first axes of b, or a pair of lists: axes of a, and
    the axes of b to contract them with.
    """
    if isinstance(dims, int):
        if as_int(dims, "tensordot(dims=)", 0) > min(a.ndim, b.ndim):
            raise ShapeError(
                f"tensordot(dims={shown(dims)}): tensors of {a.ndim} and {b.ndim} axes have no so many in common"
            )
        contracted_a, contracted_b = list(range(a.ndim - dims, a.ndim)), list(range(dims))
    else:
        if not isinstance(dims, (tuple, list)) or len(dims) != 2:
            raise ArgumentError(f"tensordot(dims=): expected an int or a pair of lists of axes, found {shown(dims)}")
        contracted_a, contracted_b = ([d] if isinstance(d, int) else list(d) for d in dims)
    if len(contracted_a) != len(contracted_b):
        raise ShapeError(f"tensordot(): {len(contracted_a)} axes of the first, {len(contracted_b)} of the second")
    axes_a = [axis_of(d, a.ndim, "tensordot") for d in contracted_a]
    axes_b = [axis_of(d, b.ndim, "tensordot") for d in contracted_b]
    # an einsum: each axis of a gets a letter, an axis of b the letter of the axis it is contracted with, or a new one
    letters = iter("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    names_a = [next(letters) for _ in range(a.ndim)]
    names_b = [names_a[axes_a[axes_b.index(i)]] if i in axes_b else next(letters) for i in range(b.ndim)]
    result_letters = [n for i, n in enumerate(names_a) if i not in axes_a] + [
        n for i, n in enumerate(names_b) if i not in axes_b
    ]
    return einsum(f"{''.join(names_a)},{''.join(names_b)}->{''.join(result_letters)}", a, b)


def kron(a: Any, b: Any) -> Tensor:
    """Return the Kronecker product: a with each element replaced by that element times b."""
    # multiply with the axes of a and b interleaved, (a0, 1, a1, 1, ...) and (1, b0, 1, b1, ...), then merge each pair
    rank = max(a.ndim, b.ndim)
    p, q = (reshape(x, (1,) * (rank - x.ndim) + x.shape) for x in (a, b))
    product = reshape(p, tuple(n for e in p.shape for n in (e, 1))) * reshape(
        q, tuple(n for e in q.shape for n in (1, e))
    )
    return reshape(product, tuple(m * n for m, n in zip(p.shape, q.shape, strict=True)))


@computed_in_f32
def cross(a: Any, b: Any, dim: int | None = None) -> Tensor:
    """Return the cross product along an axis of size 3 (dim=None: the first such axis); a and b broadcast."""
    a, b = broadcast_tensors(a, b)
    axes = [i for i, e in enumerate(a.shape) if e == 3]
    axis = axis_of(dim, a.ndim, "cross") if dim is not None else axes[0] if axes else -1
    if axis < 0 or a.shape[axis] != 3:
        raise ShapeError(f"cross(): axis {dim} of {a.shape} must have 3 elements")
    (a0, a1, a2), (b0, b1, b2) = (tuple(select(x, axis, i) for i in range(3)) for x in (a, b))
    return stack([a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0], axis)


# -- einsum

_GRAMMAR = r"""
equation: term ("," term)* [ARROW term]
term: (LETTER | DOTS)*
ARROW: "->"
DOTS: "..."
LETTER: /[a-zA-Z]/
%ignore " "
"""


@functools.cache
def _parser() -> Any:
    """Return the parser of einsum equations; lark is imported only when it is needed."""
    import lark

    return lark.Lark(_GRAMMAR, start="equation", parser="lalr")


@functools.lru_cache(maxsize=256)
def parse(equation: str) -> tuple[tuple[tuple[str, ...], ...], tuple[str, ...] | None]:
    """Parse an einsum equation into the terms of its operands and the result's term (None without "->").

    A term is a tuple of letters and "...".
    """
    import lark

    try:
        tree = _parser().parse(equation)
    except lark.exceptions.UnexpectedInput as error:
        column = getattr(error, "column", 0)
        raise ArgumentError(
            f"einsum({equation!r}): unexpected text at column {column}; expected terms of letters and ..., separated "
            "by commas, then optionally -> and the result's"
        ) from error
    terms = [tuple(str(t) for t in c.children) for c in tree.children if isinstance(c, lark.Tree)]
    has_arrow = any(isinstance(c, lark.Token) for c in tree.children)
    for term in terms:
        if term.count("...") > 1:
            raise ArgumentError(f"einsum({equation!r}): a term has ... more than once")
    return tuple(terms[:-1] if has_arrow else terms), terms[-1] if has_arrow else None


def _label_axes(x: Tensor, term: tuple[str, ...], dots: int, equation: str) -> tuple[Tensor, list[str]]:
    """Return operand x and the labels of its axes. If its term repeats a label, x is reduced to the diagonal.

    `dots` is the largest number of axes that "..." stands for in any operand. The axes of "..." are aligned at the last
    one, as in broadcasting: its label is f"{dots - 1}." in every operand.
    """
    letter_count = len(term) - term.count("...")
    dot_count = x.ndim - letter_count  # number of axes that "..." stands for
    if dot_count < 0 or (dot_count and "..." not in term):
        raise ShapeError(f"einsum({equation!r}): the term {''.join(term)!r} doesn't fit a tensor of shape {x.shape}")
    labels: list[str] = []
    for label in term:
        labels += [f"{dots - dot_count + i}." for i in range(dot_count)] if label == "..." else [label]
    while len(set(labels)) < len(labels):
        repeated = next(n for n in labels if labels.count(n) > 1)
        first = labels.index(repeated)
        second = labels.index(repeated, first + 1)
        if x.shape[first] != x.shape[second]:
            raise ShapeError(
                f"einsum({equation!r}): {repeated!r} names axes of sizes {x.shape[first]} and {x.shape[second]}"
            )
        x = diagonal(x, 0, first, second)  # as the last axis
        labels = [n for i, n in enumerate(labels) if i not in (first, second)] + [repeated]
    return x, labels


def _align_axes(x: Tensor, labels: list[str], target_labels: Sequence[str], sizes: dict[str, int]) -> Tensor:
    """Return x, whose axes have the labels `labels`, with an axis for each of `target_labels`, in their order.

    The axis of a label that x lacks has size 1; all other axes are expanded to the label's size in `sizes`.
    """
    x = permute(x, [labels.index(n) for n in target_labels if n in labels]) if labels else x
    shape, position = [], 0
    for name in target_labels:
        shape.append(x.shape[position] if name in labels else 1)
        position += name in labels  # the next axis of x, if this one was x's
    return expand(reshape(x, tuple(shape)), tuple(sizes[n] if n in labels else 1 for n in target_labels))


def _contract(
    a: Tensor, labels_a: list[str], b: Tensor, labels_b: list[str], kept: set[str], sizes: dict[str, int]
) -> tuple[Tensor, list[str]]:
    """Multiply two operands and sum over the labels that aren't in `kept`. Returns the product and its labels.

    Labels of both operands that are in `kept` become the batch of a matrix product, other labels of both operands its K
    dimension. If there are none of these, the product is elementwise. `sizes` has the broadcast size of each label.
    """
    a, labels_a = _sum_unneeded(a, labels_a, kept | set(labels_b))
    b, labels_b = _sum_unneeded(b, labels_b, kept | set(labels_a))
    shared = [n for n in labels_a if n in labels_b]
    batch, summed = [n for n in shared if n in kept], [n for n in shared if n not in kept]
    left, right = [n for n in labels_a if n not in shared], [n for n in labels_b if n not in shared]
    # a label of a single operand keeps its size there, which may be 1; later operands broadcast against it
    local_sizes = dict(sizes)
    for labels, x in ((labels_a, a), (labels_b, b)):
        local_sizes.update({n: x.shape[labels.index(n)] for n in labels if n not in shared})
    result = [*batch, *left, *right]
    if not summed:
        wide_a = _align_axes(a, labels_a, result, local_sizes)
        return mul(wide_a, _align_axes(b, labels_b, result, local_sizes)), result

    def size(names: list[str]) -> int:
        return math.prod(local_sizes[n] for n in names)

    left_matrices = reshape(
        _align_axes(a, labels_a, [*batch, *left, *summed], local_sizes), (size(batch), size(left), size(summed))
    )
    right_matrices = reshape(
        _align_axes(b, labels_b, [*batch, *summed, *right], local_sizes), (size(batch), size(summed), size(right))
    )
    product = matmul(left_matrices, right_matrices)
    return reshape(product, tuple(local_sizes[n] for n in result)), result


def _sum_unneeded(x: Tensor, labels: list[str], needed: set[str]) -> tuple[Tensor, list[str]]:
    """Sum x over the axes whose labels aren't in `needed`. Returns the sum and its labels."""
    from .reductions import sum

    axes = [i for i, n in enumerate(labels) if n not in needed]
    if not axes:
        return x, labels
    return sum(x, axes, dtype=x.dtype), [n for n in labels if n in needed]


def _result_labels(terms: Sequence[list[str]], dots: int) -> list[str]:
    """Return the labels of the result for an equation without "->".

    These are the labels of the `dots` axes of "...", then the letters that occur exactly once in all terms together, in
    alphabetical order.
    """
    everything = [n for term in terms for n in term]
    single = sorted(n for n in set(everything) if not n.endswith(".") and everything.count(n) == 1)
    return [*(f"{i}." for i in range(dots)), *single]


_LETTERS = string.ascii_uppercase + string.ascii_lowercase


def _equation_of(operands: Sequence[Any]) -> tuple[str, list[Any]]:
    """Return the equation and the tensors for operands in the form a, [0, 1], b, [1, 2], [0, 2]."""
    tensors, labels = list(operands[0 : len(operands) // 2 * 2 : 2]), list(operands[1::2])
    if len(operands) % 2:
        labels.append(operands[-1])
    terms = []
    for term in labels:
        is_list = isinstance(term, (list, tuple))
        if not is_list or not all(n is ... or (type(n) is int and 0 <= n < len(_LETTERS)) for n in term):
            raise ArgumentError(
                f"einsum(): expected an equation, or tensors that are each followed by a list of axes from 0 to "
                f"{len(_LETTERS) - 1} or ..., found {described(term)} as such a list"
            )
        terms.append("".join("..." if n is ... else _LETTERS[n] for n in term))
    result = f"->{terms.pop()}" if len(operands) % 2 else ""
    return ",".join(terms) + result, tensors


def einsum(equation: Any, *operands: Any) -> Tensor:
    """Evaluate an Einstein summation: `einsum("bij,bjk->bik", a, b)`, or `einsum(a, [0, 1], b, [1, 2], [0, 2])`.

    A letter (or number) repeated within a term selects the diagonal; `...` stands for axes that broadcast. Operands are
    contracted from left to right.
    """
    if not isinstance(equation, str):
        text, listed = _equation_of((equation, *operands))
        return einsum(text, *listed)
    tensors = tuple(operands[0]) if len(operands) == 1 and isinstance(operands[0], (list, tuple)) else operands
    terms, result_term = parse(equation)
    if len(terms) != len(tensors):
        raise ArgumentError(f"einsum({equation!r}) has {len(terms)} terms, found {len(tensors)} tensors")
    return _einsum(equation, terms, result_term, *tensors)


@computed_in_f32
def _einsum(equation: str, terms: Any, result_term: Any, *tensors: Any) -> Tensor:
    """Evaluate a parsed equation. `terms` and `result_term` are the results of `parse`."""
    # the largest number of axes that "..." stands for: the operand's rank minus the number of letters, which is the
    # length of the term without the item "..." itself
    dots = max([x.ndim - len(t) + 1 for x, t in zip(tensors, terms, strict=True) if "..." in t], default=0)
    # pairs (operand, labels of its axes); each operand has a label only once
    labeled = [_label_axes(x, t, dots, equation) for x, t in zip(tensors, terms, strict=True)]
    if result_term is None:
        result_labels = _result_labels([list(labels) for labels in _labels_with_repetitions(terms, labeled)], dots)
    else:
        result_labels = [
            n for label in result_term for n in ([f"{i}." for i in range(dots)] if label == "..." else [label])
        ]
    sizes: dict[str, int] = {}  # of each label, after broadcasting
    for x, labels in labeled:
        for name, extent in zip(labels, x.shape, strict=True):
            sizes[name] = broadcast_shapes((sizes.get(name, 1),), (extent,))[0]
    missing = [n for n in result_labels if n not in sizes]
    if missing or len(set(result_labels)) != len(result_labels):
        raise ArgumentError(
            f"einsum({equation!r}): the result names {missing or result_labels}, expected labels of operands, each once"
        )
    x, labels = labeled[0]
    for position, (y, labels_y) in enumerate(labeled[1:], start=1):
        kept = {n for _, later_labels in labeled[position + 1 :] for n in later_labels} | set(result_labels)
        x, labels = _contract(x, labels, y, labels_y, kept, sizes)
    x, labels = _sum_unneeded(x, labels, set(result_labels))
    return permute(x, [labels.index(n) for n in result_labels]) if result_labels else x


def _labels_with_repetitions(terms: Any, labeled: Any) -> list[list[str]]:
    """Return the labels of each term, with letters repeated as in the equation, for `_result_labels` to count them.

    `labeled` are the results of `_label_axes`, whose labels have each letter once.
    """
    return [
        [n for n in term if n != "..."] + [n for n in labels if n.endswith(".")]
        for term, (_, labels) in zip(terms, labeled, strict=True)
    ]
