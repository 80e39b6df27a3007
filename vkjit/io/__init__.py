"""Save and load safetensors files.

Tensors (`save`, `load`), models (`save_model`, `load_model`), and complete training states (`save_checkpoint`,
`load_checkpoint`).
"""

from .checkpoint import load_checkpoint, save_checkpoint
from .models import load_model, save_model
from .tensors import load, metadata, save

__all__ = ["load", "load_checkpoint", "load_model", "metadata", "save", "save_checkpoint", "save_model"]
