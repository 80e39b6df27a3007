"""Generate `vkjit/ir/_gen_op_names.py`, the names of all operations as a `Literal` type.

    python -m tools.op_names            write the file
    python -m tools.op_names --check    check that the file is up to date (exit status 1 if not)

The names are those of the op table (`vkjit.ir.ops.OPS`), in its order.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from vkjit.ir import ops

__all__ = ["main", "render"]

TARGET = Path(ops.__file__).with_name("_gen_op_names.py")

_HEADER = '''"""The names of all operations; written by `python -m tools.op_names`. Do not edit."""

from __future__ import annotations

from typing import Literal

OpName = Literal[
'''


def render() -> str:
    """Return the text of the generated file."""
    return _HEADER + "".join(f'    "{name}",\n' for name in ops.OPS) + "]\n"


def main(argv: list[str] | None = None) -> int:
    """Run the command and return the exit status."""
    parser = argparse.ArgumentParser(description="Generate the type of op names.")
    parser.add_argument("--check", action="store_true", help="only check that the file is up to date")
    arguments = parser.parse_args(argv)
    text = render()
    if not arguments.check:
        TARGET.write_text(text, encoding="utf-8")
        return 0
    return 0 if TARGET.read_text(encoding="utf-8") == text else 1


if __name__ == "__main__":
    sys.exit(main())
