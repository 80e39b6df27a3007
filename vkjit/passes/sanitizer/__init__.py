"""The kernel sanitizer: instrumentation for races, uninitialized reads, overflow, NaN and more; see `instrument`."""

from __future__ import annotations

from .instrument import Sanitize
from .layout import AccessSite, SanitizerPlan
from .uniform_assumptions import DoubtPromises

__all__ = ["AccessSite", "DoubtPromises", "Sanitize", "SanitizerPlan"]
