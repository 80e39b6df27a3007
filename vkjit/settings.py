"""Environment variables that configure vkjit, and the parsing of boolean ones.

A boolean variable that is neither 0 nor 1 is an error at every use: a typo must not silently select the default.
Variables with other values are parsed where they are used.
"""

from __future__ import annotations

import os

from .errors import ArgumentError

__all__ = ["SETTINGS", "switch", "unknown"]

SETTINGS: dict[str, str] = {
    "VKJIT_CACHE": "0: nothing is kept on disk",
    "VKJIT_CACHE_DIR": "the folder of what is kept",
    "VKJIT_CACHE_SIZE": "the bytes that kernels may take there",
    "VKJIT_CAPS": "the mask that `vkjit.testing.masks.masked()` puts on a device where it is given none",
    "VKJIT_CPU_DUMP": "a folder that receives LLVM's text and the assembler's",
    "VKJIT_CPU_FEATURES": 'features of the processor that the device "cpu" does without: -avx512f,-avx512vl',
    "VKJIT_CUDA_CLOCK": "0: nothing keeps NVIDIA's GPUs from their idle clock",
    "VKJIT_DEBUG": "1: kernels check every access, `vk.empty` is filled with NaN",
    "VKJIT_DEVICE": "the default device: a number, or a part of its name",
    "VKJIT_INTERPRETER_MATRICES": "a file of JSON with the shapes of cooperative matrices that the interpreter has",
    "VKJIT_MEMORY_FRACTION": "the part of a device's memory that may be used, above 0, at most 1",
    "VKJIT_NATIVE_LAUNCH": "0: launches without machine code; 1: with it from the first on",
    "VKJIT_NUM_THREADS": 'the threads of the device "cpu"',
    "VKJIT_OPT": "how much kernels are optimised: 0, 1 or 2",
    "VKJIT_REPEAT": "0: no operation of tensors repeats what a call like it launched",
    "VKJIT_SANITIZE": '1, "all" or names of checks: kernels run under the sanitizer',
    "VKJIT_SHARE_MEMORY": "1: memory can be lent to CUDA; 0: never (default: where PyTorch was imported before)",
    "VKJIT_SPIRV_VAL": "1: spirv-val looks at each module",
    "VKJIT_TIME_BUDGET": "the seconds that a submission may take; 0: any",
    "VKJIT_TRACE_MEMORY": "1: reports on memory name the lines that made the arrays",
    "VKJIT_TUNE": "0: what tuning has found isn't used",
    "VKJIT_TUNED": "a file of tuned results that is read, too",
    "VKJIT_VALIDATE": "1: Vulkan's validation layer looks at each call",
    "VKJIT_VALIDATE_LOG": "a file for what that layer says",
    "VKJIT_VERIFY": "1: the compiler checks its IR after each pass",
}


def switch(name: str) -> bool | None:
    """Return True for 1, False for 0 and None if the variable is unset or empty. Raises ArgumentError for other values."""
    text = os.environ.get(name, "").strip()
    if text not in ("", "0", "1"):
        raise ArgumentError(f"{name} is {text!r}: expected 0 or 1")
    return None if not text else text == "1"


def unknown() -> list[str]:
    """Return the environment variables that start with VKJIT_ but aren't settings."""
    return sorted(name for name in os.environ if name.startswith("VKJIT_") and name not in SETTINGS)
