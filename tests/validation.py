"""Runs of the suite under Vulkan's validation layer: what it says fails the test that made it speak.

Enters: VKJIT_VALIDATE=1, and VKJIT_VALIDATE_LOG, the beginning of the names of files for messages: each process that runs
tests has one, which those that its tests start share. `python scripts/run.py validate` sets both. Leaves: messages. Tests
whose calls are wrong on purpose do them in a process of its own, with `QUIET` as its settings.
"""

from __future__ import annotations

import json
import os

QUIET = {"VKJIT_VALIDATE_LOG": ""}
"""Settings under which a process's messages are its own affair."""

_read: dict[str, int] = {}
"""Bytes of a log that were seen already."""


def wanted() -> bool:
    """Whether this run validates."""
    from vkjit.settings import switch

    return bool(switch("VKJIT_VALIDATE"))


def begin() -> None:
    """Gives this process, and those that it starts, a log of its own."""
    if wanted() and os.environ.get("VKJIT_VALIDATE_LOG"):
        os.environ["VKJIT_VALIDATE_LOG"] += f".{os.getpid()}"


def present() -> bool:
    """Whether the layer is there; opens the driver."""
    from vkjit.errors import DriverNotFoundError
    from vkjit.runtime import instance

    try:
        return instance.get_instance().validating
    except DriverNotFoundError:
        return False


def summary() -> str:
    """One line for the head of a report."""
    return "on, synchronisation included" if present() else "absent (vulkan-validationlayers): nothing is validated"


def collected() -> list[str]:
    """What the layer has said since the last call, here and in processes that were started from here."""
    from vkjit.runtime import instance

    live = instance.validation_messages()
    here = list(live)
    live.clear()
    return _logged() if os.environ.get("VKJIT_VALIDATE_LOG") else here


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
