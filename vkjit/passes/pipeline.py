"""The pass pipeline, from the front end's IR to the form that emitters take.

Takes a module in high form (see `ir.verify` for the forms) and the device's capabilities. Produces the primitive form:
a single kernel with everything inlined, one `return`, linear arrays, and only operations that have an instruction.

Optimization levels: 0 only lowers, 1 also simplifies once, 2 optimizes, and simplifies before and after the lowering.
The interpreter runs the high form after the checks; with the sanitizer, it runs the inlined, instrumented form.
VKJIT_VERIFY=1 verifies the module before the first and after each group of passes.
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
from .sanitizer import MarkPromises, Sanitize
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
from .workarounds.hide_zeros import HideZeros

__all__ = ["LLVM_FLOATS", "AfterPass", "native_functions", "passes_for", "run"]

AfterPass = Callable[[str, Module], None]
"""after_pass(name of the pass, module after it): a callback for `inspect` that must not change the module."""

LLVM_FLOATS: frozenset[OpName] = frozenset({"min", "max", "copysign", "isfinite"})
"""Float operations that LLVM implements and SPIR-V doesn't."""

_ONE_THREAD = frozenset({"cpu", "llvm-cpu", "interpreter"})
"""Kinds of devices that run a workgroup on a single thread."""

_SIMPLIFY: tuple[Pass, ...] = (Fold(), SimplifyBranches(), CSE(), Fold(), DCE())


def native_functions(caps: DeviceCaps) -> frozenset[OpName]:
    """Return the f32 functions that the back end provides with at least the accuracy of the expansions."""
    return frozenset({"exp", "exp2"} if "native_exp" in caps.features else ())


def _unroll(caps: DeviceCaps) -> Unroll:
    """Return the unrolling pass for a device.

    Software drivers compile long code slowly. LLVM unrolls by itself, so for it only loops over local arrays are
    unrolled, which enables other passes.
    """
    budgets = {"cpu": (48, 128, 8), "llvm-cpu": (0, 128, 8)}.get(caps.kind)
    return Unroll(*budgets) if budgets else Unroll()


def passes_for(caps: DeviceCaps, opt_level: int = 2, *, sanitized: bool = False) -> list[tuple[str, Sequence[Pass]]]:
    """Return the passes in order, as (form, passes) pairs: groups of passes, and the IR form that each produces."""
    if "unfolded_constants" in caps.quirks:
        opt_level = max(opt_level, 1)
    simplify = _SIMPLIFY if opt_level >= 1 else ()
    full = opt_level >= 2
    twice = (*_SIMPLIFY, LICM(), CSE()) if full else ()
    high: list[Pass] = [CheckUniformity(), CheckWritten(), CheckMatrices(caps.matrices, caps.kind == "interpreter")]
    sanitize = Sanitize(caps.kind == "cpu", caps.kind in _ONE_THREAD, caps.shared_bytes)
    tiles = LowerTiles(options_for(caps), caps)
    flat, bounds = (LowerExits(), Inline()), (Bounds(full),)
    checked = (*flat, *bounds) if sanitized else (*bounds, *flat)  # `bounds` can't version loops that contain calls
    level = (MarkPromises(), CheckAssumptions(), *checked, UseAssumptions(), tiles, sanitize)
    if caps.kind == "interpreter":  # it checks assumptions by itself
        return [("high", high), *([("normal", level)] if sanitized else [])]
    functions = native_functions(caps)
    native, last = (LLVM_FLOATS, "normal") if caps.kind == "llvm-cpu" else (frozenset(), "primitive")
    guard = LoopGuard(caps.loop_cap, caps.subgroup_size, "subgroup_arithmetic" in caps.features)
    fuse = FuseMultiplyAdd(caps.kind not in ("cpu", "llvm-cpu"))  # LLVM fuses by itself, software drivers can't
    reduce = StrengthReduction(full and caps.kind != "llvm-cpu")  # LLVM does it by itself
    widen = WidenAccess("scalar_loads" in caps.quirks)
    hide = (
        HideZeros("literal_float_zero" in caps.quirks),
        HideParity("parity_products" in caps.quirks),
        HideF16Rounding("unrounded_halves" in caps.quirks),
        CarryBoolsAsWords("carried_truths" in caps.quirks),
    )
    arithmetic = LowerArithmetic(native, caps.kind in ("cpu", "llvm-cpu"), "far_whole_numbers" not in caps.quirks)
    return [
        ("high", [*high, CheckUniformAssumptions()]),
        ("normal", level),
        ("normal", simplify),
        ("normal", [_unroll(caps), ScalarReplacement(), RemoveBarriers()] if full else []),
        ("normal", [LowerAccess(), PoisonShared()]),
        ("normal", [NarrowIndex(), *twice, DeadStores(), fuse, widen] if full else []),
        ("normal", [DropAssumptions()]),
        (
            last,
            [
                LowerAtomics(caps.features),
                LowerBf16(),
                LowerMath(functions, caps.kind == "llvm-cpu"),
                arithmetic,
                guard,
            ],
        ),
        (last, [*(twice or simplify), reduce, *hide]),
    ]


def run(module: Module, caps: DeviceCaps, opt_level: int = 2, *, after_pass: AfterPass | None = None) -> Module:
    """Lower a module for a device.

    `after_pass` is called after each pass. Raises CompileError for errors that need whole-program analysis, such as
    barriers in divergent control flow.
    """
    checked = bool(boolean_setting("VKJIT_VERIFY"))
    if checked:
        verify(module)
    for form, group in passes_for(caps, opt_level, sanitized=bool(module.kernel.attrs.get("sanitize"))):
        for step in group:
            module = step.run(module)
            if after_pass is not None:
                after_pass(step.name, module)
        if checked:
            verify(module, form)
    return module
