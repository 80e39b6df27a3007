"""Builds the sanitizer's checks into a kernel: see `instrument`."""

from __future__ import annotations

from .instrument import Sanitize
from .plan import AccessSite, SanitizerPlan
from .promises import DoubtPromises

__all__ = ["AccessSite", "DoubtPromises", "Sanitize", "SanitizerPlan"]
