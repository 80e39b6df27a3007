"""Transforms of examples on the host: callables that take a value and a random generator and return a new value.

They are passed to `Transformed` or `ImageFolder`. Images are (H, W, C) or (H, W), as stored in files, until `ToFloat`
converts them to (C, H, W). `Resize`, crops and flips handle both layouts: with `channels_first=True`, height and width
are the last two axes, otherwise the first two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ArgumentError
from ..tensor.argument_errors import explain_all as _explain_all

__all__ = [
    "CenterCrop",
    "Compose",
    "Each",
    "Normalize",
    "OneHot",
    "RandomCrop",
    "RandomFlip",
    "Resize",
    "ToFloat",
    "one_hot",
]

Generator = np.random.Generator
Array = npt.NDArray[Any]


def one_hot(labels: Any, classes: int, dtype: Any = np.float32) -> Array:
    """One-hot encode integer labels (...) as (..., classes)."""
    values = np.asarray(labels)
    if values.dtype.kind not in "iu":
        raise ArgumentError(f"labels are integers, found {values.dtype}")
    if values.size and not (values.min() >= 0 and values.max() < classes):
        raise ArgumentError(f"labels lie between 0 and {classes - 1}, found {values.min()} to {values.max()}")
    encoded = np.zeros((*values.shape, classes), dtype)
    np.put_along_axis(encoded, values[..., None].astype(np.int64), 1, -1)
    return encoded


class Compose:
    """Applies several transforms, one after the other, with the same generator."""

    def __init__(self, *steps: Callable[[Any, Generator], Any]) -> None:
        self.steps = steps

    def __call__(self, value: Any, generator: Generator) -> Any:
        for step in self.steps:
            value = step(value, generator)
        return value


@dataclass(frozen=True, slots=True)
class Each:
    """Wraps a function of the value alone as a transform; the generator is ignored."""

    function: Callable[[Any], Any]

    def __call__(self, value: Any, generator: Generator) -> Any:
        del generator
        return self.function(value)


@dataclass(frozen=True, slots=True)
class OneHot:
    """One-hot encodes an integer label as a vector of `classes` f32 values."""

    classes: int

    def __call__(self, value: Any, generator: Generator) -> Array:
        del generator
        return one_hot(value, self.classes)


@dataclass(frozen=True, slots=True)
class ToFloat:
    """Converts an image (H, W, C) or (H, W) to f32 (C, H, W); integers are divided by their type's maximum."""

    def __call__(self, value: Any, generator: Generator) -> Array:
        del generator
        image = np.asarray(value)
        if image.ndim not in (2, 3):
            raise ArgumentError(f"ToFloat takes an image (H, W, C) or (H, W), found shape {image.shape}")
        scale = 1.0 / np.iinfo(image.dtype).max if image.dtype.kind in "iu" else 1.0
        planes = image[None] if image.ndim == 2 else np.moveaxis(image, -1, 0)
        result: Array = np.ascontiguousarray(planes, np.float32) * np.float32(scale)
        return result


@dataclass(frozen=True, slots=True)
class Normalize:
    """Computes (x - mean) / deviation in f32.

    `mean` and `deviation` are scalars, or sequences with one number per channel of an image (C, H, W).
    """

    mean: Any
    deviation: Any

    def __post_init__(self) -> None:
        mean, deviation = (np.asarray(v, np.float32) for v in (self.mean, self.deviation))
        if mean.shape != deviation.shape or mean.ndim > 1 or not (deviation > 0).all():
            raise ArgumentError(
                "Normalize takes two numbers, or one of each per channel, and deviations above 0, found "
                f"{self.mean!r} and {self.deviation!r}"
            )

    def __call__(self, value: Any, generator: Generator) -> Array:
        del generator
        mean, deviation = (np.asarray(v, np.float32) for v in (self.mean, self.deviation))
        image = np.asarray(value, np.float32)
        if mean.ndim:
            if image.ndim != 3 or len(image) != len(mean):
                raise ArgumentError(
                    f"Normalize has {len(mean)} channels, found shape {image.shape}, expected ({len(mean)}, H, W): ToFloat() makes "
                    "that of (H, W, C)"
                )
            mean, deviation = mean[:, None, None], deviation[:, None, None]
        result: Array = (image - mean) / deviation
        return result


def _check_size(size: Any, name: str) -> None:
    """Raise ArgumentError if size isn't (H, W)."""
    if (
        not isinstance(size, (tuple, list))
        or len(size) != 2
        or not all(isinstance(n, (int, np.integer)) and n >= 1 for n in size)
    ):
        raise ArgumentError(f"{name} takes a size (H, W) of ints of at least 1, found {size!r}")


def _axes(image: Array, channels_first: bool) -> tuple[int, int]:
    """Return the axes of height and width."""
    return (image.ndim - 2, image.ndim - 1) if channels_first else (0, 1)


def _cut(image: Array, axes: tuple[int, int], top: int, left: int, size: tuple[int, int]) -> Array:
    """Return the part of `size` (H, W) that begins at row `top` and column `left`; `axes` as from `_axes`."""
    index = [slice(None)] * image.ndim
    index[axes[0]], index[axes[1]] = slice(top, top + size[0]), slice(left, left + size[1])
    return image[tuple(index)]


def _check_fits(image: Array, axes: tuple[int, int], size: tuple[int, int], name: str) -> None:
    """Raise ArgumentError if the image is smaller than the crop size (H, W)."""
    if image.shape[axes[0]] < size[0] or image.shape[axes[1]] < size[1]:
        raise ArgumentError(f"{name} to {size}: the image has shape {image.shape}: resize or pad it first")


@dataclass(frozen=True, slots=True)
class CenterCrop:
    """Crops the center of an image to size (H, W)."""

    size: tuple[int, int]
    channels_first: bool = False

    def __post_init__(self) -> None:
        _check_size(self.size, "CenterCrop")

    def __call__(self, value: Any, generator: Generator) -> Array:
        del generator
        image = np.asarray(value)
        axes = _axes(image, self.channels_first)
        _check_fits(image, axes, self.size, "CenterCrop")
        top, left = ((image.shape[axis] - extent) // 2 for axis, extent in zip(axes, self.size, strict=True))
        return _cut(image, axes, top, left, self.size)


@dataclass(frozen=True, slots=True)
class RandomCrop:
    """Crops a random part of size (H, W) from an image, after adding `padding` pixels of zeros on each side."""

    size: tuple[int, int]
    padding: int = 0
    channels_first: bool = False

    def __post_init__(self) -> None:
        _check_size(self.size, "RandomCrop")

    def __call__(self, value: Any, generator: Generator) -> Array:
        image = np.asarray(value)
        axes = _axes(image, self.channels_first)
        if self.padding:
            widths = [(self.padding, self.padding) if axis in axes else (0, 0) for axis in range(image.ndim)]
            image = np.pad(image, widths)
        _check_fits(image, axes, self.size, "RandomCrop")
        top, left = (
            int(generator.integers(image.shape[axis] - extent + 1))
            for axis, extent in zip(axes, self.size, strict=True)
        )
        return _cut(image, axes, top, left, self.size)


@dataclass(frozen=True, slots=True)
class RandomFlip:
    """Flips an image horizontally with probability `chance`."""

    chance: float = 0.5
    channels_first: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.chance, int | float | np.number) or not 0 <= self.chance <= 1:
            raise ArgumentError(f"RandomFlip: chance is a probability from 0 to 1, found {self.chance!r}")

    def __call__(self, value: Any, generator: Generator) -> Array:
        image = np.asarray(value)
        if generator.random() >= self.chance:
            return image
        return np.flip(image, _axes(image, self.channels_first)[1])


@dataclass(frozen=True, slots=True)
class Resize:
    """Resizes an image to (H, W) by "linear" or "nearest" interpolation; the dtype is preserved."""

    size: Sequence[int]
    mode: str = "linear"
    channels_first: bool = False

    def __post_init__(self) -> None:
        _check_size(self.size, "Resize")
        if self.mode not in ("linear", "nearest"):
            raise ArgumentError(f'Resize has mode "linear" or "nearest", found {self.mode!r}')

    def __call__(self, value: Any, generator: Generator) -> Array:
        del generator
        image = np.asarray(value)
        resized = image
        for axis, extent in zip(_axes(image, self.channels_first), self.size, strict=True):
            resized = _resized(resized, axis, extent, self.mode)
        is_integer = image.dtype.kind in "iu"
        result: Array = np.rint(resized).astype(image.dtype) if is_integer else resized.astype(image.dtype, copy=False)
        return result


def _resized(image: Array, axis: int, extent: int, mode: str) -> Array:
    """Resample one axis to `extent` pixels, with half-pixel centers: pixel i covers i..i + 1, its center is i + 0.5."""
    old = image.shape[axis]
    if old == extent:
        return image
    positions = (np.arange(extent) + 0.5) * (old / extent) - 0.5
    if mode == "nearest":
        nearest: Array = np.take(image, np.clip(np.rint(positions), 0, old - 1).astype(np.int64), axis)
        return nearest
    positions = np.clip(positions, 0, old - 1)
    low = np.floor(positions).astype(np.int64)
    high = np.minimum(low + 1, old - 1)
    shape = [-1 if i == axis else 1 for i in range(image.ndim)]
    weight = (positions - low).astype(np.float32).reshape(shape)
    low_values, high_values = (
        np.take(image, low, axis).astype(np.float32),
        np.take(image, high, axis).astype(np.float32),
    )
    result: Array = low_values + (high_values - low_values) * weight
    return result


_explain_all(globals(), __all__)
