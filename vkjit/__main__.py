"""Entry point of `python -m vkjit`; see `vkjit.cli`."""

from .cli.main import main

raise SystemExit(main())
