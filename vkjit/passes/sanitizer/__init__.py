"""The kernel sanitizer: passes that instrument kernels to detect races, uninitialized reads, overflow, NaN and more.

The pipeline runs two passes on sanitized kernels. `MarkUniformAssumptions` runs before calls are inlined. `Sanitize`
(module `instrument`) runs last in the lowering to the form "normal" (see `ir.verify`), and emits all checks but the
bounds checks. The module `layout` describes the memory that instrumented kernels share with the host. The package
`vkjit.sanitizer` allocates that memory at a launch and decodes the reports.
"""

from __future__ import annotations

from .instrument import Sanitize
from .layout import AccessSite, SanitizerPlan
from .uniform_assumptions import MarkUniformAssumptions

__all__ = ["AccessSite", "MarkUniformAssumptions", "Sanitize", "SanitizerPlan"]
