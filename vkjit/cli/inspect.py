"""`python -m vkjit inspect FILE:KERNEL`: show a kernel's Python source, IR, generated code and driver statistics.

The IR is shown after each pass; the generated code is SPIR-V, or LLVM IR and assembly on the device "cpu". The file is
imported as a module. The kernel is compiled for a signature guessed from its annotations: free type variables are
`f32`, unless `--types` binds them.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path
from typing import Any

from ..api.inspection import guess_signature, inspect_signature
from ..backends.selection import device
from ..errors import ArgumentError
from ..files import write_text
from ..launch.kernel import Kernel

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("target", help="path/to/file.py:kernel")
    parser.add_argument("--types", default="", help="comma list: T=f16,K=32 (type variables, Const values)")
    parser.add_argument("--device", default=None, help="number or part of the name (default: the default device)")
    parser.add_argument(
        "--stage", default="all", help="all, python, ir, spirv, llvm, assembly, statistics, or the name of a pass"
    )
    parser.add_argument("--local", default="", help="workgroup size, as in 16,16")
    parser.add_argument("--diff", action="store_true", help="of the IR after each pass only the lines that changed")
    parser.add_argument("--html", type=Path, default=None, metavar="FILE", help="write a page of HTML instead")


def load_kernel(target: str) -> Kernel:
    """Return the kernel named by `path:name`. Raises ArgumentError if there is none."""
    path_text, separator, name = target.rpartition(":")
    path = Path(path_text)
    if not separator or not path.is_file():
        raise ArgumentError(f"{target!r}: expected path/to/file.py:kernel, and that the file exists")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ArgumentError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    kernel = getattr(module, name, None)
    if not isinstance(kernel, Kernel):
        kernels = [key for key, value in vars(module).items() if isinstance(value, Kernel)]
        raise ArgumentError(f"{path} has no kernel {name!r}; it has {', '.join(kernels) or 'none'}")
    return kernel


def choices_of(text: str, kernel: Kernel) -> dict[str, Any]:
    """Parse the option `--types`, as in `T=f16,K=32`, to a dictionary.

    Types of type variables and of parameters stay text; values of Const parameters become numbers or bools. Raises
    ArgumentError for names that the kernel doesn't have.
    """
    constants = {p.name for p in kernel.spec.params if p.kind == "const"}
    # A type variable has a name of its own; a parameter whose type is inferred (None) is named itself.
    valid_names = constants | {getattr(p.dtype, "__name__", p.name) for p in kernel.spec.params if p.kind != "const"}
    choices: dict[str, Any] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, separator, value = (word.strip() for word in part.partition("="))
        if not separator or name not in valid_names:
            raise ArgumentError(
                f"--types {part}: expected NAME=VALUE, with one of {', '.join(sorted(valid_names)) or 'no name'}"
            )
        choices[name] = _number(name, value) if name in constants else value
    return choices


def _number(name: str, text: str) -> Any:
    """Parse the value of the Const parameter `name`: a bool, an integer or a float. Raises ArgumentError otherwise."""
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise ArgumentError(f"--types {name}={text}: expected a number, True or False")


def run(arguments: argparse.Namespace) -> int:
    """Print the requested stages, or write the HTML page."""
    kernel = load_kernel(arguments.target)
    target = device(int(arguments.device) if (arguments.device or "").isdigit() else arguments.device)
    try:
        local = tuple(int(part) for part in arguments.local.split(",") if part)
    except ValueError:
        raise ArgumentError(f"--local {arguments.local}: expected one to three numbers, as in 16,16") from None
    if len(local) > 3:
        raise ArgumentError(f"--local {arguments.local}: expected one to three numbers, as in 16,16")
    signature = guess_signature(kernel, target, choices_of(arguments.types, kernel), local)
    inspection = inspect_signature(kernel, signature, target)
    if arguments.html is not None:
        try:
            write_text(arguments.html, inspection.html())
        except OSError as error:
            raise ArgumentError(f"--html {arguments.html}: can't be written ({error.strerror})") from None
        print(f"wrote {arguments.html}")
        return 0
    print(inspection.text(arguments.stage, diff=arguments.diff))
    return 0
