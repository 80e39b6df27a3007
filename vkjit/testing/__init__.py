"""Property-based testing of anybody's kernels.

`strategies` draws arguments from a kernel's signature, `check_kernel` and `@check` look for inputs and schedules for which a
kernel is wrong, shrink them and show the line, `check_grads` compares gradients with differences, `tolerance` derives
bounds, `run` launches a kernel once with guarded memory. Drawing needs hypothesis: pip install 'vkjit[test]'.
"""

from __future__ import annotations

from .case import array, out
from .checks import CheckResult, check, check_kernel
from .drawing import strategies
from .failures import CheckFailure
from .run import run
from .schedules import Schedule
from .tolerances import Tolerance, tolerance

__all__ = [
    "CheckFailure",
    "CheckResult",
    "Schedule",
    "Tolerance",
    "array",
    "check",
    "check_kernel",
    "out",
    "run",
    "strategies",
    "tolerance",
]
