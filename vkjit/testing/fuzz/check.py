"""The differential check of one program: the core of the fuzzer.

The oracle is the result of the interpreter on the program as generated, before any pass. `Checker` compares the results
of these runs with it, and stops at the first difference or error (`Finding`):

- the interpreter with another order of workgroups, batch size and subgroup size;
- the interpreter after a chain of one or a few passes, and for programs on tiles after the tile lowering;
- for each device and optimization level: the interpreter on the module that the pipeline produced for the device, and
  the device itself. The IR is verified after the pipeline, for some programs also after each pass, and spirv-val checks
  each SPIR-V module;
- the device with the address of every memory access checked (see `vkjit.testing.fuzz.watch`), for some programs;
- the device with the module optimized by spirv-opt, for some programs;
- a variant of the program that must give the same results (see `variants`).

The program's seed decides which of the optional runs are made.
"""

from __future__ import annotations

import contextlib
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from vkjit.compiler.driver import emit_module
from vkjit.errors import CompileError
from vkjit.ir.core import Module
from vkjit.ir.rewrite import clone_module
from vkjit.ir.verify import violations
from vkjit.passes import pipeline
from vkjit.passes.lowering.lower_exits import LowerExits
from vkjit.passes.registry import PLAIN_DEVICE, run_passes
from vkjit.passes.tiles import LowerTiles
from vkjit.passes.tiles.tile_state import Options as TileOptions
from vkjit.passes.transforms.inline import Inline
from vkjit.runtime.artifact import KernelArtifact
from vkjit.runtime.device import Device, DeviceCaps
from vkjit.spirv import tools

from . import validate, variants
from .assumptions import violated_attributes
from .compare import difference
from .execute import Outcome, interpret, launch, launch_module, watched_launch
from .flushing import is_excused
from .known_faults import known_fault
from .program import Memory, Program

__all__ = ["CHAINS", "Checker", "Finding", "Options"]

CHAINS = (
    "fold", "simplify_branches", "cse", "dce", "licm", "lower_exits", "lower_exits,inline",
    "fold,simplify_branches,cse,fold,dce", "lower_exits,inline,lower_access,licm,cse,dce",
    "lower_exits,inline,lower_access,narrow_index,fold,dce",
    "lower_exits,inline,limit_nesting",
)  # fmt: skip
"""Chains of passes: pass names, separated by commas. Each program runs through one chain."""
TILE_CHAINS = (
    "lower_exits,inline",
    "lower_exits,inline,lower_tiles",
    "lower_exits,inline,lower_tiles,fold,cse,licm,dce",
)
"""Chains for programs on tiles: the simplifying passes come after `lower_tiles`, since they don't handle tiles."""
LEVELS = (0, 1, 2)
"""The optimization levels of the pipeline."""
SPIRV_OPT_EVERY = 6
"""One program in this many also runs with its SPIR-V optimized by spirv-opt."""
MAX_HARDWARE_WORDS = 60_000
"""Maximum size of a SPIR-V module on hardware devices, in words of 4 bytes. Longer modules are skipped; they come, for
example, from unrolled tiles of thousands of elements on four lanes. NVIDIA's compiler takes seconds for 15,000 words
and more than 20 seconds for 94,000.
"""
WATCHED_EVERY = 4
"""One program in this many also runs at level 2 on software Vulkan devices, lowered as for GPUs and with the address of
every memory access checked. Without the check, these devices tolerate invalid accesses that make other devices fail.
"""


def tile_options(random: Random) -> TileOptions:
    """Return random options for the lowering of tiles."""
    return TileOptions(
        subgroup=random.choice([4, 8, 16]),
        shuffles=random.random() < 0.6,
        shared_bytes=random.choice([48 << 10, 48 << 10, 4096]),
        vector=random.choice([1, 4]),
        reads_global_memory=random.random() < 0.4,
        lane_bits=random.choice([0, 2, 4]),
        unroll=64,
        max_held=4096,
    )


@dataclass(frozen=True, slots=True)
class Finding:
    """A failure.

    `stage` names the run, such as "oracle", "order", "level 2 on <device>", "chain <passes>" or "variant, <kind>, ...".
    `text` is the difference or the error message.
    """

    stage: str
    text: str


class _FindingRaised(Exception):  # noqa: N818  control flow, not an error
    """Ends the check of a program at its first finding."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.text)
        self.finding = finding


@dataclass(frozen=True, slots=True)
class Options:
    """The runs to make besides the oracle.

    - `thorough`: run each program at every optimization level, and verify the IR after every pass. Otherwise, a program
      runs at level 2 and one other level, and only a third of these runs verify the IR after every pass.
    - `variants`: run a variant of the program. `chains`: run a chain of passes. `validated`: run spirv-val.
    - `watch`: also run each program with the address of every access checked (see `vkjit.testing.fuzz.watch`), on all
      Vulkan devices; on software devices once more, lowered as for GPUs.
    """

    thorough: bool = False
    variants: bool = True
    chains: bool = True
    validated: bool = True
    watch: bool = False


@dataclass(slots=True)
class Checker:
    """Checks programs on the given devices, and always on the interpreter, which `devices` doesn't include.

    `counts` has the numbers of runs, of excused differences and of skipped modules, by description.
    """

    devices: Sequence[Device]
    options: Options = field(default_factory=Options)
    counts: Counter[str] = field(default_factory=Counter)

    def check(self, program: Program, only: str = "") -> Finding | None:
        """Return the first finding, or None.

        `only` is the stage of an earlier finding. If it is given, the runs of other stages are skipped, except for the
        oracle and the run in another order.
        """
        try:
            _Run(self, program, only).all()
        except _FindingRaised as signal:
            return signal.finding
        return None


def is_too_long(device: Device, artifact: KernelArtifact) -> bool:
    """True if the driver of a hardware device would take too long to compile the module."""
    software = device.caps.kind in ("cpu", "llvm-cpu", "interpreter")
    return not software and isinstance(artifact.code, bytes) and len(artifact.code) > 4 * MAX_HARDWARE_WORDS


def _verified(name: str, module: Module, form: str = "high") -> None:
    """Raise a finding if the IR isn't valid in this form (see `vkjit.ir.verify`). `name` says which pass ran last."""
    broken = violations(module, form)
    if broken:
        raise _FindingRaised(Finding(f"verifier after {name}", "\n".join(broken)))


class _Run:
    """The runs of one program.

    `only` is that of `Checker.check`. `oracles` caches the outcome of the interpreter by subgroup size. `prints` is
    True if the program prints; such a program isn't run on Vulkan devices, nor fully lowered on the interpreter.
    """

    def __init__(self, checker: Checker, program: Program, only: str) -> None:
        self.checker = checker
        self.only = only
        self.program = program
        self.memory = Memory.of(program)
        self.random = Random(program.seed ^ 0x5EED)  # other random numbers than those of the generator
        self.oracles: dict[int, Outcome] = {}
        self.has_tiles = any(op.name.startswith("tile_") for op in program.module.kernel.body.walk())
        self.prints = any(site.kind == "print" for site in program.module.sites)

    def all(self) -> None:
        """Make all runs, cheap ones first. Raises `_FindingRaised` at the first finding."""
        broken = violations(self.program.module)
        broken += violated_attributes(self.program.module.kernel, self.program.layouts)
        if broken:
            raise _FindingRaised(Finding("generator", "\n".join(broken)))
        self.orders()
        if self.checker.options.chains and self.wanted("chain"):
            self.chain()
        if self.has_tiles and self.wanted("tiles"):
            self.tiles()
        for device in self.checker.devices:
            for level in self.levels():
                # the names of the stages of `level`, except those of the verifier, contain one of these texts
                optimized = f"spirv-opt on {device.name}" if level == 2 else ""
                if self.wanted(f"level {level} on {device.name}", f"level {level} for {device.name}", optimized):
                    self.level(device, level)
        if self.checker.options.variants and self.wanted("variant"):
            self.variant()

    def tiles(self) -> None:
        """Run the tile lowering with random options on the interpreter."""
        options = tile_options(self.random)
        stage = "tiles"
        with self.stage(stage):
            module = Inline().run(LowerExits().run(clone_module(self.program.module)))
            try:
                module = LowerTiles(options, PLAIN_DEVICE).run(module)
            except CompileError as error:
                if "shared memory" in str(error):  # the tiles are too large for these options
                    self.checker.counts["tiles too large"] += 1
                    return
                raise
            broken = violations(module, "normal")
            if broken:
                raise _FindingRaised(Finding(stage, "\n".join(broken)))
            outcome = interpret(self.program, self.memory, module, subgroup_size=options.subgroup)
            self.compare(stage, outcome, self.oracle(options.subgroup))

    def levels(self) -> tuple[int, ...]:
        """Return the optimization levels to run."""
        all_levels = self.checker.options.thorough or self.only
        return LEVELS if all_levels else (self.program.seed // 2 % 2, 2)  # 0 or 1 by the seed, and 2

    def wanted(self, *stages: str) -> bool:
        """True if a run is to be made: if the check isn't restricted, or is restricted to one of these stages.

        A stage may be given by a part of its name; "" stands for no stage.
        """
        return not self.only or any(stage and stage in self.only for stage in stages)

    def oracle(self, subgroup_size: int = 32) -> Outcome:
        """Return the outcome of the interpreter on the program as generated; cached.

        The subgroup size matters only for programs whose results depend on it.
        """
        size = 32 if self.program.any_subgroup_size else subgroup_size
        if size not in self.oracles:
            with self.stage("oracle"):
                self.oracles[size] = interpret(self.program, self.memory, subgroup_size=size)
        return self.oracles[size]

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Context manager that turns exceptions into findings of the stage of this name."""
        try:
            yield
        except _FindingRaised:
            raise
        except Exception as error:  # noqa: BLE001  any exception of the compiler is a finding
            where = traceback.extract_tb(error.__traceback__)[-1]
            text = f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})"
            raise _FindingRaised(Finding(name, text)) from None

    def compare(self, stage: str, found: Outcome, expected: Outcome, ran: tuple[Device, Module] | None = None) -> None:
        """Raise a finding if the outcomes differ.

        `ran` is given for a run on a device: the device and the module. If subnormal numbers or a known driver bug may
        explain a difference on a device, the difference is only counted.
        """
        self.checker.counts["runs"] += 1
        text = difference(self.program, found, expected)
        if not text:
            return
        if ran is not None:
            device, module = ran
            fault = "subnormals" if is_excused(self.program, self.memory) else known_fault(device, module)
            if fault:
                self.checker.counts[f"excused by {fault}"] += 1
                return
        raise _FindingRaised(Finding(stage, text))

    # -- the runs

    def orders(self) -> None:
        """Run with another workgroup order, batch size and subgroup size."""
        expected = self.oracle()
        order = self.random.choice(["reverse", self.random.randrange(1000)])
        with self.stage("order"):
            # 32 is the subgroup size of the oracle; it is kept if results depend on the size
            size = self.random.choice([4, 8, 16, 64]) if self.program.any_subgroup_size else 32
            batch_size = self.random.choice([1, 64])
            outcome = interpret(self.program, self.memory, order=order, lanes_per_batch=batch_size, subgroup_size=size)
            self.compare("order", outcome, expected)

    def chain(self) -> None:
        """Run the interpreter after a chain of passes, and after the pipeline for a device without features."""
        chains = TILE_CHAINS if self.has_tiles else CHAINS
        for chain in (self.random.choice(chains), f"pipeline{self.random.choice(LEVELS)}"):
            stage = f"chain {chain}"
            with self.stage(stage):
                module = run_passes(clone_module(self.program.module), chain.split(","))
                # pipelines end in primitive form, and chains with `lower_exits` in normal form
                form = "primitive" if chain.startswith("pipeline") else "normal" if "exits" in chain else "high"
                broken = violations(module, form)
                if broken:
                    raise _FindingRaised(Finding(stage, "\n".join(broken)))
                if not self.prints or not chain.startswith("pipeline"):
                    self.compare(stage, interpret(self.program, self.memory, module), self.oracle())

    def lowered(self, device: Device, level: int, program: Program, caps: DeviceCaps | None = None) -> Module:
        """Return the program's module after the pipeline for a device, or for other capabilities `caps`.

        Programs with even seeds are lowered without the guard for drivers that stop long loops (`loop_cap`), so that
        loops are tested with the guard and without it.
        """
        caps = device.caps if caps is None else caps
        caps = caps if program.seed % 2 else replace(caps, loop_cap=None)
        verifies_passes = self.checker.options.thorough or (program.seed + level) % 3 == 0
        module = pipeline.run(
            clone_module(program.module), caps, level, after_pass=_verified if verifies_passes else None
        )
        _verified(f"the pipeline at level {level}", module, "normal" if caps.kind == "llvm-cpu" else "primitive")
        return module

    def level(self, device: Device, level: int) -> None:
        """Run the program on one device at one optimization level, and the interpreter on the lowered module."""
        if self.prints and device.caps.kind not in ("llvm-cpu", "interpreter"):
            return
        size = device.caps.subgroup_size
        stage = f"level {level} on {device.name}"
        with self.stage(f"passes of {stage}"):
            module = self.lowered(device, level, self.program)
            if level == 2 or (self.program.seed + level) % 3 == 0:  # at other levels, one program in three
                outcome = interpret(self.program, self.memory, clone_module(module), subgroup_size=size)
                self.compare(f"interpreter, level {level} for {device.name}", outcome, self.oracle(size))
        with self.stage(stage):
            artifact = emit_module(clone_module(module), device.caps)
            self.validated(stage, artifact.code)
        if is_too_long(device, artifact):
            self.checker.counts["modules too long for hardware"] += 1
            return
        if self.checker.options.watch and isinstance(artifact.code, bytes):
            self.watched(stage, device, artifact, module)
        if self.is_watched_for_gpus(device, level):
            self.watched_for_gpus(stage, device, level)
        with self.stage(stage):
            outcome = launch(self.program, self.memory, artifact, device)
            self.compare(stage, outcome, self.oracle(size), (device, module))
        if level == 2 and self.program.seed % SPIRV_OPT_EVERY == 0 and isinstance(artifact.code, bytes):
            self.spirv_optimized(device, artifact, module)

    def is_watched_for_gpus(self, device: Device, level: int) -> bool:
        """True if the program is also run with checked accesses, lowered as for GPUs, on this device."""
        chosen_by_seed = level == 2 and self.program.seed % WATCHED_EVERY == 1
        return device.caps.kind == "cpu" and (self.checker.options.watch or chosen_by_seed)

    def watched_for_gpus(self, stage: str, device: Device, level: int) -> None:
        """Run the program with checked accesses on a software device, but lowered as for GPUs: with tiles in shared
        memory and wide accesses.
        """
        # a device with the quirk "scalar_loads" gets no wide accesses
        caps = replace(device.caps, kind="discrete", quirks=device.caps.quirks - {"scalar_loads"})
        stage = f"{stage}, lowered for GPUs"
        with self.stage(f"passes of {stage}"):
            module = self.lowered(device, level, self.program, caps)
            artifact = emit_module(clone_module(module), caps)
        self.watched(stage, device, artifact, module)

    def watched(self, stage: str, device: Device, artifact: KernelArtifact, module: Module) -> None:
        """Run the artifact with checked accesses. An invalid address is a finding even if the device tolerates it."""
        stage = f"accesses, {stage}"
        self.checker.counts["runs watched"] += 1
        with self.stage(stage):
            outcome, lines = watched_launch(self.program, self.memory, artifact, device)
            if lines:
                raise _FindingRaised(Finding(stage, "\n".join(lines)))
            self.compare(stage, outcome, self.oracle(device.caps.subgroup_size), (device, module))

    def validated(self, stage: str, code: object) -> None:
        """Raise a finding if spirv-val rejects the module. Code that doesn't begin with SPIR-V's magic number is
        ignored.
        """
        if not self.checker.options.validated or not isinstance(code, bytes) or code[:4] != b"\x03\x02\x23\x07":
            return
        self.checker.counts["modules validated"] += 1
        text = validate.validation_error(code)
        if text:
            raise _FindingRaised(Finding(f"spirv-val, {stage}", text))

    def spirv_optimized(self, device: Device, artifact: KernelArtifact, module: Module) -> None:
        """Run the kernel's SPIR-V, optimized by spirv-opt, and compare with the oracle.

        The run is skipped if spirv-val rejects the optimized module: spirv-opt makes some valid modules invalid, for
        example by adding constants of types that the module only stores.
        """
        if device.caps.kind in ("llvm-cpu", "interpreter") or not tools.available("spirv-opt"):
            return
        stage = f"spirv-opt on {device.name}"
        with self.stage(stage):
            code = tools.optimize(artifact.code, "-O", "--target-env=vulkan1.3", "--scalar-block-layout")
            if validate.validation_error(code):
                self.checker.counts["modules spoilt by spirv-opt"] += 1
                return
            changed = replace(artifact, code=code)
            outcome = launch(self.program, self.memory, changed, device)
            self.compare(stage, outcome, self.oracle(device.caps.subgroup_size), (device, module))

    def variant(self) -> None:
        """Run one variant of the program (see `variants`) on a random device, or on the interpreter if there is
        none.
        """
        changes: list[Callable[[Program, Random], Program | None]]
        changes = [variants.swapped, variants.with_dead_code, variants.other_workgroups]
        change = self.random.choice(changes)
        changed = change(self.program, self.random)
        if changed is None:
            return
        devices = [d for d in self.checker.devices if not self.prints or d.caps.kind in ("llvm-cpu", "interpreter")]
        device = self.random.choice(devices) if devices else None
        name = change.__name__.replace("_", " ")
        size = 32 if device is None else device.caps.subgroup_size
        stage = f"variant, {name}, on {device.name if device is not None else 'interpreter'}"
        with self.stage(stage):
            if device is None:
                module = run_passes(clone_module(changed.module), ["pipeline2"])
                self.compare(stage, interpret(changed, self.memory, module), self.oracle(size))
                return
            module = self.lowered(device, 2, changed)
            outcome = launch_module(changed, self.memory, clone_module(module), device)
            self.compare(stage, outcome, self.oracle(size), (device, module))
