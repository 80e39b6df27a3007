"""Entry point of `python -m tools.ulp`; the command is described in `measure`."""

from __future__ import annotations

import sys

from .measure import main

if __name__ == "__main__":
    sys.exit(main())
