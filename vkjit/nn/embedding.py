"""Tables of vectors looked up by number."""

from __future__ import annotations

from typing import Any

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

__all__ = ["Embedding"]


class Embedding(Module):
    """The rows of a table that indices name.

    weight: (num_embeddings, embedding_dim), normal of mean 0 and deviation 1 at first. The row padding_idx is zero at
    first and gets no gradient.
    """

    weight: Parameter

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: Any = dtypes.f32,
    ) -> None:
        super().__init__()
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise ArgumentError(f"padding_idx {padding_idx} is no row of a table with {num_embeddings} rows")
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = None if padding_idx is None else padding_idx % num_embeddings
        self.weight = Parameter(creation.empty(num_embeddings, embedding_dim, dtype=dtype, device=device))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the table anew."""
        init.normal_(self.weight)
        if self.padding_idx is not None and not is_meta(self.weight):
            with no_grad():
                self.weight[self.padding_idx] = 0.0

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None) -> Embedding:
        """A layer with a given table (rows, columns), which isn't learned unless freeze=False."""
        if embeddings.ndim != 2:
            raise ShapeError(f"a table of vectors has 2 axes, found shape {embeddings.shape}")
        rows, columns = embeddings.shape
        made = cls(rows, columns, padding_idx=padding_idx, device=embeddings.device, dtype=embeddings.dtype)
        made.weight = Parameter(embeddings, requires_grad=not freeze)
        return made

    def forward(self, indices: Tensor) -> Tensor:
        """(...) of integers -> (..., embedding_dim)."""
        return F.embedding(indices, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        """The sizes."""
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        return text if self.padding_idx is None else f"{text}, padding_idx={self.padding_idx}"
