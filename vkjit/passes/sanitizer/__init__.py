"""The kernel sanitizer: passes that instrument kernels to detect races, uninitialized reads, overflow, NaN and more.

`Sanitize` (module `instrument`) runs near the end of the pipeline's lowering to the form "normal"; `MarkPromises` runs
before it. `layout` describes the memory that instrumented kernels share with the host; the package `vkjit.sanitizer`
allocates that memory at a launch and decodes the reports.
"""

from __future__ import annotations

from .instrument import Sanitize
from .layout import AccessSite, SanitizerPlan
from .uniform_assumptions import MarkUniformAssumptions

__all__ = ["AccessSite", "MarkUniformAssumptions", "Sanitize", "SanitizerPlan"]
