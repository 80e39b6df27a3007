"""The programs of the fuzzer, their arguments, and their text format.

A `Program` is an IR module in high form (as the frontend emits it, see `vkjit.ir.verify`), a grid, and a `Layout` for
each array parameter. Its arguments (`Memory`) are generated from its seed and layouts, so the text of a program is
sufficient to rerun it. The text begins with comments; one of them holds all parts that aren't IR, as JSON. The IR
follows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.ir.core import Module
from vkjit.ir.parser import parse_module
from vkjit.ir.printer import print_module
from vkjit.ir.semantics import to_bf16
from vkjit.ir.types import Array, Scalar, Vector

__all__ = ["Layout", "Memory", "Program", "parse_program", "program_text"]

Triple = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Layout:
    """The memory layout of an array.

    `strides` are signed and in elements. The first element is at offset `first` in a buffer of `total` elements. `like`
    is the index of the parameter whose buffer this array shares; -1 if the array has its own buffer. `fill` selects the
    initial contents of the buffer: "data" (random values, see `numbers`), "zeros", "ones" (all bits are 1), or "small"
    (random integers from -4 to 4; from 0 to 4 for unsigned types).
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    first: int
    total: int
    like: int = -1
    fill: str = "data"


@dataclass(frozen=True, slots=True)
class Program:
    """A kernel with everything needed to run it.

    `groups` is the number of workgroups per dimension. `layouts` has one entry per parameter, None for scalars.
    `seed` generates the arguments. `any_workgroup_size` is True if other workgroup sizes give the same results,
    `any_subgroup_size` if other subgroup sizes do.

    `tolerances` describes the arrays whose columns hold results of inexact operations. It maps the parameter index of
    such an array to a pair. The first item has the error bound of each column in ULP. The second is the index of the
    parameter that holds a scale for each result. The bound is relative to the scale or to the result, whichever is
    larger (see `compare`).
    """

    module: Module
    groups: Triple
    layouts: tuple[Layout | None, ...]
    seed: int
    tolerances: dict[int, tuple[tuple[float, ...], int]] = field(default_factory=dict)
    any_workgroup_size: bool = False
    any_subgroup_size: bool = True

    @property
    def local(self) -> Triple:
        """The workgroup size."""
        x, y, z = self.module.kernel.attrs["local_size"]
        return x, y, z

    def with_module(self, module: Module) -> Program:
        """Return the program with the same memory and grid and another module."""
        return replace(self, module=module)


@dataclass(slots=True)
class Memory:
    """The arguments of one run, by parameter index: `buffers` of arrays and values of `scalars`.

    Buffers are flat. Arrays that share memory have the same buffer object.
    """

    buffers: dict[int, npt.NDArray[Any]]
    scalars: dict[int, Any]

    @staticmethod
    def of(program: Program) -> Memory:
        """Generate the arguments of a program. Calls for the same program return new buffers with equal values."""
        memory = Memory({}, {})
        random = np.random.default_rng(program.seed & 0x7FFFFFFF)  # NumPy takes no negative seed
        for number, (param, layout) in enumerate(zip(program.module.kernel.params, program.layouts, strict=True)):
            if layout is None:
                assert isinstance(param.type, Scalar)
                memory.scalars[number] = scalar_of(random, param.type.dtype)
            elif layout.like >= 0:
                memory.buffers[number] = memory.buffers[layout.like]
            else:
                assert isinstance(param.type, Array)
                memory.buffers[number] = contents(random, param.type.element, layout)
        return memory

    def copy(self) -> Memory:
        """Return a copy that preserves the sharing of buffers."""
        copied: dict[int, npt.NDArray[Any]] = {}
        copies = {number: copied.setdefault(id(b), b.copy()) for number, b in self.buffers.items()}
        return Memory(copies, dict(self.scalars))

    def arguments(self, program: Program) -> list[Any]:
        """Return the argument list for the interpreter: strided views of the buffers, and scalars."""
        values: list[Any] = []
        for number, (param, layout) in enumerate(zip(program.module.kernel.params, program.layouts, strict=True)):
            if layout is None:
                values.append(self.scalars[number])
                continue
            buffer = self.buffers[number]
            # the view of an array of vectors has a last axis for the components; `size` is 0 for scalar elements
            size = param.type.element.size if isinstance(param.type.element, Vector) else 0  # type: ignore[attr-defined]
            shape = (*layout.shape, size) if size else layout.shape
            component_bytes = buffer.itemsize
            element_bytes = max(size, 1) * component_bytes
            strides = tuple(s * element_bytes for s in layout.strides) + ((component_bytes,) if size else ())
            values.append(np.ndarray(shape, buffer.dtype, buffer, layout.first * element_bytes, strides))
        return values


# -- contents

_FLOATS = np.array([0.0, -0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 3.25, -7.0, 1.5, -2.5, 100.0, 0.25, -0.75, 6.0, 12.0, -3.0])
_TIES = np.array(
    [1 + 2.0**-11, 1 + 2.0**-8, 1 + 2.0**-11 + 2.0**-30, -3 - 2.0**-10 + 2.0**-40, 1 + 2.0**-24 + 2.0**-50]
)
"""Values halfway between two numbers of a narrower type, or so close to halfway that double rounding goes wrong."""
_RARE = np.array([np.inf, -np.inf, np.nan, 65504.0, 1e5, -1e5])
"""Values that are drawn rarely, so that most results stay finite; 65504 is the largest f16."""
_INTS = np.array([0, 1, -1, 2, 3, 5, 7, 8, 100, 127, -128, 128, 255, -3, 31, 32, 1000, -1000])


def contents(random: np.random.Generator, element: Scalar | Vector, layout: Layout) -> npt.NDArray[Any]:
    """Return a flat buffer with the initial contents of an array; the components of a vector are adjacent."""
    count = layout.total * (element.size if isinstance(element, Vector) else 1)
    dtype = element.dtype
    if layout.fill == "zeros":
        return np.zeros(count, dtype.storage)
    if layout.fill == "ones":  # a bool with all bits set isn't a valid np.bool_, so the buffer is viewed as bytes
        return np.full(count * dtype.itemsize, 0xFF, np.uint8).view(np.uint8 if dtype.kind == "bool" else dtype.storage)
    if layout.fill == "small" and dtype.kind != "bool":
        low = -4 if dtype.is_float or dtype.is_signed else 0
        whole = random.integers(low, 5, count)
        if dtype is dtypes.bf16:  # the upper half of an f32, which is exact for small integers
            return np.asarray((whole.astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16))
        return whole.astype(dtype.storage)
    return numbers(random, dtype, count)


def numbers(random: np.random.Generator, dtype: DType, count: int) -> npt.NDArray[Any]:
    """Return random numbers in the type's storage format, without subnormals.

    Floats are mostly simple numbers; some are from `_TIES` or `_RARE`, or random multiples of 1/16. 30% of the integers
    have random bits; the others are mostly small.
    """
    if dtype.kind == "bool":
        return random.integers(0, 2, count).astype(np.bool_)
    if dtype.is_float:
        simple = random.choice(_FLOATS, count)
        # ties are for conversions to a narrower type, so 16-bit types get none
        simple = np.where((random.random(count) < 0.1) & (dtype.bits > 16), random.choice(_TIES, count), simple)
        mixed = np.where(random.random(count) < 0.3, np.round(random.normal(0, 20, count) * 16) / 16, simple)
        values = np.where(random.random(count) < 0.05, random.choice(_RARE, count), mixed)
        with np.errstate(all="ignore"):
            if dtype is dtypes.bf16:  # stored as the upper half of the rounded f32
                wide = to_bf16(values.astype(np.float32)).view(np.uint32)
                return np.asarray((wide >> np.uint32(16)).astype(np.uint16))
            return values.astype(dtype.storage)
    small = random.choice(_INTS, count).astype(np.int64)
    raw = np.frombuffer(random.bytes(8 * count), np.int64)
    return np.where(random.random(count) < 0.3, raw, small).astype(dtype.storage)


def scalar_of(random: np.random.Generator, dtype: DType) -> Any:
    """Return a random value for a scalar parameter."""
    if dtype is dtypes.bf16:
        return float(to_bf16(np.float32(random.choice(_FLOATS))))
    return numbers(random, dtype, 1)[0].item()


# -- text

_HEAD = "// program: "
"""Start of the comment that holds the parts of a program that aren't IR."""


def program_text(program: Program, notes: Sequence[str] = ()) -> str:
    """Return the program as text; `notes` become comments at the top."""
    header = {
        "groups": program.groups,
        "layouts": [asdict(layout) if layout is not None else None for layout in program.layouts],
        "seed": program.seed,
        "tolerances": {str(k): [list(v[0]), v[1]] for k, v in program.tolerances.items()},
        # these two keys differ from the names of the fields: saved programs have them
        "movable": program.any_workgroup_size,
        "lane_free": program.any_subgroup_size,
    }
    lines = [f"// {line}" for note in notes for line in note.splitlines()]
    return "\n".join([*lines, _HEAD + json.dumps(header), print_module(program.module)])


def parse_program(text: str) -> Program:
    """Parse the output of `program_text`. Raises VkjitError for invalid IR, ValueError without a header."""
    headers = [line[len(_HEAD) :] for line in text.splitlines() if line.startswith(_HEAD)]
    if len(headers) != 1:
        raise ValueError(f"expected one line that starts with {_HEAD!r}, found {len(headers)}")
    header = json.loads(headers[0])
    x, y, z = header["groups"]
    return Program(
        parse_module(text), (x, y, z), tuple(_layout(item) for item in header["layouts"]), header["seed"],
        {int(k): (tuple(v[0]), v[1]) for k, v in header["tolerances"].items()}, header["movable"], header["lane_free"],
    )  # fmt: skip


def _layout(item: dict[str, Any] | None) -> Layout | None:
    """Convert an entry of the header's "layouts", in which JSON has turned tuples into lists."""
    if item is None:
        return None
    return Layout(**{**item, "shape": tuple(item["shape"]), "strides": tuple(item["strides"])})
