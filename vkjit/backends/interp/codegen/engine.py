"""Runs a kernel of the IR, before or after lowering: batches of workgroups through threaded code.

Arrays are changed in place, printed lines are collected, and the first report is raised as an exception. The interpreter
defines the semantics of the IR: passes and back ends are compared with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from vkjit.errors import ArgumentError, KernelError
from vkjit.ir import semantics
from vkjit.ir.core import Module, Value
from vkjit.ir.types import Array, Vector

from . import access, control_flow, elementwise, matrices, subgroups, tiles  # noqa: F401  they register the handlers of operations
from .access import require_returned
from .atomics import depends_on_order
from .batch import Batch, Grid, Log
from .compile import BATCH, PATH, RETURNED, ProgramCompiler
from .memory import GlobalArray
from .storage import Codec, flatten
from .values import Accumulator, Lanes, literal

__all__ = ["DEFAULT_LANES", "Order", "Program", "argument_value", "run_module"]

DEFAULT_LANES = 1 << 16
"""Invocations of a batch: enough to drown NumPy's cost per call, few enough for a value to stay in the cache."""

_SMALL_LANES, _SMALL_GRIDS = 1 << 12, 16
"""Grids of at most so many invocations, and so many of them, keep their ids for the next launch."""

Order = str | int
"""The order in which workgroups run: "forward", "reverse", or the seed of a permutation."""


def _numbers(total: int, order: Order, batch: int) -> Iterator[npt.NDArray[np.int64]]:
    """The linear numbers of the workgroups, batch by batch."""
    if isinstance(order, int):
        shuffled = np.random.default_rng(order).permutation(total).astype(np.int64)
        yield from (shuffled[start : start + batch] for start in range(0, total, batch))
        return
    if order not in ("forward", "reverse"):
        raise ArgumentError(f"order: expected 'forward', 'reverse' or a seed, found {order!r}")
    for start in range(0, total, batch):
        ahead = np.arange(start, min(start + batch, total), dtype=np.int64)
        yield ahead if order == "forward" else total - 1 - ahead


class Program:
    """A kernel made ready to run; holds no memory of a launch and may run any number of times."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.local_size = module.kernel.attrs["local_size"]
        self._code = ProgramCompiler(module).kernel()
        self._ordered = depends_on_order(module)
        self._small: dict[tuple[Grid, Order], dict[tuple[str, int], Lanes]] = {}

    @property
    def params(self) -> list[Value]:
        """The kernel's parameters."""
        return self.module.kernel.params

    def run(
        self, grid: Grid, values: Sequence[Any], log: Log, order: Order = "forward", lanes: int = DEFAULT_LANES
    ) -> None:
        """Runs all workgroups of the grid. `values` are what slots hold: `Memory` objects and values.

        Raises BoundsError and KernelError at once; what kernels report themselves goes to `log`.
        """
        total = grid.groups[0] * grid.groups[1] * grid.groups[2]
        budget = DEFAULT_LANES if self._ordered else lanes
        batch = max(1, budget // max(grid.invocations, 1))
        with semantics.silence_warnings():
            for numbers in _numbers(total, order, batch):
                ids = self._ids(grid, order) if total <= batch else None
                self._run_batch(Batch(grid, numbers, log, ids), values)

    def _ids(self, grid: Grid, order: Order) -> dict[tuple[str, int], Lanes] | None:
        """Where the ids of a small grid are kept from launch to launch."""
        if grid.groups[0] * grid.groups[1] * grid.groups[2] * grid.invocations > _SMALL_LANES:
            return None
        if len(self._small) > _SMALL_GRIDS:
            self._small.clear()
        return self._small.setdefault((grid, order), {})

    def _run_batch(self, batch: Batch, values: Sequence[Any]) -> None:
        frame = self._code.template.copy()
        returned = batch.returned = Accumulator()
        frame[BATCH], frame[RETURNED], frame[PATH] = batch, returned, ()
        for slot, value in zip(self._code.params, values, strict=True):
            frame[slot] = value
        self._code.body(frame, None)
        require_returned(frame, batch)


def argument_value(param: Value, argument: Any) -> Any:
    """Return a launch argument as frames hold it. Raises ArgumentError, DTypeError, ShapeError if it doesn't fit."""
    name = param.name or f"argument {param.index}"
    type = param.type
    if not isinstance(type, Array):
        if isinstance(type, Vector) or np.ndim(argument) == 0:
            return literal(argument, type)
        raise ArgumentError(f"{name}: expected a number for {type}, found an array")
    if not isinstance(argument, np.ndarray):
        raise ArgumentError(f"{name}: expected a NumPy array for {type}, found {argument!r}")
    codec = Codec.of(type.element)
    cells, first, extents, strides = flatten(argument, codec, None if type.linear else type.rank, name)
    if type.linear:
        return GlobalArray(cells, first, codec, (len(cells) - first,), (1,), name, is_linear=True)
    return GlobalArray(cells, first, codec, extents, strides, name)


def _triple(groups: int | Sequence[int]) -> tuple[int, int, int]:
    parts = [int(part) for part in ((groups,) if isinstance(groups, int) else groups)]
    if not 1 <= len(parts) <= 3 or min(parts) < 0:
        raise ArgumentError(f"groups: expected one to three numbers >= 0, found {groups!r}")
    x, y, z = [*parts, 1, 1][:3]
    return x, y, z


def run_module(
    module: Module,
    groups: int | Sequence[int],
    args: Sequence[Any],
    *,
    subgroup_size: int = 32,
    order: Order = "forward",
    lanes_per_batch: int = DEFAULT_LANES,
) -> list[str]:
    """Runs the kernel over `groups` workgroups; arrays are changed in place, printed texts are returned.

    `args` has one entry for each parameter of the IR: a NumPy array (any strides; bf16 as uint16; an array of vectors
    has a packed last dimension), a number, or a sequence of numbers for a vector. `subgroup_size` is a power of two
    from 4 to 128. Results don't depend on `lanes_per_batch`, the number of invocations that run in lockstep, as long as
    the kernel has no races.

    Raises BoundsError for an access outside an array, KernelError for a divergent barrier, ArgumentError for arguments
    that don't fit, and the error of the first report (in the order of invocations).
    """
    if len(args) != len(module.kernel.params):
        raise ArgumentError(f"{module.kernel.name}: expected {len(module.kernel.params)} arguments, found {len(args)}")
    if subgroup_size not in (4, 8, 16, 32, 64, 128):
        raise ArgumentError(f"subgroup_size: expected a power of two from 4 to 128, found {subgroup_size}")
    program = Program(module)
    values = [argument_value(param, argument) for param, argument in zip(program.params, args, strict=True)]
    grid = Grid(_triple(groups), program.local_size, subgroup_size)
    log = Log(module.kernel.name, tuple(module.sites))
    try:
        program.run(grid, values, log, order, lanes_per_batch)
    except KernelError as error:
        raise (log.first[1] if log.first else error) from None
    if log.first:
        raise log.first[1]
    return log.text()
