"""Support for running the suite under Vulkan's validation layer: each message fails the test that caused it.

Enabled by VKJIT_VALIDATE=1. VKJIT_VALIDATE_LOG is the prefix of the names of log files: each test process has its own
log, shared with the processes that its tests start. `python scripts/run.py validate` sets both. Tests that make invalid
calls on purpose make them in a separate process with the settings `QUIET`.
"""

from __future__ import annotations

import json
import os

QUIET = {"VKJIT_VALIDATE_LOG": ""}
"""Settings for a subprocess whose messages are to be ignored."""

_read: dict[str, int] = {}
"""Number of bytes already read, by path of the log."""


def wanted() -> bool:
    """True if this run uses the validation layer."""
    from vkjit.settings import boolean_setting

    return bool(boolean_setting("VKJIT_VALIDATE"))


def begin() -> None:
    """Set up a log file for this process and the processes that it starts."""
    if wanted() and os.environ.get("VKJIT_VALIDATE_LOG"):
        os.environ["VKJIT_VALIDATE_LOG"] += f".{os.getpid()}"


def present() -> bool:
    """True if the validation layer is available; opens the driver."""
    from vkjit.backends.vulkan.runtime import instance
    from vkjit.errors import DriverNotFoundError

    try:
        return instance.get_instance().validating
    except DriverNotFoundError:
        return False


def summary() -> str:
    """Return the line for the report header."""
    return "on, synchronisation included" if present() else "absent (vulkan-validationlayers): nothing is validated"


def collected() -> list[str]:
    """Return the messages since the last call, from this process and from those that it started."""
    from vkjit.backends.vulkan.runtime import instance

    live = instance.validation_messages()
    own = list(live)
    live.clear()
    return _logged() if os.environ.get("VKJIT_VALIDATE_LOG") else own


def _logged() -> list[str]:
    path = os.environ["VKJIT_VALIDATE_LOG"]
    if not os.path.exists(path):
        return []
    with open(path, "rb") as file:
        file.seek(_read.get(path, 0))
        data = file.read()
    whole = data[: data.rfind(b"\n") + 1]
    _read[path] = _read.get(path, 0) + len(whole)
    return [json.loads(line)["message"] for line in whole.splitlines()]
