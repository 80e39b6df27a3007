"""`python -m tools.ulp`: see `measure`."""

from __future__ import annotations

import sys

from .measure import main

if __name__ == "__main__":
    sys.exit(main())
