"""Images from files and folders, as NumPy arrays (H, W) or (H, W, 3) of u8, u16 or f32.

NumPy files (.npy) and binary portable maps (.pgm, .ppm) are read by this module itself, other formats by Pillow, if it
is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ArgumentError
from .dataset import Dataset, checked_index

__all__ = ["SUFFIXES", "ImageFolder", "read_image"]

Array = npt.NDArray[Any]
SUFFIXES = (".npy", ".pgm", ".ppm", ".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp", ".gif")
"""File suffixes recognized as images."""
_TYPES = {"u8": np.uint8, "u16": np.uint16, "f32": np.float32}
_GREY = np.array([0.299, 0.587, 0.114], np.float32)
"""Weights of red, green and blue in gray (ITU-R BT.601)."""


def read_image(path: Any, mode: str = "RGB", dtype: str = "u8") -> Array:
    """Read an image as (H, W, 3) for mode "RGB" or (H, W) for mode "grey".

    `dtype` is "u8", "u16" or "f32"; values are rescaled to its range, which is 0 to 1 for f32. An alpha channel is
    dropped. Raises ArgumentError for files that can't be read as an image.
    """
    if mode not in ("RGB", "grey") or dtype not in _TYPES:
        raise ArgumentError(f'mode is "RGB" or "grey", dtype "u8", "u16" or "f32", found {mode!r} and {dtype!r}')
    file = Path(path)
    try:
        if file.exists() and not file.is_file():  # reading from a pipe could block forever
            raise OSError("it is no ordinary file")
        values = _read(file)
    except Exception as error:  # decoders raise various types for broken files
        raise ArgumentError(f"{file} can't be read as an image: {error}") from error
    if values.ndim not in (2, 3) or (values.ndim == 3 and values.shape[2] not in (1, 3, 4)):
        raise ArgumentError(
            f"{file} holds an array of shape {values.shape}, expected (H, W), (H, W, 1), (H, W, 3) or (H, W, 4)"
        )
    return _as_type(_as_mode(values, mode), dtype)


def _read(file: Path) -> Array:
    """Read an image with the channels and dtype of the file. Raises various exceptions for broken files."""
    suffix = file.suffix.lower()
    if suffix == ".npy":
        array: Array = np.load(file, allow_pickle=False)
        if array.dtype.kind == "c" or (array.dtype.kind in "iu" and array.dtype.itemsize > 2):
            raise ValueError(
                f"it holds {array.dtype}, which doesn't say what white is: save it as uint8, uint16 or floats from 0 to 1"
            )
        return array
    if suffix in (".pgm", ".ppm"):
        return _read_map(file.read_bytes())
    try:
        from PIL import Image
    except ImportError:
        raise ValueError(
            f"{suffix or 'this'} files need Pillow, which isn't installed: pip install pillow; .npy, .pgm and .ppm don't"
        ) from None
    with Image.open(file) as image:
        # Pillow's modes with a palette ("P", "PA"), other color spaces, bits ("1"), or gray with alpha ("LA")
        if image.mode in ("P", "CMYK", "YCbCr", "LAB", "HSV", "1", "LA", "PA"):
            image = image.convert("L" if image.mode in ("1", "LA") else "RGB")
        return np.asarray(image)


def _read_map(data: bytes) -> Array:
    """Parse a binary portable map: P5 (gray) or P6 (color).

    The header holds the kind, width, height and maximum (the value of white), separated by whitespace and comments.
    Values are rescaled if the maximum isn't 255 or 65535.
    """
    fields: list[bytes] = []
    position = 0
    while len(fields) < 4:
        while data[position : position + 1].isspace():
            position += 1
        if data[position : position + 1] == b"#":
            position = data.index(b"\n", position) + 1
            continue
        end = position
        while end < len(data) and not data[end : end + 1].isspace():
            end += 1
        if end == position:
            raise ValueError("the header of the portable map is cut off")
        fields.append(data[position:end])
        position = end
    if not all(f.isdigit() for f in fields[1:]):
        raise ValueError(f"its width, height and maximum are {b' '.join(fields[1:])[:60].decode(errors='replace')}")
    magic, width, height, maximum = fields[0], *(int(f) for f in fields[1:])
    if magic not in (b"P5", b"P6") or not 0 < maximum < 65536:
        raise ValueError(f"expected a binary portable map (P5 or P6), found {magic.decode(errors='replace')}")
    if width < 1 or height < 1:
        raise ValueError(f"its header asks for {width} x {height} pixels")
    planes = 1 if magic == b"P5" else 3
    element = np.dtype(np.uint8) if maximum < 256 else np.dtype(">u2")
    # position + 1: exactly one whitespace byte separates the header from the pixels
    values = np.frombuffer(data, element, width * height * planes, position + 1).reshape(height, width, planes)
    full = 255 if maximum < 256 else 65535
    native = values.astype(np.uint8 if maximum < 256 else np.uint16)
    if maximum != full:
        native = np.rint(values.astype(np.float64) * (full / maximum)).astype(native.dtype)
    return native[:, :, 0] if planes == 1 else native


def _as_mode(values: Array, mode: str) -> Array:
    """Convert gray or color values, with or without alpha, to (H, W, 3) for "RGB" or (H, W) for "grey"."""
    flat = values[:, :, 0] if values.ndim == 3 and values.shape[2] == 1 else values
    if mode == "RGB":
        return np.repeat(flat[:, :, None], 3, 2) if flat.ndim == 2 else flat[:, :, :3]
    if flat.ndim == 2:
        return flat
    grey = flat[:, :, :3].astype(np.float32) @ _GREY
    return np.rint(grey).astype(flat.dtype) if flat.dtype.kind in "iu" else grey.astype(flat.dtype)


def _as_type(values: Array, dtype: str) -> Array:
    """Convert to a dtype, rescaled so that white stays white: 255 for u8, 65535 for u16, 1 for floats."""
    target = np.dtype(_TYPES[dtype])
    if values.dtype == target:
        return np.ascontiguousarray(values)
    if values.dtype == np.bool_:
        values = values.astype(np.uint8) * np.uint8(255)
    if values.dtype.kind == "i":
        values = np.clip(values, 0, 65535).astype(np.uint16)  # Pillow returns 16-bit gray images as signed ints
    maximum = float(np.iinfo(values.dtype).max) if values.dtype.kind == "u" else 1.0
    wide = values.astype(np.float64) / maximum
    if target.kind == "f":
        return wide.astype(target)
    limit = 255.0 if target.itemsize == 1 else 65535.0
    result: Array = np.rint(np.clip(wide, 0, 1) * limit).astype(target)
    return result


class ImageFolder(Dataset):
    """A dataset of image files in one subfolder per class.

    Example i is (image, label), where the label is the index of the subfolder in alphabetical order. Images are read
    by `read_image` with `mode` and `dtype`, then passed to `transform(image, generator)`. Files whose suffix isn't in
    `suffixes` are ignored.
    """

    def __init__(
        self,
        root: Any,
        mode: str = "RGB",
        dtype: str = "u8",
        transform: Callable[[Any, np.random.Generator], Any] | None = None,
        suffixes: Sequence[str] = SUFFIXES,
    ) -> None:
        folder = Path(root)
        if not folder.is_dir():
            raise ArgumentError(f"{folder} is no folder")
        if mode not in ("RGB", "grey") or dtype not in _TYPES:
            raise ArgumentError(f'mode is "RGB" or "grey", dtype "u8", "u16" or "f32", found {mode!r} and {dtype!r}')
        self.root, self.mode, self.dtype, self.transform = folder, mode, dtype, transform
        self.classes = tuple(sorted(p.name for p in folder.iterdir() if p.is_dir()))
        endings = tuple(s.lower() for s in suffixes)
        self.files: list[tuple[Path, int]] = [
            (file, label)
            for label, name in enumerate(self.classes)
            for file in sorted((folder / name).rglob("*"))
            if file.suffix.lower() in endings and file.is_file()
        ]
        if not self.files:
            raise ArgumentError(
                f"{folder} holds no images: expected a folder per class with files that end in {', '.join(endings)}"
            )

    def __len__(self) -> int:
        return len(self.files)

    def item(self, index: int, generator: np.random.Generator) -> Any:
        file, label = self.files[checked_index(index, len(self), "ImageFolder")]
        image = read_image(file, self.mode, self.dtype)
        return (image if self.transform is None else self.transform(image, generator)), np.int64(label)
