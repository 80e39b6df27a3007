"""Property-based testing of GPU kernels.

`check_kernel` and `@check` search for inputs and schedules (launch settings, see `Schedule`) on which a kernel fails,
shrink the input, and point at the source line. `strategies` returns a hypothesis strategy of a kernel's arguments.
`check_grads` compares gradients with finite differences. `tolerance` derives error bounds. `run` launches a kernel once
and detects writes outside its arrays; `sanitize` launches it once and reports races and other errors. Drawing inputs
needs hypothesis: `pip install 'vkjit[test]'`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .cases.case import array, out
from .cases.schedules import Schedule
from .checks import CheckResult, check, check_kernel
from .compare.tolerances import Tolerance, tolerance
from .execution.run import run, run_sanitized
from .explain.failures import CheckFailure
from .generate.strategies import strategies
from .sanitizer import sanitize, sanitized

if TYPE_CHECKING:
    from .gradients import GradientError, check_grads

__all__ = [
    "CheckFailure",
    "CheckResult",
    "GradientError",
    "Schedule",
    "Tolerance",
    "array",
    "check",
    "check_grads",
    "check_kernel",
    "out",
    "run",
    "run_sanitized",
    "sanitize",
    "sanitized",
    "strategies",
    "tolerance",
]


def __getattr__(name: str) -> Any:
    """Import the names that need the tensor layer on first use."""
    if name in ("GradientError", "check_grads"):
        from . import gradients

        return getattr(gradients, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
