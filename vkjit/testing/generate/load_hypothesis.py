"""Lazy import of hypothesis, the optional package that draws and shrinks inputs."""

from __future__ import annotations

from types import ModuleType

from vkjit.errors import VkjitError

__all__ = ["load_hypothesis"]


def load_hypothesis() -> ModuleType:
    """Import and return hypothesis. Raises VkjitError with installation instructions if it isn't installed."""
    try:
        import hypothesis
    except ImportError as error:
        raise VkjitError(
            "vkjit.testing draws its inputs with hypothesis, which isn't installed: pip install 'vkjit[test]'"
        ) from error
    return hypothesis
