"""The pass pipeline: the order of the passes from the front end's output to the input of the code generators.

The compilation driver calls `run` with a module in the form "high" (see `ir.verify` for the forms) and the device's
capabilities. For Vulkan devices, the result has the form "primitive": a single kernel with everything inlined, one
`return`, linear arrays, and only operations that have a SPIR-V instruction. For LLVM, the result has the form "normal".
The interpreter runs the form "high", after the passes that check it; with the sanitizer, it runs the inlined and
instrumented kernel, in the form "normal". If it emulates a device without 64-bit integers, it runs a kernel in which
they are split into words.

Optimization level 0 only lowers the module. Level 1 also simplifies the module, once before and once after arithmetic
is lowered. Level 2 runs all optimizations.

VKJIT_VERIFY=1 verifies the module before the first group of passes and after each group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..ir.core import Module
from ..ir.ops import OpName
from ..ir.verify import verify
from ..runtime.device import DeviceCaps
from ..settings import boolean_setting
from . import Pass
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
from .sanitizer import MarkUniformAssumptions, Sanitize
from .size_limits import check_driver_limits, check_size
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

__all__ = ["LLVM_FLOATS", "AfterPass", "native_functions", "passes_for", "run"]

AfterPass = Callable[[str, Module], None]
"""after_pass(name of the pass, module after it): a callback that must not change the module."""

LLVM_FLOATS: frozenset[OpName] = frozenset({"min", "max", "copysign", "isfinite"})
"""Float operations that LLVM implements and SPIR-V doesn't."""

_ONE_THREAD = frozenset({"cpu", "llvm-cpu", "interpreter"})
"""Kinds of devices that run a workgroup on a single thread."""

_SIMPLIFY: tuple[Pass, ...] = (Fold(), SimplifyBranches(), CSE(), Fold(), DCE())
"""Passes that remove redundant operations. `Fold` runs again on what the passes between have simplified."""


def native_functions(caps: DeviceCaps) -> frozenset[OpName]:
    """Return the mathematical f32 functions that the back end computes at least as accurately as `lower_math`'s
    expansions.
    """
    return frozenset({"exp", "exp2"} if "native_exp" in caps.features else ())


def _unroll(caps: DeviceCaps) -> Unroll:
    """Return the unrolling pass for a device.

    Software drivers (kind "cpu") compile long code slowly, so the limits are lower for them. LLVM unrolls loops by
    itself. For LLVM, this pass unrolls only loops over local arrays, so that `sroa` can replace these arrays by values.
    """
    if caps.kind == "cpu":
        return Unroll(budget=48, array_budget=128, max_iterations=8)
    if caps.kind == "llvm-cpu":
        return Unroll(budget=0, array_budget=128, max_iterations=8)
    return Unroll()


def passes_for(caps: DeviceCaps, opt_level: int = 2, *, sanitized: bool = False) -> list[tuple[str, Sequence[Pass]]]:
    """Return the passes as a list of groups, in order: (IR form that the group produces, its passes).

    `sanitized` is True for a kernel with sanitizer checks.
    """
    if "unfolded_constants" in caps.quirks:  # the driver may crash on code that computes a lot with constants
        opt_level = max(opt_level, 1)
    simplify = _SIMPLIFY if opt_level >= 1 else ()
    optimizing = opt_level >= 2
    simplify_and_hoist = (*_SIMPLIFY, LICM(), CSE()) if optimizing else ()
    check_source: list[Pass] = [
        CheckUniformity(),
        CheckWritten(),
        CheckMatrices(caps.matrices, any_address=caps.kind == "interpreter"),
    ]
    sanitize = Sanitize(
        deferred=caps.kind == "cpu", one_thread=caps.kind in _ONE_THREAD, shared_bytes=caps.shared_bytes
    )
    tiles = LowerTiles(options_for(caps), caps)
    bounds_checks = Bounds(share=optimizing)
    # Normally each device function is checked once, before it is copied to its call sites. Sanitized kernels are
    # inlined first, as `Bounds` can't version loops that contain calls.
    inlining_and_checks: tuple[Pass, ...] = (
        (LowerExits(), Inline(), bounds_checks) if sanitized else (bounds_checks, LowerExits(), Inline())
    )
    to_normal: list[Pass] = [
        MarkUniformAssumptions(),
        CheckAssumptions(),
        *inlining_and_checks,
        UseAssumptions(),
        tiles,
        sanitize,
    ]
    has_int64 = "int64" in caps.features
    split: tuple[Pass, ...] = () if has_int64 else (DCE(), SplitInt64(caps.max_groups, caps.subgroup_size))
    if caps.kind == "interpreter":  # it needs no lowering, and checks assumptions itself
        if split:
            words: list[Pass] = [DropAssumptions(), LowerAccess(), LowerArithmetic(LLVM_FLOATS), *split, DCE()]
            return [("high", check_source), ("normal", to_normal), ("normal", words)]
        return [("high", check_source), ("normal", to_normal)] if sanitized else [("high", check_source)]
    for_llvm = caps.kind == "llvm-cpu"
    final_form = "normal" if for_llvm else "primitive"
    guard = LoopGuard(caps.loop_cap, caps.subgroup_size, "subgroup_arithmetic" in caps.features)
    # LLVM contracts on its own, and Vulkan drivers that run on the CPU compute an fma in two steps anyway
    multiply_add = FuseMultiplyAdd(enabled=caps.kind not in ("cpu", "llvm-cpu"))
    strength_reduction = StrengthReduction(enabled=optimizing and not for_llvm)  # LLVM has a pass of its own
    widen = WidenAccess(as_integers="scalar_loads" in caps.quirks and has_int64)
    workarounds = (
        HideZeros("literal_float_zero" in caps.quirks),
        HideParity("parity_products" in caps.quirks),
        HideF16Rounding("unrounded_halves" in caps.quirks),
        CarryBoolsAsWords("carried_truths" in caps.quirks),
        HideStarts("minimum_trip_counts" in caps.quirks),
        KeepLoopResults("recomputed_results" in caps.quirks),
        LimitNesting("shallow_nesting" in caps.quirks),
    )
    arithmetic = LowerArithmetic(
        LLVM_FLOATS if for_llvm else frozenset(),
        correctly_rounded_sqrt=caps.kind in ("cpu", "llvm-cpu"),
        correct_f64_rounding="far_whole_numbers" not in caps.quirks,
        int64=has_int64,
    )
    return [
        ("high", [*check_source, CheckUniformAssumptions()]),
        ("normal", to_normal),
        ("normal", simplify),
        ("normal", [_unroll(caps), ScalarReplacement(), RemoveBarriers()] if optimizing else []),
        ("normal", [LowerAccess(), PoisonShared()]),
        ("normal", [NarrowIndex(), *simplify_and_hoist, DeadStores(), multiply_add, widen] if optimizing else []),
        ("normal", [DropAssumptions()]),
        (
            final_form,
            [
                LowerAtomics(caps.features),
                LowerBf16(),
                LowerMath(native_functions(caps), branches=for_llvm),
                arithmetic,
                guard,
                *split,
            ],
        ),
        (final_form, [*(simplify_and_hoist if optimizing else simplify), strength_reduction, *workarounds]),
        (final_form, [] if for_llvm else [PadSubgroups(caps.subgroup_size), *split]),
    ]


def run(module: Module, caps: DeviceCaps, opt_level: int = 2, *, after_pass: AfterPass | None = None) -> Module:
    """Lower a module for a device.

    `after_pass` is called after each pass. Raises CompileError for errors that need whole-program analysis, such as
    barriers in divergent control flow.
    """
    verifying = bool(boolean_setting("VKJIT_VERIFY"))
    if verifying:
        verify(module)
    for form, group in passes_for(caps, opt_level, sanitized=bool(module.kernel.attrs.get("sanitize"))):
        for step in group:
            module = step.run(module)
            if after_pass is not None:
                after_pass(step.name, module)
        check_size(module)
        if verifying:
            verify(module, form)
    check_driver_limits(module, caps)
    return module
