"""`python -m vkjit.tools.opt FILE --passes fold,cse`: run passes over IR text, like LLVM's `opt`.

FILE may be `-`. `--passes` takes names from `PASSES`, in order, or `pipeline` for the pipeline of a device without
special features; `--list` lists them. `--form` is the form that the result is verified for (see `vkjit.ir.verify`); the
module is also verified between passes. Exits with status 1 and a message if a file can't be read or written, the IR
can't be parsed or is invalid, or a pass is unknown or rejects the module.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from ..errors import VkjitError
from ..ir.core import Module
from ..ir.parser import parse_module
from ..ir.printer import print_module
from ..ir.verify import FORMS, verify
from ..passes import Pass, pipeline
from ..passes.assumptions import CheckAssumptions, DropAssumptions, UseAssumptions
from ..passes.barriers import RemoveBarriers
from ..passes.bounds import Bounds
from ..passes.check_matrices import CheckMatrices
from ..passes.check_promises import CheckPromises
from ..passes.check_written import CheckWritten
from ..passes.cse import CSE
from ..passes.dce import DCE
from ..passes.dead_stores import DeadStores
from ..passes.fold import Fold
from ..passes.fuse_multiply_add import FuseMultiplyAdd
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
from ..passes.poison_shared import PoisonShared
from ..passes.simplify_branches import SimplifyBranches
from ..passes.sroa import ScalarReplacement
from ..passes.strength_reduction import StrengthReduction
from ..passes.tiles import LowerTiles, options_for
from ..passes.uniformity import CheckUniformity
from ..passes.unroll import Unroll
from ..passes.widen_access import WidenAccess
from ..passes.workarounds.carry_words import CarryWords
from ..passes.workarounds.hide_halves import HideHalves
from ..passes.workarounds.hide_parity import HideParity
from ..passes.workarounds.hide_zeros import HideZeros
from ..runtime.interface import DeviceCaps

__all__ = ["PASSES", "PIPELINES", "main", "run_passes"]

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

PASSES: dict[str, Callable[[], Pass]] = {
    Bounds.name: Bounds,
    CarryWords.name: CarryWords,
    CheckAssumptions.name: CheckAssumptions,
    CheckMatrices.name: lambda: CheckMatrices(PLAIN_DEVICE.matrices),
    CheckPromises.name: CheckPromises,
    CheckWritten.name: CheckWritten,
    CSE.name: CSE,
    DCE.name: DCE,
    DeadStores.name: DeadStores,
    DropAssumptions.name: DropAssumptions,
    Fold.name: Fold,
    FuseMultiplyAdd.name: FuseMultiplyAdd,
    HideHalves.name: HideHalves,
    HideParity.name: HideParity,
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
    LowerTiles.name: lambda: LowerTiles(options_for(PLAIN_DEVICE), PLAIN_DEVICE),
    NarrowIndex.name: NarrowIndex,
    PoisonShared.name: PoisonShared,
    RemoveBarriers.name: RemoveBarriers,
    ScalarReplacement.name: ScalarReplacement,
    SimplifyBranches.name: SimplifyBranches,
    StrengthReduction.name: StrengthReduction,
    Unroll.name: Unroll,
    UseAssumptions.name: UseAssumptions,
    WidenAccess.name: WidenAccess,
    CheckUniformity.name: CheckUniformity,
}
"""Passes by name, with the options that the tool uses."""

PIPELINES = {"pipeline": 2, "pipeline0": 0, "pipeline1": 1, "pipeline2": 2}
"""Pipelines by name, with their optimization levels."""


def run_passes(module: Module, names: Sequence[str], *, after: Callable[[str, Module], None] | None = None) -> Module:
    """Run passes by name; `pipeline`, `pipeline0`, `pipeline1` and `pipeline2` are whole pipelines. `after` is called
    with the name and the module after each. Raises VkjitError.
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit status."""
    given = _parser().parse_args(arguments)
    if given.list:
        print("\n".join(_listing()))
        return 0
    if given.file is None:
        print("expected a file with IR text, or - for the standard input", file=sys.stderr)
        return 2
    try:
        _run(given)
    except OSError as error:
        print(f"{error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    except UnicodeDecodeError as error:
        print(f"{given.file} is no text in UTF-8 ({error.reason} at byte {error.start})", file=sys.stderr)
        return 1
    except VkjitError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m vkjit.tools.opt", description="Runs passes over the text of the IR."
    )
    parser.add_argument("file", nargs="?", help="a file with IR text, or - for the standard input")
    parser.add_argument("--passes", default="", help="comma-separated, in order: see --list")
    parser.add_argument("--list", action="store_true", help="tell all passes with what they do")
    parser.add_argument("--form", default="high", choices=FORMS, help="the form that the result is verified for")
    parser.add_argument("--locations", action="store_true", help="print locations")
    parser.add_argument("--each", action="store_true", help="print the module after each pass, too")
    parser.add_argument("--output", type=Path, default=None, metavar="FILE", help="write there instead of printing")
    return parser


def _run(given: argparse.Namespace) -> None:
    text = sys.stdin.read() if given.file == "-" else Path(given.file).read_text(encoding="utf-8")
    module = parse_module(text, given.file)
    verify(module)
    parts: list[str] = []

    def after(name: str, current: Module) -> None:
        try:
            verify(current)
        except VkjitError as error:
            raise VkjitError(f"after {name}: {error}") from error
        if given.each:
            parts.append(f"// after {name}\n{print_module(current, locations=given.locations)}\n")

    module = run_passes(module, [name.strip() for name in given.passes.split(",") if name.strip()], after=after)
    verify(module, given.form)
    if not given.each:
        parts.append(print_module(module, locations=given.locations))
    text_out = "".join(parts)
    if given.output is None:
        print(text_out, end="")
    else:
        given.output.write_text(text_out, encoding="utf-8")


def _listing() -> list[str]:
    """Return a line for each pass: its name and the first paragraph of its module's docstring."""
    rows = {name: f"the whole pipeline at level {level}" for name, level in PIPELINES.items()}
    for name, make in PASSES.items():
        text = sys.modules[type(make()).__module__].__doc__ or ""
        rows[name] = " ".join(text.partition("\n\n")[0].split())
    return [f"{name:20} {text}" for name, text in rows.items()]


if __name__ == "__main__":
    sys.exit(main())
