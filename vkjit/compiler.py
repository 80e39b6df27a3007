"""The driver: from a kernel's description and a signature to an artifact, top to bottom.

Enters: a `KernelSpec` of the front end, a `Signature`, the capabilities of a device. Leaves: a `KernelArtifact`. Every
artifact goes through `compile_kernel`; the disk cache is asked first.
"""

from __future__ import annotations

import dataclasses
import gc
import hashlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from . import cache, frontend
from .errors import ArgumentError
from .frontend import ConstArg, KernelSpec, Signature
from .runtime.artifact import KernelArtifact
from .runtime.handles import on_fork
from .runtime.interface import DeviceCaps
from .settings import switch

if TYPE_CHECKING:  # a process that finds everything in the cache loads neither passes nor emitters
    from .ir.core import Module
    from .passes.trip_bound import TripBound

__all__ = ["CompileTimes", "compile_kernel", "emit_module", "lower_for", "optimisation_level"]

AfterPass = Callable[[str, Any], None]
"""Gets the name of a pass and the module after it."""

_COMPILER = cache.compiler_digest()  # of the files that were just loaded, not of what they become later
_BACK_ENDS = {"llvm-cpu": ("cpu",)}
"""Folders that decide about the code for a kind of device, beside the compiler's."""


class _Uncollected:
    """While any thread is inside, Python doesn't look for cycles: a compiler makes many objects and keeps most of them.

    A thread that Ctrl-C kept from leaving does so with its next visit.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._inside: set[int] = set()
        self._was_on = False

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._was_on = gc.isenabled()
            self._inside.add(threading.get_ident())
            gc.disable()

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside.discard(threading.get_ident())
            if not self._inside and self._was_on:
                gc.enable()

    def forget(self) -> None:
        """In a child of fork the threads that were inside don't exist."""
        if self._inside and self._was_on:
            gc.enable()
        self.__init__()  # type: ignore[misc]  # a lock that such a thread held is never released


_uncollected = _Uncollected()
on_fork(_uncollected.forget)


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
    """VKJIT_OPT, 0 to 2 (2 where it isn't set, or empty)."""
    text = os.environ.get("VKJIT_OPT", "").strip() or "2"
    if text not in ("0", "1", "2"):
        raise ArgumentError(f"VKJIT_OPT is {text!r}: expected 0, 1 or 2")
    return int(text)


def lower_for(
    spec: KernelSpec, signature: Signature, caps: DeviceCaps, *, after_pass: AfterPass | None = None
) -> Module:
    """The module as the back end of that device gets it; the interpreter takes the front end's form."""
    from .passes import pipeline

    module = frontend.lower_kernel(spec, signature)
    if after_pass is not None:
        after_pass("frontend", module)
    return pipeline.run(module, caps, optimisation_level(), after_pass=after_pass)


def compile_kernel(
    spec: KernelSpec, signature: Signature, caps: DeviceCaps, *, guarded: bool = False
) -> KernelArtifact:
    """Compiles for a device, or takes the artifact from the disk cache. Raises CompileError, FeatureError.

    On a device whose driver stops loops silently (`caps.loop_cap`), the artifact is without a guard where a bound on the
    iterations is known: `info["trip_bound"]`, to be held against the cap before each launch. `guarded` asks for the guard.
    """
    __tracebackhide__ = True
    interpreted = caps.kind == "interpreter"
    uncached = interpreted or bool(signature.sanitize)
    with _uncollected:  # the source's tree is enough to set a collection off: a third of a look-up's time
        key = "" if uncached else _cache_key(spec, signature, caps, guarded=guarded)
        found = cache.load(key) if key else None
    if found is not None:
        TIMES.cached += 1
        return found
    with _uncollected, frontend.naming_instance(spec, signature):
        artifact = _compile(spec, signature, caps, guarded=guarded)
    if not interpreted:
        if caps.kind != "llvm-cpu":
            _validate(artifact)
        if key:
            cache.store(key, artifact)
    return artifact


def _compile(spec: KernelSpec, signature: Signature, caps: DeviceCaps, *, guarded: bool) -> KernelArtifact:
    """From source to code, timed."""
    __tracebackhide__ = True
    start = time.perf_counter()
    module = frontend.lower_kernel(spec, signature)
    axes = _grid_axes(module)
    lowered = time.perf_counter()
    module, bound = _optimise(module, caps, guarded=guarded)
    optimised = time.perf_counter()
    artifact = emit_module(module, caps)
    artifact = replace(artifact, info={**artifact.info, "grid_axes": axes})
    if bound is not None:
        artifact = replace(artifact, info={**artifact.info, "trip_bound": bound})
    if signature.sanitize:
        artifact = replace(artifact, info={**artifact.info, "sanitizer": module.kernel.attrs["sanitizer_plan"]})
    emitted = time.perf_counter()
    TIMES.frontend += (lowered - start) * 1e3
    TIMES.passes += (optimised - lowered) * 1e3
    TIMES.emit += (emitted - optimised) * 1e3
    TIMES.count += 1
    return artifact


def _grid_axes(module: Module) -> tuple[int, ...]:
    """The axes of the grid along which the program asks where it is, or how many there are; of the front end's form."""
    ops = (op for function in module.all_functions() for op in function.body.walk())
    return tuple(sorted({op.attrs["dim"] for op in ops if op.name in ("global_id", "group_id", "num_groups")}))


def emit_module(module: Module, caps: DeviceCaps) -> KernelArtifact:
    """The artifact by the back end of the device's kind."""
    from . import emit

    if caps.kind == "interpreter":
        return emit.interpreter_artifact(module, caps)
    if caps.kind == "llvm-cpu":
        from .cpu import lower

        return lower.emit(module, caps)
    return emit.emit(module, caps)


def _optimise(module: Module, caps: DeviceCaps, *, guarded: bool) -> tuple[Module, TripBound | None]:
    """The pipeline; with the bound on iterations where the guard was left out because of it."""
    __tracebackhide__ = True
    from .passes import pipeline
    from .passes.loop_guard import LoopGuard, bounded_trip_product

    if caps.loop_cap is None or guarded:
        return pipeline.run(module, caps, optimisation_level()), None
    bounds: list[TripBound | None] = []

    def after_pass(name: str, current: Module) -> None:
        if name == LoopGuard.name and not bounds:
            bounds.append(bounded_trip_product(current))

    module.kernel.attrs["bound_checked"] = True
    module = pipeline.run(module, caps, optimisation_level(), after_pass=after_pass)
    return module, bounds[0] if bounds else None


def _validate(artifact: KernelArtifact) -> None:
    """spirv-val over the module where VKJIT_SPIRV_VAL=1 asks for it."""
    if not switch("VKJIT_SPIRV_VAL"):
        return
    from .spirv import tools

    tools.validate(artifact.code)


def _cache_key(spec: KernelSpec, signature: Signature, caps: DeviceCaps, *, guarded: bool) -> str:
    """Everything that the code depends on; empty where the source's meaning can't be pinned down."""
    if not cache.enabled():
        return ""
    source = frontend.fingerprint(spec.fn)
    code = spec.fn.__code__
    place = f"{os.path.realpath(code.co_filename)}:{code.co_firstlineno}"  # reports name lines of this file
    structs = [frontend.value_digest(composite.parameter.element) for composite in spec.composites]
    options = f"{optimisation_level()} {guarded}"
    back = cache.compiler_digest(_BACK_ENDS[caps.kind]) if caps.kind in _BACK_ENDS else ""
    parts = (
        source,
        place,
        repr(spec.over),
        *structs,
        _signature_text(signature),
        _caps_text(caps),
        options,
        _COMPILER,
        back,
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _signature_text(signature: Signature) -> str:
    """The signature in words that hold in every process; constants stand as their digests."""
    arguments = [frontend.value_digest(a.value) if isinstance(a, ConstArg) else repr(a) for a in signature.args]
    return f"{arguments} {dataclasses.replace(signature, args=())!r}"


def _caps_text(caps: DeviceCaps) -> str:
    fields = {name: getattr(caps, name) for name in caps.__slots__}
    ordered = {name: sorted(value) if isinstance(value, frozenset) else value for name, value in sorted(fields.items())}
    return repr(ordered)
