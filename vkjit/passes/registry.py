"""Registry of passes by name, for tools and tests that run single passes or pipelines outside of a compilation."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence

from vkjit.errors import VkjitError
from vkjit.ir.core import Module
from vkjit.runtime.device import DeviceCaps

from . import Pass, pipeline
from .analysis.check_matrices import CheckMatrices
from .analysis.check_written import CheckWritten
from .analysis.uniformity import CheckUniformity
from .lowering.lower_access import LowerAccess
from .lowering.lower_arithmetic import LowerArithmetic
from .lowering.lower_atomics import LowerAtomics
from .lowering.lower_bf16 import LowerBf16
from .lowering.lower_exits import LowerExits
from .lowering.lower_math import LowerMath
from .lowering.pad_subgroups import PadSubgroups
from .lowering.split_int64 import SplitInt64
from .tiles import LowerTiles, options_for
from .transforms.assumptions import CheckAssumptions, DropAssumptions, UseAssumptions
from .transforms.barrier_elimination import RemoveBarriers
from .transforms.bounds_checks import Bounds
from .transforms.check_uniform_assumptions import CheckUniformAssumptions
from .transforms.cse import CSE
from .transforms.dce import DCE
from .transforms.dead_stores import DeadStores
from .transforms.fold import Fold
from .transforms.fuse_multiply_add import FuseMultiplyAdd
from .transforms.inline import Inline
from .transforms.licm import LICM
from .transforms.loop_guard import LoopGuard
from .transforms.narrow_index import NarrowIndex
from .transforms.poison_shared import PoisonShared
from .transforms.simplify_branches import SimplifyBranches
from .transforms.sroa import ScalarReplacement
from .transforms.strength_reduction import StrengthReduction
from .transforms.unroll import Unroll
from .transforms.widen_access import WidenAccess
from .workarounds.carry_words import CarryBoolsAsWords
from .workarounds.hide_halves import HideF16Rounding
from .workarounds.hide_parity import HideParity
from .workarounds.hide_starts import HideStarts
from .workarounds.hide_zeros import HideZeros
from .workarounds.keep_results import KeepLoopResults
from .workarounds.limit_nesting import LimitNesting

__all__ = ["PASSES", "PIPELINES", "PLAIN_DEVICE", "run_passes"]

PLAIN_DEVICE = DeviceCaps(
    kind="other",
    subgroup_sizes=(32,),
    max_invocations=1024,
    max_local_size=(1024, 1024, 64),
    max_groups=(65535, 65535, 65535),
    shared_bytes=32768,
    push_constant_bytes=128,
    dtypes=frozenset({"bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "f32", "f64"}),
    features=frozenset({"int64"}),
)
"""A generic device whose only optional feature are 64-bit integers, for passes with options that depend on the device."""

PASSES: dict[str, Callable[[], Pass]] = {
    Bounds.name: Bounds,
    CarryBoolsAsWords.name: CarryBoolsAsWords,
    CheckAssumptions.name: CheckAssumptions,
    CheckMatrices.name: lambda: CheckMatrices(PLAIN_DEVICE.matrices),
    CheckUniformAssumptions.name: CheckUniformAssumptions,
    CheckWritten.name: CheckWritten,
    CSE.name: CSE,
    DCE.name: DCE,
    DeadStores.name: DeadStores,
    DropAssumptions.name: DropAssumptions,
    Fold.name: Fold,
    FuseMultiplyAdd.name: FuseMultiplyAdd,
    HideF16Rounding.name: HideF16Rounding,
    HideParity.name: HideParity,
    HideStarts.name: HideStarts,
    HideZeros.name: HideZeros,
    Inline.name: Inline,
    KeepLoopResults.name: KeepLoopResults,
    LICM.name: LICM,
    LimitNesting.name: lambda: LimitNesting(max_depth=5),  # low, so that small programs are split, too
    LoopGuard.name: lambda: LoopGuard(65535),  # `PLAIN_DEVICE` has no cap on iterations, without which it does nothing
    LowerAccess.name: LowerAccess,
    LowerArithmetic.name: LowerArithmetic,
    LowerAtomics.name: lambda: LowerAtomics(frozenset()),
    LowerBf16.name: LowerBf16,
    LowerExits.name: LowerExits,
    LowerMath.name: LowerMath,
    LowerTiles.name: lambda: LowerTiles(options_for(PLAIN_DEVICE), PLAIN_DEVICE),
    NarrowIndex.name: NarrowIndex,
    PadSubgroups.name: lambda: PadSubgroups(PLAIN_DEVICE.subgroup_size),
    PoisonShared.name: PoisonShared,
    RemoveBarriers.name: RemoveBarriers,
    ScalarReplacement.name: ScalarReplacement,
    SimplifyBranches.name: SimplifyBranches,
    SplitInt64.name: SplitInt64,
    StrengthReduction.name: StrengthReduction,
    Unroll.name: Unroll,
    UseAssumptions.name: UseAssumptions,
    WidenAccess.name: WidenAccess,
    CheckUniformity.name: CheckUniformity,
}
"""Maps the name of a pass to a function that creates it, with options for `PLAIN_DEVICE`."""

PIPELINES = {"pipeline": 2, "pipeline0": 0, "pipeline1": 1, "pipeline2": 2}
"""Maps the name of a whole pipeline to its optimization level."""


def run_passes(module: Module, names: Sequence[str], *, after: Callable[[str, Module], None] | None = None) -> Module:
    """Run passes or whole pipelines by name, in order, and return the resulting module.

    `names` are keys of `PASSES` and `PIPELINES`. `after` is called after each pass or pipeline, with its name and the
    resulting module. Raises VkjitError for unknown names.
    """
    for name in names:
        if name in PIPELINES:
            module = pipeline.run(module, PLAIN_DEVICE, PIPELINES[name])
        elif name in PASSES:
            module = PASSES[name]().run(module)
        else:
            close = difflib.get_close_matches(name, [*PIPELINES, *PASSES], 1)
            hint = f"did you mean {close[0]}?" if close else f"expected one of {', '.join([*PIPELINES, *PASSES])}"
            raise VkjitError(f"no pass is named {name!r}: {hint}")
        if after is not None:
            after(name, module)
    return module
