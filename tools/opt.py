"""`python -m tools.opt FILE --passes fold,cse`: run passes over IR text, like LLVM's `opt`.

FILE may be `-` for the standard input. `--passes` takes the names of passes, in order (`PASSES` in
`vkjit.passes.registry`), or of a whole pipeline (`PIPELINES`); `--list` lists both. `--form` is the form of the IR that
the result is verified for (see `vkjit.ir.verify`); the module is also verified between passes. Exits with status 1 and
a message if a file can't be read or written, the IR can't be parsed or is invalid, or a pass is unknown or rejects the
module.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from vkjit.errors import VkjitError
from vkjit.ir.core import Module
from vkjit.ir.parser import parse_module
from vkjit.ir.printer import print_module
from vkjit.ir.verify import FORMS, verify
from vkjit.passes.registry import PASSES, PIPELINES, run_passes

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit status."""
    options = _parser().parse_args(arguments)
    if options.list:
        print("\n".join(_listing()))
        return 0
    if options.file is None:
        print("expected a file with IR text, or - for the standard input", file=sys.stderr)
        return 2
    try:
        _run(options)
    except OSError as error:
        print(f"{error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    except UnicodeDecodeError as error:
        print(f"{options.file} is no text in UTF-8 ({error.reason} at byte {error.start})", file=sys.stderr)
        return 1
    except VkjitError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.opt", description="Runs passes over the text of the IR.")
    parser.add_argument("file", nargs="?", help="a file with IR text, or - for the standard input")
    parser.add_argument("--passes", default="", help="comma-separated, in order: see --list")
    parser.add_argument("--list", action="store_true", help="list all pipelines and passes, with descriptions")
    parser.add_argument("--form", default="high", choices=FORMS, help="the form that the result is verified for")
    parser.add_argument("--locations", action="store_true", help="print locations")
    parser.add_argument("--each", action="store_true", help="print the module after each pass, too")
    parser.add_argument("--output", type=Path, default=None, metavar="FILE", help="write there instead of printing")
    return parser


def _run(options: argparse.Namespace) -> None:
    """Read, transform and write the module as the command-line options say. Raises OSError and VkjitError."""
    text = sys.stdin.read() if options.file == "-" else Path(options.file).read_text(encoding="utf-8")
    module = parse_module(text, options.file)
    verify(module)
    parts: list[str] = []

    def after_pass(name: str, current: Module) -> None:
        try:
            verify(current)
        except VkjitError as error:
            raise VkjitError(f"after {name}: {error}") from error
        if options.each:
            parts.append(f"// after {name}\n{print_module(current, locations=options.locations)}\n")

    module = run_passes(module, [name.strip() for name in options.passes.split(",") if name.strip()], after=after_pass)
    verify(module, options.form)
    if not options.each:
        parts.append(print_module(module, locations=options.locations))
    text_out = "".join(parts)
    if options.output is None:
        print(text_out, end="")
    else:
        options.output.write_text(text_out, encoding="utf-8")


def _listing() -> list[str]:
    """Return a line for each pipeline and pass; that of a pass shows the first paragraph of its module's docstring."""
    descriptions = {name: f"the whole pipeline at level {level}" for name, level in PIPELINES.items()}
    for name, make_pass in PASSES.items():
        docstring = sys.modules[type(make_pass()).__module__].__doc__ or ""
        descriptions[name] = " ".join(docstring.partition("\n\n")[0].split())
    return [f"{name:20} {description}" for name, description in descriptions.items()]


if __name__ == "__main__":
    sys.exit(main())
