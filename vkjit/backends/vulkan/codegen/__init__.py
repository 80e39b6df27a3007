"""Code generation from IR to SPIR-V.

`emit(module, caps)` returns the artifact of a lowered module, `block_layout(module, caps)` the layout of the argument
block.
"""

from __future__ import annotations

from vkjit.backends.codegen.argument_layout import block_layout

from .lower import emit

__all__ = ["block_layout", "emit"]
