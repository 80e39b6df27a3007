"""Shadow execution: interpret a kernel while recording last writers and numeric events, or perturbing its rounding.

An unperturbed run records the last writer of each array element (source location and invocation) and numeric events
(comparisons of NaN, and operations that create NaN or infinities). A perturbed run changes the result of each rounding
operation by its documented error (`vkjit.ir.ops`), in a fixed direction or at random. The spread of several perturbed
runs, that is, their largest distance from the unperturbed one, estimates how far another device's rounding may move the
results for this very input, including cancellation, long sums and unstable formulas.

`Shadow` compiles a kernel with the interpreter's compilers, extended to add steps (Python functions) to the program,
which record and perturb. `search.examiner` uses the spread to decide if a difference is an error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from vkjit import dtypes
from vkjit.backends.interp import InterpreterDevice, InterpreterKernel, Program
from vkjit.backends.interp.extension import (
    BATCH,
    Arguments,
    FunctionCompiler,
    GlobalArray,
    Grid,
    Memory,
    ProgramCompiler,
    Site,
    Step,
    meaning_of,
)
from vkjit.dtypes import DType
from vkjit.errors import KernelError, Loc
from vkjit.ir.core import Function, Module, Op
from vkjit.ir.ops import OPS, OpName
from vkjit.ir.types import Array
from vkjit.launch.kernel import Kernel
from vkjit.runtime.artifact import KernelArtifact
from vkjit.runtime.observers import LaunchFields

from ..cases.case import Case, decode
from ..cases.schedules import PLAIN, Schedule
from .accumulations import ACCUMULATIONS, SUBGROUP_LEVELS, roundings
from .numeric_events import NumericEvents, record_lost_nans, record_nonfinite
from .run import Executor, Outcome

__all__ = ["Launch", "Shadow", "Write", "epsilon"]

_ROUNDED: frozenset[OpName] = frozenset({"add", "sub", "mul", "fma"})
"""Operations whose result is exact if the exact value is representable."""

_DIRECTED = ("up", "down", "out", "in")
"""Directions of all errors in a perturbed run: to larger numbers, to smaller ones, away from 0, toward 0."""
RUNS = 8
"""Number of perturbed runs of `Shadow.spread`: one for each of the four directions, the others with random signs."""

_WIDE = 16.0
"""Scale of the errors in the runs of `Shadow.wide_spread`, relative to the documented errors.

Errors of a single ULP may vanish when a result is rounded, and two of them cancel in every second run. Larger random
errors rarely do either.
"""

_WIDE_RUNS = 4
"""Number of perturbed runs of `Shadow.wide_spread`."""


def epsilon(dtype: DType) -> float:
    """Return the distance from 1 to the next larger number of the type: one ULP at 1."""
    if dtype is dtypes.bf16:
        return 2.0**-7
    return float(np.finfo(dtype.numpy).eps)


@dataclass(frozen=True, slots=True)
class Write:
    """The last store to an element: its source location, the invocation's global id and its workgroup."""

    loc: Loc
    invocation: tuple[int, int, int]
    group: tuple[int, int, int]


@dataclass(slots=True)
class _State:
    """State that the steps of a shadow program read and update.

    `direction`, one of `_DIRECTED` or "random", selects the perturbation. `random` and `scale` apply to random errors.
    `writes` has two arrays per global array, with an entry per element of its buffer: the index in `sites` of the last
    store's source location (-1: not written), and the number of the invocation that stored.
    """

    direction: str | None = None  # None: no perturbation
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    scale: float = 1.0  # factor on random errors
    writes: dict[str, tuple[Any, Any]] = field(default_factory=dict)  # by the array's name
    sites: list[Loc] = field(default_factory=list)
    grid: Grid | None = None
    events: NumericEvents = field(default_factory=NumericEvents)

    def error_factors(self, shape: tuple[int, ...]) -> Any:
        """Return random factors for errors: 1 or -1 if `scale` is 1, else numbers in [-scale, scale]."""
        if self.scale == 1:
            return np.where(self.random.random(shape) < 0.5, -1.0, 1.0)
        return self.random.uniform(-self.scale, self.scale, shape)

    def perturb(self, value: Any, size: float, where: Any) -> Any:
        """Return the value perturbed where the mask `where` is set; `size` is the error relative to the magnitude."""
        if self.direction is None or not np.any(where):
            return value
        with np.errstate(all="ignore"):
            if self.direction == "random":
                delta = (size * self.error_factors(value.shape)).astype(value.dtype) * np.abs(value)
            elif self.direction in ("up", "down"):
                delta = np.abs(value) * value.dtype.type(size if self.direction == "up" else -size)
            else:
                delta = value * value.dtype.type(size if self.direction == "out" else -size)
            perturbed = np.where(where & np.isfinite(value), value + delta, value)
        return np.asarray(perturbed, value.dtype)


class _Array(GlobalArray):
    """A global array that records last writers."""

    __slots__ = ("state",)

    def __init__(self, plain: GlobalArray, state: _State) -> None:
        super().__init__(
            plain.cells, plain.first, plain.codec, plain.extents, plain.strides, plain.name, plain.is_linear
        )
        self.state = state
        if plain.name not in state.writes:
            count = len(plain.cells)
            state.writes[plain.name] = (np.full(count, -1, np.int32), np.zeros(count, np.int64))

    def store(self, indices: Sequence[Any], value: Any, mask: Any, site: Site) -> None:
        super().store(indices, value, mask, site)
        self._record_write(indices, mask, site)

    def lanes(self, indices: Sequence[Any], mask: Any, site: Site) -> tuple[Any, Any]:
        self._record_write(indices, mask, site)  # atomics access memory by `lanes`, and write to it
        return super().lanes(indices, mask, site)

    def _record_write(self, indices: Sequence[Any], mask: Any, site: Site) -> None:
        """Record the active invocations of a batch as last writers; `site` gives the source location and the batch."""
        batch = site.batch
        positions = batch.full(self._position(indices, mask, site))
        # an invocation's number is workgroup number * workgroup size + index in the workgroup
        invocation_numbers = np.asarray(batch.numbers)[:, None] * batch.size + np.arange(batch.size)[None, :]
        active = np.ones(positions.shape, bool) if mask is None else batch.full(mask)
        if site.loc not in self.state.sites:
            self.state.sites.append(site.loc)
        sites, invocations = self.state.writes[self.name]
        sites[positions[active]] = self.state.sites.index(site.loc)
        invocations[positions[active]] = invocation_numbers[active]
        self.state.grid = batch.grid


class _Arguments(Arguments):
    """A reader of the argument block whose arrays record last writers."""

    def __init__(self, artifact: KernelArtifact, module: Module, state: _State) -> None:
        super().__init__(artifact, module.kernel)
        self._state = state

    def _array(self, block: bytes, number: int, type: Array, name: str, find: Any) -> GlobalArray:
        return _Array(super()._array(block, number, type, name, find), self._state)


class _FunctionCompiler(FunctionCompiler):
    """A function compiler that perturbs rounding operations and records numeric events."""

    state: _State

    def _plain(self, op: Op, steps: list[Step]) -> None:
        if op.name in ("sg_reduce", "sg_scan") and _is_float(op):
            steps.append(_perturb_operand(self, op, self.state))
        record_lost_nans(self, op, steps, self.state.events)
        own_start = len(steps)  # from here on, the steps of the operation itself
        super()._plain(op, steps)
        record_nonfinite(self, op, steps, self.state.events)
        if op.name in ACCUMULATIONS and _is_float(op):
            steps.append(_perturb_sums(self, op, self.state, steps[own_start:]))
            return
        perturb = _perturb_result(self, op, self.state)
        if perturb is not None:
            steps.append(perturb)


class _ProgramCompiler(ProgramCompiler):
    """A program compiler that adds shadow steps."""

    state: _State

    def compiler(self, function: Function) -> FunctionCompiler:
        inner = _FunctionCompiler(self, function)
        inner.state = self.state
        return inner


def _is_float(op: Op) -> bool:
    """True if the operation has a floating point result."""
    dtype = getattr(op.results[0].type, "dtype", None) if op.results else None
    return isinstance(dtype, DType) and dtype.is_float


def _perturb_operand(compiler: FunctionCompiler, op: Op, state: _State) -> Step:
    """Return the step that perturbs the operand of a subgroup reduction or scan by the error of its additions.

    The addition at each of SUBGROUP_LEVELS levels has an error of half a ULP.
    """
    slot = compiler.slot(op.operands[0])
    size = 0.5 * SUBGROUP_LEVELS * epsilon(op.operands[0].type.dtype)  # type: ignore[attr-defined]

    def step(frame: Any, _mask: Any) -> None:
        frame[slot] = state.perturb(frame[slot], size, np.True_)

    return step


def _perturb_result(compiler: FunctionCompiler, op: Op, state: _State) -> Step | None:
    """Return the step that perturbs an operation's result by its documented error; None for an exact operation.

    The results of `_ROUNDED` operations are only perturbed where they were rounded: where they differ from the result
    of the same operation in f64. For f64 itself this can't be detected, so all results are perturbed.
    """
    if op.name == "atomic" and op.attrs.get("op") in ("add", "sub") and _is_float(op):
        return _perturb_atomic(compiler, op, state)
    if not _is_float(op):
        return None
    dtype: DType = op.result.type.dtype  # type: ignore[attr-defined]
    operation = OPS[op.name]
    if op.name == "cast":
        return _perturb_cast(compiler, op, state, dtype)
    if not operation.ulp or operation.meaning is None:
        return None
    target, size = compiler.slot(op.result), float(operation.ulp) * epsilon(dtype)
    if op.name not in _ROUNDED or dtype is dtypes.f64:

        def perturb_always(frame: Any, _mask: Any) -> None:
            frame[target] = state.perturb(frame[target], size, np.True_)

        return perturb_always
    sources, f64_meaning = compiler.slots(op.operands), meaning_of(op.name, dtypes.f64)

    def perturb_where_rounded(frame: Any, _mask: Any) -> None:
        if state.direction is not None:
            exact = f64_meaning(*(frame[s].astype(np.float64) for s in sources))
            frame[target] = state.perturb(frame[target], size, exact != frame[target])

    return perturb_where_rounded


def _perturb_cast(compiler: FunctionCompiler, op: Op, state: _State, dtype: DType) -> Step:
    """Return the step that perturbs the result of a cast to `dtype` by half a ULP where it was rounded."""
    source, target, size = compiler.slot(op.operands[0]), compiler.slot(op.result), 0.5 * epsilon(dtype)

    def step(frame: Any, _mask: Any) -> None:
        if state.direction is not None:
            inexact = frame[source].astype(np.float64) != frame[target].astype(np.float64)
            frame[target] = state.perturb(frame[target], size, inexact)

    return step


def _perturb_sums(compiler: FunctionCompiler, op: Op, state: _State, steps: Sequence[Step]) -> Step:
    """Return the step that perturbs the result of one of `ACCUMULATIONS`, whose terms may be added in any order.

    The error is that of `roundings` roundings, relative to the sum of the terms' magnitudes, which the step computes by
    calling the operation's own `steps` on absolute values.
    """
    sources, target = compiler.slots(op.operands), compiler.slot(op.result)
    size = roundings(op) * 0.5 * epsilon(op.result.type.dtype)  # type: ignore[attr-defined]

    def step(frame: Any, mask: Any) -> None:
        if state.direction is None or not size:
            return
        absolute = list(frame)
        for slot in sources:
            absolute[slot] = np.abs(frame[slot])
        for inner in steps:
            inner(absolute, mask)
        value = frame[target]
        if state.direction == "random":
            amount = size * state.error_factors(value.shape)
        else:  # "out" and "in" act as "up" and "down", since the error is relative to the magnitudes, not to the value
            amount = -size if state.direction in ("down", "in") else size
        with np.errstate(all="ignore"):
            magnitude = np.maximum(np.abs(absolute[target]), np.abs(value)).astype(np.float64)
            perturbed = (value + amount * magnitude).astype(value.dtype)
        frame[target] = np.where(np.isfinite(value), perturbed, value)

    return step


def _perturb_atomic(compiler: FunctionCompiler, op: Op, state: _State) -> Step:
    """Return the step that perturbs the memory after atomic additions, whose order is arbitrary.

    The error of n terms added to an element is that of n roundings, relative to the sum of the terms' magnitudes.
    """
    array, *indices, source = compiler.slots(op.operands)
    dtype: DType = op.result.type.dtype  # type: ignore[attr-defined]
    half_ulp, loc = 0.5 * epsilon(dtype), op.loc

    def step(frame: Any, mask: Any) -> None:
        if state.direction is None:
            return
        memory: Memory = frame[array]
        batch = frame[BATCH]
        # the element that each active invocation adds to, and the magnitude of the term that it adds
        cells, positions = memory.lanes([frame[slot] for slot in indices], mask, Site(batch, loc))
        terms = batch.full(frame[source])
        terms = np.abs(terms.reshape(-1) if mask is None else terms[batch.full(mask)]).astype(np.float64)
        # per element: the number of terms and the sum of their magnitudes
        unique_positions, unique_index = np.unique(positions, return_inverse=True)
        counts, total = np.bincount(unique_index), np.bincount(unique_index, weights=terms)
        current = decode(cells[unique_positions], dtype)
        size = half_ulp * counts * (total + np.abs(current))
        factor = state.error_factors((len(unique_positions),)) if state.direction == "random" else 1.0
        if state.direction in ("down", "in"):
            factor = -factor
        with np.errstate(all="ignore"):
            cells[unique_positions] = memory.codec.encode((current + factor * size).astype(current.dtype))

    return step


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch: the kernel's module, in the frontend's IR, and the number of workgroups."""

    module: Module
    groups: tuple[int, int, int]


class _Device(InterpreterDevice):
    """An interpreter that runs kernels with shadow steps."""

    def __init__(self, state: _State) -> None:
        super().__init__()
        self.state = state
        self.launched: Launch | None = None

    def forget_launch(self) -> None:
        """Reset `launched`."""
        self.launched = None

    def load(self, artifact: KernelArtifact) -> InterpreterKernel:
        module: Module = artifact.code
        program = Program(module)
        compiler = _ProgramCompiler(module)
        compiler.state = self.state
        program._code = compiler.kernel()  # instead of the code that `Program` has compiled, without shadow steps
        loaded = InterpreterKernel(artifact, program)
        loaded.arguments = _Arguments(artifact, module, self.state)
        return loaded

    def launch(self, request: LaunchFields) -> None:
        self.launched = Launch(request[0].artifact.code, request[1])
        super().launch(request)


class Shadow:
    """Shadow runs of one kernel, compiled once per signature."""

    def __init__(self, kernel: Kernel, groups: Any = None) -> None:
        self._state = _State()
        self._device = _Device(self._state)
        self._executor = Executor(kernel, self._device, groups, lambda: _Device(self._state))
        self._last: tuple[Case, Launch | None] | None = None  # the last case and result of `launch`

    def run(self, case: Case, schedule: Schedule) -> Outcome:
        """Run without perturbation, recording last writers and numeric events. Raises what the kernel reports."""
        self._state.direction = None
        self._state.writes.clear()
        self._state.events.clear()
        return self._executor.run(case, schedule)

    @property
    def events(self) -> NumericEvents:
        """The numeric events of the last run."""
        return self._state.events

    def launch(self, case: Case) -> Launch | None:
        """Run the case under the default schedule and return the launch; None if the grid is empty."""
        if self._last is not None and self._last[0] is case:
            return self._last[1]
        self._device.forget_launch()
        with contextlib.suppress(KernelError):
            self.run(case, PLAIN)
        self._last = (case, self._device.launched)
        return self._device.launched

    def written(self, case: Case, name: str) -> npt.NDArray[np.bool_]:
        """Run the case under the default schedule and return a mask of the elements that it writes in an array."""
        given = case.arrays()[name]
        mask = np.zeros(given.shape, bool)
        with contextlib.suppress(KernelError):
            self.run(case, PLAIN)
        if name in self._state.writes and 0 not in given.shape:
            sites, _ = self._state.writes[name]
            placement = given.layout.place(given.shape)
            # the offset of each element in the buffer: the sum of index * stride over the axes
            indices = np.indices(given.shape)
            strides = np.reshape(np.array(placement.strides, np.int64), (-1, *(1,) * len(given.shape)))
            offsets = placement.first + (indices * strides).sum(axis=0)
            mask = np.asarray(sites[offsets] >= 0)
        return mask

    def writer(self, case: Case, name: str, index: tuple[int, ...]) -> Write | None:
        """Return the last writer of an element in the last run; None if nothing wrote it."""
        if name not in self._state.writes or self._state.grid is None:
            return None
        given = case.arrays()[name]
        placement = given.layout.place(given.shape)
        position = placement.first + sum(i * s for i, s in zip(index, placement.strides, strict=True))
        sites, invocations = self._state.writes[name]
        if sites[position] < 0:
            return None
        grid = self._state.grid
        group, local = divmod(int(invocations[position]), grid.invocations)
        x, y, _ = grid.groups
        coordinates = (group % x, group // x % y, group // (x * y))
        workgroup = tuple(base + c for base, c in zip(grid.base, coordinates, strict=True))
        return Write(
            self._state.sites[sites[position]], grid.global_id(group, local), (workgroup[0], workgroup[1], workgroup[2])
        )

    def spread(self, case: Case, schedule: Schedule) -> dict[str, tuple[Any, Any]]:
        """Measure the spread of perturbed runs around the unperturbed one.

        Returns for each output the largest distance per element, and a mask of undecided elements, which differ in a
        way that has no distance (NaN, infinities, integers). Raises what the kernel reports in a perturbed run.
        """
        base = self._outputs(case, self.run(case, schedule))
        widest = {n: np.zeros(b.shape) for n, b in base.items()}
        undecided = {n: np.zeros(b.shape, bool) for n, b in base.items()}
        for number in range(RUNS):
            self._state.direction = _DIRECTED[number] if number < len(_DIRECTED) else "random"
            self._state.random = np.random.default_rng(number)
            for name, found in self._outputs(case, self._executor.run(case, schedule)).items():
                _widen(base[name], found, widest[name], undecided[name])
        self._state.direction = None
        return {n: (widest[n], undecided[n]) for n in base}

    def wide_spread(self, case: Case, schedule: Schedule) -> dict[str, Any]:
        """Measure the spread under random errors of up to `_WIDE` times the documented size, divided by `_WIDE`.

        See `_WIDE` for the reason. This spread exceeds `spread` where a branch depends on rounding. Returns the largest
        distance per element for each output.
        """
        base = self._outputs(case, self.run(case, schedule))
        widest = {n: np.zeros(b.shape) for n, b in base.items()}
        self._state.scale = _WIDE
        try:
            for number in range(_WIDE_RUNS):
                self._state.direction, self._state.random = "random", np.random.default_rng(RUNS + number)
                with contextlib.suppress(KernelError):  # an index computed in floating point may leave the array
                    for name, found in self._outputs(case, self._executor.run(case, schedule)).items():
                        _widen(base[name], found, widest[name], np.zeros(found.shape, bool))
        finally:
            self._state.direction, self._state.scale = None, 1.0
        return {n: w / _WIDE for n, w in widest.items()}

    def _outputs(self, case: Case, outcome: Outcome) -> dict[str, Any]:
        """Return the output values of a run, as carried values (see `cases.case`)."""
        arrays = case.arrays()
        return {n: decode(raw, arrays[n].dtype) for n, raw in outcome.raw.items()}


def _widen(base: Any, found: Any, widest: Any, undecided: Any) -> None:
    """Update `widest` and `undecided` for the output `found` of one more perturbed run.

    `base` is the unperturbed output.
    """
    if base.dtype.kind != "f":
        undecided |= base != found
        return
    with np.errstate(all="ignore"):
        same = np.isfinite(base) & np.isfinite(found)
        distance = np.abs(base.astype(np.float64) - found.astype(np.float64))
        np.maximum(widest, np.where(same, distance, 0.0), out=widest)
        undecided |= ~same & (base != found) & ~(np.isnan(base) & np.isnan(found))
