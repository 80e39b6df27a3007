"""Tables of vectors looked up by number, one by one or in bags."""

from __future__ import annotations

from typing import Any, TypeVar

from .. import dtypes
from ..autograd.mode import no_grad
from ..errors import ArgumentError, ShapeError
from ..tensor import creation
from ..tensor.tensor import Tensor
from . import functional as F
from . import init
from .blueprint import is_meta
from .module import Module
from .parameter import Parameter

__all__ = ["Embedding", "EmbeddingBag"]

M = TypeVar("M", bound="_Table")


class _Table(Module):
    """A table of vectors, one of which may stand for nothing."""

    weight: Parameter
    padding_idx: int | None

    def _make(self, rows: int, columns: int, padding_idx: int | None, device: Any, dtype: Any) -> None:
        if padding_idx is not None and not -rows <= padding_idx < rows:
            raise ArgumentError(f"padding_idx {padding_idx} is no row of a table with {rows} rows")
        self.num_embeddings, self.embedding_dim = rows, columns
        self.padding_idx = None if padding_idx is None else padding_idx % rows
        self.weight = Parameter(creation.empty(rows, columns, dtype=dtype, device=device))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the table anew."""
        init.normal_(self.weight)
        if self.padding_idx is not None and not is_meta(self.weight):
            with no_grad():
                self.weight[self.padding_idx] = 0.0

    @classmethod
    def from_pretrained(
        cls: type[M], embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None, **options: Any
    ) -> M:
        """A layer with a given table (rows, columns), which isn't learned unless freeze=False; options as the class takes them."""
        if embeddings.ndim != 2:
            raise ShapeError(f"a table of vectors has 2 axes, found shape {embeddings.shape}")
        rows, columns = embeddings.shape
        options = {"device": embeddings.device, "dtype": embeddings.dtype, **options}
        made: M = cls(rows, columns, padding_idx=padding_idx, **options)  # type: ignore[call-arg]  # both classes take these
        made.weight = Parameter(embeddings, requires_grad=not freeze)
        return made

    def _told(self, defaults: dict[str, Any]) -> str:
        """The sizes, and what isn't as it is by default."""
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        for name, default in {"padding_idx": None, **defaults}.items():
            value = getattr(self, name)
            if value != default:
                text += f", {name}={value!r}"
        return text


_DEFAULTS = {"max_norm": None, "norm_type": 2.0, "scale_grad_by_freq": False}


class Embedding(_Table):
    """The rows of a table that indices name.

    weight: (num_embeddings, embedding_dim), normal of mean 0 and deviation 1 at first. The row padding_idx is zero at
    first and gets no gradient. max_norm: rows that are looked up are scaled in place to a norm (of order norm_type) of at most
    that. scale_grad_by_freq: gradients are divided by how often their row occurs in the batch. Gradients are dense; sparse=True
    is refused.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        *,
        device: Any = None,
        dtype: Any = dtypes.f32,
    ) -> None:
        super().__init__()
        _refuse_sparse(sparse)
        self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse = (
            max_norm,
            norm_type,
            scale_grad_by_freq,
            False,
        )
        self._make(num_embeddings, embedding_dim, padding_idx, device, dtype)

    def forward(self, indices: Tensor) -> Tensor:
        """(...) of integers -> (..., embedding_dim)."""
        return F.embedding(
            indices, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq
        )  # fmt: skip

    def extra_repr(self) -> str:
        """The sizes."""
        return self._told(_DEFAULTS)


class EmbeddingBag(_Table):
    """The sum, mean or largest elements of the rows of a table that the indices of a bag name; nothing is kept per index.

    weight: (num_embeddings, embedding_dim), normal of mean 0 and deviation 1 at first. mode: "sum", "mean" or "max". Indices equal
    to padding_idx count nothing. include_last_offset: offsets have one element more, where the last bag ends. The other options
    are those of `Embedding`.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        *,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: Any = dtypes.f32,
    ) -> None:
        super().__init__()
        _refuse_sparse(sparse)
        if mode not in ("sum", "mean", "max"):
            raise ArgumentError(f'mode is "sum", "mean" or "max", found {mode!r}')
        self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse = (
            max_norm,
            norm_type,
            scale_grad_by_freq,
            False,
        )
        self.mode, self.include_last_offset = mode, include_last_offset
        self._make(num_embeddings, embedding_dim, padding_idx, device, dtype)

    def forward(
        self, indices: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None
    ) -> Tensor:
        """Bags (B, N), or (M,) and offsets (B,), where each bag begins -> (B, embedding_dim). per_sample_weights: factors of the
        rows, in indices' shape, for mode "sum"."""
        return F.embedding_bag(
            indices, self.weight, offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode, False,
            per_sample_weights, self.include_last_offset, self.padding_idx,
        )  # fmt: skip

    def extra_repr(self) -> str:
        """The sizes, the mode."""
        return self._told({**_DEFAULTS, "mode": None, "include_last_offset": False})


def _refuse_sparse(sparse: bool) -> None:
    if sparse:
        raise ArgumentError("there are no sparse gradients: leave out sparse=True, gradients are dense")
