"""The driver: from a kernel's description and a signature to an artifact, top to bottom.

Enters: a `KernelSpec` of the front end, a `Signature`, the capabilities of a device. Leaves: a `KernelArtifact`. Every
artifact goes through `compile_kernel`; the disk cache is asked first.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from . import cache, emit, frontend
from .errors import InternalError
from .frontend import KernelSpec, Signature
from .ir.core import Module
from .passes import pipeline
from .runtime.artifact import KernelArtifact
from .runtime.interface import DeviceCaps

__all__ = ["CompileTimes", "compile_kernel", "lower_for", "optimisation_level"]

AfterPass = Callable[[str, Module], None]


@dataclass(slots=True)
class CompileTimes:
    """Milliseconds spent in the stages of all compilations of this process."""

    frontend: float = 0.0
    passes: float = 0.0
    emit: float = 0.0
    count: int = 0
    cached: int = 0


TIMES = CompileTimes()


def optimisation_level() -> int:
    """VKJIT_OPT, 0 to 2 (default 2)."""
    text = os.environ.get("VKJIT_OPT", "2")
    if text not in ("0", "1", "2"):
        raise InternalError(f"VKJIT_OPT is {text!r}: expected 0, 1 or 2")
    return int(text)


def lower_for(
    spec: KernelSpec, signature: Signature, caps: DeviceCaps, *, after_pass: AfterPass | None = None
) -> Module:
    """The module as the back end of that device gets it; the interpreter takes the front end's form."""
    module = frontend.lower_kernel(spec, signature)
    if after_pass is not None:
        after_pass("frontend", module)
    return pipeline.run(module, caps, optimisation_level(), after_pass=after_pass)


def compile_kernel(spec: KernelSpec, signature: Signature, caps: DeviceCaps) -> KernelArtifact:
    """Compiles for a device, or takes the artifact from the disk cache. Raises CompileError, FeatureError."""
    interpreted = caps.kind == "interpreter"
    key = "" if interpreted else _cache_key(spec, signature, caps)
    if key:
        found = cache.load(key)
        if found is not None:
            TIMES.cached += 1
            return found
    start = time.perf_counter()
    module = frontend.lower_kernel(spec, signature)
    lowered = time.perf_counter()
    module = pipeline.run(module, caps, optimisation_level())
    optimised = time.perf_counter()
    artifact = emit.interpreter_artifact(module, caps) if interpreted else emit.emit(module, caps)
    emitted = time.perf_counter()
    TIMES.frontend += (lowered - start) * 1e3
    TIMES.passes += (optimised - lowered) * 1e3
    TIMES.emit += (emitted - optimised) * 1e3
    TIMES.count += 1
    if not interpreted:
        _validate(artifact)
        cache.store(key, artifact)
    return artifact


def _validate(artifact: KernelArtifact) -> None:
    """spirv-val over the module where VKJIT_SPIRV_VAL=1 asks for it."""
    if os.environ.get("VKJIT_SPIRV_VAL", "0") in ("", "0"):
        return
    from .spirv import tools

    tools.validate(artifact.code)


def _cache_key(spec: KernelSpec, signature: Signature, caps: DeviceCaps) -> str:
    """Everything that the code depends on; empty where the source's meaning can't be pinned down."""
    if not cache.enabled():
        return ""
    source = frontend.fingerprint(spec.fn)
    code = spec.fn.__code__
    place = f"{os.path.realpath(code.co_filename)}:{code.co_firstlineno}"  # reports name lines of this file
    parts = (source, place, repr(spec.over), repr(signature), _caps_text(caps), str(optimisation_level()), cache.compiler_digest())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _caps_text(caps: DeviceCaps) -> str:
    fields = {name: getattr(caps, name) for name in caps.__slots__}
    ordered = {name: sorted(value) if isinstance(value, frozenset) else value for name, value in sorted(fields.items())}
    return repr(ordered)
