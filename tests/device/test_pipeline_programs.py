"""Generated kernels through the whole pipeline, at each level: devices agree with the interpreter on the high form.

The kernels are strict, so that floats agree to the bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.device.emit_kernels import expected, on_device, same
from tests.property.programs import GROUPS, arguments, generate
from vkjit.ir.rewrite import clone_module
from vkjit.passes import pipeline


@pytest.mark.parametrize("seed", range(24))
def test_generated_kernels(device: Any, seed: int) -> None:
    module = generate(seed, 10 + 2 * seed)
    module.kernel.attrs["strict"] = True
    args = [np.ascontiguousarray(a) if isinstance(a, np.ndarray) else a for a in arguments()]
    wanted = expected(module, GROUPS, args)
    for level in (0, 1, 2):
        lowered = pipeline.run(clone_module(module), device.caps, level)
        same(on_device(device, lowered, GROUPS, args), wanted)
