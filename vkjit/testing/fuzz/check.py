"""The differential check of one program: the core of the fuzzer.

The oracle is the interpreter on the high form. `Checker` compares it with: other orders and batches of workgroups; for
each device and level, the pipeline (verified, on some programs after each pass), the interpreter on the lowered module,
spirv-val on each SPIR-V module, and the device itself; chains of single passes on the interpreter; a variant of the
program (see `variants`); and for some programs the module optimized by spirv-opt. The program's seed decides which of
the optional runs are made. The result is the first `Finding`, or None.
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
from .assumptions import broken_promises
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
)  # fmt: skip
"""Single passes and short chains; one per program."""
TILE_CHAINS = (
    "lower_exits,inline",
    "lower_exits,inline,lower_tiles",
    "lower_exits,inline,lower_tiles,fold,cse,licm,dce",
)
"""Chains for programs on tiles; tiles are lowered before anything simplifies them."""
LEVELS = (0, 1, 2)
SPIRV_OPT_EVERY = 6
"""Spirv-opt's version of a module runs for one program in this many."""
MAX_HARDWARE_WORDS = 60_000
"""Maximum module size on hardware devices, in words; a longer module (such as unrolled tiles of thousands of elements
on four lanes) is skipped. NVIDIA's compiler takes seconds for 15,000 words and more than 20 for 94,000.
"""
WATCHED_EVERY = 4
"""One program in this many also runs with checked accesses at level 2, lowered as for GPUs, on software devices, which
tolerate accesses that other devices don't.
"""


def tile_options(random: Random) -> TileOptions:
    """Return random options for the lowering of tiles."""
    return TileOptions(
        subgroup=random.choice([4, 8, 16]),
        shuffles=random.random() < 0.6,
        shared_bytes=random.choice([48 << 10, 48 << 10, 4096]),
        vector=random.choice([1, 4]),
        direct=random.random() < 0.4,
        lanes=random.choice([0, 2, 4]),
        unroll=64,
        max_held=4096,
    )


@dataclass(frozen=True, slots=True)
class Finding:
    """A failure. `stage` names the run: "oracle", "order", "level 2 on ...", "chain ...", "variant ..."."""

    stage: str
    text: str


class _FindingRaised(Exception):  # noqa: N818  control flow, not an error
    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.text)
        self.finding = finding


@dataclass(frozen=True, slots=True)
class Options:
    """The runs to make besides the oracle.

    `thorough` runs each program at every level and verifies all passes; otherwise a program runs at level 2 and one
    other level, and the passes are verified on some runs. `watch` first runs every program with checked accesses (see
    `vkjit.testing.fuzz.watch`) at every level on every Vulkan device, on software devices also lowered as for GPUs.
    """

    thorough: bool = False
    variants: bool = True
    chains: bool = True
    validated: bool = True
    watch: bool = False


@dataclass(slots=True)
class Checker:
    """Checks programs on the given devices and counts its runs. The interpreter always runs and isn't listed."""

    devices: Sequence[Device]
    options: Options = field(default_factory=Options)
    counts: Counter[str] = field(default_factory=Counter)

    def check(self, program: Program, only: str = "") -> Finding | None:
        """Return the first finding, or None. `only` restricts the check to the stage of that name and the runs it
        depends on.
        """
        try:
            _Run(self, program, only).all()
        except _FindingRaised as signal:
            return signal.finding
        return None


def is_too_long(device: Device, artifact: KernelArtifact) -> bool:
    """True if a hardware driver would take too long to compile the module; False for software devices."""
    software = device.caps.kind in ("cpu", "llvm-cpu", "interpreter")
    return not software and isinstance(artifact.code, bytes) and len(artifact.code) > 4 * MAX_HARDWARE_WORDS


def _verified(name: str, module: Module, form: str = "high") -> None:
    """Raise a finding if a pass produced invalid IR."""
    broken = violations(module, form)
    if broken:
        raise _FindingRaised(Finding(f"verifier after {name}", "\n".join(broken)))


class _Run:
    """The runs of one program."""

    def __init__(self, checker: Checker, program: Program, only: str) -> None:
        self.checker = checker
        self.only = only
        self.program = program
        self.memory = Memory.of(program)
        self.random = Random(program.seed ^ 0x5EED)
        self.oracles: dict[int, Outcome] = {}
        self.has_tiles = any(op.name.startswith("tile_") for op in program.module.kernel.body.walk())
        self.prints = any(site.kind == "print" for site in program.module.sites)

    def all(self) -> None:
        """Make all runs, cheap ones first."""
        broken = violations(self.program.module)
        broken += broken_promises(self.program.module.kernel, self.program.layouts)
        if broken:
            raise _FindingRaised(Finding("generator", "\n".join(broken)))
        self.orders()
        if self.checker.options.chains and self.wanted("chain"):
            self.chain()
        if self.has_tiles and self.wanted("tiles"):
            self.tiles()
        for device in self.checker.devices:
            for level in self.levels():
                name = f"spirv-opt on {device.name}" if level == 2 else ""
                if self.wanted(f"level {level} on {device.name}", f"level {level} for {device.name}", name):
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
            except CompileError as error:  # too large for these options
                if "shared memory" in str(error):
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
        every = self.checker.options.thorough or self.only
        return LEVELS if every else (self.program.seed // 2 % 2, 2)

    def wanted(self, *stages: str) -> bool:
        """True if a stage is to be run."""
        return not self.only or any(stage and stage in self.only for stage in stages)

    def oracle(self, subgroup_size: int = 32) -> Outcome:
        """Return the outcome of the interpreter on the high form."""
        size = 32 if self.program.lane_free else subgroup_size
        if size not in self.oracles:
            with self.stage("oracle"):
                self.oracles[size] = interpret(self.program, self.memory, subgroup_size=size)
        return self.oracles[size]

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Context manager that turns exceptions into findings."""
        try:
            yield
        except _FindingRaised:
            raise
        except Exception as error:  # noqa: BLE001  any exception of the compiler is a finding
            where = traceback.extract_tb(error.__traceback__)[-1]
            text = f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})"
            raise _FindingRaised(Finding(name, text)) from None

    def compare(self, stage: str, found: Outcome, expected: Outcome, ran: tuple[Device, Module] | None = None) -> None:
        """Raise a finding if the outcomes differ, unless subnormals or a known driver bug explain it. `ran` is the
        device and the module it ran.
        """
        self.checker.counts["runs"] += 1
        text = difference(self.program, found, expected)
        if not text:
            return
        if ran is not None:
            fault = "subnormals" if is_excused(self.program, self.memory) else known_fault(*ran)
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
            size = self.random.choice([4, 8, 16, 64]) if self.program.lane_free else 32
            lanes = self.random.choice([1, 64])
            outcome = interpret(self.program, self.memory, order=order, lanes_per_batch=lanes, subgroup_size=size)
            self.compare("order", outcome, expected)

    def chain(self) -> None:
        """Run a chain of passes, and the pipeline of a device without features, on the interpreter."""
        chains = TILE_CHAINS if self.has_tiles else CHAINS
        for chain in (self.random.choice(chains), f"pipeline{self.random.choice(LEVELS)}"):
            stage = f"chain {chain}"
            with self.stage(stage):
                module = run_passes(clone_module(self.program.module), chain.split(","))
                form = "primitive" if chain.startswith("pipeline") else "normal" if "exits" in chain else "high"
                broken = violations(module, form)
                if broken:
                    raise _FindingRaised(Finding(stage, "\n".join(broken)))
                if not self.prints or not chain.startswith("pipeline"):
                    self.compare(stage, interpret(self.program, self.memory, module), self.oracle())

    def lowered(self, device: Device, level: int, program: Program, caps: DeviceCaps | None = None) -> Module:
        """Return the module lowered for a device, or for other capabilities; for every other program without the loop
        guard.
        """
        caps = device.caps if caps is None else caps
        caps = caps if program.seed % 2 else replace(caps, loop_cap=None)
        closely = self.checker.options.thorough or (program.seed + level) % 3 == 0
        module = pipeline.run(clone_module(program.module), caps, level, after_pass=_verified if closely else None)
        _verified(f"the pipeline at level {level}", module, "normal" if caps.kind == "llvm-cpu" else "primitive")
        return module

    def level(self, device: Device, level: int) -> None:
        """Run one level on one device, and the interpreter on the same module."""
        if self.prints and device.caps.kind not in ("llvm-cpu", "interpreter"):
            return
        size = device.caps.subgroup_size
        stage = f"level {level} on {device.name}"
        with self.stage(f"passes of {stage}"):
            module = self.lowered(device, level, self.program)
            if level == 2 or (self.program.seed + level) % 3 == 0:
                outcome = interpret(self.program, self.memory, clone_module(module), subgroup_size=size)
                self.compare(f"interpreter, {stage}".replace("on ", "for "), outcome, self.oracle(size))
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
            self.optimised(device, artifact, module)

    def is_watched_for_gpus(self, device: Device, level: int) -> bool:
        """True if the program is also run with checked accesses, lowered as for GPUs, on this device."""
        chosen = level == 2 and self.program.seed % WATCHED_EVERY == 1
        return device.caps.kind == "cpu" and (self.checker.options.watch or chosen)

    def watched_for_gpus(self, stage: str, device: Device, level: int) -> None:
        """Run the program, lowered as for GPUs (tiles in shared memory, wide accesses), with checked accesses on a
        software device.
        """
        caps = replace(device.caps, kind="discrete", quirks=device.caps.quirks - {"scalar_loads"})
        stage = f"{stage}, lowered for GPUs"
        with self.stage(f"passes of {stage}"):
            module = self.lowered(device, level, self.program, caps)
            artifact = emit_module(clone_module(module), caps)
        self.watched(stage, device, artifact, module)

    def watched(self, stage: str, device: Device, artifact: KernelArtifact, module: Module) -> None:
        """Run with checked accesses. An invalid address is a finding even if the device tolerates it."""
        stage = f"accesses, {stage}"
        self.checker.counts["runs watched"] += 1
        with self.stage(stage):
            outcome, lines = watched_launch(self.program, self.memory, artifact, device)
            if lines:
                raise _FindingRaised(Finding(stage, "\n".join(lines)))
            self.compare(stage, outcome, self.oracle(device.caps.subgroup_size), (device, module))

    def validated(self, stage: str, code: object) -> None:
        """Raise a finding if spirv-val rejects the module."""
        if not self.checker.options.validated or not isinstance(code, bytes) or code[:4] != b"\x03\x02\x23\x07":
            return
        self.checker.counts["modules validated"] += 1
        text = validate.complaint(code)
        if text:
            raise _FindingRaised(Finding(f"spirv-val, {stage}", text))

    def optimised(self, device: Device, artifact: KernelArtifact, module: Module) -> None:
        """Run the kernel's SPIR-V, optimized by spirv-opt, and compare with the oracle.

        Skipped if spirv-val rejects the optimized module: spirv-opt makes some valid modules invalid, for example by
        adding constants of types that the module only stores.
        """
        if device.caps.kind in ("llvm-cpu", "interpreter") or not tools.available("spirv-opt"):
            return
        stage = f"spirv-opt on {device.name}"
        with self.stage(stage):
            code = tools.optimize(artifact.code, "-O", "--target-env=vulkan1.3", "--scalar-block-layout")
            if validate.complaint(code):
                self.checker.counts["modules spoilt by spirv-opt"] += 1
                return
            changed = replace(artifact, code=code)
            outcome = launch(self.program, self.memory, changed, device)
            self.compare(stage, outcome, self.oracle(device.caps.subgroup_size), (device, module))

    def variant(self) -> None:
        """Run one variant of the program on one executor."""
        kinds: list[Callable[[Program, Random], Program | None]]
        kinds = [variants.swapped, variants.with_dead_code, variants.other_workgroups]
        kind = self.random.choice(kinds)
        changed = kind(self.program, self.random)
        if changed is None:
            return
        devices = [d for d in self.checker.devices if not self.prints or d.caps.kind in ("llvm-cpu", "interpreter")]
        device = self.random.choice(devices) if devices else None
        name = kind.__name__.replace("_", " ")
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
