"""The kernel sanitizer: instrumentation for races, uninitialized reads, overflow, NaN and more; see `instrument`."""

from __future__ import annotations

from .instrument import Sanitize
from .layout import AccessSite, SanitizerPlan
from .uniform_assumptions import MarkPromises

__all__ = ["AccessSite", "MarkPromises", "Sanitize", "SanitizerPlan"]
