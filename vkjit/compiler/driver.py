"""The compilation driver: lowers a kernel through front end, passes and back end to an artifact.

`compile_kernel` takes a kernel (`KernelSpec`), the types and constants of its arguments (`Signature`) and the
capabilities of a device, and returns a `KernelArtifact`, from the disk cache if possible. Kernel launches call it for
each new signature.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .. import frontend
from ..backends.table import BACKENDS, Backend, Target, target_of
from ..errors import ArgumentError, CompileError
from ..frontend import ConstArg, KernelSpec, Signature
from ..frontend.source import source_of
from ..runtime.artifact import KernelArtifact
from ..runtime.device import DeviceCaps
from ..runtime.handles import on_fork
from ..runtime.open_blocks import block
from ..settings import boolean_setting
from . import cache, fingerprint

if TYPE_CHECKING:  # a process that hits the cache for every kernel loads neither passes nor emitters
    from ..ir.core import Module
    from ..passes.analysis.trip_bound import TripBound

__all__ = ["CompileTimes", "compile_kernel", "emit_module", "lower_for", "optimization_level"]

AfterPass = Callable[[str, Any], None]
"""Callback that gets the name of a pass and the module after it."""

_COMPILER = cache.compiler_digest()
"""A digest of the compiler's source files when this module was loaded. Later edits of the files don't change it."""


class _GcPaused:
    """Makes context managers that disable Python's cyclic garbage collector while any is open.

    A compilation creates many objects and keeps most of them, so collections during it are wasted.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._inside: set[object] = set()
        self._was_on = False

    @block
    def __call__(self) -> Iterator[None]:
        inside = object()
        try:
            with self._lock:
                if not self._inside:
                    self._was_on = gc.isenabled()
                self._inside.add(inside)
                gc.disable()
            yield
        finally:
            try:
                self._leave(inside)
            except BaseException:  # an interrupt
                self._leave(inside)
                raise

    def _leave(self, inside: object) -> None:
        with self._lock:
            if self._was_on and self._inside == {inside}:
                gc.enable()
            self._inside.discard(inside)

    def forget(self) -> None:
        """Reset the state in a forked child, where the threads that were inside don't exist."""
        if self._inside and self._was_on:
            gc.enable()
        self.__init__()  # type: ignore[misc]  # such a thread may hold the old lock, which is then never released


_gc_paused = _GcPaused()
on_fork(_gc_paused.forget)


@contextlib.contextmanager
def _bounded_depth(spec: KernelSpec) -> Iterator[None]:
    """Turn a RecursionError, as the passes raise for deeply nested code, into a CompileError."""
    try:
        yield
    except RecursionError:
        from ..frontend.context import TOO_DEEP, TOO_DEEP_HINT  # imported here: a cached kernel doesn't load it

        raise CompileError(TOO_DEEP, source_of(spec.fn).name_loc(), hint=TOO_DEEP_HINT) from None


@dataclass(slots=True)
class CompileTimes:
    """Statistics of the compilations of this process.

    `frontend`, `passes` and `emit` are the total milliseconds spent in these stages. `count` is the number of
    compilations, `cached` the number of kernels loaded from the disk cache instead.
    """

    frontend: float = 0.0
    passes: float = 0.0
    emit: float = 0.0
    count: int = 0
    cached: int = 0


TIMES = CompileTimes()
"""The statistics of this process."""


def optimization_level() -> int:
    """Return VKJIT_OPT, 0 to 2; 2 if unset or empty."""
    text = os.environ.get("VKJIT_OPT", "").strip() or "2"
    if text not in ("0", "1", "2"):
        raise ArgumentError(f"VKJIT_OPT is {text!r}: expected 0, 1 or 2")
    return int(text)


def lower_for(
    spec: KernelSpec, signature: Signature, caps: DeviceCaps, *, after_pass: AfterPass | None = None
) -> Module:
    """Lower a kernel and return the module in the form that the back end for the device takes.

    `after_pass` is also called after the front end, with the name "frontend".
    """
    from ..passes import pipeline

    module = frontend.lower_kernel(spec, signature)
    if after_pass is not None:
        after_pass("frontend", module)
    return pipeline.run(module, caps, optimization_level(), after_pass=after_pass)


def compile_kernel(
    spec: KernelSpec,
    signature: Signature,
    caps: DeviceCaps,
    *,
    guarded: bool = False,
    backends: Sequence[Backend] = BACKENDS,
) -> KernelArtifact:
    """Compile a kernel for a device, or load the artifact from the disk cache. Raises CompileError, FeatureError.

    Some drivers silently stop loops after a number of iterations (`caps.loop_cap`). For them, kernels get a loop guard,
    code that counts iterations and reports an error (see `passes.transforms.loop_guard`). The guard is omitted if the
    number of iterations can be bounded before a launch; the artifact's `info["trip_bound"]` is then the bound. A launch
    for which the bound exceeds the limit uses an artifact compiled with `guarded=True`, which forces the guard.
    `backends` is the table in which the code generator is looked up.
    """
    __tracebackhide__ = True
    target = target_of(caps, backends)
    uncached = not target.cached or bool(signature.sanitize)  # the cache can't store sanitizer plans
    # even parsing the source can trigger a garbage collection, which takes a third of the time of a cache lookup
    with _bounded_depth(spec), _gc_paused():
        key = "" if uncached else _cache_key(spec, signature, caps, target, guarded=guarded)
        from_cache = cache.load(key) if key else None
    if from_cache is not None:
        TIMES.cached += 1
        return from_cache
    with _bounded_depth(spec), _gc_paused(), frontend.naming_instance(spec, signature):
        artifact = _compile(spec, signature, caps, target, guarded=guarded)
    if target.spirv:
        _validate(artifact)
    if key:
        cache.store(key, artifact)
    return artifact


def _compile(
    spec: KernelSpec, signature: Signature, caps: DeviceCaps, target: Target, *, guarded: bool
) -> KernelArtifact:
    """Compile a kernel from source to code, and add the time of each stage to `TIMES`."""
    __tracebackhide__ = True
    from ..passes.analysis.check_written import unwritten_reads

    start = time.perf_counter()
    module = frontend.lower_kernel(spec, signature)
    info: dict[str, Any] = {"grid_axes": _grid_axes(module), "unwritten_reads": unwritten_reads(module)}
    lowered = time.perf_counter()
    module, bound = _optimize(module, caps, guarded=guarded)
    optimized = time.perf_counter()
    artifact = target.emit(module, caps)
    if bound is not None:
        info["trip_bound"] = bound
    if signature.sanitize:
        info["sanitizer"] = module.kernel.attrs["sanitizer_plan"]
    artifact = replace(artifact, info=artifact.info | info)
    emitted = time.perf_counter()
    TIMES.frontend += (lowered - start) * 1e3
    TIMES.passes += (optimized - lowered) * 1e3
    TIMES.emit += (emitted - optimized) * 1e3
    TIMES.count += 1
    return artifact


def _grid_axes(module: Module) -> tuple[int, ...]:
    """Return the grid axes whose ids or extents the module reads. Takes the front end's output."""
    ops = (op for function in module.all_functions() for op in function.body.walk())
    return tuple(sorted({op.attrs["dim"] for op in ops if op.name in ("global_id", "group_id", "num_groups")}))


def emit_module(module: Module, caps: DeviceCaps) -> KernelArtifact:
    """Generate code for a lowered module with the back end for the device, and return the artifact."""
    return target_of(caps).emit(module, caps)


def _optimize(module: Module, caps: DeviceCaps, *, guarded: bool) -> tuple[Module, TripBound | None]:
    """Run the pass pipeline. Return the lowered module and, if the loop guard was omitted, the bound on iterations."""
    __tracebackhide__ = True
    from ..passes import pipeline
    from ..passes.transforms.loop_guard import LoopGuard, bounded_trip_product

    if caps.loop_cap is None or guarded:
        return pipeline.run(module, caps, optimization_level()), None
    bounds: list[TripBound | None] = []  # at most one item, from `after_pass`

    def after_pass(name: str, current: Module) -> None:
        # the analysis by which the pass decides whether to omit the guard
        if name == LoopGuard.name and not bounds:
            bounds.append(bounded_trip_product(current))

    module.kernel.attrs["bound_checked"] = True  # allows the pass to omit the guard
    module = pipeline.run(module, caps, optimization_level(), after_pass=after_pass)
    return module, bounds[0] if bounds else None


def _validate(artifact: KernelArtifact) -> None:
    """Validate the module with spirv-val if VKJIT_SPIRV_VAL=1."""
    if not boolean_setting("VKJIT_SPIRV_VAL"):
        return
    from ..spirv import tools

    tools.validate(artifact.code)


def _cache_key(spec: KernelSpec, signature: Signature, caps: DeviceCaps, target: Target, *, guarded: bool) -> str:
    """Return a hash of everything that the code depends on, or "" if the cache is disabled."""
    if not cache.enabled():
        return ""
    source = fingerprint.fingerprint(spec.fn)
    code = spec.fn.__code__
    location = f"{os.path.realpath(code.co_filename)}:{code.co_firstlineno}"  # error reports contain the file and line
    structs = [fingerprint.value_digest(composite.parameter.element) for composite in spec.composites]
    options = f"{optimization_level()} {guarded}"
    back_end = cache.compiler_digest(target.sources) if target.sources else ""
    parts = (
        source,
        location,
        repr(spec.over),
        *structs,
        _signature_text(signature),
        _caps_text(caps),
        options,
        _COMPILER,
        back_end,
    )
    return hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()


def _signature_text(signature: Signature) -> str:
    """Return a text that identifies the signature in every process: its repr, with the digests of constants."""
    arguments = [fingerprint.value_digest(a.value) if isinstance(a, ConstArg) else repr(a) for a in signature.args]
    return f"{arguments} {dataclasses.replace(signature, args=())!r}"


def _caps_text(caps: DeviceCaps) -> str:
    """Return a text that identifies the capabilities in every process; sets are sorted."""
    fields = {name: getattr(caps, name) for name in caps.__slots__}
    ordered = {name: sorted(value) if isinstance(value, frozenset) else value for name, value in sorted(fields.items())}
    return repr(ordered)
