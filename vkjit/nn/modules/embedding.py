"""Embedding tables, looked up index by index or reduced over bags of indices."""

from __future__ import annotations

from typing import Any, TypeVar

from vkjit import dtypes
from vkjit.errors import ArgumentError, ShapeError
from vkjit.tensor.autograd.mode import no_grad
from vkjit.tensor.ops import creation
from vkjit.tensor.tensor import Tensor

from .. import functional as F, init
from ..meta_device import is_meta
from ..parameter import Parameter
from .module import Module

__all__ = ["Embedding", "EmbeddingBag"]

M = TypeVar("M", bound="_Table")


class _Table(Module):
    """Base class of embedding layers: a table of vectors `weight`, and the index of its padding row, if any."""

    weight: Parameter
    padding_idx: int | None

    def _make(self, rows: int, columns: int, padding_idx: int | None, device: Any, dtype: Any) -> None:
        """Create and initialize a table (rows, columns) after checking padding_idx. Called by the constructors."""
        if padding_idx is not None and not -rows <= padding_idx < rows:
            raise ArgumentError(f"padding_idx {padding_idx} is no row of a table with {rows} rows")
        self.num_embeddings, self.embedding_dim = rows, columns
        self.padding_idx = None if padding_idx is None else padding_idx % rows
        self.weight = Parameter(creation.empty(rows, columns, dtype=dtype, device=device))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Reinitialize the table from a standard normal distribution; the padding row is set to zeros."""
        init.normal_(self.weight)
        if self.padding_idx is not None and not is_meta(self.weight):
            with no_grad():
                self.weight[self.padding_idx] = 0.0

    @classmethod
    def from_pretrained(
        cls: type[M], embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None, **options: Any
    ) -> M:
        """Create a layer from a given table (rows, columns), which is frozen unless freeze=False.

        `options` are passed to the constructor.
        """
        if embeddings.ndim != 2:
            raise ShapeError(f"a table of vectors has 2 axes, found shape {embeddings.shape}")
        rows, columns = embeddings.shape
        options = {"device": embeddings.device, "dtype": embeddings.dtype, **options}
        layer: M = cls(rows, columns, padding_idx=padding_idx, **options)  # type: ignore[call-arg]  # both classes take these
        layer.weight = Parameter(embeddings, requires_grad=not freeze)
        return layer

    def _options_text(self, defaults: dict[str, Any]) -> str:
        """Return the sizes and all options that differ from `defaults` (values by option name), for `extra_repr`."""
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        for name, default in {"padding_idx": None, **defaults}.items():
            value = getattr(self, name)
            if value != default:
                text += f", {name}={value!r}"
        return text


_DEFAULTS = {"max_norm": None, "norm_type": 2.0, "scale_grad_by_freq": False}
"""Defaults of the options that both layers have, which `extra_repr` leaves out."""


class Embedding(_Table):
    """Lookup of rows of a table by index.

    weight: (num_embeddings, embedding_dim), initialized from a standard normal distribution. Row padding_idx is
    initialized to zeros and gets no gradient. max_norm: rows that are looked up are rescaled in place to a norm (of
    order norm_type) of at most max_norm. scale_grad_by_freq: each row's gradient is divided by the number of
    occurrences of the row in the batch. Gradients are dense; sparse=True raises ArgumentError.
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
        self.max_norm, self.norm_type = max_norm, norm_type
        self.scale_grad_by_freq, self.sparse = scale_grad_by_freq, False
        self._make(num_embeddings, embedding_dim, padding_idx, device, dtype)

    def forward(self, indices: Tensor) -> Tensor:
        """Integer indices of any shape (...) -> (..., embedding_dim)."""
        return F.embedding(
            indices, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq
        )  # fmt: skip

    def extra_repr(self) -> str:
        """Return the options shown by `repr`."""
        return self._options_text(_DEFAULTS)


class EmbeddingBag(_Table):
    """Sum, mean or maximum of the table rows selected by each bag of indices.

    weight: (num_embeddings, embedding_dim), initialized from a standard normal distribution. mode: "sum", "mean" or
    "max". Indices equal to padding_idx are ignored. include_last_offset: the offsets passed to a call have an extra
    element, the end of the last bag. The remaining options are those of `Embedding`.
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
        self.max_norm, self.norm_type = max_norm, norm_type
        self.scale_grad_by_freq, self.sparse = scale_grad_by_freq, False
        self.mode, self.include_last_offset = mode, include_last_offset
        self._make(num_embeddings, embedding_dim, padding_idx, device, dtype)

    def forward(
        self, indices: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None
    ) -> Tensor:
        """Bags of indices (B, N), or concatenated bags (M,) that start at offsets (B,) -> (B, embedding_dim).

        per_sample_weights: factors of the rows, in the shape of the indices, for mode "sum" only.
        """
        return F.embedding_bag(
            indices, self.weight, offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode, False,
            per_sample_weights, self.include_last_offset, self.padding_idx,
        )  # fmt: skip

    def extra_repr(self) -> str:
        """Return the options shown by `repr`."""
        # mode=None differs from every mode, so the mode is always shown
        return self._options_text({**_DEFAULTS, "mode": None, "include_last_offset": False})


def _refuse_sparse(sparse: bool) -> None:
    """Raise ArgumentError if a constructor's option `sparse` is set."""
    if sparse:
        raise ArgumentError("there are no sparse gradients: leave out sparse=True, gradients are dense")
