"""One block of GPT-2 (small) as a module of vkjit or PyTorch, with the same weights in both."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["HEADS", "TOKENS", "WIDTH", "gpt2_block", "inputs"]

TOKENS, WIDTH, HEADS = 128, 768, 12


def inputs() -> Any:
    """Return the block's input as a NumPy array, one sequence of `TOKENS` tokens."""
    return np.random.default_rng(1).standard_normal((1, TOKENS, WIDTH), dtype=np.float32)


def gpt2_block(library: Any) -> Any:
    """Return the block with f32 weights on the library's default device; `library` is vkjit or torch."""
    nn, functional = library.nn, library.nn.functional

    class Attention(nn.Module):  # type: ignore[misc, name-defined]
        """Causal self-attention."""

        def __init__(self) -> None:
            super().__init__()
            self.c_attn = nn.Linear(WIDTH, 3 * WIDTH)
            self.c_proj = nn.Linear(WIDTH, WIDTH)

        def forward(self, x: Any) -> Any:
            batch, tokens, width = x.shape
            q, k, v = (
                part.view(batch, tokens, HEADS, width // HEADS).transpose(1, 2)
                for part in self.c_attn(x).split(width, dim=2)
            )
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.c_proj(y.transpose(1, 2).reshape(batch, tokens, width))

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        """Attention and a feed-forward network, each after a layer norm and added to its input."""

        def __init__(self) -> None:
            super().__init__()
            self.ln_1 = nn.LayerNorm(WIDTH)
            self.attn = Attention()
            self.ln_2 = nn.LayerNorm(WIDTH)
            self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU("tanh"), nn.Linear(4 * WIDTH, WIDTH))

        def forward(self, x: Any) -> Any:
            x = x + self.attn(self.ln_1(x))
            return x + self.mlp(self.ln_2(x))

    block = Block().eval()
    random = np.random.default_rng(2)
    state = {
        name: 0.02 * random.standard_normal(tuple(p.shape), dtype=np.float32) for name, p in block.state_dict().items()
    }
    state |= {name: state[name] + 1 for name in ("ln_1.weight", "ln_2.weight")}
    block.load_state_dict({name: library.tensor(value) for name, value in state.items()})
    return block
