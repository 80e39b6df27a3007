"""Environment variables that configure vkjit, and the parsing of boolean ones.

A boolean variable has the value 0 or 1; any other value is an error at every use, so that a typo doesn't silently
select the default. The other variables are parsed by the modules that use them.
"""

from __future__ import annotations

import os

from .errors import ArgumentError

__all__ = ["RAW_KEYS", "SETTINGS", "boolean_setting", "raw_value", "unknown_settings"]

SETTINGS: dict[str, str] = {
    "VKJIT_CACHE": "0: disable the disk cache",
    "VKJIT_CACHE_DIR": "directory of the disk cache",
    "VKJIT_CACHE_SIZE": "maximum size of cached kernels in bytes",
    "VKJIT_CAPS": "the mask that `vkjit.testing.masks.masked()` applies to a device if it is called without one",
    "VKJIT_CPU_DUMP": "a folder for the LLVM IR and the assembly",
    "VKJIT_CPU_FEATURES": 'CPU features to disable on the device "cpu": -avx512f,-avx512vl',
    "VKJIT_CUDA_CLOCK": "0: don't keep NVIDIA GPUs out of their idle clock",
    "VKJIT_DEBUG": "1: kernels check every access, `vk.empty` is filled with NaN; 0: no bounds checks on CPUs either",
    "VKJIT_DEVICE": "the default device: a number, or a part of its name",
    "VKJIT_INTERPRETER_MATRICES": "a JSON file with the cooperative-matrix shapes that the interpreter supports",
    "VKJIT_MEMORY_FRACTION": "the fraction of the device's memory that may be used, above 0, at most 1",
    "VKJIT_NATIVE_LAUNCH": "0: launch without generated machine code; 1: use it from the first launch on",
    "VKJIT_NUM_THREADS": 'number of threads of the device "cpu"',
    "VKJIT_OPT": "optimization level of kernels: 0, 1 or 2",
    "VKJIT_REPEAT": "0: disable the op cache of tensor operations",
    "VKJIT_SANITIZE": '1, "all" or names of checks: run kernels with the sanitizer',
    "VKJIT_SHARE_MEMORY": "1: allocate memory that CUDA can import; 0: never (default: if PyTorch was imported before)",
    "VKJIT_SPIRV_VAL": "1: validate each module with spirv-val",
    "VKJIT_TIME_BUDGET": "maximum duration of a submission in seconds; 0: unlimited",
    "VKJIT_TRACE_MEMORY": "1: memory reports name the source lines that created the arrays",
    "VKJIT_TUNE": "0: ignore tuning results",
    "VKJIT_TUNED": "an additional file of tuning results",
    "VKJIT_VALIDATE": "1: enable the Vulkan validation layer",
    "VKJIT_VALIDATE_LOG": "a file for the messages of the validation layer",
    "VKJIT_VERIFY": "1: verify the IR after each pass",
}
"""All variables, with the descriptions that `python -m vkjit info` prints."""

# The dictionary behind os.environ, if there is one: lookups take a tenth of the time.
raw_value = getattr(os.environ, "_data", os.environ).get
"""Returns the value of a variable as the environment stores it, by its key in `RAW_KEYS`; None if it is unset."""

_encode = getattr(os.environ, "encodekey", str) if hasattr(os.environ, "_data") else str
RAW_KEYS = {name: _encode(name) for name in SETTINGS}


def boolean_setting(name: str) -> bool | None:
    """Return True for 1, False for 0 and None if the variable is unset or empty.

    Raises ArgumentError for other values.
    """
    if raw_value(RAW_KEYS[name]) is None:
        return None
    text = os.environ.get(name, "").strip()
    if text not in ("", "0", "1"):
        raise ArgumentError(f"{name} is {text!r}: expected 0 or 1")
    return None if not text else text == "1"


def unknown_settings() -> list[str]:
    """Return the environment variables that start with VKJIT_ but aren't settings."""
    return sorted(name for name in os.environ if name.startswith("VKJIT_") and name not in SETTINGS)
