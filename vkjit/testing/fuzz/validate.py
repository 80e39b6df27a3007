"""Validation of SPIR-V modules with spirv-val: by the shared library of SPIRV-Tools if it is installed, else by running
the command.

A library call takes 0.1 to 0.2 ms, the command 10 to 20 ms. Only the library is fast enough to check every module of a
fuzzing run.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any

import numpy as np

from vkjit.errors import InternalError
from vkjit.spirv import tools

__all__ = ["is_available", "validation_error"]

_VULKAN_1_3 = 23
"""SPV_ENV_VULKAN_1_3 of libspirv.h."""


class _Diagnostic(ctypes.Structure):
    """`spv_diagnostic_t` of libspirv.h; the first three fields are its `spv_position_t`."""

    _fields_ = (
        ("line", ctypes.c_size_t), ("column", ctypes.c_size_t), ("index", ctypes.c_size_t),
        ("error", ctypes.c_char_p), ("is_text_source", ctypes.c_bool),
    )  # fmt: skip


class _Binary(ctypes.Structure):
    """`spv_const_binary_t` of libspirv.h: the words of a module and their number."""

    _fields_ = (("code", ctypes.c_void_p), ("count", ctypes.c_size_t))


@functools.lru_cache(maxsize=1)
def _library() -> Any:
    """Return the shared library of the same installation as the command spirv-val; None if there is none."""
    path = tools.find("spirv-val")
    library_path = Path(path).resolve().parent.parent / "lib" / "libSPIRV-Tools-shared.so" if path else None
    if library_path is None or not library_path.exists():
        return None
    library = ctypes.CDLL(str(library_path))
    library.spvTargetEnvDescription.restype = ctypes.c_char_p
    library.spvContextCreate.restype = ctypes.c_void_p
    library.spvValidatorOptionsCreate.restype = ctypes.c_void_p
    for name in ("spvDiagnosticDestroy", "spvValidatorOptionsDestroy", "spvContextDestroy"):
        getattr(library, name).argtypes = (ctypes.c_void_p,)
    library.spvValidatorOptionsSetScalarBlockLayout.argtypes = (ctypes.c_void_p, ctypes.c_bool)
    library.spvValidateWithOptions.argtypes = (ctypes.c_void_p,) * 4
    return library


@functools.lru_cache(maxsize=1)
def _environment() -> int | None:
    """Return the library's enum value of the target environment Vulkan 1.3; None without the library.

    The value differs between versions of the library, so values near the expected one are tried too.
    """
    library = _library()
    if library is None:
        return None
    for value in range(_VULKAN_1_3 - 3, _VULKAN_1_3 + 8):
        text = library.spvTargetEnvDescription(value) or b""
        if b"Vulkan 1.3" in text:
            return value
    return None


def is_available() -> bool:
    """True if the command spirv-val is installed."""
    return tools.available("spirv-val")


def validation_error(code: bytes) -> str:
    """Return spirv-val's error message, or "" for a valid module."""
    environment = _environment()
    if environment is None:
        try:
            tools.validate(code)
        except InternalError as error:
            return str(error)
        return ""
    library = _library()
    words = np.frombuffer(code, np.uint32)
    binary = _Binary(words.ctypes.data, len(words))
    context, options = library.spvContextCreate(environment), library.spvValidatorOptionsCreate()
    library.spvValidatorOptionsSetScalarBlockLayout(options, True)
    diagnostic = ctypes.POINTER(_Diagnostic)()
    status = library.spvValidateWithOptions(context, options, ctypes.byref(binary), ctypes.byref(diagnostic))
    text = ""
    if status:
        text = (diagnostic.contents.error or b"").decode(errors="replace") if diagnostic else f"status {status}"
    if diagnostic:
        library.spvDiagnosticDestroy(diagnostic)
    library.spvValidatorOptionsDestroy(options)
    library.spvContextDestroy(context)
    return text
