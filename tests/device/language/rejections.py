# mypy: disable-error-code="no-untyped-def"
"""Check of functions that a kernel can't call."""

from __future__ import annotations

from typing import Any

import pytest

import vkjit as vk


def rejected(function: Any, *texts: str) -> None:
    """Check that a kernel with the function is a CompileError with these texts and advice."""

    @vk.kernel(over="y")
    def kernel(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
        i = vk.global_id(0)
        y[i] = function(x[i], i)

    with pytest.raises(vk.CompileError) as caught:
        vk.check(kernel)
    message = str(caught.value)
    assert all(text in message for text in (*texts, "help: ")), message
