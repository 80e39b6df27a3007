"""Files: tensors (`save`, `load`) and whole states of a training (`save_checkpoint`, `load_checkpoint`), as
safetensors.
"""

from .checkpoint import load_checkpoint, save_checkpoint
from .tensors import load, metadata, save

__all__ = ["load", "load_checkpoint", "metadata", "save", "save_checkpoint"]
