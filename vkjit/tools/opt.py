"""`python -m vkjit.tools.opt FILE --passes fold,cse`: IR text in, passes, IR text out.

FILE may be `-`. `--passes` takes names from `PASSES`, in order, or `pipeline` for all that a device without special
features gets; `--form` is the form that the result is verified for (see `vkjit.ir.verify`). Exit status 1 with a
message where the text can't be parsed or isn't valid.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from ..errors import VkjitError
from ..ir.core import Module
from ..ir.parser import parse_module
from ..ir.printer import print_module
from ..ir.verify import FORMS, verify
from ..passes import Pass, pipeline
from ..passes.barriers import RemoveBarriers
from ..passes.bounds import Bounds
from ..passes.cse import CSE
from ..passes.dce import DCE
from ..passes.dead_stores import DeadStores
from ..passes.fold import Fold
from ..passes.fuse_multiply_add import FuseMultiplyAdd
from ..passes.hide_zeros import HideZeros
from ..passes.inline import Inline
from ..passes.licm import LICM
from ..passes.loop_guard import LoopGuard
from ..passes.lower_access import LowerAccess
from ..passes.lower_arithmetic import LowerArithmetic
from ..passes.lower_atomics import LowerAtomics
from ..passes.lower_bf16 import LowerBf16
from ..passes.lower_exits import LowerExits
from ..passes.lower_math import LowerMath
from ..passes.narrow_index import NarrowIndex
from ..passes.simplify_branches import SimplifyBranches
from ..passes.sroa import ScalarReplacement
from ..passes.strength_reduction import StrengthReduction
from ..passes.uniformity import CheckUniformity
from ..passes.unroll import Unroll
from ..passes.widen_access import WidenAccess
from ..runtime.interface import DeviceCaps

__all__ = ["PASSES", "main", "run_passes"]

PASSES: dict[str, Callable[[], Pass]] = {
    Bounds.name: Bounds,
    CSE.name: CSE,
    DCE.name: DCE,
    DeadStores.name: DeadStores,
    Fold.name: Fold,
    FuseMultiplyAdd.name: FuseMultiplyAdd,
    HideZeros.name: HideZeros,
    Inline.name: Inline,
    LICM.name: LICM,
    LoopGuard.name: lambda: LoopGuard(65535),
    LowerAccess.name: LowerAccess,
    LowerArithmetic.name: LowerArithmetic,
    LowerAtomics.name: lambda: LowerAtomics(frozenset()),
    LowerBf16.name: LowerBf16,
    LowerExits.name: LowerExits,
    LowerMath.name: LowerMath,
    NarrowIndex.name: NarrowIndex,
    RemoveBarriers.name: RemoveBarriers,
    ScalarReplacement.name: ScalarReplacement,
    SimplifyBranches.name: SimplifyBranches,
    StrengthReduction.name: StrengthReduction,
    Unroll.name: Unroll,
    WidenAccess.name: WidenAccess,
    CheckUniformity.name: CheckUniformity,
}
"""Passes by name, with the options that the tool gives them."""

PLAIN_DEVICE = DeviceCaps(
    kind="other",
    subgroup_sizes=(32,),
    max_invocations=1024,
    max_local_size=(1024, 1024, 64),
    max_groups=(65535, 65535, 65535),
    shared_bytes=32768,
    push_constant_bytes=128,
    dtypes=frozenset({"bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "f32", "f64"}),
    features=frozenset(),
)


def run_passes(module: Module, names: Sequence[str]) -> Module:
    """Runs passes by name; `pipeline`, `pipeline0` and `pipeline1` stand for whole pipelines. Raises VkjitError."""
    for name in names:
        if name.startswith("pipeline"):
            module = pipeline.run(module, PLAIN_DEVICE, int(name.removeprefix("pipeline") or 2))
        elif name in PASSES:
            module = PASSES[name]().run(module)
        else:
            raise VkjitError(f"no pass is named {name!r}: expected pipeline or one of {', '.join(PASSES)}")
    return module


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; gives the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m vkjit.tools.opt", description="Runs passes over the text of the IR."
    )
    parser.add_argument("file", help="a file with IR text, or - for the standard input")
    parser.add_argument("--passes", default="", help=f"comma-separated: pipeline, {', '.join(PASSES)}")
    parser.add_argument("--form", default="high", choices=FORMS, help="the form that the result is verified for")
    parser.add_argument("--locations", action="store_true", help="print locations")
    given = parser.parse_args(arguments)
    text = sys.stdin.read() if given.file == "-" else Path(given.file).read_text(encoding="utf-8")
    try:
        module = parse_module(text, given.file)
        verify(module)
        module = run_passes(module, [name for name in given.passes.split(",") if name])
        verify(module, given.form)
    except VkjitError as error:
        print(error, file=sys.stderr)
        return 1
    print(print_module(module, locations=given.locations), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
