"""Entry point of `python -m tools.strict`; the command is described in `compare`."""

from __future__ import annotations

import sys

from .compare import main

if __name__ == "__main__":
    sys.exit(main())
