"""Hypothesis, which draws and shrinks the inputs: an optional package, imported when it is first needed."""

from __future__ import annotations

from types import ModuleType

from ..errors import VkjitError

__all__ = ["load_hypothesis"]


def load_hypothesis() -> ModuleType:
    """The package. VkjitError that says how to install it where it is missing."""
    try:
        import hypothesis
    except ImportError as error:
        raise VkjitError(
            "vkjit.testing draws its inputs with hypothesis, which isn't installed: pip install 'vkjit[test]'"
        ) from error
    return hypothesis
