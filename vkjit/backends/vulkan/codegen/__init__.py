"""IR to SPIR-V.

`emit(module, caps)` makes the artifact of a lowered module, `interpreter_artifact(module, caps)` that of the
interpreter's device, `block_layout(module, caps)` says how arguments are passed.
"""

from __future__ import annotations

from vkjit.backends.codegen.argument_layout import block_layout

from .lower import emit, interpreter_artifact

__all__ = ["block_layout", "emit", "interpreter_artifact"]
