"""`python -m vkjit test FILE.py[:kernel]`: property tests of the kernels in a file, without a reference implementation.

Each kernel runs on inputs drawn at random to fit its signature, on several devices and under several schedules
(workgroup sizes, orders of workgroups, optimization levels), and the results must agree. Indices out of bounds, failed
asserts, divisions by zero, writes outside of arrays, and elements of `vk.Out` arrays that no invocation writes are
errors. `--mutate` measures how many mutants (kernels with one small change) the tests detect. `--write` proposes a test
file.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from ..backends.selection import device
from ..errors import ArgumentError, CompileError, VkjitError
from ..files import write_text
from ..frontend import REQUIRED
from ..launch.kernel import Kernel

__all__ = ["add_arguments", "run"]

MAX_MUTATION_EXAMPLES = 30
"""The maximum number of inputs per kernel and mutant with `--mutate`, which runs each kernel very often."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("target", help="path/to/file.py, or path/to/file.py:kernel")
    parser.add_argument(
        "--device", action="append", default=None, help="number or part of the name; may be repeated (default: the "
        "interpreter and the default device)",
    )  # fmt: skip
    parser.add_argument("--examples", type=int, default=100, help="inputs per kernel (default: 100)")
    parser.add_argument("--seed", type=int, default=None, help="makes the search repeatable")
    parser.add_argument(
        "--dims", action="append", default=[], metavar="N=0:300", help="sizes of a dimension: one, or LOW:HIGH"
    )
    parser.add_argument(
        "--elements", action="append", default=[], metavar="x=0:N-1", help="values of an argument: one, or LOW:HIGH; "
        "names of dimensions may be used",
    )  # fmt: skip
    parser.add_argument("--groups", default=None, metavar="4,4", help="number of workgroups, for kernels without any")
    parser.add_argument("--special", action="store_true", help="mixes in NaN, infinities, subnormals, -0, extremes")
    parser.add_argument("--partial", action="store_true", help="allows elements of vk.Out arrays that stay unwritten")
    parser.add_argument(
        "--mutate",
        action="store_true",
        help="breaks the kernels, one change at a time, and lists what their tests miss",
    )
    parser.add_argument(
        "--write", nargs="?", const="", default=None, metavar="TESTS.py", help="proposes a test file (default: "
        "test_FILE.py beside the file); an existing one is left alone",
    )  # fmt: skip
    parser.add_argument(
        "--artifacts", type=Path, default=None, metavar="FOLDER", help="folder for the files about a failure: a "
        "program that reproduces it, a report with the devices of the machine, the kernel's IR and SPIR-V",
    )  # fmt: skip
    parser.add_argument("--script", type=Path, default=None, help="file for the program that reproduces a failure")


def load_module(target: str) -> ModuleType:
    """Import the file that a target `path` or `path:name` names, and return the module."""
    path_text = target if Path(target).is_file() else target.rpartition(":")[0]
    return _import_file(Path(path_text))


def load_kernels(target: str) -> dict[str, Kernel]:
    """Return the kernels that a target names, by name: those defined in a file (`path`), or one of them (`path:name`).

    Raises ArgumentError if there are none.
    """
    path_text, _, name = (target, "", "") if Path(target).is_file() else target.rpartition(":")
    path = Path(path_text)
    if not path_text or not path.is_file():
        raise ArgumentError(f"{target!r}: expected path/to/file.py or path/to/file.py:kernel, and that the file exists")
    module = _import_file(path)
    own = {k: v for k, v in vars(module).items() if isinstance(v, Kernel) and v.spec.fn.__module__ == module.__name__}
    if not own:
        raise ArgumentError(f"{path} has no kernel: functions decorated with @vk.kernel at its top level")
    if name and name not in own:
        raise ArgumentError(f"{path} has no kernel {name!r}; it has {', '.join(own)}")
    return {name: own[name]} if name else own


def _import_file(path: Path) -> ModuleType:
    """Import a file: by its dotted module name if its folder is a package, else by path."""
    path = Path(os.path.abspath(path))
    parts, folder = [path.stem], path.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    if len(parts) > 1:
        sys.path.insert(0, str(folder))
        return importlib.import_module(".".join(parts))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ArgumentError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _pairs(texts: list[str], what: str) -> dict[str, Any]:
    """Parse the values `name=value` and `name=low:high` of an option to a dictionary; a range becomes a pair.

    Values that aren't Python literals are kept as text, and a missing value is None. `what` is the option's name for
    messages.
    """
    pairs = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator:
            raise ArgumentError(f"--{what} {text}: expected NAME=VALUE or NAME=LOW:HIGH")
        low, colon, high = value.partition(":")
        pairs[name.strip()] = (_number(low), _number(high)) if colon else _number(low)
    return pairs


def _groups(text: str | None) -> tuple[int, ...] | None:
    """Parse the option `--groups`, as in 4,4; None if it isn't given."""
    try:
        return tuple(map(int, text.split(","))) if text else None
    except ValueError:
        raise ArgumentError(f"--groups {text}: expected one to three numbers, as in --groups 4,4") from None


def _number(text: str) -> Any:
    """Parse a value: a Python literal, other text, or None if it is empty."""
    if not text.strip():
        return None
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError):
        return text.strip()


def _reason_to_skip(kernel: Kernel, groups: Any, elements: dict[str, Any]) -> str:
    """Return the reason why a kernel can't be tested without further options, or "" if it can."""
    params = kernel.spec.params
    unannotated = [p.name for p in params if p.kind == "any"]
    if unannotated:
        return f"parameter {unannotated[0]} has no annotation"
    constants = [
        p.name for i, p in enumerate(params)
        if p.kind == "const" and p.default is REQUIRED and p.name not in elements and i not in kernel.spec.size_constants
    ]  # fmt: skip
    if constants:
        return f"the Const parameter {constants[0]} has no default: give --elements {constants[0]}=..."
    if kernel.spec.over is None and kernel._groups is None and groups is None:
        return "it has neither over= nor groups=: give --groups"
    return ""


def run(arguments: argparse.Namespace) -> int:
    """Run the command. Exit code 1 if a kernel fails."""
    from ..testing import CheckFailure, check_kernel

    kernels = load_kernels(arguments.target)
    if arguments.write is not None:
        return _write(arguments, kernels)
    if arguments.mutate:
        return _mutate(arguments, kernels)
    groups, elements = _groups(arguments.groups), _pairs(arguments.elements, "elements")
    for name in arguments.device or ():
        device(name)  # report an unknown device name before testing
    failed = 0
    for name, kernel in kernels.items():
        reason = _reason_to_skip(kernel, groups, elements)
        if reason:
            print(f"skipped {name}: {reason}")
            continue
        try:
            result = check_kernel(
                kernel, devices=arguments.device, max_examples=arguments.examples, seed=arguments.seed,
                script=arguments.script, **_settings(arguments, kernel),
            )  # fmt: skip
        except CheckFailure as failure:
            print(f"FAILED  {failure}")
            failed += 1
            if arguments.artifacts is not None:
                print(f"written: {', '.join(map(str, failure.write_artifacts(arguments.artifacts)))}")
        except (CompileError, VkjitError) as error:
            print(f"FAILED  {name}: {error}")
            failed += 1
        else:
            print(f"ok      {result}")
    print(f"{len(kernels)} kernel{'s' if len(kernels) != 1 else ''}, {failed} failed")
    return 1 if failed else 0


def _settings(arguments: argparse.Namespace, kernel: Kernel) -> dict[str, Any]:
    """Return the `check_kernel` options from the command line that apply to this kernel."""
    own = {p.name for p in (*kernel.spec.params, *kernel.expanded_spec.params)}  # parameters, and fields of structs
    names = {n for p in kernel.spec.params if p.dims is not None for n in p.dims.names}
    return {
        "dims": {k: v for k, v in _pairs(arguments.dims, "dims").items() if k in names},
        "elements": {k: v for k, v in _pairs(arguments.elements, "elements").items() if k in own},
        "groups": _groups(arguments.groups) if kernel.spec.over is None and kernel._groups is None else None,
        "special": arguments.special,
        "partial": arguments.partial,
    }


def _write(arguments: argparse.Namespace, kernels: dict[str, Kernel]) -> int:
    """Write a proposed test file for the kernels. Raises ArgumentError if the file exists."""
    from ..testing.ghostwriter import proposed_tests

    source = Path(arguments.target if Path(arguments.target).is_file() else arguments.target.rpartition(":")[0])
    target = Path(arguments.write) if arguments.write else source.with_name(f"test_{source.stem}.py")
    if target.exists():
        raise ArgumentError(f"{target} exists already: name another file, as in --write other.py")
    write_text(target, proposed_tests(kernels, source, examples=arguments.examples, target=target))
    print(f"wrote {target}: {len(kernels)} kernels; review it, and add what you know about their results")
    return 0


def _mutate(arguments: argparse.Namespace, kernels: dict[str, Kernel]) -> int:
    """Print how many mutants of each kernel the tests detect.

    Exit code 1 if a mutant survives, or if an unmodified kernel fails its tests.
    """
    from ..testing.mutate.score_file import score_of_file

    module = load_module(arguments.target)
    killed = mutants = failed = 0
    for name in kernels:
        kernel = getattr(module, name)
        examples = min(arguments.examples, MAX_MUTATION_EXAMPLES)
        try:
            scores = score_of_file(module, {name: kernel}, examples=examples, **_settings(arguments, kernel))
            for result, details in scores:
                killed += result.count("killed")
                mutants += result.mutants
                print(f"{result}\n    ({details})", flush=True)
        except VkjitError as error:
            print(f"FAILED  {name}: {error}", flush=True)
            failed += 1
    print(f"mutation score: {killed} of {mutants} noticed ({killed / max(mutants, 1):.0%})")
    return 0 if killed == mutants and not failed else 1
