"""Memory layouts for the tensors of a sample: strides, gaps, offsets, shared memory.

A `Setting` consists of memories (one-dimensional PyTorch tensors) and arguments in which a `Place` stands for each
tensor. It provides arguments for PyTorch (copies, so that nothing is shared) and for vkjit (views of the memories),
with any number of sets of values.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from tests.parity.ops.opinfo_bridge import DTYPES, Unsupported, to_vkjit, upload
from vkjit.tensor.ops.views import strided

__all__ = ["Place", "Setting", "mapped", "places", "positions", "make_setting", "with_values"]

SPECIAL = (math.nan, math.inf, -math.inf, -0.0, 0.0, 1e4, 1e-40)
LAYOUTS = ("plain", "plain", "offset", "transposed", "gaps", "flipped", "gaps flipped transposed", "expanded", "shared")


@dataclass(frozen=True, slots=True)
class Place:
    """A tensor: the number of its memory, and its shape, strides and offset in elements."""

    memory: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    requires_grad: bool = False
    """True if its gradient is compared."""

    @property
    def count(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)


def positions(place: Place) -> torch.Tensor:
    """Return the offset of each element in the memory."""
    found = torch.full(place.shape, place.offset, dtype=torch.int64)
    for axis, (extent, stride) in enumerate(zip(place.shape, place.strides, strict=True)):
        steps = torch.arange(extent) * stride
        found = found + steps.reshape(-1, *[1] * (len(place.shape) - axis - 1))
    return found


@dataclass
class Setting:
    """Memories, and arguments that contain places in them."""

    memories: list[torch.Tensor]
    arguments: Any
    words: str = ""

    def read(self, place: Place) -> torch.Tensor:
        """Return a copy of a tensor's elements."""
        return self.memories[place.memory][positions(place)]

    def for_torch(self, *, gradients: bool = False) -> tuple[Any, dict[Place, torch.Tensor]]:
        """Return arguments for PyTorch, and the tensors by place."""
        known: dict[Place, torch.Tensor] = {}

        def one(place: Place) -> torch.Tensor:
            if place not in known:
                known[place] = self.read(place).requires_grad_(gradients and place.requires_grad)
            return known[place]

        return mapped(self.arguments, one), known

    def for_vkjit(self, device: Any, *, gradients: bool = False) -> tuple[Any, list[Any], dict[Place, Any]]:
        """Return arguments for vkjit, the memories as tensors, and the tensors by place."""
        memories = [upload(m, DTYPES[m.dtype], device) for m in self.memories]
        known: dict[Place, Any] = {}

        def one(place: Place) -> Any:
            if place not in known:
                known[place] = view_of(memories[place.memory], place, gradients)
            return known[place]

        return mapped(self.arguments, one, lambda value: to_vkjit(value, device, {})), memories, known


def view_of(memory: Any, place: Place, gradients: bool = False) -> Any:
    """Return the view of a memory that a place describes."""
    whole = place.offset == 0 and place.shape == tuple(memory.shape) and place.strides == (1,)
    view = memory if whole else strided(memory, place.shape, place.strides, place.offset).detach()
    return view.detach().requires_grad_() if gradients and place.requires_grad else view


def mapped(value: Any, one: Callable[[Place], Any], other: Callable[[Any], Any] = lambda value: value) -> Any:
    """Return the value with `one` applied to every place in it, and `other` to every other leaf."""
    if isinstance(value, Place):
        return one(value)
    if isinstance(value, torch.Size):
        return other(value)
    if isinstance(value, (list, tuple)):
        items = [mapped(v, one, other) for v in value]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, dict):
        return {k: mapped(v, one, other) for k, v in value.items()}
    return other(value)


def places(value: Any) -> list[Place]:
    """Return the distinct places in a value, in order."""
    found: dict[Place, None] = {}
    mapped(value, lambda place: found.setdefault(place))
    return list(found)


# -- creating settings


@dataclass
class _Maker:
    rng: random.Random
    layouts: tuple[str, ...]
    cut: dict[int, int]
    """Extents to replace in every tensor."""
    convert: bool
    """True if tensor types are drawn at random."""
    special: bool
    memories: list[torch.Tensor] = field(default_factory=list)
    known: dict[int, Place] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)

    def walk(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if id(value) not in self.known:
                self.known[id(value)] = self.place(value)
            return self.known[id(value)]
        if isinstance(value, torch.Size):
            return value
        if isinstance(value, (list, tuple)):
            items = [self.walk(v) for v in value]
            return items if isinstance(value, list) else tuple(items)
        if isinstance(value, dict):
            return {k: self.walk(v) for k, v in value.items()}
        return value

    def place(self, tensor: torch.Tensor) -> Place:
        """Create a place for a tensor."""
        if tensor.dtype not in DTYPES or tensor.layout is not torch.strided:
            raise Unsupported(f"a tensor of {tensor.dtype}, {tensor.layout}")
        values = tensor.detach().resolve_neg().clone()
        if self.cut:
            values = values[tuple(slice(0, self.cut.get(e, e)) for e in values.shape)]
        if self.convert and self.rng.random() < 0.5:
            values = values.to(
                self.rng.choice([torch.float16, torch.float32, torch.bfloat16, torch.float64, torch.int32])
            )
        if self.special and values.is_floating_point() and values.numel():
            values = with_special(values, self.rng)
        layout = self.rng.choice(self.layouts)
        self.words.append(f"{str(values.dtype)[6:]}{list(values.shape)} {layout}")
        made = self.shared(values) if layout == "shared" else None
        made = made or self.alone(values, layout)
        return dataclasses.replace(made, requires_grad=tensor.requires_grad and values.is_floating_point())

    def shared(self, values: torch.Tensor) -> Place | None:
        """Return a place that overlaps an existing memory; None if no memory fits."""
        fitting = [
            n
            for n, m in enumerate(self.memories)
            if m.dtype is values.dtype and values.is_floating_point() and m.numel() >= values.numel() > 0
        ]
        if not fitting:
            return None
        number = self.rng.choice(fitting)
        if not self.special:  # gaps contain poison, which would now be values
            self.memories[number] = self.memories[number].nan_to_num(0.75)
        same = [p for p in self.known.values() if p.memory == number and p.shape == tuple(values.shape)]
        if same and self.rng.random() < 0.4:
            return self.rng.choice(same)
        start = self.rng.randint(0, self.memories[number].numel() - values.numel())
        return Place(number, tuple(values.shape), _dense(values.shape, range(values.ndim)), start)

    def alone(self, values: torch.Tensor, layout: str) -> Place:
        """Return a place in a new memory."""
        if layout == "expanded" and values.numel():
            axes = [a for a in range(values.ndim) if self.rng.random() < 0.6]
            for axis in axes:
                values = values.narrow(axis, 0, 1).expand_as(values)
            inner = values[tuple(slice(0, 1) if a in axes else slice(None) for a in range(values.ndim))]
            dense = _dense(inner.shape, range(inner.ndim))
            self.memories.append(inner.reshape(-1).clone())
            shape = tuple(values.shape)
            return Place(len(self.memories) - 1, shape, tuple(0 if a in axes else s for a, s in enumerate(dense)), 0)
        order = list(range(values.ndim))
        if "transposed" in layout:
            self.rng.shuffle(order)
        step = 2 if "gaps" in layout else 1
        strides = [step * s for s in _dense([step * e + step - 1 for e in values.shape], order)]
        offset = self.rng.randint(1, 9) if "offset" in layout or "gaps" in layout else 0
        if "flipped" in layout:
            for axis in range(values.ndim):
                if self.rng.random() < 0.6 and values.shape[axis]:
                    offset += strides[axis] * (values.shape[axis] - 1)
                    strides[axis] = -strides[axis]
        place = Place(len(self.memories), tuple(values.shape), tuple(strides), offset)
        where = positions(place)
        size = int(where.max()) + 1 if where.numel() else offset
        size += 0 if layout == "plain" else self.rng.randint(0, 5)
        memory = torch.full((size,), _poison(values.dtype), dtype=values.dtype)
        memory[where] = values
        self.memories.append(memory)
        return place


def _poison(dtype: torch.dtype) -> Any:
    return math.nan if dtype.is_floating_point else True if dtype is torch.bool else 113


def _dense(shape: Any, order: Any) -> tuple[int, ...]:
    """Return strides without gaps for an order of axes in memory (the last one is innermost)."""
    strides, stride = [0] * len(shape), 1
    for axis in reversed(list(order)):
        strides[axis] = stride
        stride *= max(shape[axis], 1)
    return tuple(strides)


def with_special(values: torch.Tensor, rng: random.Random) -> torch.Tensor:
    """Replace some elements by NaN, infinities, zeros, and large and subnormal numbers."""
    flat = values.reshape(-1).clone()
    for position in range(flat.numel()):
        if rng.random() < 0.4:
            flat[position] = rng.choice(SPECIAL)
    return flat.reshape(values.shape)


def make_setting(
    sample: Any, rng: random.Random, *, layouts: tuple[str, ...] = LAYOUTS, convert: bool = False, special: bool = False,
    cut: dict[int, int] | None = None,
) -> Setting:  # fmt: skip
    """Create a setting from a PyTorch sample. Raises Unsupported for tensor types that vkjit lacks."""
    maker = _Maker(rng, layouts, cut or {}, convert, special)
    arguments = maker.walk(((sample.input, *sample.args), sample.kwargs))
    return Setting(maker.memories, arguments, ", ".join(maker.words))


def with_values(setting: Setting, rng: random.Random) -> Setting:
    """Return the setting with other values: floats are permuted, others possibly reversed."""
    memories = []
    for number, memory in enumerate(setting.memories):
        offsets = sorted(
            set(
                itertools.chain(
                    *(positions(p).reshape(-1).tolist() for p in places(setting.arguments) if p.memory == number)
                )
            )
        )
        where = torch.tensor(offsets, dtype=torch.int64)
        order = list(range(len(offsets)))
        if memory.is_floating_point():
            rng.shuffle(order)
        elif rng.random() < 0.5:
            order.reverse()
        fresh = memory.clone()
        fresh[where] = memory[where[torch.tensor(order, dtype=torch.int64)]]
        memories.append(fresh)
    return Setting(memories, setting.arguments, setting.words)
