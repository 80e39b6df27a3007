"""Entry point of `python -m vkjit`; see `vkjit.cli`."""

from .cli.main import main

if __name__ == "__main__":  # not in processes that are started from this one and import it again
    raise SystemExit(main())
