"""Shadow execution: interpret a kernel while tracking last writers and rounding errors.

A shadow run records the last writer of each element (source location and invocation). Perturbed runs move the result
of each rounding operation by its documented error, in a fixed direction or at random. The spread of these runs
estimates what the rounding of another device may do to this very input, including cancellation, long sums and unstable
formulas.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from vkjit import dtypes
from vkjit.backends.interp.codegen.batch import Grid
from vkjit.backends.interp.codegen.compile import BATCH, FunctionCompiler, ProgramCompiler, Step
from vkjit.backends.interp.codegen.elementwise import meaning_of
from vkjit.backends.interp.codegen.engine import Program
from vkjit.backends.interp.codegen.memory import GlobalArray, Memory, Site
from vkjit.backends.interp.runtime.arguments import Arguments
from vkjit.backends.interp.runtime.device import InterpreterDevice, InterpreterKernel
from vkjit.dtypes import DType
from vkjit.errors import KernelError, Loc
from vkjit.ir.core import Function, Module, Op
from vkjit.ir.ops import OPS, OpName
from vkjit.ir.types import Array
from vkjit.launch.kernel import Kernel
from vkjit.runtime.artifact import KernelArtifact
from vkjit.runtime.device import LoadedKernel

from ..cases.case import Case, decode
from ..cases.schedules import PLAIN, Schedule
from .accumulations import ACCUMULATIONS, roundings
from .numeric_events import NumericEvents, record_lost_nans, record_nonfinite
from .run import Executor, Outcome

__all__ = ["Launch", "Shadow", "Write", "epsilon"]

_ROUNDED: frozenset[OpName] = frozenset({"add", "sub", "mul", "fma"})
"""Operations whose result is exact if the exact value is representable."""

_DIRECTED = ("up", "down", "out", "in")
RUNS = 8
"""Number of perturbed runs: four with all errors in one direction, the others with random signs."""

_WIDE = 16.0
"""Scale of the errors in wide runs.

With errors of a single ULP, fractions are lost in the result's rounding, and two errors cancel in every second run.
"""

_WIDE_RUNS = 4


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
    """State that the steps of a shadow program read and update."""

    direction: str | None = None  # None: no perturbation
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    scale: float = 1.0  # factor on random errors
    writes: dict[str, tuple[Any, Any]] = field(default_factory=dict)  # by array: site and invocation per element
    sites: list[Loc] = field(default_factory=list)
    grid: Grid | None = None
    sights: NumericEvents = field(default_factory=NumericEvents)

    def chances(self, shape: tuple[int, ...]) -> Any:
        """Return random factors for errors: signs, or in wide runs numbers in [-scale, scale]."""
        if self.scale == 1:
            return np.where(self.random.random(shape) < 0.5, -1.0, 1.0)
        return self.random.uniform(-self.scale, self.scale, shape)

    def moved(self, value: Any, size: float, where: Any) -> Any:
        """Return the value, perturbed by up to `size` of its magnitude where the mask is set."""
        if self.direction is None or not np.any(where):
            return value
        with np.errstate(all="ignore"):
            if self.direction == "random":
                amount = (size * self.chances(value.shape)).astype(value.dtype) * np.abs(value)
            elif self.direction in ("up", "down"):
                amount = np.abs(value) * value.dtype.type(size if self.direction == "up" else -size)
            else:
                amount = value * value.dtype.type(size if self.direction == "out" else -size)
            perturbed = np.where(where & np.isfinite(value), value + amount, value)
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
        self._record_write(indices, mask, site)
        return super().lanes(indices, mask, site)

    def _record_write(self, indices: Sequence[Any], mask: Any, site: Site) -> None:
        position = site.batch.full(self._position(indices, mask, site))
        batch = site.batch
        numbers = np.asarray(batch.numbers)[:, None] * batch.size + np.arange(batch.size)[None, :]
        keep = np.ones(position.shape, bool) if mask is None else batch.full(mask)
        if site.loc not in self.state.sites:
            self.state.sites.append(site.loc)
        sites, invocations = self.state.writes[self.name]
        sites[position[keep]] = self.state.sites.index(site.loc)
        invocations[position[keep]] = numbers[keep]
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
        record_lost_nans(self, op, steps, self.state.sights)
        before = len(steps)
        super()._plain(op, steps)
        record_nonfinite(self, op, steps, self.state.sights)
        if op.name in ACCUMULATIONS and _is_float(op):
            steps.append(_perturb_sums(self, op, self.state, steps[before:]))
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
    dtype = getattr(op.results[0].type, "dtype", None) if op.results else None
    return isinstance(dtype, DType) and dtype.is_float


def _perturb_operand(compiler: FunctionCompiler, op: Op, state: _State) -> Step:
    """Perturb the operand of a subgroup reduction by the error of seven levels of additions."""
    slot, size = compiler.slot(op.operands[0]), 3.5 * epsilon(op.operands[0].type.dtype)  # type: ignore[attr-defined]

    def step(frame: Any, _mask: Any) -> None:
        frame[slot] = state.moved(frame[slot], size, np.True_)

    return step


def _perturb_result(compiler: FunctionCompiler, op: Op, state: _State) -> Step | None:
    """Return the step that perturbs a result; None for an exact operation."""
    if op.name == "atomic" and op.attrs.get("op") in ("add", "sub") and _is_float(op):
        return _perturb_atomic(compiler, op, state)
    if not _is_float(op):
        return None
    dtype: DType = op.result.type.dtype  # type: ignore[attr-defined]
    row = OPS[op.name]
    if op.name == "cast":
        return _perturb_cast(compiler, op, state, dtype)
    if not row.ulp or row.meaning is None:
        return None
    target, size = compiler.slot(op.result), float(row.ulp) * epsilon(dtype)
    if op.name not in _ROUNDED or dtype is dtypes.f64:

        def inexact(frame: Any, _mask: Any) -> None:
            frame[target] = state.moved(frame[target], size, np.True_)

        return inexact
    sources, wide = compiler.slots(op.operands), meaning_of(op.name, dtypes.f64)

    def rounded(frame: Any, _mask: Any) -> None:
        if state.direction is not None:
            exact = wide(*(frame[s].astype(np.float64) for s in sources))
            frame[target] = state.moved(frame[target], size, exact != frame[target])

    return rounded


def _perturb_cast(compiler: FunctionCompiler, op: Op, state: _State, dtype: DType) -> Step:
    source, target, size = compiler.slot(op.operands[0]), compiler.slot(op.result), 0.5 * epsilon(dtype)

    def step(frame: Any, _mask: Any) -> None:
        if state.direction is not None:
            inexact = frame[source].astype(np.float64) != frame[target].astype(np.float64)
            frame[target] = state.moved(frame[target], size, inexact)

    return step


def _perturb_sums(compiler: FunctionCompiler, op: Op, state: _State, steps: Sequence[Step]) -> Step:
    """Perturb sums of tiles and matrices, which may be accumulated in any order, by the rounding errors of their
    magnitude.

    The magnitude is the result of the same operation on absolute values.
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
        found, sign = frame[target], {"down": -1.0, "in": -1.0}.get(state.direction, 1.0)
        amount = size * state.chances(found.shape) if state.direction == "random" else sign * size
        with np.errstate(all="ignore"):
            magnitude = np.maximum(np.abs(absolute[target]), np.abs(found)).astype(np.float64)
            moved = (found + amount * magnitude).astype(found.dtype)
        frame[target] = np.where(np.isfinite(found), moved, found)

    return step


def _perturb_atomic(compiler: FunctionCompiler, op: Op, state: _State) -> Step:
    """Perturb atomic sums, whose order is arbitrary: n terms add up to n rounding errors of the terms' magnitude."""
    array, *indices, source = compiler.slots(op.operands)
    dtype: DType = op.result.type.dtype  # type: ignore[attr-defined]
    half, loc = 0.5 * epsilon(dtype), op.loc

    def step(frame: Any, mask: Any) -> None:
        if state.direction is None:
            return
        memory: Memory = frame[array]
        batch = frame[BATCH]
        cells, positions = memory.lanes([frame[slot] for slot in indices], mask, Site(batch, loc))
        terms = batch.full(frame[source])
        terms = np.abs(terms.reshape(-1) if mask is None else terms[batch.full(mask)]).astype(np.float64)
        places, back = np.unique(positions, return_inverse=True)
        counts, total = np.bincount(back), np.bincount(back, weights=terms)
        current = decode(cells[places], dtype)
        size = half * counts * (total + np.abs(current))
        sign = state.chances((len(places),)) if state.direction == "random" else 1.0
        sign = -sign if state.direction in ("down", "in") else sign
        with np.errstate(all="ignore"):
            cells[places] = memory.codec.encode((current + sign * size).astype(current.dtype))

    return step


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch: the frontend's module and the number of workgroups."""

    module: Module
    groups: tuple[int, int, int]


class _Device(InterpreterDevice):
    """An interpreter that runs kernels with shadow steps."""

    def __init__(self, state: _State) -> None:
        super().__init__()
        self.state = state
        self.launched: Launch | None = None

    def load(self, artifact: KernelArtifact) -> InterpreterKernel:
        module: Module = artifact.code
        program = Program(module)
        compiler = _ProgramCompiler(module)
        compiler.state = self.state
        program._code = compiler.kernel()
        loaded = InterpreterKernel(artifact, program)
        loaded.arguments = _Arguments(artifact, module, self.state)
        return loaded

    def launch(self, kernel: LoadedKernel, groups: Any, block: bytes, reads: Any, writes: Any) -> None:
        self.launched = Launch(kernel.artifact.code, groups)
        super().launch(kernel, groups, block, reads, writes)


class Shadow:
    """Shadow runs of one kernel, compiled once per signature."""

    def __init__(self, kernel: Kernel, groups: Any = None) -> None:
        self._state = _State()
        self._device = _Device(self._state)
        self._executor = Executor(kernel, self._device, groups, lambda: _Device(self._state))
        self._last: tuple[Case, Launch | None] | None = None

    def run(self, case: Case, schedule: Schedule) -> Outcome:
        """Run without perturbation, recording the writers for `writer`. Raises what the kernel reports."""
        self._state.direction = None
        self._state.writes.clear()
        self._state.sights.clear()
        return self._executor.run(case, schedule)

    @property
    def events(self) -> NumericEvents:
        """The numeric events of the last run."""
        return self._state.sights

    def launch(self, case: Case) -> Launch | None:
        """Return the launch of the case under the default schedule; None if it has no workgroups."""
        if self._last is not None and self._last[0] is case:
            return self._last[1]
        self._device.launched = None
        with contextlib.suppress(KernelError):
            self.run(case, PLAIN)
        self._last = (case, self._device.launched)
        return self._device.launched

    def written(self, case: Case, name: str) -> npt.NDArray[np.bool_]:
        """Return a mask of an array's elements that the case writes under the default schedule."""
        given = case.arrays()[name]
        mask = np.zeros(given.shape, bool)
        with contextlib.suppress(KernelError):
            self.run(case, PLAIN)
        if name in self._state.writes and 0 not in given.shape:
            sites = self._state.writes[name][0]
            placement = given.layout.place(given.shape)
            index = np.indices(given.shape)
            steps = np.reshape(np.array(placement.strides, np.int64), (-1, *(1,) * len(given.shape)))
            mask = np.asarray(sites[placement.first + (index * steps).sum(axis=0)] >= 0)
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
        at = tuple(b + g for b, g in zip(grid.base, (group % x, group // x % y, group // (x * y)), strict=True))
        return Write(self._state.sites[sites[position]], grid.global_id(group, local), (at[0], at[1], at[2]))

    def spread(self, case: Case, schedule: Schedule) -> dict[str, tuple[Any, Any]]:
        """Measure the spread of perturbed runs around the unperturbed one.

        Returns for each output the largest distance per element, and a mask of elements that differ in a way that
        can't be measured (NaN, infinities, integers). Raises what the kernel reports in a perturbed run.
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
        """Measure the spread under larger errors of random size, scaled down accordingly, so that errors don't cancel.

        It exceeds `spread` where a branch depends on rounding.
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
        arrays = case.arrays()
        return {n: decode(raw, arrays[n].dtype) for n, raw in outcome.raw.items()}


def _widen(base: Any, found: Any, widest: Any, undecided: Any) -> None:
    if base.dtype.kind != "f":
        undecided |= base != found
        return
    with np.errstate(all="ignore"):
        same = np.isfinite(base) & np.isfinite(found)
        distance = np.abs(base.astype(np.float64) - found.astype(np.float64))
        np.maximum(widest, np.where(same, distance, 0.0), out=widest)
        undecided |= ~same & (base != found) & ~(np.isnan(base) & np.isnan(found))
