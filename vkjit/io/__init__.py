"""Save and load tensors (`save`, `load`), models (`save_model`, `load_model`) and training states (`save_checkpoint`,
`load_checkpoint`) as safetensors files.

`format` reads and writes the file format, `tensors` adds the transfer to and from devices, and `models` and
`checkpoint` build on both.
"""

from .checkpoint import load_checkpoint, save_checkpoint
from .models import load_model, save_model
from .tensors import load, metadata, save

__all__ = ["load", "load_checkpoint", "load_model", "metadata", "save", "save_checkpoint", "save_model"]
