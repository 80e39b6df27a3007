"""`python -m vkjit inspect FILE:KERNEL`: Python, IR after each pass, SPIR-V or LLVM's text and the assembler text.

The file is imported like any module and its kernel compiled for the signature given by `--types` (or guessed from the
annotations: arrays get `f32` for free type variables).
"""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from .. import compiler, dtypes, emit, plan
from ..devices import device
from ..dtypes import DType
from ..errors import ArgumentError
from ..frontend import REQUIRED, ArrayArg, ConstArg, ParamSpec, ScalarArg, Signature, tune_choice
from ..ir.core import Module
from ..ir.printer import print_module
from ..jit import Kernel
from ..runtime.interface import DeviceCaps
from ..spirv import tools
from ..spirv.disassemble import disassemble

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("target", help="path/to/file.py:kernel")
    parser.add_argument("--types", default="", help="comma list: T=f16,K=32 (type variables, Const values)")
    parser.add_argument("--device", default=None, help="number or part of the name (default: the default device)")
    parser.add_argument("--stage", default="all", help="all, python, ir, spirv, llvm, assembly, or the name of a pass")
    parser.add_argument("--local", default="", help="workgroup size, as in 16,16")


def load_kernel(target: str) -> Kernel:
    """The kernel named by `path:name`. Raises ArgumentError with what is wrong."""
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
    found = getattr(module, name, None)
    if not isinstance(found, Kernel):
        kernels = [key for key, value in vars(module).items() if isinstance(value, Kernel)]
        raise ArgumentError(f"{path} has no kernel {name!r}; it has {', '.join(kernels) or 'none'}")
    return found


def _choices(text: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in text.split(",") if part]
    return {name.strip(): value.strip() for name, _, value in pairs}


def _dtype(param: ParamSpec, choices: dict[str, str]) -> DType:
    if isinstance(param.dtype, TypeVar):
        name = choices.get(param.dtype.__name__, "f32")
    elif param.dtype is None:
        name = choices.get(param.name, "f32")
    else:
        return param.dtype
    if name not in dtypes.by_name:
        raise ArgumentError(f"no element type is named {name!r}: expected one of {', '.join(dtypes.by_name)}")
    return dtypes.by_name[name]


def _const(param: ParamSpec, choices: dict[str, str]) -> Any:
    if param.name in choices:
        text = choices[param.name]
        return int(text) if text.lstrip("-").isdigit() else float(text)
    if param.default is REQUIRED:
        raise ArgumentError(f"give the constant {param.name} a value: --types {param.name}=...")
    return tune_choice(param.default)


def guess_signature(kernel: Kernel, choices: dict[str, str], local: tuple[int, ...], caps: Any) -> Signature:
    """A signature of contiguous arrays that fits the annotations."""
    args: list[Any] = []
    rank = 1
    typevars: dict[str, DType] = {}
    for param in kernel.spec.params:
        if param.kind == "const":
            args.append(ConstArg(_const(param, choices)))
            continue
        dtype = _dtype(param, choices)
        if isinstance(param.dtype, TypeVar):
            typevars[param.dtype.__name__] = dtype
        if param.kind == "scalar":
            args.append(ScalarArg(dtype))
            continue
        dims = len(str(param.dims).split()) if param.dims is not None else 1
        rank = dims if param.name == kernel.spec.over else rank
        args.append(ArrayArg(dtype, dims, contiguous=True, restrict=True))
    declared = kernel.declared_local()
    size = local or declared or plan.default_local_size(rank, caps)
    padded = (*size, 1, 1)
    return Signature(
        tuple(args), local_size=(padded[0], padded[1], padded[2]), narrow=True, typevars=tuple(sorted(typevars.items()))
    )


def run(arguments: argparse.Namespace) -> int:
    """Prints the stages asked for."""
    kernel = load_kernel(arguments.target)
    target = device(int(arguments.device) if (arguments.device or "").isdigit() else arguments.device)
    local = tuple(int(part) for part in arguments.local.split(",") if part)
    signature = guess_signature(kernel, _choices(arguments.types), local, target.caps)
    stage = arguments.stage

    def heading(text: str) -> None:
        print(f"\n==== {text}")

    if stage in ("all", "python"):
        heading(f"Python: {kernel.name}")
        print(inspect.getsource(kernel.spec.fn))

    previous = [""]

    def after_pass(name: str, module: Module) -> None:
        text = print_module(module)
        if stage in ("all", "ir", name) and text != previous[0]:
            heading(f"IR after {name}")
            print(text)
        previous[0] = text

    lowered = compiler.lower_for(kernel.spec, signature, target.caps, after_pass=after_pass)
    if target.caps.kind == "llvm-cpu" and stage in ("all", "llvm", "assembly"):
        _print_llvm(lowered, target.caps, stage, heading)
    if target.caps.kind in ("interpreter", "llvm-cpu") or stage not in ("all", "spirv"):
        return 0
    artifact = emit.emit(lowered, target.caps)
    heading(f"SPIR-V for {target.name}: {len(artifact.code)} bytes, argument block {artifact.block_size} bytes")
    print(tools.spirv_dis(artifact.code) if tools.available() else disassemble(artifact.code))
    return 0


def _print_llvm(lowered: Module, caps: DeviceCaps, stage: str, heading: Callable[[str], None]) -> None:
    """LLVM's text as written and as optimised, and the processor's instructions."""
    from ..cpu import lower, machine

    text = lower.text_of(lowered, caps)
    optimised, assembly = machine.texts_of(text)
    for name, title, content in (
        ("llvm", "LLVM", text), ("llvm", "LLVM, optimised", optimised), ("assembly", "assembly", assembly),
    ):  # fmt: skip
        if stage in ("all", name):
            heading(title)
            print(content)
