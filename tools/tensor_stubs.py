"""Generate `vkjit/tensor/_gen_methods.pyi`, the methods of `Tensor` as type checkers and editors see them.

    python -m tools.tensor_stubs            write the file
    python -m tools.tensor_stubs --check    check that the file is up to date (exit status 1 if not)

`vkjit.tensor.methods` adds most methods to `Tensor` at run time, where type checkers can't see them. The generated file
holds a class with the signatures of these methods, without bodies. It is imported under `TYPE_CHECKING` only.
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from pathlib import Path
from typing import Any

from vkjit.tensor import api, methods  # `api` installs the methods
from vkjit.tensor.tensor import Tensor

__all__ = ["main", "render"]

TARGET = Path(api.__file__).with_name("_gen_methods.pyi")

_HEADER = '''"""The methods of `Tensor` for type checkers; written by `python -m tools.tensor_stubs`. Do not edit."""

import builtins
from collections.abc import Iterator, Sequence
from typing import Any

from .tensor import Tensor

class TensorMethods:
    """Methods that `methods.install` adds to `Tensor`."""
'''

_OPERATORS = [
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "matmul",
    "and",
    "or",
    "xor",
    "lshift",
    "rshift",
    "iadd",
    "isub",
    "imul",
    "itruediv",
    "ifloordiv",
    "imod",
    "ipow",
    "radd",
    "rsub",
    "rmul",
    "rtruediv",
    "rfloordiv",
    "rmod",
    "rpow",
    "rmatmul",
    "rand",
    "ror",
    "rxor",
    "rlshift",
    "rrshift",
    "lt",
    "le",
    "gt",
    "ge",
]
"""Binary operators, by their special methods without underscores."""
# `Tensor` has methods named like builtin types, such as `float`, so annotations must qualify the builtins
_BUILTIN = re.compile(r"\b(?<!\.)(int|float|bool|str|tuple|list|type)\b")
_ALIASES = {
    "Operand": "Any",
    "Dims": "int | Sequence[int] | None",
    "Shape": "tuple[int, ...]",
    "MinMax": "Any",
    "Order": "Any",
    "DeviceLike": "Any",
    "F": "Any",
}
"""Replacements for names in annotations that the generated file doesn't import."""


def _annotation(text: Any) -> str:
    """Return an annotation in terms of the names that the generated file imports."""
    if text is inspect.Parameter.empty:
        return "Any"
    annotation = str(text)
    for alias, meaning in _ALIASES.items():
        annotation = re.sub(rf"\b{alias}\b", meaning, annotation)
    return _BUILTIN.sub(r"builtins.\1", annotation)


def _parameter(parameter: inspect.Parameter) -> str:
    """Return the declaration of a parameter, with annotation and default."""
    prefix = (
        "*" if parameter.kind is parameter.VAR_POSITIONAL else "**" if parameter.kind is parameter.VAR_KEYWORD else ""
    )
    default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
    return f"{prefix}{parameter.name}: {_annotation(parameter.annotation)}{default}"


def _method(name: str, function: Any) -> list[str]:
    """Return the lines of a method's stub: signature and summary. The function's first parameter becomes `self`."""
    signature = inspect.signature(function)
    _, *parameters = signature.parameters.values()
    declared = ["self"]
    for parameter in parameters:
        has_star = any(declaration.startswith("*") for declaration in declared)
        if parameter.kind is parameter.KEYWORD_ONLY and not has_star:
            declared.append("*")  # keyword-only parameters follow, without `*args` before them
        declared.append(_parameter(parameter))
    result = _annotation(signature.return_annotation)
    summary = (inspect.getdoc(function) or "").split("\n\n")[0].replace("\n", " ")
    lines = [f"    def {name}({', '.join(declared)}) -> {result}:"]
    lines.append(f'        """{summary}"""' if summary else f'        """`{name}`."""')
    return [*lines, ""]


def _installed() -> dict[str, Any]:
    """Return the methods that `vkjit.tensor.methods` adds to `Tensor`, by name.

    Methods defined in the class statement, and the operators and properties that `render` lists, aren't included.
    """
    names = [n for _, group in methods._METHODS for n in group.split()]
    names += [
        *methods.NAMED,
        *methods._CONVERSIONS,
        "uniform_",
        "normal_",
        "type_as",
        "where",
    ]
    names += [f"new_{n}" for n in ("zeros", "ones", "empty", "full", "tensor")]
    return {name: vars(Tensor)[name] for name in sorted(set(names))}


def render() -> str:
    """Return the text of the generated file."""
    lines = [_HEADER]
    for name, function in _installed().items():
        lines += _method(name, function)
    for name in ("T", "mT"):
        lines += [
            "    @property",
            f"    def {name}(self) -> Tensor:",
            f'        """`{name}`: see the function."""',
            "",
        ]
    for name in _OPERATORS:
        lines += [
            f"    def __{name}__(self, other: Any, /) -> Tensor:",
            '        """Operator form of the method."""',
            "",
        ]
    for name in ("neg", "pos", "abs", "invert"):
        lines += [
            f"    def __{name}__(self) -> Tensor:",
            '        """Operator form of the method."""',
            "",
        ]
    for name in ("eq", "ne"):
        lines += [
            f"    def __{name}__(self, other: Any, /) -> Tensor:  # type: ignore[override]",
            '        """Elementwise."""',
            "",
        ]
    lines += [
        "    def __getitem__(self, index: Any, /) -> Tensor:",
        '        """`x[index]`."""',
        "",
        "    def __setitem__(self, index: Any, value: Any, /) -> None:",
        '        """`x[index] = value`."""',
        "",
        "    def __iter__(self) -> Iterator[Tensor]:",
        '        """Slices along the first axis."""',
        "",
    ]
    return "\n".join(lines).rstrip() + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.tensor_stubs", description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="only compare")
    options = parser.parse_args(arguments)
    text = render()
    if not options.check:
        TARGET.write_text(text, encoding="utf-8")
        return 0
    return 0 if TARGET.is_file() and TARGET.read_text(encoding="utf-8") == text else 1


if __name__ == "__main__":
    sys.exit(main())
