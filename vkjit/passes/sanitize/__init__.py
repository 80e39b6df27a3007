"""The kernel sanitizer: instrumentation for races, uninitialized reads, overflow, NaN and more; see `instrument`."""

from __future__ import annotations

from .instrument import Sanitize
from .plan import AccessSite, SanitizerPlan
from .promises import DoubtPromises

__all__ = ["AccessSite", "DoubtPromises", "Sanitize", "SanitizerPlan"]
